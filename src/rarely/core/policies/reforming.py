"""Z in another form in mid-life: made from the one in use or, where that does not hold enough, from the history.

dual      holds the features of all rounds, so every form can be made of it
primal    holds the matrix, of which the diagonal and the last layer's block are parts
others    hold too little: Z is built again from the rounds on record, with the features of the version in use
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rarely.core.covariance import Auto, Covariance, Diagonal, Dual, LastLayer, Primal, in_bytes
from rarely.core.covariance.conversion import from_dual, from_primal
from rarely.core.errors import HistoryDropped
from rarely.core.policies.event import PolicyEvent
from rarely.core.policies.form_change import EXACT, RECENT, rebased, with_unit
from rarely.core.policies.maker import CovarianceMaker
from rarely.core.policies.state import PolicyState


def reformed(state: PolicyState, maker: CovarianceMaker, reason: str = "", *, same: bool = False) -> PolicyState:
    """The state with Z in the form that the maker makes, and the event that tells what became of it.

    With `same` the form stays, and only its limit of memory is another.
    """
    before = state.frozen.covariance
    empty = maker.like(before).empty(state.frozen.learner.widths, before.rounds)
    made = _under_limit(before, empty) if same else _converted(before, empty)
    how = "made from the matrix in use"
    if made is None:
        made, how = (
            _rebuilt(state, maker),
            f"built again from the history with the features of version {state.clock.version}",
        )
    if isinstance(made, Auto):
        made.keep_to_latency()
    after = replace(
        state,
        frozen=with_unit(state.frozen.with_covariance(made), state.frozen, state.history.contexts[-RECENT:]),
        clock=rebased(state.clock, (before.kind, before.frozen_log_det), made),
        lost=state.history.total - made.rounds,
    )
    detail = f"Z is {made.kind} instead of {before.kind}, {how}; {_lost(state, after)}"
    if same:
        detail = f"limits.memory is {in_bytes(maker.memory_limit)}; Z stays {made.kind}"
    event = PolicyEvent("covariance", state.history.rounds, state.clock.version, detail, reason)
    return replace(after, events=(*state.events, event))


def _under_limit(before: Covariance, into: Covariance) -> Covariance:
    """The form in use, under the limit that the new one was checked against."""
    if isinstance(into, Auto):
        assert isinstance(before, Auto)
        return into.holding(before.inner.fork())
    return before.limited(into.limit) if isinstance(before, Dual) and isinstance(into, Dual) else before.fork()


def _converted(before: Covariance, into: Covariance) -> Covariance | None:
    """The new form from the one in use; None where that does not hold enough."""
    source = before.inner if isinstance(before, Auto) else before
    if isinstance(into, Auto):
        if isinstance(source, Dual) and isinstance(into.inner, Primal):
            return into.holding(from_dual(source, into.inner))
        return into.holding(source.fork()) if isinstance(source, Dual | Primal) else None
    if isinstance(source, Dual):
        return from_dual(source, into)
    if isinstance(source, Primal) and isinstance(into, Diagonal | LastLayer):
        return from_primal(source, into)
    return source.fork() if type(source) is type(into) and not isinstance(into, Dual) and _same(source, into) else None


def _same(source: Covariance, into: Covariance) -> bool:
    """Whether a form may stay as it is: only the size of a sketch could be another."""
    return getattr(source, "size", None) == getattr(into, "size", None)


def _rebuilt(state: PolicyState, maker: CovarianceMaker) -> Covariance:
    """The new form from the rounds on record: those before the batch in the frozen matrix, all in the running one."""
    history, learner = state.history, state.frozen.learner
    if history.dropped and (history.forgetting is None or state.lost < history.dropped):
        raise HistoryDropped(
            f"Z in another form must be built again from all rounds, but {history.dropped} of {history.total} were "
            "dropped. Keep the form in use, or go from an exact form to an approximation, which needs no history."
        )
    accepted = [record for record in state.updates if record.accepted]
    learned = history.logged + (accepted[-1].round if accepted else 0)
    begun = history.logged + (accepted[-1].begins if accepted else 0)
    rows, weights = history.rows, np.ones(len(history))
    if history.forgetting is not None:
        ages = np.maximum(learned - 1.0 - rows, 0.0)
        weights = np.where(rows < learned, history.forgetting.weights(ages), 1.0)
    counted = weights > 0
    made = maker.like(state.frozen.covariance).empty(learner.widths, len(history), int(counted.sum()))
    for part, last in ((counted & (rows < begun), False), (counted & (rows >= begun), True)):
        maker.add(made, learner.features, history.contexts[part], weights[part])
        if not last:
            made.freeze()
    return made


def _lost(before: PolicyState, after: PolicyState) -> str:
    """What a change of form does, in words."""
    was, now = before.frozen.covariance, after.frozen.covariance
    exact = "exact" if now.kind in EXACT else "approximate"
    told = f"bonuses are {exact} from now on"
    if was.kind in EXACT and now.kind not in EXACT:
        told += ", and what the form does not hold is lost"
    return f"{told}, from {now.rounds} of {after.history.total} rounds"
