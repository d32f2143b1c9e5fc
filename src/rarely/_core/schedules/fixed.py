"""Schedules that do not look at the data: grids, every round, and updates on demand."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rarely._core.errors import InvalidSchedule, check_whole, named_arguments, shown
from rarely._core.schedules.protocol import NEVER, Schedule, check_counts
from rarely._core.types import Array

MAX_POINTS = 10**5
"""The most batches that a grid may have, because it lists their ends in memory."""


class _Grid(Schedule):
    """Batches that end with rounds known in advance."""

    points: tuple[int, ...]
    """The rounds that end a batch, rising; the last batch ends with the horizon, which is not among them."""
    _ends: Callable[[int, int], Iterable[float]]
    """(horizon, count): where all but the last of so many batches should end."""

    def __post_init__(self) -> None:
        check_counts(self, "horizon", "batches")
        assert self.horizon is not None
        assert self.batches is not None
        count = min(self.batches, self.horizon)
        if count > MAX_POINTS:
            limit = f"{type(self).__name__}.batches must be at most {MAX_POINTS:,}, because all are listed; got {count}"
            raise InvalidSchedule(f"{limit}.\nFor a new batch at every round use EveryRound().")
        points: list[int] = []
        for b, end in enumerate(self._ends(self.horizon, count), start=1):  # moved so that no batch is empty
            points.append(min(max(round(end), points[-1] + 1 if points else 1), self.horizon - (count - b)))
        object.__setattr__(self, "points", tuple(points))

    def first_due(self, round: int, growth: Array) -> int | None:
        ahead = self._next(round)
        return ahead - round - 1 if ahead <= round + len(growth) else None

    def lookahead(self, round: int, growth: float, rounds_in_batch: int) -> int:
        return self._next(round) - round

    def explain(self, round: int, growth: float) -> str:
        return f"the grid ends a batch with round {round}"

    def ahead(self, round: int) -> str:
        return "" if self._next(round) == NEVER else f"the next after round {self._next(round)}"

    def _next(self, round: int) -> int:
        points = self.points
        i = bisect_right(points, round)
        return points[i] if i < len(points) else NEVER


@named_arguments
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


@named_arguments
@dataclass(frozen=True)
class FixedGrid(_Grid):
    """Algorithm 1's fixed scheme: B batches of T/B rounds.

    Batch b = 0, 1, … starts with round t_b = ⌊bT/B⌋ + 1, with min(B, T) for B. The printed t = b⌊T/B⌋ + 1 is the same
    where B divides T; elsewhere it makes more than B batches, or a long last one.

    Examples
    --------
    >>> FixedGrid(horizon=10, batches=3).points
    (3, 6)
    """

    horizon: int
    batches: int

    def _ends(self, horizon: int, count: int) -> Iterable[float]:
        return (b * horizon // count for b in range(1, count))


@named_arguments
@dataclass(frozen=True)
class GeometricGrid(_Grid):
    """B batches whose ends grow geometrically: round first·(T/first)^(b/(B−1)) ends batch b = 0, 1, ….

    `first` is the length of the first batch; its default T^(1/B) makes the ends T^((b+1)/B), the grid of
    Perchet et al. (2016) and Gao et al. (2019). Ends that would coincide are moved apart.

    Examples
    --------
    >>> GeometricGrid(horizon=1000, batches=3).points
    (10, 100)
    """

    horizon: int
    batches: int
    first: int | None = None

    def _ends(self, horizon: int, count: int) -> Iterable[float]:
        check_counts(self, "first", besides=(None,))
        if self.first is not None and self.first >= horizon:
            raise InvalidSchedule(f"GeometricGrid.first must be below horizon={horizon}; got {self.first}.")
        first = self.first or horizon ** (1 / count)
        return (first * (horizon / first) ** ((b - 1) / max(count - 1, 1)) for b in range(1, count))


@named_arguments
@dataclass(frozen=True)
class LogLogGrid(_Grid):
    """The minimax grid of batched bandits: round T^((1 − 2^(−b−1))/(1 − 2^(−B))) ends batch b = 0, 1, ….

    Gao et al. (2019) choose it for the smallest regret on the worst gap. About log₂ log T batches are then enough for
    √T up to logarithms; further ends crowd before the horizon, where they are moved apart and gain little. With many
    batches use `Paced` or `GeometricGrid`.

    Examples
    --------
    >>> LogLogGrid(horizon=10_000, batches=3).points
    (193, 2683)
    """

    horizon: int
    batches: int

    def _ends(self, horizon: int, count: int) -> Iterable[float]:
        return (horizon ** ((1 - 0.5**b) / (1 - 0.5**count)) for b in range(1, count))


@named_arguments
@dataclass(frozen=True)
class AtRounds(_Grid):
    """Batches that end with the given rounds: clinical stages, nightly trainings.

    In a trial with stages (`rarely.study.Stage`) the end of each stage must be one of the rounds.

    Examples
    --------
    >>> AtRounds([50, 200]).batches
    3
    """

    rounds: Sequence[int]

    def __post_init__(self) -> None:
        try:
            given = list(self.rounds)
        except TypeError:
            came = shown(self.rounds)
            raise InvalidSchedule(f"AtRounds.rounds must be a list of rounds; got {came}. Use AtRounds([5]).") from None
        for number in given:
            check_whole("each of AtRounds.rounds", number, 1, InvalidSchedule)
        points = tuple(int(number) for number in given)
        if list(points) != sorted(set(points)):
            raise InvalidSchedule(f"AtRounds.rounds must rise, without repetition; got {points}.")
        for name, value in (("rounds", points), ("points", points), ("batches", len(points) + 1), ("horizon", None)):
            object.__setattr__(self, name, value)


@named_arguments
@dataclass(frozen=True)
class OnDemand(Schedule):
    """No update is ever due: the caller calls `update` when it suits, for instance every night.

    Parameters
    ----------
    batches
        The largest number of versions; None sets no limit. `policy.versions_left` counts down, and
        `policy.extend_budget` adds to it.
    horizon
        The planned number of rounds, if known. Nothing happens at the horizon; the policy uses it to predict its cost.

    Examples
    --------
    >>> from rarely import LinUCB, OnDemand
    >>> policy = LinUCB(dim=1, schedule=OnDemand(batches=3))
    >>> policy.observe(policy.select([[[1.0], [2.0]]] * 5), [1.0] * 5)
    >>> policy.due, policy.update().version, policy.versions_left
    (False, 1, 1)
    """

    plans_ahead = False
    on_demand = True

    batches: int | None = None
    horizon: int | None = None

    def __post_init__(self) -> None:
        check_counts(self, "batches", "horizon", besides=(None,))

    def first_due(self, round: int, growth: Array) -> int | None:
        return None

    def lookahead(self, round: int, growth: float, rounds_in_batch: int) -> int:
        return NEVER

    def ahead(self, round: int) -> str:
        return "the next when update() is called"
