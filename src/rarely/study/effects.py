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
Looks are planned, and their boundaries are those of `boundaries`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from rarely.extend import Array, BoolArray, IntArray
from rarely.extend.checks import check_choice, check_whole, is_whole, named_arguments, shown
from rarely.extend.provisional import t_quantile
from rarely.offpolicy.estimates import Ridge, stages
from rarely.offpolicy.intervals import Range, check_level
from rarely.runs.sealed_json import plain_json
from rarely.study.boundaries import Spending, boundaries, spent
from rarely.study.errors import InvalidStudy

MEMORY = 50
"""Rounds over which the running mean of 1/p forgets."""
MODEL = Ridge(strength=5.0)
"""Predicts the rewards of an arm from its earlier rounds."""
ETA, POWER = 2.0, 1.4
"""η and s of the stitched boundary: epochs grow by η, and the k-th gets a share of α that falls as (k + 1)⁻ˢ."""
ZETA = 3.105548
"""ζ(1.4), rounded up: the shares sum to less than α."""
MAX_LOOKS = 100


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


# --- planned looks, and their boundaries


@named_arguments
@dataclass(frozen=True, slots=True)
class AnalysisPlan:
    """When a trial is looked at, and how the error is spent on the looks; give it to `Study.create`.

    Parameters
    ----------
    rounds
        The decisions that are planned in all: the last look comes after them.
    looks
        The number of looks, at equal distances, or the rounds after which they come.
    spending
        "obrien-fleming" spends little on early looks; "pocock" about the same on each.
    level
        The level of each interval, for all looks together.

    Examples
    --------
    >>> AnalysisPlan(1200).at
    (240, 480, 720, 960, 1200)
    >>> AnalysisPlan(1200, looks=[100, 1200], spending="pocock").at
    (100, 1200)
    """

    rounds: int
    looks: int | Sequence[int] = 5
    spending: Spending = "obrien-fleming"
    level: float = 0.95

    def __post_init__(self) -> None:
        check_whole("rounds of an analysis", self.rounds, 2)
        check_choice("spending", self.spending, Spending)
        check_level(self.level)
        if not is_whole(self.looks):
            looks = list(self.looks) if isinstance(self.looks, Sequence | np.ndarray) else []
            if not all(is_whole(look) and look > 0 for look in looks) or looks != sorted({*looks, self.rounds}):
                raise InvalidStudy(
                    f"looks must be a number, or increasing rounds that end with {self.rounds}; got "
                    f"{shown(self.looks)}."
                )
            object.__setattr__(self, "looks", tuple(int(look) for look in looks))
        if not 1 <= len(self.at) <= min(MAX_LOOKS, self.rounds):
            raise InvalidStudy(f"there must be 1 to {MAX_LOOKS} looks, and no more than rounds; got {len(self.at)}.")

    @property
    def at(self) -> tuple[int, ...]:
        """The rounds after which the trial is looked at."""
        if not isinstance(self.looks, int | np.integer):
            return tuple(self.looks)
        return tuple(round(self.rounds * look / int(self.looks)) for look in range(1, int(self.looks) + 1))

    def describe(self) -> dict[str, Any]:
        """Return the plan as JSON: its fields, so that `AnalysisPlan(**description)` is the inverse."""
        return dict(plain_json(asdict(self)))


class Look(NamedTuple):
    """The interval of a planned look; all looks of an effect hold together with the level of the plan.

    Examples
    --------
    >>> Look(round=240, rounds=231, estimate=0.1, low=-0.2, high=0.4, boundary=4.877).high
    0.4
    """

    round: int
    """The decisions after which it comes."""
    rounds: int
    """Those with a reward, for which the arms were available."""
    estimate: float
    low: float
    high: float
    boundary: float
    """Normal deviations that the error spent on this look leaves; infinite where the rewards give no interval yet."""


def planned_looks(scores: Scores, plan: AnalysisPlan, decisions: int) -> list[Look]:
    """Return the intervals of the looks that have come."""
    at = [look for look in plan.at if look <= decisions]
    sums = [scores.until(look) for look in at]
    # No rewards of an arm, or all alike without a range: no interval, and nothing is spent.
    early = sum(not each.effective > 0 for each in sums)
    errors = [spent(plan.spending, look / plan.rounds, 1 - plan.level) for look in at[early:]]
    # A reward may lie at the estimate and add nothing, or move it; information must grow for the integration.
    times = np.maximum.accumulate([each.information for each in sums[early:]]) * (1 + 1e-9 * np.arange(len(errors)))
    bounds = [math.inf] * early + boundaries(errors, times.tolist())
    looks = zip(at, sums, bounds, strict=True)
    return [Look(at, each.rounds, each.estimate, *each.interval(c), c) for at, each, c in looks]


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
