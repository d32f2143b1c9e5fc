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

LONG_BATCH = 256
"""A first batch known to outlast this, and 4p, is not started in the t×t form."""


class Auto:
    """Starts dual, and goes to primal at the first update with t ≥ p, if primal fits the memory limit.

    A first batch that is known to be long starts primal: t×t would outgrow p×p before the first update.
    Never an approximation, and never a change inside a batch: it would change the rounding of scores.
    """

    def __init__(self, widths: Widths, ridge: float, limit: Limit, first_batch: int = 0) -> None:
        self._widths, self._ridge, self._limit = widths, ridge, limit
        self._parameters = sum(o * i for o, i in widths)
        long = first_batch > max(4 * self._parameters, LONG_BATCH)
        start = Primal if long and limit.allows("primal", 0) else Dual
        if start is Dual and limit.horizon is not None:
            leaves = self._parameters if limit.allows("primal", 0) else limit.horizon
            limit.check_rounds("dual", min(limit.horizon, max(leaves, first_batch)))
        self._inner: Dual | Primal = start(widths, ridge, limit)

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

    def freeze(self) -> None:
        outnumbered = self.rounds >= self._parameters
        if isinstance(self._inner, Dual) and outnumbered and self._limit.allows("primal", 0):
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
