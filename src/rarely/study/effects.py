"""Arm means and differences of an adaptive trial, with intervals for planned looks and for all times.

    r_t    reward of round t           p_t(k)   probability of arm k, as it was drawn from
    q_t    predicted rewards, learned from earlier rounds alone
    Γ_t    q(k) + 1[a=k](r − q(k))/p(k): given the past its mean is that of arm k; x_t is Γ_t, or a difference of two
    h_t    weight: ψ_t^−½, with ψ_t a running mean of 1/p of earlier rounds, so that h·x has about the same variance in
           all rounds although the policy changes (Bibaut et al., 2021; Hadad et al., 2021)
    S, V   Σ h(x − θ), a martingale, and Σ h²(x − θ̂)²; the estimate is θ̂ = Σhx/Σh, its standard error √V/Σh
           where V gets one more reward of each arm, of the largest variance: a few equal rewards are not certainty
    m      how many rounds V rests on, V²/Σ h⁴(x − θ̂)⁴, but at most twice the rewards of an arm that differ from its
           most common one. Intervals use t quantiles with m degrees of freedom
    u      how far one reward at the other end of the range would move θ̂, for an arm whose rewards are all alike: it has
           no spread to estimate, so it takes no part in m. With λ such rewards expected none is seen with probability
           e^−λ, so −ln(α/2)·u is added to the interval, as the root of the sum of squares (the rule of three)

Rounds are taken to be exchangeable: patients of later rounds are like those of earlier ones. Intervals at planned looks
and asymptotic confidence sequences (Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, 2021) hold for large m. The exact
sequence holds for every m, because the rewards have a known range and p a lower limit: the empirical-Bernstein bound of
Howard, Ramdas, McAuliffe and Sekhon (2021, theorem 4) with their stitched boundary (eq. 10).
`looks` has the intervals of planned looks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rarely.extend import Array, BoolArray, IntArray
from rarely.extend.provisional import t_quantile
from rarely.offpolicy.estimates import Ridge, stages
from rarely.offpolicy.intervals import Range

MEMORY = 50
"""Rounds over which the running mean of 1/p forgets."""
MODEL = Ridge(strength=5.0)
"""Predicts the rewards of an arm from its earlier rounds."""
ETA, POWER = 2.0, 1.4
"""η and s of the stitched boundary: epochs grow by η, and the k-th gets a share of α that falls as (k + 1)⁻ˢ."""
ZETA = 3.105548
"""ζ(1.4), rounded up: the shares sum to less than α."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The rounds of a trial as columns."""

    covariates: Array
    """(n, K, c): the context of each arm; zeros where it was not available."""
    present: BoolArray
    """(n, K): which arms were available."""
    arms: IntArray
    """(n,): the arms that were chosen."""
    rewards: Array
    """(n,): NaN where the reward is missing."""
    chances: Array
    """(n, K): the probabilities that were drawn from."""
    within: Range | None = None
    """The range of rewards, if it is known."""

    def rewarded(self, arms: Sequence[int]) -> IntArray:
        """Return the rounds with a reward in which all of these arms were available."""
        return np.flatnonzero(self.present[:, list(arms)].all(axis=1) & ~np.isnan(self.rewards))


def predict_rewards(outcomes: Outcomes) -> Array:
    """Return q (n, K), by a model of each arm that is fitted anew whenever the earlier rounds have grown by half."""
    n, count = outcomes.present.shape
    middle = 0.0 if outcomes.within is None else sum(outcomes.within) / 2
    q, rewarded = np.full((n, count), middle), ~np.isnan(outcomes.rewards)
    for start, end in stages(n):
        past = rewarded[:start]
        if not past.any():
            continue
        level = float(outcomes.rewards[:start][past].mean())
        for arm in range(count):
            mine = np.flatnonzero(past & (outcomes.arms[:start] == arm))
            rows = outcomes.covariates[start:end, arm]
            q[start:end, arm] = level
            if len(mine):
                q[start:end, arm] = MODEL(outcomes.covariates[mine, arm], outcomes.rewards[mine])(rows)
    return q if outcomes.within is None else np.clip(q, *outcomes.within)


class Scores(NamedTuple):
    """x and h of the rounds that count for an arm, or for a pair of arms."""

    rounds: IntArray
    """(n,): places in the trial, from 0."""
    values: Array
    weights: Array
    shares: Array
    """(n, 1 or 2): h/p of each arm in the rounds that chose it, 0 in the others."""
    rewards: Array
    spread: float | None
    """The largest variance of a reward; None if their range is not known."""

    def until(self, round: int) -> Summary:
        """Return the sums over the first rounds of the trial."""
        n = int(np.searchsorted(self.rounds, round))
        if not n:
            return Summary(n, math.nan, math.inf, 0.0, 0.0)
        x, h, rewards = self.values[:n], self.weights[:n], self.rewards[:n]
        total = float(h.sum())
        mean = float(h @ x) / total
        squares = np.square(h * (x - mean))
        v, fourth = float(squares.sum()), float(np.square(squares).sum())
        effective = v * v / fourth if fourth > 0 else math.inf
        spread, unseen = float(rewards.var()) if self.spread is None else self.spread, 0.0
        for share in self.shares[:n].T:
            chose = share > 0
            counts = np.unique(rewards[chose], return_counts=True)[1]
            differing = int(counts.sum() - counts.max(initial=0))
            if differing or self.spread is None or not len(counts):
                effective = min(effective, 2.0 * differing)
            else:
                unseen += 4 * spread * float(share.max()) ** 2
            v += spread * float(np.square(share[chose]).mean()) if chose.any() else 0.0
        return Summary(n, mean, math.sqrt(v) / total, v, effective, math.sqrt(unseen) / total)


class Summary(NamedTuple):
    """Sums of weighted scores: rounds, θ̂, its standard error, V, m and u."""

    rounds: int
    estimate: float
    error: float
    information: float
    effective: float
    unseen: float = 0.0

    def interval(self, deviations: float) -> Range:
        """Return θ̂ with what leaves as much as this many normal deviations on each side; all numbers if m is 0."""
        if not self.effective > 0:
            return -math.inf, math.inf
        # −ln Φ(−z), from above and for every z: Φ(−z) is no less than φ(z)·z/(1 + z²).
        expected = deviations**2 / 2 + math.log(math.sqrt(2 * math.pi) * (deviations + 1 / deviations))
        half = math.hypot(self.error * t_quantile(deviations, self.effective), self.unseen * expected)
        return self.estimate - half, self.estimate + half


def scores_of(outcomes: Outcomes, q: Array, arm: int, base: int | None = None) -> Scores:
    """Return the scores of an arm's mean, or of its difference from a base arm."""
    arms = [arm] if base is None else [arm, base]
    rounds = outcomes.rewarded(arms)
    inverse = 1 / outcomes.chances[rounds][:, arms]
    predicted, rewards = q[rounds][:, arms], outcomes.rewards[rounds, None]
    chosen = (outcomes.arms[rounds, None] == arms) * inverse
    values = (predicted + chosen * (rewards - predicted)) @ np.array([1.0, -1.0][: len(arms)])
    weights = stable_weights(inverse.sum(axis=1), float(outcomes.present.shape[1] * len(arms)))
    spread = None if outcomes.within is None else (outcomes.within[1] - outcomes.within[0]) ** 2 / 4
    return Scores(rounds, values, weights, weights[:, None] * chosen, rewards[:, 0], spread)


def stable_weights(inverse: Array, first: float) -> Array:
    """Return h = ψ^−½, with ψ the exponentially forgetting mean of earlier values, beginning with `first`.

    >>> stable_weights(np.array([4.0, 4.0, 100.0, 100.0]), 4.0).round(3)
    array([0.5  , 0.5  , 0.5  , 0.411])
    """
    psi, mean = np.empty(len(inverse)), first
    for t, value in enumerate(inverse.tolist()):
        psi[t] = mean
        mean += (value - mean) / MEMORY
    return np.asarray(psi**-0.5)


# --- all times


def anytime(summary: Summary, horizon: int, alpha: float) -> Range:
    """Return the interval of an asymptotic confidence sequence that is sharpest after `horizon` rounds."""
    if not summary.rounds:
        return -math.inf, math.inf
    log = -2 * math.log(alpha)
    grown = summary.rounds * (log + math.log(log + 1)) / horizon
    return summary.interval(math.sqrt((1 + 1 / grown) * (math.log(grown + 1) + log)))


def exact_interval(values: Array, span: float, limit: float, alpha: float) -> Range:
    """Return the interval of the mean score that holds at all times, given the span of rewards and the limit on p."""
    if not len(values):
        return -math.inf, math.inf
    x = values / span
    # The mean of the earlier values predicts the next: Σ (x_t − x̄_{t−1})².
    before = np.concatenate([[0.0], np.cumsum(x)[:-1] / np.arange(1, len(x))])
    half = stitched(float(np.square(x - before).sum()), alpha / 2, 2 / limit) / len(x)
    return float(x.mean() - half) * span, float(x.mean() + half) * span


def stitched(variation: float, alpha: float, scale: float) -> float:
    """Return how far the sum may be from its mean at any time, except with probability α; `scale` is a range's length.

    >>> round(stitched(100.0, 0.025, 1.0), 1)
    50.1
    """
    v = max(variation, 1.0)
    k1, k2 = (ETA**0.25 + ETA**-0.25) / math.sqrt(2), (math.sqrt(ETA) + 1) / 2
    share = POWER * math.log(1 + math.log(v, ETA)) + math.log(ZETA / alpha)
    spread = k2 * scale * share
    return math.sqrt(k1**2 * v * share + spread**2) + spread
