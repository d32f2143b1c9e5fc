"""The rows of a history, as they are read: contexts, arms, versions, and the rewards that are in.

Row i is a logged sample for i < logged, and round i − logged + 1 from there on: rounds count from 1. Rows that nothing
needs any more may be dropped (`without`); the others keep their numbers, and stand at positions (`KeptRows`).

    arrivals   (m,)  positions in the order in which their rewards came
    values     (m,)  those rewards
    place      (n,)  where a position stands in `arrivals`. It is meaningless without a reward, so a position has one
                     only if arrivals[place[position]] == position (the sparse set of Briggs and Torczon, 1993): what a
                     failed call wrote there cannot be mistaken for a reward
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from rarely.core.errors import HistoryDropped
from rarely.core.growable_array import GrowableArray, shallow
from rarely.core.inputs.forgetting import Forgetting
from rarely.core.inputs.kept_rows import KeptRows
from rarely.core.types import Array, BoolArray, IntArray


class Samples(NamedTuple):
    """What an update learns from."""

    rows: IntArray
    """(n,): their rows."""
    contexts: Array
    rewards: Array
    weights: Array | None
    """(n,), or None where nothing is forgotten."""

    def some(self, places: IntArray) -> Samples:
        """Those at these places alone."""
        weights = None if self.weights is None else self.weights[places]
        return Samples(self.rows[places], self.contexts[places], self.rewards[places], weights)


class Unrolled(NamedTuple):
    """The rewards of all rows, dropped ones too."""

    rewards: Array

    def __len__(self) -> int:
        return len(self.rewards)


class RecordedRows:
    """Contexts of the chosen arms as they came, and their rewards; a reward that is not in is NaN."""

    def __init__(self, dim: int, forgetting: Forgetting | None = None) -> None:
        self.forgetting = forgetting
        self._contexts = GrowableArray(dim)
        self._arms, self._versions = GrowableArray(None, np.int64), GrowableArray(None, np.int64)
        self._known = GrowableArray(3)
        """Propensity, mean and bonus of the chosen arm."""
        self._place = GrowableArray(None, np.int64)
        self._arrivals, self._values = GrowableArray(None, np.int64), GrowableArray(None)
        self._lives: tuple[tuple[int, str], ...] = ()
        """(row, life): from which row on a life of the policy decided; see `Decision.life`."""
        self.logged = 0
        self._kept = KeptRows()

    def __len__(self) -> int:
        return len(self._place)

    @property
    def total(self) -> int:
        """Rows so far, dropped ones too."""
        return len(self) + self._kept.dropped

    @property
    def rows(self) -> IntArray:
        """(rows,): the number of each row that is kept; round t is row t − 1 + logged."""
        return self._kept.rows(len(self))

    @property
    def contexts(self) -> Array:
        """(rows, d)."""
        return read_only(self._contexts.view)

    @property
    def rewards(self) -> Array:
        """(rows,), NaN where none is in."""
        return read_only(self._rewards())

    @property
    def arms(self) -> IntArray:
        """(rows,), −1 for logged samples."""
        return read_only(self._arms.view)

    @property
    def versions(self) -> IntArray:
        """(rows,), −1 for logged samples."""
        return read_only(self._versions.view)

    @property
    def propensities(self) -> Array:
        """(rows,): the probability with which the arm was chosen, NaN for logged samples."""
        return read_only(self._known.view)[:, 0]

    @property
    def means(self) -> Array:
        """(rows,): the reward that was predicted, NaN for logged samples."""
        return read_only(self._known.view)[:, 1]

    @property
    def bonuses(self) -> Array:
        """(rows,): the bonus of the chosen arm, NaN for logged samples."""
        return read_only(self._known.view)[:, 2]

    @property
    def rounds(self) -> int:
        """How many rounds were decided."""
        return self.total - self.logged

    @property
    def arrived(self) -> int:
        """How many rewards came in, logged and dropped ones included."""
        return len(self._arrivals) + self._kept.rewards.count

    @property
    def missing(self) -> int:
        """How many rounds have no reward yet, and may get one."""
        return len(self) - len(self._arrivals)

    @property
    def dropped(self) -> int:
        """How many rows were dropped, with a reward or without."""
        return self._kept.dropped

    @property
    def abandoned(self) -> int:
        """How many rounds were dropped before a reward came."""
        return self._kept.abandoned

    @property
    def late(self) -> int:
        """How many rewards came for dropped rounds and were counted, as `observe(late="count")` does."""
        return self._kept.late

    @property
    def counted(self) -> int:
        """How many samples an update learns from."""
        return len(self._arrivals) if self.forgetting is None else len(self.samples().rows)

    def observed(self) -> tuple[Array, Array]:
        """Contexts and rewards of the rows that count and whose rewards are in."""
        samples = self.samples()
        return samples.contexts, samples.rewards

    def samples(self) -> Samples:
        """The same with all that training wants to know."""
        rewards, weights = self._rewards(), self._weights()
        if not self.missing and weights is None:
            return Samples(self.rows, self._contexts.view, rewards, None)
        inside = ~np.isnan(rewards)
        if weights is not None:
            inside &= weights > 0
            weights = weights[inside]
        return Samples(self.rows[inside], self._contexts.view[inside], rewards[inside], weights)

    def remembered(self) -> tuple[Array, Array | None]:
        """Contexts and weights of all rows that count, whether their rewards are in or not."""
        weights = self._weights()
        if weights is None:
            return self._contexts.view, None
        return self._contexts.view[weights > 0], weights[weights > 0]

    def arrived_since(self, count: int) -> tuple[Array, Array]:
        """Contexts and rewards of the rows whose rewards came after the first `count` rewards."""
        places = self._arrivals.view[self._arrival(count) :]
        order = np.argsort(places)
        return self._contexts.view[places[order]], self._values.view[self._arrival(count) :][order]

    def last_arrivals(self, count: int) -> tuple[IntArray, Array, Array]:
        """Positions, contexts and values of the last `count` rewards that came, or of those that are kept."""
        start = max(0, len(self._arrivals) - count)
        places = self._arrivals.view[start:]
        return places, self._contexts.view[places], self._values.view[start:]

    def arrivals_between(self, start: int, end: int) -> tuple[IntArray, Array]:
        """Rows and values of the rewards that came after the first `start` and among the first `end`."""
        here = slice(self._arrival(start), self._arrival(end))
        return self.rows[self._arrivals.view[here]], self._values.view[here]

    def came_after(self, count: int) -> BoolArray:
        """(rows,): whether the reward came after the first `count` rewards."""
        after = np.zeros(len(self), np.bool_)
        after[self._arrivals.view[self._arrival(max(count, self._kept.settled)) :]] = True
        return after

    def _arrival(self, count: int) -> int:
        """Where the rewards after the first `count` begin among those that are kept."""
        if count < self._kept.settled:
            raise HistoryDropped(
                f"the rewards after the first {count} are asked for, but some of the first {self._kept.settled} were "
                "dropped."
            )
        return count - self._kept.rewards.count

    @property
    def largest_spread(self) -> float:
        """The largest standard deviation of the first n rewards over all n, dropped ones first.

        Rewards vary less once the same arms are chosen again and again, which says nothing about the others.
        """
        rewards = self._rewards()
        return self._kept.rewards.spread_with(rewards[~np.isnan(rewards)])

    @property
    def smallest(self) -> float:
        """The smallest of the rewards that are kept; infinity without any."""
        return float(np.min(self._values.view, initial=np.inf))

    def contexts_since(self, round: int) -> Array:
        """(n, d): contexts of the rounds after this one, none of which was dropped."""
        return self._contexts.view[len(self) - (self.rounds - round) :]

    def lives_before(self, row: int) -> tuple[tuple[int, str], ...]:
        """The lives that decided rows before this one, each with its first row."""
        return tuple(life for life in self._lives if life[0] < row)

    def for_learning(self) -> Self:
        """Contexts and rewards alone, for a learner: arms, versions, means and bonuses are left out."""
        other = shallow(self)
        other._arms, other._versions = GrowableArray(None, np.int64), GrowableArray(None, np.int64)
        other._known, other._lives = GrowableArray(3), ()
        return other

    @property
    def row_bytes(self) -> int:
        """What a row takes in memory and in a file, about."""
        return 8 * (int(self._contexts.view.shape[1]) + 8)

    def unrolled(self) -> Unrolled:
        """Rewards by row, NaN where none is in and where the row was dropped."""
        rewards = np.full(self.total, np.nan)
        rewards[self.rows] = self._rewards()
        return Unrolled(rewards)

    def _rewards(self) -> Array:
        rewards = np.full(len(self), np.nan)
        rewards[self._arrivals.view] = self._values.view
        return rewards

    def _weights(self) -> Array | None:
        if self.forgetting is None:
            return None
        return self.forgetting.weights((self.total - 1 - self.rows).astype(np.float64))

    def _fork(self, rows: tuple[str, ...]) -> Self:
        """A copy in which these rows may grow."""
        other = shallow(self)
        for name in rows:
            setattr(other, name, getattr(self, name).fork())
        return other


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """The same numbers, for reading."""
    view = array[:]
    view.flags.writeable = False
    return view
