"""Schedules: when a policy may change, and how often.

    t − 1    round    ()    rounds decided so far
    b        version  ()    the version in use, 0 … B−1
    growth            (n,)  log det Z after each of the next n rounds, minus its value when the batch began

A schedule says when a batch ends: it sets `policy.due`, and the caller decides when to update. It is a frozen value
without memory. The policy wraps whatever schedule it is given in a `Budget`.

Grids and `EveryRound` do not look at the data. Algorithm 1's `DeterminantTrigger` and `Paced` follow log det Z, which
measures how much is learned, most of it early. The trigger ends a batch after a fixed growth of it. `Paced` needs only
T and B: on the problems that we measured log det grows about as √t, so equal shares of it put update b near T(b/B)².
Each batch plans the rest anew: if log det, L at round t, continues as √t, it reaches L√(T/t), and the batch of version
b gets an equal share of that growth,

    L(√(T/t) − 1)/(B − b).

It ends when log det has grown by more, but no earlier than T((b + 1)/B)³, so that new directions cannot spend the
budget, and no later than T((b + 1)/B)², so that a log det that has stopped growing cannot save it up. Within these
limits it also ends by round 2t: while only a few rewards are known, each further one changes the policy.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rarely._core.errors import InvalidSchedule, as_number, check_whole, named_arguments, shown
from rarely._core.parts import READERS, Part, Registry
from rarely._core.types import Array, forwarded

NEVER = 2**62  # a round that no policy reaches: no update is in sight
SCHEDULES: Registry[Schedule] = Registry("a schedule", InvalidSchedule)
"""Every schedule by its name, the package's and the user's."""


class Schedule(Part):
    """A rule for when the next update is due.

    A schedule of your own is a frozen dataclass, registered by its definition. `rarely.testing.check_schedule` checks
    its promises.

    Examples
    --------
    >>> from rarely import FixedGrid, Schedule
    >>> schedule = FixedGrid(horizon=1000, batches=5)
    >>> isinstance(schedule, Schedule), schedule.batches, schedule.horizon
    (True, 5, 1000)
    """

    registry = SCHEDULES

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


class BatchEnd(NamedTuple):
    """When a batch ends: from round `earliest` on once log det has grown by more than `growth`, or with `latest`."""

    earliest: int
    latest: int
    growth: float = math.inf
    last: int = NEVER  # the last round with which it may end: nothing is due after the horizon

    def ends_with(self, round: int, growth: float) -> bool:
        """Return whether the batch ends with this round, or would have ended before."""
        return self.earliest <= round <= self.last and (round >= self.latest or growth > self.growth)


class EndingSchedule(Schedule):
    """A schedule whose batches end by a `BatchEnd`."""

    @abstractmethod
    def end(self, round: int) -> BatchEnd:
        """Return when the batch ends that is under way after so many rounds."""

    def first_due(self, round: int, growth: Array) -> int | None:
        earliest, latest, most, last = self.end(round)
        count, start, end = min(len(growth), last - round), max(0, earliest - round - 1), max(0, latest - round - 1)
        if start >= count:
            return None
        grown = growth[start:count] > most
        end = min(end, start + int(grown.argmax())) if np.count_nonzero(grown) else end
        return end if end < count else None

    def lookahead(self, round: int, growth: float, rounds_in_batch: int) -> int:
        earliest, end, most, last = self.end(round)
        latest, left = max(1, end - round), most - growth
        if round >= last or most == math.inf:
            return latest if end < NEVER else NEVER
        if left <= 0:
            return max(1, min(latest, earliest - round))
        if growth <= 0:
            return min(latest, 16)
        # Growth slows down inside a batch, so its mean pace so far gives too few rounds rather than too many.
        pace = math.ceil(min(left * rounds_in_batch / growth, NEVER))
        return min(latest, max(8, pace, earliest - round))

    def ahead(self, round: int) -> str:
        earliest, latest, growth, _ = self.end(round)
        if latest == NEVER:
            return ""
        if earliest == latest:
            return f"the next after round {latest}"
        return f"the next between rounds {earliest} and {latest}, once log det has grown by {growth:.4g}"


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
        taken = {name: getattr(self.schedule, name) for name in ("horizon", "plans_ahead", "on_demand")}
        self.__dict__.update(taken, batches=min(caps) + self.extra if caps else None)

    @classmethod
    def around(cls, schedule: Schedule) -> Budget:
        """Return the schedule under its own cap."""
        return schedule if isinstance(schedule, Budget) else cls(schedule, schedule.batches)

    @property
    def _own(self) -> int | None:
        """Versions of the budget before any were added."""
        return None if self.batches is None else self.batches - self.extra

    def extended(self, extra: int) -> Budget:
        """Return the budget with `extra` versions added in all; its schedule does not change."""
        return Budget(self.schedule, self._own, extra)

    def spent(self, version: int) -> bool:
        """Return whether this version is the last one that the budget allows."""
        return self.batches is not None and version >= self.batches - 1

    # The schedule inside says when a batch ends; this one only how many there may be.
    first_due, lookahead, ahead = map(forwarded, ("schedule.first_due", "schedule.lookahead", "schedule.ahead"))
    explain, in_batch = map(forwarded, ("schedule.explain", "schedule.in_batch"))

    def describe(self) -> dict[str, Any]:
        described = {"kind": "Budget", "schedule": self.schedule.describe(), "batches": self._own}
        return described | ({"extra": self.extra} if self.extra else {})


# --- schedules that do not look at the data

MAX_POINTS = 10**5  # the most batches that a grid may have, because it lists their ends in memory


class _Grid(EndingSchedule):
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
            raise InvalidSchedule(
                f"{type(self).__name__}.batches must be at most {MAX_POINTS:,}, because all are listed; got {count}.\n"
                "For a new batch at every round use EveryRound()."
            )
        points: list[int] = []
        for b, end in enumerate(self._ends(self.horizon, count), start=1):  # moved so that no batch is empty
            points.append(min(max(round(end), points[-1] + 1 if points else 1), self.horizon - (count - b)))
        object.__setattr__(self, "points", tuple(points))

    def end(self, round: int) -> BatchEnd:
        i = bisect_right(self.points, round)
        point = self.points[i] if i < len(self.points) else NEVER
        return BatchEnd(point, point)

    def explain(self, round: int, growth: float) -> str:
        return f"the grid ends a batch with round {round}"


@named_arguments
@dataclass(frozen=True)
class EveryRound(EndingSchedule):
    """A new version after every round: sequential NeuralUCB.

    Examples
    --------
    >>> import numpy as np
    >>> EveryRound().first_due(round=7, growth=np.zeros(3))
    0
    """

    batches: None = None
    horizon: None = None

    def end(self, round: int) -> BatchEnd:
        return BatchEnd(round + 1, round + 1)

    def explain(self, round: int, growth: float) -> str:
        return "every round ends a batch"

    def ahead(self, round: int) -> str:
        return ""


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
            listed = list(self.rounds)
        except TypeError:
            rule = f"AtRounds.rounds must be a list of rounds; got {shown(self.rounds)}"
            raise InvalidSchedule(f"{rule}. Use AtRounds([5]).") from None
        for number in listed:
            check_whole("each of AtRounds.rounds", number, 1, InvalidSchedule)
        points = tuple(int(number) for number in listed)
        if list(points) != sorted(set(points)):
            raise InvalidSchedule(f"AtRounds.rounds must rise, without repetition; got {points}.")
        self.__dict__.update(rounds=points, points=points, batches=len(points) + 1, horizon=None)


@named_arguments
@dataclass(frozen=True)
class OnDemand(EndingSchedule):
    """No update is ever due: the caller calls `update` when it suits, for instance every night.

    Parameters
    ----------
    batches
        The largest number of versions, so that there are batches − 1 updates; None sets no limit.
        `policy.versions_left` counts down, and `policy.extend_budget` adds to it.
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

    def end(self, round: int) -> BatchEnd:
        return BatchEnd(NEVER, NEVER)

    def ahead(self, round: int) -> str:
        return "the next when update() is called"


# --- schedules that follow log det Z

EARLIEST, LATEST = 3, 2  # powers of b/B between which update b falls
LONGEST = 2
"""A batch that begins at round t ends by round 2t if the limits allow: no version decides more rounds than it has
learned from."""


@named_arguments
@dataclass(frozen=True)
class Paced(Schedule):
    """B batches in T rounds, dense where much is learned: the schedule to use if nothing else is known.

    After a start at rounds 1, 2, 4, 8 …, if B allows it, the rounds grow as squares where log det Z grows as √t. Update
    b falls between rounds T(b/B)³ and T(b/B)², so after round t at least B(1 − (t/T)^(1/3)) − 1 updates are left, and
    at least B√(t/T) − 1 have been due.

    Parameters
    ----------
    horizon
        T, the planned number of rounds. Nothing is due after the last of them.
    batches
        B, the largest number of versions.

    Examples
    --------
    >>> Paced(horizon=1000, batches=10).in_batch(version=0, round=0, log_det=0.0)
    PacedBatch(horizon=1000, update=1, earliest=1, latest=1, growth=0.0)
    >>> Paced(horizon=1000, batches=10).in_batch(version=4, round=160, log_det=80.0)
    PacedBatch(horizon=1000, update=5, earliest=161, latest=250, growth=20.0)
    """

    horizon: int
    batches: int

    def __post_init__(self) -> None:
        check_counts(self, "horizon", "batches")
        if self.batches > self.horizon:
            raise InvalidSchedule(
                "Paced(horizon, batches) takes the number of rounds first, and at most as many versions; got "
                f"horizon={self.horizon}, batches={self.batches}. For an update after every round use EveryRound()."
            )

    _first = property(lambda self: self.in_batch(0, 0, 0.0), doc="The first batch, for which it speaks itself.")
    first_due, lookahead, explain = map(forwarded, ("_first.first_due", "_first.lookahead", "_first.explain"))

    def in_batch(self, version: int, round: int, log_det: float) -> PacedBatch:
        horizon, update, left = self.horizon, version + 1, self.batches - version
        if left < 2:
            return PacedBatch(horizon, update, NEVER, NEVER, math.inf)
        earliest, latest = (-(-horizon * update**power // self.batches**power) for power in (EARLIEST, LATEST))
        if round >= latest:
            # An update came late: spread the remaining ones as √t from here.
            root = math.sqrt(round)
            latest = max(round + 1, math.ceil((root + (math.sqrt(horizon) - root) / left) ** 2))
        latest = max(earliest, min(latest, LONGEST * round), round + 1)
        earliest = max(round + 1, earliest)
        if not (round and log_det > 0):
            return PacedBatch(horizon, update, latest, latest, 0.0)
        growth = log_det * (math.sqrt(horizon / round) - 1) / left
        return PacedBatch(horizon, update, earliest, latest, growth)


@dataclass(frozen=True)
class PacedBatch(EndingSchedule):
    """One batch of `Paced`: it ends once log det has grown, not before round `earliest` and not after `latest`."""

    horizon: int
    update: int
    earliest: int
    latest: int
    growth: float

    batches = None

    def end(self, round: int) -> BatchEnd:
        return BatchEnd(self.earliest, self.latest, self.growth, self.horizon - 1)

    def explain(self, round: int, growth: float) -> str:
        if round >= self.latest:
            return f"round {round} is the latest for update {self.update}; log det grew by {growth:.4g}"
        return f"log det grew by {growth:.4g}, more than its share of {self.growth:.4g}"


@named_arguments
@dataclass(frozen=True)
class DeterminantTrigger(EndingSchedule):
    """End a batch once log det Z has grown by more than `log_ratio` = log q since the batch began.

    Algorithm 1's adaptive scheme, the *rarely switching* rule of Abbasi-Yadkori et al. (2011). The paper
    compares determinants; they overflow, so we compare logarithms.

    Parameters
    ----------
    horizon
        The planned number of rounds, if known: nothing is due after the last of them.
    batches
        The largest number of versions; None sets no limit.
    log_ratio
        log q. The smaller, the more updates: about the whole growth of log det, which
        `policy.log_det` shows, divided by `log_ratio`.

    Notes
    -----
    Where horizon and batches are known and the policy's `within_batch` is "running", the first batch also ends if log
    det has saturated: after T/B rounds, if at its mean pace so far it would not reach log_ratio before the horizon.
    Without that, a fixed set of arms, whose log det grows as log t, might never be learned from. A `ScheduleWarning`
    says so. With "frozen" the rule is the printed one.

    Examples
    --------
    >>> DeterminantTrigger(log_ratio=1.0).first_due(round=0, growth=np.array([0.4, 0.9, 1.3]))
    2
    """

    plans_ahead = False

    horizon: int | None = None
    batches: int | None = None
    log_ratio: float = math.nan

    def __post_init__(self) -> None:
        check_counts(self, "horizon", "batches", besides=(None,))
        ratio = as_number(self.log_ratio)
        if math.isnan(ratio):
            raise InvalidSchedule(f"DeterminantTrigger.log_ratio must be given, a number; got {shown(self.log_ratio)}.")
        if ratio <= 0:
            wrong = f"DeterminantTrigger.log_ratio must be positive, because det Z never shrinks; got {self.log_ratio}."
            raise InvalidSchedule(f"{wrong}\nFor a new batch at every round use EveryRound().")

    def rescued(self) -> Schedule:
        foreseeable = self.horizon is not None and self.batches is not None and math.isfinite(self.log_ratio)
        return FirstBatch(self) if foreseeable else self

    def end(self, round: int) -> BatchEnd:
        return BatchEnd(0, NEVER, self.log_ratio, NEVER if self.horizon is None else self.horizon - 1)

    def explain(self, round: int, growth: float) -> str:
        return f"log det grew by {growth:.4g}, more than log_ratio = {self.log_ratio:.4g}"


@dataclass(frozen=True)
class FirstBatch(Schedule):
    """The first batch of a trigger, which also ends if log det has saturated."""

    trigger: DeterminantTrigger

    batches = None
    horizon = None

    def first_due(self, round: int, growth: Array) -> int | None:
        horizon, batches = self.trigger.horizon, self.trigger.batches
        assert horizon is not None
        assert batches is not None
        rounds = round + 1 + np.arange(min(len(growth), max(horizon - 1 - round, 0)))
        saturated = (rounds * batches >= horizon) & (growth[: len(rounds)] * horizon < self.trigger.log_ratio * rounds)
        fired = self.trigger.first_due(round, growth)
        ended = [int(np.argmax(saturated))] if saturated.any() else []
        return min(ended + ([] if fired is None else [fired]), default=None)

    lookahead = forwarded("trigger.lookahead")

    def explain(self, round: int, growth: float) -> str:
        if growth > self.trigger.log_ratio:
            return self.trigger.explain(round, growth)
        return (
            f"log det has saturated: it grew by {growth:.4g} in {round} rounds and would not reach log_ratio = "
            f"{self.trigger.log_ratio:.4g} before the horizon"
        )


def schedule_from(description: dict[str, Any]) -> Schedule:
    """Return the schedule that `describe` described."""
    if description["kind"] == "Budget":
        inner = schedule_from(description["schedule"])
        return Budget(inner, description["batches"], description.get("extra", 0))
    return SCHEDULES.made(description)


READERS["Schedule"] = schedule_from
