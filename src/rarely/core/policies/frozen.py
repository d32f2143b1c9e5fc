"""The frozen policy itself: what one version knows, and how it decides.

learner      f(·; θ_b) and its features        radius   β_{t_b}
covariance   Z, frozen at the batch's start    rule     how means and bonuses become arms
unit         ω, by which √v of an approximation is multiplied: bonuses are β·ω·√v
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rarely.core.choice.rules import ChoiceRule
from rarely.core.covariance import Candidates, Covariance
from rarely.core.covariance.protocol import prior_variances
from rarely.core.errors import InvalidContexts
from rarely.core.inputs.contexts import Part
from rarely.core.policies.learner import Learner
from rarely.core.policies.scored_arms import ScoredArms, concatenated
from rarely.core.types import Array


@dataclass(frozen=True, slots=True)
class FrozenPolicy:
    """One version of a policy; its covariance also carries the running Z, which decides nothing."""

    learner: Learner
    covariance: Covariance
    radius: float
    ridge: float
    rule: ChoiceRule
    running: bool = False
    """Whether bonuses follow the running Z, so that rounds of one batch spread; means stay frozen."""
    unit: float = 1.0
    """1 while Z is exact, and in a policy that was approximate from the start; see `form_change.with_unit`."""
    next_unit: float = 1.0
    """That of the versions after this one. The frozen Z of this one lacks the rounds of its batch, so its scale may be
    another; where bonuses follow the running Z, both are the same."""

    def fork(self) -> FrozenPolicy:
        """A copy whose running Z may grow; see `Covariance.fork`."""
        return self.with_covariance(self.covariance.fork())

    def with_covariance(self, covariance: Covariance) -> FrozenPolicy:
        """The same with another form of Z."""
        return self._with(self.learner, covariance)

    def with_learner(self, learner: Learner) -> FrozenPolicy:
        """The same with another learner."""
        return self if learner is self.learner else self._with(learner, self.covariance)

    def _with(self, learner: Learner, covariance: Covariance) -> FrozenPolicy:
        """The same with another learner and form; every decision comes through here, and `replace` is slow."""
        return FrozenPolicy(
            learner, covariance, self.radius, self.ridge, self.rule, self.running, self.unit, self.next_unit
        )

    @property
    def bonus_per_deviation(self) -> float:
        """β·ω."""
        return self.radius * self.unit

    def facing(self, part: Part) -> FrozenPolicy:
        """The version that decides the first round of a part; see `Learner.facing`."""
        return self.with_learner(self.learner.facing(part.rows_until(1))) if self.learner.follows else self

    def assess(self, part: Part) -> ScoredArms:
        """Means, bonuses and measured features of a part's arms, in blocks where one round has very many."""
        block = max(self.covariance.block(), 1)
        pieces = []
        for start in range(0, len(part.rows), block):
            piece = self._measure(part.rows[start : start + block])
            # Of several blocks only the features are kept: what was solved would fill t numbers an arm.
            pieces.append(piece if len(part.rows) <= block else (*piece[:2], piece[2].unsolved()))
        means, priors, candidates = zip(*pieces, strict=True)
        prior = part.padded(concatenated(priors))
        variances = part.padded(concatenated([piece.variances for piece in candidates]))
        return ScoredArms(
            means=part.padded(concatenated(means)),
            bonuses=self.bonus_per_deviation * np.sqrt(variances),
            prior_bonuses=self.bonus_per_deviation * np.sqrt(prior),
            variances=variances,
            priors=prior,
            candidates=list(candidates),
            block=block,
            reward_spread=self.learner.reward_spread,
            running=self.running,
        )

    def _measure(self, rows: Array) -> tuple[Array, Array, Candidates]:
        with np.errstate(over="ignore", invalid="ignore"):
            means, factors = self.learner.assess(rows)
            prior = prior_variances(factors, self.ridge)
        if not (np.isfinite(means).all() and np.isfinite(prior).all()):
            raise InvalidContexts("contexts must be small enough for the features' squared norms to be finite.")
        return means, prior, self.covariance.measure(factors, running=self.running)
