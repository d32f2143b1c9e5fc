"""The objective of a network without biases, its passes in C; see `native/passes.c`.

    x  (n, d)    y  (n,)    W_1  (m, d)    W_2 … W_{L−1}  (m, m)    W_L  (1, m)

NumPy's passes send the n×m activations through the cache several times; here they stay in its nearest part.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cached_property

import numpy as np

from rarely.core.model.network import Network, Weights
from rarely.core.native import form, in_use, library, threads
from rarely.core.native.loader import TrainingTask
from rarely.core.training.objective import MomentumState, Objective
from rarely.core.types import Floats

STRETCH = 2e10
"""Operations that take some tenths of a second."""
Pointers = ctypes.Array[ctypes.c_void_p]


class CompiledObjective(Objective):
    """What `Objective` computes, in one go over the samples."""

    @staticmethod
    def fits(network: Network) -> bool:
        """Whether the compiled passes are there, and made for it."""
        return in_use() and not network.biases

    @property
    def loops(self) -> str:
        """The instruction set of the compiled form."""
        return form()

    def loss(self, weights: Weights) -> float:
        """ℒ/m."""
        return self.descend(weights, 0.0, 0, np.inf)[1]

    def descend(self, start: Weights, step: float, steps: int, hopeless: float) -> tuple[Weights, float]:
        """J steps from `start`, and the loss where they led; none is taken from a loss beyond `hopeless`."""
        moving = self._copied(start)
        return moving, self._descend(moving, None, 0, step, steps, hopeless)

    def descend_with_momentum(
        self, start: MomentumState, step: float, steps: int, hopeless: float
    ) -> tuple[MomentumState, float]:
        """The same with Nesterov's momentum."""
        now, ago = self._copied(start.weights), self._copied(start.ago)
        loss = self._descend(now, ago, start.steps, step, steps, hopeless)
        return (MomentumState(now, ago, start.steps + steps) if loss <= hopeless else start), loss

    def _descend(
        self, moving: Weights, ago: Weights | None, done: int, step: float, steps: int, hopeless: float
    ) -> float:
        pointers = _at(self.initial), _at(moving), None if ago is None else _at(ago)
        task = self._task(*pointers)
        task.step_size, task.hopeless = step, hopeless
        # In stretches, between which Ctrl-C is heard.
        stretch = max(1, int(STRETCH // (4 * self.samples * self.network.parameters + 1)))
        while True:
            task.taken, task.steps = done, min(steps, stretch)
            loss = _run(library().rarely_descend, task)
            steps, done = steps - task.steps, done + task.steps
            if not steps or not loss <= hopeless:
                return loss

    def curvature_times(self, vector: Weights) -> tuple[float, Weights]:
        """vᵀΦᵀΦv and ΦᵀΦv, for a unit vector v in the shape of the weights."""
        if self.network.depth > 2:
            return super().curvature_times(vector)
        product = self._copied(vector)
        pointers = _at(self.initial), _at(product)
        return _run(library().rarely_curvature, self._task(*pointers)), product

    def _task(self, initial: Pointers, weights: Pointers, previous: Pointers | None = None) -> TrainingTask:
        return TrainingTask(
            number_bytes=np.dtype(self.dtype).itemsize,
            samples=self.samples,
            dim=self.network.dim,
            units=self.network.hidden,
            hidden_layers=self.network.depth - 1,
            threads=threads(),
            contexts=self._x.ctypes.data,
            targets=self.targets.ctypes.data,
            initial=ctypes.addressof(initial),
            weights=ctypes.addressof(weights),
            previous=None if previous is None else ctypes.addressof(previous),
            skip=-1.0 if self.network.skip is None else self.network.skip,
            ridge=self.ridge,
        )

    @cached_property
    def _x(self) -> Floats:
        return np.ascontiguousarray(self.contexts)

    def _copied(self, weights: Weights) -> Weights:
        return tuple(np.array(w, self.dtype, order="C") for w in weights)


def _at(weights: Weights) -> Pointers:
    return (ctypes.c_void_p * len(weights))(*(w.ctypes.data for w in weights))


def _run(function: Callable[..., int], task: TrainingTask) -> float:
    if function(task):
        raise MemoryError("the compiled passes found no memory for their buffers")
    return float(task.result)
