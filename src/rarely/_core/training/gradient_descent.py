"""TrainNN (Algorithm 2), which checks itself: plain descent, descent with momentum, or on single samples.

    ℒ(θ) = Σ (f(x_i; θ) − r_i)²/2 + mλ‖θ − θ_0‖²/2

In units of u = f/√m, with y = r/√m, this is ℒ/m = Σ (u_i − y_i)²/2 + λ‖θ − θ_0‖²/2: the √m leaves the
formulas, and a step η on ℒ is a step ηm on ℒ/m. (A network of standard scaling has 1 in place of m.)

    x_i  contexts   (n, d)   scaled as the network wants them     θ    weights  start at θ_0
    y_i  targets    (n,)     rewards in units of u                λ    ridge    > 0
    J    steps      ()       how many                             ηm   step     on ℒ/m

The printed η diverges at once, because the curvature of ℒ is about m·n. Unless the user sets a step, it is
1.8/(λ_max(ΦΦᵀ) + λ), Φ the features at θ_0; and since curvature grows as the weights grow, a training whose loss did
not fall is repeated with a smaller step, and rejected in the end.

`train_singly` trains as the public NeuralUCB program of Zhou et al. (2020) does, preset "code":

    θ ← θ − η(2δ∇f(x_i; θ) + λθ),  δ = f(x_i; θ) − r_i

from the last version's weights, and with decay toward 0, not toward θ_0. J steps in all follow one shuffle of the
samples, cycled; η is one on δ², 1/(2 max ‖∇f(x_i)‖² + λ) unless it is set. An epoch whose mean loss is below CONVERGED
is the last. Single samples are noisy, so the loss of all of them may rise: a training is accepted if its loss is
finite, and repeated with a smaller step if it is not.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

import numpy as np

from rarely._core.errors import InvalidInput
from rarely._core.model.network import Network, Weights
from rarely._core.training.objective import MomentumState, Objective, fastest_objective
from rarely._core.training.watch import UNWATCHED, USUAL_STEPS, Watch
from rarely._core.types import Array

STABLE, SHRINK = 1.8, 0.25
"""A gradient step is stable below 2 over the curvature. After a failed attempt the step shrinks by this factor."""
MOMENTUM_STABLE, MOMENTUM_SHRINK = 1.0, 0.5
"""The same with momentum, whose steps are stable below 4/3 over the curvature."""
ATTEMPTS = 24  # the smallest step tried is SHRINK**(ATTEMPTS − 1) ≈ 1e-14 of the first: rewards of 1e6 need about 1e-6
HOPELESS = 1e3  # a loss this many times the initial one ends an attempt early
CONVERGED = 1e-3  # an epoch whose mean loss is at most this ends the training
SAMPLES_AT_ONCE = 100  # samples between two looks at the clock, with a budget of seconds

Optimiser = Literal["gradient_descent", "sgd"]
Precision = Literal["float32", "float64"]


@dataclass(frozen=True, slots=True)
class TrainingReport:
    """The numbers of one training; `UpdateRecord` has the same names."""

    step_size: float | None = None  # η of the last attempt, in the paper's units; None without a training
    attempts: int = 0
    initial_loss: float | None = None
    final_loss: float | None = None  # both are ℒ/m of the last attempt
    steps: int | None = None  # J, or the steps taken if a budget of seconds ended the training early
    skip: float | None = None  # the strength s of the skip path
    tuning: str = ""  # why the policy chose this ridge and skip path; "" if the user did
    loops: str = ""  # the loops that trained, as `Objective.loops` names them
    trained: int | None = None  # samples that the network was trained on; None for all of them
    clipped: int | None = None  # rewards that were clipped; None where none may be
    early: str = ""  # what a budget of seconds left undone


NO_TRAINING = TrainingReport()  # the report of a model with a closed-form solution, or if nothing was learned

TRAINING_NUMBERS = tuple(field.name for field in fields(TrainingReport))


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """How to train; `Training` and `Preset` have checked its parts."""

    ridge: float  # λ of the penalty
    steps: int = 200  # J, how many steps are taken
    step_size: float | None = None  # the paper's η; None derives it from the curvature
    optimiser: Optimiser = "gradient_descent"  # "gradient_descent" is `train`; "sgd" is `train_singly`
    precision: Precision = "float64"
    warm_start: bool = False
    """Whether descent starts at the last version's weights: a deviation from the paper, which starts at θ_0."""
    seed: int = 0  # of the order of samples, where a model of the user's draws one
    momentum: bool = False  # whether steps are Nesterov's, which come closer to the minimiser

    def __post_init__(self) -> None:
        if self.warm_start and self.optimiser == "sgd":
            raise InvalidInput(
                "warm_start is for optimiser 'gradient_descent'; 'sgd' always starts from the last weights. "
                "Leave warm_start out."
            )


@dataclass(frozen=True, slots=True)
class TrainingOutcome:
    """The result of a training; `reason` says why it was rejected, and is empty if it was accepted."""

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
    watch: Watch = UNWATCHED,
) -> TrainingOutcome:
    """Take J steps from θ_0 on ℒ; accept them if the final loss is finite and at most the initial one.

    `direction` is where the estimate of the curvature starts. A warm `start`, used if its loss is no higher than
    θ_0's, deviates from the paper; the penalty still pulls to θ_0.
    """
    objective = objective_of(network, initial, contexts, rewards, plan)
    curvature, direction = objective.top_curvature(direction)
    scale = network.output_scale**2
    stable, shrink = (MOMENTUM_STABLE, MOMENTUM_SHRINK) if plan.momentum else (STABLE, SHRINK)
    step = plan.step_size * scale if plan.step_size is not None else stable / (curvature + plan.ridge)
    begin, initial_loss = objective.initial, objective.loss(objective.initial)
    if start is not None:
        warm: Weights = tuple(w.astype(objective.dtype) for w in start)
        warm_loss = objective.loss(warm)
        if warm_loss <= initial_loss:  # new rewards may have made θ_0 the better start
            begin, initial_loss = warm, warm_loss
    allowed = allowed_loss(objective, initial_loss, curvature)
    reason, final_loss, weights, taken = "", initial_loss, objective.initial, plan.steps
    for attempt in range(1, ATTEMPTS + 1):
        # Too large a step overflows on its way; the loss shows it.
        with np.errstate(over="ignore", invalid="ignore"):
            weights, final_loss, taken = _descend(objective, begin, step, plan, HOPELESS * allowed, watch)
        if final_loss <= allowed:
            reason = ""
            break
        reason = refusal(attempt, step / scale, initial_loss, final_loss)
        if watch.over():
            watch.leave_undone("smaller steps were not tried")
            break
        step *= shrink if attempt < ATTEMPTS else 1.0
    if taken < plan.steps and not reason:
        watch.leave_undone(f"the training ended after {taken} of {plan.steps} steps")
    losses, taken = (initial_loss, final_loss), plan.steps if reason else taken
    report = TrainingReport(step / scale, attempt, *losses, taken, network.skip, loops=objective.loops)
    return TrainingOutcome(tuple(w.astype(np.float64) for w in weights), reason, report, direction)


def _descend(
    objective: Objective, begin: Weights, step: float, plan: TrainingPlan, hopeless: float, watch: Watch
) -> tuple[Weights, float, int]:
    """Take the steps of a plan, in parts if the training is watched; the parts give the same numbers as the whole.

    Returns the weights, their loss and the steps taken. A budget of seconds ends at the part of the lowest loss.
    """
    weights, at, loss, done = begin, MomentumState.at_rest(begin), 0.0, 0
    best: tuple[Weights, float, int] | None = None
    parts = USUAL_STEPS if watch.reports else 1
    for part in range(1, parts + 1):
        for count in watch.stretches(plan.steps * part // parts - done):
            if plan.momentum:
                at, loss = objective.descend_with_momentum(at, step, count, hopeless)
                weights = at.weights
            else:
                weights, loss = objective.descend(weights, step, count, hopeless)
            done += count
            if not loss <= hopeless:
                return weights, loss, done
            best = (weights, loss, done) if best is None or loss <= best[1] else best
            if done < plan.steps and watch.over():
                return best
        watch.step()
    return weights, loss, done


def objective_of(network: Network, initial: Weights, contexts: Array, rewards: Array, plan: TrainingPlan) -> Objective:
    """Return the objective of a plan: the network's own, or compiled if possible, by groups if contexts have blocks."""
    own: Objective | None = network.own_objective(initial, contexts, rewards, plan)
    if own is not None:
        return own
    return fastest_objective(network, initial, contexts, rewards, plan.ridge, np.dtype(plan.precision).type)


def allowed_loss(objective: Objective, initial_loss: float, curvature: float) -> float:
    """Return the highest loss with which a training is accepted: the initial one, plus what rounding makes of u = 0."""
    eps = float(np.finfo(objective.dtype).eps)
    floor = eps**2 * objective.network.hidden * max(objective.samples, 1) * (curvature + objective.ridge)
    return initial_loss * (1 + 1e-9) + floor


def refusal(attempts: int, step: float, initial_loss: float, final_loss: float) -> str:
    """Return why a training is rejected."""
    return (
        f"the loss did not fall in {attempts} attempts with steps down to η = {step:.3g}: "
        f"from {initial_loss:.6g} to {final_loss:.6g}"
    )


def train_singly(
    network: Network,
    start: Weights,
    contexts: Array,
    rewards: Array,
    plan: TrainingPlan,
    seed: int = 0,
    watch: Watch = UNWATCHED,
) -> TrainingOutcome:
    """Take J steps on single samples from `start`; the reported loss is Σδ²/2m + λ‖θ‖²/2.

    The shuffle of n samples derives from (seed, n).
    """
    zero = tuple(np.zeros_like(w) for w in start)
    objective = Objective(network, zero, contexts, rewards, plan.ridge, np.dtype(plan.precision).type)
    begin: Weights = tuple(w.astype(objective.dtype) for w in start)
    scale = network.output_scale**2
    step = plan.step_size
    if step is None:
        step = 1.0 / (2 * scale * objective.largest_sample_curvature(begin) + plan.ridge)
    with np.errstate(over="ignore", invalid="ignore"):
        initial_loss = objective.loss(begin)
        # Single samples may end a little higher than they began; a descent that diverges ends far above f = 0.
        allowed = HOPELESS * max(initial_loss, objective.loss(objective.initial))
        for attempt in range(1, ATTEMPTS + 1):
            weights, taken = _walk(objective, begin, step, plan.steps, seed, watch)
            final_loss = objective.loss(weights)
            converged = np.isfinite(final_loss) and final_loss <= allowed
            if converged or attempt == ATTEMPTS or watch.over():
                break
            step *= SHRINK
    reason = "" if converged else f"descent on single samples diverges even with η = {step:.3g}"
    if taken < plan.steps:
        watch.leave_undone(f"the training ended after {taken} of {plan.steps} steps")
    losses = initial_loss, final_loss
    report = TrainingReport(step, attempt, *losses, taken, network.skip, loops=objective.loops)
    return TrainingOutcome(tuple(w.astype(np.float64) for w in weights), reason, report)


def _walk(
    objective: Objective, start: Weights, step: float, steps: int, seed: int, watch: Watch
) -> tuple[Weights, int]:
    """Return the weights and J, or the steps taken before a budget of seconds was used up."""
    weights: Weights = tuple(w.copy() for w in start)
    samples, scale = objective.samples, objective.network.output_scale**2
    if not samples:
        return weights, steps
    order = np.random.default_rng((seed, samples)).permutation(samples)
    keep, pull = objective.dtype(1 - step * objective.ridge), objective.dtype(-2 * step * scale)
    total = 0.0
    for j in range(steps):
        if j and j % SAMPLES_AT_ONCE == 0 and watch.over():
            return weights, j
        residual, gradient = objective.sample_gradient(weights, int(order[j % samples]))
        for w, g in zip(weights, gradient, strict=True):
            w *= keep
            g *= pull
            w += g
        total += scale * residual * residual
        if (j + 1) % samples == 0:
            if total / samples <= CONVERGED:
                break
            total = 0.0
    return weights, steps
