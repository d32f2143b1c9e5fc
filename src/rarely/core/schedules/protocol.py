"""When a batch ends. A schedule sets `policy.due`; the caller decides when to update.

    t − 1    round    ()    rounds decided so far
    b        version  ()    the version in use, 0 … B−1
    growth            (n,)  log det Z after each of the next n rounds, less its value at the batch's start

A schedule is a frozen value without memory. The cap on versions is the one wrapper `Budget`, which the
policy puts around whatever it is given.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields
from typing import Any

from rarely.core.errors import InvalidSchedule, check_whole
from rarely.core.types import Array

FAR = 2**62
"""More rounds than anyone will see: no update is in sight."""


class Schedule(ABC):
    """When the next update is due.

    Examples
    --------
    >>> from rarely import FixedGrid, Schedule
    >>> schedule = FixedGrid(horizon=1000, batches=5)
    >>> isinstance(schedule, Schedule), schedule.batches, schedule.horizon
    (True, 5, 1000)
    """

    batches: int | None
    """B, the most versions there may be; None sets no limit."""
    horizon: int | None
    """T, the rounds planned for; None when not known."""

    plans_ahead: bool = True
    """Whether it decides beforehand how the budget is spread over the horizon; a trigger does not."""

    on_demand: bool = False
    """Whether only the caller ends a batch, so that nobody knows how long it lasts."""

    @abstractmethod
    def first_due(self, round: int, growth: Array) -> int | None:
        """The index of the first of the next len(growth) rounds with which the batch ends, if any."""

    @abstractmethod
    def lookahead(self, round: int, growth: float, rounds_in_batch: int) -> int:
        """How many more rounds the batch is expected to last: exact on a grid, at least 1."""

    def explain(self, round: int, growth: float) -> str:
        """Why the batch has ended with this round, in words; what `UpdateRecord.due` says."""
        return f"{type(self).__name__} ended the batch"

    def ahead(self, round: int) -> str:
        """When the next update is planned, in words; "" where only the data will tell."""
        return ""

    def in_batch(self, version: int, round: int, log_det: float) -> Schedule:
        """The schedule of one batch: of this version, which began after so many rounds at this log det.

        Only a schedule that plans batch by batch differs from itself here.
        """
        return self

    def rescued(self) -> Schedule:
        """The schedule of a first batch that must end; a trigger might not."""
        return self

    def describe(self) -> dict[str, Any]:
        """The schedule as JSON."""
        values: Any = self
        return {"kind": type(self).__name__} | {f.name: getattr(self, f.name) for f in fields(values)}


def check_counts(schedule: Schedule, *names: str) -> None:
    """Refuse fields that are not whole numbers of at least 1."""
    for name in names:
        check_whole(f"{type(schedule).__name__}.{name}", getattr(schedule, name), 1, InvalidSchedule)
