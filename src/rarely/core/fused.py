"""The objective of a network without biases, its passes in C; see `native/passes.c`.

    x  (n, d)    y  (n,)    W_1  (m, d)    W_2 … W_{L−1}  (m, m)    W_L  (1, m)

NumPy's passes send the n×m activations through the cache several times; here they stay in its nearest part.
"""

from __future__ import annotations

import ctypes
from functools import cached_property

import numpy as np

from rarely.core.native import available, library, threads
from rarely.core.network import Network, Weights
from rarely.core.objective import Motion, Objective
from rarely.core.types import Floats

STRETCH = 2e10
"""Operations that take some tenths of a second."""


class Fused(Objective):
    """What `Objective` computes, in one go over the samples."""

    @staticmethod
    def fits(network: Network) -> bool:
        """Whether the compiled passes are there, and made for it."""
        return available() and not network.biases

    def loss(self, weights: Weights) -> float:
        """ℒ/m."""
        return self.descend(weights, 0.0, 0, np.inf)[1]

    def descend(self, start: Weights, step: float, steps: int, hopeless: float) -> tuple[Weights, float]:
        """J steps from `start`, and the loss where they led; none is taken from a loss beyond `hopeless`."""
        moving = self._copied(start)
        return moving, self._descend(moving, None, 0, step, steps, hopeless)

    def glide(self, start: Motion, step: float, steps: int, hopeless: float) -> tuple[Motion, float]:
        """The same with Nesterov's momentum."""
        now, ago = self._copied(start.weights), self._copied(start.ago)
        loss = self._descend(now, ago, start.steps, step, steps, hopeless)
        return (Motion(now, ago, start.steps + steps) if loss <= hopeless else start), loss

    def _descend(
        self, moving: Weights, ago: Weights | None, done: int, step: float, steps: int, hopeless: float
    ) -> float:
        sizes = (self.samples, self.network.depth - 1, *self._shape)
        arrays = (self._x.ctypes.data, self.targets.ctypes.data, _at(self.initial), _at(moving))
        momentum = None if ago is None else _at(ago)
        # In stretches, between which Ctrl-C is heard.
        stretch = max(1, int(STRETCH // (4 * self.samples * self.network.parameters + 1)))
        while True:
            taken = min(steps, stretch)
            numbers = (self._skip, self.ridge, step)
            loss = self._call("descend", *sizes, *arrays, momentum, done, *numbers, taken, hopeless)
            steps, done = steps - taken, done + taken
            if not steps or not loss <= hopeless:
                return loss

    def curvature_times(self, vector: Weights) -> tuple[float, Weights]:
        """vᵀΦᵀΦv and ΦᵀΦv, for a unit vector v in the shape of the weights."""
        if self.network.depth > 2:
            return super().curvature_times(vector)
        product = self._copied(vector)
        arguments = (self._x.ctypes.data, _at(self.initial), _at(product))
        return self._call("curve", self.samples, *self._shape, *arguments, self._skip), product

    @property
    def _skip(self) -> float:
        return -1.0 if self.network.skip is None else self.network.skip

    @property
    def _shape(self) -> tuple[int, int]:
        return self.network.hidden, self.network.dim

    @cached_property
    def _x(self) -> Floats:
        return np.ascontiguousarray(self.contexts)

    def _copied(self, weights: Weights) -> Weights:
        return tuple(np.array(w, self.dtype, order="C") for w in weights)

    def _call(self, name: str, *arguments: object) -> float:
        function = getattr(library(), f"{name}_f{8 * np.dtype(self.dtype).itemsize}")
        result = float(function(*arguments, threads()))
        if result < 0:
            raise MemoryError("the compiled passes found no memory for their buffers")
        return result


def _at(weights: Weights) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(weights))(*(w.ctypes.data for w in weights))
