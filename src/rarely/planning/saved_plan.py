"""A plan.json that is read back: checked field by field, and by its digest where it has one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from rarely.core.errors import InvalidInput, RarelyError, check_choice
from rarely.core.schedules import Schedule, schedule_from
from rarely.planning.frontier import Verdict
from rarely.planning.plan import TOLERANCES, NothingClose, Origin
from rarely.planning.simulate import KINDS, Kind, PolicyName
from rarely.simulation.json_object import JsonObject
from rarely.simulation.sealed_json import DIGEST, Malformed, check_digest, read_json, sealed

FORMAT = 2
"""Of plans with a digest; those of version 0.1 say nothing about their format."""
SCHEDULES = {"fixed": "FixedGrid", "geometric": "GeometricGrid", "adaptive": "DeterminantTrigger"}
MOST_BATCHES = 10**6
"""Nobody simulates more, and a grid of that many is still made in a second."""


class BrokenPlan(RarelyError, ValueError):
    """A file that is no plan, or one that was changed after it was written."""


@dataclass(frozen=True)
class SavedPlan:
    """What a plan.json says.

    `data` is the JSON that `Plan.describe` made.

    Examples
    --------
    >>> from rarely.planning import SavedPlan
    >>> SavedPlan({"horizon": 60, "settings": {"ridge": 1.0}}).horizon
    60
    """

    data: dict[str, Any]

    @property
    def has_digest(self) -> bool:
        """Whether an edit would show; False for plans of version 0.1."""
        return DIGEST in self.data

    @property
    def horizon(self) -> int:
        """The rounds that were planned."""
        return int(self.data["horizon"])

    @property
    def settings(self) -> dict[str, Any]:
        """Of the policy that was simulated, to which the schedules belong."""
        return dict(self.data["settings"])

    def text(self) -> str:
        """The advice, as the plan gave it."""
        return str(self.data["advice"])

    def schedule(self, tolerance: float = TOLERANCES[-1], kind: Kind | None = None) -> Schedule:
        """The schedule with the fewest batches within 5 or 10 per cent by estimate, of one kind or of any."""
        if tolerance not in TOLERANCES:
            raise InvalidInput(f"tolerance must be one of {TOLERANCES}, which a plan has on file; got {tolerance!r}.")
        if kind is not None:
            check_choice("kind", kind, Kind)
        of_kinds = self.data["enough"][f"{100 * tolerance:.0f} %"]
        close = [of_kinds[one] for one in KINDS if kind in (None, one) and of_kinds[one]["schedule"] is not None]
        if not close:
            raise NothingClose(
                f"nothing tried came within {100 * tolerance:.0f} % of an update after every round. Allow a larger "
                "tolerance, plan with more batches or runs, or use EveryRound()."
            )
        return schedule_from(min(close, key=lambda found: int(found["batches"]))["schedule"])


def with_digest(described: dict[str, Any]) -> dict[str, Any]:
    """A plan as `Plan.describe` gives it, as a file holds it."""
    return sealed({"format": FORMAT} | described)


def read_plan(path: str | os.PathLike[str]) -> SavedPlan:
    """Read a plan.json that `rarely plan` wrote.

    Raises `BrokenPlan` where the file cannot be read, is no plan, or was changed after it was written. A plan of
    version 0.1 has no digest: it is checked for numbers that a plan can have, and `has_digest` is False.

    Parameters
    ----------
    path
        The file.

    Examples
    --------
    >>> import json, pathlib, tempfile
    >>> import numpy as np
    >>> from rarely.planning import Log
    >>> from rarely.planning.planner import plan
    >>> log = Log.of(np.random.default_rng(0).random((60, 2)), arms=2)
    >>> path = pathlib.Path(tempfile.mkdtemp(), "plan.json")
    >>> made = plan(log, horizon=60, policy="linear", batches=[2, 4], runs=2)
    >>> _ = path.write_text(json.dumps(made.describe()), encoding="utf-8")
    >>> read_plan(path).horizon
    60
    """
    try:
        data = read_json(Path(path))
        if "format" in data or DIGEST in data:
            JsonObject(data).one_of("format", (FORMAT,))
            check_digest(data)
        _check(JsonObject(data))
    except Malformed as error:
        raise BrokenPlan(f"{os.fspath(path)} is refused: {error}. Plan again with rarely plan.") from error
    return SavedPlan(data)


def _check(plan: JsonObject) -> None:
    horizon = plan.whole("horizon", 1)
    plan.whole("arms", 1)
    plan.whole("dim", 1)
    plan.whole("seed", 0)
    plan.one_of("blocks", (True, False))
    plan.one_of("origin", get_args(Origin))
    plan.one_of("policy", get_args(PolicyName))
    plan.inside("settings")
    plan.text("advice")
    notes = plan.items("notes")
    for number in range(len(notes)):
        JsonObject({str(number): notes[number]}, "notes.").text(str(number))
    _check_growth(plan.inside("growth"))
    theory = plan.inside("theory")
    theory.whole("fixed", 1)
    for name in ("adaptive", "adaptive_lower", "adaptive_upper"):
        if name != "adaptive" or theory.has(name):
            theory.inside(name).whole("batches", 1)
            theory.inside(name).number("log_ratio", 0.0)
    if plan.has("fit"):
        fit = plan.inside("fit")
        fit.whole("rewards", 1)
        fit.number("r_squared", most=1.0)
        fit.number("noise", 0.0)
    _check_frontier(plan.inside("frontier"), horizon)
    enough = plan.inside("enough")
    for tolerance in TOLERANCES:
        of_kinds = enough.inside(f"{100 * tolerance:.0f} %")
        for kind in KINDS:
            _check_enough(of_kinds.inside(kind), horizon, SCHEDULES[kind])


def _check_growth(growth: JsonObject) -> None:
    growth.whole("wanted", 1)
    growth.inside("measured").whole("count", 1)
    if growth.number("lower", 0.0) > growth.number("upper"):
        raise growth.wrong("lower", "at most upper")


def _check_frontier(frontier: JsonObject, horizon: int) -> None:
    rounds, runs = frontier.whole("rounds", 1, horizon), frontier.whole("runs", 1)
    _check_estimate(frontier.inside("sequential"), runs)
    for number, point in enumerate(frontier.items("points")):
        fields = JsonObject({"point": point}, f"{frontier.within}points.{number}.").inside("point")
        fields.one_of("kind", KINDS)
        batches = fields.whole("batches", 2, min(rounds, MOST_BATCHES))
        fields.number("used", 0.0, batches)
        _check_estimate(fields.inside("regret"), runs)
        _check_estimate(fields.inside("ratio"), runs)
        lengths = fields.numbers("pattern")
        if any(length < 1 for length in lengths) or sum(lengths) != rounds or len(lengths) > batches:
            raise fields.wrong("pattern", f"at most {batches} batch lengths that sum to {rounds}")


def _check_estimate(estimate: JsonObject, runs: int) -> None:
    """A figure is null where there is none, and an interval's end where it is endless."""
    estimate.whole("runs", 1, runs)
    known = [estimate.number(name) for name in ("low", "value", "high") if estimate.has(name)]
    for name in ("low", "value", "high"):
        estimate.value(name)
    if known != sorted(known):
        raise Malformed(f"{estimate.within}value must lie in its interval")


def _check_enough(found: JsonObject, horizon: int, kind: str) -> None:
    verdicts = found.inside("verdicts")
    for name in verdicts.data:
        verdicts.one_of(name, get_args(Verdict))
    if found.value("surely") is not None:
        found.whole("surely", 2, MOST_BATCHES)
    if found.value("batches") is None and found.value("schedule") is None:
        return
    batches, schedule = found.whole("batches", 2, MOST_BATCHES), found.inside("schedule")
    schedule.one_of("kind", (kind,))
    schedule.whole("horizon", horizon, horizon)
    schedule.whole("batches", batches, batches)
    try:
        schedule_from(schedule.data)
    except (RarelyError, TypeError) as error:
        raise found.wrong("schedule", f"a {kind} of {horizon} rounds") from error
