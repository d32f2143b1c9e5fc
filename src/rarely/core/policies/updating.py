"""An update: the state before it, the state after it, and its record."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from rarely.core.choice.confidence_radius import Beta, NoiseRadius, radius_at
from rarely.core.covariance import Covariance
from rarely.core.errors import (
    BudgetSpent,
    ForgettingWarning,
    NothingToLearn,
    NothingToLearnWarning,
    StaleUpdate,
    TrainingRejected,
    WrongUpdate,
)
from rarely.core.policies.announcing import announce
from rarely.core.policies.compaction import compacted_after_update, limit_sentence
from rarely.core.policies.event import PolicyEvent
from rarely.core.policies.form_change import EXACT, RECENT, noted, with_next_unit
from rarely.core.policies.frozen import FrozenPolicy
from rarely.core.policies.learner import FitResult, Learner
from rarely.core.policies.maker import CovarianceMaker
from rarely.core.policies.offered import Offered
from rarely.core.policies.state import PolicyState
from rarely.core.policies.update_job import Cut, UpdateJob, UpdateResult, digest_of
from rarely.core.policies.update_record import UpdateRecord
from rarely.core.training.report import TRAINING_NUMBERS
from rarely.core.types import Array

_NO_REWARD = ("no reward came so far", "no reward came since the last update")
BOTH_SIDES = 1.959963984540054
"""Standard deviations that leave 2.5 % of a Gaussian on either side."""


def update(
    state: PolicyState,
    maker: CovarianceMaker,
    beta: Beta,
    run: Callable[[UpdateJob], UpdateResult],
    *,
    force: bool,
    limit: int | None = None,
) -> tuple[PolicyState, UpdateRecord]:
    """Learn from the rewards that are in, and freeze the next version, or say why not."""
    job = prepare(state, maker)
    skipped = None if force else _nothing_new(state)
    result = run(job) if skipped is None else UpdateResult(job.cut, skipped)
    after, record = _concluded(state, maker, beta, result)
    announce(state, after, record, trained=skipped is None)
    return _tidied(state, after, record, limit)


def prepare(state: PolicyState, maker: CovarianceMaker) -> UpdateJob:
    """The update that could be made now."""
    clock, history = state.clock, state.history
    if clock.spent:
        raise BudgetSpent(
            f"the budget allows {clock.budget.batches} versions, and version {clock.version} is the last; "
            "go on with select, plan more batches, or call extend_budget."
        )
    log_det = state.frozen.covariance.log_det
    cut = Cut(
        round=history.rounds,
        version=clock.version,
        updates=len(state.updates),
        arrived=history.arrived,
        samples=history.counted,
        missing=history.missing,
        log_det=log_det,
        form=state.frozen.covariance.kind,
        due=clock.explain(history.rounds, log_det),
    )
    ahead = clock.rounds_ahead(history.rounds, clock.version + 1)
    return UpdateJob(cut, state.frozen.learner, history, maker.like(state.frozen.covariance), ahead)


def check_new(state: PolicyState) -> None:
    """Refuse an update without a reward since the last one."""
    if state.history.arrived <= state.learned:
        raise NothingToLearn(
            f"an update must have something to learn from, and {_NO_REWARD[state.learned > 0]}: it would spend a "
            "version of the budget for nothing. Call observe first, or use force=True."
        )


def adopt(
    state: PolicyState,
    maker: CovarianceMaker,
    beta: Beta,
    result: UpdateResult,
    settings: dict[str, Any],
    limit: int | None = None,
) -> tuple[PolicyState, UpdateRecord]:
    """The state after an update that was prepared earlier and made elsewhere."""
    _check_result(state, result, settings)
    after, record = _concluded(state, maker, beta, result)
    announce(state, after, record, trained=True)
    return _tidied(state, after, record, limit)


def _check_result(state: PolicyState, result: UpdateResult, settings: dict[str, Any]) -> None:
    """Refuse a result that was not prepared by this policy, or not since its last update."""
    cut, history = result.cut, state.history
    known = cut.round <= history.rounds and history.lives_before(history.logged + cut.round) == cut.lives
    if known and cut.updates < len(state.updates):
        last = state.updates[-1]
        raise StaleUpdate(
            f"a result must be of the latest update that was prepared: this one was prepared at round {cut.round} "
            f"after {cut.updates} updates, and the policy has {len(state.updates)} on record, the last of round "
            f"{last.round}. It was adopted already, or another update came first. Call prepare_update again."
        )
    known = known and cut.arrived <= history.arrived and cut.updates == len(state.updates)
    if not known or digest_of(settings, state.frozen.learner, history, cut, state.learned) != cut.digest:
        raise WrongUpdate(
            f"a result must come from a job that this policy prepared; this one was prepared at round {cut.round} "
            "by another policy, or by a process of this one whose later decisions or rewards were lost in a "
            "restart. Call prepare_update again."
        )


def _concluded(
    state: PolicyState, maker: CovarianceMaker, beta: Beta, result: UpdateResult
) -> tuple[PolicyState, UpdateRecord]:
    """The state after an update; rounds and rewards since its cut stay as they are."""
    cut, fit, history = result.cut, result.fit, state.history
    frozen, version, learned, base = state.frozen, state.clock.version, state.learned, cut.log_det
    if not fit.reason:
        version, learned = version + 1, cut.arrived
        covariance = _next_covariance(state, maker, result)
        learner = fit.learner
        if history.rounds == cut.round:
            base = covariance.log_det
        else:
            learner = learner.caught_up(frozen.learner)
            if result.covariance is not None:
                base = result.covariance.log_det
            elif covariance.kind != cut.form and not {covariance.kind, cut.form} <= {*EXACT}:
                base = covariance.log_det
        radius = _radius(beta, state, learner, covariance, version)
        frozen = FrozenPolicy(learner, covariance, radius, frozen.ridge, frozen.rule, frozen.running)
        frozen = with_next_unit(frozen, state.frozen, history.contexts[-RECENT:])
    clock = state.clock.restarted(cut.round, base, version)
    clock = clock.replayed(history.rounds, frozen.covariance.log_det)
    due = f"{cut.due}; {clock.plan}" if cut.due else ""
    lost = state.lost if fit.reason else history.total - frozen.covariance.rounds
    after = PolicyState(
        *(frozen, clock, history, state.random, state.reader, state.updates, Offered(), learned, state.events, lost)
    )
    record = _record_of(after, fit, cut, _coverage(state), due, state.offered)
    return noted(state, after.with_update(record), history.rounds), record


def _tidied(
    before: PolicyState, after: PolicyState, record: UpdateRecord, limit: int | None
) -> tuple[PolicyState, UpdateRecord]:
    """The state after an update without the rows that it has made superfluous; the record counts them."""
    done = compacted_after_update(after, limit)
    if not done.dropped:
        return after, record
    record = replace(record, dropped=done.dropped)
    state = replace(done.state, updates=(*before.updates, record))
    if limit is None or not done.learned + done.abandoned:
        return state, record
    sentence = limit_sentence(done, limit)
    if all(event.kind != "limit" for event in before.events):
        warnings.warn(
            f"{sentence}. From now on the oldest rounds are dropped at every update, and records count them. Raise "
            "limits.history, or use forgetting=Window(…) to choose what is forgotten.",
            ForgettingWarning,
            stacklevel=4,
        )
        event = PolicyEvent("limit", record.adopted or 0, record.version, sentence)
        state = replace(state, events=(*state.events, event))
    return state, record


def start_from_log(state: PolicyState, maker: CovarianceMaker, beta: Beta, rows: Array, values: Array) -> PolicyState:
    """The state whose version 0 is trained: the log is in the history and in Z, features taken at θ_0."""
    learner = state.frozen.learner.seen(rows, len(rows)).scaled()
    history = state.history.with_log(rows, values)
    fit = learner.learn(history)
    if fit.reason:
        raise TrainingRejected(f"version 0 could not be trained on the log: {fit.reason}.")
    basis = fit.basis or learner if history.forgetting is None else fit.learner
    ahead = state.clock.rounds_ahead(0, 0)
    covariance = maker.of(basis.features, basis.widths, *history.remembered(), ahead)
    covariance.freeze(ahead)
    radius = _radius(beta, state, fit.learner, covariance, version=0)
    after = replace(
        state,
        frozen=replace(state.frozen, learner=fit.learner, covariance=covariance, radius=radius),
        clock=state.clock.restarted(0, covariance.log_det, 0),
        history=history,
        learned=history.arrived,
        lost=history.total - covariance.rounds,
    )
    cut = Cut(0, 0, 0, history.arrived, history.counted, history.missing, covariance.log_det, covariance.kind, "")
    record = _record_of(after, fit, cut)
    announce(replace(state, history=history), after, record, trained=True)
    return after.with_update(record)


def _nothing_new(state: PolicyState) -> FitResult | None:
    """A rejected fit where no reward came since the last update."""
    if state.history.arrived > state.learned:
        return None
    if not state.clock.due:
        check_new(state)
    reason = _NO_REWARD[state.learned > 0]
    warnings.warn(
        f"an update was due, but {reason}, so it was skipped: the version in use goes on, and no version of the "
        "budget is spent. Tell rewards with observe.",
        NothingToLearnWarning,
        stacklevel=4,
    )
    return FitResult(state.frozen.learner, reason)


def _next_covariance(state: PolicyState, maker: CovarianceMaker, result: UpdateResult) -> Covariance:
    """The frozen matrix of the next version: the running one or, where features or weights changed, a new one."""
    clock, history = state.clock, state.history
    if result.covariance is None:
        covariance = state.frozen.covariance.fork()
    else:
        assert result.basis is not None
        covariance = result.covariance.fork()
        maker.add(covariance, result.basis.features, history.contexts_since(result.cut.round))
    covariance.freeze(clock.rounds_ahead(history.rounds, clock.version + 1))
    return covariance


def _radius(beta: Beta, state: PolicyState, learner: Learner, covariance: Covariance, version: int) -> float:
    """β of a version that has been trained and decides from the next round on."""
    stats = learner.version_stats(state.history.rounds + 1, covariance)
    if state.clock.budget.spent(version):
        stats = replace(stats, last=True)
    if isinstance(beta, NoiseRadius):  # nothing else asks for what follows, which takes all records and rewards
        chosen, least_known = _deviations(state)
        stats = replace(
            stats,
            spread=state.history.largest_spread,
            chosen=min(chosen, default=None),
            least_known=least_known[-1] if least_known else None,
            first_least_known=least_known[0] if least_known else None,
            disjoint=state.offered.disjoint and state.offered.arms > state.offered.rounds,  # one arm is no choice
        )
    return radius_at(beta, stats)


def _deviations(state: PolicyState) -> tuple[list[float], list[float]]:
    """√(φᵀZ⁻¹φ) of the arms chosen, and of the least known arms, in every batch so far."""
    found = [(u.chosen, u.least_known) for u in state.updates if u.chosen is not None and u.least_known is not None]
    now = state.offered.deviations
    both = [*found, *([] if now is None else [now])]
    return [chosen for chosen, _ in both], [least_known for _, least_known in both]


def _coverage(state: PolicyState) -> float | None:
    """How many of this version's rewards lie within two deviations of what it predicted, as `UpdateRecord` says."""
    noise, history = state.frozen.learner.noise, state.history
    if noise is None:
        return None
    rewards, means = history.rewards, history.means
    own = (history.versions == state.clock.version) & ~np.isnan(rewards) & ~np.isnan(means)
    if not own.any():
        return None
    off = np.abs(rewards[own] - means[own])
    return float(np.mean(off <= BOTH_SIDES * np.hypot(noise, history.bonuses[own])))


def _record_of(
    state: PolicyState,
    fit: FitResult,
    cut: Cut,
    coverage: float | None = None,
    due: str = "",
    offered: Offered | None = None,
) -> UpdateRecord:
    covariance = state.frozen.covariance
    chosen, least_known = (None, None) if offered is None else offered.deviations or (None, None)
    return UpdateRecord(
        version=state.clock.version,
        round=cut.round,
        adopted=state.history.rounds,
        accepted=not fit.reason,
        reason=fit.reason,
        samples=cut.samples,
        missing=cut.missing,
        log_det=state.clock.base_log_det,
        beta=state.frozen.radius,
        covariance=covariance.kind,
        jitters=covariance.jitters,
        rescaled=fit.rescaled,
        noise=state.frozen.learner.noise,
        coverage=coverage,
        due=due,
        unexplored=None if offered is None else offered.share,
        chosen=chosen,
        least_known=least_known,
        lost=state.lost,
        **{name: getattr(fit.report, name) for name in TRAINING_NUMBERS},
    )
