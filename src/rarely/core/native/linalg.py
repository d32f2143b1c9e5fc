"""Candidates against past rounds in C, each candidate a lane of a vector; see `native/scores.c`.

One decision has K arms: thousands of rows times K columns, a shape on which matrix products spend most of
their time on preparations, and on waiting for each other's threads. Many columns are products at full
speed, but their element-wise parts would pass through memory once more for each layer.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

import numpy as np

from rarely.core.native import form, in_use, library, threads
from rarely.core.native.loader import CrossTask, SolveTask
from rarely.core.types import Array

LANES = 8
"""Of a vector; a block has one vector where that is enough, else two."""
FEW = 4
"""Candidates that are not worth lanes."""
BLAS_ALONE = 9216
"""Products of numbers up to which OpenBLAS wakes no thread, be the shape what it may."""
MOST = {"sse2": 16, "neon": 16}
"""Candidates beyond which BLAS is faster than vectors of 16 bytes (docs/decisions/0020)."""


def compiled(count: int) -> bool:
    """Whether the compiled loops are to do the work for that many candidates, or for a matrix of that order."""
    return in_use() and count <= MOST.get(form(), math.inf)


def cross(past: Sequence[Array], new: Sequence[Array]) -> Array:
    """Σ_l (a·b)(δ·ε) of past and new features, (t, n), from (inputs, signals) of each layer in turn."""
    rows, count = len(past[0]), len(new[0])
    width, blocks = _blocks(count)
    old, fresh = [_plain(array) for array in past], [_lanes(array, width, blocks) for array in new]
    if [a.shape[1:] for a in past] != [a.shape[1:] for a in new] or {len(a) for a in old} != {rows}:
        raise ValueError("past and new features must have the same layers, and as many rows in each")
    sizes = (ctypes.c_ssize_t * len(old))(*(array.shape[1] for array in old))
    out = np.empty((rows, blocks * width * LANES) if width else (blocks, rows))
    olds, freshes = _at(old), _at(fresh)  # named, so that they live as long as the call
    places = (ctypes.addressof(sizes), ctypes.addressof(olds), ctypes.addressof(freshes), address(out))
    _check(library().rarely_cross(CrossTask(width, blocks, rows, len(old) // 2, _threads(blocks), *places)))
    return out[:, :count] if width else out[:count].T


def product(a: Array, b: Array) -> Array:
    """a·bᵀ, where other loops of ours are near: a large product of BLAS would take a core from them.

    Its threads go on spinning for a while after each product (docs/decisions/0003), and a small one has none.
    """
    if len(a) * b.size <= BLAS_ALONE or not compiled(min(len(a), len(b))):
        return np.asarray(a @ b.T)
    if len(a) < len(b):  # the lanes are the fewer
        return product(b, a).T
    return cross([a, np.empty((len(a), 0))], [b, np.empty((len(b), 0))])


def room(rows: int, count: int) -> Array:
    """An empty (rows, count) array that `solve` can turn into the solution without a copy."""
    width, blocks = _blocks(count)
    whole = np.empty((rows, blocks * width * LANES) if width else (rows, count))
    whole[:, count:] = 0.0
    return whole[:, :count]


def solve(
    left: list[int], inverse: list[int], rhs: Array, rows: int, known: Array | None, *, overwrite: bool = False
) -> Array:
    """L⁻¹ rhs for the leading block of that many rows of a `GrowingCholesky`, whose panels lie at these addresses.

    With `overwrite`, `rhs` is what `room` gave and has so many rows; it becomes the solution.
    """
    count, done = rhs.shape[1], 0 if known is None else len(known)
    width, blocks = _blocks(count)
    if overwrite and width and isinstance(rhs.base, np.ndarray):
        whole, y = rhs.base, rhs
    else:
        whole = np.zeros((rows, blocks * width * LANES) if width else (blocks, rows))
        y = whole[:, :count] if width else whole[:count].T
        y[done:] = rhs[: rows - done]
    if known is not None:
        y[:done] = known
    lefts, inverses = _places(left), _places(inverse)  # named, so that they live as long as the call
    places = (ctypes.addressof(lefts), ctypes.addressof(inverses), address(whole))
    _check(library().rarely_solve(SolveTask(width, blocks, done, rows, _threads(blocks), *places)))
    return y


def factor(matrix: Array) -> Array:
    """The lower factor of a small symmetric matrix; `LinAlgError` as `np.linalg.cholesky` has it."""
    lower = np.array(matrix, np.float64, order="C")
    if library().rarely_factor(len(lower), address(lower)):
        raise np.linalg.LinAlgError("the matrix is not positive definite")
    return lower


def inverse(lower: Array) -> Array:
    """Of a small lower triangular matrix."""
    out = np.zeros((len(lower), len(lower)))
    given = _plain(lower)
    library().rarely_invert(len(out), address(given), address(out))
    return out


def _plain(array: Array) -> Array:
    """As C takes it for granted."""
    return np.ascontiguousarray(array, np.float64)


def _blocks(count: int) -> tuple[int, int]:
    """Vectors in a block, and blocks; where candidates stay rows no vectors, and the number of rows."""
    if count <= FEW:
        return 0, count if count < 3 else FEW
    width = 1 if count <= LANES else 2
    return width, -(-count // (width * LANES))


def _lanes(array: Array, width: int, blocks: int) -> Array:
    """(n, w) → (blocks, w, lanes), or (blocks, w)."""
    if not width and len(array) == blocks:
        return _plain(array)
    if not width:
        padded = np.zeros((blocks, array.shape[1]))
        padded[: len(array)] = array
        return padded
    padded = np.zeros((blocks * width * LANES, array.shape[1]))
    padded[: len(array)] = array
    return np.ascontiguousarray(padded.reshape(blocks, width * LANES, -1).transpose(0, 2, 1))


def _threads(blocks: int) -> int:
    return threads() if blocks > 1 else 1


def address(array: Array) -> int:
    """Of its first number."""
    return int(array.__array_interface__["data"][0])  # in half the time of array.ctypes.data


def _at(arrays: Sequence[Array]) -> ctypes.Array[ctypes.c_void_p]:
    return _places([address(array) for array in arrays])


def _places(addresses: list[int]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(addresses))(*addresses)


def _check(failed: int) -> None:
    if failed:
        raise MemoryError("the compiled loops found no memory for their buffers")
