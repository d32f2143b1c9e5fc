"""Z in another form: bonuses keep their size, the schedule its place, and the change is on record and announced.

Three occasions: a decision after which Z has outgrown its form (`adapted`), a scale of contexts that followed new ones
(`reformed` alone), and a caller who asks for another form (`change_covariance`).
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np

from rarely._core.covariance import RECENT, Covariance, CovarianceFactory, in_bytes, parameters_of
from rarely._core.errors import ApproximationWarning, HistoryDropped
from rarely._core.growable_array import changed
from rarely._core.policies.state import BatchClock, PolicyState, Version
from rarely._core.types import Array


def reformed(current: Version, covariance: Covariance, factory: CovarianceFactory, chosen: Array) -> Version:
    """Return the version with another Z, under which bonuses of the contexts `chosen` last have the same size."""
    factory.rescale_bonuses(covariance, current.covariance, lambda: (current.learner.features(chosen[-RECENT:]),) * 2)
    return changed(current, covariance=covariance)


def adapted(
    current: Version, covariance: Covariance, clock: BatchClock, factory: CovarianceFactory, chosen: Array
) -> tuple[Version, BatchClock]:
    """Return the version and its clock with Z in another form, as `reformed` does."""
    return reformed(current, covariance, factory, chosen), clock.rebased(current.covariance, covariance)


def record_form_change(before: PolicyState, after: PolicyState, factory: CovarianceFactory, round: int) -> PolicyState:
    """Return the state after a call, with an event if Z changed between exact and approximate at that round.

    The first change is announced by a warning.
    """
    was, now = before.current.covariance, after.current.covariance
    if was is now or was.exact == now.exact:
        return after
    converted = f"Z converted from {was.kind} to {now.kind}"
    if now.exact:
        return after.with_event("covariance", f"{converted}: bonuses are exact", round=round)
    detail = (
        f"{converted}: bonuses are now approximate, because a decision among "
        f"{max(after.most_arms, factory.arms or 0)} arms with an exact Z of p = {parameters_of(now.widths):,} would "
        f"take more than limits.operations = {factory.operations:,.0f} multiplications"
    )
    if all(event.kind != "covariance" for event in after.events):
        warnings.warn(
            f"{detail}. covariance='exact' keeps Z exact, and larger limits.operations postpone the change.",
            ApproximationWarning,
            stacklevel=5,
        )
    return after.with_event("covariance", detail, round=round)


def change_covariance(
    state: PolicyState, factory: CovarianceFactory, reason: str = "", *, same_form: bool = False
) -> PolicyState:
    """Return the state with Z in the factory's form, and the event that records it.

    With `same_form` only the limit of memory is another.
    """
    before = state.current.covariance
    made, how = factory.converted(before, state.most_arms, same_form=same_form), "made from the matrix in use"
    if made is None:
        made = factory.adapted(_rebuilt(state, factory), state.most_arms)
        how = f"rebuilt from the history with the features of version {state.clock.version}"
    current, clock = adapted(state.current, made, state.clock, factory, state.history.contexts)
    after = replace(state, current=current, clock=clock, lost=state.history.total - made.rounds)
    if same_form:
        detail = f"limits.memory is {in_bytes(factory.memory_limit)}; Z stays {made.kind}"
        return after.with_event("covariance", detail, reason)
    exact = "exact" if made.exact else "approximate"
    of = f"{made.rounds} of {state.history.total} rounds"
    detail = f"Z converted from {before.kind} to {made.kind}, {how}: bonuses are now {exact}, from {of}"
    return after.with_event("covariance", detail, reason)


def _rebuilt(state: PolicyState, factory: CovarianceFactory) -> Covariance:
    """Return a new Z from the rounds on record: those before the batch in the frozen matrix, all in the running one."""
    history, learner = state.history, state.current.learner
    if history.dropped and (history.forgetting is None or state.lost < history.dropped):
        raise HistoryDropped(
            f"Z in another form must be rebuilt from all rounds, but {history.dropped} of {history.total} were "
            "dropped. Keep the form in use, or go from an exact form to an approximation, which needs no history."
        )
    accepted = [record for record in state.updates if record.accepted]
    learned = history.logged + (accepted[-1].round if accepted else 0)
    begun = history.logged + (accepted[-1].adopted if accepted else 0)
    rows, weights = history.rows, np.ones(len(history))
    if history.forgetting is not None:
        ages = np.maximum(learned - 1.0 - rows, 0.0)
        weights = np.where(rows < learned, history.forgetting.weights(ages), 1.0)
    counted = weights > 0
    made = factory.empty(learner.widths, arms=state.most_arms, ahead=len(history), rows=int(np.count_nonzero(counted)))
    for part, last in ((counted & (rows < begun), False), (counted & (rows >= begun), True)):
        factory.add(made, learner.features, history.contexts[part], weights[part])
        if not last:
            made.freeze()
    return made
