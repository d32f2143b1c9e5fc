"""Chosen features, and an orthonormal basis of their span.

    S    points     (k, p)  chosen features, as factors; Φ_S in formulas
    K    _products  (k, k)  Φ_SΦ_Sᵀ; its lower half is kept, with half the diagonal
    T    _basis     (k, k)  TΦ_S is orthonormal: the inverse of K's Cholesky factor
    z               (k, n)  TΦ_Sφ: coordinates of φ's projection Pφ onto the span
    ρ               (n,)    ‖φ‖² − ‖z‖², the squared norm of the remainder φ − Pφ

A new point adds a row to T and a coordinate to z, and changes none that was there.
"""

from __future__ import annotations

import numpy as np

from rarely.core.covariance.price import Widths
from rarely.core.factors import FactorRows, Factors, gram
from rarely.core.rows import Rows
from rarely.core.types import Array, Arrays

ROUNDING = 1e-13
"""ρ below this part of (‖φ‖ + Σ_j |w_j|‖φ_j‖)², where Pφ = Σ_j w_j φ_j, may be nothing but rounding."""


class Dictionary:
    """At most `size` points, in the order in which they were chosen."""

    def __init__(self, widths: Widths, size: int) -> None:
        self._size = size
        self._points, self._products, self._basis = FactorRows(widths), Rows(size), Rows(size)

    def __len__(self) -> int:
        return len(self._points)

    def products(self, factors: Factors, points: int) -> Array:
        """Φ_Sφ of each feature, (points, n), with the first so many points."""
        return gram(self._points.view[:points], factors)

    def coordinates(self, products: Array) -> Array:
        """z from Φ_Sφ, of as many points."""
        points = len(products)
        return np.asarray(self._basis.view[:points, :points] @ products)

    def add(self, factors: Factors, products: Array, square: float) -> Array | None:
        """Make a feature a point, given its Φ_Sφ and ‖φ‖², and return its row of T.

        One whose remainder is mere rounding does not become a point: None. So K never needs a jitter.
        """
        points = len(self)
        basis, half = self._basis.view[:, :points], self._products.view[:, :points]
        weights = basis.T @ (basis @ products)
        # Projected a second time, as Gram and Schmidt must on a computer, or T would lose its orthogonality.
        weights += basis.T @ (basis @ (products - half @ weights - weights @ half))
        left = square - weights @ products
        norms = np.sqrt(2 * np.diagonal(half))
        if left <= ROUNDING * (np.sqrt(square) + np.abs(weights) @ norms) ** 2:
            return None
        rows = np.zeros((2, self._size))
        rows[0, : points + 1] = np.append(-weights, 1.0) / np.sqrt(left)
        rows[1, : points + 1] = np.append(products, square / 2)
        self._basis.append(rows[:1])
        self._products.append(rows[1:])
        self._points.append(factors)
        return rows[0, : points + 1]

    def fork(self, points: int | None = None) -> Dictionary:
        """A dictionary that starts with this one's first so many points, or all; see `Rows.fork`."""
        other = Dictionary((), self._size)
        other._points = self._points.fork(points)
        other._products, other._basis = self._products.fork(points), self._basis.fork(points)
        return other

    def state(self) -> Arrays:
        """Arrays from which `restore` makes the same dictionary."""
        return self._points.state() | {"products": self._products.view, "basis": self._basis.view}

    def restore(self, arrays: Arrays) -> None:
        """Take over a saved state; no points may be here yet."""
        self._points.restore(arrays)
        self._products.append(arrays["products"])
        self._basis.append(arrays["basis"])
