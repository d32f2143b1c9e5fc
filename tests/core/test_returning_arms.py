"""Arms that return are judged by rewards of their own, and no other arm is touched."""

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rarely
from effort import MANY
from rarely import BatchNeuralUCB, FixedGrid, Mixture, NeuralTS, OnDemand, Paced
from rarely._core.policies.returning_arms import (
    BOUND_WIDENING,
    OTHER_ARMS,
    OWN_REWARDS,
    TRIES,
    DisjointArms,
    ReturningArms,
)
from rarely.extend.provisional import VersionFunction


def played(policy, stream, rewards, rounds=None):
    """The arms of a life: rewards[t, k] of each choice, an update whenever it is due."""
    arms = []
    while policy.round < (rounds or len(stream)):
        decision = policy.select(stream[policy.round], until_due=False)
        policy.observe(decision, rewards[policy.round - 1, decision.arm])
        arms.append(decision.arm)
        if policy.due and policy.versions_left:
            policy.update()
    return arms


def plain(arms, rounds):
    return np.broadcast_to(np.eye(arms), (rounds, arms, arms))


@pytest.mark.parametrize("seed", range(6 if MANY else 3))
def test_one_bad_draw_is_not_the_end_of_a_risky_arm(seed):
    """0.4 for sure against 1 with probability 0.6: an arm without noise says nothing about the noise of another."""
    rng = np.random.default_rng([seed, 30])
    risky = (rng.random(300) < 0.6).astype(float)
    risky[:3] = 0.0
    rewards = np.column_stack((np.full(300, 0.4), risky))
    arms = played(BatchNeuralUCB(2, Paced(300, 10), forgetting=None, hidden=16, seed=seed), plain(2, 300), rewards)
    assert np.mean(arms[150:]) > 0.8


def test_contexts_that_do_not_return_are_never_looked_up():
    rng = np.random.default_rng(0)
    policy = BatchNeuralUCB(3, FixedGrid(40, 4), hidden=8, seed=0)
    policy.select(rng.normal(size=(4, 3)))
    assert policy._state.current.override is not None
    policy.select(rng.normal(size=(4, 3)))
    assert policy._state.current.override is None


@pytest.mark.parametrize("kind", [NeuralTS, lambda *a, **k: BatchNeuralUCB(*a, beta=0.5, **k)])
def test_a_given_radius_and_other_rules_are_left_alone(kind):
    assert kind(3, OnDemand(), hidden=8, seed=0)._state.current.override is None


@given(
    arms=st.integers(2, 6),
    sizes=st.lists(st.integers(1, 8), min_size=1, max_size=5),
    shared=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_sums_indices_files_and_blocks(arms, sizes, shared, seed, tmp_path_factory):
    rng = np.random.default_rng(seed)
    contexts = rng.normal(size=(arms, 3)) if shared else np.eye(arms)
    policy = BatchNeuralUCB(contexts.shape[1], OnDemand(horizon=200), hidden=8, seed=0)
    chosen, paid = [], []
    for size in sizes:
        singly, block = copy.deepcopy(policy), np.broadcast_to(contexts, (size, *contexts.shape))
        decision = policy.select(block)
        assert [int(singly.select(contexts).arm) for _ in range(size)] == decision.arm.tolist()
        rewards = rng.normal(size=size)
        policy.observe(decision, rewards)
        policy.update()
        chosen += decision.arm.tolist()
        paid += rewards.tolist()
    own = policy._state.current.override
    places = [own.places[row.tobytes()] for row in contexts]
    for arm, place in enumerate(places):
        mine = np.array(paid)[np.array(chosen) == arm]
        assert own.chosen[place] == own.count[place] == len(mine)
        if len(mine):
            np.testing.assert_allclose(
                [own.mean[place], own.squares[place]], [mine.mean(), mine.var() * len(mine)], atol=1e-12
            )
    if own.decides:
        np.testing.assert_allclose(
            policy.score(contexts).means, np.where(own.count > 0, own.mean, policy.score(contexts).means)[places]
        )
    path = tmp_path_factory.mktemp("own") / "policy.rarely"
    policy.save(path)
    assert rarely.load(path).fingerprint() == policy.fingerprint()
    assert rarely.load(path).select(contexts).arm == policy.select(contexts).arm


def test_the_index_is_the_one_that_is_written_down():
    own = ReturningArms.start(2)
    for arm in (0, 1, 1, 1):
        own = own.after(np.eye(2), arm)
    own = own.after_update(
        np.eye(2)[[0, 1, 1]], np.array([2.0, 0.0, 1.0]), np.zeros(3), spread=0.8, horizon=100, disjoint=True
    )
    means, bonuses = own.override_scores(np.eye(2), np.zeros(2), np.zeros(2), explores=True)
    other = (0.5 + OTHER_ARMS * 0.64) / (1 + OTHER_ARMS)
    variances = np.array([OWN_REWARDS * other / OWN_REWARDS, (0.5 + OWN_REWARDS * 0.64) / (1 + OWN_REWARDS)])
    assert means.tolist() == [2.0, 0.5]
    widening = 1 + BOUND_WIDENING / np.array([2, 4])
    expected = np.sqrt(variances) * widening * np.sqrt(np.log([50, 100 / 6]) / [1, 3])
    np.testing.assert_allclose(bonuses, expected)
    assert own.override_scores(np.eye(2), np.zeros(2), np.ones(2), explores=False)[1].tolist() == [0.0, 0.0]


def test_an_arm_without_rewards_is_tried():
    own = ReturningArms.start(3).after(np.eye(3), 0)
    own = own.after_update(np.eye(3)[:1], np.array([5.0]), np.zeros(1), spread=1.0, horizon=100, disjoint=True)
    means, bonuses = own.override_scores(np.eye(3), np.zeros(3), np.full(3, 0.1), explores=True)
    assert np.argmax(means + bonuses) == 1


def of_single_arms(seed, arms=8):
    """A policy whose arms have returned, and the contexts of the arms, two of which it has never seen."""
    rng, contexts, paid = np.random.default_rng(seed), np.eye(arms), np.linspace(0.9, 0.0, arms)
    policy = BatchNeuralUCB(arms, OnDemand(), hidden=8, seed=seed, exploration=Mixture(0.1))
    for _ in range(3):
        for size in (arms - 2, *[3] * 15):  # all of them return from the second round on
            some = rng.choice(arms - 2, size=size, replace=False)
            decision = policy.select([contexts[some]])
            policy.observe(decision, paid[some[decision.arm]] + 0.05 * rng.normal(size=1))
        policy.update()
    assert policy._state.current.override.decides
    return policy, contexts


@pytest.mark.parametrize("seed", [0, 1])
def test_each_round_of_a_block_is_judged_by_itself(seed):
    """An untried arm is compared with the best of its own round, and not with the best of the block."""
    policy, contexts = of_single_arms(seed)
    rng = np.random.default_rng(seed)
    block = [contexts[rng.choice(8, size=size, replace=False)] for size in rng.integers(2, 4, size=30)]
    scores, probabilities = policy.score(block), policy.probabilities(block)
    for i, arms in enumerate(block):
        alone = policy.score([arms])
        np.testing.assert_array_equal(scores.means[i, : len(arms)], alone.means[0])
        np.testing.assert_array_equal(scores.bonuses[i, : len(arms)], alone.bonuses[0])
        drawn_from = copy.deepcopy(policy).select([arms]).probabilities[0]
        np.testing.assert_array_equal(probabilities[i, : len(arms)], drawn_from)
    version, even = VersionFunction.of(policy), np.array([arms[:2] for arms in block])
    draws = rng.random(len(even))
    whole = version.decide(even, draws, version.offered())
    singly = [version.decide(even[[i]], draws[[i]], version.offered()) for i in range(len(even))]
    np.testing.assert_array_equal(whole.arms, np.concatenate([each.arms for each in singly]))
    np.testing.assert_array_equal(whole.probabilities, np.concatenate([each.probabilities for each in singly]))


def test_the_sign_of_zero_makes_no_other_arm():
    lives = []
    for sign in (1.0, -1.0):
        contexts, policy, paid = np.eye(4), BatchNeuralUCB(4, OnDemand(), hidden=8, seed=1), [0.1, 0.3, 0.5, 0.2]
        rng, arms = np.random.default_rng(0), []
        for round in range(30):
            other = np.where(contexts == 0, sign * 0.0, contexts) if round % 2 else contexts
            decision = policy.select([other] if round % 3 else other)
            policy.observe(decision, np.take(paid, decision.arm) + 0.2 * rng.normal())
            arms.append(int(np.squeeze(decision.arm)))
            if round % 10 == 9:
                policy.update()
        lives.append((arms, policy.fingerprint(), policy._state.current.override is None))
    assert lives[0] == lives[1]
    assert not lives[0][2]
    logged = BatchNeuralUCB.from_log([[-0.0, 1.0]], [1.0], schedule=OnDemand(), seed=0)
    assert not np.signbit(logged.history.contexts).any()


def in_blocks(row, arms):
    return np.kron(np.eye(arms), row)


@given(seed=st.integers(0, 10**6), arms=st.integers(2, 5), rounds=st.integers(1, 12))
def test_columns_that_meet_belong_to_one_arm(seed, arms, rounds):
    """Rows of zeros and ones in blocks: columns are put together as they meet, and tries are never lost."""
    rng, own, tried = np.random.default_rng(seed), DisjointArms.start(3 * arms), np.zeros(arms)
    for _ in range(rounds):
        row = rng.integers(2, size=3).astype(float)
        row[rng.integers(3)] = 1.0
        arm = int(rng.integers(arms))
        own = own.after(in_blocks(row, arms), arm)
        tried[arm] += 1
    assert own.tried.sum() == rounds
    np.testing.assert_array_equal(own.tried.reshape(arms, 3).sum(axis=1), tried)
    assert own.after(np.ones((arms, 3 * arms)), 0) is None


def test_each_arm_without_a_common_column_is_tried_now_and_then(tmp_path):
    """A prize for one arm in a part of its contexts is found, though the first tries of that arm paid nothing."""
    rng = np.random.default_rng(5)
    policy, counts = BatchNeuralUCB(6, Paced(200, 10), seed=0), np.zeros(3)
    for _ in range(200):
        row = rng.normal(size=2)
        decision = policy.select(in_blocks(row, 3))
        counts[decision.arm] += 1
        policy.observe(decision, [1.0, 0.5, 0.2][decision.arm] + 0.01 * rng.normal())
        if policy.due and policy.versions_left > 1:
            policy.update()
    assert counts.min() >= TRIES * np.log2(190) - 1
    assert counts[0] > 150
    policy.save(tmp_path / "policy.rarely")
    again = rarely.load(tmp_path / "policy.rarely")
    assert again.fingerprint() == policy.fingerprint()
    assert isinstance(again._state.current.override, DisjointArms)
