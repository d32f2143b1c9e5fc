"""The cheaper of the exact forms: dual while rounds are few, primal once they outnumber parameters."""

from __future__ import annotations

from typing import Any

from rarely.core.covariance.cost import Limit, Widths
from rarely.core.covariance.delegating import Delegating
from rarely.core.covariance.dual import Dual
from rarely.core.covariance.primal import Primal
from rarely.core.covariance.protocol import FAR, Proposal
from rarely.core.saving.fields import Fields
from rarely.core.types import Arrays

SMALL = 256
"""With so few parameters p² is next to nothing, and t×t would outgrow it at once."""
LONG = 4
"""A batch known to end beyond this many times p is not played in the t×t form."""


class Auto(Delegating):
    """Dual while rounds are few, primal from the first update on that has t ≥ p or a long batch before it.

    It starts primal where p is small or the first batch is known to be long, and stays dual where primal
    would not fit the memory limit. Never an approximation. It changes inside a batch only if the batch lasts
    longer than anyone knew, after round 4p: a change there alters the rounding of scores.
    """

    def __init__(self, widths: Widths, ridge: float, limit: Limit, ahead: int = 0) -> None:
        self._widths, self._ridge, self._limit = widths, ridge, limit
        self._parameters = sum(o * i for o, i in widths)
        if self._prefers_primal(0, ahead):
            super().__init__(Primal(widths, ridge, limit))
            return
        if limit.horizon is not None:
            leaves = self._parameters if limit.allows("primal", 0) else limit.horizon
            limit.check_rounds("dual", min(limit.horizon, max(leaves, ahead)))
        super().__init__(Dual(widths, ridge, limit))

    def _prefers_primal(self, rounds: int, ahead: int) -> bool:
        p = self._parameters
        cheaper = p <= SMALL or p <= rounds or rounds + ahead > LONG * p
        return cheaper and self._limit.allows("primal", 0)

    @property
    def lasts(self) -> int:
        if not isinstance(self._inner, Dual) or not self._limit.allows("primal", 0):
            return FAR
        return max(1, LONG * self._parameters - self.rounds)

    def accept(self, proposal: Proposal, count: int) -> None:
        self._inner.accept(proposal, count)
        long = self.rounds >= LONG * self._parameters and self._prefers_primal(self.rounds, 0)
        if isinstance(self._inner, Dual) and long:
            self._leave_dual(self._inner, self._inner.frozen_rounds)

    def freeze(self, ahead: int = 0) -> None:
        if isinstance(self._inner, Dual) and self._prefers_primal(self.rounds, ahead):
            self._leave_dual(self._inner, 0)
        self._inner.freeze()

    def _leave_dual(self, dual: Dual, frozen: int) -> None:
        primal = Primal(self._widths, self._ridge, self._limit)
        primal.take_over(dual.past.view, dual.jitters, frozen)
        self._inner = primal

    def state(self) -> tuple[dict[str, Any], Arrays]:
        numbers, arrays = self._inner.state()
        return numbers | {"form": self.kind}, arrays

    def restore(self, numbers: dict[str, Any], arrays: Arrays) -> None:
        form = Fields("covariance", numbers, {}).choice("form", ("dual", "primal"))
        self._inner = (Primal if form == "primal" else Dual)(self._widths, self._ridge, self._limit)
        self._inner.restore({name: value for name, value in numbers.items() if name != "form"}, arrays)
