"""Candidates against past rounds in C, each candidate a lane of a vector; see `native/scores.c`.

One decision has K arms: thousands of rows times K columns, a shape on which matrix products spend most of
their time on preparations, and on waiting for each other's threads. Many columns are products at full
speed, but their element-wise parts would pass through memory once more for each layer.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from rarely._core.growable_array import address
from rarely._core.native import form, in_use, library, threads
from rarely._core.native.loader import struct
from rarely._core.types import Array

LANES = 8  # of a vector; a block has one vector where that is enough, else two
MAX_ROWS = 4  # up to this many candidates stay rows: lanes would not pay
BLAS_ALONE = 9216  # multiplications up to which OpenBLAS wakes no thread, whatever the shape
MAX_CANDIDATES = {"sse2": 16, "neon": 16}  # with more candidates BLAS is faster than vectors of 16 bytes
NO_MEMORY = "the compiled loops could not allocate their buffers"


def compiled(count: int) -> bool:
    """Return whether the compiled loops do the work for that many candidates, or for a matrix of that order."""
    return in_use() and count <= MAX_CANDIDATES.get(form(), math.inf)


def cross(past: Sequence[Array], new: Sequence[Array]) -> Array:
    """Return Σ_l (a·b)(δ·ε) of past and new features, (t, n), from (inputs, signals) of each layer in turn."""
    rows, count = len(past[0]), len(new[0])
    width, blocks = blocks_of(count)
    old = [np.ascontiguousarray(array, np.float64) for array in past]
    fresh = [_lanes(array, width, blocks) for array in new]
    widths = [array.shape[1] for array in old]
    if widths != [array.shape[1] for array in new] or {len(array) for array in old} != {rows}:
        raise ValueError("past and new features must have the same layers, and equally many rows in each")
    sizes = (ctypes.c_ssize_t * len(old))(*widths)
    out = np.empty((rows, blocks * width * LANES) if width else (blocks, rows))
    olds, freshes = _addresses(old), _addresses(fresh)  # named, to outlive the call
    places = (ctypes.addressof(sizes), ctypes.addressof(olds), ctypes.addressof(freshes), address(out))
    workers = threads() if blocks > 1 else 1
    if library().rarely_cross(struct("cross_task")(width, blocks, rows, len(old) // 2, workers, *places)):
        raise MemoryError(NO_MEMORY)
    return out[:, :count] if width else out[:count].T


def product(a: Array, b: Array) -> Array:
    """Return a·bᵀ without waking BLAS threads, which would take a core from our own loops.

    They keep spinning for a while after each large product; a small product wakes none.
    """
    if len(a) * b.size <= BLAS_ALONE or not compiled(min(len(a), len(b))):
        return np.asarray(a @ b.T)
    if len(a) < len(b):  # the lanes are the fewer
        return product(b, a).T
    return cross([a, np.empty((len(a), 0))], [b, np.empty((len(b), 0))])


def room(rows: int, count: int) -> Array:
    """Return an empty (rows, count) array that `solve` can turn into the solution without a copy."""
    width, blocks = blocks_of(count)
    if width:
        whole = np.empty((rows, blocks * width * LANES))
        whole[:, count:] = 0.0
        return whole[:, :count]
    whole = np.empty((blocks, rows))
    if count < blocks:
        whole[count:] = 0.0
    return whole[:count].T


class Panels:
    """The panels of a `GrowingCholesky` and their addresses, which take a fair part of a decision's time to ask for.

    A panel lives as long as its address is kept, whatever another thread does to the factor.
    """

    def __init__(self, left: tuple[Array, ...] = (), inverse: tuple[Array, ...] = ()) -> None:
        self.left, self.inverse = left, inverse
        self.rows = left[-1].shape[1] + len(left[-1]) if left else 0

    def __reduce__(self) -> tuple[type[Panels], tuple[tuple[Array, ...], tuple[Array, ...]]]:
        """Leave out addresses, for `pickle` and `copy`: the arrays of a copy lie elsewhere."""
        return Panels, (self.left, self.inverse)

    @cached_property
    def addresses(self) -> ctypes.Array[ctypes.c_void_p]:
        """Those of the left parts, then those of the inverses."""
        places = [address(panel) if panel.size else 0 for panel in (*self.left, *self.inverse)]
        return (ctypes.c_void_p * len(places))(*places)


def solve(panels: Panels, rhs: Array, rows: int, beginning: Array | None, *, overwrite: bool = False) -> Array:
    """Return L⁻¹ rhs for the leading `rows` rows of a `GrowingCholesky` with these panels.

    With `overwrite`, `rhs` is an array of `room` with `rows` rows; it becomes the solution.
    """
    count, done = rhs.shape[1], 0 if beginning is None else len(beginning)
    width, blocks = blocks_of(count)
    if not done <= rows <= panels.rows:  # C would read and write elsewhere
        raise ValueError(f"a factor of {panels.rows} rows cannot solve for {rows} of which {done} are known")
    if overwrite and isinstance(rhs.base, np.ndarray) and rhs.base.size == rows * (blocks * width * LANES or blocks):
        whole, y = rhs.base, rhs
    else:
        whole = np.zeros((rows, blocks * width * LANES) if width else (blocks, rows))
        y = whole[:, :count] if width else whole[:count].T
        y[done:] = rhs[: rows - done]
    if beginning is not None:
        y[:done] = beginning
    workers = threads() if blocks > 1 else 1
    left = ctypes.addressof(panels.addresses)
    inverse = left + len(panels.left) * ctypes.sizeof(ctypes.c_void_p)
    if library().rarely_solve(struct("solve_task")(width, blocks, done, rows, workers, left, inverse, address(whole))):
        raise MemoryError(NO_MEMORY)
    return y


def factor(matrix: Array) -> Array:
    """Return the lower factor of a small symmetric matrix; raise LinAlgError as `np.linalg.cholesky` does."""
    lower = _square(matrix)
    if library().rarely_factor(len(lower), address(lower)):
        raise np.linalg.LinAlgError("the matrix is not positive definite")
    return lower


def inverse(lower: Array) -> Array:
    """Return the inverse of a small lower triangular matrix."""
    square, out = _square(lower), np.zeros(lower.shape)
    library().rarely_invert(len(out), address(square), address(out))
    return out


def _square(matrix: Array) -> Array:
    """Return a copy as C expects it, which would write outside any other shape."""
    rows, columns = matrix.shape
    if rows != columns:
        raise ValueError(f"a matrix must be square; got shape {matrix.shape}")
    return np.array(matrix, np.float64, order="C")


def blocks_of(count: int) -> tuple[int, int]:
    """Return vectors per block, and blocks; if candidates stay rows, 0 and the number of rows."""
    if count <= MAX_ROWS:
        return 0, count if count < 3 else MAX_ROWS
    width = 1 if count <= LANES else 2
    return width, -(-count // (width * LANES))


def _lanes(array: Array, width: int, blocks: int) -> Array:
    """Return (n, w) candidates as (blocks, w, lanes), or (blocks, w) if they stay rows."""
    if not width and len(array) == blocks:
        return np.ascontiguousarray(array, np.float64)
    padded = np.zeros((blocks * (width * LANES or 1), array.shape[1]))
    padded[: len(array)] = array
    return np.ascontiguousarray(padded.reshape(blocks, width * LANES, -1).transpose(0, 2, 1)) if width else padded


def _addresses(arrays: Sequence[Array]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(arrays))(*[array.__array_interface__["data"][0] for array in arrays])
