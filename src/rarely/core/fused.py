"""The objective of one hidden layer without biases, its passes in C; see `native/passes.c`.

    x  (n, d)    y  (n,)    W  (m, d)    v  (1, m)

NumPy's passes send the n×m activations through the cache several times; here they stay in registers.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from rarely.core.native import available, library, threads
from rarely.core.network import Network, Weights
from rarely.core.objective import Objective
from rarely.core.types import Floats

STRETCH = 2e10
"""Operations that take some tenths of a second."""


class Fused(Objective):
    """What `Objective` computes, in one go over the samples."""

    @staticmethod
    def fits(network: Network) -> bool:
        """Whether the compiled passes are there, and made for it."""
        return available() and network.depth == 2 and not network.biases

    def loss(self, weights: Weights) -> float:
        """ℒ/m."""
        return self.descend(weights, 0.0, 0, np.inf)[1]

    def descend(self, start: Weights, step: float, steps: int, hopeless: float) -> tuple[Weights, float]:
        """J steps from `start`, and the loss where they led; none is taken from a loss beyond `hopeless`."""
        moving = self._copied(start)
        arrays = (self._x, self.targets, *self.initial, *moving)
        # In stretches, between which Ctrl-C is heard.
        stretch = max(1, int(STRETCH // (4 * self.samples * moving[0].size + 1)))
        while True:
            taken = min(steps, stretch)
            loss = self._call("descend", arrays, self.ridge, step, taken, hopeless)
            steps -= taken
            if not steps or not loss <= hopeless:
                return moving, loss

    def curvature_times(self, vector: Weights) -> tuple[float, Weights]:
        """vᵀΦᵀΦv and ΦᵀΦv, for a unit vector v in the shape of the weights."""
        product = self._copied(vector)
        return self._call("curve", (self._x, *self.initial, *product)), product

    @cached_property
    def _x(self) -> Floats:
        return np.ascontiguousarray(self.contexts)

    def _call(self, name: str, arrays: Weights, *numbers: float) -> float:
        function = getattr(library(), f"{name}_f{8 * np.dtype(self.dtype).itemsize}")
        sizes = (self.samples, self.network.hidden, self.network.dim)
        result = float(function(*sizes, *(array.ctypes.data for array in arrays), *numbers, threads()))
        if result < 0:
            raise MemoryError("the compiled passes found no memory for their buffers")
        return result

    def _copied(self, weights: Weights) -> Weights:
        return tuple(np.array(w, self.dtype, order="C") for w in weights)
