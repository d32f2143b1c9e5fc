"""TrainNN (Algorithm 2), which checks itself.

    ℒ(θ) = Σ (f(x_i; θ) − r_i)²/2 + mλ‖θ − θ_0‖²/2

In units of u = f/√m, with y = r/√m, this is ℒ/m = Σ (u_i − y_i)²/2 + λ‖θ − θ_0‖²/2: the √m leaves the
formulas, and a step η on ℒ is a step ηm on ℒ/m. (A network of standard scaling has 1 in place of m.)

    x_i  contexts   (n, d)   scaled as the network wants them     θ    weights  start at θ_0
    y_i  targets    (n,)     rewards in units of u                λ    ridge    > 0
    J    steps      ()       how many                             ηm   step     on ℒ/m

The printed η diverges at once, for the curvature of ℒ is about m·n. Without a step of the user's own
it is 1.8/(λ_max(ΦΦᵀ) + λ), Φ the features at θ_0; and since curvature grows as the weights grow, a
training whose loss did not fall is tried again with a smaller step, and rejected in the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from rarely.core.errors import InvalidInput, check_choice, check_positive, check_whole
from rarely.core.model.network import Network, Weights
from rarely.core.training import deadline, progress
from rarely.core.training.block_objective import fastest_objective
from rarely.core.training.objective import Objective
from rarely.core.training.report import TrainingReport
from rarely.core.types import Array

STABLE = 1.8
"""A gradient step is stable below 2 over the curvature."""
SHRINK = 0.25
ATTEMPTS = 24
"""The smallest step tried is SHRINK**(ATTEMPTS − 1) ≈ 1e-14 of the first: rewards of 1e6 need about 1e-6."""
HOPELESS = 1e3
"""A loss this many times the initial one ends an attempt early."""

Optimiser = Literal["gradient_descent", "sgd"]
Precision = Literal["float32", "float64"]


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """How to train, checked when it is made."""

    ridge: float
    """λ"""
    steps: int = 200
    """J"""
    step_size: float | None = None
    """The paper's η; None takes it from the curvature."""
    optimiser: Optimiser = "gradient_descent"
    """"gradient_descent" is `train`; "sgd" is `rarely.core.training.sgd.train_singly`."""
    precision: Precision = "float64"
    warm_start: bool = False
    """Whether descent starts at the last version's weights: a deviation from the paper, which starts at θ_0."""

    def __post_init__(self) -> None:
        check_whole("steps", self.steps, 0)
        if self.step_size is not None:
            check_positive("step_size", self.step_size, "or None, which takes it from the curvature")
        check_choice("optimiser", self.optimiser, Optimiser)
        check_choice("precision", self.precision, Precision)
        if self.warm_start and self.optimiser == "sgd":
            raise InvalidInput(
                "warm_start is for optimiser 'gradient_descent'; 'sgd' goes on from the last weights in any case."
            )


@dataclass(frozen=True, slots=True)
class TrainingOutcome:
    """What a training came to; `reason` says why it was rejected, and is empty when it was not."""

    weights: Weights
    reason: str
    report: TrainingReport
    direction: Weights | None = None
    """The top eigenvector of ΦᵀΦ, of any length, where the next estimate of the curvature starts."""

    @property
    def accepted(self) -> bool:
        """Whether the weights may be used."""
        return not self.reason


def train(
    network: Network,
    initial: Weights,
    contexts: Array,
    rewards: Array,
    plan: TrainingPlan,
    direction: Weights | None = None,
    start: Weights | None = None,
) -> TrainingOutcome:
    """J steps from θ_0 on ℒ; accepted if finite and the final loss is at most the initial one.

    A training that is refused says why. `direction` is where the estimate of the curvature starts. A warm
    `start`, taken where its loss is no higher than θ_0's, is not the paper's; the penalty still pulls to θ_0.

    >>> net = Network(dim=2, hidden=8)
    >>> theta = net.initial_weights(np.random.default_rng(0))
    >>> out = train(net, theta, np.eye(2), np.array([1.0, -1.0]), TrainingPlan(ridge=0.01))
    >>> out.accepted, out.report.attempts, bool(out.report.final_loss < 0.1 * out.report.initial_loss)
    (True, 1, True)
    """
    objective = objective_of(network, initial, contexts, rewards, plan)
    curvature, direction = objective.top_curvature(direction)
    scale = network.output_scale**2
    step = plan.step_size * scale if plan.step_size is not None else STABLE / (curvature + plan.ridge)
    begin, initial_loss = objective.initial, objective.loss(objective.initial)
    if start is not None:
        warm: Weights = tuple(w.astype(objective.dtype) for w in start)
        warm_loss = objective.loss(warm)
        if warm_loss <= initial_loss:  # new rewards may have made θ_0 the better start
            begin, initial_loss = warm, warm_loss
    allowed = allowed_loss(objective, initial_loss, curvature)
    reason, final_loss, weights, taken = "", initial_loss, objective.initial, plan.steps
    for attempt in range(1, ATTEMPTS + 1):
        # A step that is too large overflows on its way; the loss tells.
        with np.errstate(over="ignore", invalid="ignore"):
            weights, final_loss, taken = _descend(objective, begin, step, plan.steps, HOPELESS * allowed)
        if final_loss <= allowed:
            reason = ""
            break
        reason = refusal(attempt, step / scale, initial_loss, final_loss)
        if deadline.over():
            deadline.leave_undone("smaller steps were not tried")
            break
        step *= SHRINK if attempt < ATTEMPTS else 1.0
    if taken < plan.steps and not reason:
        deadline.leave_undone(f"the training ended after {taken} of {plan.steps} steps")
    report = TrainingReport(
        step_size=step / scale,
        attempts=attempt,
        initial_loss=initial_loss,
        final_loss=final_loss,
        steps=plan.steps if reason else taken,
        skip=network.skip,
        loops=objective.loops,
    )
    return TrainingOutcome(tuple(w.astype(np.float64) for w in weights), reason, report, direction)


def _descend(
    objective: Objective, begin: Weights, step: float, steps: int, hopeless: float
) -> tuple[Weights, float, int]:
    """`Objective.descend`, in parts where somebody asks how far it is or how long it takes: the same numbers.

    Gives the weights, their loss and the steps taken. A budget of seconds ends it at the part of the lowest loss.
    """
    weights, loss, done = begin, 0.0, 0
    best: tuple[Weights, float, int] | None = None
    parts = progress.USUAL if progress.watched() else 1
    for part in range(1, parts + 1):
        for count in deadline.stretches(steps * part // parts - done):
            weights, loss = objective.descend(weights, step, count, hopeless)
            done += count
            if not loss <= hopeless:
                return weights, loss, done
            best = (weights, loss, done) if best is None or loss <= best[1] else best
            if done < steps and deadline.over():
                return best
        progress.step()
    return weights, loss, done


def objective_of(network: Network, initial: Weights, contexts: Array, rewards: Array, plan: TrainingPlan) -> Objective:
    """What is descended on: compiled where that fits, by groups where contexts have blocks."""
    return fastest_objective(network, initial, contexts, rewards, plan.ridge, np.dtype(plan.precision).type)


def allowed_loss(objective: Objective, initial_loss: float, curvature: float) -> float:
    """The highest loss with which a training is accepted: the initial one, or what rounding makes out of u = 0."""
    eps = float(np.finfo(objective.dtype).eps)
    floor = eps**2 * objective.network.hidden * max(objective.samples, 1) * (curvature + objective.ridge)
    return initial_loss * (1 + 1e-9) + floor


def refusal(attempts: int, step: float, initial_loss: float, final_loss: float) -> str:
    """Why a training is not accepted."""
    return (
        f"the loss did not fall in {attempts} attempts with steps down to η = {step:.3g}: "
        f"from {initial_loss:.6g} to {final_loss:.6g}"
    )
