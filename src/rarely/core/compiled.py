"""The descent of one hidden layer in C, where the package was built with a compiler; see `passes.c`.

    x   contexts  (n, d)   handed over in blocks of 8 rows, d×8 each
    W   w1        (d, M)   units contiguous, m padded to M whole vectors with units that stay 0
    v   w2        (M,)

NumPy's passes send the n×m activations through memory several times; here they never leave the cache.
`RARELY_COMPILED=0` turns it off.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from rarely.core.types import Floats

ROWS = 8
LINE = 64
"""Bytes of a cache line and of the widest vector."""


@cache
def _library() -> Any:
    path = Path(__file__).with_name("_passes.so")
    if os.environ.get("RARELY_COMPILED") == "0" or not path.exists():
        return None
    try:
        library = ctypes.CDLL(str(path))
    except OSError:
        return None  # built for another system
    for name in ("descend_f32", "descend_f64"):
        function = getattr(library, name)
        function.argtypes = [ctypes.c_int] * 3 + [ctypes.c_void_p] * 6 + [ctypes.c_double] * 2
        function.argtypes += [ctypes.c_int, ctypes.c_double, ctypes.c_int]
        function.restype = ctypes.c_int
    return library


def available() -> bool:
    """Whether the compiled pass is there."""
    return _library() is not None


def threads() -> int:
    """As many as BLAS would take."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        if (given := os.environ.get(name, "")).isdigit() and int(given) > 0:
            return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def descend(
    weights: tuple[Floats, ...], contexts: Floats, targets: Floats, ridge: float, step: float, steps: int, hopeless: float
) -> tuple[Floats, ...]:
    """J steps from θ_0 = `weights` on ℒ/m, stopped where the loss is beyond `hopeless` or no number."""
    dtype = contexts.dtype
    (units, dim), rows = weights[0].shape, len(contexts)
    lanes = LINE // dtype.itemsize
    padded = -(-units // lanes) * lanes
    blocks = np.zeros((-(-rows // ROWS) * ROWS, dim), dtype)
    blocks[:rows] = contexts
    x = _aligned(blocks.reshape(-1, ROWS, dim).transpose(0, 2, 1))
    start = np.zeros((dim + 1, padded), dtype)
    start[:dim, :units], start[dim, :units] = weights[0].T, weights[1][0]
    initial, moving = _aligned(start), _aligned(start)
    function = _library().descend_f32 if dtype == np.float32 else _library().descend_f64
    taken = function(
        *(rows, padded, dim, _at(x), _at(np.ascontiguousarray(targets)), _at(initial), _at(initial[dim:])),
        *(_at(moving), _at(moving[dim:]), ridge, step, steps, hopeless, threads()),
    )
    if taken < 0:
        raise MemoryError("the compiled descent found no memory for its buffers")
    return np.ascontiguousarray(moving[:dim, :units].T), moving[dim:, :units].copy()


def _aligned(array: Floats) -> Floats:
    raw = np.empty(array.nbytes + LINE, np.uint8)
    offset = -raw.ctypes.data % LINE
    out: Floats = raw[offset : offset + array.nbytes].view(array.dtype).reshape(array.shape)
    out[...] = array
    return out


def _at(array: Floats) -> int:
    return int(array.ctypes.data)
