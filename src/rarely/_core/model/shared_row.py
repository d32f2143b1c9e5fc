"""Crossed contexts of one row and several arms: products with a matrix, and features, without crossing them.

    x   row        (r,)     what the arms of a round share
    f   features   (n, a)   each arm's own
    x̃   crossed    (n, ·)   [x, f, x₁f, …, x_r f, 1], as `rarely._core.inputs.arm_blocks.Crossed` makes them

With M_x, M_f, M_{xf} and m_1 the parts of a matrix that meet x, f, xf and 1,

    M·x̃ = (M_f + Σ_i x_i M_{x_i f})·f + (M_x x + m_1)

so the row's part is computed once for all arms, and an arm takes a products for each row of M instead of ra. The
features of a network of two layers need no array of size n·ra either:

    a_1  units    (n, m)   σ(W_1 x̃)                δ_1  signal  (n, m)   W_2 ∘ 1[a_1 > 0]        s  skip

    φ = (δ_1 x̃ᵀ, [a_1, s·x̃])        ‖φ‖² = ‖δ_1‖²‖x̃‖² + ‖a_1‖² + s²‖x̃‖²

A decision needs norms and variances of all arms but the factors of one only, so `SharedFactors.inputs` are crossed on
request: by forms of Z other than the diagonal one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from rarely._core.model.features import Factors
from rarely._core.types import Array

MIN_ARMS = 5  # fewer contexts are crossed one by one: looking for a common row would not pay
GEMM_ALONE = 2**18  # multiplications up to which OpenBLAS multiplies two matrices on one thread


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

    row: Array  # (r,)
    features: Array  # (n, a)
    constant: bool

    @classmethod
    def of(cls, plain: Array, row: int, constant: bool) -> SharedRow | None:
        """Return the parts of scaled contexts [row, features], not crossed yet; None if their rows differ."""
        if len(plain) < MIN_ARMS or not (plain[:, :row] == plain[0, :row]).all():
            return None
        return cls(plain[0, :row], plain[:, row:], constant)

    def among(self, arms: Any) -> SharedRow:
        """Return the contexts of some arms."""
        return SharedRow(self.row, self.features[arms], self.constant)

    def crossed(self) -> Array:
        """Return the crossed contexts written out, (n, ·)."""
        (n, a), r = self.features.shape, len(self.row)
        out = np.ones((n, r + a + r * a + self.constant))
        out[:, :r], out[:, r : r + a] = self.row, self.features
        products = out[:, r + a : r + a + r * a].reshape(n, r, a)
        np.multiply(self.row[None, :, None], self.features[:, None, :], out=products)
        return out

    def squared_norms(self) -> Array:
        """Return ‖x̃‖² of each, (n,): (1 + ‖x‖²)(1 + ‖f‖²), minus 1 without the constant."""
        own = np.einsum("ij,ij->i", self.features, self.features)
        return np.asarray((1 + self.row @ self.row) * (1 + own) - (not self.constant))

    def squared(self) -> SharedRow:
        """Return the squares of the contexts; the square of a product is the product of the squares."""
        return SharedRow(np.square(self.row), np.square(self.features), self.constant)

    def image(self, matrix: Array) -> Array:
        """Return an (m, scaled_dim) matrix times each context, (n, m)."""
        r, (n, a) = len(self.row), self.features.shape
        d, m = r + a, len(matrix)
        own = matrix[:, r:d] + np.matmul(self.row, matrix[:, d : d + r * a].reshape(m, r, a))
        level = np.einsum("mr,r->m", matrix[:, :r], self.row)
        if self.constant:
            level += matrix[:, -1]
        out = np.empty((n, m))
        tile = max(4, GEMM_ALONE // own.size)
        for start in range(0, n, tile):
            np.matmul(self.features[start : start + tile], own.T, out=out[start : start + tile])
        out += level
        return out


class SharedFactors(Factors):
    """n features of a network of two layers, with the interface of `Factors`."""

    def __init__(self, contexts: SharedRow, units: Array, signal: Array, skip: float | None) -> None:
        signals = (signal, np.ones((len(units), 1)))
        self.__dict__.update(contexts=contexts, units=units, skip=skip, signals=signals)

    contexts: SharedRow
    units: Array
    skip: float | None

    @cached_property
    def inputs(self) -> tuple[Array, ...]:  # type: ignore[override]  # written out only where somebody asks
        """Return x̃ and [a_1, s·x̃], written out."""
        crossed = self.contexts.crossed()
        return crossed, self.units if self.skip is None else np.hstack((self.units, self.skip * crossed))

    def __len__(self) -> int:
        return len(self.units)

    def __getitem__(self, rows: Any) -> Factors:
        signal = self.signals[0][rows]
        part = SharedFactors(self.contexts.among(rows), self.units[rows], signal, self.skip)
        return Factors(part.inputs, part.signals, self.squared_norms[rows])

    def compute_norms(self) -> Array:
        signal, units, contexts = self.signals[0], self.units, self.contexts.squared_norms()
        own = np.einsum("ij,ij->i", signal, signal) + (0.0 if self.skip is None else self.skip**2)
        return np.asarray(own * contexts + np.einsum("ij,ij->i", units, units))

    def weighed_squares(self, first: Array, last: Array) -> Array:
        """Return Σ c·φ² of each, (n,), for coefficients c of both layers, (m, ·) and (1, ·)."""
        squares, m = self.contexts.squared(), self.units.shape[1]
        total = np.einsum("ij,ij->i", np.square(self.signals[0]), squares.image(first))
        total += np.einsum("ij,j->i", np.square(self.units), last[0, :m])
        if self.skip:
            total += self.skip**2 * squares.image(last[:, m:])[:, 0]
        return np.asarray(total)
