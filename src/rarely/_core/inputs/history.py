"""The history of a policy: which arms were chosen, under which version, and the rewards that arrived.

Row i is a logged sample for i < logged, and round i − logged + 1 from there on: rounds count from 1. Rows that nothing
needs any more may be dropped (`History.without`); the others keep their row numbers for life, and stand at positions:

    row        logged samples first, then round 1, 2, …
    position   the index of a kept row in the arrays; equal to the row while nothing was dropped (`KeptRows`)

    arrivals   (m,)  positions in the order in which their rewards arrived
    values     (m,)  those rewards
    place      (n,)  the index of a position in `arrivals`. It is meaningless without a reward, so a position has a
                     reward only if arrivals[place[position]] == position (the sparse set of Briggs and Torczon, 1993):
                     what a failed call wrote there cannot be mistaken for a reward
    unseen     (u,)  positions of slots of which it was said that nobody saw them; place is then −1 minus their index

A history is a value: `with_rounds` and `with_rewards` return the next one and leave this one as it is, also if they
fail half-way. Successive histories share buffers, behind whose first `length` rows only the latest one writes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import astuple, dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rarely._core.errors import (
    ConflictingReward,
    DroppedRound,
    HistoryDropped,
    InvalidContexts,
    InvalidReward,
    UnknownRound,
    WrongDecision,
    shown,
)
from rarely._core.growable_array import all_finite, all_true, appended, changed, shallow, with_space
from rarely._core.inputs.forgetting import Forgetting, forgetting_from
from rarely._core.reading import read_real, read_whole
from rarely._core.saving.fields import LARGEST_COUNT, Fields
from rarely._core.types import Array, Arrays, BoolArray, Decision, IntArray, forwarded

MOST_ARMS = 2**24  # more arms than a round can have
LOGGED = -1  # the version, and the arm, of a row that came from a log
Late = Literal["raise", "count"]  # what happens to a reward whose round was dropped
SAME_MEAN = 1e-6
"""Relative difference up to which two means count as equal: a decision may have been stored with fewer digits."""
LOST = (
    "It was made by another policy, by a copy or another process of this one, or after the last save before a "
    "restart; then it is lost, and its round number now belongs to a later decision. Do not observe its reward."
)
_ID = re.compile("([0-9a-f]{16})-([0-9]{1,18})")  # a life, which is what `secrets.token_hex(8)` returns, and a round


class Samples(NamedTuple):
    """What an update learns from."""

    rows: IntArray  # (n,): their rows
    contexts: Array
    rewards: Array
    weights: Array | None  # (n,), or None if nothing is forgotten

    def clipped(self, quantiles: tuple[float, float] | None) -> Samples:
        """Return the samples with rewards beyond these quantiles taken as equal to them."""
        if quantiles is None or not len(self.rewards):
            return self
        return self._replace(rewards=np.clip(self.rewards, *np.quantile(self.rewards, quantiles)))

    def some(self, places: IntArray) -> Samples:
        """Return the samples at these indices."""
        weights = None if self.weights is None else self.weights[places]
        return Samples(self.rows[places], self.contexts[places], self.rewards[places], weights)


@dataclass(frozen=True, slots=True)
class RewardSums:
    """Dropped rewards: how many, their mean, Σ (r − mean)², and the largest spread of the first n so far."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    largest: float = 0.0

    def spread_with(self, rewards: Array) -> float:
        """Return the largest standard deviation of the first n rewards over all n: the dropped ones, then these."""
        if self.count + len(rewards) < 2:
            return 0.0
        center = self.mean if self.count else float(rewards.mean())
        rewards = rewards - center
        count = self.count + np.arange(1, len(rewards) + 1)
        mean, squares = np.cumsum(rewards) / count, (self.squares + np.cumsum(np.square(rewards))) / count
        spreads = np.sqrt(np.maximum(squares - np.square(mean), 0.0))
        return max(self.largest, float(spreads.max(initial=0.0)))

    def merge(self, rewards: Array) -> RewardSums:
        """Return the sums with these rewards dropped too."""
        if not len(rewards):
            return self
        total, mean = self.count + len(rewards), float(rewards.mean())
        shift = mean - self.mean
        # A float's own square raises where it overflows.
        between = shift * shift * self.count * len(rewards) / total
        squares = self.squares + float(np.square(rewards - mean).sum()) + between
        return RewardSums(total, self.mean + shift * len(rewards) / total, squares, self.spread_with(rewards))


@dataclass(frozen=True, slots=True, eq=False)
class KeptRows:
    """Which rows are kept, all from `start` on and those in `old`, and what is left of the others."""

    start: int = 0
    old: IntArray = field(default_factory=lambda: np.empty(0, np.int64))  # rows before `start` that are kept, rising
    rewards: RewardSums = field(default_factory=RewardSums)  # of the rows that were dropped with a reward
    abandoned: int = 0  # rounds that were dropped without a reward
    settled: int = 0
    """Some of the first `settled` rewards, in the order of arrival, were dropped; all later ones are kept."""
    late: int = 0  # rewards that arrived for dropped rounds and were counted

    @property
    def dropped(self) -> int:
        """How many rows are not kept."""
        return self.start - len(self.old)

    def rows(self, kept: int) -> IntArray:
        """Return the row at each of the first `kept` positions."""
        return np.concatenate([self.old, np.arange(self.start, self.start + kept - len(self.old))])

    def positions(self, rows: IntArray) -> tuple[IntArray, BoolArray]:
        """Return positions of rows, and which are kept; the position of one that is not kept is meaningless."""
        positions, kept = rows - self.dropped, rows >= self.start
        if len(self.old):
            places = np.minimum(np.searchsorted(self.old, rows), len(self.old) - 1)
            positions = np.where(kept, positions, places)
            kept |= self.old[places] == rows
        return positions, kept

    def describe(self) -> dict[str, Any]:
        """Return everything but `old` as JSON."""
        counts = {name: getattr(self, name) for name in ("start", "abandoned", "settled", "late")}
        return counts | {"dropped_rewards": list(astuple(self.rewards))}

    @classmethod
    def restored(cls, saved: Fields) -> KeptRows:
        """Return the saved value."""
        with saved:
            old, rewards = saved.array("old", (None,), "int"), saved.of("dropped_rewards", RewardSums)
            kept = saved.made(cls, old=old, rewards=rewards)
            rises = not len(old) or (old[0] >= 0 and (np.diff(old) > 0).all() and old[-1] < kept.start)
            saved.check(kept.start <= LARGEST_COUNT and rises, "rising rows before the first that was never dropped")
            saved.check(rewards.count <= kept.dropped, "no more dropped rewards than dropped rows")
        return kept


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a view that cannot be written to."""
    view = array[:]
    view.flags.writeable = False
    return view


def _column(table: str, number: int, doc: str) -> Any:
    """Return a property of a history: one column of the kept rows of a table."""
    return property(lambda self: _read_only(getattr(self, table)[: self._length, number]), doc=doc)


class History:
    """Contexts of the chosen arms as they came, and their rewards; a reward that has not arrived is NaN."""

    def __init__(self, dim: int, forgetting: Forgetting | None = None) -> None:
        self.forgetting = forgetting
        self.logged = 0
        self.total = 0  # rows so far, dropped ones included
        self._length = 0  # rows that are kept; the buffers have room behind them
        self._contexts = np.empty((0, dim))
        self._known = np.empty((0, 3))  # propensity, mean and bonus of the chosen arm
        self._numbers = np.empty((0, 3), np.int64)  # arm, version and place; see the module
        self._unseen, self._hidden = np.empty(0, np.int64), 0
        """What was not seen, with room behind it, and how many those are."""
        self._arrived = 0  # rewards that are kept, with room behind them too
        self._arrivals, self._values = np.empty(0, np.int64), np.empty(0)
        self._lives: tuple[tuple[int, str], ...] = ()
        """(row, life): the first row that each life of the policy decided; see `Decision.life`."""
        self._kept = KeptRows()

    def __len__(self) -> int:
        return self._length

    def __getstate__(self) -> dict[str, Any]:
        """Return the rows so far without the room behind them, for `pickle` and `copy`."""
        state = self.__dict__.copy()
        rows, arrivals = ("_contexts", "_known", "_numbers"), ("_arrivals", "_values")
        for names, length in ((rows, self._length), (arrivals, self._arrived), (("_unseen",), self._hidden)):
            state |= {name: state[name][:length].copy() for name in names}
        return state

    # --- columns

    @property
    def rows(self) -> IntArray:
        """(rows,): the number of each kept row; round t is row t − 1 + logged."""
        return self._kept.rows(self._length)

    @property
    def contexts(self) -> Array:
        """(rows, d)."""
        return _read_only(self._contexts[: self._length])

    @property
    def rewards(self) -> Array:
        """(rows,), NaN for rewards that have not arrived."""
        return _read_only(self._rewards())

    arms: IntArray = _column("_numbers", 0, "(rows,), −1 for logged samples.")
    versions: IntArray = _column("_numbers", 1, "(rows,), −1 for logged samples.")
    propensities: Array = _column("_known", 0, "(rows,): the probability of the chosen arm, NaN for logged samples.")
    means: Array = _column("_known", 1, "(rows,): the predicted reward, NaN for logged samples.")
    bonuses: Array = _column("_known", 2, "(rows,): the bonus of the chosen arm, NaN for logged samples.")

    def _rewards(self) -> Array:
        rewards = np.full(self._length, np.nan)
        rewards[self._arrivals[: self._arrived]] = self._values[: self._arrived]
        return rewards

    # --- counts

    @property
    def rounds(self) -> int:
        """How many rounds were decided."""
        return self.total - self.logged

    @property
    def arrived(self) -> int:
        """How many rewards arrived, logged and dropped ones included."""
        return self._arrived + self._kept.rewards.count

    @property
    def missing(self) -> int:
        """How many rounds have no reward yet, and may get one."""
        return self._length - self._arrived - len(self.unseen)

    @property
    def unseen(self) -> IntArray:
        """Return the positions of slots that nobody saw: they have no reward, and lack none."""
        positions = self._unseen[: self._hidden]
        return positions[self._numbers[positions, 2] == -1 - np.arange(self._hidden)] if self._hidden else positions

    dropped: int = forwarded("_kept.dropped", "How many rows were dropped, with a reward or without.")
    abandoned: int = forwarded("_kept.abandoned", "How many rounds were dropped before a reward arrived.")
    late: int = forwarded(
        "_kept.late", 'How many rewards arrived for dropped rounds and were counted, as `observe(late="count")` does.'
    )

    @property
    def counted(self) -> int:
        """How many samples an update learns from."""
        return self._arrived if self.forgetting is None else len(self.samples().rows)

    @property
    def largest_spread(self) -> float:
        """The largest standard deviation of the first n rewards over all n, dropped ones first.

        Rewards vary less once the same arms are chosen again and again, which says nothing about the others.
        """
        rewards = self._rewards()
        return self._kept.rewards.spread_with(rewards[~np.isnan(rewards)])

    @property
    def row_bytes(self) -> int:
        """About how many bytes a row takes in memory and in a file."""
        return 8 * (int(self._contexts.shape[1]) + 8)

    # --- samples

    def samples(self) -> Samples:
        """Return the rows that count and whose rewards arrived, with their weights."""
        contexts, rewards, weights = self._contexts[: self._length], self._rewards(), self._weights()
        if self._length == self._arrived and weights is None:
            return Samples(self.rows, contexts, rewards, None)
        inside = ~np.isnan(rewards)
        if weights is not None:
            inside &= weights > 0
            weights = weights[inside]
        return Samples(self.rows[inside], contexts[inside], rewards[inside], weights)

    def remembered(self) -> tuple[IntArray, Array, Array | None]:
        """Return all rows that count, their contexts and their weights, whether their rewards arrived or not."""
        rows, contexts, weights = self.rows, self._contexts[: self._length], self._weights()
        if weights is None:
            return rows, contexts, None
        return rows[weights > 0], contexts[weights > 0], weights[weights > 0]

    def _weights(self) -> Array | None:
        if self.forgetting is None:
            return None
        return self.forgetting.weights((self.total - 1 - self.rows).astype(np.float64))

    def with_forgetting(self, forgetting: Forgetting | None) -> History:
        """Return the same rounds and rewards, counted by another memory."""
        return changed(self, forgetting=forgetting)

    def contexts_since(self, round: int) -> Array:
        """Return the contexts of the rounds after this one, (n, d), none of which was dropped."""
        return self._contexts[self._length - (self.rounds - round) : self._length]

    def arrived_since(self, count: int) -> tuple[Array, Array]:
        """Return contexts and rewards, in row order, of the rewards that arrived after the first `count`."""
        here = slice(self._arrival(count), self._arrived)
        places = self._arrivals[here]
        if len(places) == 1:
            position = int(places[0])
            return self._contexts[position : position + 1], self._values[here]
        order = np.argsort(places)
        return self._contexts[places[order]], self._values[here][order]

    def last_arrivals(self, count: int) -> tuple[IntArray, Array, Array]:
        """Return positions, contexts and values of the last `count` rewards that arrived and are kept."""
        here = slice(max(0, self._arrived - count), self._arrived)
        places = self._arrivals[here]
        return places, self._contexts[places], self._values[here]

    def predicted_since(self, count: int) -> tuple[IntArray, Array]:
        """Return positions and values of the rewards after the first `count` that a trained version predicted."""
        here = slice(self._arrival(max(count, self._kept.settled)), self._arrived)
        places = self._arrivals[here]
        trained = self._numbers[places, 1] >= (0 if self.logged else 1)
        return places[trained], self._values[here][trained]

    def rewards_between(self, start: int, end: int) -> Array:
        """Return the rewards of the kept rounds start + 1 … end that were seen, NaN where none arrived."""
        positions, kept = self._kept.positions(np.arange(start, end) + self.logged)
        return self._known_rewards(np.setdiff1d(positions[kept], self.unseen, assume_unique=True))

    def arms_since(self, round: int, version: int) -> IntArray:
        """Return the arms that a version chose after this round, none of which was dropped."""
        numbers = self._numbers[max(0, self._length - self.rounds + round) : self._length]
        return np.asarray(numbers[numbers[:, 1] == version, 0], np.int64)

    def arrivals_between(self, start: int, end: int) -> tuple[IntArray, Array]:
        """Return rows and values of the rewards that arrived after the first `start` and among the first `end`."""
        here = slice(self._arrival(start), self._arrival(end))
        return self.rows[self._arrivals[here]], self._values[here]

    def came_after(self, count: int) -> BoolArray:
        """Return whether each row's reward arrived after the first `count` rewards, (rows,)."""
        after = np.zeros(self._length, np.bool_)
        after[self._arrivals[self._arrival(max(count, self._kept.settled)) : self._arrived]] = True
        return after

    def _arrival(self, count: int) -> int:
        """Return where the rewards after the first `count` begin among the kept ones."""
        if count < self._kept.settled:
            raise HistoryDropped(f"rewards after the first {count} must be kept; {self._kept.settled} were dropped.")
        return count - self._kept.rewards.count

    def lives_before(self, row: int) -> tuple[tuple[int, str], ...]:
        """Return the lives that decided rows before this one, each with its first row."""
        return tuple(life for life in self._lives if life[0] < row)

    def find(self, rounds: IntArray) -> tuple[IntArray, BoolArray]:
        """Return the positions of decided rounds in the columns, and which of them are kept."""
        return self._kept.positions(rounds + (self.logged - 1))

    # --- growing

    def with_log(self, contexts: Array, rewards: Array) -> History:
        """Return the history that starts with these logged samples."""
        none, unknown = np.full(len(rewards), LOGGED), np.full((len(rewards), 3), np.nan)
        other = shallow(self)
        other._append(contexts, none, none, unknown)
        other._record(np.arange(len(rewards)), rewards)
        other.logged = len(rewards)
        return other

    def with_rounds(self, contexts: Array, arms: IntArray, version: int, assessments: Array, life: str) -> History:
        """Return the history with these decisions; `assessments` is (n, 3): propensity, mean, bonus."""
        other = self.after_rounds(0, life)
        other._append(contexts, arms, version, assessments)
        return other

    def with_room(self, rounds: int) -> History:
        """Return the same history, behind whose rows there is room for those of so many rounds, see `tables`."""
        if self._length + rounds <= len(self._contexts):
            return self
        other = shallow(self)
        other._contexts, other._known, other._numbers = (with_space(t, self._length, rounds) for t in self.tables)
        return other

    @property
    def full(self) -> bool:
        """Whether there is no room for another round."""
        return self._length == len(self._contexts)

    @property
    def tables(self) -> tuple[Array, Array, IntArray]:
        """Contexts, (probability, mean, bonus) and (arm, version, 0), with room behind the rows so far."""
        return self._contexts, self._known, self._numbers

    def after_rounds(self, rounds: int, life: str) -> History:
        """Return the history with so many more rounds, which lie in the tables already."""
        lives = self._lives
        if not lives or lives[-1][1] != life:
            lives = (*lives, (self.total, life))
        return changed(self, _lives=lives, _length=self._length + rounds, total=self.total + rounds)

    def with_sample(self, rounds: int, rows: IntArray, columns: tuple[Array, ...], dropped: Iterable[Array]) -> History:
        """Return the history after many more rounds and rewards, of which only these rising rows are kept.

        `columns` are the contexts, arms, versions, propensities, means, bonuses and rewards of those rows, which may be
        older than the new rounds; `dropped` are the rewards that are not kept, in the order of their rounds.
        """
        sums = self._kept.rewards
        for part in dropped:
            sums = sums.merge(part)
        contexts, arms, versions, *assessments, rewards = columns
        new = contexts, np.column_stack(assessments), np.column_stack([arms, versions, np.zeros_like(arms)])
        own = self.rows
        order = np.argsort(np.concatenate([own, rows]), kind="stable")
        places = np.argsort(order)
        pairs = zip(self.tables, new, strict=True)
        other = self._moved([np.concatenate((old[: len(own)], more))[order] for old, more in pairs], places)
        other._record(places[len(own) :], rewards)
        other.total, settled = self.total + rounds, sums.count + self._arrived
        abandoned = other.total - len(order) - sums.count
        old = np.concatenate([own, rows])[order]
        other._kept = KeptRows(other.total, old, sums, abandoned, settled, self._kept.late)
        return other

    def with_rewards(self, rounds: Any, rewards: Any, *, ids: bool = False, late: Late = "raise") -> History:
        """Return the history with the rewards of some rounds: all of them, or raise if one is wrong.

        `rounds` is a decision, which must be one of this history, or has numbers of rounds, or `ids` of decisions.
        """
        numbers, positions, kept = self._found(rounds, ids=ids)
        values = read_rewards(rewards, len(numbers))
        gone = 0
        if kept is not None and not all_true(kept):
            if late == "raise":
                raise DroppedRound(
                    f"a reward must belong to a round that is still kept, but round {numbers[~kept][0]} was dropped: "
                    "it is older than anything that the policy learns from. Leave its reward out, or use late='count'."
                )
            gone = int(np.count_nonzero(~kept))
            numbers, positions, values = numbers[kept], positions[kept], values[kept]
        fresh = new_values(self._known_rewards(positions), positions, numbers, values)
        if not gone and not fresh.any():
            return self
        other = shallow(self)
        if gone:
            other._kept = replace(self._kept, late=self._kept.late + gone)
        other._record(positions[fresh], values[fresh])
        return other

    def with_unseen(self, decision: Decision) -> History:
        """Return the history that knows of these slots that nobody saw them; those with a reward keep it."""
        _, positions, kept = self._found(decision)
        positions = positions if kept is None else positions[kept]
        index = -1 - self._numbers[positions, 2]
        known = (index >= 0) & (index < self._hidden)
        known[known] = self._unseen[index[known]] == positions[known]
        new = positions[np.isnan(self._known_rewards(positions)) & ~known]
        return self._hiding(new) if len(new) else self

    def with_first_reward(self, decision: Decision, reward: Any) -> History | None:
        """Return what `with_rewards` does for the usual case, None in every other.

        That is a finite float for one round of the latest life, whose record agrees and has no reward yet.
        """
        number, means, before = decision.round, decision.means, self._arrived
        usual = type(number) is int and type(means) is np.ndarray and means.ndim == 1 and self._lives
        if not (usual and isinstance(reward, float) and math.isfinite(reward)):
            return None
        position, (begin, life) = int(number) + self.logged - 1, self._lives[-1]
        if self._kept.start or decision.life != life or not begin <= position < self._length:
            return None
        arm, version, place = self._numbers[position].tolist()
        same = type(decision.arm) is int and (arm, version) == (decision.arm, decision.version) and arm < len(means)
        if not same or means[arm] != self._known[position, 1]:
            return None
        if 0 <= place < before and self._arrivals[place] == position:
            return None
        other = shallow(self)
        if before < len(self._arrivals):
            self._numbers[position, 2], self._arrivals[before], self._values[before] = before, position, reward
            other._arrived = before + 1
        else:
            other._record(np.array([position]), np.array([reward]))
        return other

    def _found(self, rounds: Any, *, ids: bool = False) -> tuple[IntArray, IntArray, BoolArray | None]:
        """Return numbers and positions of rounds as `with_rewards` takes them, and which are kept, None for all."""
        lives: dict[str, Any] = {"": ...}
        if isinstance(rounds, Decision):  # which also stands for its ids
            numbers, lives = read_whole(rounds.round, "rounds", UnknownRound), {rounds.life: ...}
        elif ids:
            numbers, lives = _read_ids(rounds)
        else:
            numbers = read_whole(rounds, "rounds", UnknownRound)
        own = np.zeros(len(numbers), np.bool_)
        for life, here in lives.items():
            own[here] = self._decided_in(numbers[here], life)
        if not all_true(own):
            outside = (numbers < 1) | (numbers > self.rounds)
            if outside.any():
                lost = "" if "" in lives else f" {LOST}"  # a decision of this very life would be on record
                wrong = f"got round {numbers[outside][0]}"
                raise UnknownRound(f"a reward must belong to a decided round, 1 … {self.rounds}; {wrong}.{lost}")
            wrong = f"the one given for round {numbers[~own][0]} is not"
            raise WrongDecision(f"a reward must belong to a decision that this policy has on record; {wrong}. {LOST}")
        positions, kept = self.find(numbers) if self._kept.start else (numbers + (self.logged - 1), None)
        if isinstance(rounds, Decision):
            self._check_decision(rounds, numbers, positions, kept)
        return numbers, positions, kept

    def _decided_in(self, numbers: IntArray, life: str) -> BoolArray:
        """Return which rounds this life of the policy decided, or any life if it is ""."""
        own = np.zeros(len(numbers), np.bool_)
        starts = [(max(row - self.logged, 0), name) for row, name in self._lives] if life else [(0, life)]
        for (start, name), (end, _) in pairwise([*starts, (self.rounds, "")]):
            if name == life:
                own |= (numbers > start) & (numbers <= end)
        return own

    def _check_decision(
        self, decision: Decision, numbers: IntArray, positions: IntArray, kept: BoolArray | None
    ) -> None:
        """Raise WrongDecision if a decision differs from the record of its rounds in arm, version or mean."""
        arms = read_whole(decision.arm, "arm of a decision", WrongDecision)
        versions = read_whole(decision.version, "version of a decision", WrongDecision)
        means = _chosen_means(decision, arms)
        if not len(numbers) == len(arms) == len(versions) == len(means):
            raise WrongDecision(
                f"a decision must have an arm, a version and means for each round; got {len(numbers)} rounds, "
                f"{len(arms)} arms, {len(versions)} versions, means {np.shape(decision.means)}."
            )
        if kept is not None:
            numbers, positions, arms, versions = (each[kept] for each in (numbers, positions, arms, versions))
            means = means[kept]
        made, predicted = self._numbers[positions], self._known[positions, 1]
        same = (arms == made[:, 0]) & (versions == made[:, 1])
        if all_true(same & (means == predicted)):
            return
        same &= np.abs(means - predicted) <= SAME_MEAN * np.maximum(np.abs(predicted), np.abs(means))
        if not same.all():
            i = int(np.flatnonzero(~same)[0])
            own = f"arm {made[i, 0]} under version {made[i, 1]} with mean {predicted[i]:.6g}"
            raise WrongDecision(
                f"a reward must belong to a decision of this policy: its round {numbers[i]} chose {own}, and the given "
                f"decision chose arm {arms[i]} under version {versions[i]} with mean {means[i]:.6g}. "
                "Give it to the policy that made it."
            )

    def _known_rewards(self, positions: IntArray) -> Array:
        """Return the rewards at these positions, NaN where none arrived."""
        if not self._arrived:
            return np.full(len(positions), np.nan)
        place = np.minimum(np.maximum(self._numbers[positions, 2], 0), self._arrived - 1)
        return np.where(self._arrivals[place] == positions, self._values[place], np.nan)

    def _append(self, contexts: Array, arms: IntArray, versions: IntArray | int, assessments: Array) -> None:
        """Add rows to this very history, which is a new one that nobody else has yet."""
        length, numbers = self._length, np.zeros((len(arms), 3), np.int64)
        numbers[:, 0], numbers[:, 1] = arms, versions
        self._contexts = appended(self._contexts, length, contexts)
        self._known = appended(self._known, length, assessments)
        self._numbers = appended(self._numbers, length, numbers)
        self._length, self.total = length + len(arms), self.total + len(arms)

    def _moved(self, tables: list[NDArray[Any]], places: IntArray) -> History:
        """Return a history with these `tables`, and the rewards of the rows that went to `places`, −1 for nowhere."""
        contexts, assessments, numbers = tables
        other = History(contexts.shape[1], self.forgetting)
        other.logged, other._lives = self.logged, self._lives
        other._append(contexts, numbers[:, 0], numbers[:, 1], assessments)
        arrivals, unseen = places[self._arrivals[: self._arrived]], places[self.unseen]
        other._record(arrivals[arrivals >= 0], self._values[: self._arrived][arrivals >= 0])
        return other._hiding(unseen[unseen >= 0])

    def _record(self, positions: IntArray, values: Array) -> None:
        """Add rewards to this very history."""
        before, after = self._arrived, self._arrived + len(positions)
        self._numbers[positions, 2] = np.arange(before, after)
        self._arrivals = appended(self._arrivals, before, positions)
        self._values = appended(self._values, before, values)
        self._arrived = after

    def _hiding(self, positions: IntArray) -> History:
        """Return the history with these slots among the unseen."""
        other, before = shallow(self), self._hidden
        other._unseen, other._hidden = appended(self._unseen, before, positions), before + len(positions)
        self._numbers[positions, 2] = -1 - np.arange(before, other._hidden)
        return other

    # --- dropping

    def without(self, gone: BoolArray) -> History:
        """Return the history without the rows at these positions; only counts and sums of them stay."""
        if not gone.any():
            return self
        kept, rewards, rows = ~gone, self._rewards(), self.rows
        tables = [table[: self._length][kept] for table in self.tables]
        other = self._moved(tables, np.where(kept, np.cumsum(kept) - 1, -1))
        other.total, stays = self.total, kept[self._arrivals[: self._arrived]]
        start = max(self._kept.start, int(rows[gone][-1]) + 1)
        dropped, before = rewards[gone], self._kept
        arrived = dropped[~np.isnan(dropped)]
        last = np.flatnonzero(~stays)
        other._kept = KeptRows(
            start,
            rows[kept & (rows < start)],
            before.rewards.merge(arrived),
            before.abandoned + len(dropped) - len(arrived),
            max(before.settled, int(last[-1]) + 1 + before.rewards.count if len(last) else 0),
            before.late,
        )
        return other

    def erased(self, rows: IntArray, learned: int) -> History:
        """Return the history without some rows, also open ones.

        Rewards of theirs that are not among the first `learned` count as never arrived, so that the others are next.
        """
        gone, own = np.isin(self.rows, rows), self.rows
        if not gone.any():
            return self
        since = slice(self._arrival(learned), self._arrived)
        late, values = self._arrivals[since], self._values[since]
        other, stays = changed(self, _arrived=since.start).without(gone), ~gone[late]
        other._record(np.searchsorted(other.rows, own[late[stays]]), values[stays])
        return other

    def for_learning(self, *, predictions: bool) -> History:
        """Return what a learner needs: contexts and rewards, and the `predictions` of some learners alone."""
        if predictions:
            return changed(self, _lives=())
        return changed(self, _hidden=0, _numbers=np.empty((0, 3), np.int64), _known=np.empty((0, 3)), _lives=())

    # --- saving

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return numbers and arrays, for `restored`."""
        columns = ("contexts", "rewards", "arms", "versions", "propensities", "means", "bonuses")
        arrays: Arrays = {name: getattr(self, name) for name in columns}
        arrays |= {"arrivals": _read_only(self._arrivals[: self._arrived]), "kept.old": self._kept.old}
        arrays |= {"unseen": unseen} if len(unseen := self.unseen) else {}
        forgetting = None if self.forgetting is None else self.forgetting.describe()
        numbers = {"logged": self.logged, "forgetting": forgetting, "lives": [list(life) for life in self._lives]}
        return numbers | {"kept": self._kept.describe()}, arrays

    def restored(self, saved: Fields, *, missing: bool = False) -> History:
        """Return the saved history; this one is empty. Contexts may have NaN if `missing`."""
        with saved:
            rewards = saved.array("rewards", (None,), missing=True)
            rows = len(rewards)
            contexts = saved.array("contexts", (rows, self._contexts.shape[1]), missing=missing)
            arms, versions = (saved.array(name, (rows,), "int") for name in ("arms", "versions"))
            columns = [saved.array(name, (rows,), missing=True) for name in ("propensities", "means", "bonuses")]
            arrivals = saved.array("arrivals", (None,), "int")
            other = shallow(self)
            other.logged, other.forgetting = saved.whole("logged"), forgetting_from(saved.value("forgetting"))
            other._lives = saved.of("lives", tuple[tuple[int, str], ...])
            there = np.array_equal(np.sort(arrivals), np.flatnonzero(~np.isnan(rewards)))
            saved.check(there, "each row that has a reward once in arrivals,")
            known = not rows or (arms.min() >= LOGGED and arms.max() < MOST_ARMS and versions.min() >= LOGGED)
            saved.check(known, f"arms from -1 to {MOST_ARMS} and versions from -1 on")
            other._append(contexts, arms, versions, np.stack(columns, axis=1))
            other._record(arrivals, rewards[arrivals])
            if "unseen" in saved:
                unseen = np.unique(saved.array("unseen", (None,), "int"))
                fits = not len(unseen) or (unseen[0] >= 0 and unseen[-1] < rows and np.isnan(rewards[unseen]).all())
                saved.check(fits, "rows without a reward in unseen,")
                other = other._hiding(unseen)
            other._kept = kept = KeptRows.restored(saved.inner("kept"))
            other.total = rows + kept.dropped
            fits = other.logged <= other.total and len(kept.old) <= rows and kept.settled <= other.arrived
            saved.check(fits, "no more logged, kept or settled rows than rows")
        return other


def read_log(contexts: Any, rewards: Any) -> tuple[Array, Array]:
    """Return logged samples, checked: (n, d) contexts of the arms that were chosen, and their rewards."""
    rows = read_real(contexts, "logged contexts", InvalidContexts, "numbers of shape (n, d)")
    labels, others = _index(contexts), _index(rewards)
    aligned = labels is not None and others is not None and labels.equals(others)
    if labels is not None and others is not None and not aligned:
        raise InvalidReward(
            "rewards must have the index of the logged contexts, because both are taken by position; got two different "
            "indexes. Align them first: rewards.loc[contexts.index]."
        )
    if rows.ndim != 2 or not rows.size:
        raise InvalidContexts(f"logged contexts must have shape (n, d), n ≥ 1, of the chosen arms; got {rows.shape}.")
    return rows + 0.0, read_rewards(rewards, len(rows), aligned=aligned)  # −0 becomes 0, as in rounds


def _index(table: Any) -> Any:
    """Return the index of a pandas table or Series, None for other values."""
    index = getattr(table, "index", None)
    return index if hasattr(index, "is_monotonic_increasing") else None


def read_rewards(rewards: Any, count: int, *, aligned: bool = False) -> Array:
    """Return `count` rewards, checked; `aligned` says that the index of a Series is that of the rounds."""
    if rewards is None:
        raise InvalidReward(f"rewards must be one finite number a round: {count} rounds, but no rewards were given.")
    values = read_real(rewards, "rewards", InvalidReward, "numbers, one a round")
    index = None if aligned or type(rewards) in (float, np.ndarray) else _index(rewards)
    if index is not None and index.dtype.kind in "iu" and not index.is_monotonic_increasing:
        raise InvalidReward(
            "rewards are taken in the order of the rounds, but the index of this Series does not rise. Give "
            "rewards.sort_index() if its labels number the rounds, or rewards.to_numpy() if its order is right."
        )
    if not values.ndim:
        values = values[None]
    if values.shape != (count,):
        raise InvalidReward(f"rewards must be one number a round: {count} rounds, but rewards of shape {values.shape}.")
    if not all_finite(values):
        raise InvalidReward(f"rewards must be finite; got {values[~np.isfinite(values)][0]}. Leave missing ones out.")
    return values


def new_values(earlier: Array, rows: IntArray, numbers: IntArray, values: Array) -> BoolArray:
    """Return which values are new; `earlier` holds the known reward of each row, NaN for none.

    Raises ConflictingReward for a second, different reward of a round, also within one call.
    """
    if len(rows) > 1:
        order = np.argsort(rows, kind="stable")
        again = rows[order][1:] == rows[order][:-1]
        earlier = earlier.copy()
        earlier[order[1:][again]] = values[order[:-1][again]]
    fresh = np.isnan(earlier)
    if all_true(fresh):
        return fresh
    clash = ~fresh & (earlier != values)
    if clash.any():
        i = int(np.flatnonzero(clash)[0])
        raise ConflictingReward(
            f"a round has one reward: round {numbers[i]} has {earlier[i]}, and now {values[i]} was given. "
            "The same value may be given twice; to correct a value, start from a corrected log."
        )
    return fresh


def _chosen_means(decision: Decision, arms: IntArray) -> Array:
    """Return the mean of each round's chosen arm, (n,), meaningless for an arm that the decision does not have."""
    means = read_real(decision.means, "means of a decision", WrongDecision)
    means = means if means.ndim > 1 else means.reshape(1, -1)
    if means.ndim != 2 or len(means) != len(arms) or not means.size:
        return np.empty(0)
    return means.take(np.arange(0, means.size, means.shape[1]) + arms, mode="clip")


def _read_ids(ids: Any) -> tuple[IntArray, dict[str, BoolArray]]:
    """Return the rounds of decision ids, and which of them are of each life."""
    try:
        texts = [ids] if isinstance(ids, str) else list(ids)
    except TypeError:
        raise WrongDecision(f"ids must be a decision.id, or a list of them; got {shown(ids)}.") from None
    matches = [_ID.fullmatch(one) if isinstance(one, str) else None for one in texts]
    if None in matches:
        wrong = shown(texts[matches.index(None)])
        raise WrongDecision(f"an id must be a decision.id, such as '1f0c…-17'; got {wrong}.")
    lives, rounds = np.array([match.groups() for match in matches if match], np.str_).reshape(-1, 2).T
    return rounds.astype(np.int64), {life: lives == life for life in dict.fromkeys(lives.tolist())}
