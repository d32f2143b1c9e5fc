"""The t×t form of Z on a device, as `rarely._core.covariance.dual` has it: factors and L are float64 tensors there."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch

from rarely._core.covariance import Candidates, Dual, Limit, Proposal, Widths, prior_variances
from rarely._core.covariance.cholesky import GrowingCholesky, announce_rounding, cholesky
from rarely._core.model.features import FactorRows
from rarely._core.saving.fields import Fields
from rarely._core.types import Array, Arrays
from rarely.torch.factors import Form, TorchFactors, host, inner_products


class DeviceDual(Dual):
    """The t×t form whose arrays are on a device; an accepted round replaces them, which that device does in no time."""

    def __init__(self, widths: Widths, ridge: float, limit: Limit, *, forms: tuple[Form, ...], device: Any) -> None:
        rows = partial(FactorRows, tuple(form.stored for form in forms), partial(TorchFactors, forms))
        super().__init__(widths, ridge, limit, inner_products, rows)  # whose own arrays are filled for files alone
        self._device, sizes = device, zip(*(form.stored for form in forms), strict=True)
        signals, inputs = (tuple(self._tensor(np.empty((0, size))) for size in some) for some in sizes)
        self._past, self._lower = TorchFactors(forms, inputs, signals), self._tensor(np.empty((0, 0)))

    def _tensor(self, array: Array) -> Any:
        return torch.as_tensor(array, device=self._device)

    def _solved(self, factors: Any, rows: int) -> Any:
        """Return L⁻¹k for the first `rows` rounds."""
        k = inner_products(self._past[:rows], factors)
        return torch.linalg.solve_triangular(self._lower[:rows, :rows], k, upper=False)

    def block(self) -> int:
        return 1024

    def measure(self, factors: Any, *, running: bool = False) -> Candidates:
        rows = self.rounds if running else self.frozen_rounds
        if not rows:
            return Candidates(factors, prior_variances(factors, self.ridge))
        solved, norms = self._solved(factors, rows), factors.squared_norms
        left = norms - host((solved * solved).sum(0))
        announce_rounding(left, norms)
        return Candidates(factors, np.maximum(left, 0.0) / self.ridge, solved, norms / self.ridge)

    def cross(self, one: Candidates, others: Candidates) -> Array:
        inner: Any = inner_products(others.factors, one.factors)[:, 0]
        mine, theirs = one.solved, others.solved
        return host(inner if mine is None or theirs is None else inner - mine[:, 0] @ theirs) / self.ridge

    def propose(self, chosen: Candidates) -> Proposal:
        factors, known = chosen.factors, chosen.solved
        self.limit.check_rounds(self.kind, self.rounds + len(factors))
        solved: Any = known if known is not None and len(known) == self.rounds else self._solved(factors, self.rounds)
        corner: Any = inner_products(factors, factors)
        corner.diagonal().add_(self.ridge)
        # The corner is small, and the core mends one that rounding has left indefinite.
        lower, jitters = cholesky(host(corner - solved.T @ solved), host(corner.diagonal()))
        self._factor.jitters += jitters
        growth = 2 * np.log(lower.diagonal()) - np.log(self.ridge)
        return Proposal(factors, self.log_det + growth.cumsum(), torch.cat((solved.T, self._tensor(lower)), 1))

    def accept(self, proposal: Proposal, count: int) -> None:
        if count:
            above = torch.nn.functional.pad(self._lower, (0, count))
            self._lower = torch.cat((above, proposal.kept[:count, : self.rounds + count]))
            self._past = TorchFactors.joined([self._past, proposal.factors[:count]])
            self.rounds, self.log_det = self.rounds + count, float(proposal.log_dets[count - 1])

    def features(self) -> TorchFactors:
        return self._past

    def state(self) -> tuple[dict[str, Any], Arrays]:
        plain, past = self.fork(), self._past
        plain.past.append(TorchFactors(past.forms, *(tuple(map(host, x)) for x in (past.inputs, past.signals))))
        plain._factor, _ = GrowingCholesky.from_lower(host(self._lower))
        plain._factor.jitters = self.jitters
        return Dual.state(plain)

    def read(self, saved: Fields) -> None:
        super().read(saved)
        past, self._lower, jitters = self.past.view, self._tensor(self._factor.lower()), self.jitters
        arrays = (tuple(map(self._tensor, some)) for some in (past.inputs, past.signals))
        self._past = TorchFactors(self._past.forms, *arrays)
        self.past, self._factor = self.past.fork(0), GrowingCholesky()
        self._factor.jitters = jitters
