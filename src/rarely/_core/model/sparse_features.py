"""Features of sparse contexts: inner products and networks at a cost of the nonzero numbers.

    c, x   (n, w)   columns and numbers of n contexts, packed side by side in an array (n, 2w)

A linear model has the feature x, and a network of two layers with a skip path of strength s

    φ = (δ_1 xᵀ, s·x, a_1)        ⟨φ, φ'⟩ = (⟨δ_1, δ_1'⟩ + s²)⟨x, x'⟩ + ⟨a_1, a_1'⟩

so the factors of two layers are (x, [δ_1, s]) and (a_1, 1), and x stays packed.
"""

from __future__ import annotations

import numpy as np

from rarely._core.model.features import FactorRows, Factors
from rarely._core.model.network import Network, Weights
from rarely._core.saving.fields import Fields
from rarely._core.types import Array, IntArray


class SparseFactors(Factors):
    """n features whose first inputs are packed."""

    def compute_norms(self) -> Array:
        numbers = self.inputs[0][:, self.inputs[0].shape[1] // 2 :]
        return Factors((numbers, *self.inputs[1:]), self.signals).compute_norms()


class SparseFactorRows(FactorRows):
    """Sparse factors of past rounds, growing."""

    def __init__(self, widths: tuple[tuple[int, int], ...], columns: int) -> None:
        super().__init__(widths, SparseFactors)
        self.columns = columns

    def read(self, saved: Fields) -> None:
        super().read(saved)
        columns = np.split(self.view.inputs[0], 2, axis=1)[0]
        fit = (columns >= 0) & (columns < self.columns) & (columns == np.floor(columns))
        saved.check(fit.all(), f"whole columns from 0 to {self.columns - 1} in the first half of {self._names[0]}")


def unpacked(packed: Array) -> tuple[IntArray, Array]:
    """Return columns and numbers."""
    half = packed.shape[1] // 2
    return packed[:, :half].astype(np.int64), packed[:, half:]


def sparse_products(left: Array, right: Array) -> Array:
    """Return inner products of packed contexts, (n, n').

    >>> sparse_products(np.array([[7.0, 3.0, 1.0, 2.0]]), np.array([[3.0, 5.0, 10.0, 1.0], [7.0, 0.0, 4.0, 0.0]]))
    array([[20.,  4.]])
    """
    (columns, numbers), (others, values), count = unpacked(left), unpacked(right), len(right)
    present, places = np.unique(others, return_inverse=True)
    # The columns of the right side as rows of a small dense matrix.
    flat = places.ravel() * count + np.repeat(np.arange(count), others.shape[1])
    table = np.bincount(flat, values.ravel(), len(present) * count).reshape(-1, count)
    place = np.full(max(int(columns.max(initial=0)), int(present[-1])) + 1, -1)
    place[present] = np.arange(len(present))
    places, out = place[columns], np.zeros((len(left), count))
    both = places >= 0
    rows = np.nonzero(both)[0]
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    if len(rows):
        out[rows[starts]] = np.add.reduceat(numbers[both][:, None] * table[places[both]], starts)
    return out


def sparse_gram(left: Factors, right: Factors) -> Array:
    """Return inner products of features whose first inputs are packed, (n, n')."""
    if left is right and len(left) == 1:
        return left.squared_norms[:, None].copy()
    out = sparse_products(left.inputs[0], right.inputs[0])
    out *= left.signals[0] @ right.signals[0].T
    for a, d, b, e in zip(left.inputs[1:], left.signals[1:], right.inputs[1:], right.signals[1:], strict=True):
        out += (a @ b.T) * (d @ e.T)
    return out


def times(matrix: Array, packed: Array) -> Array:
    """Return an (m, d) matrix times each packed context, (n, m)."""
    columns, numbers = unpacked(packed)
    parts = matrix[:, columns.ravel()].reshape(len(matrix), *columns.shape)
    return np.asarray(np.einsum("mnw,nw->nm", parts, numbers))


def values_and_factors(network: Network, weights: Weights, packed: Array) -> tuple[Array, Factors]:
    """Return f of each context, (n,), and its feature."""
    first, last = (np.asarray(w, np.float64) for w in weights)
    units, m, skip = np.maximum(times(first, packed), 0), network.hidden, network.skip or 0.0
    values = units @ last[0, :m]
    if skip:
        values += skip * times(last[:, m:], packed)[:, 0]
    signals = np.column_stack(((units > 0) * last[0, :m], np.full(len(units), skip)))
    return network.output_scale * values, SparseFactors((packed, units), (signals, np.ones((len(units), 1))))
