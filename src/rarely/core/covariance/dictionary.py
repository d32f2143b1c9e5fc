"""Chosen features, and coordinates in an orthonormal basis of their span.

    S    points   (k, p)  chosen features, as factors
    L    basis    (k, k)  Φ_S Φ_Sᵀ = LLᵀ
    z             (k, n)  L⁻¹Φ_S φ: coordinates of φ's projection Pφ onto the span
    ρ             (n,)    ‖φ‖² − ‖z‖², the squared norm of the remainder φ − Pφ

A new point borders L. So it adds a coordinate and changes none that was there.
"""

from __future__ import annotations

from rarely.core.covariance.cholesky import GrowingCholesky, whole_panels
from rarely.core.covariance.price import Widths
from rarely.core.factors import FactorRows, Factors, gram
from rarely.core.types import Array, Arrays


class Dictionary:
    """The points, in the order in which they were chosen."""

    def __init__(self, widths: Widths) -> None:
        self._points = FactorRows(widths)
        self._basis = GrowingCholesky()

    def __len__(self) -> int:
        return len(self._points)

    def coordinates(self, factors: Factors, points: int, known: Array | None = None) -> Array:
        """z of each feature, (points, n), for the first so many points; `known` are the first rows of it."""
        known = None if known is None else whole_panels(known)
        done = 0 if known is None else len(known)
        return self._basis.solve(gram(self._points.view[done:points], factors), points, known)

    def append(self, factors: Factors, coordinates: Array) -> None:
        """Add points; of each, its coordinates up to its own."""
        self._basis.append(coordinates)
        self._points.append(factors)

    def fork(self) -> Dictionary:
        """A dictionary that starts with this one; see `Rows.fork`."""
        other = Dictionary(())
        other._points, other._basis = self._points.fork(), self._basis.fork()
        return other

    def state(self) -> Arrays:
        """Arrays from which `restore` makes the same dictionary."""
        return self._points.state() | {"basis": self._basis.packed()}

    def restore(self, arrays: Arrays) -> None:
        """Take over a saved state."""
        self._points.restore(arrays)
        self._basis = GrowingCholesky.unpacked(arrays["basis"], len(self._points))
