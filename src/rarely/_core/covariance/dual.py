"""Z through the Gram matrix of past features: exact, t×t, at any width and depth.

    Φ   past        (t, p)  never written out        K   ΦΦᵀ  (t, t)
    k               (t, n)  Φφ of n candidates       L   factor of λI + K

    φᵀZ⁻¹φ = (‖φ‖² − kᵀ(λI + K)⁻¹k)/λ          log det Z − log det λI = log det(I + K/λ)

One growing L serves both matrices: its leading block of `frozen` rows scores, its whole diagonal is the
running log det. Nothing is copied when a batch begins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np

from rarely._core.covariance.cholesky import PANEL, GrowingCholesky, announce_rounding
from rarely._core.covariance.protocol import (
    Candidates,
    Covariance,
    Limit,
    Price,
    Proposal,
    RowCost,
    Widths,
    prior_variances,
)
from rarely._core.growable_array import changed
from rarely._core.model.features import FactorRows, Factors, gram
from rarely._core.saving.fields import Fields
from rarely._core.types import Array, Arrays, forwarded

InnerProducts = Callable[[Factors, Factors], Array]
"""(n, n') of features: all that this form asks of them besides their norms."""
BLOCK_NUMBERS = 2**20  # numbers in the (t, n) arrays of one scoring; 8 MiB stay in a last-level cache


class Dual(Covariance):
    """The t×t form."""

    kind = "dual"
    exact = additive = True

    @classmethod
    def price(cls, widths: Widths, rounds: int, row: RowCost | None = None) -> Price:
        """Return 8(t²/2 + 128t + ct) bytes, and t² + 2ct operations an arm, c numbers in one round's factors."""
        t, (c, products) = rounds, RowCost.of(widths, row)
        return Price(
            cls.kind, cls.exact, 8 * (t * t // 2 + 128 * t + c * t), t * t + 2 * products * t, (470.0, 1.15e-3)
        )

    def __init__(
        self,
        widths: Widths,
        ridge: float,
        limit: Limit,
        inner: InnerProducts = gram,
        rows: Callable[[], FactorRows] | None = None,
    ) -> None:
        super().__init__(widths, ridge, limit)
        self.inner = inner
        self.past = FactorRows(widths) if rows is None else rows()
        self._factor = GrowingCholesky()
        self.frozen_rounds = 0

    def limited(self, limit: Limit) -> Self:
        """Return the same matrices under another limit of memory, which they must fit."""
        limit.check_rounds(self.kind, self.rounds)
        return changed(self.fork(), limit=limit)

    jitters = forwarded("_factor.jitters")
    panels = forwarded("_factor.panels", "Those of the factor of λI + K.")

    def block(self) -> int:
        return max(1, min(1024, BLOCK_NUMBERS // max(self.frozen_rounds, 1)))

    def measure(self, factors: Factors, *, running: bool = False) -> Candidates:
        rows = self.rounds if running else self.frozen_rounds
        if not rows:
            return Candidates(factors, prior_variances(factors, self.ridge))
        k = self.inner(self.past.part(0, rows), factors)
        solved = self._factor.solve(k, rows)
        norms = factors.squared_norms
        left = norms - np.einsum("ij,ij->j", solved, solved)
        announce_rounding(left, norms)
        return Candidates(factors, np.maximum(left, 0.0) / self.ridge, solved, norms / self.ridge)

    def cross(self, one: Candidates, others: Candidates) -> Array:
        inner = self.inner(others.factors, one.factors)[:, 0]
        if one.solved is not None and others.solved is not None:
            inner = inner - one.solved[:, 0] @ others.solved
        return np.asarray(inner / self.ridge)

    def propose(self, chosen: Candidates) -> Proposal:
        factors = chosen.factors
        self.limit.check_rounds(self.kind, self.rounds + len(factors))
        alone, solved = len(factors) == 1, chosen.solved
        corner = factors.squared_norms[:, None].copy() if alone else self.inner(factors, factors)
        corner.flat[:: len(factors) + 1] += self.ridge
        if solved is not None and len(solved) == self.rounds:
            rows = self._factor.border(solved[:0], corner, solved)
        else:
            done = 0 if solved is None else len(solved) // PANEL * PANEL  # rows from which `border` can go on
            beginning = None if solved is None else solved[:done]
            rows = self._factor.border(self.inner(self.past.part(done, self.rounds), factors), corner, beginning)
        growth = 2 * np.log(rows.diagonal(self.rounds)) - np.log(self.ridge)
        return Proposal(factors, self.log_det + growth.cumsum(), rows)

    def accept(self, proposal: Proposal, count: int) -> None:
        if not count:
            return
        rows, factors = proposal.kept, proposal.factors
        if count < len(rows):
            rows, factors = rows[:count], factors[:count]
        self._factor.append(rows)
        self.past.append(factors)
        self.rounds += count
        self.log_det = float(proposal.log_dets[count - 1])

    def freeze(self) -> None:
        super().freeze()
        self.frozen_rounds = self.rounds

    def fork(self) -> Self:
        return changed(self, past=self.past.fork(), _factor=self._factor.fork())

    def state(self) -> tuple[dict[str, Any], Arrays]:
        numbers = self.counts() | {"frozen_rounds": self.frozen_rounds, "jitters": self.jitters}
        return numbers, self.past.state() | {"factor": self._factor.packed()}

    def read(self, saved: Fields) -> None:
        self.past.read(saved)
        self.read_counts(saved)
        self._factor = GrowingCholesky.read(saved, "factor", self.rounds)
        self._factor.jitters = saved.whole("jitters")
        self.frozen_rounds = saved.whole("frozen_rounds", most=self.rounds)
