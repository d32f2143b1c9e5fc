"""LinUCB's and LinTS's estimate with ridge="learned": λ and the noise are learned from the rewards.

    r = o + x·θ + ε      θ ~ N(0, s²I)      ε ~ N(0, s²λ)

λ, in mean squared lengths of contexts, is averaged over a grid by the likelihood of the rewards so far, as in
`rarely._core.policies.evidence`, and s² is in closed form. With the eigenvalues a of XᵀX and the squared projections q
of the rewards on XᵀX's image,

    −2 log p = n log s² + Σ log(a + λ) + (n − rank) log λ      s² = (Σ q/(a + λ) + (rᵀr − Σq)/λ + 1)/(n + 1)

in units in which rewards and contexts have mean square 1. So a bonus of β standard deviations of the noise is the same
in cents and in euros. The eigenvalues are computed when the rewards have grown by a tenth; between, an update costs
what a textbook's does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import numpy as np

from rarely._core.choice.confidence_radius import VersionStats
from rarely._core.covariance import Covariance
from rarely._core.covariance.cholesky import cholesky, lower_inverse
from rarely._core.growable_array import GrowableArray, changed
from rarely._core.inputs.history import History
from rarely._core.model.features import Factors
from rarely._core.policies.gaussian_process import RIDGES, likely_ridge
from rarely._core.policies.learner import FitResult, RewardTask
from rarely._core.policies.linear import LinearLearner, unit_signals
from rarely._core.saving.fields import Fields
from rarely._core.training.watch import UNWATCHED, Watch
from rarely._core.types import Array, Arrays, BoolArray

FEWEST, GROWTH = 8, 1.1
"""Rewards before which nothing is chosen, and by how much they have grown when it is chosen again."""
WIDEST = 512  # rewards up to which λ is chosen where they are fewer than columns
STEPS, SETTLED = 4, 64
"""Values of the explored ridge in a factor of ten, and rewards after which it stays: Z is made anew when it changes."""


@dataclass(frozen=True)
class LearnedLinear(LinearLearner):
    """A ridge estimate that learns λ, the noise, and where rewards lie."""

    origin: float = 0.0  # o, what `moment` and `squares` take from the rewards; 0 without a constant column
    squares: float = 0.0  # Σ(r − o)²
    lengths: float = 0.0  # Σ‖x‖²
    count: float = 0.0  # n, or the sum of weights
    chosen: int = 0  # rewards at the last choice
    deviation: float = 1.0  # √(s²λ), in the units of rewards
    explored: float = 1.0  # the ridge of Z, in the units of contexts: λ, but at most the mean squared length

    def emptied(self) -> LinearLearner:
        return replace(super().emptied(), **{name: getattr(self, name) for name in ("chosen", "deviation", "explored")})

    @property
    def _start(self) -> Array:
        """0: `matrix` is XᵀX alone, of which a λ in the units of large columns would leave no digits of small ones."""
        return np.zeros((self.scale.scaled_dim, self.scale.scaled_dim))

    def _solution(self, matrix: Array, moment: Array) -> Array:
        return super()._solution(matrix + self.ridge * np.eye(len(matrix)), moment)

    @property
    def theta(self) -> Array:
        theta = self.coefficients.copy()
        if self.scale.constant:
            theta[-1] += self.origin
        return theta

    def assess(self, contexts: Array) -> tuple[Array, Factors]:
        x = self.scale(contexts)
        return x.dot(self.theta), Factors((x / math.sqrt(self.explored),), (unit_signals(len(x)),))

    def version_stats(self, round: int, covariance: Covariance) -> VersionStats:
        return replace(super().version_stats(round, covariance), noise=self.deviation)

    def learn(self, history: History, watch: Watch = UNWATCHED) -> FitResult:
        fit = super().learn(history, watch)
        learner = fit.learner
        assert isinstance(learner, LearnedLinear)
        if fit.reason or not learner.count:
            return fit
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            if learner._asks(forgets=history.forgetting is not None):
                learner = learner._recentred()._with_choice()
        if not np.isfinite((learner.deviation, learner.squares, *learner.coefficients)).all():
            return FitResult(self, "the estimate overflows: rewards or contexts are too large")
        if self.chosen >= SETTLED or len(history) < history.total:  # Z is not made anew of rows that may be dropped
            learner = changed(learner, explored=self.explored)
        rebuilt = learner.explored != self.explored and history.forgetting is None
        return FitResult(learner, basis=learner if rebuilt else None)

    @property
    def rebuilds(self) -> bool:  # type: ignore[override]
        """Whether Z may be made anew, of all rounds."""
        return self.chosen < SETTLED

    def needs(self, history: History) -> BoolArray | None:
        return None if self.rebuilds else super().needs(history)

    def with_rewards(self, x: Array, rewards: Array, count: float, *, wide: bool) -> LinearLearner:
        start = self
        if self.scale.constant and len(x):
            constant = x[:, -1]
            if not self.count:
                start = replace(self, origin=float(constant @ rewards / (constant @ constant)))
            rewards = rewards - start.origin * constant
        learner = super(LearnedLinear, start).with_rewards(x, rewards, count, wide=wide)
        return changed(
            learner,
            squares=self.squares + float(rewards @ rewards),
            lengths=self.lengths + float(np.einsum("ij,ij->", x, x)),
            count=self.count + count,
        )

    def with_reward_sums(self, total: Array, history: History, arrived: int) -> Self:
        (matrix, moment, squares), o = RewardTask.parts(total), self.origin
        learner = super().with_reward_sums(total, history, arrived)
        if self.scale.constant:
            learner = changed(learner, moment=learner.moment - o * matrix[:, -1])
            squares += o * (o * float(matrix[-1, -1]) - 2 * float(moment[-1]))
        sums = {"squares": self.squares + squares, "lengths": self.lengths + float(np.trace(matrix))}
        return cast(Self, changed(learner, **sums, count=self.count + arrived - self.learned))

    # --- the choice

    def _asks(self, *, forgets: bool) -> bool:
        """Whether it is time to choose: at each update where rewards are forgotten, so that sums begin anew."""
        grown = forgets or self.learned >= GROWTH * self.chosen
        few = self.rows is not None and self.learned <= WIDEST
        return grown and self.lengths > 0 and (self.matrix is not None or few)

    def _gram(self) -> Array:
        """Return XᵀX, or XXᵀ where there are fewer rewards than columns."""
        if self.matrix is not None:
            return self.matrix
        assert self.rows is not None
        return np.asarray(self.rows.view @ self.rows.view.T)

    def _recentred(self) -> LearnedLinear:
        """Return the same sums about the mean of the rewards; without a constant column they stay about 0."""
        if not self.scale.constant:
            return self
        if self.matrix is None:
            assert self.rows is not None
            column = self.rows.view.T @ self.rows.view[:, -1]
        else:
            column = self.matrix[:, -1]
        shift = float(self.moment[-1] / column[-1])
        squares = max(self.squares - shift * shift * float(column[-1]), 0.0)
        return replace(self, origin=self.origin + shift, moment=self.moment - shift * column, squares=squares)

    def _with_choice(self) -> LearnedLinear:
        """Return the estimate with the λ that makes the rewards likely."""
        length, spread = self.lengths / self.count, self.squares / self.count or 1.0
        if not math.isfinite(length * spread):
            return replace(self, deviation=math.inf)
        ridge, deviation = 1.0, math.sqrt(spread)
        if self.count >= FEWEST:
            ridge, deviation = self._likely(length, spread)
        steps = round(STEPS * math.log10(min(ridge, 1.0) * length))
        chosen = replace(self, chosen=self.learned, deviation=deviation, explored=10 ** (steps / STEPS))
        return chosen._with_ridge(ridge * length)

    def _likely(self, length: float, spread: float) -> tuple[float, float]:
        """Return λ in units of `length`, averaged by likelihood, and the deviation of the noise."""
        values, vectors = np.linalg.eigh(self._gram())
        known = values > 1e-12 * values[-1]
        values, vectors = values[known], vectors[:, known]
        if self.matrix is not None:
            images = np.square(vectors.T @ self.moment) / values
        else:
            assert self.rows is not None
            images = np.square(vectors.T @ (self.rows.view @ self.moment) / values)
        values, images = values / length, images / spread
        rest = max(self.squares / spread - float(images.sum()), 0.0)

        def variance(ridges: Array) -> Array:
            explained = (images / (values + ridges[:, None])).sum(axis=1)
            return np.asarray((explained + rest / ridges + 1) / (self.count + 1))

        lost = self.count * np.log(variance(RIDGES)) + np.log(values + RIDGES[:, None]).sum(axis=1)
        lost += (self.count - len(values)) * np.log(RIDGES)
        ridge = likely_ridge(lost / 2)
        return ridge, math.sqrt(spread * ridge * float(variance(np.array([ridge]))[0]))

    def _with_ridge(self, ridge: float) -> LearnedLinear:
        """Return the estimate with another λ."""
        other = replace(self, ridge=ridge)
        if self.matrix is not None:
            return replace(other, coefficients=other._solution(self.matrix, self.moment))
        assert self.rows is not None
        corner = self._gram()
        corner.flat[:: len(corner) + 1] += ridge
        rows = lower_inverse(cholesky(corner)[0]) @ self.rows.view
        basis = GrowableArray(rows.shape[1])
        basis.append(rows)
        coefficients = (self.moment - rows.T @ (rows @ self.moment)) / ridge
        return replace(other, basis=basis, coefficients=coefficients)

    # --- saving

    def state(self) -> tuple[dict[str, Any], Arrays]:
        numbers, arrays = super().state()
        names = ("ridge", "origin", "squares", "lengths", "count", "chosen", "deviation", "explored")
        return numbers | {name: getattr(self, name) for name in names}, arrays

    def restored(self, saved: Fields) -> Self:
        with saved:
            numbers: dict[str, Any] = {name: saved.number(name, 0.0) for name in ("squares", "lengths", "count")}
            numbers |= {name: saved.number(name, above=0.0) for name in ("ridge", "deviation", "explored")}
            numbers |= {"origin": saved.number("origin"), "chosen": saved.whole("chosen")}
            return cast(Self, super(LearnedLinear, replace(self, **numbers)).restored(saved))
