"""A network that learns from a history: trained by a fixed plan, or tuned by held-out rewards.

`NeuralLearner` is the network with the scales around it. It is trained in one of three ways:

    train          the paper's: J steps on all samples, from θ_0 or from the last weights
    train_singly   the public program's: J steps on single samples, from the last weights
    tune           J and the skip path are chosen by held-out rewards

`LinearPart` is a ridge regression on all rewards ever seen, to which a network adds what it learns from some of them:

    A   matrix   (d, d)   Σ x xᵀ over all rewards        n   learned   how many there are
    b   moment   (d,)     Σ r x                          S   square    Σ r²
    κ   ridge             c = (A + κI)⁻¹ b

Sums take in a reward once, so their cost does not grow with the past, and none of it is lost: the part of rewards that
is linear in the context is learned from all of them. κ is chosen at each update by generalised cross-validation (Golub,
Heath and Wahba, 1979), which the sums alone decide: with A = U diag(a) Uᵀ and g = Uᵀb

    residual(κ) = S − 2 Σ g²/(a + κ) + Σ a·g²/(a + κ)²        degrees(κ) = Σ a/(a + κ)

    κ = argmin residual(κ)/(n − degrees(κ))²

The network is trained on what this leaves, which may be noise alone. So its prediction f counts by the share b that
held-out rewards ask for, less three standard errors: b = b̂ − 3√(Σ(e − b̂f)²f²)/Σ f² from 0 to 1, b̂ = Σ e·f/Σ f² and
e = r − cᵀx. Three, because the same rewards chose f among 24 candidates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from rarely._core.choice.confidence_radius import VersionStats
from rarely._core.covariance import Covariance, Widths
from rarely._core.inputs.arm_blocks import Crossed
from rarely._core.inputs.forgetting import Forgetting
from rarely._core.inputs.history import History, Samples
from rarely._core.inputs.scaling import Affine, ContextScale, RewardScale
from rarely._core.inputs.sparse_rows import SeenSpace, SparseRows
from rarely._core.model.features import Factors
from rarely._core.model.network import Network, Weights
from rarely._core.model.shared_row import SharedRow
from rarely._core.model.sparse_features import values_and_factors
from rarely._core.policies.learner import FitResult, ScaledLearner, TrainingSet
from rarely._core.saving.fields import DType, Fields
from rarely._core.training.gradient_descent import TrainingOutcome, TrainingPlan, descend_to, objective_of, train
from rarely._core.training.sgd import train_singly
from rarely._core.training.tuning import STEP_GRID, Newest, Recall, Tuning, recall, training_rows, tune
from rarely._core.training.watch import UNWATCHED, Watch
from rarely._core.types import Array, Arrays, BoolArray, IntArray

MOST_COLUMNS = 2000
"""Numbers in a scaled context up to which the d² sums of a linear part are kept."""
RIDGES = np.geomspace(1e-2, 1e4, 25)
TRAINING_ROWS = 10_000
"""Samples that a training that tunes itself uses, at most."""
DOUBTS = 3.0
"""Standard errors that are taken off the network's share."""
BLOCK = 4096
"""Contexts that are summed at a time."""


@dataclass(frozen=True)
class LinearPart:
    """A ridge regression on all rewards: a value, of which each update makes the next."""

    scale: ContextScale
    """That of the contexts when the sums began; a later one changes the network alone."""
    matrix: Array
    moment: Array
    square: float
    learned: int
    ridge: float
    coefficients: Array
    share: float = 1.0
    """b: how much of the network's prediction counts."""

    @classmethod
    def start(cls, scale: ContextScale) -> LinearPart:
        """Return the part before any reward."""
        d = scale.affine.scaled_dim
        fixed = ContextScale(scale.affine, clips=scale.clips)
        return cls(fixed, np.zeros((d, d)), np.zeros(d), 0.0, 0, float(RIDGES[0]), np.zeros(d))

    def __call__(self, contexts: Array) -> Array:
        """Return its part of the mean rewards, (n,)."""
        return np.asarray(self.scale(contexts) @ self.coefficients)

    def learn(self, history: History) -> LinearPart | None:
        """Return the part with the rewards that came since; None where the sums overflow."""
        # Before the first sums, the history may have dropped some rewards to keep its limit.
        contexts, rewards = history.arrived_since(self.learned) if self.learned else history.observed()
        matrix, moment = self.matrix.copy(), self.moment.copy()
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, len(rewards), BLOCK):
                x, r = self.scale(contexts[start : start + BLOCK]), rewards[start : start + BLOCK]
                matrix += x.T @ x
                moment += x.T @ r
            square = self.square + float(rewards @ rewards)
        if not (np.isfinite(square) and np.isfinite(matrix).all() and np.isfinite(moment).all()):
            return None
        after = replace(self, matrix=matrix, moment=moment, square=square, learned=history.arrived)
        return after._solved()

    def _solved(self) -> LinearPart:
        values, vectors = np.linalg.eigh(self.matrix)
        values, image = np.maximum(values, 0.0), vectors.T @ self.moment
        kept = values + RIDGES[:, None]
        residuals = self.square - 2 * (image**2 / kept).sum(axis=1) + (values * image**2 / kept**2).sum(axis=1)
        left = np.maximum(self.learned - (values / kept).sum(axis=1), 1.0)
        best = int(np.argmin(np.maximum(residuals, 0.0) / left**2))
        coefficients = vectors @ (image / kept[best])
        return replace(self, ridge=float(RIDGES[best]), coefficients=np.asarray(coefficients))

    def with_share(self, residuals: Array, predictions: Array) -> LinearPart:
        """Return the part with the network's share, given held-out e and f; 0 without any."""
        squares = float(predictions @ predictions)
        if not squares > 0:
            return replace(self, share=0.0)
        share = float(residuals @ predictions) / squares
        doubt = float(np.linalg.norm((residuals - share * predictions) * predictions)) / squares
        return replace(self, share=min(max(share - DOUBTS * doubt, 0.0), 1.0))

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return numbers and arrays, for `restored`."""
        numbers = {"square": self.square, "learned": self.learned, "ridge": self.ridge, "share": self.share}
        arrays = {"matrix": self.matrix, "moment": self.moment, "coefficients": self.coefficients}
        affine = self.scale.affine
        return numbers | {"clips": self.scale.clips}, arrays | {"center": affine.center, "spread": affine.spread}

    @classmethod
    def restored(cls, saved: Fields, scale: ContextScale) -> LinearPart:
        """Return the saved value; `scale` is that of the learner, which has the same shape."""
        affine, d = scale.affine, scale.affine.scaled_dim
        with saved:
            center, spread = saved.array("center", (affine.dim,)), saved.array("spread", (affine.dim,))
            if scale.fits:
                affine = Affine(center, spread, affine.constant)
            return cls(
                ContextScale(affine, clips=saved.flag("clips")),
                saved.array("matrix", (d, d)),
                saved.array("moment", (d,)),
                saved.number("square"),
                saved.whole("learned"),
                saved.number("ridge"),
                saved.array("coefficients", (d,)),
                saved.number("share"),
            )


@dataclass(frozen=True)
class NeuralLearner(ScaledLearner):
    """A network, its weights, and the scales around it."""

    network: Network
    initial: tuple[Array, ...]
    weights: Weights
    scale: ContextScale
    rewards: RewardScale
    plan: TrainingPlan
    standardise_rewards: bool
    direction: Weights | None = None
    used_step: float | None = None
    used_steps: int | None = None
    """Steps of the last training; None before one, and in a policy that was loaded."""
    tuning: Tuning | None = None
    """Where it chooses path and steps itself."""
    shuffle_seed: int = 0
    """From which descent on single samples derives their order."""
    training_rows: int | None = None
    """Samples that an update trains on, at most; None: all of them."""
    linear: LinearPart | None = None
    """Learned from all samples where there are more than that; the network then learns what it leaves."""
    clip: tuple[float, float] | None = None
    """Quantiles beyond which rewards are clipped."""
    chooses_memory: bool = False
    """Whether it chooses itself how much of the past it learns from."""
    lowest: float | None = None
    """The smallest reward ever learned from, where it tunes itself: no mean is below it."""

    @property
    def widths(self) -> Widths:
        if self._sparse is None:
            return self.network.feature_widths
        m, packed = self.network.hidden, self._sparse.dim + 2 * self._sparse.constant
        return ((m + 1, packed), (1, m))  # see `rarely._core.model.sparse_features`

    @property
    def noise(self) -> float | None:
        return None if self.tuning is None else self.tuning.noise

    def assess(self, contexts: Array) -> tuple[Array, Factors]:
        if self._sparse is not None:
            values, factors = values_and_factors(self.network, self.weights, self._sparse.padded(contexts))
            return self._plausible(self.rewards.center + self.rewards.spread * values), factors
        shared = self._shared_row(contexts)
        if shared is None:
            scaled = self.scale(contexts)
            values, factors = self.network.values_and_factors(self.weights, scaled)
        else:
            values, factors = self.network.values_of_shared(self.weights, shared)
        if self.linear is None:
            return self._plausible(self.rewards.center + self.rewards.spread * values), factors
        coefficients, own = self.linear.coefficients, self.linear.scale
        if own.affine is not self.scale.affine or own.clips != self.scale.clips:  # never where the scale was given
            linear = self.linear(contexts)
        else:
            linear = scaled @ coefficients if shared is None else shared.image(coefficients[None])[:, 0]
        means = linear + self.rewards.center + self.linear.share * self.rewards.spread * values
        return self._plausible(means), factors

    def _plausible(self, means: Array) -> Array:
        """Raise means to the lowest reward: an arm that surely pays 0 would rule out one thought to pay −0.5."""
        return means if self.lowest is None else np.maximum(means, self.lowest)

    def _shared_row(self, contexts: Array) -> SharedRow | None:
        """Return the parts of contexts that are crossed with one row, where that saves work."""
        affine = self.scale.affine
        if not (isinstance(affine, Crossed) and self.network.shares_rows) or self.scale.clips:
            return None
        return SharedRow.of(affine.plain(contexts), affine.rows, affine.constant)

    @property
    def _sparse(self) -> SparseRows | None:
        """How contexts are packed, if they are sparse."""
        affine = self.scale.affine
        return affine if isinstance(affine, SparseRows) and not isinstance(affine, SeenSpace) else None

    def _within(self, space: SeenSpace) -> Self:
        """Return the learner in the coordinates of a space of sparse contexts, for which it predicts the same."""
        m = self.network.hidden

        def inner(layers: Any) -> Any:
            skip = space.turned(layers[1][:, m:][:, space.seen]) if self.network.skip is not None else layers[1][:, m:]
            return np.ascontiguousarray(space.turned(layers[0][:, space.seen])), np.hstack((layers[1][:, :m], skip))

        return replace(
            self,
            network=replace(self.network, dim=space.scaled_dim),
            initial=inner(self.initial),
            weights=inner(self.weights),
            direction=None if self.direction is None else inner(self.direction),
            scale=ContextScale(space),
        )

    def _learned_sparse(self, rows: SparseRows, history: History, watch: Watch) -> FitResult:
        """Return what `learn` returns, trained in the space of the samples.

        Gradients of W_1 and of the skip path are sums of samples, so weights leave θ_0 in that space only, and steps
        and penalty are the same in any orthonormal coordinates of it.
        """
        space, m = SeenSpace.of_sample(rows, history.samples().contexts), self.network.hidden
        small = self._within(space)

        def outer(layers: Weights, start: Weights, others: Weights) -> Weights:
            first, last = (np.array(layer, part.dtype) for layer, part in zip(others, layers, strict=True))
            first[:, space.seen] += space.turned_back(layers[0] - start[0])
            last[:, :m] = layers[1][:, :m]
            if self.network.skip is not None:
                last[:, m + space.seen] += space.turned_back(layers[1][:, m:] - start[1][:, m:])
            return first, last

        def on_all(learner: Any) -> Any:
            zeros, none = (tuple(np.zeros_like(layer) for layer in layers) for layers in (small.initial, self.initial))
            return replace(
                learner,
                network=replace(learner.network, dim=self.network.dim),
                initial=self.initial,
                weights=outer(learner.weights, small.initial, self.initial),
                direction=None if learner.direction is None else outer(learner.direction, zeros, none),
                scale=self.scale,
            )

        fit = small.learn(history, watch)
        if fit.reason:
            return replace(fit, learner=self, basis=None)
        return replace(fit, learner=on_all(fit.learner), basis=None if fit.basis is None else on_all(fit.basis))

    def learn(self, history: History, watch: Watch = UNWATCHED) -> FitResult:
        if self._sparse is not None:
            return self._learned_sparse(self._sparse, history, watch)
        ready = self.with_fitted_scale()
        linear = self._next_linear(history, ready.scale)
        samples = TrainingSet.of(
            history,
            ready.scale,
            rewards=self.standardise_rewards,
            most=self.training_rows,
            linear=linear,
            clip=self.clip,
        )
        if samples.overflow:
            return FitResult(self, samples.overflow)
        outcome, tuning = self._trained(samples, watch)
        network = self.network if tuning is None else self.network.on_path(tuning.path_in_use)
        if tuning is not None and linear is not None and samples.offsets is not None:
            held, predicted, came = _held_out(tuning, samples.rows)
            center = samples.scale.center + samples.offsets[held]
            linear = linear.with_share(came - center, predicted - center)
        learner = replace(
            ready,
            weights=outcome.weights,
            network=network,
            rewards=samples.scale,
            tuning=tuning,
            direction=outcome.direction,
            used_step=outcome.report.step_size,
            used_steps=outcome.report.steps,
            linear=linear,
            lowest=None if tuning is None else self._next_lowest(history),
        )
        rescaled, count = self.scale.changed_columns(ready.scale), len(samples.rows)
        # Features of another path are other directions: under the old Z all arms would look unknown again. Where rounds
        # were dropped, a new Z would lose them, which is worse.
        other_path = network.skip != self.network.skip and len(history) == history.total
        rebuilt = bool(rescaled) or self._first or other_path
        basis = self._basis(learner) if rebuilt else None
        trained = None if count == history.counted else count
        report = replace(outcome.report, trained=trained, clipped=samples.clipped)
        return FitResult(learner, outcome.reason, basis, rescaled, report)

    def recall(self, history: History, new: int) -> Recall:
        if not self.chooses_memory or self.tuning is None or not self.tuning.turn:
            return super().recall(history, new)
        samples = history.with_forgetting(None).samples().clipped(self.clip)
        if self._sparse is not None:
            return self._within(SeenSpace.of_sample(self._sparse, samples.contexts)).recall(history, new)
        if len(samples.rows) > TRAINING_ROWS:
            samples = samples.some(np.arange(len(samples.rows) - TRAINING_ROWS, len(samples.rows)))
        predicted = self.assess(samples.contexts)[0]
        newest = Newest(samples, predicted, self.scale(samples.contexts), new)
        return recall(newest, history.forgetting, history.largest_spread**2, self._forecast)

    def _forecast(self, samples: Samples, contexts: Array) -> Array | None:
        """Return what a network with this path and length predicts that is trained on these samples alone."""
        scale = RewardScale.fit(samples.rewards) if self.standardise_rewards else RewardScale()
        rewards = (samples.rewards - scale.center) / scale.spread
        objective = objective_of(self.network, self.initial, self.scale(samples.contexts), rewards, self.plan)
        reached = descend_to(objective, (self.steps,)).reached
        if not reached:
            return None
        values = self.network.values(reached[-1], self.scale(contexts))
        return self._plausible(scale.center + scale.spread * values)

    def _trained(self, samples: TrainingSet, watch: Watch) -> tuple[TrainingOutcome, Tuning | None]:
        """Train the next version, and return what is known about the candidates afterwards, where they are compared."""
        network, plan, (x, y) = self.network, self.plan, samples.weighted()
        if self.tuning is not None:
            known = samples.scale, samples.weights, samples.offsets
            return tune(network, self.initial, x, y, samples.rows, plan, self.tuning, *known, watch)
        if plan.optimiser == "sgd":
            return train_singly(network, self.weights, x, y, plan, self.shuffle_seed, watch), None
        start = self.weights if plan.warm_start else None
        return train(network, self.initial, x, y, plan, self.direction, start, watch), None

    def _next_linear(self, history: History, scale: ContextScale) -> LinearPart | None:
        """Return the linear part of the next version, where there are more samples than train the network."""
        if not self.has_linear(history.forgetting, scale, history.arrived):
            return None
        return (self.linear or LinearPart.start(scale)).learn(history)

    def has_linear(self, forgetting: Forgetting | None, scale: ContextScale, arrived: int) -> bool:
        """Return whether the next version has a linear part, on a new scale and after that many rewards."""
        if self.training_rows is None or self.tuning is None or forgetting is not None or self.clip is not None:
            return False
        sparse = isinstance(scale.affine, SparseRows)
        if scale.affine.scaled_dim > MOST_COLUMNS or sparse or not self.network.linear_part:
            return False
        return self.linear is not None or arrived > self.training_rows

    def _next_lowest(self, history: History) -> float | None:
        """Return the lowest of all rewards, dropped ones included; None while there are none."""
        smallest = min(history.smallest, math.inf if self.lowest is None else self.lowest)
        return smallest if math.isfinite(smallest) else None

    def needs(self, history: History) -> BoolArray | None:
        """Return the rows that train the network again, where the linear part holds all that it has learned from."""
        if self.linear is None:
            return None
        needed, there = np.zeros(len(history), np.bool_), np.flatnonzero(~np.isnan(history.rewards))
        needed[there[training_rows(history.rows[there], self.training_rows)]] = True
        return needed | history.came_after(self.linear.learned)

    def without_rows(self, rows: IntArray) -> Self:
        tuning = self.tuning
        if tuning is None:
            return self
        places = rows - tuning.first
        places = places[(places >= 0) & (places < len(tuning.rewards))]
        predictions, rewards, weights = tuning.predictions.copy(), tuning.rewards.copy(), tuning.weights.copy()
        predictions[places], rewards[places], weights[places] = np.nan, np.nan, 0.0
        return replace(self, tuning=replace(tuning, predictions=predictions, rewards=rewards, weights=weights))

    @property
    def steps(self) -> int:
        """J of the last training, or of the next one before any."""
        if self.used_steps is not None:
            return self.used_steps
        return self.plan.steps if self.tuning is None else STEP_GRID[self.tuning.rung]

    @property
    def _first(self) -> bool:
        """Whether this is the first tuned training: earlier rounds were seen without the path that it chooses."""
        return self.tuning is not None and not self.tuning.turn

    def _basis(self, learner: NeuralLearner) -> NeuralLearner:
        """Return the learner whose features Z is rebuilt with: at θ_0 while no other weights have decided."""
        return replace(learner, weights=self.initial) if self.untrained else learner

    @property
    def untrained(self) -> bool:
        """Whether the weights are the initial ones."""
        return all(np.array_equal(w, v) for w, v in zip(self.weights, self.initial, strict=True))

    def version_stats(self, round: int, covariance: Covariance) -> VersionStats:
        step = self.used_step if self.used_step is not None else self.plan.step_size
        return VersionStats(
            round=round,
            features=covariance.rounds,
            log_det=covariance.frozen_log_det,
            ridge=self.plan.ridge,
            depth=self.network.depth,
            steps=self.steps,
            step=None if step is None else step * self.network.output_scale**2,
            # Until enough was held out, all that is known is the rewards' spread, of which noise is some part.
            noise=self.rewards.spread / 4 if self.noise is None and self.tuning is not None else self.noise,
            norm=self.network.output_scale * self.rewards.spread * _distance(self.weights, self.initial),
        )

    def state(self) -> tuple[dict[str, Any], Arrays]:
        numbers, arrays = self.scale.state()
        numbers |= {
            "reward_center": self.rewards.center,
            "reward_spread": self.rewards.spread,
            "shuffle_seed": self.shuffle_seed,
        }
        arrays |= {f"initial{i}": w for i, w in enumerate(self.initial)}
        arrays |= {f"weights{i}": w for i, w in enumerate(self.weights)}
        if self.direction is not None:
            arrays |= {f"direction{i}": w for i, w in enumerate(self.direction)}
        if self.tuning is not None:
            chosen, tried = self.tuning.state()
            numbers |= {"tuning": chosen, "skip": self.network.skip}
            arrays |= {f"tuning.{name}": array for name, array in tried.items()}
        if self.lowest is not None:
            numbers |= {"lowest": self.lowest}
        if self.linear is not None:
            sums, parts = self.linear.state()
            numbers |= {"linear": sums}
            arrays |= {f"linear.{name}": array for name, array in parts.items()}
        return numbers, arrays

    def restored(self, saved: Fields) -> Self:
        def layers(name: str, dtype: DType = "float") -> tuple[Array, ...]:
            return tuple(saved.array(f"{name}{i}", shape, dtype) for i, shape in enumerate(self.network.shapes))

        precision: DType = "single" if self.plan.precision == "float32" else "float"
        with saved:
            seed = saved.whole("shuffle_seed")
            tuned = {} if self.tuning is None else self._restored_tuning(saved)
            return replace(
                self,
                initial=layers("initial"),
                weights=layers("weights"),
                scale=self.scale.restored(saved),
                rewards=RewardScale.restored(saved),
                shuffle_seed=seed,
                plan=replace(self.plan, seed=seed),
                direction=layers("direction", precision) if "direction0" in saved else None,
                lowest=saved.number("lowest") if "lowest" in saved else None,
                linear=LinearPart.restored(saved.inner("linear"), self.scale) if "linear" in saved else None,
                **tuned,
            )

    def _restored_tuning(self, saved: Fields) -> dict[str, Any]:
        """Return the network with the strength of its saved skip path, and what chose it."""
        tuning = Tuning.restored(saved.inner("tuning"))
        return {"network": replace(self.network, skip=saved.value("skip")), "tuning": tuning}


def _distance(weights: Weights, others: Weights) -> float:
    """Return ‖θ − θ'‖."""
    return math.sqrt(sum(float(np.square(w - v).sum()) for w, v in zip(weights, others, strict=True)))


def _held_out(tuning: Tuning, rows: IntArray) -> tuple[IntArray, Array, Array]:
    """Return which of these rising rows the candidate in use predicted without their rewards, what, and what came."""
    first, end = np.searchsorted(rows, (tuning.first, tuning.first + len(tuning.rewards)))
    places = rows[first:end] - tuning.first
    predicted = tuning.predictions[places, tuning.path, tuning.rung]
    known = ~np.isnan(predicted)
    return first + np.flatnonzero(known), predicted[known], tuning.rewards[places][known]
