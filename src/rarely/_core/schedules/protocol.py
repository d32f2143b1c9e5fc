"""The protocol of schedules, and `Budget`, the cap on versions around any of them.

    t − 1    round    ()    rounds decided so far
    b        version  ()    the version in use, 0 … B−1
    growth            (n,)  log det Z after each of the next n rounds, minus its value when the batch began

A schedule says when a batch ends: it sets `policy.due`, and the caller decides when to update. It is a frozen value
without memory. The policy wraps whatever schedule it is given in a `Budget`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any

from rarely._core.errors import InvalidSchedule, check_whole, named_arguments, shown
from rarely._core.types import Array

NEVER = 2**62
"""A round that no policy reaches: no update is in sight."""


class Schedule(ABC):
    """A rule for when the next update is due.

    Examples
    --------
    >>> from rarely import FixedGrid, Schedule
    >>> schedule = FixedGrid(horizon=1000, batches=5)
    >>> isinstance(schedule, Schedule), schedule.batches, schedule.horizon
    (True, 5, 1000)
    """

    batches: int | None
    """B, the largest number of versions; None sets no limit."""
    horizon: int | None
    """T, the planned number of rounds; None if unknown."""

    plans_ahead: bool = True
    """Whether it decides in advance how the budget is spread over the horizon; a trigger does not."""

    on_demand: bool = False
    """Whether only the caller ends a batch, so that its length cannot be predicted."""

    @abstractmethod
    def first_due(self, round: int, growth: Array) -> int | None:
        """Return the index of the first of the next len(growth) rounds that ends the batch, or None."""

    @abstractmethod
    def lookahead(self, round: int, growth: float, rounds_in_batch: int) -> int:
        """Return how many more rounds the batch is expected to last: exact for a grid, at least 1."""

    def explain(self, round: int, growth: float) -> str:
        """Return why the batch ended with this round, in words, for `UpdateRecord.due`."""
        return f"{type(self).__name__} ended the batch"

    def ahead(self, round: int) -> str:
        """Return when the next update is planned, in words; "" if it depends on the data alone."""
        return ""

    def in_batch(self, version: int, round: int, log_det: float) -> Schedule:
        """Return the schedule of the batch of this version, which began after `round` rounds at this log det.

        Only a schedule that plans batch by batch returns something other than itself.
        """
        return self

    def rescued(self) -> Schedule:
        """Return the schedule of a first batch that is certain to end; that of a trigger alone might not."""
        return self

    def describe(self) -> dict[str, Any]:
        """Return the schedule as JSON, for `schedule_from`."""
        values: Any = self
        return {"kind": type(self).__name__} | {f.name: getattr(self, f.name) for f in fields(values)}


def check_counts(schedule: Schedule, *names: str, besides: tuple[None, ...] = ()) -> None:
    """Raise InvalidSchedule unless the named fields are whole numbers of at least 1, or one of `besides`."""
    for name in names:
        check_whole(f"{type(schedule).__name__}.{name}", getattr(schedule, name), 1, InvalidSchedule, besides=besides)


@named_arguments
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
    """Versions that were added to the budget later; included in `batches`."""

    def __post_init__(self) -> None:
        if not isinstance(self.schedule, Schedule):
            raise InvalidSchedule(f"Budget.schedule must be a Schedule; got {shown(self.schedule)}.")
        check_counts(self, "batches", besides=(None,))
        check_whole("Budget.extra", self.extra, 0, InvalidSchedule)
        caps = [b for b in (self.batches, self.schedule.batches) if b is not None]
        if self.schedule.horizon is not None and caps:
            caps.append(self.schedule.horizon)
        object.__setattr__(self, "batches", min(caps) + self.extra if caps else None)
        object.__setattr__(self, "horizon", self.schedule.horizon)
        object.__setattr__(self, "plans_ahead", self.schedule.plans_ahead)
        object.__setattr__(self, "on_demand", self.schedule.on_demand)

    @classmethod
    def around(cls, schedule: Schedule) -> Budget:
        """Return the schedule under its own cap."""
        return schedule if isinstance(schedule, Budget) else cls(schedule, schedule.batches)

    def extended(self, extra: int) -> Budget:
        """Return the budget with `extra` versions added in all; its schedule does not change."""
        own = None if self.batches is None else self.batches - self.extra
        return Budget(self.schedule, own, extra)

    def spent(self, version: int) -> bool:
        """Return whether this version is the last one that the budget allows."""
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
