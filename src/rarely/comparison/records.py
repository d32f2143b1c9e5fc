"""One recorded run of a comparison, sealed, so that it can be submitted and merged.

A record says which rounds were played (a digest of what every arm would have paid), so that only records of the same
rounds are compared, whoever made them and with whatever version.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from rarely.comparison.cells import Cell, identity
from rarely.comparison.play import Played
from rarely.simulation.json_object import JsonObject
from rarely.simulation.provenance import describe, fingerprint_of
from rarely.simulation.recorded_run import RecordedRun
from rarely.simulation.sealed_json import Malformed
from rarely.worlds import Rounds

FORMAT = 1
KIND = "comparison"
CODE = (
    *("core", "theory/kernel_ucb.py", "worlds/protocol.py", "worlds/synthetic.py", "worlds/gallery.py"),
    *("worlds/table.py", "comparison/play.py", "comparison/variants.py", "comparison/problems.py"),
    *("comparison/library.py", "comparison/policies.py", "comparison/adapters.py"),
)
"""What a record's numbers depend on."""
POINTS = 20
"""About so many points of a regret curve are on record."""
CLOSE = 1e-6
ADVICE = "Run compare again to play its cell anew, or remove the file"
"""What to do about a file that is refused."""


@dataclass(frozen=True)
class Record(RecordedRun):
    """What is known of a finished cell.

    Examples
    --------
    >>> import tempfile
    >>> from rarely.comparison import Comparison, compare, read_records
    >>> folder = tempfile.mkdtemp()
    >>> _ = compare(Comparison(["cosine"], ["linucb", "uniform"], [5], seeds=1, rounds=40), folder)
    >>> record = read_records(folder).records[0]
    >>> record.id, record.problem, record.policy
    ('cosine/linucb/B5/seed0', 'cosine', 'linucb')
    """

    @property
    def family(self) -> str:
        """The variant, or the set that the problem belongs to."""
        return str(self.data["family"])

    @property
    def policy(self) -> str:
        """The policy's name."""
        return str(self.data["asked"]["policy"]["name"])

    @property
    def batches(self) -> int | None:
        """B; None is T."""
        value = self.data["asked"]["batches"]
        return None if value is None else int(value)

    @property
    def uniform(self) -> float:
        """The expected regret of uniform play on the same rounds."""
        return float(self.data["uniform"])

    @property
    def seconds(self) -> float:
        """Processor time of the policy: selecting and training."""
        return float(self.data["seconds"]["selecting"] + self.data["seconds"]["training"])

    @property
    def covered(self) -> tuple[int, int]:
        """Rewards within the policy's own 95 % intervals, and how many intervals it gave."""
        inside, asked = self.data["covered"]
        return int(inside), int(asked)

    @property
    def code(self) -> tuple[str, str]:
        """The code of the library, and a stranger's own."""
        return str(self.data["code"]), str(self.data["asked"]["policy"]["text"])

    @property
    def machine(self) -> str:
        """Where it was played."""
        return str(self.data["environment"]["machine"])


def code_fingerprint() -> str:
    """A hash of the source that decides a record's numbers."""
    return fingerprint_of(CODE)


def digest_of_rounds(rounds: Rounds) -> str:
    """A hash of what was played; single precision, so that the last bits of another machine do not matter."""
    parts = (rounds.contexts, rounds.means, rounds.rewards)
    return hashlib.sha256(b"".join((np.float32(part) + np.float32(0)).tobytes() for part in parts)).hexdigest()[:16]


def make_record(cell: Cell, family: str, rounds: Rounds, played: Played, wall: float) -> Record:
    """The record of a cell that was just played in this process."""
    asked = cell.describe()
    best = rounds.means.max(axis=1)
    curve = np.cumsum(played.regrets)
    at = np.unique(np.linspace(1, len(curve), min(POINTS, len(curve))).round().astype(int))
    data = {
        "format": FORMAT,
        "kind": KIND,
        "id": cell.id,
        "identity": identity(asked),
        "code": code_fingerprint(),
        "asked": asked,
        "family": family,
        "rounds_digest": digest_of_rounds(rounds),
        "regret": float(curve[-1]),
        "uniform": float((best - rounds.means.mean(axis=1)).sum()),
        "worst": float((best - rounds.means.min(axis=1)).sum()),
        "reward": played.reward,
        "curve": [[int(t), round(float(curve[t - 1]), 4)] for t in at],
        "updates": played.updates,
        "covered": list(played.covered),
        "seconds": {"selecting": played.selecting.seconds, "training": played.training.seconds},
        "wall": wall,
        "environment": describe(),
    }
    check_record(data)
    return Record(data)


def check_record(data: dict[str, Any]) -> None:
    """Refuse a record that no run can have left."""
    record = JsonObject(data)
    record.one_of("kind", (KIND,))
    asked = record.inside("asked")
    problem, policy = asked.inside("problem"), asked.inside("policy")
    rounds, seed = asked.whole("rounds", 2), asked.whole("seed", 0)
    batches = None if asked.value("batches") is None else asked.whole("batches", 1, rounds)
    policy.text("text")
    expected = f"{problem.text('name')}/{policy.text('name')}/B{batches or 'T'}/seed{seed}"
    if record.text("id") != expected or ".." in expected or "\\" in expected or expected.count("/") != 3:
        raise record.wrong("id", f"{expected}, as it was asked, with names that are no paths")
    if record.value("identity") != identity(asked.data):
        raise Malformed("its identity is not that of what was asked")
    for name in ("code", "family", "rounds_digest"):
        record.text(name)
    worst = record.number("worst", 0.0)
    for name in ("uniform", "regret"):
        record.number(name, 0.0, worst * (1 + CLOSE) + CLOSE)
    record.number("reward")
    record.number("wall", 0.0)
    updates = record.rising("updates", 1, rounds - 1)
    if len(updates) > (batches or rounds) - 1:
        raise record.wrong("updates", f"a list of at most {(batches or rounds) - 1}, which is the budget")
    covered = record.items("covered", 2)
    pair = JsonObject({"inside": covered[0], "asked": covered[1]}, "covered.")
    pair.whole("inside", 0, pair.whole("asked", 0, rounds))
    for name in ("selecting", "training"):
        record.inside("seconds").number(name, 0.0)
    for name in ("machine", "rarely", "python", "numpy"):
        record.inside("environment").text(name)
    _check_curve(record, rounds)


def _check_curve(record: JsonObject, rounds: int) -> None:
    pairs = record.items("curve")
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise record.wrong("curve", "a list of pairs (round, regret so far)")
    at = JsonObject({"curve": [pair[0] for pair in pairs]}).rising("curve", 1, rounds)
    values = JsonObject({"curve": [pair[1] for pair in pairs]}).numbers("curve")
    if not at or at[-1] != rounds or any(b < a for a, b in pairwise(values)):
        raise record.wrong("curve", f"a curve that never falls and ends with round {rounds}")
    if abs(values[-1] - record.data["regret"]) > 1e-4 + CLOSE * record.data["regret"]:
        raise record.wrong("regret", f"the end of its curve, {values[-1]:g}")
