"""Contexts of many columns by their few nonzero numbers.

    d   columns       w   nonzeros     the most in one context

    packed   (2w,)      c_1 … c_w, x_1 … x_w     columns and numbers, filled up with zeros
    spread   (d + 1,)   x, then the constant

A policy is given packed contexts and stores them, and its learner works on their columns
(`rarely._core.model.sparse_features`). Numbers are divided by √w, so that a row of ones has the length 1. They are not
centred, which would fill the zeros.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np

from rarely._core.errors import InvalidContexts, InvalidInput, check_whole, shown
from rarely._core.inputs.scaling import Standardising, check_dim
from rarely._core.reading import read_real, read_whole
from rarely._core.types import Array, IntArray


@dataclass(frozen=True, eq=False)
class SparseRows(Standardising):
    """Contexts of a sparse matrix, such as SciPy's, for `LinUCB`, `LinTS` and `BatchNeuralUCB`.

    Examples
    --------
    >>> from rarely import LinUCB, SparseRows
    >>> rows = SparseRows.of(columns=10_000, nonzeros=2)
    >>> policy = LinUCB(seed=0, **rows.settings)
    >>> decision = policy.select(rows.pack([({17: 1.0, 9_000: 0.5}), {3: 2.0}]))
    >>> decision.arm, policy.history.contexts
    (1, array([[3., 0., 2., 0.]]))
    """

    columns: int = 0
    """d."""

    @classmethod
    def of(cls, columns: int, nonzeros: int, *, constant: bool = True) -> Self:
        """Return contexts of so many columns, of which at most so many are not 0."""
        check_dim(columns)
        check_whole("nonzeros", nonzeros, 1)
        return cls(np.zeros(2 * nonzeros), np.repeat([1.0, nonzeros**0.5], nonzeros), constant, columns=columns)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_dim(self.columns)
        check_whole("numbers of a packed context, columns and values,", self.dim, 2)
        if self.dim % 2 or self.center.any() or (self.spread[: self.dim // 2] != 1).any():
            raise InvalidInput("SparseRows must have center 0, and spread 1 of the columns; make it by SparseRows.of.")

    @cached_property
    def scaled_dim(self) -> int:
        """Numbers in a context that is written out."""
        return self.columns + self.constant

    @property
    def settings(self) -> dict[str, Any]:
        """`dim` and `context_scale` for a policy."""
        return {"dim": self.dim, "context_scale": self}

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"columns": int(self.columns)}

    def pack(self, matrix: Any) -> Array:
        """Return the rows of a sparse matrix, or dicts from columns to numbers, as contexts of a policy, (K, 2w)."""
        if hasattr(matrix, "tocsr") and len(matrix.shape) == 2:
            matrix = matrix.tocsr(copy=True)
            matrix.sum_duplicates()
            width, lengths, columns, values = matrix.shape[1], np.diff(matrix.indptr), matrix.indices, matrix.data
        elif isinstance(matrix, Sequence) and all(isinstance(row, Mapping) for row in matrix):
            width, lengths = self.columns, np.array([len(row) for row in matrix], np.int64)
            columns, values = ([each for row in matrix for each in part(row)] for part in (dict.keys, dict.values))
        else:
            raise InvalidContexts(f"rows must be a sparse matrix or a list of dicts; got {shown(matrix)}.")
        columns = read_whole(columns, "columns", InvalidContexts)
        values = read_real(values, "numbers of a sparse row", InvalidContexts)
        filled, most = values != 0, self.dim // 2
        rows, columns, values = np.repeat(np.arange(len(lengths)), lengths)[filled], columns[filled], values[filled]
        counts, order = np.bincount(rows, minlength=len(lengths)), np.lexsort((columns, rows))
        if width != self.columns or counts.max(initial=0) > most:
            came = f"{width} columns and {counts.max(initial=0)} numbers in a row"
            raise InvalidContexts(
                f"rows must have {self.columns} columns, of which at most {most} are not 0; got {came}."
            )
        packed, there = np.zeros((len(counts), 2, most)), np.arange(most) < counts[:, None]
        # Equal contexts are equal rows, in whatever order their columns came.
        packed[:, 0][there], packed[:, 1][there] = columns[order], values[order]
        out = packed.reshape(len(counts), self.dim)
        self.padded(out)  # checks the columns
        return out

    def padded(self, contexts: Array) -> Array:
        """Return packed contexts, scaled and with the constant among them, (n, 2w + 2)."""
        columns = contexts[:, : self.dim // 2]
        if not ((columns >= 0) & (columns < self.columns) & (columns == np.floor(columns))).all():
            raise InvalidContexts(f"contexts must be what rows.pack returned; got columns beyond {self.columns - 1}.")
        pairs = (contexts / self.spread).reshape(len(contexts), 2, self.dim // 2)
        ends = np.broadcast_to([[self.columns], [1.0]], (len(contexts), 2, int(self.constant)))
        return np.concatenate((pairs, ends), axis=2).reshape(len(contexts), self.dim + 2 * self.constant)

    def __call__(self, contexts: Array) -> Array:
        """Write (n, 2w) packed contexts out, (n, scaled_dim)."""
        return self._on(contexts, np.arange(self.scaled_dim))

    def _on(self, contexts: Array, seen: IntArray) -> Array:
        """Write contexts out on these columns, outside of which they are 0."""
        columns, numbers = np.split(self.padded(contexts), 2, axis=1)
        out = np.zeros((len(contexts), len(seen)))
        np.add.at(out, (np.arange(len(out))[:, None], np.searchsorted(seen, columns)), numbers)
        return out


@dataclass(frozen=True, eq=False)
class SeenSpace(SparseRows):
    """The coordinates of contexts in the space that a sample of them spans: at most as many as the sample has rows."""

    seen: IntArray = field(default_factory=lambda: np.zeros(1, np.int64))  # the columns of the sample, with column 0
    basis: Array | None = None  # (len(seen), r), orthonormal; None for the columns themselves

    @classmethod
    def of_sample(cls, rows: SparseRows, contexts: Array) -> SeenSpace:
        """Return the space of (n, 2w) packed contexts."""
        seen = np.union1d(rows.padded(contexts)[:, : (rows.dim // 2 + rows.constant)], [0]).astype(np.int64)
        few = 0 < len(contexts) < len(seen)  # without samples: column 0, for a network needs one
        return cls(**rows.describe(), seen=seen, basis=np.linalg.qr(rows._on(contexts, seen).T)[0] if few else None)

    @cached_property
    def scaled_dim(self) -> int:
        return len(self.seen) if self.basis is None else self.basis.shape[1]

    def __call__(self, contexts: Array) -> Array:
        return self.turned(self._on(contexts, self.seen))

    def turned(self, rows: Array) -> Array:
        """Return coordinates of rows that are written out on the columns seen."""
        return rows if self.basis is None else rows @ self.basis

    def turned_back(self, rows: Array) -> Array:
        """Return rows on the columns seen from their coordinates."""
        return rows if self.basis is None else rows @ self.basis.T
