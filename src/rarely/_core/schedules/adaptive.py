"""Schedules that follow log det Z: `Paced`, and Algorithm 1's `DeterminantTrigger`.

    T, B   horizon, batches   t, L   round and log det at which a batch of version b begins
    u_b    the end of batch b − 1, that is the b-th update; u_0 = 0

Most is learned early, and log det Z measures how much. The trigger ends a batch after a fixed growth of it. `Paced`
needs only T and B: on the problems that we measured log det grows about as √t, so equal shares of it put update b near
T(b/B)². Each batch plans the rest anew: if log det continues as √t, it reaches L√(T/t), and the batch gets an equal
share of that growth,

    L(√(T/t) − 1)/(B − b).

It ends when log det has grown by more, but no earlier than T((b + 1)/B)³, so that new directions cannot spend the
budget, and no later than T((b + 1)/B)², so that a log det that has stopped growing cannot save it up. Within these
limits it also ends by round 2t: while only a few rewards are known, each further one changes the policy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rarely._core.errors import InvalidSchedule, as_number, named_arguments, shown
from rarely._core.schedules.protocol import NEVER, Schedule, check_counts
from rarely._core.types import Array

EARLIEST, LATEST = 3, 2
"""Powers of b/B between which update b falls."""
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

    def first_due(self, round: int, growth: Array) -> int | None:
        return self.in_batch(0, 0, 0.0).first_due(round, growth)

    def lookahead(self, round: int, growth: float, rounds_in_batch: int) -> int:
        return self.in_batch(0, 0, 0.0).lookahead(round, growth, rounds_in_batch)

    def explain(self, round: int, growth: float) -> str:
        return self.in_batch(0, 0, 0.0).explain(round, growth)

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
class PacedBatch(Schedule):
    """One batch of `Paced`: it ends once log det has grown, not before round `earliest` and not after `latest`."""

    horizon: int
    update: int
    earliest: int
    latest: int
    growth: float

    batches = None

    def first_due(self, round: int, growth: Array) -> int | None:
        count = min(len(growth), max(self.horizon - 1 - round, 0))
        earliest, latest = max(0, self.earliest - round - 1), max(0, self.latest - round - 1)
        if earliest >= count:
            return None
        grown = growth[earliest:count] > self.growth
        end = min(latest, earliest + int(grown.argmax())) if np.count_nonzero(grown) else latest
        return end if end < count else None

    def lookahead(self, round: int, growth: float, rounds_in_batch: int) -> int:
        latest = max(1, self.latest - round)
        left = self.growth - growth
        if left <= 0:
            return max(1, min(latest, self.earliest - round))
        if growth <= 0:
            return min(latest, 16)
        # Growth slows down inside a batch, so its mean pace so far gives too few rounds rather than too many.
        pace = math.ceil(min(left * rounds_in_batch / growth, NEVER))
        return min(latest, max(8, pace, self.earliest - round))

    def explain(self, round: int, growth: float) -> str:
        if round >= self.latest:
            return f"round {round} is the latest for update {self.update}; log det grew by {growth:.4g}"
        return f"log det grew by {growth:.4g}, more than its share of {self.growth:.4g}"

    def ahead(self, round: int) -> str:
        if self.earliest == NEVER:
            return ""
        if self.earliest == self.latest:
            return f"the next after round {self.latest}"
        return f"the next between rounds {self.earliest} and {self.latest}, once log det has grown by {self.growth:.4g}"


@named_arguments
@dataclass(frozen=True)
class DeterminantTrigger(Schedule):
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
        if not ratio > 0:
            wrong = f"DeterminantTrigger.log_ratio must be positive, because det Z never shrinks; got {self.log_ratio}."
            raise InvalidSchedule(f"{wrong}\nFor a new batch at every round use EveryRound().")

    def rescued(self) -> Schedule:
        known = self.horizon is not None and self.batches is not None and math.isfinite(self.log_ratio)
        return FirstBatch(self) if known else self

    def first_due(self, round: int, growth: Array) -> int | None:
        if self.horizon is not None:
            growth = growth[: max(0, self.horizon - 1 - round)]
        past = growth > self.log_ratio
        return int(np.argmax(past)) if past.any() else None

    def lookahead(self, round: int, growth: float, rounds_in_batch: int) -> int:
        # Growth slows down inside a batch, so its mean pace so far gives too few rounds rather than too many.
        left = self.log_ratio - growth
        if not math.isfinite(left):
            return NEVER
        if growth <= 0:
            return 16
        return max(8, math.ceil(min(left * rounds_in_batch / growth, NEVER)))

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

    def lookahead(self, round: int, growth: float, rounds_in_batch: int) -> int:
        return self.trigger.lookahead(round, growth, rounds_in_batch)

    def explain(self, round: int, growth: float) -> str:
        if growth > self.trigger.log_ratio:
            return self.trigger.explain(round, growth)
        return (
            f"log det has saturated: it grew by {growth:.4g} in {round} rounds and would not reach log_ratio = "
            f"{self.trigger.log_ratio:.4g} before the horizon"
        )
