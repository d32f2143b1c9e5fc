"""One recorded run of an experiment: everything that tables, figures and claims are made of.

In a packed file it is small, to be kept beside code: it has all that a report needs, and a digest of the original. A
regret curve is thinned to the points that figures show, with the digest of the whole curve, so that equal runs are
still known to be equal. log det Z is kept at its end alone. A report from the file is the report from the folder,
letter by letter.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from rarely.errors import InvalidInput
from rarely.extend import Array
from rarely.runs.files import DIGEST, check_digest
from rarely.runs.machine import peak_memory
from rarely_lab.engine.play import Played
from rarely_lab.engine.record import FORMAT, MixedRecords, Stored, at_odds, identity, read_packed
from rarely_lab.engine.record import Record as AnyRecord
from rarely_lab.engine.record import Store as AnyStore
from rarely_lab.reproduce.config import Configuration
from rarely_lab.reproduce.golden import FAMILIES, family_of

CURVE_POINTS = 40  # points of a curve that figures show
LOG_DETS = 200  # values of log det on record, about
PER_VIEW = ("dim", "view", "constant", "context_scale")  # what differs between the views of one world
ONE_OBJECT = "rarely records 1"
"""The format of a file with all records in one JSON object, {"worlds", "environments", "records", …}, of 0.3."""
SHORT = 16  # digits of a digest that are kept: enough to know a record again


class Record(AnyRecord):
    """What is known of a finished cell."""

    kind: ClassVar[str] = "reproduction"
    golden: ClassVar = FAMILIES
    advice: ClassVar[str] = "Run reproduce again to play its cell anew, or remove the file"

    @classmethod
    def golden_family(cls, asked: dict[str, Any]) -> str:
        return family_of(asked["reading"], asked["configuration"]["kind"])

    @classmethod
    def check_together(cls, records: Sequence[Self], planned: Iterable[dict[str, Any]]) -> None:
        """Raise MixedRecords if two codes made a family, two problems have one name, or two engines are compared."""
        planned = list(planned)
        codes = [(cls.golden_family(record.asked), record.numerics) for record in records]
        if odd := at_odds([*codes, *((cls.golden_family(asked), cls.fingerprint(asked)) for asked in planned)]):
            family, *made = odd
            raise MixedRecords(
                f"it holds, or would hold, records of 2 versions of the code in family {family} "
                f"({', '.join(sorted(made))}), whose numbers differ. Ask for all of its cells with --replace, or "
                "use another --out."
            )
        check_engines((record.series, record.engine) for record in records if not record.configuration.same_everywhere)
        if odd := at_odds(map(_question, (*(record.asked for record in records), *planned))):
            name, first, other = odd
            raise MixedRecords(
                f"it would hold two problems called {name}: other data, settings or lengths "
                f"(T = {first[2]} and {other[2]}). Keep them in folders of their own."
            )

    base = Stored(str, "asked", "problem", "base")  # the problem of the paper that it is or varies
    reading = Stored(str, "asked", "reading")  # a preset, or for a linear configuration a view
    form = Stored(str, "environment", "form")  # which loops decided and trained

    @property
    def engine(self) -> str:
        """What played it: "cpu", or "gpu" in lockstep."""
        return str(self.data["environment"].get("engine", "cpu"))

    @property
    def series(self) -> str:
        return "/".join(self.id.split("/")[:2])

    @property
    def updates(self) -> list[int]:
        """The rounds after which a new version came into use."""
        rounds = self.data["updates"]["rounds"]
        return _every_round(rounds) if isinstance(rounds, int) else rounds

    @cached_property
    def configuration(self) -> Configuration:
        return Configuration(**self.asked["configuration"])

    @cached_property
    def curve(self) -> Array:
        """Cumulative pseudo-regret after each round, (T,)."""
        return np.array(self.data["curve"], np.float64)

    @cached_property
    def curve_points(self) -> tuple[Array, Array]:
        """About CURVE_POINTS rounds, and the cumulative pseudo-regret at each: as much as a figure shows."""
        at = np.unique(np.linspace(1, self.rounds, CURVE_POINTS).astype(int))
        kept = self.data.get("curve_points")
        return at, np.array(kept, np.float64) if kept is not None else self.curve[at - 1].round(2)

    @cached_property
    def curve_digest(self) -> str:
        """A hash of the whole curve: runs with the same one chose alike."""
        kept = self.data.get("curve_digest")
        return kept or hashlib.sha256(json.dumps(self.data["curve"]).encode()).hexdigest()[:16]

    def packed(self) -> dict[str, Any]:
        """Return its JSON without the curve but for some points, and without most values of log det Z."""
        data, at = self.data, self.updates
        return {name: value for name, value in data.items() if name not in ("curve", DIGEST)} | {
            "original": data.get("original") or data[DIGEST][:SHORT],
            "curve_points": self.curve_points[1].tolist(),
            "curve_digest": self.curve_digest,
            "updates": data["updates"] | {"rounds": len(at) if at == _every_round(len(at)) else at, "log_det": []},
            "log_det": [data["log_det"][0], data["log_det"][-1]],
        }

    @classmethod
    def of_object(cls, text: str) -> list[Self] | None:
        """Return the records that 0.3 published, which are as `packed` gives them but for what they share."""
        if ONE_OBJECT not in text:
            return None
        content = json.loads(text)
        check_digest(content, text)
        return [cls(_expanded(kept, content)) for kept in content["records"]]

    @property
    def versions(self) -> int:
        """The number of versions that decided: one more than there were updates."""
        return len(self.updates) + 1

    @property
    def log_det(self) -> float:
        """log det Z − log det λI after the last round."""
        return float(self.data["log_det"][-1][1])


def check_engines(played: Iterable[tuple[str, str]]) -> None:
    """Raise MixedRecords if networks of one problem in one reading were played, or will be, by two engines."""
    if odd := at_odds(played):
        raise MixedRecords(
            f"networks of {odd[0]} would be of two engines, {odd[1]} and {odd[2]}, which round differently. Continue "
            "them with the engine that began, or in another --out."
        )


def _question(asked: dict[str, Any]) -> tuple[str, tuple[Any, ...]]:
    """Return a problem's name, and what all records of it must share."""
    world = {name: value for name, value in asked["world"].items() if name not in PER_VIEW}
    return asked["problem"]["name"], (asked["problem"], world, asked["rounds"])


Store = partial(AnyStore[Record], record_type=Record)  # the records of one folder of experiments
_every_round = cache(lambda rounds: list(range(1, rounds + 1)))
"""One list for all records: most update every round, and copies would take gigabytes."""


def content_of(
    played: Played, updates: Sequence[Any], log_dets: Callable[[int], float], cause: str, wall: float
) -> dict[str, Any]:
    """Return the content of a record.

    `updates` are the policy's `UpdateRecord`s or what has their names, `log_dets` gives log det Z − log det λI after a
    round, `cause` is why updates came when they came, `wall` the cell's seconds.
    """
    rounds, arms, regrets = played.rounds, played.arms, played.regrets
    selecting, training = played.selecting, played.training
    return played.shared() | {
        "regret": float(regrets.sum()),
        "curve": np.round(np.cumsum(regrets), 4).tolist(),
        "reward": float(rounds.paid(arms).sum()),
        "right": float(np.mean(arms == rounds.best)) if len(rounds) else 0.0,
        "updates": {
            "cause": cause,
            "rounds": [u.round for u in updates if u.accepted],
            "log_det": np.round([u.log_det for u in updates if u.accepted], 4).tolist(),
            "attempts": sum(u.attempts for u in updates),
            "rejected": [[u.round, u.reason] for u in updates if not u.accepted],
        },
        "log_det": [[0, 0.0], *([t, round(log_dets(t), 4)] for t in log_det_rounds(len(rounds)))],
        "seconds": _few_digits(selecting=selecting.seconds, training=training.seconds),
        "wall": _few_digits(selecting=selecting.wall, training=training.wall, cell=wall),
        "peak_memory": peak_memory(),
    }


def log_det_rounds(count: int) -> list[int]:
    """Return the rounds after which log det is noted: about `LOG_DETS` of them, and the last.

    >>> log_det_rounds(5), log_det_rounds(401)[-3:]
    ([1, 2, 3, 4, 5], [398, 400, 401])
    """
    step = max(1, count // LOG_DETS)
    return sorted({*range(step, count + 1, step), *([count] if count else [])})


def _few_digits(**seconds: float) -> dict[str, float]:
    """Return four digits of each: more say nothing, and take space."""
    return {name: float(f"{value:.4g}") for name, value in seconds.items()}


def codes_of(records: Sequence[Record]) -> str | dict[str, str]:
    """Return the code that made the records: one for all, or that of each family."""
    if len(codes := {record.code for record in records}) == 1:
        return codes.pop()
    return {Record.golden_family(record.asked): record.numerics for record in records}


def read_fitting(path: Path) -> tuple[list[Record], dict[str, int]]:
    """Return the published records that this code would make again, and how many of which families it would not."""
    found = read_packed(path, Record)
    if found.refused:
        raise InvalidInput(f"{found.refused[0]} Publish the records again, with rarely report.")
    others = Counter(Record.golden_family(record.asked) for record in found.records if not record.fits)
    return [record for record in found.records if record.fits], dict(others)


def _expanded(kept: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON of a record in an object of many, which has worlds and environments by their place."""
    asked = content["worlds"][kept.pop("world")] | {name: kept.pop(name) for name in ("configuration", "seed")}
    code = code if isinstance(code := content["code"], str) else code[Record.golden_family(asked)]
    head = {"format": FORMAT, "kind": Record.kind, "identity": identity(asked), "code": code, "asked": asked}
    shared = {"environment": content["environments"][kept.pop("environment")], "curve_points": kept.pop("curve")}
    return head | kept | shared
