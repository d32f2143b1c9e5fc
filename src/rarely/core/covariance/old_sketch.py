"""Sketches that version 0.1 saved, in the form of today.

    T   basis   (k, k)  lower triangular; TΦ_S is orthonormal, z = TΦ_Sφ
    M           (r, r)  λI + Σ_s z_s z_sᵀ, of which only the first k rows and columns differ from λI

Then Σ_s A_s A_sᵀ = Φ_SᵀTᵀ(M − λI)TΦ_S, so the weights of today are W = Tᵀ(M − λI)T.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rarely.core.covariance.cholesky import GrowingCholesky, lower_inverse
from rarely.core.covariance.compressed import Compressed
from rarely.core.covariance.dictionary import Dictionary
from rarely.core.factors import Factors
from rarely.core.types import Array, Arrays


class OldSketch(NamedTuple):
    """The arrays and numbers of a saved sketch."""

    numbers: dict[str, Any]
    arrays: Arrays
    ridge: float
    size: int

    @property
    def basis(self) -> Array:
        """T."""
        points = len(self.arrays["basis"])
        return np.asarray(self.arrays["basis"][:, :points])

    def part(self, name: str) -> Arrays:
        """The arrays of one part."""
        return {k.removeprefix(f"{name}."): v for k, v in self.arrays.items() if k.startswith(f"{name}.")}

    def points(self) -> Arrays:
        """The state of the dictionary: every point was a pivot."""
        half = self.arrays["products"][:, : len(self.basis)]  # lower triangular, its diagonal halved
        own = {name: array for name, array in self.arrays.items() if "." not in name}
        return own | {"products": half + half.T, "pivots": np.arange(len(self.basis))}

    def running(self, dictionary: Dictionary) -> Compressed:
        """The running matrix, pending rounds included."""
        pending = self.arrays["inner.pending"]
        return self._compressed(self.arrays["inner.matrix"] + pending.T @ pending, dictionary, len(self.basis))

    def frozen(self, dictionary: Dictionary) -> Compressed:
        """The frozen matrix, on the points that it had."""
        matrix = self.arrays["inner.matrix"]
        if "inner.frozen" in self.arrays:
            root = GrowingCholesky.unpacked(self.arrays["inner.frozen"], self.size)
            lower = lower_inverse(root.solve(np.eye(self.size), self.size))
            matrix = lower @ lower.T
        return self._compressed(matrix, dictionary, self.numbers["frozen"])

    def _compressed(self, matrix: Array, dictionary: Dictionary, points: int) -> Compressed:
        basis = self.basis[:points, :points]
        inside = matrix[:points, :points] - self.ridge * np.eye(points)
        gram = dictionary.gram[:points, :points]
        return Compressed.of(basis.T @ inside @ basis, gram, self.size, self.ridge, dictionary.dependent)

    def lost(self, dictionary: Dictionary) -> tuple[dict[str, Any], Arrays]:
        """The state of the remainders; what rounding may hide is added, so that the bound stays one."""
        lost, layers = self.part("lost"), len([name for name in self.arrays if name.startswith("lost.input")])
        inputs, signals = (tuple(lost[f"{name}{i}"] for i in range(layers)) for name in ("input", "signal"))
        factors, weights = Factors(inputs, signals), np.zeros((len(lost["squares"]), self.size))
        products = dictionary.products(factors, len(dictionary))
        for i, points in enumerate(lost["points"]):
            basis = self.basis[:points, :points]
            weights[i, :points] = basis.T @ (basis @ products[:points, i])
        growth = np.sqrt(factors.squared_norms) + np.abs(weights[:, : len(dictionary)]) @ dictionary.norms
        rounding = dictionary.rounding * np.square(growth)
        numbers = self.numbers["lost"] | {"total": self.numbers["lost"]["total"] + float(rounding.sum())}
        kept = {name: array for name, array in lost.items() if name != "points"}
        return numbers, kept | {"weights": weights, "squares": lost["squares"] + rounding, "rounding": rounding}
