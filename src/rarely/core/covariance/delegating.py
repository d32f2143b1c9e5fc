"""A form that hands everything on to another one, for those that change one thing."""

from __future__ import annotations

from typing import Any, Self

from rarely.core.covariance.protocol import Candidates, Covariance, ErrorBound, Proposal
from rarely.core.growable_array import shallow
from rarely.core.model.features import Factors
from rarely.core.types import Array, Arrays


class Delegating:
    """All of the protocol, as `inner` does it."""

    def __init__(self, inner: Covariance) -> None:
        self._inner = inner

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

    @property
    def error_bound(self) -> ErrorBound | None:
        return self._inner.error_bound

    @property
    def additive(self) -> bool:
        return self._inner.additive

    @property
    def lasts(self) -> int:
        return self._inner.lasts

    def block(self) -> int:
        return self._inner.block()

    def measure(self, factors: Factors, *, running: bool = False) -> Candidates:
        return self._inner.measure(factors, running=running)

    def cross(self, one: Candidates, others: Candidates) -> Array:
        return self._inner.cross(one, others)

    def propose(self, chosen: Candidates) -> Proposal:
        return self._inner.propose(chosen)

    def accept(self, proposal: Proposal, count: int) -> None:
        self._inner.accept(proposal, count)

    def freeze(self, ahead: int = 0) -> None:
        self._inner.freeze(ahead)

    def fork(self) -> Self:
        other = shallow(self)
        other._inner = self._inner.fork()
        return other

    def state(self) -> tuple[dict[str, Any], Arrays]:
        return self._inner.state()

    def restore(self, numbers: dict[str, Any], arrays: Arrays) -> None:
        self._inner.restore(numbers, arrays)
