"""Schedules: when a policy may change, and how often."""

from __future__ import annotations

from typing import Any

from rarely._core.errors import InvalidSchedule
from rarely._core.schedules.adaptive import DeterminantTrigger, Paced
from rarely._core.schedules.fixed import (
    MAX_POINTS,
    AtRounds,
    EveryRound,
    FixedGrid,
    GeometricGrid,
    LogLogGrid,
    OnDemand,
)
from rarely._core.schedules.protocol import NEVER, Budget, Schedule

_KINDS: dict[str, type[Schedule]] = {
    kind.__name__: kind
    for kind in (EveryRound, FixedGrid, GeometricGrid, LogLogGrid, AtRounds, DeterminantTrigger, Paced, OnDemand)
}


def schedule_from(description: dict[str, Any]) -> Schedule:
    """Return the schedule that `describe` described.

    >>> schedule_from(FixedGrid(10, 2).describe())
    FixedGrid(horizon=10, batches=2)
    """
    fields = dict(description)
    kind = fields.pop("kind")
    if kind == "Budget":
        return Budget(schedule_from(fields["schedule"]), fields["batches"], fields.get("extra", 0))
    if kind not in _KINDS:
        raise InvalidSchedule(f"a schedule must be one of {', '.join(_KINDS)} or Budget; got {kind!r}.")
    return _KINDS[kind](**fields)
