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

from rarely.core.covariance.cholesky import probe_of
from rarely.core.covariance.cost import Limit, Widths
from rarely.core.covariance.growing_cholesky import GrowingCholesky, whole_panels
from rarely.core.covariance.protocol import (
    EXACT,
    FAR,
    Candidates,
    ErrorBound,
    Proposal,
    announce_rounding,
    prior_variances,
)
from rarely.core.growable_array import shallow
from rarely.core.model.features import FactorRows, Factors, gram
from rarely.core.saving.fields import Fields
from rarely.core.types import Array, Arrays

InnerProducts = Callable[[Factors, Factors], Array]
"""(n, n') of features: all that this form asks of them beside their norms."""
BLOCK_NUMBERS = 2**20
"""Numbers in the (t, n) arrays of one scoring; 8 MiB stay in a last-level cache."""
PROBED = 16
"""Rounds by whose inner products a saved factor is checked; the last is among them, and reaches all of it."""


class Dual:
    """The t×t form."""

    kind = "dual"
    additive = True
    lasts = FAR
    error_bound: ErrorBound | None = EXACT

    def __init__(self, widths: Widths, ridge: float, limit: Limit, inner: InnerProducts = gram) -> None:
        self.ridge, self._limit, self._gram = ridge, limit, inner
        self.past = FactorRows(widths)
        self._factor = GrowingCholesky()
        self._frozen = 0
        self.log_det = 0.0
        self.frozen_log_det = 0.0

    @property
    def rounds(self) -> int:
        return len(self.past)

    def limited(self, limit: Limit) -> Self:
        """The same under another limit of memory, which it must fit."""
        limit.check_rounds(self.kind, self.rounds)
        other = self.fork()
        other._limit = limit
        return other

    @property
    def limit(self) -> Limit:
        """What it may take."""
        return self._limit

    @property
    def frozen_rounds(self) -> int:
        """Features in the frozen matrix."""
        return self._frozen

    @property
    def jitters(self) -> int:
        return self._factor.jitters

    def block(self) -> int:
        return max(1, min(1024, BLOCK_NUMBERS // max(self._frozen, 1)))

    def measure(self, factors: Factors, *, running: bool = False) -> Candidates:
        rows = self.rounds if running else self._frozen
        if not rows:
            return Candidates(factors, prior_variances(factors, self.ridge))
        k = self._gram(self.past.view[:rows], factors)
        solved = self._factor.solve(k, rows)
        norms = factors.squared_norms
        left = norms - np.einsum("ij,ij->j", solved, solved)
        announce_rounding(left, norms)
        return Candidates(factors, np.maximum(left, 0.0) / self.ridge, solved)

    def cross(self, one: Candidates, others: Candidates) -> Array:
        inner = self._gram(others.factors, one.factors)[:, 0]
        if one.solved is not None and others.solved is not None:
            inner = inner - one.solved[:, 0] @ others.solved
        return np.asarray(inner / self.ridge)

    def propose(self, chosen: Candidates) -> Proposal:
        factors = chosen.factors
        self._limit.check_rounds(self.kind, self.rounds + len(factors))
        corner = self._gram(factors, factors)
        corner.flat[:: len(factors) + 1] += self.ridge
        known = None if chosen.solved is None else whole_panels(chosen.solved)
        done = 0 if known is None else len(known)
        rows = self._factor.border(self._gram(self.past.view[done:], factors), corner, known)
        growth = 2 * np.log(np.diagonal(rows, offset=self.rounds)) - np.log(self.ridge)
        return Proposal(factors, self.log_det + np.cumsum(growth), rows)

    def accept(self, proposal: Proposal, count: int) -> None:
        if not count:
            return
        self._factor.append(proposal.rows[:count])
        self.past.append(proposal.factors[:count])
        self.log_det = float(proposal.log_dets[count - 1])

    def freeze(self, ahead: int = 0) -> None:
        self._frozen, self.frozen_log_det = self.rounds, self.log_det

    def fork(self) -> Self:
        other = shallow(self)
        other.past, other._factor = self.past.fork(), self._factor.fork()
        return other

    def state(self) -> tuple[dict[str, Any], Arrays]:
        numbers = {
            "frozen": self._frozen,
            "log_det": self.log_det,
            "frozen_log_det": self.frozen_log_det,
            "jitters": self.jitters,
        }
        return numbers, self.past.state() | {"factor": self._factor.packed()}

    def restore(self, numbers: dict[str, Any], arrays: Arrays) -> None:
        with Fields("covariance", numbers, arrays) as saved:
            self.past.read(saved)
            self._factor = GrowingCholesky.read(saved, "factor", self.rounds)
            self._factor.jitters = saved.whole("jitters")
            self._frozen = saved.whole("frozen", most=self.rounds)
            self.log_det, self.frozen_log_det = saved.number("log_det"), saved.number("frozen_log_det")
            for name, value, rows in (
                ("log_det", self.log_det, self.rounds),
                ("frozen_log_det", self.frozen_log_det, self._frozen),
            ):
                saved.require_close(name, value, self._factor.log_det(rows) - rows * float(np.log(self.ridge)))
            self._check_factor(saved)

    def _check_factor(self, saved: Fields) -> None:
        """Refuse a factor of other rounds, by the product of λI + K with a vector that asks for few rows of K."""
        past = self.past.view
        rows = np.unique(np.linspace(0, max(self.rounds - 1, 0), PROBED).astype(np.int64))[: self.rounds]
        probe = np.zeros(self.rounds)
        probe[rows] = probe_of(len(rows))
        image = self._gram(past, past[rows]) @ probe[rows] + self.ridge * probe
        root = np.sqrt(past.squared_norms + self.ridge)
        same = self._factor.is_of(image, probe, root)
        saved.require(same, "factor must be that of the saved rounds")
