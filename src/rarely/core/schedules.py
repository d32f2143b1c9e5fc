"""When a batch ends. A schedule sets `policy.due`; the caller decides when to update.

    t − 1    round    ()    rounds decided so far
    b        version  ()    the version in use, 0 … B−1
    growth            (n,)  log det Z after each of the next n rounds, less its value at the batch's start

A schedule is a frozen value without memory. The cap on versions is the one wrapper `Budget`, which the
policy puts around whatever it is given.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any

import numpy as np

from rarely.core.errors import InvalidSchedule, check_whole
from rarely.core.types import Array

FAR = 2**62
"""More rounds than anyone will see: nothing is in sight."""
MOST_POINTS = 10**7
"""Batches of a grid, whose ends are listed in memory."""


class Schedule(ABC):
    """When the next update is due."""

    batches: int | None
    """B, the most versions there may be; None sets no limit."""
    horizon: int | None
    """T, the rounds planned for; None when not known."""

    @abstractmethod
    def first_due(self, round: int, growth: Array) -> int | None:
        """The index of the first of the next len(growth) rounds with which the batch ends, if any."""

    @abstractmethod
    def lookahead(self, round: int, growth: float, rounds_in_batch: int) -> int:
        """How many more rounds the batch is expected to last: exact on a grid, at least 1."""

    def describe(self) -> dict[str, Any]:
        """The schedule as JSON."""
        values: Any = self
        return {"kind": type(self).__name__} | {f.name: getattr(self, f.name) for f in fields(values)}


class _Grid(Schedule):
    """Batches that end with rounds known beforehand."""

    points: tuple[int, ...]
    """The rounds that end a batch, rising; the last batch ends with the horizon and is not among them."""

    def first_due(self, round: int, growth: Array) -> int | None:
        ahead = self._next(round)
        return ahead - round - 1 if ahead <= round + len(growth) else None

    def lookahead(self, round: int, growth: float, rounds_in_batch: int) -> int:
        return self._next(round) - round

    def _next(self, round: int) -> int:
        points = self.points
        i = bisect_right(points, round)
        return points[i] if i < len(points) else FAR


@dataclass(frozen=True)
class EveryRound(Schedule):
    """A new version after every round: sequential NeuralUCB.

    >>> EveryRound().first_due(round=7, growth=np.zeros(3))
    0
    """

    batches: None = None
    horizon: None = None

    def first_due(self, round: int, growth: Array) -> int | None:
        return 0 if len(growth) else None

    def lookahead(self, round: int, growth: float, rounds_in_batch: int) -> int:
        return 1


@dataclass(frozen=True)
class FixedGrid(_Grid):
    """Algorithm 1's fixed scheme: B batches of T/B rounds.

    Batch b = 0, 1, … starts with round t_b = ⌊bT/B⌋ + 1, with min(B, T) for B. The printed t = b⌊T/B⌋ + 1 is the same
    where B divides T, and makes more than B batches, or a long last one, where it does not.

    >>> FixedGrid(horizon=10, batches=3).points
    (3, 6)
    """

    horizon: int
    batches: int

    def __post_init__(self) -> None:
        _check_whole(self, "horizon", "batches")
        count = _count(self)
        object.__setattr__(self, "points", tuple(b * self.horizon // count for b in range(1, count)))


@dataclass(frozen=True)
class GeometricGrid(_Grid):
    """B batches whose ends grow geometrically: round first·(T/first)^(b/(B−1)) ends batch b = 0, 1, ….

    `first` is the length of the first batch; its default T^(1/B) makes the ends T^((b+1)/B), the grid of
    Perchet et al. (2016) and Gao et al. (2019). Ends that would coincide move apart.

    >>> GeometricGrid(horizon=1000, batches=3).points
    (10, 100)
    """

    horizon: int
    batches: int
    first: int | None = None

    def __post_init__(self) -> None:
        _check_whole(self, "horizon", "batches")
        if self.first is not None:
            _check_whole(self, "first")
            if self.first >= self.horizon:
                raise InvalidSchedule(
                    f"GeometricGrid.first must be below the horizon of {self.horizon} rounds; got {self.first}."
                )
        count = _count(self)
        first = self.first or self.horizon ** (1 / count)
        ends: list[int] = []
        for b in range(1, count):
            end = round(first * (self.horizon / first) ** ((b - 1) / max(count - 1, 1)))
            ends.append(min(max(end, ends[-1] + 1 if ends else 1), self.horizon - (count - b)))
        object.__setattr__(self, "points", tuple(ends))


@dataclass(frozen=True)
class AtRounds(_Grid):
    """Batches that end with the rounds given: clinical stages, nightly trainings.

    >>> AtRounds([50, 200]).batches
    3
    """

    rounds: Sequence[int]

    def __post_init__(self) -> None:
        if not isinstance(self.rounds, Iterable):
            raise InvalidSchedule(f"AtRounds.rounds must be a list of rounds; got {self.rounds!r}. Use AtRounds([5]).")
        for number in self.rounds:
            check_whole("each of AtRounds.rounds", number, 1, InvalidSchedule)
        points = tuple(int(number) for number in self.rounds)
        if list(points) != sorted(set(points)):
            raise InvalidSchedule(f"AtRounds.rounds must rise, each once; got {points}.")
        for name, value in (("rounds", points), ("points", points), ("batches", len(points) + 1), ("horizon", None)):
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class DeterminantTrigger(Schedule):
    """End a batch once log det Z has grown by more than `log_ratio` = log q since the batch began.

    Algorithm 1's adaptive scheme, the *rarely switching* rule of Abbasi-Yadkori et al. (2011). The paper
    compares determinants; they overflow, so we compare logarithms.

        log_ratio   log q. The smaller, the more updates: their number is about the whole growth of
                    log det, which `policy.log_det` shows, over log_ratio
        batches     at most so many versions; None sets no limit
        horizon     rounds planned for, if known: nothing is due once the last of them is decided

    >>> DeterminantTrigger(log_ratio=1.0).first_due(round=0, growth=np.array([0.4, 0.9, 1.3]))
    2
    """

    horizon: int | None = None
    batches: int | None = None
    log_ratio: float = math.nan

    def __post_init__(self) -> None:
        for name in ("horizon", "batches"):
            if getattr(self, name) is not None:
                _check_whole(self, name)
        if not isinstance(self.log_ratio, Real) or math.isnan(self.log_ratio):
            raise InvalidSchedule(
                "DeterminantTrigger.log_ratio must be given: the growth of log det Z that ends a batch."
            )
        if not self.log_ratio > 0:
            raise InvalidSchedule(
                f"DeterminantTrigger.log_ratio must be positive, because det Z never shrinks; got {self.log_ratio}.\n"
                "For a new batch at every round use EveryRound()."
            )

    def first_due(self, round: int, growth: Array) -> int | None:
        if self.horizon is not None:
            growth = growth[: max(0, self.horizon - 1 - round)]
        past = growth > self.log_ratio
        return int(np.argmax(past)) if past.any() else None

    def lookahead(self, round: int, growth: float, rounds_in_batch: int) -> int:
        # Growth slows down inside a batch, so its mean pace so far gives too few rounds rather than too many.
        left = self.log_ratio - growth
        if not math.isfinite(left):
            return FAR
        if growth <= 0:
            return 16
        return max(8, math.ceil(min(left * rounds_in_batch / growth, FAR)))


@dataclass(frozen=True)
class Budget(Schedule):
    """Any schedule, with at most `batches` versions.

    >>> Budget(EveryRound(), batches=3).spent(version=2)
    True
    """

    schedule: Schedule
    batches: int | None

    def __post_init__(self) -> None:
        if not isinstance(self.schedule, Schedule):
            raise InvalidSchedule(f"Budget.schedule must be a Schedule; got {self.schedule!r}.")
        if self.batches is not None:
            _check_whole(self, "batches")
        caps = [b for b in (self.batches, self.schedule.batches) if b is not None]
        if self.schedule.horizon is not None and caps:
            caps.append(self.schedule.horizon)
        object.__setattr__(self, "batches", min(caps, default=None))
        object.__setattr__(self, "horizon", self.schedule.horizon)

    @classmethod
    def around(cls, schedule: Schedule) -> Budget:
        """The schedule under its own cap."""
        return schedule if isinstance(schedule, Budget) else cls(schedule, schedule.batches)

    def spent(self, version: int) -> bool:
        """Whether no version may follow this one."""
        return self.batches is not None and version >= self.batches - 1

    def first_due(self, round: int, growth: Array) -> int | None:
        return self.schedule.first_due(round, growth)

    def lookahead(self, round: int, growth: float, rounds_in_batch: int) -> int:
        return self.schedule.lookahead(round, growth, rounds_in_batch)

    def describe(self) -> dict[str, Any]:
        return {"kind": "Budget", "schedule": self.schedule.describe(), "batches": self.batches}


_KINDS: dict[str, type[Schedule]] = {
    kind.__name__: kind for kind in (EveryRound, FixedGrid, GeometricGrid, AtRounds, DeterminantTrigger)
}


def schedule_from(description: dict[str, Any]) -> Schedule:
    """The inverse of `describe`.

    >>> schedule_from(FixedGrid(10, 2).describe())
    FixedGrid(horizon=10, batches=2)
    """
    fields = dict(description)
    kind = fields.pop("kind")
    if kind == "Budget":
        return Budget(schedule_from(fields["schedule"]), fields["batches"])
    if kind not in _KINDS:
        raise InvalidSchedule(f"a schedule must be one of {', '.join(_KINDS)} or Budget; got {kind!r}.")
    return _KINDS[kind](**fields)


def _count(grid: FixedGrid | GeometricGrid) -> int:
    """The batches of a grid."""
    count = min(grid.batches, grid.horizon)
    if count > MOST_POINTS:
        raise InvalidSchedule(
            f"{type(grid).__name__}.batches must be at most {MOST_POINTS:,}, because all are listed; got {count}.\n"
            "For a new batch at every round use EveryRound()."
        )
    return count


def _check_whole(schedule: Schedule, *names: str) -> None:
    for name in names:
        check_whole(f"{type(schedule).__name__}.{name}", getattr(schedule, name), 1, InvalidSchedule)
