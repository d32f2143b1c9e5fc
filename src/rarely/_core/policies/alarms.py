"""Alarms: the latest rewards against what earlier batches led one to expect.

    e    (n,)   reward − predicted mean of the rewards that arrived since the last check
    q    ()     mean of e² over the variance of these rewards: what the predictions leave unexplained
    σ    ()     standard deviation of e
    √v   ()     √(φᵀZ⁻¹φ) of the arms that the batch chose: σ·√v is how far predictions may be off together

    coverage    e² is larger than before, and q by a quarter: rewards lie farther from their predictions
    rewards     the mean of e has left that of earlier batches, away from 0
    arms        a frozen version chose other arms in the second half of its batch than in the first
    missing     of the rounds before the latest batch, more have no reward than before at the same age

Rewards of arms of which far less was known than of those before, such as new ones, are left out.

A policy learns, so predictions may get better, and a new version chooses other arms: neither is an alarm. One test has
the level 0.01/(40·4), so that 40 updates of an unchanged world raise an alarm in one life of a hundred, by the union
bound. The expectation halves what it knew at every check, and stays as it was while an alarm of its kind is raised.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from rarely._core.inputs.history import History
from rarely._core.saving.fields import Fields
from rarely._core.types import Array, Described

KINDS = ("coverage", "rewards", "arms", "missing")
LEVEL = 0.01 / (40 * len(KINDS))
"""The probability of one false alarm of one kind at one update."""
WORSE = 1.25
"""How many times q must be that of earlier batches, for e² may grow because rewards vary more."""
STRANGE = 2.0
"""How many times the largest bonus before an arm's may be: what was said of an arm that is new is no surprise."""
FEWEST = 20
"""Rewards, or rounds, below which nothing is compared."""


class Moments(NamedTuple):
    """The weight, mean and variance of some numbers."""

    weight: float = 0.0
    mean: float = 0.0
    variance: float = 0.0

    @classmethod
    def of(cls, values: Array) -> Moments:
        """Return the moments of these numbers."""
        return cls(float(len(values)), float(values.mean()), float(values.var(ddof=1)))

    def followed_by(self, other: Moments) -> Moments:
        """Return both together, these at half their weight."""
        old = self.weight / 2
        total, shift = old + other.weight, other.mean - self.mean
        part = other.weight / total
        variance = (1 - part) * (self.variance + shift * shift * part) + part * other.variance
        return Moments(total, self.mean + shift * part, variance)


@dataclass(frozen=True, slots=True)
class Expectations(Described):
    """What the batches so far lead one to expect of the next, and which alarms are raised."""

    arrived: int = 0
    """Rewards that were compared,"""
    rounds: int = 0
    """rounds that had been decided by the last check,"""
    earlier: int = 0
    """and by the one before."""
    errors: Moments = field(default_factory=Moments)
    squares: Moments = field(default_factory=Moments)
    unexplained: float = 0.0
    """q of earlier batches."""
    doubt: float = 0.0
    """The largest bonus among the rewards compared last."""
    missing: Moments = field(default_factory=Moments)
    raised: tuple[str, ...] = ()

    def after(
        self, history: History, version: int, model: float, *, predicts: bool, frozen: bool
    ) -> tuple[Expectations, dict[str, str]]:
        """Return the expectations after an update, and a sentence for each alarm that it raises.

        `version` is the one whose batch ends, `model` its √v, `predicts` whether there is a model at all and
        `frozen` whether nothing but contexts decides within a batch.
        """
        if max(history.rounds - self.rounds, history.arrived - self.arrived) < FEWEST:
            return self, {}
        next_, found = self, dict.fromkeys(self.raised, "still")  # unless it is checked now
        if history.rounds - self.rounds >= FEWEST:
            found["missing"], next_ = next_._check_missing(history)
            if frozen:
                found["arms"] = _check_arms(history, self.rounds, version)
            next_ = replace(next_, rounds=history.rounds, earlier=self.rounds)
        rewards, means, bonuses, arms = history.predicted_since(self.arrived)
        if len(rewards) >= FEWEST:
            strange = bonuses > STRANGE * (self.doubt or math.inf)
            known = ~np.isin(arms, arms[strange])  # running bonuses fall within a batch, whose means stay
            if np.count_nonzero(known) >= FEWEST:
                said, next_ = next_._check_rewards(rewards[known], (rewards - means)[known], model, predicts=predicts)
                found |= said
            next_ = replace(next_, arrived=history.arrived, doubt=float(bonuses.max()))
        raised = tuple(kind for kind in KINDS if found.get(kind))
        return replace(next_, raised=raised), {kind: found[kind] for kind in raised if kind not in self.raised}

    def _check_rewards(
        self, rewards: Array, errors: Array, model: float, *, predicts: bool
    ) -> tuple[dict[str, str], Expectations]:
        """Return what is to be said of errors, and the expectations with those that are as expected."""
        now, squares, spread = Moments.of(errors), Moments.of(np.square(errors)), float(rewards.var())
        share = squares.mean / max(spread, 1e-30)
        found = {"coverage": "", "rewards": ""}
        rounding = 1e-9 * float(np.abs(rewards).max())
        if not math.isfinite(share + squares.variance) or 0 < rounding < 1e-150:  # squares overflow, or vanish
            return found, self
        if self.errors.weight >= FEWEST:
            off = abs(now.mean - self.errors.mean)
            together = math.sqrt(now.variance) * model
            worse = not predicts or abs(now.mean) > abs(self.errors.mean)
            if worse and off > rounding + _bound(now, self.errors, extra=together):
                found["rewards"] = (
                    f"the last {len(errors)} rewards are {rewards.mean():.3g} in the mean, {now.mean:+.3g} from their "
                    f"predictions, and those before were {self.errors.mean:+.3g}"
                )
        if predicts and self.squares.weight >= FEWEST:
            more = squares.mean - self.squares.mean
            if share > WORSE * self.unexplained and more > rounding**2 + _bound(squares, self.squares):
                found["coverage"] = (
                    f"the last {len(errors)} rewards are {math.sqrt(squares.mean):.3g} from their predictions (root "
                    f"mean square), and those before were {math.sqrt(self.squares.mean):.3g}"
                )
        next_ = self if found["rewards"] else replace(self, errors=self.errors.followed_by(now))
        if not found["coverage"]:
            both = self.squares.followed_by(squares)
            part = squares.weight / both.weight
            next_ = replace(next_, squares=both, unexplained=(1 - part) * self.unexplained + part * share)
        return found, next_

    def _check_missing(self, history: History) -> tuple[str, Expectations]:
        """Return what is to be said of the rounds before the latest batch, and the expectations with them."""
        lacking = np.isnan(history.rewards_between(self.earlier, self.rounds))
        if len(lacking) < FEWEST:
            return "", self
        now, before = Moments.of(lacking.astype(np.float64)), self.missing
        if before.weight >= FEWEST:
            share = (before.weight * before.mean + now.weight * now.mean) / (before.weight + now.weight)
            one, other = (Moments(each.weight, 0.0, share * (1 - share)) for each in (now, before))
            if now.mean - before.mean > _bound(one, other):
                return (
                    f"{np.count_nonzero(lacking)} of the {len(lacking)} rounds {self.earlier + 1} to {self.rounds} "
                    f"have no reward, {now.mean:.0%} against {before.mean:.0%} before"
                ), self
        return "", replace(self, missing=before.followed_by(now))

    @classmethod
    def restored(cls, saved: Fields) -> Expectations:
        """Return the saved expectations."""
        found = saved.rest()
        moments = {name: Moments(*found[name]) for name in ("errors", "squares", "missing")}
        return cls(**found | moments | {"raised": tuple(found["raised"])})


def _bound(now: Moments, before: Moments, extra: float = 0.0, tests: int = 1) -> float:
    """Return how far two means may be apart by chance; `extra` is a standard deviation that they do not show."""
    one, other = now.variance / now.weight, before.variance / before.weight
    size = one + other
    # Welch's degrees of freedom.
    least = one * one / (now.weight - 1) + other * other / max(before.weight - 1, 1.0)
    freedom = size * size / least if least > 0 else now.weight - 1
    z = -NormalDist().inv_cdf(LEVEL / tests / 2)
    return t_quantile(z, freedom) * math.sqrt(size + extra * extra)


def t_quantile(z: float, freedom: float) -> float:
    """Return Student's quantile that leaves as much as z does of a normal variable (Abramowitz and Stegun, 26.7.5).

    By Cornish and Fisher's series in the degrees of freedom, which need not be whole.

    >>> round(t_quantile(1.959964, 10.0), 2), t_quantile(2.0, 0.0)
    (2.23, inf)
    """
    if freedom <= 0:
        return math.inf
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def _check_arms(history: History, start: int, version: int) -> str:
    """Return what is to be said of the arms that one version chose, in the halves of its rounds after `start`."""
    arms = history.arms_since(start, version)
    half, kinds = len(arms) // 2, int(arms.max(initial=0)) + 1
    if half < FEWEST:
        return ""
    before, now = (np.bincount(part, minlength=kinds) / len(part) for part in (arms[:half], arms[half:]))
    arm = int(np.abs(now - before).argmax())
    share = float(np.mean(arms == arm))
    first, second = (Moments(float(size), 0.0, share * (1 - share)) for size in (half, len(arms) - half))
    if abs(now[arm] - before[arm]) <= _bound(second, first, tests=kinds):
        return ""
    return (
        f"version {version} chose arm {arm} in {before[arm]:.0%} of the first half of its rounds and in {now[arm]:.0%} "
        "of the second, so contexts or the arms on offer have changed"
    )
