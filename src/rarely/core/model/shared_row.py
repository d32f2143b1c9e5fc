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

import numpy as np

from rarely.core.types import Array

FEW = 4
"""Contexts whose common row is not worth a look."""
GEMM_ALONE = 2**18
"""Products of numbers up to which OpenBLAS multiplies two matrices without a second thread."""


@dataclass(frozen=True, slots=True)
class SharedRow:
    """Crossed contexts of n arms and one row, by their parts.

    >>> contexts = np.array([[2.0, 3.0, f, 2 * f, 3 * f, 1.0] for f in range(5)])
    >>> shared, matrix = SharedRow.of(contexts, row=2, features=1), np.arange(12.0).reshape(2, 6)
    >>> np.array_equal(shared.image(matrix), contexts @ matrix.T)
    True
    """

    row: Array
    """(r,)"""
    features: Array
    """(n, a)"""
    constant: bool

    @classmethod
    def of(cls, crossed: Array, row: int, features: int) -> SharedRow | None:
        """Those of crossed contexts with so many numbers of each; None where they are of several rows."""
        if len(crossed) <= FEW or not (crossed[:, :row] == crossed[0, :row]).all():
            return None
        plain = row + features
        return cls(crossed[0, :row], crossed[:, row:plain], crossed.shape[1] > plain + row * features)

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
