"""Rewards of the log's kind around a mean: 0/1 stay 0/1, counts stay counts, and skewed ones stay skewed.

    μ    means     what an arm pays on average
    r    rewards   the log's, and what was foreseen of each by a model that had not seen it
    θ    tilts     p(r; θ) ∝ p(r)·exp(θr), whose mean is μ

Around each of some values of μ stand the log's rewards of which about as much was foreseen. Where rewards cannot be
negative these are tilted until their mean is μ: an exponential family, in which 0/1 are Bernoulli, Poisson counts are
Poisson, and zeros remain zeros. A μ between two of these values takes one or the other at random, so the mean is exact.
Where rewards may be negative, what is left of them is added to μ.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rarely.extend import Array

GRID = 33  # values of μ that have a distribution of their own
NEAR, EVERYWHERE = 200, 50
"""Rewards in each: those of which about as much was foreseen, and some of all, a tenth of the whole."""
HALVINGS = 60


@dataclass(frozen=True, eq=False)
class RewardLaw:
    """How rewards scatter around their mean."""

    means: Array  # (G,): values of μ, in order
    values: Array  # (G, V): rewards, or what is left of them, in order
    sums: Array  # (G, V): their cumulated probabilities
    adds: bool  # whether values are added to μ

    @classmethod
    def of(cls, rewards: Array, foreseen: Array) -> RewardLaw:
        """Return the law of a log's rewards, of each of which so much was foreseen."""
        adds, low, high = bool(rewards.min() < 0), float(rewards.min()), float(rewards.max())
        left = rewards - foreseen if adds else rewards
        means = np.quantile(foreseen, np.linspace(0, 1, GRID))
        if not adds:
            means = np.concatenate([[low], np.clip(means, low, high), [high]])
        order = np.argsort(foreseen, kind="stable")
        width = min(len(rewards), max(NEAR, len(rewards) // 10))
        start = np.clip(np.searchsorted(foreseen[order], means) - width // 2, 0, len(rewards) - width)
        near = [np.quantile(left[order[i : i + width]], _levels(NEAR), method="nearest") for i in start]
        everywhere = np.quantile(left, _levels(EVERYWHERE), method="nearest")
        ends = [low, high] if not adds else []
        values = np.array([np.concatenate([each, everywhere, ends]) for each in near])
        weights = np.repeat([0.9 / NEAR, 0.1 / EVERYWHERE, 1e-6], [NEAR, EVERYWHERE, len(ends)])
        order = np.argsort(values, axis=1)
        values, weights = np.take_along_axis(values, order, 1), weights[order]
        if adds:
            values = values - (weights * values).sum(axis=1, keepdims=True)
        else:
            weights = _tilted(values, weights, means)
        sums = np.cumsum(weights, axis=1)
        return cls(np.maximum.accumulate(means), values, sums / sums[:, -1:], adds)

    def within(self, means: Array) -> Array:
        """Return means that rewards can have."""
        return means if self.adds else np.clip(means, self.means[0], self.means[-1])

    def draw(self, means: Array, luck: Array, more: Array) -> Array:
        """Return a reward for each mean, by two uniform numbers each."""
        after = np.clip(np.searchsorted(self.means, means), 1, len(self.means) - 1)
        gap = self.means[after] - self.means[after - 1]
        share = np.divide(means - self.means[after - 1], gap, out=np.zeros(means.shape), where=gap > 0)
        row = np.where(more < share, after, after - 1)
        drawn = np.empty(means.shape)
        for each in np.unique(row):
            mine = row == each
            place = np.searchsorted(self.sums[each], luck[mine], side="right")
            drawn[mine] = self.values[each, np.minimum(place, self.values.shape[1] - 1)]
        return means + drawn if self.adds else drawn


def _levels(count: int) -> Array:
    return (np.arange(count) + 0.5) / count


def _tilted(values: Array, weights: Array, means: Array) -> Array:
    """Return the weights, (G, V), multiplied by exp(θr), with the θ of each row that gives it its mean."""
    centre, spread = values.mean(), float(np.ptp(values))
    x, wanted = (values - centre) / spread, (means - centre) / spread
    low, high = np.full(len(means), -1e4), np.full(len(means), 1e4)

    def tilt(theta: Array) -> Array:
        logs = np.log(weights) + theta[:, None] * x
        out = np.exp(logs - logs.max(axis=1, keepdims=True))
        return np.asarray(out / out.sum(axis=1, keepdims=True))

    for _ in range(HALVINGS):
        middle = (low + high) / 2
        below = (tilt(middle) * x).sum(axis=1) < wanted
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return tilt((low + high) / 2)
