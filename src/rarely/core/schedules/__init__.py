"""Schedules: when a policy may change, and how often."""

from __future__ import annotations

from typing import Any

from rarely.core.errors import InvalidSchedule
from rarely.core.schedules.budget import Budget
from rarely.core.schedules.grids import MOST_POINTS, AtRounds, EveryRound, FixedGrid, GeometricGrid
from rarely.core.schedules.on_demand import OnDemand
from rarely.core.schedules.paced import Paced
from rarely.core.schedules.protocol import FAR, Schedule
from rarely.core.schedules.trigger import DeterminantTrigger

__all__ = [
    "FAR",
    "MOST_POINTS",
    "AtRounds",
    "Budget",
    "DeterminantTrigger",
    "EveryRound",
    "FixedGrid",
    "GeometricGrid",
    "OnDemand",
    "Paced",
    "Schedule",
    "schedule_from",
]

_KINDS: dict[str, type[Schedule]] = {
    kind.__name__: kind
    for kind in (EveryRound, FixedGrid, GeometricGrid, AtRounds, DeterminantTrigger, Paced, OnDemand)
}


def schedule_from(description: dict[str, Any]) -> Schedule:
    """The inverse of `describe`.

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
