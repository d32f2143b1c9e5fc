"""A Cholesky factor that grows at its lower edge, and whose every leading block is a factor too.

    A   (implicit)  (t, t)   symmetric positive definite
    L   panels      (t, t)   lower triangular, A = LLᵀ

It is kept in panels of P rows: of each, the part left of the diagonal block and the block's inverse. So
only the triangle takes memory, growing moves nothing, a leading block needs no copy, and a solve is
matrix products alone (docs/decisions/0003: one BLAS, NumPy's, serves every hot path).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rarely.core.covariance.cholesky import EPSILON, JITTERS, PANEL, cholesky, lower_inverse
from rarely.core.growable_array import shallow
from rarely.core.native import linalg
from rarely.core.saving.fields import CLOSE, Fields
from rarely.core.types import Array


def whole_panels(solved: Array) -> Array:
    """As much of a leading block's solution as `solve` can go on from."""
    return solved[: len(solved) // PANEL * PANEL]


class GrowingCholesky:
    """The factor L of a matrix that grows by bordering.

    >>> factor = GrowingCholesky()
    >>> factor.append(factor.border(np.empty((0, 2)), 4 * np.eye(2)))
    >>> factor.solve(np.ones((2, 1)), rows=2).ravel()
    array([0.5, 0.5])
    """

    def __init__(self) -> None:
        self._left: list[Array] = []
        """Panel i's entries left of its diagonal block, (P, iP)."""
        self._inverse: list[Array] = []
        """The inverse of its diagonal block, (P, P)."""
        self._places: tuple[list[int], list[int]] = ([], [])
        """Where the arrays of both lists lie: asking all of them would be a fair part of a decision's time."""
        self._size = 0
        self.jitters = 0

    @classmethod
    def of(cls, matrix: Array) -> tuple[GrowingCholesky, float]:
        """The factor of a whole matrix, and the matrix' log det."""
        rows, jitters = cholesky(matrix)
        factor = cls()
        factor.append(rows)
        factor.jitters = jitters
        return factor, float(2 * np.log(np.diagonal(rows)).sum())

    def __len__(self) -> int:
        return self._size

    def solve(self, rhs: Array, rows: int, known: Array | None = None, *, overwrite: bool = False) -> Array:
        """L⁻¹ rhs for the leading block of that many rows.

        `known` is the solution's beginning, whole panels of it; rhs is then what follows. With `overwrite`, rhs was
        made by `linalg.room` and may become the solution.
        """
        if rhs.shape[1] and linalg.compiled(rhs.shape[1]):
            return linalg.solve(*self._places, rhs, rows, known, overwrite=overwrite)
        done = 0 if known is None else len(known)
        out = np.empty((rows, rhs.shape[1]))
        if known is not None:
            out[:done] = known
        for start in range(done, rows, PANEL):
            i, count = start // PANEL, min(PANEL, rows - start)
            here = rhs[start - done : start - done + count]
            if start:
                here = here - self._left[i][:count] @ out[:start]
            np.matmul(self._inverse[i][:count, :count], here, out=out[start : start + count])
        return out

    def border(self, cross: Array, corner: Array, known: Array | None = None) -> Array:
        """The n new rows of L, (n, t + n), for A bordered by cross (t, n) and corner (n, n).

        Where L⁻¹ cross is `known` in its first rows, cross is what follows them.
        """
        n, diagonal = len(corner), np.diagonal(corner)
        rows = np.zeros((n, self._size + n))
        if self._size:
            above = self.solve(cross, self._size, known)
            corner = corner - linalg.product(above.T, above.T)
            rows[:, : self._size] = above.T
        factor, jitters = cholesky(corner, diagonal)
        self.jitters += jitters
        rows[:, self._size :] = factor
        return rows

    def append(self, rows: Array) -> None:
        """Make rows that `border` gave, or the first of them, part of L."""
        done = 0
        while done < len(rows):
            i, offset = divmod(self._size, PANEL)
            if i == len(self._left):
                self._add_panel(np.empty((PANEL, i * PANEL)), np.zeros((PANEL, PANEL)))
            count = min(PANEL - offset, len(rows) - done)
            new, start = rows[done : done + count], i * PANEL
            self._left[i][offset : offset + count] = new[:, :start]
            block, width = new[:, start : start + offset + count], offset + count
            # [[L, 0], [M, N]]⁻¹ = [[L⁻¹, 0], [−N⁻¹ML⁻¹, N⁻¹]]
            last = block[:, offset:]
            corner = 1 / last if count == 1 else lower_inverse(last)
            inverse = self._inverse[i]
            inverse[offset:width, offset:width] = corner
            below = linalg.product(inverse[:offset, :offset].T, block[:, :offset])
            inverse[offset:width, :offset] = -linalg.product(corner, below)
            self._size += count
            done += count

    def _add_panel(self, left: Array, inverse: Array) -> None:
        self._left.append(left)
        self._inverse.append(inverse)
        for places, panel in zip(self._places, (left, inverse), strict=True):
            places.append(linalg.address(panel))

    def __getstate__(self) -> dict[str, Any]:
        """For `pickle` and `copy`: the arrays of a copy lie elsewhere."""
        return {name: value for name, value in self.__dict__.items() if name != "_places"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._places = ([linalg.address(a) for a in self._left], [linalg.address(a) for a in self._inverse])

    def fork(self) -> GrowingCholesky:
        """A factor that starts with this one; see `GrowableArray.fork`."""
        other = shallow(self)
        other._left, other._inverse = list(self._left), list(self._inverse)
        other._places = (list(self._places[0]), list(self._places[1]))
        return other

    def log_det(self, rows: int) -> float:
        """log det of the leading block of that many rows of A."""
        diagonals = [np.diagonal(inverse) for inverse in self._inverse]
        return float(-2 * np.log(np.concatenate([np.ones(0), *diagonals])[:rows]).sum())

    def leading(self, rows: int) -> GrowingCholesky:
        """The factor of the leading block of that many rows."""
        other = shallow(self)
        panels = -(-rows // PANEL)
        other._left, other._inverse = self._left[:panels], self._inverse[:panels]
        other._places = (self._places[0][:panels], self._places[1][:panels])
        other._size = rows
        return other

    def packed(self) -> Array:
        """Every number that is kept, in one dimension: panel by panel, rows of (left part, inverse)."""
        parts = [np.empty(0)]
        for i, (left, inverse) in enumerate(zip(self._left, self._inverse, strict=True)):
            rows = min(PANEL, self._size - i * PANEL)
            parts += [left[:rows].ravel(), inverse[:rows, :rows].ravel()]
        return np.concatenate(parts)

    @classmethod
    def unpacked(cls, packed: Array, size: int) -> GrowingCholesky:
        """The inverse of `packed`."""
        factor, taken = cls(), 0
        for start in range(0, size, PANEL):
            rows = min(PANEL, size - start)
            left, inverse = np.empty((PANEL, start)), np.zeros((PANEL, PANEL))
            left[:rows] = packed[taken : taken + rows * start].reshape(rows, start)
            taken += rows * start
            inverse[:rows, :rows] = packed[taken : taken + rows * rows].reshape(rows, rows)
            taken += rows * rows
            factor._add_panel(left, inverse)
        factor._size = size
        return factor

    def product(self, vector: Array) -> Array:
        """L times a vector."""
        out = np.empty(self._size)
        for rows, left, inverse in self._panels():
            out[rows] = left @ vector[: rows.start] + np.linalg.solve(inverse, vector[rows])
        return out

    def transposed_product(self, vector: Array) -> Array:
        """Lᵀ times a vector."""
        out = np.zeros(self._size)
        for rows, left, inverse in self._panels():
            out[: rows.start] += vector[rows] @ left
            out[rows] += np.linalg.solve(inverse.T, vector[rows])
        return out

    def matrix(self) -> Array:
        """A."""
        lower = np.zeros((self._size, self._size))
        for rows, left, inverse in self._panels():
            lower[rows, : rows.start], lower[rows, rows] = left, lower_inverse(inverse)
        return lower @ lower.T

    def _panels(self) -> Iterator[tuple[slice, Array, Array]]:
        """The rows of each panel, their part left of the diagonal block, and the inverse of that."""
        for i, (left, inverse) in enumerate(zip(self._left, self._inverse, strict=True)):
            count = min(PANEL, self._size - i * PANEL)
            yield slice(i * PANEL, i * PANEL + count), left[:count], inverse[:count, :count]

    def is_of(self, image: Array, vector: Array, root: Array) -> bool:
        """Whether A times a vector ≥ 0 is `image`, rounding and jitters aside; `root` is that of A's diagonal.

        |A_ij| ≤ √(A_ii·A_jj), and what rounding changes is a small part of that (Higham, 2002, theorem 10.5).
        """
        if not self._size:
            return True
        diagonal = np.concatenate([np.diagonal(inverse) for _, _, inverse in self._panels()])
        # Blocks are inverted, which costs as many digits as their condition has.
        part = CLOSE + 100 * EPSILON * float(diagonal.max() / diagonal.min())
        slack = part * root * (root @ vector) + 2 * JITTERS[-1] * float(root.max()) ** 2 * float(vector.max())
        off = np.abs(self.product(self.transposed_product(vector)) - image)
        return bool((np.isfinite(off) & (off <= slack)).all())

    @classmethod
    def read(cls, saved: Fields, name: str, size: int) -> GrowingCholesky:
        """The saved factor of a matrix of that order."""
        panels, rest = divmod(size, PANEL)
        length = PANEL**2 * panels * (panels + 1) // 2 + rest * (panels * PANEL + rest)
        factor = cls.unpacked(saved.array(name, (length,)), size)
        for i, inverse in enumerate(factor._inverse):
            rows = min(PANEL, size - i * PANEL)
            lower = not np.triu(inverse, 1).any() and (np.diagonal(inverse)[:rows] > 0).all()
            saved.require(bool(lower), f"{name} must have triangular blocks with positive diagonals")
        return factor
