"""One form of Z made from another: what it holds, without the rounds themselves.

dual     has the features of all rounds, so any other form can be made of it
primal   is the matrix, of which the diagonal and the last layer's block are parts
"""

from __future__ import annotations

from rarely.core.covariance.diagonal import Diagonal
from rarely.core.covariance.dual import Dual
from rarely.core.covariance.last_layer import LastLayer
from rarely.core.covariance.primal import Primal
from rarely.core.covariance.protocol import Covariance


def from_dual(dual: Dual, into: Covariance, frozen: int | None = None) -> Covariance:
    """An empty form, filled with the rounds of the dual one; the frozen matrix has the first `frozen` of them."""
    if isinstance(into, Dual):
        return dual.limited(into.limit)
    past, first = dual.past.view, dual.frozen_rounds if frozen is None else frozen
    if isinstance(into, Primal | Diagonal | LastLayer):
        into.take_over(past, dual.jitters, first)
        return into
    for rows in (past[:first], past[first:]):
        for start in range(0, len(rows), into.block()):
            part = rows[start : start + into.block()]
            into.accept(into.propose(into.measure(part)), len(part))
        if into.rounds == first:
            into.freeze()
    return into


def from_primal(primal: Primal, into: Covariance) -> Covariance:
    """An empty form, filled with a part of the matrix."""
    assert isinstance(into, Diagonal | LastLayer)
    into.take_part(*primal.written_out(), primal.rounds, primal.jitters)
    return into
