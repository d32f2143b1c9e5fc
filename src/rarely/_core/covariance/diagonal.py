"""The diagonal of Z alone: an approximation, at p numbers. What most published code calls Z.

z   (out_l, in_l) per layer   λ + Σ φ²

φᵀ diag(z)⁻¹ φ = Σ_l δ²ᵀ (1/z_l) a²          log det = Σ log(z/λ)

A round multiplies the determinant by Π (z + φ²)/z, so log det grows by the logarithms of a few products instead of p
logarithms, and only the rows of active units, δ ≠ 0, change. At `freeze` log det is summed anew.
"""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np

from rarely._core.covariance.protocol import Candidates, Covariance, Limit, Price, Proposal, RowCost, Widths
from rarely._core.model.features import Factors
from rarely._core.model.sparse_features import unpacked
from rarely._core.saving.fields import Fields
from rarely._core.types import Array, Arrays

TILE = 48
"""Rows of z that change at a time: their arrays stay in the cache, and none is large enough to be given back to the
operating system after each use."""


class Diagonal(Covariance):
    """The p-vector form; its log det is exact for its own, diagonal matrix."""

    kind = "diagonal"
    takes_matrices = takes_sums = True
    auto_rank = 1.0

    @classmethod
    def price(cls, widths: Widths, rounds: int, row: RowCost | None = None) -> Price:
        """Return 8·3p bytes and 3p operations an arm."""
        p = sum(o * i for o, i in widths)
        return Price(cls.kind, cls.exact, 24 * p, 3 * p, (150.0, 3.2e-3))

    def __init__(self, widths: Widths, ridge: float, limit: Limit) -> None:
        super().__init__(widths, ridge, limit)
        limit.check_rounds(self.kind, 0)
        self._running = tuple(np.full(shape, ridge) for shape in widths)
        self._frozen = self._running

    def measure(self, factors: Factors, *, running: bool = False) -> Candidates:
        total, matrix = np.zeros(len(factors)), self._running if running else self._frozen
        factors = factors.written()
        for layer, (a, d, z) in enumerate(zip(factors.inputs, factors.signals, matrix, strict=True)):
            total += self._variances(layer, a, d, z)
        return Candidates(factors, total)

    def _variances(self, layer: int, a: Array, d: Array, z: Array) -> Array:
        """Return what a layer adds to φᵀ diag(z)⁻¹ φ, (n,)."""
        if len(z) == 1:
            return np.asarray(np.square(d[:, 0]) * np.einsum("ij,j->i", np.square(a), 1 / z[0]))
        return np.asarray(np.einsum("ij,ij->i", np.square(d) @ (1 / z), np.square(a)))

    def propose(self, chosen: Candidates) -> Proposal:
        running, growth = self._after(chosen.factors)
        return Proposal(chosen.factors, self.log_det + np.cumsum(growth), running)

    def _after(self, factors: Factors) -> tuple[tuple[Array, ...], Array]:
        """Return the diagonals after these rounds, and by how much each of them makes Σ log z grow."""
        running, growth, factors = tuple(z.copy() for z in self._running), np.zeros(len(factors)), factors.written()
        for i in range(len(factors)):
            for layer, (a, d, z) in enumerate(zip(factors.inputs, factors.signals, running, strict=True)):
                growth[i] += self._grow(layer, z, np.square(d[i]), a[i])
        return running, growth

    def _grow(self, layer: int, z: Array, squared_signal: Array, a: Array) -> float:
        """Add δ²a²ᵀ to a layer in place, and return by how much Σ log z grows."""
        squared_input, active, growth = np.square(a), np.flatnonzero(squared_signal), 0.0
        for start in range(0, len(active), TILE):
            rows = active[start : start + TILE]
            before, after = z[rows], np.multiply.outer(squared_signal[rows], squared_input)
            after += before
            z[rows] = after
            after /= before
            with np.errstate(over="ignore"):
                grown = float(np.log(np.multiply.reduce(after, axis=0)).sum())
            growth += grown if math.isfinite(grown) else float(np.log(after).sum())
        return growth

    def accept(self, proposal: Proposal, count: int) -> None:
        if not count:
            return
        whole = count == len(proposal.factors)
        self._running = proposal.kept if whole else self._with_all(proposal.factors[:count])
        self.rounds += count
        self.log_det = float(proposal.log_dets[count - 1])

    def add(self, factors: Factors) -> None:
        self._running, self.rounds = self._with_all(factors), self.rounds + len(factors)
        self.log_det = self._log_det_of(self._running)

    def _with_all(self, factors: Factors) -> tuple[Array, ...]:
        """Return the diagonals after these rounds."""
        factors = factors.written()
        pairs = zip(factors.inputs, factors.signals, self._running, strict=True)
        return tuple(z + np.square(d).T @ np.square(a) for a, d, z in pairs)

    def contribution(self, factors: Factors) -> Array:
        """Return Σ φ², (p,)."""
        factors = factors.written()
        pairs = zip(factors.inputs, factors.signals, strict=True)
        return np.concatenate([(np.square(d).T @ np.square(a)).ravel() for a, d in pairs])

    def with_contributions(self, total: Array, rounds: int) -> Self:
        other, ends = self.fork(), np.cumsum([z.size for z in self._running])[:-1]
        parts = zip(self._running, np.split(total, ends), strict=True)
        other._running, other.rounds = tuple(z + part.reshape(z.shape) for z, part in parts), self.rounds + rounds
        other.log_det = other._log_det_of(other._running)
        return other

    def take_part(self, running: Array, frozen: Array, rounds: int, jitters: int) -> None:
        """Become the diagonals of these matrices."""
        for matrix in (frozen, running):
            diagonal, start, layers = np.diagonal(matrix), 0, []
            for z in self._running:
                layers.append(np.maximum(diagonal[start : start + z.size].reshape(z.shape), self.ridge))
                start += z.size
            self._running, self.log_det = tuple(layers), self._log_det_of(tuple(layers))
            if matrix is frozen:
                self.freeze()
        self.rounds = rounds

    def freeze(self) -> None:
        self.log_det = self._log_det_of(self._running)  # so that the rounding of single rounds does not add up
        super().freeze()
        self._frozen = self._running

    def state(self) -> tuple[dict[str, Any], Arrays]:
        arrays = {f"running{i}": z for i, z in enumerate(self._running)}
        return self.counts(), arrays | {f"frozen{i}": z for i, z in enumerate(self._frozen)}

    def read(self, saved: Fields) -> None:
        shapes = [z.shape for z in self._running]
        self.read_counts(saved)
        self._running, self._frozen = (
            tuple(saved.array(f"{name}{i}", shape) for i, shape in enumerate(shapes)) for name in ("running", "frozen")
        )

    def _log_det_of(self, layers: tuple[Array, ...]) -> float:
        return float(sum(np.log(z / self.ridge).sum() for z in layers))


class SparseDiagonal(Diagonal):
    """The same of sparse contexts: the first layer has d columns, of which a feature touches a few."""

    takes_sums = False

    def __init__(self, widths: Widths, ridge: float, limit: Limit, columns: int) -> None:
        super().__init__(widths, ridge, limit)
        self._running = self._frozen = (np.full((widths[0][0], columns), ridge), *self._running[1:])

    add = Covariance.add  # which looks at the columns of these rounds alone

    def _variances(self, layer: int, a: Array, d: Array, z: Array) -> Array:
        if layer:
            return super()._variances(layer, a, d, z)
        columns, numbers = unpacked(a)
        inverse = 1 / z[:, columns.ravel()].reshape(len(z), *columns.shape)
        return np.asarray(np.einsum("no,onw,nw->n", np.square(d), inverse, np.square(numbers), optimize=True))

    def _with_all(self, factors: Factors) -> tuple[Array, ...]:
        return self._after(factors)[0]

    def _grow(self, layer: int, z: Array, squared_signal: Array, a: Array) -> float:
        if layer:
            return super()._grow(layer, z, squared_signal, a)
        (columns,), (numbers,) = unpacked(a[None])
        here, x = columns[numbers != 0], numbers[numbers != 0]  # what a context is filled up with has column 0
        before = z[:, here]
        z[:, here] = before + np.multiply.outer(squared_signal, np.square(x))
        return float(np.log(z[:, here] / before).sum())
