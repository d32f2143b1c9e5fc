"""The diagonal of Z alone: an approximation, at p numbers. What most published code calls Z.

z   (out_l, in_l) per layer   λ + Σ φ²

φᵀ diag(z)⁻¹ φ = Σ_l δ²ᵀ (1/z_l) a²          log det = Σ log(z/λ)
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from rarely.core.covariance.price import Limit, Widths
from rarely.core.covariance.protocol import Candidates, ErrorBound, Proposal
from rarely.core.factors import Factors
from rarely.core.rows import shallow
from rarely.core.types import Arrays


class Diagonal:
    """The p-vector form; its log det is exact for its own, diagonal matrix."""

    kind = "diagonal"
    jitters = 0
    error_bound: ErrorBound | None = None

    def __init__(self, widths: Widths, ridge: float, limit: Limit) -> None:
        limit.check_rounds(self.kind, 0)
        self.ridge, self.rounds = ridge, 0
        self._running = tuple(np.full(shape, ridge) for shape in widths)
        self._frozen = self._running
        self.log_det = self.frozen_log_det = 0.0

    def block(self) -> int:
        return 1024

    def measure(self, factors: Factors) -> Candidates:
        total = np.zeros(len(factors))
        for a, d, z in zip(factors.inputs, factors.signals, self._frozen, strict=True):
            total += np.einsum("ij,ij->i", np.square(d) @ (1 / z), np.square(a))
        return Candidates(factors, total)

    def propose(self, chosen: Candidates) -> Proposal:
        factors = chosen.factors
        log_dets = np.empty(len(factors))
        running = [z.copy() for z in self._running]
        for i in range(len(factors)):
            total = 0.0
            for a, d, z in zip(factors.inputs, factors.signals, running, strict=True):
                z += np.square(d[i])[:, None] * np.square(a[i])
                total += float(np.log(z / self.ridge).sum())
            log_dets[i] = total
        return Proposal(factors, log_dets, np.empty((len(factors), 0)))

    def accept(self, proposal: Proposal, count: int) -> None:
        if not count:
            return
        kept = proposal.factors[:count]
        self._running = tuple(
            z + np.square(d).T @ np.square(a) for a, d, z in zip(kept.inputs, kept.signals, self._running, strict=True)
        )
        self.rounds += count
        self.log_det = float(proposal.log_dets[count - 1])

    def freeze(self, ahead: int = 0) -> None:
        self._frozen, self.frozen_log_det = self._running, self.log_det

    def fork(self) -> Self:
        return shallow(self)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        numbers = {"rounds": self.rounds, "log_det": self.log_det, "frozen_log_det": self.frozen_log_det}
        arrays = {f"running{i}": z for i, z in enumerate(self._running)}
        return numbers, arrays | {f"frozen{i}": z for i, z in enumerate(self._frozen)}

    def restore(self, numbers: dict[str, Any], arrays: Arrays) -> None:
        self.rounds, self.log_det = numbers["rounds"], numbers["log_det"]
        self.frozen_log_det = numbers["frozen_log_det"]
        layers = range(len(self._running))
        self._running = tuple(arrays[f"running{i}"] for i in layers)
        self._frozen = tuple(arrays[f"frozen{i}"] for i in layers)
