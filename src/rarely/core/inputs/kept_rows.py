"""Which rows of a history are kept, and what is left of the others.

    row        as history counts: logged samples first, then round 1, 2, …; a number for life
    position   where a kept row stands in the arrays

All rows from `start` on are kept, and of those before it the ones in `old`. A history that dropped nothing has row =
position.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rarely.core.saving.fields import Fields
from rarely.core.types import Array, BoolArray, IntArray


@dataclass(frozen=True, slots=True)
class RewardSums:
    """Rewards that were dropped: how many, their mean, Σ (r − mean)², and the largest spread of the first n so far."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    largest: float = 0.0

    def spread_with(self, rewards: Array) -> float:
        """The largest standard deviation of the first n rewards over all n: those dropped, then these."""
        if self.count + len(rewards) < 2:
            return 0.0
        center = self.mean if self.count else float(rewards.mean())
        rewards = rewards - center
        count = self.count + np.arange(1, len(rewards) + 1)
        mean, squares = np.cumsum(rewards) / count, (self.squares + np.cumsum(np.square(rewards))) / count
        spreads = np.sqrt(np.maximum(squares - np.square(mean), 0.0))
        return max(self.largest, float(spreads.max(initial=0.0)))

    def also(self, rewards: Array) -> RewardSums:
        """With these rewards dropped too."""
        if not len(rewards):
            return self
        total, mean = self.count + len(rewards), float(rewards.mean())
        shift = mean - self.mean
        squares = self.squares + float(np.square(rewards - mean).sum()) + shift**2 * self.count * len(rewards) / total
        return RewardSums(total, self.mean + shift * len(rewards) / total, squares, self.spread_with(rewards))


@dataclass(frozen=True, slots=True, eq=False)
class KeptRows:
    """Rows and positions, and what was dropped."""

    start: int = 0
    old: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    """Rows before `start` that are kept, rising."""
    rewards: RewardSums = field(default_factory=RewardSums)
    """Of the rows that were dropped with a reward."""
    abandoned: int = 0
    """Rounds that were dropped without one."""
    settled: int = 0
    """Rewards, in the order of arrival, among which some were dropped; all later ones are kept."""
    late: int = 0
    """Rewards that came for dropped rounds and were counted."""

    @property
    def dropped(self) -> int:
        """Rows that are not kept."""
        return self.start - len(self.old)

    def rows(self, kept: int) -> IntArray:
        """(kept,): the row at every position."""
        return np.concatenate([self.old, np.arange(self.start, self.start + kept - len(self.old))])

    def positions(self, rows: IntArray) -> tuple[IntArray, BoolArray]:
        """Where rows stand, and which of them are kept; the position of one that is not is meaningless."""
        positions = rows - self.dropped
        if not self.start:
            return positions, np.ones(len(rows), np.bool_)
        before = rows < self.start
        places = np.minimum(np.searchsorted(self.old, rows), max(len(self.old) - 1, 0))
        found = ~before
        if len(self.old):
            found |= self.old[places] == rows
        return np.where(before, places, positions), found

    def describe(self) -> dict[str, Any]:
        """Numbers and lists as JSON, but for `old`."""
        sums = self.rewards
        return {
            "start": self.start,
            "abandoned": self.abandoned,
            "settled": self.settled,
            "late": self.late,
            "dropped_rewards": [sums.count, sums.mean, sums.squares, sums.largest],
        }

    @classmethod
    def restored(cls, saved: Fields) -> KeptRows:
        """The saved value; formats 1 and 2 dropped nothing."""
        if not saved.since(3, "kept"):
            return cls()
        with saved.inner("kept") as kept:
            start = kept.whole("start")
            old = kept.array("old", (None,), "int", least=0, most=max(start - 1, 0))
            values = kept.listed("dropped_rewards")
            kept.require(len(values) == 4, "dropped_rewards must have four numbers")
            sums = Fields("history.kept.dropped_rewards", dict(zip("abcd", values, strict=True)), {})
            rewards = RewardSums(
                sums.whole("a"), sums.number("b"), sums.number("c", least=0), sums.number("d", least=0)
            )
            found = cls(start, old, rewards, kept.whole("abandoned"), kept.whole("settled"), kept.whole("late"))
            kept.require(len(old) <= start and bool((np.diff(old) > 0).all()), "old must be rising rows before start")
            kept.require(start == 0 or len(old) < start, "start must be 0 where no row was dropped")
            gone = rewards.count + found.abandoned
            kept.require(gone == found.dropped, f"{found.dropped} rows must be counted as dropped; {gone} are")
            kept.require(found.settled >= rewards.count, "settled must be as many as the rewards dropped, or more")
        return found
