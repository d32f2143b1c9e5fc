"""Cholesky factors of dense matrices, inverses of triangles, and what a small regularised system needs."""

from __future__ import annotations

import warnings

import numpy as np

from rarely.core.errors import JitterWarning, NotPositiveDefinite
from rarely.core.native import linalg
from rarely.core.saving.fields import CLOSE
from rarely.core.types import Array

PANEL = 128
SMALL = 16
"""Rows that are inverted one by one."""
EPSILON = float(np.finfo(np.float64).eps)
JITTERS = (1e-12, 1e-10, 1e-8)
"""Tried in turn, relative to the diagonal: rounding changes A_ij by a small part of √(A_ii·A_jj)."""


def cholesky(matrix: Array, diagonal: Array | None = None) -> tuple[Array, int]:
    """The lower factor of a symmetric matrix, and 1 if it took a jitter, else 0.

    Where the matrix is what a subtraction left, `diagonal` is that of what it was subtracted from.

    >>> cholesky(np.array([[4.0, 2.0], [2.0, 2.0]]))[0]
    array([[2., 0.],
           [1., 1.]])
    """
    diagonal = np.diagonal(matrix) if diagonal is None else diagonal
    if len(matrix) == 1 and matrix[0, 0] > EPSILON * diagonal[0]:  # one decision; LAPACK's wrapper takes longer
        return np.sqrt(matrix), 0
    factor = _definite(matrix, diagonal)
    if factor is not None:
        return factor, 0
    largest = float(np.max(diagonal, initial=0.0))
    for jitter in JITTERS:
        factor = _definite(matrix + jitter * np.diag(diagonal), diagonal)
        if factor is None:
            continue
        warnings.warn(
            f"a matrix of order {len(matrix)} was not positive definite to rounding; up to {jitter * largest:.3g} was "
            "added to its diagonal. A larger ridge, or contexts of smaller norm, would avoid this.",
            JitterWarning,
            stacklevel=2,
        )
        return factor, 1
    raise NotPositiveDefinite(
        f"λI + K must be positive definite to rounding; a matrix of order {len(matrix)} with diagonal entries up to "
        f"{largest:.3g} is not, even with {JITTERS[-1]:.0e} of them added. Rounding hides a ridge below about 1e-12 of "
        "the sum of the features' squared norms: use a larger ridge, or scale the contexts down."
    )


def _definite(matrix: Array, diagonal: Array) -> Array | None:
    """The factor, unless rounding may be all that is left of a pivot."""
    try:
        factor = _lower(matrix)
    except np.linalg.LinAlgError:
        return None
    return factor if (np.square(np.diagonal(factor)) > EPSILON * diagonal).all() else None


def _lower(matrix: Array) -> Array:
    """A panel of columns at a time. LAPACK's threads wait for each other so often that beside other work on the
    machine they take twenty times as long, so they are used only where nothing else is there."""
    if not linalg.compiled(len(matrix)):
        return np.asarray(np.linalg.cholesky(matrix), np.float64)
    if len(matrix) <= PANEL:
        return linalg.factor(matrix)
    lower = np.zeros(matrix.shape)
    for start in range(0, len(matrix), PANEL):
        here = slice(start, start + PANEL)
        left = matrix[start:, here] - linalg.product(lower[start:, :start], lower[here, :start])
        corner = linalg.factor(left[:PANEL])
        lower[here, here] = corner
        lower[start + PANEL :, here] = linalg.product(left[PANEL:], linalg.inverse(corner))
    return lower


def lower_inverse(lower: Array) -> Array:
    """The inverse of a lower triangular matrix.

    >>> lower_inverse(np.array([[2.0, 0.0], [1.0, 1.0]]))
    array([[ 0.5,  0. ],
           [-0.5,  1. ]])
    """
    if linalg.compiled(len(lower)):
        return linalg.inverse(lower)
    out = np.zeros(lower.shape)
    _invert(lower, out)
    return out


def _invert(lower: Array, out: Array) -> None:
    """By halves. NumPy's inverse exchanges rows first, which loses the digits that a triangle keeps."""
    if len(lower) <= SMALL:
        for i, row in enumerate(lower):
            out[i, i] = 1 / row[i]
            out[i, :i] = -out[i, i] * (row[:i] @ out[:i, :i])
        return
    half = len(lower) // 2
    _invert(lower[:half, :half], out[:half, :half])
    _invert(lower[half:, half:], out[half:, half:])
    out[half:, :half] = -(out[half:, half:] @ (lower[half:, :half] @ out[:half, :half]))


def pivoted(matrix: Array, least: float) -> tuple[list[int], Array]:
    """Which rows of a matrix with 1 on its diagonal span it, and their Cholesky factor.

    The next row is always the one with the largest entry left on the diagonal; the last has more than `least`.

    >>> pivoted(np.array([[1.0, 1.0, 0.6], [1.0, 1.0, 0.6], [0.6, 0.6, 1.0]]), 1e-9)
    ([0, 2], array([[1. , 0. ],
           [0.6, 0.8]]))
    """
    left, lower = np.ones(len(matrix)), np.zeros(matrix.shape)
    rows: list[int] = []
    while left.max() > least:
        best, j = int(np.argmax(left)), len(rows)
        column = matrix[best] - lower[:, :j] @ lower[best, :j]
        lower[:, j] = column / np.sqrt(column[best])
        left -= lower[:, j] * lower[:, j]
        rows.append(best)
        left[rows] = 0.0
    return rows, np.tril(lower[rows, : len(rows)])


def ridge_solution(matrix: Array, moment: Array) -> Array:
    """matrix⁻¹ moment for a small regularised matrix; `NotPositiveDefinite` as `cholesky` has it."""
    factor = cholesky(matrix)[0]
    return np.asarray(np.linalg.solve(factor.T, np.linalg.solve(factor, moment)), np.float64)


def is_symmetric(matrix: Array) -> bool:
    """Whether a matrix with a positive diagonal is symmetric, rounding aside."""
    diagonal = np.diagonal(matrix)
    if not (diagonal > 0).all():
        return False
    root = np.sqrt(diagonal)
    return bool((np.abs(matrix - matrix.T) <= CLOSE * root * root[:, None]).all())


def probe_of(size: int) -> Array:
    """A vector by whose product two matrices are told apart, each of its numbers from 1/2 to 3/2."""
    return np.asarray(1 + np.cos(np.arange(size)) / 2)
