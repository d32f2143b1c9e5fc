"""From scores to arms, by the probability of each.

    p   (n, K)   the probability of every arm of a round under the frozen version; 0 where no arm is

Every rule says p first, and one uniform number a round then picks from it: so what is logged is what was drawn
from, to the last bit. Scores that differ by rounding alone are a tie, or the order in which a matrix product
adds would choose: the tolerance is relative, 1e-9·max(s, |score|, β‖φ‖/√λ) with s the scale of rewards (1 unless
they are standardised) and β‖φ‖/√λ the bonus before any data, which is what the bonus' rounding is relative to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from numbers import Real
from typing import Any, Protocol

import numpy as np

from rarely.core.choice.gaussian_argmax import highest_of_gaussians
from rarely.core.errors import InvalidInput
from rarely.core.types import Array, BoolArray, IntArray

TIE = 1e-9
GRID = 2.0**53


def tolerances(scores: Array, prior_bonuses: Array, reward_spread: float) -> Array:
    """How far below the best score of its round an arm still ties with it, (n,)."""
    size = np.fmax(np.abs(scores), prior_bonuses)
    return np.asarray(TIE * np.maximum(reward_spread, np.fmax.reduce(size, axis=1)))


def argmax_mask(scores: Array, tolerance: Array) -> BoolArray:
    """Which arms of (n, K) scores are the best of their round; NaN never is.

    >>> argmax_mask(np.array([[1.0, 2.0, 2.0], [np.nan, 0.0, -1.0]]), tolerance=np.zeros(2))
    array([[False,  True,  True],
           [False,  True, False]])
    """
    return np.asarray(scores >= (np.fmax.reduce(scores, axis=1) - tolerance)[:, None], np.bool_)


def uniform_over(allowed: BoolArray) -> Array:
    """The same probability for all that are allowed.

    >>> uniform_over(np.array([[True, False, True]]))
    array([[0.5, 0. , 0.5]])
    """
    return np.asarray(allowed / allowed.sum(axis=1, keepdims=True), np.float64)


def summing_to_one(probabilities: Array, least: Array) -> Array:
    """The same, rounded to multiples of 2⁻⁵³, whose sums are exact in any order; the largest of each round takes what
    the others leave of 1, and none is below its `least`, which is such a multiple."""
    out, rounds = np.maximum(np.floor(probabilities * GRID) / GRID, least), np.arange(len(probabilities))
    top = np.argmax(out, axis=1)
    out[rounds, top] = 0.0
    out[rounds, top] = np.maximum(1 - out.sum(axis=1), least[rounds, top])
    return out


def sample_arms(probabilities: Array, uniforms: Array) -> IntArray:
    """An arm of each round, with these probabilities.

    >>> sample_arms(np.array([[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]]), np.array([0.5, 0.9]))
    array([2, 1])
    """
    reached = np.cumsum(probabilities, axis=1)
    # Relative to the last sum: rounding may leave it below 1, and an arm of probability 0 is never reached.
    return np.asarray((reached <= uniforms[:, None] * reached[:, -1:]).sum(axis=1), np.int64)


class ChoiceRule(Protocol):
    """How scores become arms."""

    @property
    def draws(self) -> bool:
        """Whether it uses one uniform number a round; else one arm of each round has probability 1."""

    def probabilities(self, means: Array, bonuses: Array, tolerance: Array) -> Array:
        """(n, K): of every arm; means and bonuses are NaN where no arm is."""


@dataclass(frozen=True, slots=True)
class UpperConfidence:
    """The arm of the highest mean + bonus; ties to the lowest arm, or to the generator when asked."""

    draws: bool = False

    def probabilities(self, means: Array, bonuses: Array, tolerance: Array) -> Array:
        best = argmax_mask(means + bonuses, tolerance)
        if self.draws:
            return uniform_over(best)
        out = np.zeros(best.shape)
        out[np.arange(len(best)), np.argmax(best, axis=1)] = 1.0
        return out


@dataclass(frozen=True, slots=True)
class Thompson:
    """Each arm as often as it would be the best, if rewards were N(mean, bonus²), independent of each other.

    A bonus below 1e-9 of the largest mean or bonus of its round counts as 0. Of arms without a bonus the one of the
    highest mean competes; ties go to the lowest arm, or are shared alike. The scale of rewards matters to this only in
    a round without any bonus: a β far below that scale is small, and not 0.
    """

    lowest: bool = True
    draws: bool = True

    def probabilities(self, means: Array, bonuses: Array, tolerance: Array) -> Array:
        size = np.fmax.reduce(np.fmax(np.abs(means), bonuses), axis=1)
        some = np.fmax.reduce(bonuses, axis=1) > 0
        return highest_of_gaussians(means, bonuses, np.where(some, TIE * size, tolerance), lowest=self.lowest)


@dataclass(frozen=True, slots=True)
class UniformChoice:
    """Any arm, whatever the scores."""

    draws: bool = True

    def probabilities(self, means: Array, bonuses: Array, tolerance: Array) -> Array:
        return uniform_over(~np.isnan(means))


@dataclass(frozen=True, slots=True)
class Mixture:
    """A part ε of all rounds to any arm alike, the others to the policy's own rule.

    So every arm has a probability of at least ε/K, which off-policy estimates need, and they sum to 1 exactly. With
    1 − ε below K²/2⁵³ some are up to 2⁻⁵³ below ε/K.

    Examples
    --------
    >>> from rarely import LinUCB, Mixture
    >>> LinUCB(dim=1, exploration=Mixture(0.2)).probabilities([[1.0], [3.0]])
    array([0.1, 0.9])
    """

    epsilon: float

    def __post_init__(self) -> None:
        if isinstance(self.epsilon, bool) or not isinstance(self.epsilon, Real) or not 0 <= self.epsilon <= 1:
            raise InvalidInput(
                f"epsilon must be a number from 0 to 1, the part of all rounds that explores; got {self.epsilon!r}."
            )

    def describe(self) -> dict[str, Any]:
        """The mixture as JSON: its fields, so `Mixture(**description)` is the inverse."""
        return {"epsilon": float(self.epsilon)}


@lru_cache(maxsize=1024)
def _share(epsilon: float, arms: int) -> float:
    """ε/K as a multiple of 2⁻⁵³: the next one above, or the one below where 1 − ε leaves no room for K of those."""
    exact = Fraction(epsilon) / arms * int(GRID)
    return (math.ceil(exact) if (1 - epsilon) * GRID >= arms**2 else math.floor(exact)) / GRID


@dataclass(frozen=True, slots=True)
class MixedRule:
    """Another rule under a `Mixture`."""

    rule: ChoiceRule
    mixture: Mixture

    @property
    def draws(self) -> bool:
        return self.rule.draws or self.mixture.epsilon > 0

    def probabilities(self, means: Array, bonuses: Array, tolerance: Array) -> Array:
        own, epsilon = self.rule.probabilities(means, bonuses, tolerance), self.mixture.epsilon
        present = ~np.isnan(means)
        shares = [_share(float(epsilon), arms) for arms in present.sum(axis=1).tolist()]
        least = np.where(present, np.array(shares)[:, None], 0.0)
        return summing_to_one(least + (1 - epsilon) * own, least)


def with_exploration(rule: ChoiceRule, exploration: Mixture | None) -> ChoiceRule:
    """The rule under the mixture that the user asked for, if any."""
    if exploration is None:
        return rule
    if not isinstance(exploration, Mixture):
        raise InvalidInput(f"exploration must be a Mixture, such as Mixture(0.05), or None; got {exploration!r}.")
    return MixedRule(rule, exploration)
