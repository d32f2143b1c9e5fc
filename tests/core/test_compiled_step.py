"""Rounds in one compiled call against the plain way, which is the oracle: see `policies/compiled_step.py`."""

import copy
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from effort import MANY
from interrupts import lines_of
from loops import SANITIZER, folder_of_the_run, in_kind, kinds
from rarely import (
    Affine,
    AtRounds,
    BatchNeuralUCB,
    DeterminantTrigger,
    EveryRound,
    FixedGrid,
    InvalidContexts,
    InvalidInput,
    LinTS,
    LinUCB,
    Mixture,
    OnDemand,
    Paced,
    Uniform,
    UnknownRound,
    Worth,
    WrongDecision,
    load,
)
from rarely._core import native
from rarely._core.choice.gaussian_argmax import _in_numpy, tables
from rarely._core.choice.rules import UpperConfidence, tolerances
from rarely._core.covariance.cholesky import GrowingCholesky
from rarely._core.native.linalg import address
from rarely._core.policies.replay import follow

ROUNDS = 48
CLOSE = {"rtol": 1e-10, "atol": 1e-10}
SCHEDULES = (
    FixedGrid(ROUNDS, 6),
    EveryRound(),
    OnDemand(),
    AtRounds((3, 30)),
    Paced(horizon=ROUNDS, batches=5),
    DeterminantTrigger(ROUNDS, 6, 3.0),
)
OF_THE_DEFAULT = tuple(AtRounds((3, 4, 5, 30)) if each == EveryRound() else each for each in SCHEDULES)
"""Its updates take longer than its rounds: three in a row are as good as one after every round."""
SETTINGS = (
    {},
    {"ties": "random"},
    {"within_batch": "frozen"},
    {"within_batch": "running", "exploration": Mixture(0.3)},
    {"exploration": Mixture(1.0), "intercept": False},
    {"context_scale": Affine(np.full(3, 0.5), np.full(3, 2.0)), "beta": 0.3},
)


@pytest.fixture(scope="module", params=kinds())
def loops(request, tmp_path_factory):
    """The compiled loops in every way in which they can be run here."""
    with in_kind(request.param, folder_of_the_run(tmp_path_factory)):
        yield


def world(seed, arms, *, kind):
    """Contexts and rewards: of any numbers, one-hot arms, or large and small columns."""
    rng = np.random.default_rng(seed)
    contexts = rng.normal(size=(ROUNDS, arms, 3))
    if kind == "one-hot":
        contexts = np.eye(3)[rng.integers(3, size=(ROUNDS, arms))]
    elif kind == "units":
        contexts *= np.array([1e4, 1.0, 1e-3])
    rewards = np.cos(contexts.sum(axis=2)) + 0.1 * rng.normal(size=(ROUNDS, arms))
    mask = rng.random((ROUNDS, arms)) < 0.6
    mask[np.arange(ROUNDS), rng.integers(arms, size=ROUNDS)] = True
    return contexts, rewards, mask


def life(
    policy, contexts, rewards, mask, *, block, late, until_due, saved_at=None, folder=None, plainly=False, worth=None
):
    """Play all rounds; `late` rewards come two calls after their decision. Return the decisions and the policy."""
    decisions = []
    while policy.round < ROUNDS:
        if plainly:
            policy._step = None
        here = slice(policy.round, policy.round + block) if block > 1 else policy.round
        if until_due and policy.due:
            policy.update(force=True)
        how = {"until_due": until_due} if block > 1 else {}
        if worth is not None:
            how["worth"] = Worth(*(values[here] for values in worth))
        decisions.append(policy.select(contexts[here], None if mask is None else mask[here], **how))
        ready = decisions[-1:] if not late else decisions[-3:-2]
        for decision in ready:
            values = rewards[decision.rounds - 1, decision.arms]
            policy.observe(decision, values if block > 1 else values[0])
        if policy.due and ready:
            policy.update()
        if saved_at is not None and policy.round >= saved_at:
            saved_at = None
            policy.save(folder / "policy.rarely")
            old, policy = policy, load(folder / "policy.rarely")
            decisions = [d for d in decisions if not late]
            assert policy.fingerprint() == old.fingerprint()
    return decisions, policy


def same(one, other):
    """The same arms, and the same numbers to 1e-10."""
    np.testing.assert_array_equal(one.history.arms, other.history.arms)
    np.testing.assert_array_equal(one.history.versions, other.history.versions)
    for name in ("means", "bonuses", "propensities"):
        np.testing.assert_allclose(getattr(one.history, name), getattr(other.history, name), **CLOSE)
    np.testing.assert_allclose(one.log_det, other.log_det, **CLOSE)
    assert one.due == other.due
    assert len(one.updates) == len(other.updates)
    for mine, theirs in zip(one.updates, other.updates, strict=True):
        assert (mine.round, mine.version, mine.due) == (theirs.round, theirs.version, theirs.due)
        for name in ("unexplored", "chosen", "least_known"):
            assert (getattr(mine, name) or 0.0) == pytest.approx(getattr(theirs, name) or 0.0, rel=1e-10, abs=1e-10)
    ours, plain = (p._state.arm_stats for p in (one, other))
    assert (ours.rounds, ours.arms, ours.disjoint) == (plain.rounds, plain.arms, plain.disjoint)
    assert one._state.random == other._state.random


@settings(max_examples=max(15, settings.default.max_examples))
@given(
    seed=st.integers(0, 10**6),
    arms=st.sampled_from([1, 2, 5, 9, 20, 37]),
    make=st.sampled_from([LinUCB, LinTS]),
    setting=st.sampled_from(SETTINGS),
    schedule=st.sampled_from(SCHEDULES),
    kind=st.sampled_from(["normal", "one-hot", "units"]),
    block=st.sampled_from([1, 4, 50]),
    masked=st.booleans(),
    late=st.booleans(),
    until_due=st.booleans(),
    priced=st.booleans(),
)
def test_decisions_are_those_of_the_plain_way(
    loops, seed, arms, make, setting, schedule, kind, block, masked, late, until_due, priced
):
    assume(not (until_due and isinstance(schedule, OnDemand)))
    contexts, rewards, mask = world(seed, arms, kind=kind)
    how = {"block": block, "late": late, "until_due": until_due and block > 1}
    lives, rng = [], np.random.default_rng(seed)
    how["worth"] = (rng.normal(size=rewards.shape), rng.random(rewards.shape)) if priced else None
    for plainly in (False, True):
        policy = make(3, schedule=schedule, seed=seed, **setting)
        lives.append(life(policy, contexts, rewards, mask if masked else None, plainly=plainly, **how))
    (ours, one), (theirs, other) = lives
    same(one, other)
    for mine, plain in zip(ours, theirs, strict=True):
        for name in ("means", "bonuses", "probabilities"):
            np.testing.assert_allclose(getattr(mine, name), getattr(plain, name), **CLOSE)
        np.testing.assert_array_equal(mine.source, plain.source)
        if plain.held_out is None:
            assert mine.held_out is None
        else:
            np.testing.assert_array_equal(mine.held_out, plain.held_out)


@given(
    seed=st.integers(0, 10**6),
    arms=st.sampled_from([1, 2, 4, 5, 20]),
    setting=st.sampled_from(({}, {"within_batch": "frozen"}, {"exploration": Mixture(0.3)}, {"ties": "random"})),
    schedule=st.sampled_from(OF_THE_DEFAULT),
    kind=st.sampled_from(["normal", "one-hot", "units"]),
    masked=st.booleans(),
    late=st.booleans(),
)
def test_the_defaults_decisions_are_those_of_the_plain_way(loops, seed, arms, setting, schedule, kind, masked, late):
    contexts, rewards, mask = world(seed, arms, kind=kind)
    how = {"block": 1, "late": late, "until_due": False}
    lives = []
    for plainly in (False, True):
        policy = BatchNeuralUCB(3, schedule=schedule, seed=seed, returning_arms=False, **setting)
        lives.append(life(policy, contexts, rewards, mask if masked else None, plainly=plainly, **how))
    (_, one), (_, other) = lives
    same(one, other)
    np.testing.assert_array_equal(one._learner.zeros, other._learner.zeros)


@given(seed=st.integers(0, 10**6), block=st.sampled_from([1, 7]), masked=st.booleans())
def test_a_uniform_choice_is_that_of_the_plain_way(loops, seed, block, masked):
    contexts, rewards, mask = world(seed, 5, kind="normal")
    how = {"block": block, "late": False, "until_due": False}
    (_, one), (_, other) = (
        life(Uniform(3, FixedGrid(ROUNDS, 4), seed=seed), contexts, rewards, mask if masked else None, plainly=p, **how)
        for p in (False, True)
    )
    same(one, other)


@pytest.mark.parametrize("plainly", [False, True])
@pytest.mark.parametrize("make", [LinUCB, LinTS])
def test_a_file_goes_on_where_another_machine_has_stopped(make, plainly, tmp_path):
    """The first part of a life the one way, the second the other, against one way for life."""
    contexts, rewards, _ = world(3, 6, kind="normal")
    how = {"block": 1, "late": False, "until_due": False}
    how_made = {"schedule": FixedGrid(ROUNDS, 4), "seed": 0}
    _, whole = life(make(3, **how_made), contexts, rewards, None, plainly=not plainly, **how)
    policy = make(3, **how_made)
    for t in range(30):
        if plainly:
            policy._step = None
        decision = policy.select(contexts[t])
        policy.observe(decision, rewards[t, decision.arm])
        if policy.due:
            policy.update()
    policy.save(tmp_path / "policy.rarely")
    _, policy = life(load(tmp_path / "policy.rarely"), contexts, rewards, None, plainly=not plainly, **how)
    same(policy, whole)


@pytest.mark.parametrize("make", [LinUCB, LinTS, Uniform])
def test_a_saved_policy_goes_on_bit_for_bit(make, tmp_path):
    contexts, rewards, _ = world(4, 6, kind="normal")
    how = {"block": 1, "late": False, "until_due": False}
    _, one = life(make(3, FixedGrid(ROUNDS, 4), seed=0), contexts, rewards, None, **how)
    policy = make(3, FixedGrid(ROUNDS, 4), seed=0)
    _, other = life(policy, contexts, rewards, None, saved_at=27, folder=tmp_path, **how)
    assert one.fingerprint() == other.fingerprint()


@pytest.mark.parametrize("setting", SETTINGS)
def test_rounds_one_by_one_and_in_a_block_are_the_same_bit_for_bit(setting):
    contexts, _, mask = world(5, 9, kind="normal")
    one, other = (LinUCB(3, OnDemand(), seed=0, **setting) for _ in range(2))
    together = one.select(contexts, mask)
    for t in range(ROUNDS):
        single = other.select(contexts[t], mask[t])
        assert np.array_equal(single.bonuses, together[t].bonuses, equal_nan=True)
        assert np.array_equal(single.probabilities, together[t].probabilities)
    assert one.fingerprint() == other.fingerprint()


def test_rounds_that_are_followed_leave_the_state_of_those_that_were_decided():
    contexts, _, mask = world(6, 9, kind="normal")
    one, other = (LinUCB(3, OnDemand(), exploration=Mixture(0.2), seed=0) for _ in range(2))
    other._life = one._life
    decision = one.select(contexts, mask)
    follow(other, contexts, mask, decision.arm, decision.propensity)
    assert one.fingerprint() == other.fingerprint()


def test_the_factor_of_many_rounds_keeps_its_digits():
    """Of a running factor that is never made anew, against Z factored at the end."""
    rng = np.random.default_rng(0)
    policy = LinUCB(8, OnDemand(), seed=0)
    policy.select(rng.random((30_000, 3, 8)))
    factor, log_det = GrowingCholesky.of(policy._covariance._matrix)
    np.testing.assert_allclose(policy.log_det, log_det, rtol=1e-11)
    x = rng.random((20, 9))
    variances = np.square(factor.solve(x.T, 9)).sum(axis=0)
    running = np.square(policy._covariance._running.solve(x.T, 9)).sum(axis=0)
    np.testing.assert_allclose(running, variances, rtol=1e-10)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (np.nan, "contexts must be finite; arm 1 of round 2 of the call has nan in column 0"),
        (np.inf, "contexts must be finite; arm 1 of round 2 of the call has inf in column 0"),
        (1e200, "squared norms to be finite"),
    ],
)
def test_a_number_that_is_refused_changes_nothing(wrong, message):
    contexts, _, _ = world(7, 4, kind="normal")
    policy = LinUCB(3, OnDemand(), seed=0)
    policy.select(contexts[:5])
    before = policy.fingerprint()
    bad = contexts[5:20].copy()
    bad[2, 1, 0] = wrong
    with pytest.raises(InvalidContexts, match=message):
        policy.select(bad)
    assert policy.fingerprint() == before
    twin = LinUCB(3, OnDemand(), seed=0)
    twin.select(contexts[:5])
    assert np.array_equal(policy.select(contexts[5:]).bonuses, twin.select(contexts[5:]).bonuses)


@pytest.mark.parametrize("plainly", [False, True])
@pytest.mark.parametrize(
    ("make", "beta", "contexts"),
    [
        (LinUCB, 1e308, [[1.0], [2.0], [3.0]]),
        (LinTS, 1e308, [[1.0], [2.0], [3.0]]),
        (LinTS, 5e307, [[1.0]]),
        (LinTS, 5e307, [[3.0], [0.0]]),
    ],
)
def test_bonuses_that_overflow_are_refused(make, beta, contexts, plainly):
    policy = make(1, OnDemand(), intercept=False, beta=beta, seed=0)
    if plainly:
        policy._step = None
    before = policy.fingerprint()
    for call in (policy.select, policy.probabilities):
        with pytest.raises(InvalidInput, match="Use a smaller beta"):
            call(contexts)
    assert policy.fingerprint() == before


@pytest.mark.parametrize("plainly", [False, True])
def test_a_mean_and_a_bonus_whose_sum_overflows_are_refused(plainly):
    policy = LinUCB(1, OnDemand(), intercept=False, beta=1e308, ties="random", seed=0)
    policy.observe(policy.select([[1.0], [0.5]]), 1.7e308)
    policy.update()
    if plainly:
        policy._step = None
    with pytest.raises(InvalidInput, match="Use a smaller beta"):
        policy.select([[1.2], [1.0]])


def test_an_interrupt_at_any_line_leaves_no_trace():
    """The room that calls share has then been laid out for other rounds, or has changed places with the next one."""
    contexts, _, _ = world(9, 4, kind="normal")

    def begun():
        policy = LinTS(3, OnDemand(), within_batch="running", seed=0)
        policy.select(contexts[:2])
        return policy

    plain = begun()
    wanted = plain.select(contexts[2:4])
    lines = lines_of(lambda: begun().select(contexts[4:8]))
    for stop in sorted({*range(1, lines + 1, 1 if MANY else 3), *range(lines - 20, lines + 1)}):
        policy = begun()
        lines_of(partial(policy.select, contexts[4:8]), stop)
        if policy.round == 2:
            assert np.array_equal(policy.select(contexts[2:4]).bonuses, wanted.bonuses)
            assert policy.log_det == plain.log_det


def test_a_round_without_an_arm_is_refused():
    policy = LinUCB(3, OnDemand(), seed=0)
    with pytest.raises(InvalidContexts, match="every round must have at least one arm; round 1 has none"):
        policy.select(np.ones((2, 2, 3)), np.array([[True, True], [False, False]]))


def test_contexts_of_any_kind_and_order_are_the_same():
    numbers = np.random.default_rng(0).integers(-3, 4, size=(6, 5, 3))
    first = LinUCB(3, OnDemand(), seed=0).select(numbers.astype(float)).bonuses
    for other in (numbers, numbers.astype(np.float32), np.asfortranarray(numbers.astype(float)), numbers.tolist()):
        assert np.array_equal(LinUCB(3, OnDemand(), seed=0).select(other).bonuses, first)


def test_a_minus_zero_is_a_zero():
    policy = LinUCB(2, OnDemand(), seed=0)
    policy.select(np.array([[-0.0, 1.0]]))
    assert not np.signbit(policy.history.contexts).any()


def test_a_rule_of_ones_own_goes_the_plain_way():
    class Cautious(UpperConfidence):
        """The arm with the highest mean − bonus."""

        def probabilities(self, scores):
            return super().probabilities(type(scores)(scores.means, -scores.bonuses, scores.tolerance))

    policy = LinUCB(2, OnDemand(), exploration=Cautious(), seed=0)
    assert policy.select(np.array([[1.0, 0.0], [5.0, 0.0]])).arm == 0


@given(order=st.permutations(range(12)), twice=st.sets(st.integers(0, 11)), logged=st.booleans(), loaded=st.booleans())
def test_a_usual_reward_is_recorded_as_any_other(order, twice, logged, loaded):
    """In any order, some of them given twice, after a log or in a later life."""
    contexts, rewards, _ = world(8, 4, kind="normal")
    start = LinUCB.from_log(contexts[0], rewards[0], seed=0) if logged else LinUCB(3, seed=0)
    if loaded:
        start.select(contexts[:2])
        start = copy.copy(start)
    policy, plain = start, copy.copy(start)
    plain._life = policy._life
    decisions = [(policy.select(contexts[t]), plain.select(contexts[t]))[0] for t in range(12)]
    for t in (*order, *twice):
        reward = float(rewards[t, 0])
        first = policy.history.with_first_reward(decisions[t], reward)
        assert (first is None) == (not np.isnan(policy.history.rewards[decisions[t].round - 1 + policy.history.logged]))
        policy.observe(decisions[t], reward)
        plain.observe(decisions[t], np.array([reward]))
    assert policy.fingerprint() == plain.fingerprint()


@pytest.mark.parametrize(
    "change", [{"arm": 9}, {"version": 5}, {"round": 99}, {"round": 0}, {"means": np.full(4, 7.0)}, {"life": "0" * 16}]
)
def test_a_decision_with_another_record_has_no_usual_reward(change):
    policy = LinUCB(3, seed=0)
    decision = replace(policy.select(world(9, 4, kind="normal")[0][0]), **change)
    assert policy.history.with_first_reward(decision, 1.0) is None
    with pytest.raises((UnknownRound, WrongDecision)):
        policy.observe(decision, 1.0)


def highest_in_c(means, deviations, tolerance, lowest):
    """The probabilities of one round."""
    values, out = tables(), np.empty(len(means))
    places = address(means), address(deviations)
    assert not native.library().rarely_highest(len(means), *places, tolerance, lowest, address(values), address(out))
    return out


@given(
    count=st.integers(1, 60),
    spread=st.sampled_from([0.0, 1e-3, 1.0, 30.0]),
    orders=st.sampled_from([0, 1, 6]),
    still=st.sampled_from([0.0, 0.3, 1.0]),
    lowest=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_the_highest_of_gaussians_is_numpys(loops, count, spread, orders, still, lowest, seed):
    rng = np.random.default_rng(seed)
    means = spread * rng.normal(size=count)
    deviations = 10.0 ** rng.uniform(-orders, 0, size=count) * (rng.random(count) >= still)
    tolerance = tolerances(means[None], deviations[None], 0.0)
    ours = highest_in_c(means, deviations, float(tolerance[0]), lowest)
    theirs = _in_numpy(means, deviations, float(tolerance[0]), lowest)
    np.testing.assert_allclose(ours, theirs, atol=2e-12)
    assert ours.sum() == pytest.approx(1, abs=1e-12)


def calls(work):
    """How many functions of Python and C a call enters."""
    seen = []
    sys.setprofile(lambda frame, event, argument: seen.append(event))
    try:
        work()
    finally:
        sys.setprofile(None)
    return sum(event in ("call", "c_call") for event in seen) - 1


counted = pytest.mark.skipif(
    bool(SANITIZER) or not native.available(), reason="the budget is that of the compiled step, called here"
)


@counted
@pytest.mark.parametrize(("make", "most"), [(Uniform, 48), (LinUCB, 46), (LinTS, 52)])
def test_a_decision_keeps_to_its_budget_of_calls(make, most):
    """Counted, not timed. It was 379 calls before there was a step."""
    contexts, rewards, _ = world(0, 4, kind="normal")
    policy = make(3, OnDemand(), seed=0)
    for t in range(30):
        policy.observe(policy.select(contexts[t]), rewards[t, 0])
    assert calls(lambda: policy.select(contexts[30])) <= most
    assert calls(lambda: policy.select(contexts[31:])) <= 210  # rounds of a block make no call each


@counted
def test_a_decision_of_the_default_keeps_to_its_budget_of_calls():
    """The least of some: arrays grow, and a form is weighed, now and then. It was 890 calls before there was a step."""
    contexts, rewards, _ = world(0, 4, kind="normal")
    policy = BatchNeuralUCB(3, OnDemand(), seed=0)
    for t in range(30):
        policy.observe(policy.select(contexts[t]), rewards[t, 0])
    policy.update()
    assert min(calls(partial(policy.select, x)) for x in contexts[30:40]) <= 225


@counted
def test_a_reward_and_an_update_after_it_keep_to_their_budget_of_calls():
    """Medians: now and then arrays grow, and an update looks for outliers and alarms, too."""
    contexts, rewards, _ = world(0, 4, kind="normal")
    policy, told, updated = LinUCB(3, EveryRound(), seed=0), [], []
    for t in range(30):
        decision = policy.select(contexts[t])
        told.append(calls(partial(policy.observe, decision, rewards[t, 0])))
        updated.append(calls(policy.update))
    assert sorted(told)[15] <= 25
    assert sorted(updated)[15] <= 110


@pytest.mark.parametrize("kind", [LinUCB, LinTS, Uniform])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_seen_wherever_they_are(kind, bad):
    """A compiler may take x·0 for 0, so the step does not ask that way."""
    for arms, dim in ((1, 1), (3, 2), (17, 5), (40, 9)):
        for place in range(0, arms * dim, max(1, arms * dim // 7)):
            policy, contexts = kind(dim, schedule=OnDemand(), seed=0), np.ones((2, arms, dim))
            contexts[1].flat[place] = bad
            with pytest.raises(InvalidContexts, match="must be finite"):
                policy.select(contexts)
            assert policy.round == 0
