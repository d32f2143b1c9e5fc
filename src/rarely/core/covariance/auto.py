"""The cheaper of the exact forms: dual while rounds are few, primal once they outnumber parameters."""

from __future__ import annotations

import copy
from typing import Any, Self

from rarely.core.covariance.dual import Dual
from rarely.core.covariance.price import Limit, Widths
from rarely.core.covariance.primal import Primal
from rarely.core.covariance.protocol import Candidates, Proposal
from rarely.core.factors import Factors
from rarely.core.types import Array

SMALL = 256
"""With so few parameters p² is next to nothing, and t×t would outgrow it at once."""
LONG = 4
"""A batch known to end beyond this many times p is not played in the t×t form."""


class Auto:
    """Dual while rounds are few, primal from the first update on that has t ≥ p or a long batch before it.

    It starts primal where p is small or the first batch is known to be long, and stays dual where primal
    would not fit the memory limit. Never an approximation, and never a change inside a batch: it would
    change the rounding of scores.
    """

    def __init__(self, widths: Widths, ridge: float, limit: Limit, ahead: int = 0) -> None:
        self._widths, self._ridge, self._limit = widths, ridge, limit
        self._parameters = sum(o * i for o, i in widths)
        self._inner: Dual | Primal
        if self._prefers_primal(0, ahead):
            self._inner = Primal(widths, ridge, limit)
        else:
            if limit.horizon is not None:
                leaves = self._parameters if limit.allows("primal", 0) else limit.horizon
                limit.check_rounds("dual", min(limit.horizon, max(leaves, ahead)))
            self._inner = Dual(widths, ridge, limit)

    def _prefers_primal(self, rounds: int, ahead: int) -> bool:
        p = self._parameters
        cheaper = p <= SMALL or (p <= rounds) or rounds + ahead > LONG * p
        return cheaper and self._limit.allows("primal", 0)

    @property
    def kind(self) -> str:
        return self._inner.kind

    @property
    def rounds(self) -> int:
        return self._inner.rounds

    @property
    def log_det(self) -> float:
        return self._inner.log_det

    @property
    def frozen_log_det(self) -> float:
        return self._inner.frozen_log_det

    @property
    def jitters(self) -> int:
        return self._inner.jitters

    def block(self) -> int:
        return self._inner.block()

    def measure(self, factors: Factors) -> Candidates:
        return self._inner.measure(factors)

    def propose(self, chosen: Candidates) -> Proposal:
        return self._inner.propose(chosen)

    def accept(self, proposal: Proposal, count: int) -> None:
        self._inner.accept(proposal, count)

    def freeze(self, ahead: int = 0) -> None:
        if isinstance(self._inner, Dual) and self._prefers_primal(self.rounds, ahead):
            primal = Primal(self._widths, self._ridge, self._limit)
            primal.take_over(self._inner.past.view, self._inner.jitters)
            self._inner = primal
        self._inner.freeze()

    def fork(self) -> Self:
        other = copy.copy(self)
        other._inner = self._inner.fork()
        return other

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        numbers, arrays = self._inner.state()
        return numbers | {"form": self.kind}, arrays

    def restore(self, numbers: dict[str, Any], arrays: dict[str, Array]) -> None:
        form = Primal if numbers["form"] == "primal" else Dual
        self._inner = form(self._widths, self._ridge, self._limit)
        self._inner.restore(numbers, arrays)
