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

from rarely.core.covariance.cholesky import is_symmetric, pivoted
from rarely.core.covariance.growing_cholesky import GrowingCholesky
from rarely.core.growable_array import GrowableArray, shallow
from rarely.core.saving.fields import CLOSE, Fields
from rarely.core.types import Array, Arrays, IntArray

ROUNDED_UP = 1e-14
"""W's diagonal is raised by this part of itself before W is inverted, about as much as rounding changes it."""

LENIENT = 1e3
"""How many times its estimate rounding may be before a saved log det is refused; nearly dependent points need 35."""


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
        self.pending, self.factor = GrowableArray(size), GrowingCholesky()

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
        self._weights, self._counted, self.pending = weights, points, GrowableArray(self._size)

    def factorise(self, gram: Array, ridge: float, dependent: bool) -> tuple[float, int]:
        """Compute L from W and the points' inner products; returns log det(Z~/λ) and the jitters that W took.

        Where points are nearly `dependent` L is made of the most independent ones first, so that L⁻¹ stays small.
        """
        points = len(gram)
        self._order = None
        if not points:  # every feature was 0
            self.factor = GrowingCholesky()
            return 0.0, 0
        root, log_det = GrowingCholesky.of(self._raised())
        inverse = root.solve(np.eye(points), points)
        matrix = gram + ridge * (inverse.T @ inverse)
        if dependent:
            self._order = _independent_first(matrix)
            matrix = matrix[np.ix_(self._order, self._order)]
        self.factor, bordered = GrowingCholesky.of(matrix)
        return bordered + log_det - points * float(np.log(ridge)), root.jitters

    def _raised(self) -> Array:
        """W, whose diagonal is raised: W ≽ I, but rounding loses that 1 where rounds are far larger than a point."""
        weights = self._weights.copy()
        weights.flat[:: len(weights) + 1] *= 1 + ROUNDED_UP
        return weights

    def leading(self, rows: int) -> Compressed:
        """The first `rows` points and rounds, to be read and no longer grown."""
        other = shallow(self)
        other._weights = np.empty((0, 0))
        other.factor, other.pending = self.factor.leading(rows), self.pending.fork(max(rows - self._counted, 0))
        return other

    def fork(self) -> Self:
        """Another one that starts with this; see `GrowableArray.fork`."""
        other = shallow(self)
        other.factor, other.pending = self.factor.fork(), self.pending.fork()
        return other

    def state(self) -> Arrays:
        """Arrays from which `read` makes the same object."""
        arrays: Arrays = {"weights": self._weights, "pending": self.pending.view, "factor": self.factor.packed()}
        return arrays if self._order is None else arrays | {"order": self._order}

    def read(self, saved: Fields, rows: int, points: int, jitters: int, *, whole: bool = True) -> None:
        """Take over the saved state of `rows` points and rounds on so many points; `whole` if it is to be grown."""
        pending = saved.array("pending", (None, self._size))
        saved.require(len(pending) <= rows, f"at most {rows} rounds may be pending; there are {len(pending)}")
        counted = self._counted = rows - len(pending)
        saved.require(counted <= points <= rows, f"there must be {counted} to {rows} points; there are {points}")
        saved.require(not pending[:, points:].any(), f"pending must be 0 beyond the {points} points")
        self.pending = GrowableArray(self._size)
        self.pending.append(pending)
        self._weights = saved.array("weights", (counted, counted) if whole else (0, 0))
        large = is_symmetric(self._weights) and bool((np.diagonal(self._weights) >= 1 - CLOSE).all())
        saved.require(large, "weights must be symmetric with a diagonal of at least 1")
        self._order = None
        if "order" in saved:
            self._order = saved.array("order", (counted if whole else None,), "int", least=0, most=points - 1)
            permuted = bool((np.sort(self._order) == np.arange(len(self._order))).all())
            saved.require(permuted and len(self._order) >= counted, f"order must be one of {counted} points")
        self.factor = GrowingCholesky.read(saved, "factor", rows)
        self.factor.jitters = jitters

    def log_det_of_weights(self) -> tuple[float, int]:
        """log det W, and its jitters."""
        root, log_det = GrowingCholesky.of(self._raised())
        return log_det, root.jitters

    @property
    def doubt(self) -> float:
        """By how much W's rounding may change log det Z~: φᵀZ~⁻¹φ ≤ 1 for each point."""
        rounding = 2 * len(self._weights) * float(np.finfo(np.float64).eps)
        return (ROUNDED_UP + rounding) * float(np.trace(self._weights))

    def log_det_range(self, gram: Array, rows: int, rounding: float) -> tuple[float, float]:
        """Between which numbers log det(Z~/λ) of the first `rows` rows is, by L and the points' inner products alone:
        λZ~⁻¹ = I − Ψᵀ(LLᵀ)⁻¹Ψ, which has the determinant of I − L⁻¹ΨΨᵀL⁻ᵀ."""
        combined = self.products(np.eye(len(gram)), rows)
        inner = self.factor.solve(self.factor.solve(combined @ gram @ combined.T, rows).T, rows)
        norms = np.abs(combined) @ np.sqrt(np.diagonal(gram))
        solved = self.factor.solve(np.diag(norms), rows)
        slack = LENIENT * rounding * (rows + float(np.einsum("ij,ij->", solved, solved)))
        left = np.linalg.eigvalsh(np.eye(rows) - (inner + inner.T) / 2)
        with np.errstate(divide="ignore", invalid="ignore"):
            least = -float(np.log(np.maximum(left + slack, 0.0)).sum())
            most = -float(np.log(np.maximum(left - slack, 0.0)).sum())
        return least, most
