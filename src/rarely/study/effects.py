"""Arm means and differences of an adaptive trial, with intervals for planned looks and for all times.

    r_t    reward of round t           p_t(k)   probability of arm k, as it was drawn from
    q_t    predicted rewards, learned from earlier rounds alone
    Γ_t    q(k) + 1[a=k](r − q(k))/p(k): given the past its mean is that of arm k; x_t is Γ_t, or a difference of two
    h_t    weight: ψ_t^−½, with ψ_t a running mean of 1/p of earlier rounds, so that h·x has about the same variance in
           all rounds although the policy changes (Bibaut et al., 2021; Hadad et al., 2021)
    S, V   Σ h(x − θ), a martingale, and Σ h²(x − θ̂)²; the estimate is θ̂ = Σhx/Σh, its standard error √V/Σh
    V(θ)   what V is expected to be if θ is true. Rewards in a known range with the mean μ vary at most as μ(1 − μ), so
           an arm's part of V goes with that, at the means nearest to its own that differ by θ, and with two more
           rewards, one at each end of the range (Agresti and Caffo, 2000). Intervals are all θ that their V(θ) leaves,
           as Wilson's (1927) for one share: so an arm that did badly by chance, and therefore got few patients, does
           not seem to vary less than it does, and rewards that are all alike are not certainty
    m      how many rounds V rests on, V²/Σ h⁴(x − θ̂)⁴. Intervals use t quantiles with 2m degrees of freedom
           (Satterthwaite, 1946). Without a range, m is at most the rewards of an arm that differ from its most common
           one, and V gets one more reward of each arm, of their variance

No model of time is needed: given the past, x_t has the mean θ however rewards drift, if the difference of arms stays.
Otherwise θ is that of the rounds as they were weighed. Intervals at planned looks
and asymptotic confidence sequences (Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, 2021) hold for large m. The exact
sequence holds for every m, because the rewards have a known range and p a lower limit: the empirical-Bernstein bound of
Howard, Ramdas, McAuliffe and Sekhon (2021, theorem 4) with their stitched boundary (eq. 10).
`looks` has the intervals of planned looks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rarely.extend import Array, BoolArray, IntArray
from rarely.extend.provisional import t_quantile
from rarely.offpolicy.estimates import Ridge, stages
from rarely.offpolicy.intervals import Range

MEMORY = 50  # rounds over which the running mean of 1/p forgets
MODEL = Ridge(strength=5.0)  # predicts the rewards of an arm from its earlier rounds
ETA, POWER = 2.0, 1.4
"""η and s of the stitched boundary: epochs grow by η, and the k-th gets a share of α that falls as (k + 1)⁻ˢ."""
ZETA = 3.105548  # ζ(1.4), rounded up: the shares sum to less than α


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The rounds of a trial as columns."""

    covariates: Array  # (n, K, c): the context of each arm; zeros where it was not available
    present: BoolArray  # (n, K): which arms were available
    arms: IntArray  # (n,): the arms that were chosen
    rewards: Array  # (n,): NaN where the reward is missing
    chances: Array  # (n, K): the probabilities that were drawn from
    within: Range | None = None  # the range of rewards, if it is known

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

    rounds: IntArray  #: (n,): places in the trial, from 0.
    values: Array
    weights: Array
    shares: Array  #: (n, 1 or 2): h/p of each arm in the rounds that chose it, 0 in the others.
    rewards: Array
    within: Range | None  #: The range of rewards, if it is known.

    def until(self, round: int) -> Summary:
        """Return the sums over the first rounds of the trial."""
        n = int(np.searchsorted(self.rounds, round))
        x, h, shares, rewards = self.values[:n], self.weights[:n], self.shares[:n].T, self.rewards[:n]
        return summarise(x[None], h[None], shares[:, None], rewards[None], self.within)[0]


def summarise(x: Array, h: Array, shares: Array, rewards: Array, within: Range | None) -> list[Summary]:
    """Return the sums of (R, n) scores, given (arms, R, n) shares; where a reward is not known h and shares are 0."""
    rounds, total, parts = (h > 0).sum(axis=1), h.sum(axis=1), []
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = (h * x).sum(axis=1) / total
        squares = np.square(h * (x - mean[:, None]))
        v, fourth, lacking = squares.sum(axis=1), np.square(squares).sum(axis=1), rounds == 0
        m = np.where(fourth > 0, v * v / fourth, np.inf)
        for share in shares:
            chose = share > 0
            count, lacking = chose.sum(axis=1), lacking | ~chose.any(axis=1)
            single = np.square(share).sum(axis=1) / count
            if within is None:
                centre = np.where(h > 0, rewards, 0.0).sum(axis=1) / rounds
                v = v + np.square(np.where(h > 0, rewards - centre[:, None], 0.0)).sum(axis=1) / rounds * single
                ours = (np.unique(row[mine], return_counts=True)[1] for row, mine in zip(rewards, chose, strict=True))
                m = np.minimum(m, count - [each.max(initial=0) for each in ours])  # unlike the most common one
                continue
            low, span = within[0], within[1] - within[0]
            level = (np.where(chose, share * rewards, 0.0).sum(axis=1) / share.sum(axis=1) - low) / span
            added = (level**2 + (1 - level) ** 2) * span**2 * single
            v = v + added
            parts.append((np.where(chose, squares, 0.0).sum(axis=1) + added, (count * level + 1) / (count + 2)))
        columns = (rounds, mean, np.sqrt(v) / total, v, m, *parabola(parts, mean, total, within))
    rows = zip(*(np.broadcast_to(column, total.shape).tolist() for column in columns), strict=True)
    return [
        NOTHING._replace(rounds=row[0], estimate=row[1]) if none else Summary(*row)
        for row, none in zip(rows, lacking.tolist(), strict=True)
    ]


def parabola(parts: Sequence[tuple[Any, Any]], estimate: Any, total: Any, within: Range | None) -> tuple[Any, Any, Any]:
    """Return how V(θ)/(Σh)² depends on θ, given each arm's part of V and its mean in the range; see `Summary`.

    Means that differ by θ share the distance as the parts of V do, and μ(1 − μ) is a parabola.
    """
    if within is None:
        return 0.0, 0.0, 0.0
    span, lean, bend = within[1] - within[0], 0.0, 0.0
    whole = sum(part for part, _ in parts)
    for sign, (part, level) in zip((1, -1), parts, strict=False):
        moved = part / whole / span
        lean = lean - sign * part * moved * (1 - 2 * level) / (level * (1 - level))
        bend = bend - part * moved**2 / (level * (1 - level))
    apart = parts[0][1] * span + within[0] if len(parts) < 2 else (parts[0][1] - parts[1][1]) * span
    return lean / total**2, bend / total**2, apart - estimate


class Summary(NamedTuple):
    """Sums of weighted scores: rounds, θ̂, its standard error, V, m, and a parabola.

    V(θ)/(Σh)² is error² + lean·d + bend·d², with d = θ̂ + gap − θ; bend is never above 0.
    """

    rounds: int
    estimate: float
    error: float
    information: float
    effective: float
    lean: float = 0.0
    bend: float = 0.0
    gap: float = 0.0

    def interval(self, deviations: float) -> Range:
        """Return all θ that are at most as much as this many normal deviations from θ̂; all numbers if m is 0.

        And θ̂, also where it is beyond what rewards allow, so that its V is below 0.
        """
        if not self.effective > 0:
            return -math.inf, math.inf
        t = t_quantile(deviations, 2 * self.effective)
        square, middle = 1 - t * t * self.bend, t * t * (self.lean / 2 + self.bend * self.gap)
        half = middle * middle + square * t * t * self.variance(self.estimate)
        if not 0 <= half < math.inf:
            return -math.inf, math.inf
        half = math.sqrt(half)
        low, high = (self.estimate - (middle + side * half) / square for side in (1, -1))
        return min(low, self.estimate), max(high, self.estimate)

    def variance(self, theta: float) -> float:
        """Return the variance of the estimate if `theta` is true."""
        d = self.estimate + self.gap - theta
        return self.error * self.error + self.lean * d + self.bend * d * d

    @property
    def normal_error(self) -> float:
        """θ̂/Z, with Z the normal deviations of an interval that ends at 0: what tests a difference of 0."""
        variance = self.variance(0.0)
        if not self.effective > 0 or not 0 < variance < math.inf:
            return math.inf
        t = abs(self.estimate) / math.sqrt(variance)
        low, high = 0.0, t
        while high - low > 1e-12 * t:
            middle = (low + high) / 2
            low, high = (middle, high) if t_quantile(middle, 2 * self.effective) < t else (low, middle)
        return abs(self.estimate) / high if high else math.sqrt(variance)


NOTHING = Summary(0, math.nan, math.inf, 0.0, 0.0)


def scores_of(outcomes: Outcomes, q: Array, arm: int, base: int | None = None) -> Scores:
    """Return the scores of an arm's mean, or of its difference from a base arm."""
    arms = [arm] if base is None else [arm, base]
    rounds = outcomes.rewarded(arms)
    inverse = 1 / outcomes.chances[rounds][:, arms]
    predicted, rewards = q[rounds][:, arms], outcomes.rewards[rounds, None]
    chosen = (outcomes.arms[rounds, None] == arms) * inverse
    values = (predicted + chosen * (rewards - predicted)) @ np.array([1.0, -1.0][: len(arms)])
    weights = stable_weights(inverse.sum(axis=1), float(outcomes.present.shape[1] * len(arms)))
    return Scores(rounds, values, weights, weights[:, None] * chosen, rewards[:, 0], outcomes.within)


def stable_weights(inverse: Array, first: float, known: BoolArray | None = None) -> Array:
    """Return h = ψ^−½, with ψ the exponentially forgetting mean of earlier values that are known, from `first` on.

    >>> stable_weights(np.array([4.0, 4.0, 100.0, 100.0]), 4.0).round(3)
    array([0.5  , 0.5  , 0.5  , 0.411])
    """
    psi, mean, keep = np.empty(inverse.shape), np.full(inverse.shape[:-1], first), 1 - 1 / MEMORY
    known = np.ones(inverse.shape, np.bool_) if known is None else known
    for start in range(0, inverse.shape[-1], MEMORY):  # in parts, so that no power of `keep` is large
        part = slice(start, start + MEMORY)
        earlier: Array = np.cumsum(known[..., part], axis=-1, dtype=float) - known[..., part]
        grown = known[..., part] * inverse[..., part] * keep ** -(earlier + 1) / MEMORY
        sums = mean[..., None] + np.cumsum(grown, axis=-1)
        psi[..., part] = keep**earlier * (sums - grown)
        mean = keep ** known[..., part].sum(axis=-1) * sums[..., -1]
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
