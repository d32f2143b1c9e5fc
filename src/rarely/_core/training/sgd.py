"""Descent on single samples, as the public NeuralUCB program of Zhou et al. (2020) trains: preset `code`.

    θ ← θ − η(2δ∇f(x_i; θ) + λθ),  δ = f(x_i; θ) − r_i

    J   steps      in all      one shuffle of the samples, cycled
    η   step_size  on δ²       None: 1/(2 max ‖∇f(x_i)‖² + λ) at the start
    θ   weights    start at the last version's, and decay toward 0, not toward θ_0

An epoch whose mean loss is below 1e-3 is the last. Single samples are noisy, so the loss of all of them
may rise: a training is accepted if its loss is finite, and repeated with a smaller step if it is not.
"""

from __future__ import annotations

import numpy as np

from rarely._core.model.network import Network, Weights
from rarely._core.training.gradient_descent import (
    ATTEMPTS,
    HOPELESS,
    SHRINK,
    TrainingOutcome,
    TrainingPlan,
    TrainingReport,
)
from rarely._core.training.objective import Objective
from rarely._core.training.watch import UNWATCHED, Watch
from rarely._core.types import Array

CONVERGED = 1e-3  # an epoch whose mean loss is at most this ends the training
STRETCH = 100  # samples between two looks at the clock, with a budget of seconds


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

    >>> net = Network(dim=2, hidden=8, biases=True, scaling="standard", initial="uniform")
    >>> theta = net.initial_weights(np.random.default_rng(0))
    >>> out = train_singly(net, theta, np.eye(2), np.array([1.0, -1.0]), TrainingPlan(ridge=0.001, step_size=0.1))
    >>> out.accepted, bool(out.report.final_loss < 0.1 * out.report.initial_loss)
    (True, True)
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
        if j and j % STRETCH == 0 and watch.over():
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
