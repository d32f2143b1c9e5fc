"""The paper's learner: a network that every update trains on all rewards so far (Algorithm 1, line 6).

    f(x; θ)   network      θ_0   initial    where trainings start, and what the ridge pulls to
    θ_b       weights                       of the version in use
    φ         g(x; θ_b)/√m, held as factors (a, δ) per layer

    mean of x   μ + s·f(x̃; θ_b)            x̃ scaled contexts, μ and s the scale of rewards; 0 and 1 in the paper

`learn` is TrainNN (Algorithm 2) on J samples' worth of steps: all samples at once from θ_0 or, where a plan says so,
from the last weights, or one sample after the other as the public program does. What the library's default adds to
this learner is in modules of its own, and nothing here knows of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from rarely._core.choice.confidence_radius import VersionStats
from rarely._core.covariance import Covariance, Widths
from rarely._core.covariance.cholesky import ridge_solution
from rarely._core.inputs.history import History
from rarely._core.inputs.scaling import ContextScale, RewardScale
from rarely._core.inputs.sparse_rows import SeenSpace, SparseRows
from rarely._core.model.features import Factors
from rarely._core.model.network import Network, Weights
from rarely._core.model.sparse_features import values_and_factors
from rarely._core.policies.learner import FitResult, RewardTask, ScaledLearner, TrainingSet
from rarely._core.policies.options import TUNED_ROWS
from rarely._core.saving.fields import LARGEST_WHOLE, DType, Fields
from rarely._core.training.gradient_descent import TrainingOutcome, TrainingPlan, train, train_singly
from rarely._core.training.watch import UNWATCHED, Watch
from rarely._core.types import Array, Arrays


@dataclass(frozen=True)
class NetworkLearner(ScaledLearner):
    """A network, its weights, and the scales around it."""

    network: Network
    initial: tuple[Array, ...]
    weights: Weights
    scale: ContextScale
    rewards: RewardScale
    plan: TrainingPlan
    standardise_rewards: bool
    training_rows: int | None = None  # samples that an update trains on, at most; None: all of them
    clip: tuple[float, float] | None = None  # quantiles beyond which rewards are clipped
    direction: Weights | None = None  # where the next estimate of the curvature starts
    used_step: float | None = None
    used_steps: int | None = None  # steps of the last training; None before one, and in a policy that was loaded

    # --- predictions

    @property
    def widths(self) -> Widths:
        if self.sparse is None:
            return self.network.feature_widths
        m, packed = self.network.hidden, self.sparse.dim + 2 * self.sparse.constant
        return ((m + 1, packed), (1, m))  # see `rarely._core.model.sparse_features`

    def assess(self, contexts: Array) -> tuple[Array, Factors]:
        if self.sparse is not None:
            values, factors = values_and_factors(self.network, self.weights, self.sparse.padded(contexts))
        else:
            values, factors = self.network.values_and_factors(self.weights, self.scale(contexts))
        return self.rewards.center + self.rewards.spread * values, factors

    @property
    def sparse(self) -> SparseRows | None:
        rows = self.scale.map
        return rows if isinstance(rows, SparseRows) and not isinstance(rows, SeenSpace) else None

    def version_stats(self, round: int, covariance: Covariance) -> VersionStats:
        step = self.used_step if self.used_step is not None else self.plan.step_size
        return VersionStats(
            round=round,
            features=covariance.rounds,
            log_det=covariance.frozen_log_det,
            ridge=self.plan.ridge,
            depth=self.network.depth,
            steps=self.plan.steps if self.used_steps is None else self.used_steps,
            step=None if step is None else step * self.network.output_scale**2,
        )

    # --- learning

    def learn(self, history: History, watch: Watch = UNWATCHED) -> FitResult:
        if self.sparse is not None:
            return SparseTraining(self, history.samples().contexts).learn(history, watch)
        return self.learn_dense(history, watch)

    def learn_dense(self, history: History, watch: Watch) -> FitResult:
        """Return what `learn` does of contexts that are rows of all their numbers."""
        ready = self.with_fitted_scale()
        samples = self.training_set(history, ready.scale)
        if samples.overflow:
            return FitResult(self, samples.overflow)
        outcome = self.train(samples, watch)
        return self.fit_result(ready.trained(outcome, samples.scale), outcome, samples, history)

    def training_set(self, history: History, scale: ContextScale) -> TrainingSet:
        """Return what there is to learn from, on this scale of contexts."""
        rewards, most = self.standardise_rewards, self.training_rows
        return TrainingSet.of(history, scale, rewards=rewards, most=most, clip=self.clip)

    def train(self, samples: TrainingSet, watch: Watch) -> TrainingOutcome:
        """Train the network as the plan says."""
        network, plan, (x, y) = self.network, self.plan, samples.weighted()
        if plan.optimiser == "sgd":
            return train_singly(network, self.weights, x, y, plan, plan.seed, watch)
        start = self.weights if plan.warm_start else None
        return train(network, self.initial, x, y, plan, self.direction, start, watch)

    def trained(self, outcome: TrainingOutcome, rewards: RewardScale) -> Self:
        """Return the learner with what a training on this scale of rewards left."""
        step, steps = outcome.report.step_size, outcome.report.steps
        weights, direction = outcome.weights, outcome.direction
        return replace(self, weights=weights, rewards=rewards, direction=direction, used_step=step, used_steps=steps)

    def fit_result(self, learner: Self, outcome: TrainingOutcome, samples: TrainingSet, history: History) -> FitResult:
        """Return the next version; Z is rebuilt with its features if the scale of contexts changed."""
        rescaled, count = self.scale.changed_columns(learner.scale), len(samples.rows)
        trained = None if count == history.counted else count
        report = replace(outcome.report, trained=trained, clipped=samples.clipped)
        # While no weights but θ_0 have decided, Z has the features at θ_0.
        untrained = all(map(np.array_equal, self.weights, self.initial))
        basis = replace(learner, weights=self.initial) if untrained else learner
        return FitResult(learner, outcome.reason, basis if rescaled else None, rescaled, report)

    def reward_task(self, history: History, new: int) -> RewardTask | None:
        most = self.training_rows
        return None if most is None else RewardTask(None, most, min(most, TUNED_ROWS), history.logged)

    # --- saving

    def state(self) -> tuple[dict[str, Any], Arrays]:
        numbers, arrays = self.scale.state()
        numbers |= {"reward_center": self.rewards.center, "reward_spread": self.rewards.spread}
        numbers["shuffle_seed"] = self.plan.seed
        for name in ("initial", "weights", "direction"):
            arrays |= {f"{name}{i}": w for i, w in enumerate(getattr(self, name) or ())}
        return numbers, arrays

    def restored(self, saved: Fields) -> Self:
        def layers(name: str, dtype: DType = "float") -> tuple[Array, ...]:
            return tuple(saved.array(f"{name}{i}", shape, dtype) for i, shape in enumerate(self.network.shapes))

        precision: DType = "single" if self.plan.precision == "float32" else "float"
        with saved:  # a subclass has read before what it has besides
            return replace(
                self,
                initial=layers("initial"),
                weights=layers("weights"),
                scale=self.scale.restored(saved),
                rewards=RewardScale.restored(saved),
                plan=replace(self.plan, seed=saved.whole("shuffle_seed", most=LARGEST_WHOLE)),
                direction=layers("direction", precision) if "direction0" in saved else None,
            )


class SparseTraining:
    """A training in the space that sparse samples span, (n, 2w).

    Gradients of W_1 and of the skip path are sums of samples, so weights leave θ_0 in that space only, and steps and
    penalty are the same in any orthonormal coordinates of it. `inside` is the learner in such coordinates, in which it
    predicts the same.
    """

    def __init__(self, whole: NetworkLearner, contexts: Array) -> None:
        assert whole.sparse is not None
        self.whole, self.space = whole, SeenSpace.of_sample(whole.sparse, contexts)
        self.inside = replace(
            whole,
            network=replace(whole.network, dim=self.space.scaled_dim),
            initial=self._inner(whole.initial),
            weights=self._inner(whole.weights),
            direction=None if whole.direction is None else self._inner(whole.direction),
            scale=ContextScale(self.space),
        )

    def learn(self, history: History, watch: Watch) -> FitResult:
        """Return a fit in the space as one of packed contexts."""
        fit = self.inside.learn(history, watch)
        if fit.reason:
            return replace(fit, learner=self.whole, basis=None)
        basis = None if fit.basis is None else self._outside(fit.basis)
        return replace(fit, learner=self._outside(fit.learner), basis=basis)

    def _outside(self, trained: Any) -> Any:
        """Return a learner that was trained in the space as one of the packed contexts."""
        whole, inside = self.whole, self.inside
        zeros, none = (tuple(np.zeros_like(layer) for layer in layers) for layers in (inside.initial, whole.initial))
        direction = trained.direction
        return replace(
            trained,
            network=replace(trained.network, dim=whole.network.dim),
            initial=whole.initial,
            weights=self._outer(trained.weights, inside.initial, whole.initial),
            direction=None if direction is None else self._outer(direction, zeros, none),
            scale=whole.scale,
        )

    def _inner(self, layers: Any) -> Any:
        space, m = self.space, self.whole.network.hidden
        skip = layers[1][:, m:] if self.whole.network.skip is None else space.turned(layers[1][:, m:][:, space.seen])
        return np.ascontiguousarray(space.turned(layers[0][:, space.seen])), np.hstack((layers[1][:, :m], skip))

    def _outer(self, layers: Weights, start: Weights, others: Weights) -> Weights:
        """Return layers of the packed contexts: `others`, moved as `layers` have left `start` in the space."""
        space, m = self.space, self.whole.network.hidden
        first, last = (np.array(layer, part.dtype) for layer, part in zip(others, layers, strict=True))
        first[:, space.seen] += space.turned_back(layers[0] - start[0])
        last[:, :m] = layers[1][:, :m]
        if self.whole.network.skip is not None:
            last[:, m + space.seen] += space.turned_back(layers[1][:, m:] - start[1][:, m:])
        return first, last


@dataclass(frozen=True)
class LastLayerLearner(NetworkLearner):
    """NeuralLinear: a network learns what to look at, and Bayesian linear regression on that decides.

    a   (n, m)   last hidden layer at the version's weights (with a skip path: and s·x), which is the feature
    ĉ            (λI + Σ aaᵀ)⁻¹ Σ a r̃   over the rounds whose rewards are in
    """

    coefficients: Array = field(default_factory=lambda: np.zeros(0))
    """ĉ, in units of u; none before the first update, where the mean is 0."""

    @property
    def widths(self) -> Widths:
        return self.network.shapes[-1:]

    def assess(self, contexts: Array) -> tuple[Array, Factors]:
        factors = super().assess(contexts)[1].last_layer()
        a = factors.inputs[0]
        values = a @ self.coefficients if len(self.coefficients) else np.zeros(len(a))
        return self.rewards.center + self.rewards.spread * self.network.output_scale * values, factors

    def learn(self, history: History, watch: Watch = UNWATCHED) -> FitResult:
        fit = super().learn(history, watch)
        if fit.reason:
            return fit
        learner: Any = fit.learner
        _, contexts, rewards, weights = history.samples()
        targets = (rewards - learner.rewards.center) / (learner.rewards.spread * self.network.output_scale)
        a = learner.assess(contexts)[1].weighted(weights).vectors()
        targets = targets if weights is None else targets * np.sqrt(weights)
        coefficients = ridge_solution(self.plan.ridge * np.eye(a.shape[1]) + a.T @ a, a.T @ targets)
        fitted = replace(learner, coefficients=coefficients)
        return replace(fit, learner=fitted, basis=fitted)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        numbers, arrays = super().state()
        return numbers, arrays | {"coefficients": self.coefficients}

    def restored(self, saved: Fields) -> Self:
        coefficients = saved.array("coefficients", (None,))
        fits = len(coefficients) in (0, self.network.shapes[-1][1])
        saved.check(fits, "coefficients of the last layer, or none,")
        return replace(super().restored(saved), coefficients=coefficients)
