"""The cap on versions, around any schedule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rarely.core.errors import InvalidSchedule
from rarely.core.schedules.protocol import Schedule, check_counts
from rarely.core.types import Array


@dataclass(frozen=True)
class Budget(Schedule):
    """Any schedule, with at most `batches` versions.

    Examples
    --------
    >>> from rarely import EveryRound
    >>> Budget(EveryRound(), batches=3).spent(version=2)
    True
    """

    schedule: Schedule
    batches: int | None
    extra: int = 0
    """Versions that were added to the budget afterwards; part of `batches`."""

    def __post_init__(self) -> None:
        if not isinstance(self.schedule, Schedule):
            raise InvalidSchedule(f"Budget.schedule must be a Schedule; got {self.schedule!r}.")
        if self.batches is not None:
            check_counts(self, "batches")
        caps = [b for b in (self.batches, self.schedule.batches) if b is not None]
        if self.schedule.horizon is not None and caps:
            caps.append(self.schedule.horizon)
        object.__setattr__(self, "batches", min(caps) + self.extra if caps else None)
        object.__setattr__(self, "horizon", self.schedule.horizon)
        object.__setattr__(self, "plans_ahead", self.schedule.plans_ahead)
        object.__setattr__(self, "on_demand", self.schedule.on_demand)

    @classmethod
    def around(cls, schedule: Schedule) -> Budget:
        """The schedule under its own cap."""
        return schedule if isinstance(schedule, Budget) else cls(schedule, schedule.batches)

    def extended(self, extra: int) -> Budget:
        """The same with so many versions added in all; its schedule stays as it is."""
        own = None if self.batches is None else self.batches - self.extra
        return Budget(self.schedule, own, extra)

    def spent(self, version: int) -> bool:
        """Whether no version may follow this one."""
        return self.batches is not None and version >= self.batches - 1

    def first_due(self, round: int, growth: Array) -> int | None:
        return self.schedule.first_due(round, growth)

    def lookahead(self, round: int, growth: float, rounds_in_batch: int) -> int:
        return self.schedule.lookahead(round, growth, rounds_in_batch)

    def explain(self, round: int, growth: float) -> str:
        return self.schedule.explain(round, growth)

    def ahead(self, round: int) -> str:
        return self.schedule.ahead(round)

    def in_batch(self, version: int, round: int, log_det: float) -> Schedule:
        return self.schedule.in_batch(version, round, log_det)

    def describe(self) -> dict[str, Any]:
        own = None if self.batches is None else self.batches - self.extra
        described = {"kind": "Budget", "schedule": self.schedule.describe(), "batches": own}
        return described | ({"extra": self.extra} if self.extra else {})
