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

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rarely.core import compiled
from rarely.core.errors import check_choice, check_positive, check_whole
from rarely.core.network import Network, Weights
from rarely.core.types import Array, Floats

STABLE = 1.8
"""A gradient step is stable below 2 over the curvature."""
SHRINK = 0.25
ATTEMPTS = 24
"""The smallest step tried is SHRINK**(ATTEMPTS − 1) ≈ 1e-14 of the first: rewards of 1e6 need about 1e-6."""
HOPELESS = 1e3
"""A loss this many times the initial one ends an attempt early."""
CACHE_BYTES = 2**18
"""A tile's widest array should stay in the second-level cache through a pass."""

Optimiser = Literal["gradient_descent", "sgd"]
Precision = Literal["float32", "float64"]


@dataclass(frozen=True, slots=True)
class Plan:
    """How to train, checked when it is made."""

    ridge: float
    """λ"""
    steps: int = 200
    """J"""
    step_size: float | None = None
    """The paper's η; None takes it from the curvature."""
    optimiser: Optimiser = "gradient_descent"
    """"gradient_descent" is `train`; "sgd" is `rarely.core.sgd.train_singly`."""
    precision: Precision = "float64"

    def __post_init__(self) -> None:
        check_whole("steps", self.steps, 0)
        if self.step_size is not None:
            check_positive("step_size", self.step_size, "or None, which takes it from the curvature")
        check_choice("optimiser", self.optimiser, Optimiser)
        check_choice("precision", self.precision, Precision)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a training came to; `reason` says why it was rejected, and is empty when it was not."""

    weights: Weights
    reason: str
    step_size: float
    """η of the last attempt, in the paper's units."""
    attempts: int
    initial_loss: float
    final_loss: float
    """Both are ℒ/m of the last attempt."""
    direction: Weights | None
    """The top eigenvector of ΦᵀΦ, of any length, where the next estimate of the curvature starts."""

    @property
    def accepted(self) -> bool:
        """Whether the weights may be used."""
        return not self.reason


class Objective:
    """ℒ/m and its gradient over all samples, computed in tiles so that memory does not grow with n."""

    def __init__(
        self, network: Network, initial: Weights, contexts: Array, rewards: Array, ridge: float, dtype: type
    ) -> None:
        self.network, self.ridge, self.dtype = network, ridge, dtype
        self.initial: Weights = tuple(w.astype(dtype) for w in initial)
        self.contexts: Floats = contexts.astype(dtype, copy=False)
        self.targets: Floats = (rewards / network.output_scale).astype(dtype)
        widest = max(max(shape) for shape in network.shapes)
        rows = max(64, CACHE_BYTES // (widest * np.dtype(dtype).itemsize))
        self._rows = min(rows, max(1, len(contexts)))
        self._work = network.workspace(self._rows, dtype)

    @property
    def fused(self) -> bool:
        """Whether the compiled descent can take it: one hidden layer without biases, some samples."""
        plain = self.network.depth == 2 and not self.network.biases
        return plain and self.samples > 0 and compiled.available()

    @property
    def samples(self) -> int:
        """n."""
        return len(self.targets)

    def _tiles(self) -> Iterator[tuple[Floats, Floats]]:
        for start in range(0, self.samples, self._rows):
            tile = slice(start, start + self._rows)
            yield self.contexts[tile], self.targets[tile]

    def _penalty(self, weights: Weights) -> float:
        moved = sum(float(np.sum(np.square(w - w0))) for w, w0 in zip(weights, self.initial, strict=True))
        return self.ridge * moved / 2

    def loss(self, weights: Weights) -> float:
        """ℒ/m."""
        total = self._penalty(weights)
        for contexts, targets in self._tiles():
            residuals = self.network.forward(weights, contexts, self._work) - targets
            total += float(residuals @ residuals) / 2
        return total

    def loss_and_gradient(self, weights: Weights) -> tuple[float, Weights]:
        """ℒ/m and ∇ℒ/m."""
        gradient = tuple(self.ridge * (w - w0) for w, w0 in zip(weights, self.initial, strict=True))
        total = self._penalty(weights)
        for contexts, targets in self._tiles():
            residuals = self.network.forward(weights, contexts, self._work) - targets
            total += float(residuals @ residuals) / 2
            self._add_backward(weights, residuals, gradient)
        return total, gradient

    def sample_gradient(self, weights: Weights, sample: int) -> tuple[float, Weights]:
        """u − y of one sample, and (u − y)·φ."""
        gradient = tuple(np.zeros_like(w) for w in weights)
        residuals = self.network.forward(weights, self.contexts[sample : sample + 1], self._work)
        residuals = residuals - self.targets[sample]
        self._add_backward(weights, residuals, gradient)
        return float(residuals[0]), gradient

    def _add_backward(self, weights: Weights, residuals: Floats, into: Weights) -> None:
        """Add Φᵀ residuals of the tile that the last forward pass saw: a gradient is weighted features."""
        rows = len(residuals)
        self.network.backward(weights, rows, self._work)
        for layer, (out, a, d) in enumerate(zip(into, self._work.inputs, self._work.signals, strict=True)):
            product = _weighted_product(d[:rows], a[:rows], residuals)
            if layer == self.network.depth - 2:
                product *= self.network.gain(weights)[:, None]
            out += product

    def top_curvature(self, start: Weights | None) -> tuple[float, Weights | None]:
        """λ_max(ΦᵀΦ) at θ_0 by power iteration, and its eigenvector; 0 and None where Φ is 0.

        The kernel's entries are mostly positive, so Φᵀ1 is a good start (with a ripple, lest it be
        orthogonal); later updates start from the last eigenvector and need two or three turns.
        """
        if start is None:
            start = tuple(np.zeros_like(w) for w in self.initial)
            offset = 0
            for contexts, targets in self._tiles():
                self.network.forward(self.initial, contexts, self._work)
                ripple = 1 + 0.1 * np.cos(np.arange(offset, offset + len(targets)))
                self._add_backward(self.initial, ripple.astype(self.dtype), start)
                offset += len(targets)
        vector: Weights = tuple(w.astype(self.dtype) for w in start)
        value = 0.0
        for _ in range(30):
            length = np.sqrt(sum(float(np.sum(np.square(v))) for v in vector))
            if not 0 < length < np.inf:
                return value, None
            vector = tuple(v / self.dtype(length) for v in vector)
            previous, (value, vector) = value, self._curvature_times(vector)
            if abs(value - previous) <= 0.003 * value:
                break
        return value, vector

    def largest_sample_curvature(self, weights: Weights) -> float:
        """max ‖φ_i‖²: what limits a step on one sample."""
        tiles = (self.network.values_and_factors(weights, np.asarray(x, np.float64)) for x, _ in self._tiles())
        return max((float(factors.squared_norms().max()) for _, factors in tiles), default=0.0)

    def _curvature_times(self, vector: Weights) -> tuple[float, Weights]:
        """vᵀΦᵀΦv and ΦᵀΦv, for a unit vector v in the shape of the weights."""
        product: Weights = tuple(np.zeros_like(v) for v in vector)
        total = 0.0
        for contexts, targets in self._tiles():
            rows = len(targets)
            self.network.forward(self.initial, contexts, self._work)
            self.network.backward(self.initial, rows, self._work)
            slopes: Floats = np.zeros(rows, self.dtype)
            for layer, (v, a, d) in enumerate(zip(vector, self._work.inputs, self._work.signals, strict=True)):
                if layer == self.network.depth - 2:
                    v = self.network.gain(self.initial)[:, None] * v
                slopes += np.einsum("ij,ij->i", a[:rows] @ v.T, d[:rows])
            total += float(slopes @ slopes)
            self._add_backward(self.initial, slopes, product)
        return total, product


def train(
    network: Network,
    initial: Weights,
    contexts: Array,
    rewards: Array,
    plan: Plan,
    direction: Weights | None = None,
) -> Outcome:
    """J steps from θ_0 on ℒ; accepted if finite and the final loss is at most the initial one.

    A training that is refused says why. `direction` is where the estimate of the curvature starts.

    >>> net = Network(dim=2, hidden=8)
    >>> theta = net.initial_weights(np.random.default_rng(0))
    >>> out = train(net, theta, np.eye(2), np.array([1.0, -1.0]), Plan(ridge=0.01))
    >>> out.accepted, out.attempts, bool(out.final_loss < 0.1 * out.initial_loss)
    (True, 1, True)
    """
    objective = Objective(network, initial, contexts, rewards, plan.ridge, np.dtype(plan.precision).type)
    curvature, direction = objective.top_curvature(direction)
    scale = network.output_scale**2
    step = plan.step_size * scale if plan.step_size is not None else STABLE / (curvature + plan.ridge)
    initial_loss = objective.loss(objective.initial)
    allowed = initial_loss * (1 + 1e-9) + _rounding_floor(objective, curvature)
    reason, final_loss, weights = "", initial_loss, objective.initial
    for attempt in range(1, ATTEMPTS + 1):
        # A step that is too large overflows on its way; the loss tells.
        with np.errstate(over="ignore", invalid="ignore"):
            weights = _descend(objective, step, plan.steps, HOPELESS * allowed)
            final_loss = objective.loss(weights)
        if final_loss <= allowed:
            reason = ""
            break
        reason = (
            f"the loss did not fall in {attempt} attempts with steps down to η = {step / scale:.3g}: "
            f"from {initial_loss:.6g} to {final_loss:.6g}"
        )
        step *= SHRINK if attempt < ATTEMPTS else 1.0
    return Outcome(
        weights=tuple(w.astype(np.float64) for w in weights),
        reason=reason,
        step_size=step / scale,
        attempts=attempt,
        initial_loss=initial_loss,
        final_loss=final_loss,
        direction=direction,
    )


def _weighted_product(signals: Floats, inputs: Floats, row_weights: Floats) -> Floats:
    """Σ_i w_i δ_i a_iᵀ; the weights go to the narrower side."""
    column = row_weights[:, None]
    if signals.shape[1] < inputs.shape[1]:
        return (signals * column).T @ inputs
    return signals.T @ (inputs * column)


def _descend(objective: Objective, step: float, steps: int, hopeless: float) -> Weights:
    """J steps from θ_0; stops where the loss has become hopeless or is no number."""
    if objective.fused:
        return compiled.descend(
            objective.initial, objective.contexts, objective.targets, objective.ridge, step, steps, hopeless
        )
    weights: Weights = tuple(w.copy() for w in objective.initial)
    scale = objective.dtype(step)
    for _ in range(steps):
        loss, gradient = objective.loss_and_gradient(weights)
        if not loss <= hopeless:
            break
        for w, g in zip(weights, gradient, strict=True):
            g *= scale
            w -= g
    return weights


def _rounding_floor(objective: Objective, curvature: float) -> float:
    """The loss that rounding alone makes out of u = 0: all-zero rewards must not be refused for it."""
    eps = float(np.finfo(objective.dtype).eps)
    return eps**2 * objective.network.hidden * max(objective.samples, 1) * (curvature + objective.ridge)
