"""A round's arms as a frozen version sees them: means, bonuses, probabilities, and the features behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rarely.core.choice.rules import ChoiceRule, tolerances
from rarely.core.covariance import Candidates, Covariance
from rarely.core.model.features import joined
from rarely.core.types import Array, IntArray

Number = TypeVar("Number", np.float64, np.int64)


class Scores(NamedTuple):
    """What a frozen policy thinks of each arm, in reward units; NaN where no arm is.

    Examples
    --------
    >>> from rarely import LinUCB
    >>> means, bonuses = LinUCB(dim=1, intercept=False).score([[1.0], [3.0]])
    >>> means, bonuses
    (array([0., 0.]), array([1., 3.]))
    """

    means: Array
    bonuses: Array


@dataclass(frozen=True, slots=True)
class ScoredArms:
    """A part's arms, (n, K) each, and the measured features of those that are there, block by block."""

    means: Array
    bonuses: Array
    prior_bonuses: Array
    variances: Array
    """φᵀZ⁻¹φ, and ‖φ‖²/λ before any data."""
    priors: Array
    candidates: list[Candidates]
    block: int
    reward_spread: float
    running: bool = False

    def probabilities(self, chooser: ChoiceRule) -> Array:
        tolerance = tolerances(self.means + self.bonuses, self.prior_bonuses, self.reward_spread)
        return chooser.probabilities(self.means, self.bonuses, tolerance)

    def round(self, i: int, bonuses: Array) -> ScoredArms:
        """Round i alone, with these bonuses, (1, K)."""
        one = slice(i, i + 1)
        return replace(self, means=self.means[one], bonuses=bonuses, prior_bonuses=self.prior_bonuses[one])

    def chosen(self, rows: IntArray, covariance: Covariance) -> Candidates:
        """The chosen rows as candidates; those of several blocks are measured again, together."""
        if len(self.candidates) == 1:
            return self.candidates[0][rows]
        factors = joined([self.candidates[row // self.block].factors[[row % self.block]] for row in rows])
        return covariance.measure(factors, running=self.running)


def most_likely_arm(probabilities: Array) -> IntArray:
    """The arm of a rule that does not draw."""
    return np.asarray(np.argmax(probabilities, axis=1), np.int64)


def concatenated(parts: Sequence[NDArray[Number]]) -> NDArray[Number]:
    """All parts in order; one is itself."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
