"""Batches that end when Z has learned enough: Algorithm 1's adaptive scheme."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

import numpy as np

from rarely.core.errors import InvalidSchedule
from rarely.core.schedules.protocol import FAR, Schedule, check_counts
from rarely.core.types import Array


@dataclass(frozen=True)
class DeterminantTrigger(Schedule):
    """End a batch once log det Z has grown by more than `log_ratio` = log q since the batch began.

    Algorithm 1's adaptive scheme, the *rarely switching* rule of Abbasi-Yadkori et al. (2011). The paper
    compares determinants; they overflow, so we compare logarithms.

    Parameters
    ----------
    horizon
        Rounds planned for, if known: nothing is due after the last of them.
    batches
        The most versions that there may be; None sets no limit.
    log_ratio
        log q. The smaller it is, the more updates there are: about the whole growth of log det, which
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
        for name in ("horizon", "batches"):
            if getattr(self, name) is not None:
                check_counts(self, name)
        if not isinstance(self.log_ratio, Real) or math.isnan(self.log_ratio):
            raise InvalidSchedule(
                "DeterminantTrigger.log_ratio must be given: the growth of log det Z that ends a batch."
            )
        if not self.log_ratio > 0:
            raise InvalidSchedule(
                f"DeterminantTrigger.log_ratio must be positive, because det Z never shrinks; got {self.log_ratio}.\n"
                "For a new batch at every round use EveryRound()."
            )

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
            return FAR
        if growth <= 0:
            return 16
        return max(8, math.ceil(min(left * rounds_in_batch / growth, FAR)))

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
