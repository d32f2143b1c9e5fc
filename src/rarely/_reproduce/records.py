"""One recorded run of an experiment: everything that tables, figures and claims are made of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from functools import cached_property, partial
from typing import Any, ClassVar, Self

import numpy as np

from rarely._core.types import Array
from rarely._reproduce.config import Configuration
from rarely._runs import store
from rarely._runs.play import Played
from rarely._runs.provenance import describe, peak_memory
from rarely._runs.record import MixedRecords, PolicyRecord, Stored

CURVE_POINTS = 40
"""Of a curve that figures show."""
PER_VIEW = ("dim", "view", "constant", "context_scale")
"""What differs between the views of one world."""
Found = store.Found["Record"]


class Record(PolicyRecord):
    """What is known of a finished cell."""

    kind: ClassVar[str] = "reproduction"
    sources: ClassVar = ("_core", "worlds", "gpu", "_runs/play.py", "_reproduce/config.py", "_reproduce/cells.py")
    advice: ClassVar[str] = "Run reproduce again to play its cell anew, or remove the file"

    @classmethod
    def check_together(cls, records: Sequence[Self], planned: Iterable[dict[str, Any]]) -> None:
        """Raise MixedRecords for records of two codes, of two problems with one name, or of two engines to compare."""
        planned = list(planned)
        codes = {record.code for record in records} | ({cls.fingerprint()} if planned else set())
        if len(codes) > 1:
            raise MixedRecords(
                f"it holds, or would hold, records of {len(codes)} versions of the code ({', '.join(sorted(codes))}), "
                "whose numbers may differ. Ask for all of its cells with --replace, or use another --out."
            )
        check_engines((record.series, record.engine) for record in records if not record.configuration.same_everywhere)
        known: dict[str, tuple[Any, ...]] = {}
        for asked in (*(record.asked for record in records), *planned):
            world = {name: value for name, value in asked["world"].items() if name not in PER_VIEW}
            own = (asked["problem"], world, asked["rounds"])
            name = asked["problem"]["name"]
            if known.setdefault(name, own) != own:
                raise MixedRecords(
                    f"it would hold two problems called {name}: other data, settings or lengths "
                    f"(T = {known[name][2]} and {asked['rounds']}). Keep them in folders of their own."
                )

    base = Stored(str, "asked", "problem", "base")
    """The problem of the paper that it is or varies."""
    reading = Stored(str, "asked", "reading")
    """A preset, or for a linear configuration a view."""
    form = Stored(str, "environment", "form")
    """Which loops decided and trained."""

    @property
    def engine(self) -> str:
        """What played it: "cpu", or "gpu" in lockstep."""
        return str(self.data["environment"].get("engine", "cpu"))

    @property
    def series(self) -> str:
        """Its problem and reading."""
        return "/".join(self.id.split("/")[:2])

    updates = Stored(list[int], "updates", "rounds")
    """The rounds after which a new version came into use."""

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
        known = self.data.get("curve_digest")
        return known or hashlib.sha256(json.dumps(self.data["curve"]).encode()).hexdigest()[:16]

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
    known: dict[str, str] = {}
    for series, engine in played:
        if known.setdefault(series, engine) != engine:
            raise MixedRecords(
                f"networks of {series} would be of two engines, {known[series]} and {engine}, which round differently. "
                f"Continue them with the engine that began, or in another --out."
            )


Store = partial(store.Store[Record], record_type=Record)
"""The records of one folder of experiments."""


def content_of(played: Played, cause: str, wall: float) -> dict[str, Any]:
    """Return the content of a record; `cause` is why updates came when they came, `wall` the cell's seconds."""
    updates = played.updates
    return {
        "regret": float(played.regrets.sum()),
        "curve": np.round(np.cumsum(played.regrets), 4).tolist(),
        "reward": played.reward,
        "right": played.right,
        "updates": {
            "cause": cause,
            "rounds": [u.round for u in updates if u.accepted],
            "log_det": np.round([u.log_det for u in updates if u.accepted], 4).tolist(),
            "attempts": sum(u.attempts for u in updates),
            "rejected": [[u.round, u.reason] for u in updates if not u.accepted],
        },
        "log_det": [[t, round(value, 4)] for t, value in played.log_dets],
        "seconds": _few_digits(selecting=played.selecting.seconds, training=played.training.seconds),
        "wall": _few_digits(selecting=played.selecting.wall, training=played.training.wall, cell=wall),
        "peak_memory": peak_memory(),
        "environment": describe(),
    }


def _few_digits(**seconds: float) -> dict[str, float]:
    """Return four digits of each: more say nothing, and take space."""
    return {name: float(f"{value:.4g}") for name, value in seconds.items()}
