"""Crossed contexts of one row and several arms, whose products with a matrix need no crossing.

    x   row        (r,)     what the arms of a round share
    f   features   (n, a)   each arm's own
    x̃   crossed    (n, ·)   [x, f, x₁f, …, x_r f, 1], as `rarely.core.inputs.crossing` makes them

With M_x, M_f, M_{xf} and m_1 the parts of a matrix that meet x, f, xf and 1,

    M·x̃ = (M_f + Σ_i x_i M_{x_i f})·f + (M_x x + m_1)

so what belongs to the row is computed once for all arms, and an arm takes a products for each row of M instead of ra.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rarely.core.types import Array

FEW = 4
"""Contexts whose common row is not worth a look."""
GEMM_ALONE = 2**18
"""Products of numbers up to which OpenBLAS multiplies two matrices without a second thread."""


@dataclass(frozen=True, slots=True)
class SharedRow:
    """Crossed contexts of n arms and one row, by their parts.

    >>> shared = SharedRow.of(np.array([[2.0, 3.0, f] for f in range(5)]), row=2, constant=True)
    >>> shared.crossed()[4]
    array([ 2.,  3.,  4.,  8., 12.,  1.])
    >>> matrix = np.arange(12.0).reshape(2, 6)
    >>> np.array_equal(shared.image(matrix), shared.crossed() @ matrix.T)
    True
    """

    row: Array
    """(r,)"""
    features: Array
    """(n, a)"""
    constant: bool

    @classmethod
    def of(cls, plain: Array, row: int, constant: bool) -> SharedRow | None:
        """Those of contexts [row, features] before they are crossed; None where they are of several rows."""
        if len(plain) <= FEW or not (plain[:, :row] == plain[0, :row]).all():
            return None
        return cls(plain[0, :row], plain[:, row:], constant)

    def among(self, arms: Any) -> SharedRow:
        """The same of some arms."""
        return SharedRow(self.row, self.features[arms], self.constant)

    def crossed(self) -> Array:
        """The contexts written out."""
        (n, a), r = self.features.shape, len(self.row)
        out = np.ones((n, r + a + r * a + self.constant))
        out[:, :r], out[:, r : r + a] = self.row, self.features
        products = out[:, r + a : r + a + r * a].reshape(n, r, a)
        np.multiply(self.row[None, :, None], self.features[:, None, :], out=products)
        return out

    def squared_norms(self) -> Array:
        """‖x̃‖² of each, (n,): (1 + ‖x‖²)(1 + ‖f‖²), less 1 without the constant."""
        own = np.einsum("ij,ij->i", self.features, self.features)
        return np.asarray((1 + self.row @ self.row) * (1 + own) - (not self.constant))

    def squared(self) -> SharedRow:
        """The squares of the contexts, which are crossed likewise."""
        return SharedRow(np.square(self.row), np.square(self.features), self.constant)

    def image(self, matrix: Array) -> Array:
        """(n, m): an (m, scaled_dim) matrix times each context."""
        r, (n, a) = len(self.row), self.features.shape
        d, m = r + a, len(matrix)
        own = matrix[:, r:d] + np.matmul(self.row, matrix[:, d : d + r * a].reshape(m, r, a))
        level = np.einsum("mr,r->m", matrix[:, :r], self.row)
        if self.constant:
            level += matrix[:, -1]
        out = np.empty((n, m))
        tile = max(FEW, GEMM_ALONE // own.size)
        for start in range(0, n, tile):
            np.matmul(self.features[start : start + tile], own.T, out=out[start : start + tile])
        out += level
        return out
