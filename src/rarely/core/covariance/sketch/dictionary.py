"""Chosen features, and every other feature as a combination of them.

    S    points     (k, p)  chosen features, as factors; Φ_S in formulas
    K    gram       (k, k)  Φ_SΦ_Sᵀ
    T    _basis     (m, k)  TΦ_S is orthonormal; one row for each pivot, 0 in the columns of spare points
    w    weights    (n, k)  TᵀTΦ_Sφ: A = Φ_Sᵀw stands for φ, its projection onto the span of the pivots
    R               (p,)    φ − A, the remainder
    γ    growth     (n,)    ‖φ‖ + Σ_j |w_j|‖φ_j‖

Pivots are points that are independent of each other beyond rounding. The other points are spare: they stand for
themselves and for no other round. Rounding changes an entry of K by a few ε‖φ_i‖‖φ_j‖, so ‖R‖² is known to within a
few εγ² and no better (docs/decisions/0016).
"""

from __future__ import annotations

import math

import numpy as np

from rarely.core.covariance.cholesky import lower_inverse, pivoted
from rarely.core.covariance.cost import Widths
from rarely.core.growable_array import GrowableArray, shallow
from rarely.core.model.features import FactorRows, Factors, gram
from rarely.core.saving.fields import CLOSE, Fields
from rarely.core.types import Array, Arrays

EPSILON = float(np.finfo(np.float64).eps)
INDEPENDENT = 100.0
"""A pivot's ‖R‖² exceeds what rounding may hide of it this many times."""
ACCURATE = 100 * EPSILON
"""Weights with a relative error of no more need no further pass."""
NEAR = 1e4
"""The roughness from which points count as nearly dependent."""


LENIENT = 1e4
"""How many times its estimate rounding may be before a saved T is refused; nearly dependent pivots need 240."""


class Dictionary:
    """At most `size` points, in the order in which they were chosen."""

    def __init__(self, widths: Widths, size: int) -> None:
        self.size = size
        self.rounding = EPSILON * math.sqrt(max(map(max, widths)))
        """What rounding may hide of ‖R‖², relative to γ²; inner products have as many terms as a layer is wide."""
        self._points, self._basis, self._pivots = FactorRows(widths), GrowableArray(size), GrowableArray(None, np.int64)
        self._products: Array = np.empty((size, size))
        """K. Forks share the buffer: each reads the rows and columns of its own points alone."""
        self._roughness = 0.0
        """The largest Σ_j T_ij²‖φ_j‖² of a row of T: it multiplies the rounding of K."""

    def __len__(self) -> int:
        return len(self._points)

    @property
    def pivots(self) -> int:
        """The number of pivots."""
        return len(self._pivots)

    @property
    def passes(self) -> int:
        """How often to project what weights leave: each pass multiplies their error by ε·roughness."""
        error = min(EPSILON * self._roughness, 0.1)
        return math.ceil(math.log(ACCURATE) / math.log(error)) if error > ACCURATE else 1

    @property
    def dependent(self) -> bool:
        """Whether some points are nearly a combination of others."""
        return self._roughness > NEAR or self.pivots < len(self)

    @property
    def gram(self) -> Array:
        """K."""
        return self._products[: len(self), : len(self)]

    @property
    def norms(self) -> Array:
        """‖φ_j‖ of the points, (k,)."""
        return np.asarray(np.sqrt(np.diagonal(self.gram)))

    def products(self, factors: Factors, points: int) -> Array:
        """Φ_Sφ of each feature with the first `points` points, (points, n)."""
        return gram(self._points.view[:points], factors)

    def weights(self, products: Array) -> Array:
        """TᵀTx for each row x of an (n, k) array."""
        basis = self._basis.view[:, : len(self)]
        return np.asarray((products @ basis.T) @ basis)

    def add(self, factors: Factors, products: Array, square: float) -> None:
        """Add a spare point, given its Φ_Sφ and ‖φ‖²."""
        points = len(self)
        self._products[points, :points] = self._products[:points, points] = products
        self._products[points, points] = square
        self._points.append(factors)

    def make_pivot(self, weights: Array, remainder: float) -> Array:
        """Make the last point a pivot, given its w on the points before it and ‖R‖²; returns its row of T."""
        row: Array = np.append(-weights, 1.0) / np.sqrt(remainder)
        self._basis.append(row[None])
        self._pivots.append(np.array([len(self) - 1]))
        self._roughness = max(self._roughness, float(row * row @ np.diagonal(self.gram)))
        return row

    def choose_pivots(self) -> None:
        """Choose the pivots anew among all points; the next is always the one with most of its norm left."""
        norms = self.norms
        pivots, lower = pivoted(self.gram / np.outer(norms, norms), INDEPENDENT * self.rounding)
        rows = np.zeros((len(pivots), len(self)))
        rows[:, pivots] = lower_inverse(lower) / norms[pivots]
        self._basis, self._pivots = GrowableArray(self.size), GrowableArray(None, np.int64)
        self._basis.append(rows)
        self._pivots.append(np.array(pivots))
        self._measure_roughness()

    def _measure_roughness(self) -> None:
        rows = np.square(self._basis.view[:, : len(self)]) @ np.diagonal(self.gram)
        self._roughness = float(np.max(rows, initial=0.0))

    def short_weights(self, products: Array, limit: float) -> Array:
        """Weights from Φ_Sφ by conjugate gradients, stopped before Σ_j |w_j|‖φ_j‖ exceeds the limit."""
        norms = self.norms
        found, left = np.zeros(len(self)), products / norms
        step, square = left, left @ left
        for _ in range(len(self)):
            image = (step / norms) @ self.gram / norms
            curvature = step @ image
            if curvature <= self.rounding * (step @ step):
                break
            further = found + square / curvature * step
            if np.abs(further).sum() > limit:
                break
            found, left = further, left - square / curvature * image
            step, square = left + (left @ left) / square * step, left @ left
        return np.asarray(found / norms)

    def fork(self, points: int | None = None) -> Dictionary:
        """A dictionary that starts with the first `points` points of this one, or all; see `GrowableArray.fork`."""
        other = shallow(self)
        pivots = None if points is None else int(np.count_nonzero(self._pivots.view < points))
        other._points = self._points.fork(points)
        other._basis, other._pivots = self._basis.fork(pivots), self._pivots.fork(pivots)
        if points is not None:
            other._measure_roughness()
        return other

    def state(self) -> Arrays:
        """Arrays from which `read` makes the same dictionary."""
        arrays = {"products": self.gram, "basis": self._basis.view, "pivots": self._pivots.view}
        return self._points.state() | arrays

    def read(self, saved: Fields) -> None:
        """Take over a saved state; no points may be here yet."""
        self._points.read(saved)
        k = len(self)
        saved.require(k <= self.size, f"at most {self.size} rounds may be points; there are {k}")
        self._products[:k, :k] = saved.array("products", (k, k))
        check_gram(saved, self._points.view, self.gram)
        pivots = saved.array("pivots", (None,), "int", least=0, most=k - 1)
        basis = saved.array("basis", (len(pivots), self.size))
        saved.require(len(set(pivots)) == len(pivots), "pivots must be different points")
        spare = np.setdiff1d(np.arange(self.size), pivots)
        saved.require(not basis[:, spare].any(), "basis must be 0 in the columns of spare points")
        saved.require(bool((basis[np.arange(len(pivots)), pivots] > 0).all()), "basis must be above 0 at its pivots")
        check_basis(saved, basis[:, :k], self.gram, self.rounding)
        self._basis.append(basis)
        self._pivots.append(pivots)
        self._measure_roughness()


def check_gram(saved: Fields, points: Factors, products: Array) -> None:
    """Refuse inner products that are not those of the points, all of which have a norm above 0."""
    truth = gram(points, points)
    norms = np.sqrt(np.diagonal(truth))
    same = np.abs(products - truth) <= CLOSE * np.outer(norms, norms)
    saved.require(bool(same.all() and (norms > 0).all()), "products must be those of the saved points")


def check_basis(saved: Fields, basis: Array, products: Array, rounding: float) -> None:
    """Refuse rows of T that do not make the points orthonormal, as far as rounding lets them."""
    spreads = np.abs(basis) @ np.sqrt(np.diagonal(products))
    off = np.abs(basis @ products @ basis.T - np.eye(len(basis)))
    slack = CLOSE + LENIENT * len(products) * rounding * float(np.max(spreads, initial=0.0)) ** 2
    saved.require(bool((off <= slack).all()), "basis must make the saved points orthonormal")
