"""Features as layer factors: a gradient is not written out where an inner product suffices.

φ      Factors          (p,) each   ∂u/∂θ = g(x; θ)/√m, u = f/√m
a_l−1  inputs[l−1]      (n, in_l)   what layer l receives
δ_l    signals[l−1]     (n, out_l)  what comes back to layer l: ∂u/∂W_l = δ_l a_{l−1}ᵀ

⟨φ, φ'⟩ = Σ_l ⟨δ_l, δ'_l⟩·⟨a_{l−1}, a'_{l−1}⟩, also when φ and φ' come from different weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import numpy as np

from rarely._core.growable_array import GrowableRows
from rarely._core.native import linalg
from rarely._core.saving.fields import Fields
from rarely._core.types import Array, Arrays, forwarded

TILE_NUMBERS = 2**16  # numbers in a tile of inner products, so that its three arrays stay in the second-level cache


@dataclass(eq=False)
class Factors:
    """n features, one pair (a, δ) per layer."""

    inputs: tuple[Array, ...]
    signals: tuple[Array, ...]
    norms: Array | None = field(default=None, repr=False)  # `squared_norms`, once they are known

    def __len__(self) -> int:
        return len(self.inputs[0])

    def __getitem__(self, rows: Any) -> Factors:
        pick, norms = itemgetter(rows), self.norms
        # Norms are not computed again: a single decision would notice.
        norms = None if norms is None else norms[rows]
        return self.alike(tuple(map(pick, self.inputs)), tuple(map(pick, self.signals)), norms)

    def alike(self, inputs: tuple[Array, ...], signals: tuple[Array, ...], norms: Array | None = None) -> Factors:
        """Return features with these pairs; a subclass that knows more of its layers hands that on here."""
        return type(self)(inputs, signals, norms)

    @property
    def widths(self) -> tuple[tuple[int, int], ...]:
        """(out_l, in_l) of every layer."""
        return tuple((d.shape[1], a.shape[1]) for a, d in zip(self.inputs, self.signals, strict=True))

    @property
    def squared_norms(self) -> Array:
        """‖φ‖² of each, (n,)."""
        if self.norms is None:
            self.norms = self.compute_norms()
        return self.norms

    def compute_norms(self) -> Array:
        """Return `squared_norms`, from the factors."""
        total = _squared(self.inputs[0]) * _squared(self.signals[0])
        for a, d in zip(self.inputs[1:], self.signals[1:], strict=True):
            total += _squared(a) * _squared(d)
        return total

    def vectors(self) -> Array:
        """Return the features written out, (n, p): vec(W_1), …, vec(W_L) row by row."""
        return np.ascontiguousarray(self.columns().T)

    def columns(self) -> Array:
        """Return the features written out as (p, n), as solving needs them, in an array of `linalg.room`."""
        if len(self.inputs) == 1 and self.signals[0].shape[1] == 1:  # a linear model, or a last layer
            a = self.inputs[0]
            return np.multiply(a.T, self.signals[0].T, out=linalg.room(a.shape[1], len(a)))
        out, start = linalg.room(sum(o * i for o, i in self.widths), len(self)), 0
        for (o, i), a, d in zip(self.widths, self.inputs, self.signals, strict=True):
            layer = out[start : start + o * i].reshape(o, i, len(self))
            np.multiply(np.ascontiguousarray(d.T)[:, None], np.ascontiguousarray(a.T)[None], out=layer)
            start += o * i
        return out

    def interleaved(self) -> list[Array]:
        """Return inputs and signals of each layer in turn."""
        return [array for layer in zip(self.inputs, self.signals, strict=True) for array in layer]

    def weighted(self, weights: Array | None) -> Factors:
        """Return √w·φ, so that each counts w times in Σφφᵀ."""
        if weights is None:
            return self
        root = np.sqrt(weights)[:, None]
        return self.alike(self.inputs, tuple(d * root for d in self.signals))

    def written(self) -> Factors:
        """Return the same features as one pair per layer, which these are; features of other forms are written out."""
        return self

    @classmethod
    def joined(cls, parts: list[Any]) -> Any:
        """Return all features of the parts, in order."""
        inputs = zip(*(part.inputs for part in parts), strict=True)
        signals = zip(*(part.signals for part in parts), strict=True)
        return parts[0].alike(tuple(map(np.concatenate, inputs)), tuple(map(np.concatenate, signals)))

    def last_layer(self) -> Factors:
        """Return the part of each feature that belongs to W_L."""
        return Factors(self.inputs[-1:], self.signals[-1:])


def gram(left: Factors, right: Factors) -> Array:
    """Return inner products of features, (n, n'), from their factors.

    >>> x = Factors((np.eye(2),), (np.ones((2, 1)),))
    >>> gram(x, x)
    array([[1., 0.],
           [0., 1.]])
    """
    if left is right and len(left) == 1:  # one decision: the call of a matrix product would take longer than the work
        return left.squared_norms[:, None].copy()
    rows, count = len(left), len(right)
    widest = max([array.shape[1] for array in left.inputs + left.signals])
    if linalg.compiled(count) and rows * count * widest > linalg.BLAS_ALONE:
        return linalg.cross(left.interleaved(), right.interleaved())
    out = np.empty((rows, count))
    tile = max(64, TILE_NUMBERS // max(count, 1))
    inputs, signals = (np.empty((min(tile, rows), count)) for _ in range(2))
    for start in range(0, rows, tile):
        part, total = left[start : start + tile], out[start : start + tile]
        for layer, (a, d, b, e) in enumerate(zip(part.inputs, part.signals, right.inputs, right.signals, strict=True)):
            product = inputs[: len(total)] if layer else total
            np.matmul(a, b.T, out=product)
            product *= np.matmul(d, e.T, out=signals[: len(total)])
            if layer:
                total += product
    return out


def _squared(rows: Array) -> Array:
    """Return the squared norm of each row; the signals of a last layer have one number."""
    return rows[:, 0] * rows[:, 0] if rows.shape[1] == 1 else np.einsum("ij,ij->i", rows, rows)


class FactorRows(GrowableRows):
    """Factors of past rounds, growing; each round's are those of its own version's weights."""

    def __init__(self, widths: tuple[tuple[int, int], ...], kind: Callable[..., Factors] = Factors) -> None:
        super().__init__(*(np.empty((0, i)) for _, i in widths), *(np.empty((0, o)) for o, _ in widths))
        self._kind = kind

    @property
    def view(self) -> Factors:
        """All of them, without a copy."""
        return self.part(0, self._length)

    buffers: tuple[Array, ...] = forwarded(
        "_buffers", "Inputs of each layer, then signals, with room behind the rows so far."
    )

    def part(self, start: int, end: int) -> Factors:
        """Return some of them, without a copy."""
        rows = tuple([buffer[start:end] for buffer in self._buffers])
        return self._kind(rows[: len(rows) // 2], rows[len(rows) // 2 :])

    def append(self, factors: Factors) -> None:
        """Add the factors of new rounds."""
        self.grow(*factors.inputs, *factors.signals)

    def state(self) -> Arrays:
        """Return arrays, for `read`."""
        return {name: buffer[: self._length] for name, buffer in zip(self._names, self._buffers, strict=True)}

    def read(self, saved: Fields) -> None:
        """Take over the saved rows, equally many in each layer."""
        rows: int | None = None
        parts = []
        for name, buffer in zip(self._names, self._buffers, strict=True):
            parts.append(saved.array(name, (rows, buffer.shape[1])))
            rows = len(parts[-1])
        self.grow(*parts)

    @property
    def _names(self) -> list[str]:
        return [f"{name}{i}" for name in ("input", "signal") for i in range(len(self._buffers) // 2)]
