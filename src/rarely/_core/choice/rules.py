"""From scores to arms, by the probability of each.

    p   (n, K)   the probability of every arm of a round under the frozen version; 0 for absent arms

Every rule computes p first, and one uniform number per round then draws from it: so what is logged is exactly what was
drawn from. Scores that differ by rounding only are a tie; otherwise the order in which a matrix product adds would
choose. The tolerance is relative to what is rounded:

    1e-9·max(s, d, β‖φ‖/√λ) + 16ε·max |score|

    s   the scale of rewards, 1 unless they are standardised       d   from the lowest score of the round to the highest
    ε   2⁻⁵²                                     β‖φ‖/√λ   the bonus before any data, of which bonuses are what is left

What all scores of a round share, such as the 10¹² of rewards that are times, costs them no more digits than adding it
did: it tells no arm from another.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from rarely._core.choice.gaussian_argmax import highest_of_gaussians
from rarely._core.errors import InvalidContexts, InvalidInput, as_number, named_arguments, shown
from rarely._core.parts import READERS, Part, Registry
from rarely._core.types import Array, BoolArray, IntArray, forwarded

TIE = 1e-9
ROUNDED = 16 * 2.0**-52  # rounding of a score, relative to its size: that of a sum of some numbers of this size
GRID = 2.0**53


def tolerances(scores: Array, bonuses: Array, reward_spread: float) -> Array:
    """Return how far below the best score of its round an arm still ties with it, (n,); see the module for `bonuses`.

    >>> far, same = np.array([[1e12, 1e12 + 1]]), np.zeros((1, 2))
    >>> tolerances(far, same, 0.1).round(4), tolerances(far - 1e12, same, 0.1).round(12)
    (array([0.0036]), array([1.e-09]))
    """
    highest, lowest = np.fmax.reduce(scores, axis=1), np.fmin.reduce(scores, axis=1)
    size = np.maximum(np.fmax.reduce(bonuses, axis=1), highest - lowest)
    return np.asarray(TIE * np.maximum(reward_spread, size) + ROUNDED * np.maximum(np.abs(highest), np.abs(lowest)))


def argmax_mask(scores: Array, tolerance: Array) -> BoolArray:
    """Return which arms of (n, K) scores are the best of their round; NaN never is.

    >>> argmax_mask(np.array([[1.0, 2.0, 2.0], [np.nan, 0.0, -1.0]]), tolerance=np.zeros(2))
    array([[False,  True,  True],
           [False,  True, False]])
    """
    return np.asarray(scores >= (np.fmax.reduce(scores, axis=1) - tolerance)[:, None], np.bool_)


def uniform_over(allowed: BoolArray) -> Array:
    """Return the same probability for all allowed arms of a round."""
    return np.asarray(allowed / np.add.reduce(allowed, axis=1, keepdims=True), np.float64)


def summing_to_one(probabilities: Array, least: Array) -> Array:
    """Return the probabilities rounded to multiples of 2⁻⁵³, whose sums are exact in any order.

    The largest of each round gets what the others leave of 1, and none is below its `least`, which is such a multiple.
    """
    out, rounds = np.maximum(np.floor(probabilities * GRID) / GRID, least), np.arange(len(probabilities))
    top = out.argmax(axis=1)
    out[rounds, top] = 0.0
    out[rounds, top] = np.maximum(1 - out.sum(axis=1), least[rounds, top])
    return out


def sample_arms(probabilities: Array, uniforms: Array) -> IntArray:
    """Draw an arm of each round with these probabilities.

    >>> sample_arms(np.array([[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]]), np.array([0.5, 0.9]))
    array([2, 1])
    """
    reached = np.add.accumulate(probabilities, axis=1)
    # Relative to the last sum: rounding may leave it below 1, and an arm of probability 0 is never reached.
    return np.asarray((reached > uniforms[:, None] * reached[:, -1:]).argmax(axis=1), np.int64)


def held_out(
    rule: ChoiceRule, present: BoolArray, probabilities: Array, arms: IntArray, uniforms: Array
) -> BoolArray | None:
    """Return which rounds a lot decided rather than the policy's own rule; None if the rule leaves none to a lot.

    The draw that chose the arm tells: it lies in the interval of that arm, of whose length p the lot has the first
    part, `rule.exploration_share`. So an arm is held out with exactly its part of p, and no other number is drawn.
    """
    share = rule.exploration_share(present)
    if share is None:
        return None
    rounds, reached = np.arange(len(arms)), np.add.accumulate(probabilities, axis=1)
    start = reached[rounds, arms] - probabilities[rounds, arms]
    return np.asarray(uniforms * reached[:, -1] - start < share[rounds, arms], np.bool_)


@dataclass(slots=True, eq=False)
class ArmScores:
    """What a rule chooses by: the arms of n rounds, NaN for those that are absent.

    Examples
    --------
    >>> scores = ArmScores(np.array([[0.1, 0.5]]), np.array([[0.2, 0.0]]))
    >>> UpperConfidence().probabilities(scores)
    array([[0., 1.]])
    """

    means: Array  # (n, K), in reward units
    bonuses: Array  # (n, K): β·ω·√v of the model, or the bound of a `ScoreOverride`
    tolerance: Array = field(default_factory=lambda: np.zeros(1))  # (n,): scores that differ by less are equal
    joint: Array | None = None
    """(n, K, p): β·ω·φ, for a rule that is `joint`: one draw z ~ N(0, I) for all arms gives arm k mean_k + ⟨φ_k, z⟩."""


RULES: Registry[ChoiceRule] = Registry("a choice rule")  # every rule by its name, the package's and the user's


class ChoiceRule(Part):
    """A rule by which scores become arms.

    A rule of your own is a frozen dataclass; it is registered by its definition, given to a policy as
    `exploration=MyRule(…)`, and saved with it. `rarely.testing.check_rule` checks its promises.

    Examples
    --------
    >>> from rarely.extend import ChoiceRule
    >>> isinstance(UpperConfidence(), ChoiceRule)
    True
    """

    __slots__ = ()
    registry = RULES
    compiled: ClassVar[str] = ""
    """Its name in `native/steps.c`; "" for a rule of one's own, also for one derived from a rule with a name."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.compiled = vars(cls).get("compiled", "")

    @property
    def draws(self) -> bool:
        """Whether it uses one uniform number per round; else one arm of each round has probability 1."""
        return True

    @property
    def joint(self) -> bool:
        """Whether it draws one model for all arms, and so wants `ArmScores.joint`."""
        return False

    @property
    def ignore_running_bonuses(self) -> bool:
        """Whether bonuses of a block may be those before its first round, because nobody chooses by them."""
        return False

    @abstractmethod
    def probabilities(self, scores: ArmScores) -> Array:
        """Return the probability of every arm, (n, K): 0 for absent ones, and 1 in all for each round."""

    def exploration_share(self, present: BoolArray) -> Array | None:
        """Return the part of each arm's probability that a lot gives it, (n, K); None if a lot has none."""
        return None


@dataclass(frozen=True, slots=True)
class UpperConfidence(ChoiceRule):
    """The arm with the highest mean + bonus; a tie goes to the lowest arm, or is drawn if `draws`."""

    draws: bool = False
    compiled: ClassVar[str] = "upper"

    def probabilities(self, scores: ArmScores) -> Array:
        best = argmax_mask(scores.means + scores.bonuses, scores.tolerance)
        if self.draws:
            return uniform_over(best)
        out = np.zeros(best.shape)
        out[np.arange(len(best)), best.argmax(axis=1)] = 1.0
        return out


@dataclass(frozen=True, slots=True)
class Thompson(ChoiceRule):
    """Each arm as often as it would be the best if rewards were independent N(mean, bonus²).

    A bonus below 1e-9 of the largest bonus, or of how far the means of its round are apart, counts as 0, as does one
    that is no more than the rounding of the means. Among arms without a bonus the one with the highest mean competes;
    ties go to the lowest arm, or are shared equally.
    """

    lowest: bool = True
    draws: bool = True
    compiled: ClassVar[str] = "thompson"

    def probabilities(self, scores: ArmScores) -> Array:
        means, bonuses = scores.means, scores.bonuses
        some = np.fmax.reduce(bonuses, axis=1) > 0
        tolerance = np.where(some, tolerances(means, bonuses, 0.0), scores.tolerance)
        return highest_of_gaussians(means, bonuses, tolerance, lowest=self.lowest)


@dataclass(frozen=True, slots=True)
class UniformChoice(ChoiceRule):
    """Every available arm equally often, whatever the scores."""

    draws: bool = True
    compiled: ClassVar[str] = "uniform"

    def probabilities(self, scores: ArmScores) -> Array:
        return uniform_over(~np.isnan(scores.means))


@named_arguments
@dataclass(frozen=True, slots=True)
class Mixture:
    """A share ε of all rounds for a uniformly drawn arm, the others for the policy's own rule.

    So every arm has a probability of at least ε/K, which off-policy estimates need, and they sum to 1 exactly. With
    1 − ε below K²/2⁵³ some are up to 2⁻⁵³ below ε/K. `Decision.held_out` marks the rounds of the share, with which
    `rarely.offpolicy.against_holdout` compares the others.

    Examples
    --------
    >>> from rarely import LinUCB, Mixture
    >>> LinUCB(dim=1, exploration=Mixture(0.2)).probabilities([[1.0], [3.0]])
    array([0.1, 0.9])
    """

    epsilon: float

    def __post_init__(self) -> None:
        if not 0 <= as_number(self.epsilon) <= 1:
            raise InvalidInput(f"epsilon must be a number from 0 to 1, a share of rounds; got {shown(self.epsilon)}.")

    def describe(self) -> dict[str, Any]:
        """Return the mixture as JSON: its fields, so `Mixture(**description)` is the inverse."""
        return {"epsilon": float(self.epsilon)}


@lru_cache(maxsize=1024)
def lot_share(epsilon: float, arms: int) -> float:
    """Return ε/K as a multiple of 2⁻⁵³: the next above, or the one below if 1 − ε leaves no room for K of those."""
    from fractions import Fraction  # only here, because importing it takes long

    exact = Fraction(epsilon) / arms * int(GRID)
    return (math.ceil(exact) if (1 - epsilon) * GRID >= arms**2 else math.floor(exact)) / GRID


@dataclass(frozen=True, slots=True)
class MixedRule(ChoiceRule):
    """Another rule under a `Mixture`."""

    rule: ChoiceRule
    mixture: Mixture

    @property
    def draws(self) -> bool:
        return self.rule.draws or self.mixture.epsilon > 0

    joint = forwarded("rule.joint")

    def probabilities(self, scores: ArmScores) -> Array:
        least = self.exploration_share(~np.isnan(scores.means))
        return summing_to_one(least + (1 - self.mixture.epsilon) * self.rule.probabilities(scores), least)

    def exploration_share(self, present: BoolArray) -> Array:
        shares = [lot_share(float(self.mixture.epsilon), arms) for arms in present.sum(axis=1).tolist()]
        return np.where(present, np.array(shares)[:, None], 0.0)


@dataclass(frozen=True, slots=True)
class FixedShares(ChoiceRule):
    """Another rule under floors: each available arm has at least its own share."""

    rule: ChoiceRule
    least: tuple[float, ...] | float

    joint = forwarded("rule.joint")

    def probabilities(self, scores: ArmScores) -> Array:
        """Return a + (1 − Σa)·p, on the grid of exact multiples of 2⁻⁵³."""
        chances, least = self.rule.probabilities(scores), self._limits(~np.isnan(scores.means))
        return summing_to_one(least + np.maximum(1 - least.sum(axis=1), 0.0)[:, None] * chances, least)

    def exploration_share(self, present: BoolArray) -> Array | None:
        """Return the lot's part of what the limits leave to the rule."""
        share = self.rule.exploration_share(present)
        if share is None:
            return None
        left = np.maximum(1 - self._limits(present).sum(axis=1), 0.0)
        return np.asarray(left[:, None] * share)

    def _limits(self, present: BoolArray) -> Array:
        return np.array([_on_grid(self.least, tuple(row)) for row in present.tolist()])


@lru_cache(maxsize=1024)
def _on_grid(least: tuple[float, ...] | float, present: tuple[bool, ...]) -> Array:
    """Round the limits of available arms to multiples of 2⁻⁵³: up, or down where rounding up would exceed 1."""
    from fractions import Fraction

    limits = [least] * len(present) if isinstance(least, float) else list(least)
    exact = [Fraction(limit) * int(GRID) * bool(there) for limit, there in zip(limits, present, strict=True)]
    if sum(exact) > GRID * (1 + 1e-12):
        raise InvalidContexts(f"the floors of {len(limits)} arms must sum to at most 1; got {least!r} each.")
    above = [math.ceil(value) for value in exact]
    chosen = above if sum(above) <= GRID else [math.floor(value) for value in exact]
    return np.array(chosen) / GRID


def rule_from(rule: ChoiceRule, exploration: Mixture | ChoiceRule | None) -> ChoiceRule:
    """Return a policy's rule, under the user's mixture if there is one, or the user's own rule in its place."""
    if exploration is None:
        return rule
    if isinstance(exploration, ChoiceRule) and not isinstance(exploration, MixedRule):
        return exploration
    if not isinstance(exploration, Mixture):
        came = shown(exploration)
        raise InvalidInput(f"exploration must be a Mixture, such as Mixture(0.05), a ChoiceRule or None; got {came}.")
    return MixedRule(rule, exploration)


def exploration_from(description: dict[str, Any]) -> Mixture | ChoiceRule:
    """Return what `describe` of a mixture or of a rule described."""
    return RULES.made(description) if "kind" in description else Mixture(**description)


READERS["ChoiceRule"] = READERS["Mixture"] = exploration_from
