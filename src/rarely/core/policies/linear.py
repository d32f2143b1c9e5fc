"""LinUCB under any schedule: ridge regression, exactly, with upper confidence bounds.

    θ̂ = (λI + Σ xxᵀ)⁻¹ Σ r x  over the rounds whose rewards are in

A linear model is a network of one layer without hidden units: its feature is x itself, so it shares the covariances.
With `DeterminantTrigger` and frozen bonuses it is the rarely switching OFUL of Abbasi-Yadkori et al. (2011).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from rarely.core.choice.confidence_radius import Beta, VersionStats
from rarely.core.choice.random_stream import Seed, seeded
from rarely.core.choice.rules import ChoiceRule, Mixture, UpperConfidence, with_exploration
from rarely.core.covariance import Covariance, Kind, Sketch, Widths
from rarely.core.covariance.cholesky import is_symmetric, ridge_solution
from rarely.core.errors import check_choice, check_flag, check_positive
from rarely.core.growable_array import changed
from rarely.core.inputs.forgetting import Forgetting
from rarely.core.inputs.history import History
from rarely.core.inputs.scaling import Affine, ContextScale
from rarely.core.model.features import Factors
from rarely.core.policies.base import Policy, Ties, WithinBatch
from rarely.core.policies.learner import FitResult, Learner
from rarely.core.policies.limits import DEFAULT_HISTORY, Limits
from rarely.core.policies.renamed import grouped_limits
from rarely.core.policies.settings import decoded, encoded
from rarely.core.saving.fields import CLOSE, Fields
from rarely.core.schedules import EveryRound, Schedule
from rarely.core.types import Array, Arrays, BoolArray, IntArray


@dataclass(frozen=True)
class LinearLearner:
    """A ridge estimate; `scale` appends the constant where there is an intercept."""

    scale: Affine
    ridge: float
    coefficients: Array
    matrix: Array | None
    """λI + Σ xxᵀ over the rewards learned from; None for λI."""
    moment: Array
    """Σ r x."""
    learned: int = 0
    """How many of the rewards, in the order in which they came, are in both."""
    reward_spread: float = 1.0
    noise: ClassVar[float | None] = None
    fits_scale: ClassVar[bool] = False
    follows: ClassVar[bool] = False
    rebuilds: ClassVar[bool] = False

    @classmethod
    def start(cls, scale: Affine, ridge: float) -> LinearLearner:
        """The estimate before any reward, 0."""
        check_positive("ridge", ridge, "because Z_1 = ridge·I is inverted")
        zero = np.zeros(scale.scaled_dim)
        return cls(scale, ridge, zero, None, zero)

    @property
    def dim(self) -> int:
        return self.scale.dim

    @property
    def widths(self) -> Widths:
        return ((1, self.scale.scaled_dim),)

    @property
    def _start(self) -> Array:
        """λI."""
        return np.asarray(self.ridge * np.eye(self.scale.scaled_dim))

    def assess(self, contexts: Array) -> tuple[Array, Factors]:
        x = self.scale(contexts)
        return x @ self.coefficients, Factors((x,), (np.ones((len(x), 1)),))

    def features(self, contexts: Array) -> Factors:
        return self.assess(contexts)[1]

    def facing(self, contexts: Array) -> LinearLearner:
        return self

    def seen(self, contexts: Array, rounds: int) -> LinearLearner:
        return self

    def scaled(self) -> LinearLearner:
        return self

    def caught_up(self, other: Learner) -> LinearLearner:
        return self

    def learn(self, history: History) -> FitResult:
        known, moment = self._start if self.matrix is None else self.matrix, self.moment
        if history.forgetting is None:
            contexts, rewards = history.arrived_since(self.learned)
            x = self.scale(contexts)
        else:  # weights change with every round, so nothing that was summed stands
            _, contexts, rewards, weights = history.samples()
            assert weights is not None
            x, rewards = self.scale(contexts) * np.sqrt(weights)[:, None], rewards * np.sqrt(weights)
            known, moment = self._start, np.zeros(x.shape[1])
        with np.errstate(over="ignore", invalid="ignore"):
            matrix, moment = known + x.T @ x, moment + x.T @ rewards
            solution = ridge_solution(matrix, moment)
        reason = "" if np.isfinite(solution).all() else "the ridge estimate overflows: the rewards are too large"
        learned = self.learned + len(rewards) if history.forgetting is None else 0
        learner = changed(self, coefficients=solution, matrix=matrix, moment=moment, learned=learned)
        return FitResult(learner, reason)

    def needs(self, history: History) -> BoolArray | None:
        """Its sums hold the rewards that it has learned from."""
        return history.came_after(self.learned) if self.learned else None

    def without_rows(self, rows: IntArray) -> LinearLearner:
        return self

    def version_stats(self, round: int, covariance: Covariance) -> VersionStats:
        return VersionStats(round, covariance.rounds, covariance.frozen_log_det, self.ridge, exact=True)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        matrix = self._start if self.matrix is None else self.matrix
        return {"learned": self.learned}, {"coefficients": self.coefficients, "matrix": matrix, "moment": self.moment}

    def restored(self, saved: Fields, history: History, *, trained: bool) -> LinearLearner:
        width = self.scale.scaled_dim
        with saved:
            coefficients = saved.array("coefficients", (width,))
            saved.require(trained or not coefficients.any(), "coefficients must be 0 before anything is learned")
            if not saved.since(2, "matrix"):  # the first files have no sums, and the next update makes them anew
                return replace(self, coefficients=coefficients)
            matrix, moment = saved.array("matrix", (width, width)), saved.array("moment", (width,))
            most = history.arrived if trained and history.forgetting is None else 0
            learner = replace(
                self, coefficients=coefficients, matrix=matrix, moment=moment, learned=saved.whole("learned", most=most)
            )
            if np.array_equal(matrix, self._start) and not moment.any():  # nothing was summed, or such a file was read
                saved.require(not learner.learned, "learned must be 0 where nothing is in matrix and moment")
                return learner
            saved.require(trained, "matrix must be λI and moment 0 before anything is learned")
            saved.require(is_symmetric(matrix), "matrix must be symmetric with a positive diagonal")
            if history.forgetting is None and not history.dropped:
                learner._check_sums(saved, history)
            size = np.abs(matrix) @ np.abs(coefficients) + np.abs(moment)
            solved = np.isfinite(size) & (np.abs(matrix @ coefficients - moment) <= CLOSE * size.max())
            saved.require(bool(solved.all()), "coefficients must solve matrix·coefficients = moment")
            return learner

    def _check_sums(self, saved: Fields, history: History) -> None:
        """Refuse sums of other rewards than those that came first."""
        assert self.matrix is not None
        diagonal, moment, size = np.full(len(self.moment), self.ridge), np.zeros(len(self.moment)), np.ones(1)
        for (contexts, rewards), sign in ((history.arrived_since(0), 1), (history.arrived_since(self.learned), -1)):
            x = self.scale(contexts)
            diagonal += sign * np.einsum("ij,ij->j", x, x)
            moment += sign * (rewards @ x)
            size = np.maximum(size, np.abs(rewards) @ np.abs(x))
        near = np.abs(np.diagonal(self.matrix) - diagonal) <= CLOSE * np.abs(diagonal)
        near &= np.abs(self.moment - moment) <= CLOSE * size
        near &= np.isfinite(moment) & np.isfinite(diagonal)
        saved.require(bool(near.all()), "matrix and moment must be the sums of the rewards learned from")


class LinUCB(Policy):
    """LinUCB (Li et al., 2010) with one shared linear model, with or without an intercept.

    Parameters
    ----------
    dim, schedule
        d, numbers in a context; when updates are due. Without a schedule they are due after every round.
    intercept
        Whether a constant is appended to contexts; a `context_scale` says so itself.
    ridge, beta
        λ of the ridge regression and of Z_1 = λI; β in bonus = β·√(xᵀZ⁻¹x). β is in the units of rewards, and the
        estimate is drawn towards 0: the defaults are meant for rewards of mean near 0 and spread near 1. Shift and
        scale others first.
    within_batch
        "running": bonuses follow every decision, so that the rounds of a batch spread over the arms. "frozen": they
        stay as they were when the batch began. None is "running"; `LinTS` spreads by itself, and is "frozen".
    context_scale
        An `Affine` of contexts; `**blocks.settings` has it for contexts made of blocks.
    covariance, exploration, forgetting, ties, seed
        As in `BatchNeuralUCB`.
    limits
        Memory and history, as in `Limits`. Where `Limits.history` is reached, an update drops the rounds whose rewards
        its sums hold, which changes no decision; only then the oldest rounds without a reward.

    Examples
    --------
    >>> from rarely import LinUCB
    >>> policy = LinUCB(dim=2, beta=0.0)
    >>> decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    >>> policy.observe(decision, 2.0)
    >>> policy.update().accepted, policy.coefficients.round(3)
    (True, array([0.667, 0.   , 0.667]))
    """

    def __init__(
        self,
        dim: int,
        schedule: Schedule | None = None,
        *,
        intercept: bool = True,
        context_scale: Affine | None = None,
        ridge: float = 1.0,
        beta: Beta = 1.0,
        covariance: Kind | Sketch = "auto",
        exploration: Mixture | None = None,
        forgetting: Forgetting | None = None,
        within_batch: WithinBatch | None = None,
        ties: Ties = "lowest",
        seed: Seed = None,
        limits: Limits | None = None,
        **renamed: Any,
    ) -> None:
        (limits,) = decoded(limits=limits)
        limits = grouped_limits(type(self).__name__, limits, renamed).settled(history=DEFAULT_HISTORY)
        limits.check_unset(type(self).__name__, "latency", "arms")
        schedule, covariance, beta = decoded(schedule=schedule, covariance=covariance, beta=beta)
        context_scale, exploration, forgetting = decoded(
            context_scale=context_scale, exploration=exploration, forgetting=forgetting
        )
        check_choice("ties", ties, Ties)
        within_batch = self._usual_within_batch if within_batch is None else within_batch
        schedule = EveryRound() if schedule is None else schedule
        check_flag("intercept", intercept)
        self._intercept, self._ties, self._scale = intercept, ties, context_scale
        scale = ContextScale.start(dim, context_scale, constant=intercept, fitted=False).affine
        super().__init__(
            LinearLearner.start(scale, ridge),
            schedule=schedule,
            covariance=covariance,
            ridge=ridge,
            beta=beta,
            chooser=with_exploration(self._rule(ties), exploration),
            seed=seeded(seed),
            limits=limits,
            forgetting=forgetting,
            within_batch=within_batch,
        )
        self._schedule, self._exploration, self._within_batch = schedule, exploration, within_batch

    _usual_within_batch: ClassVar[WithinBatch] = "running"

    def _rule(self, ties: Ties) -> ChoiceRule:
        return UpperConfidence(draws=ties == "random")

    @property
    def coefficients(self) -> Array:
        """θ̂ of the version in use; the intercept, where there is one, is last."""
        assert isinstance(self._learner, LinearLearner)
        return self._learner.coefficients.copy()

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments as JSON."""
        return encoded(
            {
                "dim": self.dim,
                "schedule": self._schedule,
                "intercept": self._intercept,
                "context_scale": self._scale,
                "ridge": self._maker.ridge,
                "beta": self._beta,
                "covariance": self._maker.form,
                "exploration": self._exploration,
                "forgetting": self.history.forgetting,
                "within_batch": self._within_batch,
                "ties": self._ties,
                "seed": self._seed,
                "limits": self._limits,
            }
        )
