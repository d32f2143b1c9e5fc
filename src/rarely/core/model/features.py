"""Features as layer factors: a gradient is never written out where an inner product will do.

φ      Factors          (p,) each   ∂u/∂θ = g(x; θ)/√m, u = f/√m
a_l−1  inputs[l−1]      (n, in_l)   what layer l receives
δ_l    signals[l−1]     (n, out_l)  what comes back to layer l: ∂u/∂W_l = δ_l a_{l−1}ᵀ

⟨φ, φ'⟩ = Σ_l ⟨δ_l, δ'_l⟩·⟨a_{l−1}, a'_{l−1}⟩, also when φ and φ' come from different weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from rarely.core.growable_array import GrowableArray
from rarely.core.native import linalg
from rarely.core.saving.fields import Fields
from rarely.core.types import Array, Arrays

TILE_NUMBERS = 2**16
"""Numbers in a tile of inner products, so that its three arrays stay in the second-level cache."""


@dataclass(frozen=True)
class Factors:
    """n features, one pair (a, δ) per layer."""

    inputs: tuple[Array, ...]
    signals: tuple[Array, ...]

    def __len__(self) -> int:
        return len(self.inputs[0])

    def __getitem__(self, rows: Any) -> Factors:
        part = Factors(tuple(a[rows] for a in self.inputs), tuple(d[rows] for d in self.signals))
        if "squared_norms" in self.__dict__:  # worked out before, and one decision would notice
            part.__dict__["squared_norms"] = self.squared_norms[rows]
        return part

    @property
    def widths(self) -> tuple[tuple[int, int], ...]:
        """(out_l, in_l) of every layer."""
        return tuple((d.shape[1], a.shape[1]) for a, d in zip(self.inputs, self.signals, strict=True))

    @cached_property
    def squared_norms(self) -> Array:
        """‖φ‖² of each, (n,)."""
        total = np.zeros(len(self))
        for a, d in zip(self.inputs, self.signals, strict=True):
            total += np.einsum("ij,ij->i", a, a) * np.einsum("ij,ij->i", d, d)
        return total

    def vectors(self) -> Array:
        """The features written out, (n, p): vec(W_1), …, vec(W_L) row by row."""
        return np.ascontiguousarray(self.columns().T)

    def columns(self) -> Array:
        """The same as (p, n), as solving wants them, in an array of `linalg.room`."""
        out, start = linalg.room(sum(o * i for o, i in self.widths), len(self)), 0
        if out.shape[0] == self.inputs[0].shape[1]:  # a linear model, or a last layer: one pass
            np.multiply(self.inputs[0].T, self.signals[0].T, out=out)
            return out
        for (o, i), a, d in zip(self.widths, self.inputs, self.signals, strict=True):
            layer = out[start : start + o * i].reshape(o, i, len(self))
            np.multiply(np.ascontiguousarray(d.T)[:, None], np.ascontiguousarray(a.T)[None], out=layer)
            start += o * i
        return out

    def interleaved(self) -> list[Array]:
        """Inputs and signals of each layer in turn."""
        return [array for layer in zip(self.inputs, self.signals, strict=True) for array in layer]

    def weighted(self, weights: Array | None) -> Factors:
        """√w·φ, so that each counts w times in Σφφᵀ."""
        if weights is None:
            return self
        root = np.sqrt(weights)[:, None]
        return Factors(self.inputs, tuple(d * root for d in self.signals))

    def last_layer(self) -> Factors:
        """The part of each feature that belongs to W_L."""
        return Factors(self.inputs[-1:], self.signals[-1:])


def gram(left: Factors, right: Factors) -> Array:
    """Inner products of features, (n, n'), from their factors alone.

    >>> x = Factors((np.eye(2),), (np.ones((2, 1)),))
    >>> gram(x, x)
    array([[1., 0.],
           [0., 1.]])
    """
    if left is right and len(left) == 1:  # one decision, whose few products a matrix product would outlast
        return left.squared_norms[:, None].copy()
    size = len(left) * len(right)
    if linalg.compiled(len(right)) and size * max(max(pair) for pair in left.widths) > linalg.BLAS_ALONE:
        return linalg.cross(left.interleaved(), right.interleaved())
    out = np.empty((len(left), len(right)))
    tile = max(64, TILE_NUMBERS // max(len(right), 1))
    inputs, signals = (np.empty((min(tile, len(left)), len(right))) for _ in range(2))
    for start in range(0, len(left), tile):
        part = left[start : start + tile]
        total, rows = out[start : start + tile], len(part)
        for layer, (a, d, b, e) in enumerate(zip(part.inputs, part.signals, right.inputs, right.signals, strict=True)):
            product = inputs[:rows] if layer else total
            np.matmul(a, b.T, out=product)
            product *= np.matmul(d, e.T, out=signals[:rows])
            if layer:
                total += product
    return out


def joined(parts: list[Factors]) -> Factors:
    """All features of the parts, in order."""
    inputs = zip(*(part.inputs for part in parts), strict=True)
    signals = zip(*(part.signals for part in parts), strict=True)
    return Factors(tuple(map(np.concatenate, inputs)), tuple(map(np.concatenate, signals)))


class FactorRows:
    """Factors of past rounds, growing; each round's are those of its own version's weights."""

    def __init__(self, widths: tuple[tuple[int, int], ...]) -> None:
        self._inputs = tuple(GrowableArray(i) for _, i in widths)
        self._signals = tuple(GrowableArray(o) for o, _ in widths)

    def __len__(self) -> int:
        return len(self._inputs[0])

    @property
    def view(self) -> Factors:
        """All of them, without a copy."""
        return Factors(tuple(r.view for r in self._inputs), tuple(r.view for r in self._signals))

    def append(self, factors: Factors) -> None:
        """Add the factors of new rounds."""
        for rows, new in zip(self._inputs + self._signals, factors.inputs + factors.signals, strict=True):
            rows.append(new)

    def fork(self, length: int | None = None) -> FactorRows:
        """Factors that start with these, or with the first of them; see `GrowableArray.fork`."""
        other = FactorRows(())
        other._inputs = tuple(r.fork(length) for r in self._inputs)
        other._signals = tuple(r.fork(length) for r in self._signals)
        return other

    def state(self) -> Arrays:
        """Arrays from which `restore` makes the same rows."""
        arrays = {f"input{i}": r.view for i, r in enumerate(self._inputs)}
        return arrays | {f"signal{i}": r.view for i, r in enumerate(self._signals)}

    def restore(self, arrays: Arrays) -> None:
        """Take over what `state` gave; no rows may be here yet."""
        self.read(Fields("covariance", {}, arrays))

    def read(self, saved: Fields) -> None:
        """Take over the saved rows, as many in each layer."""
        rows: int | None = None
        parts: dict[str, list[Array]] = {"input": [], "signal": []}
        for name, into in (("input", self._inputs), ("signal", self._signals)):
            for i, layer in enumerate(into):
                parts[name].append(saved.array(f"{name}{i}", (rows, layer.view.shape[1])))
                rows = len(parts[name][-1])
        self.append(Factors(tuple(parts["input"]), tuple(parts["signal"])))
