"""Features of the arms of one round whose contexts are crossed with one row: nothing of size n·ra is written out.

    x̃   contexts   (n, ·)   crossed, by their parts      a_1  units    (n, m)   σ(W_1 x̃)
    s   skip                strength of the skip path    δ_1  signal   (n, m)   W_2 ∘ 1[a_1 > 0]

    φ = (δ_1 x̃ᵀ, [a_1, s·x̃])        ‖φ‖² = ‖δ_1‖²‖x̃‖² + ‖a_1‖² + s²‖x̃‖²

A decision asks for norms and variances of all arms and for the factors of one, so `inputs` are crossed only for those
who ask: other forms of Z than the diagonal one.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from rarely.core.model.features import Factors
from rarely.core.model.shared_row import SharedRow
from rarely.core.types import Array


class SharedFactors(Factors):
    """n features of a network of two layers, as `Factors` has them."""

    def __init__(self, contexts: SharedRow, units: Array, signal: Array, skip: float | None) -> None:
        signals = (signal, np.ones((len(units), 1)))
        self.__dict__.update(contexts=contexts, units=units, skip=skip, signals=signals)

    contexts: SharedRow
    units: Array
    skip: float | None

    @cached_property
    def inputs(self) -> tuple[Array, ...]:
        """x̃, and [a_1, s·x̃], written out."""
        crossed = self.contexts.crossed()
        return crossed, self.units if self.skip is None else np.hstack((self.units, self.skip * crossed))

    def __len__(self) -> int:
        return len(self.units)

    def __getitem__(self, rows: Any) -> Factors:
        signal = self.signals[0][rows]
        part = SharedFactors(self.contexts.among(rows), self.units[rows], signal, self.skip)
        plain = Factors(part.inputs, part.signals)
        plain.__dict__["squared_norms"] = self.squared_norms[rows]
        return plain

    @cached_property
    def squared_norms(self) -> Array:
        """‖φ‖² of each, (n,)."""
        signal, units, contexts = self.signals[0], self.units, self.contexts.squared_norms()
        own = np.einsum("ij,ij->i", signal, signal) + (0.0 if self.skip is None else self.skip**2)
        return np.asarray(own * contexts + np.einsum("ij,ij->i", units, units))

    def weighed_squares(self, first: Array, last: Array) -> Array:
        """(n,): Σ c·φ² with a coefficient c for each weight, (m, ·) and (1, ·): no φ is written out."""
        squares, m = self.contexts.squared(), self.units.shape[1]
        total = np.einsum("ij,ij->i", np.square(self.signals[0]), squares.image(first))
        total += np.einsum("ij,j->i", np.square(self.units), last[0, :m])
        if self.skip:
            total += self.skip**2 * squares.image(last[:, m:])[:, 0]
        return np.asarray(total)
