"""The kit bites: something that breaks one promise is caught by the check of that promise."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from rarely import Affine, Budget, FixedGrid, InvalidInput, LinTS, LinUCB, Schedule, testing
from rarely._core.choice.rules import RULES
from rarely._core.covariance import Candidates, Diagonal, Limit, Primal, Proposal
from rarely._core.model.features import Factors
from rarely._core.policies.learner import FitResult
from rarely._core.policies.linear import LinearLearner
from rarely._core.policies.saving import POLICIES
from rarely.extend import ChoiceRule
from rarely.testing import (
    COVARIANCE_PROMISES,
    LEARNER_PROMISES,
    POLICY_PROMISES,
    RULE_PROMISES,
    SCHEDULE_PROMISES,
    check_covariance,
    check_learner,
    check_policy,
    check_rule,
    check_schedule,
    ensure_equal,
)


def caught(check, promise):
    """The check of one promise fails, and says so in a sentence."""
    with pytest.raises(AssertionError, match=rf"breaks the promise {promise}: \S.* In this check: .*"):
        check()


def changed(base, name, method):
    """A class with one method of its own."""
    return type(f"Broken{base.__name__}", (base,), {name: method, "__module__": __name__})


@pytest.fixture(autouse=True)
def registries():
    """Broken classes are forgotten: `load` finds classes by their names."""
    before = [(registry, dict(registry)) for registry in (POLICIES, RULES)]
    yield
    for registry, classes in before:
        registry.clear()
        registry.update(classes)


# --- policies


def altered(name, alter):
    """A method that calls the original one and alters its answer."""

    def method(self, *args, **named):
        return alter(self, getattr(super(type(self), self), name)(*args, **named))

    return name, method


def grown(policy, answer):
    """Something that must change nothing has changed something."""
    policy._state = policy._state.with_event("budget", "more")
    return answer


def replaced(**fields):
    return lambda policy, decision: replace(decision, **{k: f(policy, decision) for k, f in fields.items()})


def noisy(policy, values):
    return values + 1e-3 * np.random.default_rng().normal(size=np.shape(values))


def raising(error):
    def method(self, *args, **named):
        raise error

    return method


def half_observed(self, decision=None, rewards=None, **named):
    """Rewards before a bad one stay, as with a loop."""
    if decision is not None and not decision.single and np.ndim(rewards) == 1 and len(rewards) == len(decision):
        for i in range(len(decision)):
            LinUCB.observe(self, decision[i], rewards[i], **named)
    else:
        LinUCB.observe(self, decision, rewards, **named)


def select_without_mask(self, contexts, mask=None, *, until_due=False):
    return LinUCB.select(self, contexts, until_due=until_due)


def select_in_reverse(self, contexts, mask=None, *, until_due=False):
    """A block whose rounds are decided in another order."""
    rounds = np.asarray(contexts) if isinstance(contexts, np.ndarray) else contexts
    if isinstance(rounds, np.ndarray) and rounds.ndim == 3 and len(rounds) > 1:
        rounds = rounds * np.array([1.0, 1.5])
    return LinUCB.select(self, rounds, mask, until_due=until_due)


def eager_observe(self, *args, **named):
    """Learning at once, inside the batch."""
    LinUCB.observe(self, *args, **named)
    state = self._state
    learner = state.current.learner.learn(state.history).learner
    self._state = replace(state, current=replace(state.current, learner=learner))


def update_beyond_budget(self, **named):
    if self._state.clock.spent:
        self._state = self._state.with_event("budget", "ignored")
    return LinUCB.update(self, **named)


def forgetful_settings(self):
    return LinUCB.settings(self) | {"ridge": 1.0}


def lossy_state(self):
    state = LinUCB.__getstate__(self)
    return state | {"_factory": state["_factory"].changed("diagonal")}


def dropping(self, *, open_for=None):
    """Compaction that loses what a network or a sum still needs."""
    state = self._state
    learner = replace(state.current.learner, moment=0.9 * state.current.learner.moment)
    self._state = replace(state, current=replace(state.current, learner=learner))
    return 0


BROKEN_POLICIES = {
    "a_decision_says_what_was_weighed": altered("select", replaced(bonuses=lambda p, d: d.bonuses[..., :2])),
    "score_is_pure": altered("score", grown),
    "score_is_what_select_reports": altered("score", lambda p, s: s._replace(bonuses=2 * s.bonuses)),
    "select_twice_gives_the_same_arms": altered("select", replaced(means=lambda p, d: noisy(p, d.means))),
    "blocks_are_single_rounds": ("select", select_in_reverse),
    "only_available_arms_are_chosen": ("select", select_without_mask),
    "one_arm_is_ordinary": altered("select", replaced(arm=lambda p, d: d.arm + 1)),
    "probabilities_are_those_of_the_decision": altered("probabilities", lambda p, q: q / 2),
    "nothing_is_learned_inside_a_batch": ("observe", eager_observe),
    "rewards_may_come_in_any_order": ("observe", lambda self, *a, **n: None),
    "the_budget_is_kept": ("update", update_beyond_budget),
    "log_det_grows_with_every_round": ("log_det", property(lambda self: -LinUCB.log_det.fget(self))),
    "an_update_elsewhere_is_an_update_at_once": altered("prepare_update", grown),
    "compaction_changes_no_decision": ("compact", dropping),
    "settings_rebuild_it": ("settings", forgetful_settings),
    "files_and_copies_resume_bit_for_bit": ("__getstate__", lossy_state),
}


@pytest.mark.parametrize("promise", BROKEN_POLICIES)
def test_a_policy_that_breaks_a_promise_is_caught(promise):
    kind = changed(LinUCB, *BROKEN_POLICIES[promise])
    check_policy(lambda schedule: LinUCB(2, schedule, ridge=0.5, seed=0), only=promise)
    caught(lambda: check_policy(lambda schedule: kind(2, schedule, ridge=0.5, seed=0), only=promise), promise)


def test_running_bonuses_that_do_not_fall_are_caught():
    promise = "select_twice_gives_the_same_arms"
    kind = changed(LinUCB, *altered("select", replaced(bonuses=lambda p, d: np.ones_like(d.bonuses))))
    caught(lambda: check_policy(lambda schedule: kind(2, schedule, seed=0), only=promise), promise)


def test_a_policy_without_a_seed_is_caught():
    caught(lambda: check_policy(lambda schedule: LinUCB(2, schedule), only=POLICY_PROMISES[0]), POLICY_PROMISES[0])


def test_unfair_draws_are_caught():
    def favoured(policy, decision):
        if decision.single:
            return decision
        return replace(decision, arm=np.where(np.arange(len(decision)) % 4 == 0, 0, decision.arm))

    kind, promise = changed(LinTS, *altered("select", favoured)), "arms_come_as_often_as_they_should"
    caught(lambda: check_policy(lambda schedule: kind(2, schedule, seed=0), only=promise), promise)


def test_a_policy_of_the_package_keeps_every_promise_in_one_call():
    check_policy(lambda schedule: LinUCB(3, schedule, seed=0))


def test_a_promise_that_there_is_not_is_refused():
    with pytest.raises(InvalidInput, match=r"only must be one of make_gives_the_same_policy, .*; got 'all'"):
        check_policy(lambda schedule: LinUCB(3, schedule, seed=0), only="all")


# --- schedules


class Own(FixedGrid):
    """A schedule that is written elsewhere."""

    def describe(self):
        return {"kind": type(self).__name__, "horizon": self.horizon, "batches": self.batches}


def asked(self, round, growth):
    self.__dict__["asked"] = self.__dict__.get("asked", 0) + 1
    return FixedGrid.first_due(self, round, growth) if self.__dict__["asked"] % 2 else None


def scribbled(self, round, growth):
    growth += 1.0
    return FixedGrid.first_due(self, round, growth)


BROKEN_SCHEDULES = {
    "is_a_value": ("first_due", asked),
    "batches_and_horizon_are_counts": ("__post_init__", lambda self: self.__dict__.update(horizon=2.5, points=(3,))),
    "describe_rebuilds_it": ("describe", lambda self: {"kind": type(self).__name__, "horizon": 99, "batches": 3}),
    "no_rounds_end_no_batch": ("first_due", lambda self, round, growth: 0),
    "first_due_is_one_of_the_rounds": ("first_due", scribbled),
    "blocks_are_cut_where_single_rounds_are": (
        "first_due",
        lambda self, round, growth: len(growth) - 1 if len(growth) and round + len(growth) >= 14 else None,
    ),
    "looks_at_least_one_round_ahead": ("lookahead", lambda self, round, growth, rounds: 0),
    "lookahead_is_exact_where_growth_does_not_matter": ("lookahead", lambda self, round, growth, rounds: 5),
    "a_batch_played_by_lookahead_ends_with_the_same_round": (
        "first_due",
        lambda self, round, growth: None if round else FixedGrid.first_due(self, round, growth),
    ),
    "explains_itself_in_words": ("explain", lambda self, round, growth: None),
}


@pytest.mark.parametrize("promise", BROKEN_SCHEDULES)
def test_a_schedule_that_breaks_a_promise_is_caught(promise):
    check_schedule(lambda: Own(100, 7))
    kind = changed(Own, *BROKEN_SCHEDULES[promise])
    if promise.startswith("a_batch"):
        kind.lookahead = lambda self, round, growth, rounds: 3
    caught(lambda: check_schedule(lambda: kind(100, 7), only=promise), promise)


def test_a_budget_that_is_overdrawn_is_caught(monkeypatch):
    monkeypatch.setattr(Budget, "spent", lambda self, version: False)
    caught(lambda: check_schedule(_Hasty, only="the_budget_is_kept"), "the_budget_is_kept")


class _Hasty(Schedule):
    """Every round ends a batch, whatever the budget."""

    batches, horizon = 3, None

    def first_due(self, round, growth):
        return 0 if len(growth) else None

    def lookahead(self, round, growth, rounds_in_batch):
        return 1


# --- rules of choice


@dataclass(frozen=True)
class Share(ChoiceRule):
    """A rule that is written elsewhere: half of the rounds for the best score, half for any arm."""

    def probabilities(self, scores):
        allowed = ~np.isnan(scores.means)
        best = scores.means + scores.bonuses >= np.nanmax(scores.means + scores.bonuses, axis=1, keepdims=True) - 1e-9
        return best / (2 * best.sum(axis=1, keepdims=True)) + allowed / (2 * allowed.sum(axis=1, keepdims=True))


def scribbling(self, scores):
    scores.means[:] += 1.0
    return Share.probabilities(self, scores)


def exact_argmax(self, scores):
    """A tie that rounding breaks."""
    values = np.where(np.isnan(scores.means), -np.inf, scores.means + scores.bonuses)
    return np.eye(values.shape[1])[values.argmax(axis=1)]


def by_the_whole_call(self, scores):
    """As if all rounds were one."""
    weights = np.where(np.isnan(scores.means), 0.0, 1 + np.exp(scores.means - np.nanmean(scores.bonuses)))
    return weights / weights.sum(axis=1, keepdims=True)


BROKEN_RULES = {
    "is_a_value": ("probabilities", scribbling),
    "probabilities_sum_to_1_and_absent_arms_have_none": (
        "probabilities",
        lambda self, scores: np.full(scores.means.shape, 1 / scores.means.shape[1]),
    ),
    "rounds_are_judged_one_by_one": ("probabilities", by_the_whole_call),
    "permuted_arms_permute_the_answer": (
        "probabilities",
        lambda self, scores: np.eye(scores.means.shape[1])[np.zeros(len(scores.means), int)],
    ),
    "ties_are_shared_or_go_to_the_lowest": ("probabilities", exact_argmax),
    "members_say_what_it_looks_at": ("ignore_running_bonuses", property(lambda self: True)),
    "a_policy_draws_by_it_and_is_saved_with_it": ("describe", lambda self: {"kind": "Share"}),
}


@pytest.mark.parametrize("promise", BROKEN_RULES)
def test_a_rule_that_breaks_a_promise_is_caught(promise):
    check_rule(Share, only=promise)
    kind = changed(Share, *BROKEN_RULES[promise])
    caught(lambda: check_rule(kind, only=promise), promise)


# --- learners


def drifting(self, contexts):
    means, factors = LinearLearner.assess(self, contexts)
    self.coefficients[:] += 1e-3
    return means, factors


def shared(self, contexts):
    """Means that depend on the other contexts of the call, as with a batch's mean taken out."""
    means, factors = LinearLearner.assess(self, contexts)
    return means - means.mean(), factors


def impure(self, history, watch=None):
    result = LinearLearner.learn(self, history)
    self.moment[:] = result.learner.moment
    return result


BROKEN_LEARNERS = {
    "assess_gives_a_mean_and_a_feature_for_each_context": (
        "assess",
        lambda self, contexts: (
            LinearLearner.assess(self, contexts)[0][:, None],
            LinearLearner.assess(self, contexts)[1],
        ),
    ),
    "features_are_those_of_assess": (
        "features",
        lambda self, contexts: Factors((2 * self.scale(contexts),), (np.ones((len(contexts), 1)),)),
    ),
    "a_slice_is_assessed_as_in_the_whole": ("assess", shared),
    "assess_is_pure": ("assess", drifting),
    "learn_is_pure": ("learn", impure),
    "learn_follows_the_rewards": ("learn", lambda self, history, watch=None: FitResult(self)),
    "learning_from_nothing_is_ordinary": ("learn", raising(ZeroDivisionError("no rewards"))),
    "a_restored_learner_is_the_same": (
        "restored",
        lambda self, saved: type(self)(*(getattr(LinearLearner.restored(self, saved), f) for f in FIELDS), 0),
    ),
    "rows_that_it_does_not_need_may_be_dropped": (
        "without_rows",
        lambda self, rows: LinearLearner.start(self.scale, 1.0),
    ),
    "a_scale_is_followed_without_changing_the_learner": ("merge_scale", lambda self, other: None),
    "its_numbers_are_in_range": ("reward_spread", property(lambda self: 0.0)),
}
FIELDS = ("scale", "ridge", "coefficients", "matrix", "moment")


@pytest.mark.parametrize("promise", BROKEN_LEARNERS)
def test_a_learner_that_breaks_a_promise_is_caught(promise):
    kind = changed(LinearLearner, *BROKEN_LEARNERS[promise])
    start = LinearLearner.start.__func__
    check_learner(lambda: start(LinearLearner, Affine.identity(2), 0.5), only=promise)
    caught(lambda: check_learner(lambda: start(kind, Affine.identity(2), 0.5), only=promise), promise)


def test_learners_that_differ_are_caught():
    rng, promise = np.random.default_rng(0), LEARNER_PROMISES[0]

    def make():
        learner = LinearLearner.start(Affine.identity(2), 0.5)
        learner.coefficients[:] = rng.normal(size=2)
        return learner

    caught(lambda: check_learner(make, only=promise), promise)


# --- forms of Z


def accept_frozen(self, proposal, count):
    Primal.accept(self, proposal, count)
    if self.rounds > 6:
        self.freeze()


def propose_kept(self, chosen):
    Primal.accept(self, Primal.propose(self, chosen), len(chosen.factors))
    return Primal.propose(self, chosen)  # accepting a proposal twice would break the factor, not the promise


def read_running(self, saved):
    Primal.read(self, saved)
    self._frozen = self._running


def measured_together(self, factors, *, running=False):
    measured = Primal.measure(self, factors, running=running)
    return Candidates(measured.factors, measured.variances * (1 + 1e-6 * len(factors)), measured.solved)


def log_det_of_the_diagonal(self, chosen):
    proposal = Primal.propose(self, chosen)
    return Proposal(proposal.factors, proposal.log_dets * 1.001, proposal.kept)


def stiff(self, factors, *, running=False):
    """As if only the first hundred rounds counted."""
    measured = Primal.measure(self, factors, running=running)
    scale = 1.01 if self.rounds > 100 else 1.0
    return Candidates(measured.factors, measured.variances * scale, measured.solved)


BROKEN_FORMS = {
    "is_the_dense_matrix_batch_after_batch": ("propose", log_det_of_the_diagonal),
    "is_the_dense_matrix_after_many_rounds": ("measure", stiff),
    "accepting_leaves_the_frozen_matrix_alone": ("accept", accept_frozen),
    "rounds_added_at_once_are_those_proposed": ("add", lambda self, factors: Primal.add(self, factors[1:])),
    "proposing_changes_nothing": ("propose", propose_kept),
    "a_dropped_fork_leaves_the_original_alone": ("fork", lambda self: self),
    "a_fork_is_the_original": ("fork", lambda self: type(self)(self.widths, self.ridge, self.limit)),
    "a_restored_form_has_the_same_future": ("read", read_running),
    "candidates_are_measured_one_by_one": ("measure", measured_together),
    "cross_terms_exist_exactly_where_rounds_add_their_features": (
        "cross",
        lambda self, one, others: 2 * Primal.cross(self, one, others),
    ),
    "sums_of_rounds_are_rounds_added": (
        "contribution",
        lambda self, factors: Primal.contribution(self, factors[:1]),
    ),
}


@pytest.mark.parametrize("promise", BROKEN_FORMS)
def test_a_form_that_breaks_a_promise_is_caught(promise):
    kind = changed(Primal, *BROKEN_FORMS[promise])
    check_covariance(lambda widths, ridge: Primal(widths, ridge, Limit(widths)), only=promise)
    caught(lambda: check_covariance(lambda widths, ridge: kind(widths, ridge, Limit(widths)), only=promise), promise)


def test_an_inverse_that_starts_with_the_ridge_instead_of_one_over_it_is_caught():
    """Z₀⁻¹ = λI instead of I/λ: with λ = 1 nobody would notice."""
    promise = "starts_as_the_prior"
    caught(
        lambda: check_covariance(lambda widths, ridge: Primal(widths, 1 / ridge, Limit(widths)), only=promise), promise
    )


def test_an_approximation_is_no_full_matrix_and_is_its_own():
    promise = "is_the_dense_matrix_batch_after_batch"

    def make(widths, ridge):
        return Diagonal(widths, ridge, Limit(widths))

    caught(lambda: check_covariance(make, only=promise), promise)
    check_covariance(make, matrix=lambda vectors, ridge: np.diag(ridge + np.square(vectors).sum(axis=0)), only=promise)


def test_every_promise_has_something_that_breaks_it():
    assert {*BROKEN_POLICIES} == {*POLICY_PROMISES} - {
        "make_gives_the_same_policy",  # a test of its own, as the next
        "arms_come_as_often_as_they_should",
    }
    assert {*BROKEN_SCHEDULES} == {*SCHEDULE_PROMISES} - {"the_budget_is_kept"}
    assert {*BROKEN_RULES} == {*RULE_PROMISES}
    assert {*BROKEN_LEARNERS} == {*LEARNER_PROMISES} - {"make_gives_the_same_learner"}
    assert {*BROKEN_FORMS} == {*COVARIANCE_PROMISES} - {"starts_as_the_prior"}
    assert sorted(testing.__all__) == testing.__all__


def test_a_broken_promise_shows_numbers_in_one_line_of_bounded_length():
    with pytest.raises(AssertionError, match=r"^x must be \[0\.0, 0\.0\]; got \[1\.0, 1\.0\]$"):
        ensure_equal(np.ones(2), np.zeros(2), "x")
    with pytest.raises(AssertionError) as broken:
        ensure_equal(np.ones(1000), np.zeros(1000), "x")
    assert len(str(broken.value)) < 450
