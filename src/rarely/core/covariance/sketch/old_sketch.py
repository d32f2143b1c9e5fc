"""The sketched covariance of version 0.1, as the one of today.

    S           (k, p)  points, as today
    T    basis  (k, k)  lower triangular; TΦ_S is orthonormal
    z           (r,)    TΦ_Sφ, coordinates of a round, with the points of its own time
    M    inner  (r, r)  λI + Σ_s z_s z_sᵀ, in the primal form
    N           (k, k)  M − λI, of which the points have UUᵀ, U = TK

    Z~ = λI + Φ_SᵀTᵀNTΦ_S = λI + Φ_SᵀWΦ_S, so W = TᵀNT = I + Tᵀ(N − UUᵀ)T

T is large where points are nearly dependent, and W then has fewer digits than N. W is raised by what rounding can
change, and the error bound includes that, so it may be larger than the one that version 0.1 told, and never too small.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np

from rarely.core.covariance.cost import Limit, Widths
from rarely.core.covariance.primal import Primal
from rarely.core.covariance.sketch.compressed import ROUNDED_UP, Compressed
from rarely.core.covariance.sketch.dictionary import Dictionary, check_basis, check_gram
from rarely.core.errors import SnapshotWarning
from rarely.core.model.features import FactorRows, Factors, gram
from rarely.core.saving.fields import CLOSE, Fields
from rarely.core.types import Array, Arrays

NOTICEABLE = 0.1
"""The part of λ that rounding may hide of Z~ without a warning."""
EPS = float(np.finfo(np.float64).eps)


class Points(NamedTuple):
    """The points, K and T."""

    factors: Factors
    gram: Array
    basis: Array

    @property
    def spreads(self) -> Array:
        """Σ_j |T_ij|‖φ_j‖, by which each coordinate multiplies rounding, (k,)."""
        return np.asarray(np.abs(self.basis) @ np.sqrt(np.diagonal(self.gram)))

    def first(self, count: int) -> Points:
        """The first of them."""
        return Points(self.factors[:count], self.gram[:count, :count], self.basis[:count, :count])


class Weighted(NamedTuple):
    """Points that count W times."""

    compressed: Compressed
    jitters: int
    hidden: float
    """The trace of what conversion and rounding may have changed in Z~."""


def converted(saved: Fields, widths: Widths, ridge: float, limit: Limit) -> tuple[dict[str, Any], Arrays]:
    """The state that a sketch of today would have saved."""
    size = limit.sketch.size
    inner = Primal(((1, size),), ridge, limit.unbounded())
    with saved.inner("inner") as part:
        inner.read(part)
    points = _read_points(saved, widths, size)
    frozen = saved.whole("frozen", most=len(points.gram))
    with saved.inner("lost") as part:
        lost = _Lost(part, widths, points)
    fits = inner.rounds == lost.count + len(points.gram)
    saved.require(fits, "every round must be a point or lost")

    dictionary = Dictionary(widths, size)
    for i in range(len(points.gram)):
        dictionary.add(points.factors[[i]], points.gram[i, :i], float(points.gram[i, i]))
    if len(dictionary):
        dictionary.choose_pivots()
    exact = not lost.count
    matrix, frozen_matrix = inner.written_out()
    running = _weighted(saved, matrix, points, dictionary, ridge, exact)
    before = _weighted(saved, frozen_matrix, points.first(frozen), dictionary, ridge, exact)
    if running.hidden > NOTICEABLE * ridge:
        warnings.warn(
            f"the snapshot holds a sketch of version 0.1 with nearly dependent points; rounding may have changed "
            f"its matrix by {running.hidden / ridge:.2g} times the ridge when it was converted. policy.error_bound "
            "includes that. A larger ridge avoids it.",
            SnapshotWarning,
            stacklevel=2,
        )
    # Σ‖φ_s‖² of all rounds is at most what M has of them and what they lost.
    squares = float(np.trace(matrix)) - size * ridge + lost.total
    numbers, arrays = lost.state(size, dictionary.rounding, squares, running.hidden)
    numbers |= {
        "rounds": inner.rounds,
        # The schedule compares them with earlier ones, so they stay as they were.
        "log_det": inner.log_det,
        "frozen_log_det": inner.frozen_log_det,
        "rows": len(running.compressed),
        "frozen_rows": frozen,
        "frozen_points": frozen,
        "jitters": inner.jitters + running.jitters,
        "pending_jitters": running.compressed.factor.jitters,
    }
    parts = {"points": dictionary.state(), "running": running.compressed.state(), "lost": arrays}
    if frozen:
        parts["frozen"] = before.compressed.leading(frozen).state()
    return numbers, {f"{part}.{name}": array for part, arrays in parts.items() for name, array in arrays.items()}


def _read_points(saved: Fields, widths: Widths, size: int) -> Points:
    rows = FactorRows(widths)
    rows.read(saved)
    factors, k = rows.view, len(rows)
    saved.require(k <= size, f"at most {size} rounds may be points; there are {k}")
    half, basis = saved.array("products", (k, size)), saved.array("basis", (k, size))
    for name, array in (("products", half), ("basis", basis)):
        lower = not np.triu(array, 1).any() and bool((np.diagonal(array) > 0).all())
        saved.require(lower, f"{name} must be lower triangular with a positive diagonal")
    products = half[:, :k] + half[:, :k].T
    check_gram(saved, factors, products)
    check_basis(saved, basis[:, :k], products, Dictionary(widths, 0).rounding)
    return Points(factors, products, basis[:, :k])


def _weighted(
    saved: Fields, matrix: Array, points: Points, dictionary: Dictionary, ridge: float, exact: bool
) -> Weighted:
    """Points with the weights that M has on them; `exact` says that M has nothing but these points."""
    k, norms = len(points.gram), np.sqrt(np.diagonal(points.gram))
    compressed = Compressed(dictionary.size)
    if not k:
        return Weighted(compressed, 0, 0.0)
    hidden = 0.0
    compressed.pending.append(np.eye(k))
    if not exact:
        counted = matrix[:k, :k] - ridge * np.eye(k)
        own = np.triu(points.basis @ points.gram)
        values, vectors = np.linalg.eigh(counted - own @ own.T)
        total, below = float(np.trace(counted)), float(-np.minimum(values, 0.0).sum())
        saved.require(below <= CLOSE * total, "inner.matrix must hold the rounds that are points")
        roots = (np.sqrt(np.maximum(values, 0.0)) * vectors).T @ points.basis
        raised = k * EPS * np.einsum("ij,ij->j", roots, roots)
        compressed.pending.append(roots)
        compressed.pending.append(np.diag(np.sqrt(raised)))
        # W's rounding with what raised it, then that of N's coordinates.
        weighed = (1 + np.einsum("ij,ij->j", roots, roots)) @ np.square(norms)
        hidden = below + (2 * k * EPS + ROUNDED_UP) * float(weighed)
        hidden += 4 * dictionary.rounding * (1 + float(np.linalg.norm(points.spreads))) * total
    compressed.count(k)
    _, jitters = compressed.factorise(points.gram, ridge, dictionary.dependent)
    return Weighted(compressed, jitters, hidden)


class _Lost:
    """The rounds that are no points: sums over all and over closed blocks, and the open block."""

    def __init__(self, saved: Fields, widths: Widths, points: Points) -> None:
        self._points = points
        self._rows = FactorRows(widths)
        self._rows.read(saved)
        n = len(self._rows)
        self._known = saved.array("points", (n,), "int", least=0, most=len(points.gram))
        """How many points there were for each round."""
        self._squares = saved.array("squares", (n,), least=0.0)
        self.count = saved.whole("count", least=n)
        self.total, self._closed = saved.number("total", least=0.0), saved.number("closed", least=0.0)
        among = float(self._squares.sum())
        saved.require(self.total >= (1 - CLOSE) * among, f"total must be at least {among:.9g}, the sum of squares")

    def state(self, size: int, rounding: float, squares: float, hidden: float) -> tuple[dict[str, Any], Arrays]:
        """What `Remainders` would have saved, given Σ‖φ_s‖² of all rounds at most."""
        factors, points = self._rows.view, self._points
        coordinates = points.basis @ gram(points.factors, factors)
        coordinates[np.arange(len(coordinates))[:, None] >= self._known] = 0.0
        norms, spread = np.sqrt(factors.squared_norms), float(np.linalg.norm(points.spreads))
        # Version 0.1 told ‖R‖² as it came out; today's is raised by what rounding may have hidden of it.
        growths = np.square(norms + points.spreads @ np.abs(coordinates))
        unsure = 2 * rounding * growths + np.square(rounding * spread * norms)
        # Closed blocks are sums alone; ‖φ‖(1 + ‖spreads‖) is at least each round's γ.
        closed = 2 * rounding * (1 + spread) ** 2 * squares if self.count > len(factors) else 0.0
        numbers = {
            # What conversion changed has the rank of W.
            "count": self.count + len(points.gram) * (hidden > 0),
            "total": self.total + float(unsure.sum()) + closed + hidden,
            "closed": self._closed + closed + hidden,
        }
        weights = np.zeros((len(factors), size))
        weights[:, : len(coordinates)] = coordinates.T @ points.basis
        arrays = {"weights": weights, "squares": self._squares + unsure, "rounding": unsure}
        return {"lost": numbers}, self._rows.state() | arrays
