"""A network that learns from a history: trained by a fixed plan, or tuned by held-out rewards."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from rarely.core.choice.confidence_radius import VersionStats
from rarely.core.covariance import Covariance, Widths
from rarely.core.inputs.crossing import Crossed
from rarely.core.inputs.history import History
from rarely.core.inputs.scaling import ContextScale, RewardScale
from rarely.core.model.features import Factors
from rarely.core.model.network import Network, Weights
from rarely.core.model.shared_row import SharedRow
from rarely.core.policies.learner import FitResult, ScaledLearner, TrainingSet
from rarely.core.policies.linear_part import MOST, LinearPart
from rarely.core.policies.trainers import GradientDescent, SelfTuning, SingleSamples, Trainer
from rarely.core.saving.fields import DType, Fields
from rarely.core.training.gradient_descent import TrainingPlan
from rarely.core.training.sampling import training_rows
from rarely.core.training.tuning import SKIP_GRID, STEP_GRID, Tuning
from rarely.core.types import Array, Arrays, BoolArray, IntArray


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
    lowest: float | None = None
    """The smallest reward ever learned from, where it tunes itself: no mean is below it."""

    @property
    def widths(self) -> Widths:
        return self.network.shapes

    @property
    def noise(self) -> float | None:
        return None if self.tuning is None else self.tuning.noise

    def assess(self, contexts: Array) -> tuple[Array, Factors]:
        shared = self._shared_row(contexts)
        if shared is None:
            scaled = self.scale(contexts)
            values, factors = self.network.values_and_factors(self.weights, scaled)
        else:
            values, factors = self.network.values_of_shared(self.weights, shared)
        if self.linear is None:
            return self._plausible(self.rewards.center + self.rewards.spread * values), factors
        if not self.linear.has_scale(self.scale):
            linear = self.linear(contexts)
        else:
            linear = self.linear.of_scaled(scaled) if shared is None else self.linear.of_shared(shared)
        means = linear + self.rewards.center + self.linear.share * self.rewards.spread * values
        return self._plausible(means), factors

    def _plausible(self, means: Array) -> Array:
        """No mean below all rewards: an arm that pays 0 for sure would rule out one that is thought to pay −0.5."""
        return means if self.lowest is None else np.maximum(means, self.lowest)

    def _shared_row(self, contexts: Array) -> SharedRow | None:
        """The parts of contexts that are crossed with one row, where that saves work."""
        affine = self.scale.affine
        if not (isinstance(affine, Crossed) and self.network.shares_rows) or self.scale.clips:
            return None
        return SharedRow.of(affine.plain(contexts), affine.rows, affine.constant)

    def learn(self, history: History) -> FitResult:
        ready = self.scaled()
        linear = self._next_linear(history, ready.scale)
        samples = TrainingSet.of(
            history, ready.scale, rewards=self.standardise_rewards, most=self.training_rows, linear=linear
        )
        if samples.overflow:
            return FitResult(self, samples.overflow)
        outcome, tuning = self._trainer.train(self.network, samples, self.plan)
        network = self.network if tuning is None else replace(self.network, skip=tuning.skip)
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
        report = replace(outcome.report, trained=None if count == history.counted else count)
        return FitResult(learner, outcome.reason, basis, rescaled, report)

    @property
    def _trainer(self) -> Trainer:
        """How the next version is trained."""
        if self.tuning is not None:
            return SelfTuning(self.initial, self.tuning)
        if self.plan.optimiser == "sgd":
            return SingleSamples(self.weights, self.shuffle_seed)
        return GradientDescent(self.initial, self.direction, self.weights if self.plan.warm_start else None)

    def _next_linear(self, history: History, scale: ContextScale) -> LinearPart | None:
        """The linear part of the next version, where there are more samples than train the network."""
        if self.training_rows is None or self.tuning is None or history.forgetting is not None:
            return None
        if scale.affine.scaled_dim > MOST:
            return None
        if self.linear is None and history.arrived <= self.training_rows:
            return None
        return (self.linear or LinearPart.start(scale)).learn(history)

    def _next_lowest(self, history: History) -> float | None:
        """Of all rewards, those that were dropped meanwhile included; None while there are none."""
        smallest = min(history.smallest, math.inf if self.lowest is None else self.lowest)
        return smallest if math.isfinite(smallest) else None

    def needs(self, history: History) -> BoolArray | None:
        """Those that train the network again, where the linear part holds all that it has learned from."""
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
        """With whose features Z is built again: θ_0's while no other weights have decided, else the new ones."""
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

    def restored(self, saved: Fields, history: History, *, trained: bool) -> Self:
        def layers(name: str, dtype: DType = "float") -> tuple[Array, ...]:
            return tuple(saved.array(f"{name}{i}", shape, dtype) for i, shape in enumerate(self.network.shapes))

        with saved:
            network, tuning = self._restored_path(saved, history, trained=trained)
            rewards = RewardScale.restored(saved, fitted=trained and self.standardise_rewards)
            seed = saved.whole("shuffle_seed", most=2**32 - 1) if saved.since(2, "shuffle_seed") else 0
            saved.require(seed == 0 or self.plan.optimiser == "sgd", "shuffle_seed must be 0 where nothing is shuffled")
            precision: DType = "single" if self.plan.precision == "float32" else "float"
            learner = replace(
                self,
                network=network,
                tuning=tuning,
                initial=layers("initial"),
                weights=layers("weights"),
                scale=self.scale.restored(saved, history.total, trained=trained),
                rewards=rewards,
                shuffle_seed=seed,
                direction=layers("direction", precision) if "direction0" in saved else None,
            )
            if "lowest" in saved:  # files from before it was kept lack it, and decide as they did until the next update
                learner = replace(learner, lowest=self._restored_lowest(saved, history, trained=trained))
            if saved.has_part("linear"):
                learner = replace(learner, linear=LinearPart.restored(saved.inner("linear"), self.scale, history))
            fresh = learner.untrained and learner.direction is None and learner.linear is None
            saved.require(trained or fresh, "weights must be the initial ones before anything is learned")
        return learner

    def _restored_lowest(self, saved: Fields, history: History, *, trained: bool) -> float:
        lowest = saved.number("lowest")
        known = history.dropped > 0 or bool((history.rewards == lowest).any())
        saved.require(trained and self.tuning is not None and known, "lowest must be one of the rewards learned from")
        return lowest

    def _restored_path(self, saved: Fields, history: History, *, trained: bool) -> tuple[Network, Tuning | None]:
        """The network with the strength of its saved skip path, and what chose it."""
        if self.tuning is None:
            return self.network, None
        unrolled: Any = history.unrolled()
        tuning, old = Tuning.restored(saved.inner("tuning"), unrolled, trained=trained)
        # Format 1 does not tell the path's strength; with errors in it, it was there from the first round on.
        skip = SKIP_GRID[tuning.path] if old else tuning.skip
        if saved.since(2, "skip"):
            skip = saved.number("skip")
            saved.require(skip in (tuning.skip, SKIP_GRID[tuning.path]), "skip must be the strength of the path in use")
        return replace(self.network, skip=skip), tuning


def _distance(weights: Weights, others: Weights) -> float:
    """‖θ − θ'‖."""
    return math.sqrt(sum(float(np.square(w - v).sum()) for w, v in zip(weights, others, strict=True)))


def _held_out(tuning: Tuning, rows: IntArray) -> tuple[IntArray, Array, Array]:
    """Which of these rising rows the candidate in use has predicted without their rewards, what, and what came."""
    first, end = np.searchsorted(rows, (tuning.first, tuning.first + len(tuning.rewards)))
    places = rows[first:end] - tuning.first
    predicted = tuning.predictions[places, tuning.path, tuning.rung]
    known = ~np.isnan(predicted)
    return first + np.flatnonzero(known), predicted[known], tuning.rewards[places][known]
