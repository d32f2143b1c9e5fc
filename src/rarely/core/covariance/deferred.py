"""Z that grows later: rounds are scored now, and become part of the running matrix when somebody has time.

The frozen matrix scores, and no round of its batch changes it. So a service can answer first: what was chosen waits
here in the blocks in which it was decided, and `recorded` adds the blocks in their order. The matrices are then
those of a policy that never waited, bit for bit.
"""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn, Self

import numpy as np

from rarely.core.covariance.auto import Auto
from rarely.core.covariance.delegating import Delegating
from rarely.core.covariance.protocol import FAR, Candidates, Covariance, Proposal
from rarely.core.growable_array import shallow
from rarely.core.types import Array, Arrays


class Recorded(NamedTuple):
    """A form after the blocks that waited."""

    covariance: Covariance
    blocks: int
    log_dets: tuple[Array, ...]
    """log det Z − log det λI after each round of each block."""


def may_wait(covariance: Covariance, arms: int) -> bool:
    """Whether rounds of so many arms may be recorded later: the form has begun, and neither grows nor changes."""
    latency = covariance.latency if isinstance(covariance, Auto) else None
    keeps = covariance.lasts == FAR and (latency is None or arms <= (latency.arms or 0))
    return keeps and covariance.kind == "primal" and covariance.rounds > 0


class Deferred(Delegating):
    """A form whose rounds wait; whoever wants to know the running matrix records them first."""

    def __init__(self, inner: Covariance, waiting: tuple[Candidates, ...] = ()) -> None:
        super().__init__(inner)
        self._waiting = waiting
        self._proposed: Candidates | None = None

    @property
    def inner(self) -> Covariance:
        """The form without the rounds that wait."""
        return self._inner

    @property
    def waiting(self) -> tuple[Candidates, ...]:
        """The blocks that wait, in their order."""
        return self._waiting

    @property
    def rounds(self) -> int:
        return self._inner.rounds + sum(len(block.factors) for block in self._waiting)

    def measure(self, factors: Any, *, running: bool = False) -> Candidates:
        return self._unknown("the running matrix") if running else self._inner.measure(factors)

    def propose(self, chosen: Candidates) -> Proposal:
        self._proposed = chosen
        return Proposal(chosen.factors, np.full(len(chosen.factors), np.nan), np.empty((0, 0)))

    def accept(self, proposal: Proposal, count: int) -> None:
        assert self._proposed is not None
        assert self._proposed.factors is proposal.factors
        self._waiting = (*self._waiting, self._proposed[:count])

    def recorded(self) -> Recorded:
        """The form after all blocks that wait now. Nothing here changes: it may be called from another thread."""
        waiting, inner = self._waiting, self._inner.fork()
        log_dets = []
        for block in waiting:
            proposal = inner.propose(block)
            inner.accept(proposal, len(block.factors))
            log_dets.append(proposal.log_dets)
        return Recorded(inner, len(waiting), tuple(log_dets))

    def after(self, done: Recorded) -> Deferred:
        """The same with the form that has recorded the first blocks."""
        return Deferred(done.covariance, self._waiting[done.blocks :])

    def fork(self) -> Self:
        """A copy that shares the form: only `recorded` makes it grow."""
        return shallow(self)

    @property
    def log_det(self) -> float:
        return self._unknown("log det")

    def cross(self, one: Candidates, others: Candidates) -> Array:
        return self._unknown("the running matrix")

    def freeze(self, ahead: int = 0) -> None:
        self._unknown("the next frozen matrix")

    def state(self) -> tuple[dict[str, Any], Arrays]:
        return self._unknown("what is saved")

    def _unknown(self, what: str) -> NoReturn:
        raise RuntimeError(f"{what} must not be asked for while rounds wait to be recorded; call recorded() first.")
