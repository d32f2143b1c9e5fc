"""Cholesky factors: of dense matrices, and one that grows at its lower edge.

    A   (implicit)  (t, t)   symmetric positive definite
    L   panels      (t, t)   lower triangular, A = LLᵀ

The growing factor is kept in panels of P rows: of each, the part left of the diagonal block and the block's inverse. So
only the triangle takes memory, growing moves nothing, a leading block needs no copy, and a solve is
matrix products alone, so that one BLAS, NumPy's, serves every hot path.
"""

from __future__ import annotations

import warnings

import numpy as np

from rarely._core.errors import JitterWarning, NotPositiveDefinite, RoundingWarning
from rarely._core.growable_array import Tail, all_true, shallow
from rarely._core.native import linalg
from rarely._core.saving.fields import Fields
from rarely._core.types import Array

PANEL = 128  # rows of a panel
INVERTED_SINGLY = 16  # rows that are inverted one by one
EPSILON = float(np.finfo(np.float64).eps)
DIGITS_LOST = 1e-10
"""Of a difference below this part of what it was subtracted from, rounding has left five or six digits at most."""
DIGITS_LOST_IN_ROOT = 1e-13  # the same for numbers that are roots of such differences, and were never squared
JITTERS = (1e-12, 1e-10, 1e-8)
"""Tried in turn, relative to the diagonal: rounding changes A_ij by a small part of √(A_ii·A_jj)."""


def cholesky(matrix: Array, diagonal: Array | None = None) -> tuple[Array, int]:
    """Return the lower factor of a symmetric matrix, and 1 if it took a jitter, else 0.

    Where the matrix is what a subtraction left, `diagonal` is that of what it was subtracted from.

    >>> cholesky(np.array([[4.0, 2.0], [2.0, 2.0]]))[0]
    array([[2., 0.],
           [1., 1.]])
    """
    diagonal = matrix.diagonal() if diagonal is None else diagonal
    if len(matrix) == 1 and matrix[0, 0] > DIGITS_LOST * diagonal[0]:  # one decision; LAPACK's wrapper takes longer
        return np.sqrt(matrix), 0
    factor = definite(matrix, diagonal, EPSILON)
    if factor is not None:
        announce_rounding(factor.diagonal() ** 2, diagonal)
        return factor, 0
    largest = float(np.max(diagonal, initial=0.0))
    for jitter in JITTERS:
        factor = definite(matrix + jitter * np.diag(diagonal), diagonal, EPSILON)
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


def definite(matrix: Array, diagonal: Array, least: float) -> Array | None:
    """Return the lower factor, or None if a pivot is no larger than its part `least` of the `diagonal`."""
    try:
        factor = _lower(matrix)
    except np.linalg.LinAlgError:
        return None
    pivots = factor.diagonal()
    return factor if all_true(pivots * pivots > least * diagonal) else None


def updated_factor(lower: Array, rows: Array) -> Array:
    """Return the lower factor of LLᵀ + ΦᵀΦ, with the digits that this sum itself would lose.

    It is Rᵀ of [Lᵀ; Φ] = QR, whose rounding is relative to the root of what that of LLᵀ + ΦᵀΦ is relative to. With the
    largest rows first, reflections keep the small ones: no difference in the units of a few columns costs digits.

    >>> updated_factor(np.eye(2), np.array([[0.0, 1e12]])).diagonal()
    array([1.e+00, 1.e+12])
    """
    stacked = np.concatenate((lower.T, rows))
    order = np.argsort(-np.abs(stacked).max(axis=1), kind="stable")
    upper = np.asarray(np.linalg.qr(stacked[order], mode="r"), np.float64)
    factor = (upper * np.copysign(1.0, upper.diagonal())[:, None]).T
    announce_rounding(factor.diagonal(), np.sqrt(np.einsum("ij,ij->i", factor, factor)), DIGITS_LOST_IN_ROOT)
    return np.ascontiguousarray(factor)


def announce_rounding(left: Array, whole: Array, part: float = DIGITS_LOST) -> None:
    """Warn where numbers came from subtractions that left less than a `part` of the `whole`."""
    if np.count_nonzero(left < part * whole):
        warnings.warn(
            "Bonuses lose digits to cancellation: a variance is a tiny part of what it was subtracted from. Use a "
            "larger ridge, bring columns in large units to the size of the others, drop columns that others determine, "
            "or use covariance='primal', which loses fewer digits than 'dual'.",
            RoundingWarning,
            stacklevel=3,
        )


def _lower(matrix: Array) -> Array:
    """Factor a panel of columns at a time. LAPACK's threads wait for each other so often that beside other work on the
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
    """Return the inverse of a lower triangular matrix.

    >>> lower_inverse(np.array([[2.0, 0.0], [1.0, 1.0]]))
    array([[ 0.5,  0. ],
           [-0.5,  1. ]])
    """
    if linalg.compiled(len(lower)):
        return linalg.inverse(lower)
    out = np.zeros(lower.shape)
    if len(lower) <= INVERTED_SINGLY:
        for i, row in enumerate(lower):
            out[i, i] = 1 / row[i]
            out[i, :i] = -out[i, i] * (row[:i] @ out[:i, :i])
        return out
    # By halves: NumPy's inverse exchanges rows first, which loses the digits that a triangle keeps.
    first, last = slice(0, len(lower) // 2), slice(len(lower) // 2, None)
    out[first, first], out[last, last] = lower_inverse(lower[first, first]), lower_inverse(lower[last, last])
    out[last, first] = -(out[last, last] @ (lower[last, first] @ out[first, first]))
    return out


def ridge_solution(matrix: Array, moment: Array) -> Array:
    """Return matrix⁻¹ moment for a small regularised matrix; `NotPositiveDefinite` as `cholesky` has it."""
    factor = cholesky(matrix)[0]
    return np.asarray(np.linalg.solve(factor.T, np.linalg.solve(factor, moment)), np.float64)


class GrowingCholesky:
    """The factor L of a matrix that grows by bordering.

    >>> factor = GrowingCholesky()
    >>> factor.append(factor.border(np.empty((0, 2)), 4 * np.eye(2)))
    >>> factor.solve(np.ones((2, 1)), rows=2).ravel()
    array([0.5, 0.5])
    """

    def __init__(self) -> None:
        self.panels = linalg.Panels()
        """Of panel i its entries left of the diagonal block, (P, iP), and the inverse of the block, (P, P); of the last
        one as many rows as it needs or more."""
        self._size, self._tail = 0, Tail()
        self.jitters = 0

    @classmethod
    def of(cls, matrix: Array) -> tuple[GrowingCholesky, float]:
        """Return the factor of a whole matrix, and the matrix' log det."""
        rows, jitters = cholesky(matrix)
        factor, log_det = cls.from_lower(rows)
        factor.jitters = jitters
        return factor, log_det

    @classmethod
    def from_lower(cls, lower: Array) -> tuple[GrowingCholesky, float]:
        """Return this factor, and log det of its matrix."""
        factor = cls()
        factor.append(lower)
        return factor, float(2 * np.add.reduce(np.log(lower.diagonal())))

    @classmethod
    def from_inverse(cls, inverse: Array) -> GrowingCholesky:
        """Return the factor of one panel whose inverse, (n, n) with n ≤ PANEL, this is."""
        factor, size = cls(), len(inverse)
        factor._panel(0, 0, size)[1][:, :size] = inverse
        factor._size, factor._tail = size, Tail(size)
        return factor

    @property
    def inverse(self) -> Array:
        """The inverse of a factor of one panel, (n, n)."""
        return self.panels.inverse[0][: self._size, : self._size]

    def __len__(self) -> int:
        return self._size

    def solve(self, rhs: Array, rows: int, beginning: Array | None = None, *, overwrite: bool = False) -> Array:
        """Return L⁻¹ rhs for the leading block of that many rows.

        `beginning` has the solution's first rows, whole panels; rhs is then what follows. With `overwrite`, rhs was
        made by `linalg.room` and may become the solution.
        """
        if rhs.shape[1] and linalg.compiled(rhs.shape[1]):
            return linalg.solve(self.panels, rhs, rows, beginning, overwrite=overwrite)
        done, panels = 0 if beginning is None else len(beginning), self.panels
        out = np.empty((rows, rhs.shape[1]))
        if beginning is not None:
            out[:done] = beginning
        for start in range(done, rows, PANEL):
            i, count = start // PANEL, min(PANEL, rows - start)
            here = rhs[start - done : start - done + count]
            if start:
                here = here - panels.left[i][:count] @ out[:start]
            np.matmul(panels.inverse[i][:count, :count], here, out=out[start : start + count])
        return out

    def border(self, cross: Array, corner: Array, beginning: Array | None = None) -> Array:
        """Return the n new rows of L, (n, t + n), for A bordered by cross (t, n) and corner (n, n).

        Where the `beginning` of L⁻¹ cross is known, cross is what follows.
        """
        above, left = self._bordered(cross, corner, beginning)
        factor, jitters = cholesky(left, corner.diagonal())
        self.jitters += jitters
        return _joined(above, factor)

    def precise_border(self, cross: Array, corner: Array, least: float) -> Array | None:
        """Return what `border` does, or None if a subtraction leaves less than the part `least` of a pivot."""
        above, left = self._bordered(cross, corner)
        factor = definite(left, corner.diagonal(), least)
        return None if factor is None else _joined(above, factor)

    def _bordered(self, cross: Array, corner: Array, beginning: Array | None = None) -> tuple[Array, Array]:
        """Return the new rows left of the diagonal, as columns, and what they leave of the corner."""
        if not self._size:
            return cross[:0], corner
        if beginning is None or len(beginning) < self._size:
            beginning = self.solve(cross, self._size, beginning)
        return beginning, corner - linalg.product(beginning.T, beginning.T)

    def append(self, rows: Array) -> None:
        """Make rows that `border` gave, or the first of them, part of L."""
        done, total = 0, len(rows)
        while done < total:
            i, offset = divmod(self._size, PANEL)
            count, start = min(PANEL - offset, total - done), i * PANEL
            width, new = offset + count, rows[done : done + count]
            left, inverse = self._panel(i, offset, width)
            left[offset:width] = new[:, :start]
            # [[L, 0], [M, N]]⁻¹ = [[L⁻¹, 0], [−N⁻¹ML⁻¹, N⁻¹]]
            last = new[:, start + offset : start + width]
            corner = 1 / last if count == 1 else lower_inverse(last)
            inverse[offset:width, offset:width] = corner
            if offset:
                below = linalg.product(inverse[:offset, :offset].T, new[:, start : start + offset])
                inverse[offset:width, :offset] = -linalg.product(corner, below)
            self._size += count
            done += count

    def _panel(self, i: int, kept: int, rows: int) -> tuple[Array, Array]:
        """Return both parts of panel i, of which the first `kept` rows stay, with room for that many rows."""
        lefts, inverses, end = self.panels.left, self.panels.inverse, self._size + rows - kept
        mine = self._tail.claim(self._size, end)
        if mine and i < len(lefts) and rows <= len(lefts[i]):
            return lefts[i], inverses[i]
        room = min(PANEL, max(rows, 2 * kept))
        left, inverse = np.empty((room, i * PANEL)), np.zeros((room, PANEL))
        if kept:
            left[:kept], inverse[:kept] = lefts[i][:kept], inverses[i][:kept]
        self.panels, self._tail = linalg.Panels((*lefts[:i], left), (*inverses[:i], inverse)), Tail(end)
        return left, inverse

    def fork(self) -> GrowingCholesky:
        """Return a factor that starts with this one; see `GrowableArray.fork`."""
        return shallow(self)

    def packed(self) -> Array:
        """Return every number that is kept, in one dimension: panel by panel, rows of (left part, inverse)."""
        parts = [np.empty(0)]
        for i, (left, inverse) in enumerate(zip(self.panels.left, self.panels.inverse, strict=True)):
            rows = min(PANEL, self._size - i * PANEL)
            parts += [left[:rows].ravel(), inverse[:rows, :rows].ravel()]
        return np.concatenate(parts)

    @classmethod
    def read(cls, saved: Fields, name: str, size: int) -> GrowingCholesky:
        """Return the saved factor of a matrix of that order, which `packed` has."""
        panels, rest = divmod(size, PANEL)
        packed = saved.array(name, (PANEL**2 * panels * (panels + 1) // 2 + rest * (panels * PANEL + rest),))
        factor, taken = cls(), 0
        for start in range(0, size, PANEL):
            rows = min(PANEL, size - start)
            left, inverse = factor._panel(start // PANEL, 0, rows)
            left[:] = packed[taken : taken + rows * start].reshape(rows, start)
            taken += rows * start
            inverse[:, :rows] = packed[taken : taken + rows * rows].reshape(rows, rows)
            taken += rows * rows
        factor._size, factor._tail = size, Tail(size)
        return factor

    def lower(self) -> Array:
        """Return L."""
        lower = np.zeros((self._size, self._size))
        for i, (left, inverse) in enumerate(zip(self.panels.left, self.panels.inverse, strict=True)):
            count, start = min(PANEL, self._size - i * PANEL), i * PANEL
            rows = slice(start, start + count)
            lower[rows, :start], lower[rows, rows] = left[:count], lower_inverse(inverse[:count, :count])
        return lower


def _joined(above: Array, factor: Array) -> Array:
    """Return rows of L: the part left of the diagonal block, given as columns, and the block."""
    if not len(above):
        return factor
    rows = np.zeros((len(factor), len(above) + len(factor)))
    rows[:, : len(above)], rows[:, len(above) :] = above.T, factor
    return rows
