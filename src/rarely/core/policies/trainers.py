"""Three ways to train a network, which a learner uses alike.

GradientDescent   the paper's: J steps on all samples, from θ_0 or from the last weights
SingleSamples     the public program's: J steps on single samples, from the last weights
SelfTuning        J and the skip path are chosen by held-out rewards
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from rarely.core.model.network import Network, Weights
from rarely.core.policies.learner import TrainingSet
from rarely.core.training.gradient_descent import TrainingOutcome, TrainingPlan, train
from rarely.core.training.sgd import train_singly
from rarely.core.training.tuning import Tuning, tune


class TrainerResult(NamedTuple):
    """What a trainer gives back."""

    outcome: TrainingOutcome
    tuning: Tuning | None = None
    """What is known about the candidates afterwards, where they are compared."""


class Trainer(Protocol):
    """A way to train; it knows where a training starts."""

    def train(self, network: Network, samples: TrainingSet, plan: TrainingPlan) -> TrainerResult:
        """The weights of the next version."""


@dataclass(frozen=True, slots=True)
class GradientDescent:
    """J steps on ℒ."""

    initial: Weights
    direction: Weights | None = None
    """Where the estimate of the curvature starts."""
    start: Weights | None = None
    """The last weights, where training starts warm."""

    def train(self, network: Network, samples: TrainingSet, plan: TrainingPlan) -> TrainerResult:
        x, y = samples.weighted()
        return TrainerResult(train(network, self.initial, x, y, plan, self.direction, self.start))


@dataclass(frozen=True, slots=True)
class SingleSamples:
    """J steps on one sample each."""

    start: Weights
    seed: int

    def train(self, network: Network, samples: TrainingSet, plan: TrainingPlan) -> TrainerResult:
        x, y = samples.weighted()
        return TrainerResult(train_singly(network, self.start, x, y, plan, self.seed))


@dataclass(frozen=True, slots=True)
class SelfTuning:
    """J and s are those that predict held-out rewards best."""

    initial: Weights
    tuning: Tuning

    def train(self, network: Network, samples: TrainingSet, plan: TrainingPlan) -> TrainerResult:
        x, y = samples.weighted()
        scale, weights, offsets = samples.scale, samples.weights, samples.offsets
        tuned = tune(network, self.initial, x, y, samples.rows, plan, self.tuning, scale, weights, offsets)
        return TrainerResult(*tuned)
