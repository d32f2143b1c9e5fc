"""A schedule from the horizon and the number of batches alone.

    T, B   horizon, batches   t, L   round and log det at which a batch of version b begins
    u_b    the end of batch b − 1, that is the b-th update; u_0 = 0

Most is learned early, and log det Z measures how much. On the problems that we measured it grows about as √t, so equal
shares of it put update b near T(b/B)². Each batch plans the rest anew: if log det goes on as √t, it reaches L√(T/t),
and the batch gets an equal share of that growth,

    L(√(T/t) − 1)/(B − b).

It ends when log det has grown by more, but no earlier than T((b + 1)/B)³, so that new directions cannot spend the
budget, and no later than T((b + 1)/B)², so that a log det that has stopped growing cannot save it up. Within these
limits it ends by round 2t, too: while a few rewards are all that is known, every further one changes the policy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rarely.core.schedules.protocol import FAR, Schedule, check_counts
from rarely.core.types import Array

EARLIEST, LATEST = 3, 2
"""Powers of b/B between which update b falls."""
LONGEST = 2
"""A batch that begins at round t ends by round 2t if the limits allow it: no version decides more rounds than it has
learned from."""


@dataclass(frozen=True)
class Paced(Schedule):
    """B batches in T rounds, dense where much is learned: the schedule to take if nothing else is known.

    After a start at rounds 1, 2, 4, 8 …, if B allows it, the rounds grow as squares where log det Z grows as √t. It
    adapts to what is measured, within limits that always hold: there are never more than B versions, and update b
    falls between rounds T(b/B)³ and T(b/B)². So after round t at least B(1 − (t/T)^(1/3)) − 1 updates are left, and at
    least B√(t/T) − 1 have been due.

    Parameters
    ----------
    horizon
        T, the rounds planned for. Nothing is due after the last of them.
    batches
        B, the most versions that there may be.

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

    def in_batch(self, version: int, round: int, log_det: float) -> PacedBatch:
        return self._batch(version, round, log_det)

    def first_due(self, round: int, growth: Array) -> int | None:
        return self._batch(0, 0, 0.0).first_due(round, growth)

    def lookahead(self, round: int, growth: float, rounds_in_batch: int) -> int:
        return self._batch(0, 0, 0.0).lookahead(round, growth, rounds_in_batch)

    def explain(self, round: int, growth: float) -> str:
        return self._batch(0, 0, 0.0).explain(round, growth)

    def _batch(self, version: int, round: int, log_det: float) -> PacedBatch:
        horizon, update, left = self.horizon, version + 1, self.batches - version
        if left < 2:
            return PacedBatch(horizon, update, FAR, FAR, math.inf)
        earliest, latest = (-(-horizon * update**power // self.batches**power) for power in (EARLIEST, LATEST))
        if round >= latest:
            # An update came late: plan the rest as √t would have it from here.
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
    """One batch of `Paced`: it ends from round `earliest` on when log det has grown, and with `latest` anyway."""

    horizon: int
    update: int
    earliest: int
    latest: int
    growth: float

    batches = None

    def first_due(self, round: int, growth: Array) -> int | None:
        rounds = round + 1 + np.arange(min(len(growth), max(self.horizon - 1 - round, 0)))
        ends = (rounds >= self.latest) | ((rounds >= self.earliest) & (growth[: len(rounds)] > self.growth))
        return int(np.argmax(ends)) if ends.any() else None

    def lookahead(self, round: int, growth: float, rounds_in_batch: int) -> int:
        latest = max(1, self.latest - round)
        left = self.growth - growth
        if left <= 0:
            return max(1, min(latest, self.earliest - round))
        if growth <= 0:
            return min(latest, 16)
        # Growth slows down inside a batch, so its mean pace so far gives too few rounds rather than too many.
        pace = math.ceil(min(left * rounds_in_batch / growth, FAR))
        return min(latest, max(8, pace, self.earliest - round))

    def explain(self, round: int, growth: float) -> str:
        if round >= self.latest:
            return f"round {round} is the latest for update {self.update}; log det grew by {growth:.4g}"
        return f"log det grew by {growth:.4g}, more than its share of {self.growth:.4g}"

    def ahead(self, round: int) -> str:
        if self.earliest == FAR:
            return ""
        if self.earliest == self.latest:
            return f"the next after round {self.latest}"
        return f"the next between rounds {self.earliest} and {self.latest}, once log det has grown by {self.growth:.4g}"
