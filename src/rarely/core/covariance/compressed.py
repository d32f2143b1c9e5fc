"""Many rounds as few: points that count W times, bordered by the rounds that are not counted yet.

    W    weights  (b, b)  Σ_s w_s w_sᵀ of the counted rounds; w_s are a round's weights on the points
    Y    pending  (n, r)  weights of the rounds since
    Ψ             (b + n) rows: the b points, then the n rounds YΦ_S
    L    factor           lower factor of ΨΨᵀ + λ·diag(W⁻¹, I)

This is the dual form of b + n rounds, of which the first b count W times:

    φᵀZ~⁻¹φ = (‖φ‖² − ‖L⁻¹Ψφ‖²)/λ          log det(Z~/λ) = log det LLᵀ + log det W − (b + n)·log λ

While all rounds are points, W = I and it is the dual form itself.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from rarely.core.covariance.cholesky import GrowingCholesky, pivoted
from rarely.core.rows import Rows, shallow
from rarely.core.types import Array, Arrays, IntArray

ROUNDED_UP = 1e-14
"""W's diagonal is raised by this part of itself before W is inverted, about as much as rounding changes it."""


def _independent_first(matrix: Array) -> IntArray:
    """An order of rows: those with most left beyond the ones before come first."""
    scales = np.sqrt(np.diagonal(matrix))
    first = pivoted(matrix / np.outer(scales, scales), np.finfo(np.float64).eps)[0]
    return np.array([*first, *sorted(set(range(len(matrix))) - set(first))])


class Compressed:
    """Counted points and pending rounds, on at most `size` points."""

    def __init__(self, size: int) -> None:
        self._size, self._counted = size, 0
        self._weights: Array = np.empty((0, 0))
        self._order: IntArray | None = None
        """The points' places in L where that is not their own order."""
        self.pending, self.factor = Rows(size), GrowingCholesky()

    @classmethod
    def of(cls, weights: Array, gram: Array, size: int, ridge: float, dependent: bool) -> Compressed:
        """Counted points alone, from W and their inner products."""
        made = cls(size)
        made._weights, made._counted = weights, len(weights)
        made.factorise(gram, ridge, dependent)
        return made

    def __len__(self) -> int:
        """b + n."""
        return len(self.factor)

    def products(self, products: Array, rows: int) -> Array:
        """The first `rows` rows of Ψφ, (rows, n), from Φ_Sφ, (k, n)."""
        counted = products[: self._counted] if self._order is None else products[self._order[:rows]]
        pending = self.pending.view[: max(rows - self._counted, 0), : len(products)]
        return np.vstack((counted, pending @ products)) if len(pending) else counted

    def append(self, rows: Array, weights: Array) -> None:
        """Add pending rounds: their rows of L, from `factor.border`, and their weights, (n, k)."""
        self.factor.append(rows)
        self.pending.append(weights)

    def count(self, points: int) -> None:
        """Let the pending rounds count in W. L is right as it is if all of them are points; else `factorise`."""
        pending = self.pending.view[:, :points]
        weights = pending.T @ pending
        weights[: self._counted, : self._counted] += self._weights
        if self._order is not None:
            self._order = np.append(self._order, np.arange(self._counted, points))
        self._weights, self._counted, self.pending = weights, points, Rows(self._size)

    def factorise(self, gram: Array, ridge: float, dependent: bool) -> tuple[float, int]:
        """Compute L from W and the points' inner products; returns log det(Z~/λ) and the jitters that W took.

        Where points are nearly `dependent` L is made of the most independent ones first, so that L⁻¹ stays small.
        """
        points = len(gram)
        self._order = None
        if not points:  # every feature was 0
            self.factor = GrowingCholesky()
            return 0.0, 0
        weights = self._weights.copy()
        # W ≽ I, but rounding loses that 1 where later rounds are far larger than a point.
        weights.flat[:: points + 1] *= 1 + ROUNDED_UP
        root, log_det = GrowingCholesky.of(weights)
        inverse = root.solve(np.eye(points), points)
        matrix = gram + ridge * (inverse.T @ inverse)
        if dependent:
            self._order = _independent_first(matrix)
            matrix = matrix[np.ix_(self._order, self._order)]
        self.factor, bordered = GrowingCholesky.of(matrix)
        return bordered + log_det - points * float(np.log(ridge)), root.jitters

    def leading(self, rows: int) -> Compressed:
        """The first `rows` points and rounds, to be read and no longer grown."""
        other = shallow(self)
        other._weights = np.empty((0, 0))
        other.factor, other.pending = self.factor.leading(rows), self.pending.fork(max(rows - self._counted, 0))
        return other

    def fork(self) -> Self:
        """Another one that starts with this; see `Rows.fork`."""
        other = shallow(self)
        other.factor, other.pending = self.factor.fork(), self.pending.fork()
        return other

    def state(self) -> Arrays:
        """Arrays from which `restore` makes the same object."""
        arrays: Arrays = {"weights": self._weights, "pending": self.pending.view, "factor": self.factor.packed()}
        return arrays if self._order is None else arrays | {"order": self._order}

    def restore(self, arrays: Arrays, rows: int, jitters: int) -> None:
        """Take over the saved state of `rows` points and rounds."""
        self._weights, self.pending = arrays["weights"], Rows(self._size)
        self.pending.append(arrays["pending"])
        self._counted, self._order = rows - len(self.pending), arrays.get("order")
        self.factor = GrowingCholesky.unpacked(arrays["factor"], rows)
        self.factor.jitters = jitters
