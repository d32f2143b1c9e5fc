"""The passes over one hidden layer in C, where the package was built with a compiler; see `passes.c`.

    x  (n, d)    y  (n,)    W  (m, d)    v  (1, m)

NumPy's passes send the n×m activations through the cache several times; here they stay in registers.
Everything is as exact as NumPy's, and rounds differently. `RARELY_COMPILED=0` turns it off.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rarely.core.network import Network, Weights
from rarely.core.objective import Objective
from rarely.core.types import Floats

LIBRARY = Path(__file__).with_name("_passes.so")


@cache
def _library() -> Any:
    if os.environ.get("RARELY_COMPILED") == "0" or not LIBRARY.exists():
        return None
    try:
        library = ctypes.CDLL(str(LIBRARY))
    except OSError:
        return None  # built for another system
    sizes, real = [ctypes.c_long] * 3, ctypes.c_double
    for precision in ("f32", "f64"):
        descend, curve = getattr(library, f"descend_{precision}"), getattr(library, f"curve_{precision}")
        descend.argtypes = [*sizes, *[ctypes.c_void_p] * 6, real, real, ctypes.c_long, real, ctypes.c_int]
        curve.argtypes = [*sizes, *[ctypes.c_void_p] * 5, ctypes.c_int]
        descend.restype = curve.restype = real
    return library


def available() -> bool:
    """Whether the compiled passes are there."""
    return _library() is not None


def threads() -> int:
    """As many as NumPy's BLAS would take."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        if (given := os.environ.get(name, "")).isdigit() and int(given) > 0:
            return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Fused(Objective):
    """The objective of one hidden layer without biases, its passes in C."""

    @staticmethod
    def fits(network: Network) -> bool:
        """Whether the compiled passes are there, and made for it."""
        return available() and network.depth == 2 and not network.biases

    def loss(self, weights: Weights) -> float:
        """ℒ/m."""
        return self.descend(weights, 0.0, 0, np.inf)[1]

    def descend(self, start: Weights, step: float, steps: int, hopeless: float) -> tuple[Weights, float]:
        """J steps from `start`, and the loss where they led; none is taken from a loss beyond `hopeless`."""
        moving = _copied(start)
        arrays = (self._x, self.targets, *self.initial, *moving)
        loss = self._call("descend", arrays, self.ridge, step, steps, hopeless)
        return moving, loss

    def curvature_times(self, vector: Weights) -> tuple[float, Weights]:
        """vᵀΦᵀΦv and ΦᵀΦv, for a unit vector v in the shape of the weights."""
        product = _copied(vector)
        return self._call("curve", (self._x, *self.initial, *product)), product

    @cached_property
    def _x(self) -> Floats:
        return np.ascontiguousarray(self.contexts)

    def _call(self, name: str, arrays: Weights, *numbers: float) -> float:
        function = getattr(_library(), f"{name}_f{8 * np.dtype(self.dtype).itemsize}")
        sizes = (self.samples, self.network.hidden, self.network.dim)
        result = float(function(*sizes, *(array.ctypes.data for array in arrays), *numbers, threads()))
        if result < 0:
            raise MemoryError("the compiled passes found no memory for their buffers")
        return result


def _copied(weights: Weights) -> Weights:
    return tuple(np.array(w, order="C") for w in weights)
