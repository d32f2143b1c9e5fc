"""One recorded run: everything that tables, figures and claims are made of.

A record carries the identity of what was asked for, the fingerprint of the code that ran, and a digest of its content.
Records of version 0.1 (format 1) have no digest: they are checked for values that no run can produce, and marked.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rarely.core.errors import RarelyError
from rarely.core.types import Array
from rarely.experiments.catalogue import world_of
from rarely.experiments.config import Cell, Configuration, identity
from rarely.experiments.record_checks import check_record
from rarely.simulation.play import Played
from rarely.simulation.provenance import code_fingerprint, describe, peak_memory
from rarely.simulation.recorded_run import RecordedRun
from rarely.simulation.sealed_json import DIGEST

FORMAT = 2
WITHOUT_DIGEST = 1
"""The format of version 0.1."""
POINTS, LOG_DET_POINTS = 40, 60
"""Of curves, and of log det Z, that figures show."""
ADVICE = "Run reproduce again to play its cell anew, or remove the file"
"""What to do about a file that is refused."""
CAUSES = {"fixed": "grid", "adaptive": "determinant", "default": "pace"}


class MixedRecords(RarelyError):
    """A folder holds records that do not belong together."""


class BrokenRecord(RarelyError):
    """A record cannot be read, or was changed after it was written."""


@dataclass(frozen=True)
class Record(RecordedRun):
    """What is known of a finished cell."""

    @property
    def base(self) -> str:
        """The problem of the paper that it is or varies."""
        return str(self.data["asked"]["problem"]["base"])

    @property
    def reading(self) -> str:
        """A preset, or for a linear configuration a view."""
        return str(self.data["asked"]["reading"])

    @cached_property
    def configuration(self) -> Configuration:
        """The policy."""
        return Configuration(**self.data["asked"]["configuration"])

    @cached_property
    def curve(self) -> Array:
        """Pseudo-regret so far after each round, (T,)."""
        return np.array(self.data["curve"], np.float64)

    @cached_property
    def curve_points(self) -> tuple[Array, Array]:
        """Rounds, about POINTS of them, and the pseudo-regret so far at each: as much as a figure shows."""
        at = np.unique(np.linspace(1, self.rounds, POINTS).astype(int))
        kept = self.data.get("curve_points")
        return at, np.array(kept, np.float64) if kept is not None else self.curve[at - 1]

    @cached_property
    def curve_digest(self) -> str:
        """A hash of the whole curve: runs with the same one chose alike."""
        known = self.data.get("curve_digest")
        return known or hashlib.sha256(json.dumps(self.data["curve"]).encode()).hexdigest()[:16]

    @property
    def updates(self) -> list[int]:
        """The rounds after which a new version came into use."""
        return [int(t) for t in self.data["updates"]["rounds"]]

    @property
    def versions(self) -> int:
        """How many versions decided: one more than there were updates."""
        return len(self.updates) + 1

    @property
    def seconds(self) -> float:
        """Processor time of the policy: selecting and training."""
        return float(self.data["seconds"]["selecting"] + self.data["seconds"]["training"])

    @property
    def log_dets(self) -> Array:
        """(round, log det Z − log det λI) in rows."""
        return np.array(self.data["log_det"], np.float64)

    @property
    def log_det_points(self) -> Array:
        """The same, at most every so many rounds, and at the end."""
        every = self.log_dets
        return np.concatenate([every[:-1][:: max(1, len(every) // LOG_DET_POINTS)], every[-1:]])

    @property
    def machine(self) -> str:
        """Where it was played."""
        return str(self.data["environment"]["machine"])

    @property
    def form(self) -> str:
        """Which loops decided and trained; empty in records of version 0.1 that do not say."""
        return str(self.data["environment"].get("form", ""))

    @property
    def has_digest(self) -> bool:
        """Whether an edit would show; False for records of version 0.1."""
        return DIGEST in self.data


def make_record(cell: Cell, played: Played, wall: float) -> Record:
    """The record of a cell that was just played in this process."""
    asked = cell.describe(world_of(cell))
    updates = played.policy.updates
    data = {
        "format": FORMAT,
        "id": cell.id,
        "identity": identity(asked),
        "code": code_fingerprint(),
        "asked": asked,
        "regret": float(played.regrets.sum()),
        "curve": [round(float(r), 4) for r in np.cumsum(played.regrets)],
        "reward": played.reward,
        "right": played.right,
        "updates": {
            "cause": CAUSES.get(cell.configuration.kind, "every round"),
            "rounds": [u.round for u in updates if u.accepted],
            "log_det": [round(u.log_det, 4) for u in updates if u.accepted],
            "attempts": sum(u.attempts for u in updates),
            "rejected": [[u.round, u.reason] for u in updates if not u.accepted],
        },
        "log_det": [[t, round(value, 4)] for t, value in played.log_dets],
        "seconds": {"selecting": played.selecting.seconds, "training": played.training.seconds},
        "wall": {"selecting": played.selecting.wall, "training": played.training.wall, "cell": wall},
        "peak_memory": peak_memory(),
        "environment": describe(),
    }
    check_record(data)  # a record that would be refused later fails now, with its cell's name
    return Record(data)
