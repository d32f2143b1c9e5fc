"""ℒ/m, its gradient and its curvature over all samples, by NumPy: any depth, and the oracle of what is compiled.

    ℒ/m = Σ (u_i − y_i)²/2 + λ‖θ − θ_0‖²/2        see `rarely.core.training.gradient_descent` for the letters

A pass costs 4·n·m·d operations at one hidden layer; tiles of rows keep its n×m arrays in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from rarely.core.errors import InvalidInput
from rarely.core.model.network import Network, Weights, Workspace
from rarely.core.types import Floats

CACHE_BYTES = 2**18
"""A tile's widest array should stay in the second-level cache through a pass."""
TURNS, ENOUGH = 30, 0.003
"""Of a power iteration: at most so many, and the relative change at which it stops."""


class MomentumState(NamedTuple):
    """Where a descent with momentum is."""

    weights: Weights
    ago: Weights
    """The weights one step before."""
    steps: int = 0
    """Taken so far."""

    @classmethod
    def at_rest(cls, weights: Weights) -> MomentumState:
        """Before the first step."""
        return cls(weights, weights)


class Objective:
    """ℒ/m and its gradient over all samples, computed in tiles so that memory does not grow with n."""

    @property
    def loops(self) -> str:
        """The form of the loops that compute it, as `rarely.core.native.form` names them."""
        return "numpy"

    def __init__(
        self, network: Network, initial: Weights, contexts: Floats, rewards: Floats, ridge: float, dtype: type
    ) -> None:
        if contexts.shape != (len(rewards), network.dim):
            raise InvalidInput(
                f"training needs contexts of shape ({len(rewards)}, {network.dim}), a row for each reward and a column "
                f"for each input of the network; got {contexts.shape}."
            )
        self.network, self.ridge, self.dtype = network, ridge, dtype
        self.initial: Weights = tuple(np.ascontiguousarray(w, dtype) for w in initial)
        self.contexts: Floats = contexts.astype(dtype, copy=False)
        self.targets: Floats = (rewards / network.output_scale).astype(dtype)
        widest = max(max(shape) for shape in network.shapes)
        rows = max(64, CACHE_BYTES // (widest * np.dtype(dtype).itemsize))
        self._rows = min(rows, max(1, len(contexts)))

    @cached_property
    def _work(self) -> Workspace:
        return self.network.workspace(self._rows, self.dtype)

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

    def descend(self, start: Weights, step: float, steps: int, hopeless: float) -> tuple[Weights, float]:
        """J steps from `start`, and the loss where they led; none is taken from a loss beyond `hopeless`."""
        weights: Weights = tuple(w.copy() for w in start)
        scale = self.dtype(step)
        for _ in range(steps):
            loss, gradient = self.loss_and_gradient(weights)
            if not loss <= hopeless:
                return weights, loss
            for w, g in zip(weights, gradient, strict=True):
                g *= scale
                w -= g
        return weights, self.loss(weights)

    def descend_with_momentum(
        self, start: MomentumState, step: float, steps: int, hopeless: float
    ) -> tuple[MomentumState, float]:
        """The same with Nesterov's momentum: each gradient is taken at θ_k + k/(k + 3)·(θ_k − θ_{k−1}).

        From a loss beyond `hopeless` it comes back to `start`.
        """
        now, ago, taken = start
        scale = self.dtype(step)
        for _ in range(steps):
            onward = self.dtype(taken / (taken + 3))
            ahead = tuple(w + onward * (w - b) for w, b in zip(now, ago, strict=True))
            loss, gradient = self.loss_and_gradient(ahead)
            if not loss <= hopeless:
                return start, loss
            now, ago = tuple(w - scale * g for w, g in zip(ahead, gradient, strict=True)), now
            taken += 1
        loss = self.loss(now)
        return (MomentumState(now, ago, taken) if loss <= hopeless else start), loss

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

        The kernel's entries are mostly positive, so Φᵀ1 is a good start, with a ripple so that it is not
        orthogonal; later updates start from the last eigenvector and need two or three turns.
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
        for _ in range(TURNS):
            length = np.sqrt(sum(float(np.sum(np.square(v))) for v in vector))
            if not 0 < length < np.inf:
                return value, None
            vector = tuple(v / self.dtype(length) for v in vector)
            previous, (value, vector) = value, self.curvature_times(vector)
            if abs(value - previous) <= ENOUGH * value:
                break
        return value, vector

    def largest_sample_curvature(self, weights: Weights) -> float:
        """max ‖φ_i‖²: what limits a step on one sample."""
        tiles = (self.network.values_and_factors(weights, np.asarray(x, np.float64)) for x, _ in self._tiles())
        return max((float(factors.squared_norms.max()) for _, factors in tiles), default=0.0)

    def curvature_times(self, vector: Weights) -> tuple[float, Weights]:
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


def _weighted_product(signals: Floats, inputs: Floats, row_weights: Floats) -> Floats:
    """Σ_i w_i δ_i a_iᵀ; the weights go to the narrower side."""
    column = row_weights[:, None]
    if signals.shape[1] < inputs.shape[1]:
        return (signals * column).T @ inputs
    return signals.T @ (inputs * column)
