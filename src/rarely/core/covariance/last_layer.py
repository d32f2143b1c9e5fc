"""Z over the last layer's weights alone: exact for an m×m matrix, an approximation of the whole.

The feature is then a_{L−1}(x; θ), the last hidden layer: the *neural-linear* way (Riquelme et al., 2018).
"""

from __future__ import annotations

import copy
from typing import Any, Self

from rarely.core.covariance.price import Limit
from rarely.core.covariance.primal import Primal
from rarely.core.covariance.protocol import Candidates, Proposal
from rarely.core.factors import Factors
from rarely.core.types import Array


class LastLayer:
    """The primal form over the last layer's part of each feature."""

    kind = "last_layer"

    def __init__(self, widths: tuple[tuple[int, int], ...], ridge: float, limit: Limit) -> None:
        limit.check_rounds(self.kind, 0)
        self._inner = Primal(widths[-1:], ridge, limit.unbounded())

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
        return self._inner.measure(factors.last_layer())

    def propose(self, chosen: Candidates) -> Proposal:
        return self._inner.propose(chosen)

    def accept(self, proposal: Proposal, count: int) -> None:
        self._inner.accept(proposal, count)

    def freeze(self, ahead: int = 0) -> None:
        self._inner.freeze()

    def fork(self) -> Self:
        other = copy.copy(self)
        other._inner = self._inner.fork()
        return other

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        return self._inner.state()

    def restore(self, numbers: dict[str, Any], arrays: dict[str, Array]) -> None:
        self._inner.restore(numbers, arrays)
