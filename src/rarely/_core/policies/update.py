"""An update: rewards in, the next version out.

It has three steps, which `update` takes at once: a policy prepares a job, anything may run it, and the policy adopts
the result.

    job      what an update learns from, as it was at the *cut*: a value that can be pickled, without Z
    result   the next learner and, where features change, the Z of the rounds before the cut

The policy may decide between the cut and the adoption. `digest` names the cut: a policy whose learner, lives
or rewards are others at that point refuses the result.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rarely._core import errors
from rarely._core.choice.confidence_radius import Beta, radius_at
from rarely._core.covariance import RECENT, Covariance, CovarianceFactory
from rarely._core.covariance.primal import Primal
from rarely._core.growable_array import GrowingTuple, changed
from rarely._core.inputs.forgetting import Forgetting
from rarely._core.inputs.history import History
from rarely._core.model.features import Factors
from rarely._core.policies.covariance_change import record_form_change
from rarely._core.policies.learner import FitResult, Learner, ScoreOverride
from rarely._core.policies.monitor import announce, nothing_to_watch
from rarely._core.policies.state import NO_UPDATE, ArmStats, PolicyState, UpdateRecord, Version
from rarely._core.saving.fields import plain
from rarely._core.training.gradient_descent import NO_TRAINING, TRAINING_NUMBERS
from rarely._core.training.watch import TRAINED, UNWATCHED, Progress, Watch
from rarely._core.types import Array

_MOVING = ("zeros", "offered", "seen", "seen_rounds", "seen_mean", "seen_squares", "center", "spread", "follows")
"""What contexts change in a learner between updates."""
NO_REWARD = ("no reward has arrived yet", "no reward has arrived since the last update")
BOTH_SIDES = 1.959963984540054  # standard deviations that leave 2.5 % of a Gaussian on either side


@dataclass(slots=True)
class Cut:
    """Where a policy stood when an update was prepared."""

    round: int
    version: int
    updates: int  # updates on record
    learned: int  # rewards that were in at the last update, logged ones included
    arrived: int  # rewards that were in when the update was prepared, of which `samples` are learned from
    samples: int
    missing: int  # rounds without a reward
    log_det: float
    exact: bool  # whether Z was exact
    due: str  # why the batch had ended; "" where it had not
    lives: tuple[tuple[int, str], ...] = ()  # the lives of the policy, as `History.lives_before` has them
    digest: str = ""  # a hash of learner, lives and rewards; "" where the update is made at once

    @classmethod
    def of(cls, state: PolicyState) -> Cut:
        """Return where the policy stands."""
        history, clock, covariance = state.history, state.clock, state.current.covariance
        places = history.rounds, clock.version, len(state.updates), state.learned
        counts, log_det = (history.arrived, history.counted, history.missing), covariance.log_det
        return cls(*places, *counts, log_det, covariance.exact, clock.explain(history.rounds, log_det))


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """The outcome of `UpdateJob.run`, for `Policy.adopt`.

    Examples
    --------
    >>> from rarely import LinUCB, OnDemand
    >>> policy = LinUCB(dim=1, schedule=OnDemand())
    >>> policy.observe(policy.select([[1.0], [2.0]]), 1.0)
    >>> result = policy.prepare_update().run()
    >>> result.accepted, policy.adopt(result).version
    (True, 1)
    """

    cut: Cut
    fit: FitResult
    basis: Learner | None = None  # the learner whose features Z is rebuilt with
    covariance: Covariance | None = None  # Z of the rounds before the cut with those features, not frozen yet
    forgetting: Forgetting | None = None  # how what it learned from was weighed

    @property
    def accepted(self) -> bool:
        """Whether the training succeeded; the policy records a failed one and keeps its version."""
        return not self.fit.reason

    @property
    def reason(self) -> str:
        """Why the training was rejected; empty when it was not."""
        return self.fit.reason


@dataclass(frozen=True, slots=True)
class UpdateJob:
    """An update that can run in another thread, process or machine.

    A job is a value: it can be pickled, and running it changes neither the job nor the policy.

    Examples
    --------
    >>> from rarely import LinUCB, OnDemand
    >>> policy = LinUCB(dim=1, schedule=OnDemand())
    >>> policy.observe(policy.select([[[1.0], [2.0]]] * 5), [1.0] * 5)
    >>> result = policy.prepare_update().run()
    >>> decision = policy.select([[1.0], [2.0]])
    >>> policy.adopt(result).version, decision.version
    (1, 0)
    """

    cut: Cut
    learner: Learner
    history: History
    factory: CovarianceFactory
    arms: int  # the most arms that a round has offered
    ahead: int  # rounds that the next batch is expected to last

    def run(self, progress: Progress = None, *, seconds: float | None = None) -> UpdateResult:
        """Train the next version, and return what `Policy.adopt` takes, which can be pickled too.

        `progress` and `seconds` are those of `Policy.update`.
        """
        watch = UNWATCHED if progress is None and seconds is None else Watch(progress, seconds)
        with np.errstate(all="ignore"):  # as in a policy's own calls
            return self._run(watch)

    def _run(self, watch: Watch) -> UpdateResult:
        watch.announce(0.0, "training")
        memory = self.learner.recall(self.history, self.cut.arrived - self.cut.learned)
        history = self.history.with_forgetting(memory.forgetting)
        fit = self.learner.learn(history, watch)
        fit = replace(fit, memory=fit.memory or memory.why)
        if watch.early:
            fit = replace(fit, report=replace(fit.report, early=watch.early))
        basis = None if fit.reason else self._basis(fit, memory.forgetting)
        covariance = None
        if basis is not None:
            watch.announce(TRAINED, "covariance")
            _, contexts, weights = history.remembered()
            covariance = self.factory.build(
                basis.features_of(history), basis.widths, contexts, weights, arms=self.arms, ahead=self.ahead
            )
        watch.announce(1.0, "done")
        same = memory.forgetting == self.history.forgetting
        cut = self.cut if same else replace(self.cut, samples=history.counted)
        return UpdateResult(cut, fit, basis, covariance, memory.forgetting)

    def _basis(self, fit: FitResult, memory: Forgetting | None) -> Learner | None:
        """Return the learner whose features Z must be rebuilt with; None if no rebuild is needed."""
        if memory is not None or self.history.forgetting is not None:
            return fit.learner
        if fit.basis is None and self.cut.digest and self.learner.follows:
            # By then the scale, and Z with it, will have followed the rounds decided meanwhile.
            scale = fit.learner.context_scale
            return self.learner if scale is None else self.learner.with_scale(scale)
        return fit.basis


def with_digest(job: UpdateJob, settings: dict[str, Any], learned: int) -> UpdateJob:
    """Return the job with its cut named, for a policy with these settings whose last update had `learned` rewards."""
    history, learner = job.history, job.learner
    cut = replace(job.cut, lives=history.lives_before(history.total))
    cut = replace(cut, digest=digest_of(settings, learner, history, cut, learned))
    needs = learner.needs(history)
    if needs is not None and history.forgetting is None and not learner.rebuilds:
        history = history.without(~needs)
    return replace(job, cut=cut, history=history.for_learning(predictions=learner.reads_predictions))


def digest_of(settings: dict[str, Any], learner: Learner, history: History, cut: Cut, learned: int) -> str:
    """Return the name of a cut: equal where learner, lives and the rewards since the last update are the same."""
    numbers, arrays = learner.state()
    header = {
        "settings": settings,
        "place": (history.logged, cut.round, cut.version, cut.updates, cut.arrived),
        "lives": cut.lives,
        "learner": {name: value for name, value in numbers.items() if name not in _MOVING},
    }
    digest = hashlib.blake2b(json.dumps(header, sort_keys=True, default=plain).encode(), digest_size=16)
    fixed = {name: array for name, array in arrays.items() if name not in _MOVING}
    rows, values = history.arrivals_between(learned, cut.arrived)
    for name, array in sorted((fixed | {"rows": rows, "values": values}).items()):
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def update(
    state: PolicyState,
    factory: CovarianceFactory,
    beta: Beta,
    *,
    force: bool,
    progress: Progress,
    seconds: float | None,
) -> tuple[PolicyState, UpdateRecord]:
    """Learn from the rewards that are in, and freeze the next version, or record why not."""
    job = prepare(state, factory)
    skipped = None if force else _nothing_new(state)
    result = job.run(progress, seconds=seconds) if skipped is None else UpdateResult(job.cut, skipped)
    return _apply(state, factory, beta, result)


def update_at_once(state: PolicyState, beta: Beta) -> tuple[PolicyState, UpdateRecord] | None:
    """Return what `update` does with the only new reward of a policy whose learner and Z take it in one step."""
    current, clock, covariance = state.current, state.clock, state.current.covariance
    if callable(beta) or not isinstance(covariance, Primal) or covariance.kind != "primal":
        return None
    usual = current.override is None and not clock.spent and nothing_to_watch(state)
    learner = current.learner.with_few_rewards(state.history) if usual else None
    if learner is None:
        return None
    cut, covariance = Cut.of(state), covariance.frozen()
    clock = clock.restarted(cut.round, covariance.log_det, clock.version + 1)
    now = Version(learner, covariance, float(beta), current.rule, current.within_batch)
    after = changed(state, current=now, clock=clock, arm_stats=ArmStats(), learned=cut.arrived)
    after.lost = state.history.total - covariance.rounds
    record = _record_of(after, FitResult(learner), cut, None, state.arm_stats)
    after.updates = state.updates.plus(record)
    return after, record


def prepare(state: PolicyState, factory: CovarianceFactory) -> UpdateJob:
    """Return the update that could be made now."""
    clock, history = state.clock, state.history
    if clock.spent:
        raise errors.BudgetSpent(
            f"the budget allows {clock.budget.batches} versions, and version {clock.version} is the last; "
            "keep calling select, plan more batches, or call extend_budget."
        )
    ahead = clock.rounds_ahead(history.rounds, clock.version + 1)
    return UpdateJob(Cut.of(state), state.current.learner, history, factory, state.most_arms, ahead)


def check_new(state: PolicyState) -> None:
    """Refuse an update without a reward since the last one."""
    if state.history.arrived <= state.learned:
        raise errors.NothingToLearn(
            f"an update must have something to learn from, and {NO_REWARD[state.learned > 0]}: it would spend a "
            "version of the budget for nothing. Record rewards first, or force the update (force=True, --force)."
        )


def adopt(
    state: PolicyState, factory: CovarianceFactory, beta: Beta, result: UpdateResult, settings: dict[str, Any]
) -> tuple[PolicyState, UpdateRecord]:
    """Return the state after an update that was prepared earlier and run elsewhere."""
    _check_result(state, result, settings)
    return _apply(state, factory, beta, result)


def _check_result(state: PolicyState, result: UpdateResult, settings: dict[str, Any]) -> None:
    """Refuse a result that was not prepared by this policy, or not since its last update."""
    cut, history = result.cut, state.history
    own = cut.round <= history.rounds and history.lives_before(history.logged + cut.round) == cut.lives
    if own and cut.updates < len(state.updates):
        last = state.updates[-1]
        raise errors.StaleUpdate(
            f"a result must be of the latest update that was prepared: this one was prepared at round {cut.round} "
            f"after {cut.updates} updates, and the policy has {len(state.updates)} on record, the last of round "
            f"{last.round}. It was adopted already, or another update came first. Call prepare_update again."
        )
    own = own and cut.arrived <= history.arrived and cut.updates == len(state.updates)
    if not own or digest_of(settings, state.current.learner, history, cut, state.learned) != cut.digest:
        raise errors.WrongUpdate(
            f"a result must come from a job that this policy prepared; this one was prepared at round {cut.round} "
            "by another policy, or by a process of this one whose later decisions or rewards were lost in a "
            "restart. Call prepare_update again."
        )


def _apply(
    state: PolicyState, factory: CovarianceFactory, beta: Beta, result: UpdateResult
) -> tuple[PolicyState, UpdateRecord]:
    """Return the state after an update; rounds and rewards since its cut stay as they are."""
    cut, fit, history = result.cut, result.fit, state.history
    current, version, learned, base = state.current, state.clock.version, state.learned, cut.log_det
    if not fit.reason:
        history = history.with_forgetting(result.forgetting)
        version, learned = version + 1, cut.arrived
        covariance = _next_covariance(state, factory, result)
        learner = fit.learner
        if history.rounds > cut.round:
            learner = learner.merge_scale(current.learner)
        if history.rounds == cut.round or (result.covariance is None and covariance.exact != cut.exact):
            base = covariance.log_det  # else that of the cut would be of another form
        elif result.covariance is not None:
            base = result.covariance.log_det
        radius = _radius(beta, state, learner, covariance, version)
        override = _next_override(state, cut.arrived, history)
        current = Version(learner, covariance, radius, current.rule, current.within_batch, override)
    clock = state.clock.restarted(cut.round, base, version)
    clock = clock.replayed(history.rounds, current.covariance.log_det)
    lost = state.lost if fit.reason else history.total - current.covariance.rounds
    after = changed(
        state, current=current, clock=clock, history=history, arm_stats=ArmStats(), learned=learned, lost=lost
    )
    after, record = _watched(after, state, _record_of(after, fit, cut, _coverage(state), state.arm_stats))
    if fit.memory and not fit.reason:
        record = replace(record, memory=fit.memory)
        after = after.with_event("memory", fit.memory)
    after = changed(after, updates=state.updates.plus(record))
    return record_form_change(state, after, factory, history.rounds), record


def _watched(after: PolicyState, before: PolicyState, record: UpdateRecord) -> tuple[PolicyState, UpdateRecord]:
    """Return the state and the record of an update with the alarms that the rewards of the batch raise."""
    current, version = before.current, before.clock.version
    how = {"predicts": current.learner.predicts, "frozen": not current.uses_running}
    expectations, alarms = before.expectations.after(before.history, version, record.chosen or 0.0, **how)
    if expectations is before.expectations and not expectations.raised:
        return after, record
    after = replace(after, expectations=expectations)
    for kind, sentence in alarms.items():
        after = after.with_event("alarm", f"{kind}: {sentence}")
    return after, replace(record, alarms=expectations.raised)


def start_from_log(
    state: PolicyState, factory: CovarianceFactory, beta: Beta, rows: Array, values: Array
) -> PolicyState:
    """Return the state whose version 0 is trained: the log is in the history and in Z, features taken at θ_0."""
    learner = state.current.learner.observe_contexts(rows, len(rows)).with_fitted_scale()
    history = state.history.with_log(rows, values)
    fit = learner.learn(history)
    if fit.reason:
        raise errors.TrainingRejected(f"version 0 could not be trained on the log: {fit.reason}.")
    basis = fit.basis or learner if history.forgetting is None else fit.learner
    ahead = state.clock.rounds_ahead(0, 0)
    _, contexts, weights = history.remembered()
    covariance = factory.build(basis.features_of(history), basis.widths, contexts, weights, ahead=ahead)
    covariance = factory.freeze_for_batch(covariance, 0, ahead)
    radius = _radius(beta, state, fit.learner, covariance, version=0)
    current = replace(state.current, learner=fit.learner, covariance=covariance, radius=radius)
    clock, lost = state.clock.restarted(0, covariance.log_det, 0), history.total - covariance.rounds
    after = replace(state, current=current, clock=clock, history=history, learned=history.arrived, lost=lost)
    record = _record_of(after, fit, Cut.of(after))
    announce(replace(state, history=history), after, record, trained=True)
    return changed(after, updates=GrowingTuple([record]))


def _nothing_new(state: PolicyState) -> FitResult | None:
    """Return a rejected fit where no reward has arrived since the last update."""
    if state.history.arrived > state.learned:
        return None
    if not state.clock.due:
        check_new(state)
    reason = NO_REWARD[state.learned > 0]
    warnings.warn(
        f"an update was due, but {reason}, so it was skipped: the version in use stays, and no version of the "
        "budget is spent. Report rewards with observe.",
        errors.NothingToLearnWarning,
        stacklevel=4,
    )
    return FitResult(state.current.learner, reason)


def _next_covariance(state: PolicyState, factory: CovarianceFactory, result: UpdateResult) -> Covariance:
    """Return the frozen Z of the next version: the running one or, where features or weights changed, a new one."""
    clock, history, before = state.clock, state.history, state.current
    if result.covariance is None:
        covariance, basis = before.covariance.fork(), before.learner
    else:
        assert result.basis is not None
        covariance, basis = result.covariance.fork(), result.basis
        factory.add(covariance, basis.features, history.contexts_since(result.cut.round))
        covariance = factory.adapted(covariance, state.most_arms)

    def factors() -> tuple[Factors, Factors]:
        recent = history.contexts[-RECENT:]
        return result.fit.learner.features(recent), before.learner.features(recent)

    factory.rescale_bonuses(covariance, before.covariance, factors)
    # Only from the dual form another one follows, and then it depends on the length of the batch.
    ahead = clock.rounds_ahead(history.rounds, clock.version + 1) if covariance.kind == "dual" else 0
    return factory.freeze_for_batch(covariance, state.most_arms, ahead)


def _radius(beta: Beta, state: PolicyState, learner: Learner, covariance: Covariance, version: int) -> float:
    """Return β of a version that has been trained and decides from the next round on."""
    if not callable(beta):
        return float(beta)
    stats = learner.version_stats(state.history.rounds + 1, covariance)
    if state.clock.budget.spent(version):
        stats = replace(stats, last=True)
    return radius_at(beta, stats)


def _next_override(state: PolicyState, arrived: int, history: History) -> ScoreOverride | None:
    """Return the second opinion on arms after an update, where there is one."""
    override, budget = state.current.override, state.clock.budget
    if override is None:
        return None
    contexts, rewards = (rows[: arrived - state.learned] for rows in history.arrived_since(state.learned))
    predicted, horizon = state.current.learner.assess(contexts)[0], budget.horizon or 2 * history.rounds
    facts: dict[str, Any] = {"horizon": horizon, "disjoint": state.arm_stats.disjoint}
    override = override.after_update(contexts, rewards, predicted, spread=history.largest_spread, **facts)
    if history.forgetting == state.history.forgetting is None:
        return override
    return override.recounted(history.remembered()[1], *history.samples()[1:3])


def _coverage(state: PolicyState) -> float | None:
    """Return the share of this version's rewards within two deviations of its predictions; see `UpdateRecord`."""
    noise, history = state.current.learner.noise, state.history
    if noise is None:
        return None
    rewards, means = history.rewards, history.means
    own = (history.versions == state.clock.version) & ~np.isnan(rewards) & ~np.isnan(means)
    if not own.any():
        return None
    off = np.abs(rewards[own] - means[own])
    return float(np.mean(off <= BOTH_SIDES * np.hypot(noise, history.bonuses[own])))


def _record_of(
    state: PolicyState, fit: FitResult, cut: Cut, coverage: float | None = None, arm_stats: ArmStats | None = None
) -> UpdateRecord:
    covariance = state.current.covariance
    chosen, least_known = (None, None) if arm_stats is None else arm_stats.deviations or (None, None)
    training = {} if fit.report is NO_TRAINING else {name: getattr(fit.report, name) for name in TRAINING_NUMBERS}
    return changed(
        NO_UPDATE,
        version=state.clock.version,
        round=cut.round,
        adopted=state.history.rounds,
        accepted=not fit.reason,
        reason=fit.reason,
        samples=cut.samples,
        missing=cut.missing,
        log_det=state.clock.base_log_det,
        beta=state.current.radius,
        covariance=covariance.kind,
        jitters=covariance.jitters,
        rescaled=fit.rescaled,
        noise=state.current.learner.noise,
        coverage=coverage,
        due=f"{cut.due}; {state.clock.plan}" if cut.due else "",
        unexplored=None if arm_stats is None or covariance.kind == "none" else arm_stats.share,
        chosen=chosen,
        least_known=least_known,
        lost=state.lost,
        **training,
    )
