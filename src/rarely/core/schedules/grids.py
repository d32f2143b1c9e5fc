"""Batches that end with rounds known beforehand."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rarely.core.errors import InvalidSchedule, check_whole
from rarely.core.schedules.protocol import FAR, Schedule, check_counts
from rarely.core.types import Array

MOST_POINTS = 10**7
"""Batches of a grid, whose ends are listed in memory."""


class _Grid(Schedule):
    """Batches that end with rounds known beforehand."""

    points: tuple[int, ...]
    """The rounds that end a batch, rising; the last batch ends with the horizon and is not among them."""

    def first_due(self, round: int, growth: Array) -> int | None:
        ahead = self._next(round)
        return ahead - round - 1 if ahead <= round + len(growth) else None

    def lookahead(self, round: int, growth: float, rounds_in_batch: int) -> int:
        return self._next(round) - round

    def explain(self, round: int, growth: float) -> str:
        return f"the grid ends a batch with round {round}"

    def ahead(self, round: int) -> str:
        return "" if self._next(round) == FAR else f"the next after round {self._next(round)}"

    def _next(self, round: int) -> int:
        points = self.points
        i = bisect_right(points, round)
        return points[i] if i < len(points) else FAR


@dataclass(frozen=True)
class EveryRound(Schedule):
    """A new version after every round: sequential NeuralUCB.

    Examples
    --------
    >>> import numpy as np
    >>> EveryRound().first_due(round=7, growth=np.zeros(3))
    0
    """

    batches: None = None
    horizon: None = None

    def first_due(self, round: int, growth: Array) -> int | None:
        return 0 if len(growth) else None

    def lookahead(self, round: int, growth: float, rounds_in_batch: int) -> int:
        return 1

    def explain(self, round: int, growth: float) -> str:
        return "every round ends a batch"


@dataclass(frozen=True)
class FixedGrid(_Grid):
    """Algorithm 1's fixed scheme: B batches of T/B rounds.

    Batch b = 0, 1, … starts with round t_b = ⌊bT/B⌋ + 1, with min(B, T) for B. The printed t = b⌊T/B⌋ + 1 is the same
    where B divides T, and makes more than B batches, or a long last one, where it does not.

    Examples
    --------
    >>> FixedGrid(horizon=10, batches=3).points
    (3, 6)
    """

    horizon: int
    batches: int

    def __post_init__(self) -> None:
        check_counts(self, "horizon", "batches")
        count = _count(self)
        object.__setattr__(self, "points", tuple(b * self.horizon // count for b in range(1, count)))


@dataclass(frozen=True)
class GeometricGrid(_Grid):
    """B batches whose ends grow geometrically: round first·(T/first)^(b/(B−1)) ends batch b = 0, 1, ….

    `first` is the length of the first batch; its default T^(1/B) makes the ends T^((b+1)/B), the grid of
    Perchet et al. (2016) and Gao et al. (2019). Ends that would coincide move apart.

    Examples
    --------
    >>> GeometricGrid(horizon=1000, batches=3).points
    (10, 100)
    """

    horizon: int
    batches: int
    first: int | None = None

    def __post_init__(self) -> None:
        check_counts(self, "horizon", "batches")
        if self.first is not None:
            check_counts(self, "first")
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

    Examples
    --------
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


def _count(grid: FixedGrid | GeometricGrid) -> int:
    """The batches of a grid."""
    count = min(grid.batches, grid.horizon)
    if count > MOST_POINTS:
        raise InvalidSchedule(
            f"{type(grid).__name__}.batches must be at most {MOST_POINTS:,}, because all are listed; got {count}.\n"
            "For a new batch at every round use EveryRound()."
        )
    return count
