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

LONG_BATCH = 4096
"""A first batch known to outlast this, and 4p, is not started in the t×t form."""


class Auto:
    """Starts dual, and goes to primal at the first update with t ≥ p, if primal fits the memory limit.

    Never an approximation, and never a change inside a batch: it would change the rounding of scores.
    """

    def __init__(self, widths: Widths, ridge: float, limit: Limit, first_batch: int = 0) -> None:
        self._widths, self._ridge, self._limit = widths, ridge, limit
        self._parameters = sum(o * i for o, i in widths)
        long = first_batch > max(4 * self._parameters, LONG_BATCH)
        start = Primal if long and limit.allows("primal", 0) else Dual
        if start is Dual and limit.horizon is not None:
            stays = not limit.allows("primal", 0)
            limit.check_rounds("dual", limit.horizon if stays else min(limit.horizon, self._parameters))
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
            self._inner = self._primal(self._inner)
        self._inner.freeze()

    def _primal(self, dual: Dual) -> Primal:
        primal = Primal(self._widths, self._ridge, self._limit)
        past, block = dual.past.view, primal.block()
        for start in range(0, len(past), block):
            primal.add(past[start : start + block].vectors())
        primal.jitters = dual.jitters
        primal.factorise()
        return primal

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
