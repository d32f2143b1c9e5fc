"""Arms that return: where the same contexts are offered again and again, each arm has rewards of its own.

    K   places    contexts that were offered so far          n   chosen   rounds that chose the arm, with the batch's
    r̄   mean      of the arm's rewards                       m   count    of its rewards that were learned from
    s   spread    the largest that all rewards have had      T            the horizon

    r̄ + σ·(1 + 15/(Km))·√(log⁺(T/(Kn))/n)     the index of MOSS (Audibert and Bubeck, 2009)

The noise of a prediction is not one number for all arms: an arm that always pays the same leaves no doubt of its own,
and none of it should go over to an arm that was tried once and paid badly. σ² is that of the arm's own rewards, drawn
by ten rewards' worth to the mean of the other arms, which is drawn by three arms' worth to s². Few rewards say little
about their own spread: 1 + 15/(Km) widens the bound then, by about as many rounds in all whatever K. Means are those
of the rewards, not drawn to each other: the bound leaves room for what an arm may pay, whatever the others do, and a
mean that is drawn up would try poor arms for a reason that it counts already.

Of arms that share no column a model knows nothing but their own rewards, so these decide. Of other arms they do
until the model has predicted clearly better what arms with few rewards pay next; an arm without any is then tried.
More than half of a round's contexts being new ends the matter for good, unless the arms share no column: then the
model judges, but each arm is tried 1.5·log₂(1 + t) times whatever it has paid (`DisjointArms`).

Nothing else in the library depends on this module: `returning_arms=False` goes without.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rarely._core.policies.learner import ScoreOverride, saved_fields
from rarely._core.saving.fields import Fields
from rarely._core.types import Array, Arrays, IntArray

MAX_SPREAD = 1e150  # the largest spread that a file may have, whose square does not overflow
OWN_REWARDS, OTHER_ARMS = 10.0, 3.0
"""Rewards' worth by which σ² is drawn to that of the other arms, and arms' worth by which theirs is drawn to s²."""
BOUND_WIDENING = 15.0
GAIN_LEFT, CLEARLY = 0.7, 1.0
"""What is left, once there are new ones, of how much better earlier rewards were predicted; and how much better than
own means the model must predict, in units of s²."""
FEW_REWARDS, FEWEST_COMPARED = 3, 6
"""The most earlier rewards of an arm on which own means and the model are compared, and the fewest rewards compared."""
TRIES = 1.5  # tries of each arm that shares no column, over log₂(1 + t)
STUCK = 16
"""Rewards from which own rewards decide where fewer could be compared: a policy that repeats an arm compares none."""
MOST_ARMS = MOST_COLUMNS = 4096  # more contexts than this are not looked up in every round, nor columns


@dataclass(frozen=True, eq=False)
class ReturningArms(ScoreOverride):
    """What the rewards of each returning arm say about it alone: a value, of which every round makes the next."""

    source = "returning arms"

    contexts: Array  # (K, d)
    chosen: IntArray
    count: Array
    mean: Array
    squares: Array  # (K,): Σ(r − r̄)²
    places: Mapping[bytes, int] = field(default_factory=dict)
    spread: float = 0.0
    horizon: int = 0
    learned: int = 0  # rewards, in the order in which they came, that are in these sums
    gain: float = 0.0
    """By how much own means predicted new rewards better than the model, of arms with few rewards before."""
    compared: int = 0
    disjoint: bool = False  # whether the arms share no column
    columns: int | None = None  # how many there are, where contexts are packed; see `SparseRows`

    @classmethod
    def start(cls, dim: int, columns: int | None = None) -> ReturningArms:
        none = np.zeros(0)
        return cls(np.zeros((0, dim)), none.astype(np.int64), none, none, none, columns=columns)

    @property
    def decides(self) -> bool:
        few = self.compared < FEWEST_COMPARED
        unclear = self.learned >= STUCK if few else self.gain > -CLEARLY * self.spread**2
        return self.learned > 0 and (self.disjoint or unclear)

    def after(self, rows: Array, arm: int) -> ScoreOverride | None:
        found = self._found(rows)
        new = np.flatnonzero(found < 0)
        if len(self.places) and 2 * len(new) > len(rows):
            return DisjointArms.start(rows.shape[1], self.columns).after(rows, arm)
        if not len(new):
            chosen = self.chosen.copy()
            chosen[found[arm]] += 1
            return replace(self, chosen=chosen)
        places = dict(self.places)
        for row in rows[new]:
            places.setdefault(row.tobytes(), len(places))
        more = len(places) - len(self.places)
        if len(places) > MOST_ARMS:
            return None
        contexts = np.array([np.frombuffer(key) for key in places]).reshape(len(places), -1)
        chosen = np.concatenate((self.chosen, np.zeros(more, np.int64)))
        count, mean, squares = (np.concatenate((old, np.zeros(more))) for old in self._sums)
        chosen[places[rows[arm].tobytes()]] += 1
        return replace(self, places=places, contexts=contexts, chosen=chosen, count=count, mean=mean, squares=squares)

    def after_update(
        self, contexts: Array, rewards: Array, predicted: Array, *, spread: float, horizon: int, disjoint: bool
    ) -> ReturningArms:
        found = self._found(contexts)
        rewards, predicted, found = rewards[found >= 0], predicted[found >= 0], found[found >= 0]
        total = self.count.sum()
        usual = float(self.count @ self.mean / total) if total else 0.0
        own = (self.count * self.mean + usual)[found] / (self.count + 1)[found]
        young = self.count[found] <= FEW_REWARDS
        gains = (np.square(rewards - predicted) - np.square(rewards - own))[young]
        next_ = replace(self._with_rewards(found, rewards), spread=spread, horizon=horizon, disjoint=disjoint)
        gain = (GAIN_LEFT if len(gains) else 1.0) * self.gain + float(gains.sum())
        return replace(next_, learned=self.learned + len(rewards), gain=gain, compared=self.compared + len(gains))

    def recounted(self, chosen: Array, contexts: Array, rewards: Array) -> ReturningArms:
        arms = len(self.places)
        before, found = self._found(chosen), self._found(contexts)  # −1 for a context of a log
        counts = np.bincount(before[before >= 0], minlength=arms)
        empty = replace(self, chosen=counts, count=np.zeros(arms), mean=np.zeros(arms), squares=np.zeros(arms))
        return empty._with_rewards(found[found >= 0], rewards[found >= 0])

    @property
    def _sums(self) -> tuple[Array, Array, Array]:
        return self.count, self.mean, self.squares

    def _with_rewards(self, found: IntArray, rewards: Array) -> ReturningArms:
        count, mean, squares = (array.copy() for array in self._sums)
        for place, reward in zip(found, rewards, strict=True):
            count[place] += 1
            step = reward - mean[place]
            mean[place] += step / count[place]
            squares[place] += step * (reward - mean[place])
        return replace(self, count=count, mean=mean, squares=squares)

    def override_scores(self, rows: Array, means: Array, bonuses: Array, *, explores: bool) -> tuple[Array, Array]:
        found = self._found(rows)
        known = (found >= 0) & (self.count[found] > 0)
        means, bonuses = means.copy(), bonuses.copy()
        means[known] = self.mean[found[known]]
        bonuses[known] = self._bonuses()[found[known]] if explores else 0.0
        if explores and known.any() and not known.all():  # nothing is known about the others
            untried = ~known & (self.chosen[found] * (found >= 0) == 0)
            highest = (means + bonuses)[known].max()
            bonuses[untried] = np.maximum(bonuses[untried], highest - means[untried] + self.spread)
        return means, bonuses

    def _bonuses(self) -> Array:
        """Return by how much the index of each arm is above its mean."""
        count, chosen, arms = np.maximum(self.count, 1), np.maximum(self.chosen, 1), len(self.places)
        several = self.count > 1
        variances = np.where(several, self.squares / np.maximum(self.count - 1, 1), 0.0)
        others = (variances.sum() - variances + OTHER_ARMS * self.spread**2) / (several.sum() - several + OTHER_ARMS)
        noise = (self.squares + OWN_REWARDS * others) / (count - 1 + OWN_REWARDS)
        left = np.log(np.maximum(self.horizon / (arms * chosen), 1.0))
        return np.asarray(np.sqrt(noise) * (1 + BOUND_WIDENING / (arms * count)) * np.sqrt(left / chosen))

    def _found(self, rows: Array) -> IntArray:
        """Return the place of each context, −1 for one that was not offered yet."""
        get = self.places.get
        return np.array([get(row.tobytes(), -1) for row in np.ascontiguousarray(rows)], np.int64)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        return saved_fields(self, "columns")

    def restored(self, saved: Fields) -> ScoreOverride:
        if "tried" in saved:
            return DisjointArms.start(self.contexts.shape[1], self.columns).restored(saved)
        with saved:
            contexts = saved.array("contexts", (None, self.contexts.shape[1]))
            chosen = saved.array("chosen", (len(contexts),), "int")
            found: dict[str, Any] = {"places": {row.tobytes(): i for i, row in enumerate(contexts)}}
            found |= {name: saved.array(name, (len(contexts),)) for name in ("count", "mean", "squares")}
            found |= {name: saved.whole(name) for name in ("horizon", "learned", "compared")}
            found |= {"spread": saved.number("spread", 0.0), "gain": saved.number("gain")}
            found["disjoint"] = saved.flag("disjoint")
            saved.check(found["spread"] <= MAX_SPREAD, f"a spread of at most {MAX_SPREAD:g}")
            return ReturningArms(contexts, chosen, **found, columns=self.columns)


@dataclass(frozen=True, eq=False)
class DisjointArms(ScoreOverride):
    """How often each arm was tried, where contexts are new but those of a round share no column.

    What an arm pays in a part of the contexts, nobody knows before it was tried there, and the noise that a model has
    seen does not say how much that may be. So each arm is tried 1.5·log₂(1 + t) times, in contexts that are at least as
    long as usual, which tell more. Rewards that had two values alone need one try: they have been seen at their best.
    """

    source = "disjoint arms"

    arms: IntArray  # (d,): the arm that each column belongs to, by the lowest of its columns; -1 while unknown
    tried: Array  # (d,): rounds that chose the arm whose lowest column this is
    rounds: int = 0
    length: float = 0.0  # Σ mean ‖x‖² of rounds
    learned: int = 0
    values: Array = field(default_factory=lambda: np.zeros(0))  # different rewards so far, up to three
    columns: int | None = None  # as of `ReturningArms`

    @classmethod
    def start(cls, dim: int, columns: int | None = None) -> DisjointArms:
        width = dim if columns is None else columns
        return cls(np.full(width, -1), np.zeros(width), columns=columns)

    @property
    def decides(self) -> bool:
        known = self.arms[self.arms >= 0]
        return self.learned > 0 and bool((self.tried[known] < self._wanted).any())

    @property
    def _wanted(self) -> float:
        return TRIES * math.log2(1 + self.rounds) if len(self.values) > 2 else 1.0

    def after(self, rows: Array, arm: int) -> ScoreOverride | None:
        if len(self.arms) > MOST_COLUMNS:
            return None
        rows = self._written(rows)
        there = rows != 0
        if not there.any(axis=1).all() or (there.sum(axis=0) > 1).any():
            return None
        arms, tried = self.arms.copy(), self.tried.copy()
        for columns in map(np.flatnonzero, there):
            met = np.unique(arms[columns])
            met = met[met >= 0]
            lowest = min(*met.tolist(), int(columns[0]), len(arms))
            count = tried[met].sum()
            tried[met] = 0
            tried[lowest] += count
            arms[columns] = lowest
            arms[np.isin(arms, met)] = lowest
        tried[arms[there[arm].argmax()]] += 1
        length = self.length + float(np.square(rows).sum()) / len(rows)
        return replace(self, arms=arms, tried=tried, rounds=self.rounds + 1, length=length)

    def after_update(
        self, contexts: Array, rewards: Array, predicted: Array, *, spread: float, horizon: int, disjoint: bool
    ) -> DisjointArms:
        values = np.unique(np.concatenate((self.values, rewards)))[:3]
        return replace(self, learned=self.learned + len(rewards), values=values)

    def recounted(self, chosen: Array, contexts: Array, rewards: Array) -> DisjointArms:
        lowest = self._arms_of(self._written(chosen))
        return replace(self, tried=np.bincount(lowest[lowest >= 0], minlength=len(self.tried)).astype(np.float64))

    def override_scores(self, rows: Array, means: Array, bonuses: Array, *, explores: bool) -> tuple[Array, Array]:
        rows, scores = self._written(rows), means + bonuses
        arms = self._arms_of(rows)
        tried = np.where(arms < 0, 0.0, self.tried[arms])
        long = np.square(rows).sum(axis=1) * self.rounds >= self.length
        short = (tried < self._wanted) & (long | (tried == 0))
        if not explores or short.all() or not short.any():
            return means, bonuses
        # All of them come before the others, in the order that the model has for them.
        ahead = float(scores.max() - scores[short].min())
        return means, bonuses + short * (2 * ahead + float(np.ptp(means)))

    def _arms_of(self, rows: Array) -> IntArray:
        """Return the arm of each context, -1 for one that was not offered yet."""
        return np.asarray(self.arms[(rows != 0).argmax(axis=1)])

    def _written(self, rows: Array) -> Array:
        """Return contexts with all of their columns."""
        if self.columns is None:
            return rows
        columns, numbers = np.split(rows, 2, axis=1)
        out = np.zeros((len(rows), self.columns))
        np.add.at(out, (np.arange(len(rows))[:, None], columns.astype(np.int64)), numbers)
        return out

    def state(self) -> tuple[dict[str, Any], Arrays]:
        return saved_fields(self, "columns")

    def restored(self, saved: Fields) -> DisjointArms:
        with saved:
            dim = len(self.arms)
            arms = saved.array("arms", (dim,), "int")
            saved.check(((arms >= -1) & (arms < dim)).all(), f"arms from -1 to {dim - 1}")
            numbers: dict[str, Any] = {"rounds": saved.whole("rounds"), "learned": saved.whole("learned")}
            numbers |= {"length": saved.number("length", 0.0), "values": saved.array("values", (None,))}
            return replace(self, arms=arms, tried=saved.array("tried", (dim,)), **numbers)
