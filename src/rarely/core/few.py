"""Few candidates against many past rounds, at the speed of one read of the past; see `native/few.c`.

one decision has K arms: thousands of rows times K columns, a shape on which matrix products spend most of
their time on preparations, and on waiting for each other's threads
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from rarely.core.native import library
from rarely.core.types import Array

LANES = 8
MOST = 2 * LANES
"""Candidates that are few."""


def are_few(candidates: int) -> bool:
    """Whether so many are few, and the compiled loops are there."""
    return 0 < candidates <= MOST and library() is not None


def cross(past: Sequence[Array], new: Sequence[Array]) -> Array:
    """Σ_l (a·b)(δ·ε) of past and new features, (t, n), from (inputs, signals) of each layer in turn."""
    rows, count = len(past[0]), len(new[0])
    width = _width(count)
    old = [np.ascontiguousarray(array) for array in past]
    fresh = [np.zeros((array.shape[1], LANES * width)) for array in new]
    for lanes, array in zip(fresh, new, strict=True):
        lanes[:, :count] = array.T
    widths = (ctypes.c_long * len(old))(*(array.shape[1] for array in old))
    out = np.empty((rows, LANES * width))
    library().cross(width, rows, len(old) // 2, widths, _at(old), _at(fresh), out.ctypes.data)
    return out[:, :count]


def solve(left: list[Array], inverse: list[Array], rhs: Array, rows: int, known: Array | None) -> Array:
    """L⁻¹ rhs for the leading block of that many rows of a `GrowingCholesky`'s panels."""
    count, done = rhs.shape[1], 0 if known is None else len(known)
    width = _width(count)
    y = np.zeros((rows, LANES * width))
    y[done:, :count] = rhs[: rows - done]
    if known is not None:
        y[:done, :count] = known
    library().solve(width, done, rows, _at(left), _at(inverse), y.ctypes.data)
    return y[:, :count]


def _width(count: int) -> int:
    return -(-count // LANES)


def _at(arrays: Sequence[Array]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
