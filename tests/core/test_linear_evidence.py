"""LinUCB and LinTS that learn λ and the noise, against dense algebra."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

import rarely
from rarely import (
    Affine,
    EveryRound,
    FixedGrid,
    InvalidInput,
    Limits,
    LinTS,
    LinUCB,
    RejectedWarning,
    SparseRows,
    Window,
)
from rarely._core.policies.linear import RIDGES


def played(policy, rounds=120, *, dim=4, unit=1.0, offset=0.0, noise=0.3, seed=0, arms=3):
    rng = np.random.default_rng(seed)
    slope, chosen = rng.normal(size=dim) / np.sqrt(dim), []
    for _ in range(rounds):
        contexts = rng.normal(size=(arms, dim))
        decision = policy.select(contexts)
        policy.observe(decision, offset + unit * (contexts[decision.arm] @ slope + noise * rng.normal()))
        chosen.append(decision.arm)
        if policy.due:
            policy.update()
    return chosen


def test_lambda_and_noise_are_those_of_the_likelihood():
    policy = LinUCB(4, FixedGrid(121, 2), ridge="learned", intercept=False, seed=0)
    rng = np.random.default_rng(0)
    x, slope = rng.normal(size=(120, 3, 4)), rng.normal(size=4)
    decision = policy.select(x)
    chosen = x[np.arange(120), decision.arm]
    rewards = 5 * (chosen @ slope + 0.5 * rng.normal(size=120))
    policy.observe(decision, rewards)
    policy.update()
    gram = chosen @ chosen.T / np.square(chosen).sum(axis=1).mean()
    target = rewards / np.sqrt(np.square(rewards).mean())

    def fitted(ridge):
        matrix = gram + ridge * np.eye(120)
        variance = (target @ np.linalg.solve(matrix, target) + 1) / 121
        return 60 * np.log(variance) + np.linalg.slogdet(matrix)[1] / 2, variance

    lost = np.array([fitted(ridge)[0] for ridge in RIDGES])
    share = np.exp(lost.min() - lost)
    ridge = np.exp(share @ np.log(RIDGES) / share.sum())
    learner = policy._learner
    assert learner.ridge == pytest.approx(ridge * np.square(chosen).sum(axis=1).mean(), rel=1e-6)
    deviation = np.sqrt(np.square(rewards).mean() * ridge * fitted(ridge)[1])
    assert learner.deviation == pytest.approx(deviation, rel=1e-6)
    assert_allclose(
        policy.coefficients,
        np.linalg.solve(chosen.T @ chosen + learner.ridge * np.eye(4), chosen.T @ rewards),
        rtol=1e-9,
    )


@pytest.mark.parametrize("kind", [LinUCB, LinTS])
def test_units_of_rewards_change_no_decision(kind):
    usual = played(kind(4, ridge="learned", seed=0))
    assert played(kind(4, ridge="learned", seed=0), unit=1024.0) == usual
    assert played(kind(4, ridge="learned", seed=0), unit=2.0**-20) == usual


def test_a_common_part_of_rewards_changes_next_to_nothing():
    near, far = (LinUCB(4, ridge="learned", seed=0) for _ in range(2))
    played(near)
    played(far, offset=1e6)
    assert_allclose(far.coefficients[:-1], near.coefficients[:-1], atol=0.2)
    assert far.coefficients[-1] == pytest.approx(1e6, abs=1)


def test_contexts_in_large_units_leave_the_constant_its_rewards():
    """λ is in the units of contexts, here 10¹⁸, beside which eight rewards would not be seen in one sum."""
    policy = LinUCB(1, ridge="learned", seed=0)
    contexts = 1e9 + 1e8 * np.random.default_rng(0).normal(size=(8, 3, 1))
    for here in (slice(0, 2), slice(2, 8)):
        decision = policy.select(contexts[here])
        policy.observe(decision, np.full(len(decision), 2.5))
        assert policy.update().accepted
    np.testing.assert_allclose(policy.score(contexts).means, 2.5)


def test_bonuses_are_those_of_the_explored_ridge():
    policy = LinUCB(4, EveryRound(), ridge="learned", intercept=False, seed=0)
    rng, rows = np.random.default_rng(3), []
    for _ in range(60):
        contexts = rng.normal(size=(3, 4))
        decision = policy.select(contexts)
        rows.append(contexts[decision.arm])
        policy.observe(decision, contexts[decision.arm, 0] + rng.normal())
        policy.update()
    contexts, x, learner = rng.normal(size=(5, 4)), np.array(rows), policy._learner
    matrix = learner.explored * np.eye(4) + x.T @ x
    variances = np.einsum("ij,ji->i", contexts, np.linalg.solve(matrix, contexts.T))
    assert_allclose(policy.score(contexts).bonuses, learner.deviation * np.sqrt(variances), rtol=1e-8)


def test_noise_and_bonuses_are_those_of_a_window():
    policy = LinUCB(3, FixedGrid(400, 8), ridge="learned", intercept=False, forgetting=Window(100), seed=0)
    rng = np.random.default_rng(6)
    contexts = rng.normal(size=(400, 3, 3))
    for start in range(0, 400, 50):
        decision = policy.select(contexts[start : start + 50])
        x = policy.history.contexts[-50:]
        policy.observe(decision, x[:, 0] + (5.0 if start < 200 else 0.1) * rng.normal(size=50))
        if policy.versions_left:
            policy.update(force=True)
    learner, x = policy._learner, policy.history.contexts[-150:]  # those of the window, and since
    assert 0.07 < learner.deviation < 0.13
    new = rng.normal(size=(5, 3))
    variances = np.einsum("ij,ji->i", new, np.linalg.solve(learner.explored * np.eye(3) + x.T @ x, new.T))
    assert_allclose(policy.score(new).bonuses, learner.deviation * np.sqrt(variances), rtol=1e-8)


def test_beta_counts_standard_deviations_of_the_noise():
    one, two = LinUCB(4, ridge="learned", seed=0), LinUCB(4, ridge="learned", beta=2.0, seed=0)
    contexts = np.random.default_rng(4).normal(size=(3, 4))
    assert_allclose(two.score(contexts).bonuses, 2 * one.score(contexts).bonuses)


def test_sparse_contexts_take_a_number():
    with pytest.raises(InvalidInput, match="dense"):
        LinUCB(6, ridge="learned", context_scale=SparseRows.of(100, 3))


def test_rewards_that_overflow_are_refused():
    policy = LinUCB(2, ridge="learned", intercept=False)
    policy.observe(policy.select(np.eye(2)), 1e200)
    with pytest.warns(RejectedWarning):
        policy.update()


def test_once_settled_rows_may_be_dropped_and_change_nothing():
    whole, small = (LinUCB(4, ridge="learned", seed=0, limits=limits) for limits in (None, Limits(history=8000)))
    first = played(whole, 300)
    assert played(small, 300) == first
    assert_allclose(small.coefficients, whole.coefficients, rtol=1e-12)


def test_more_columns_than_rewards_give_the_same_estimate(monkeypatch):
    settings = {"ridge": "learned", "context_scale": Affine.identity(40)}
    whole = LinUCB(40, **settings)
    first = played(whole, 30, dim=40)
    monkeypatch.setattr("rarely._core.policies.linear.WIDE", 8)
    wide = LinUCB(40, **settings)
    assert played(wide, 30, dim=40) == first
    assert_allclose(wide.coefficients, whole.coefficients, atol=1e-8)
    assert wide._learner.basis is not None


@pytest.mark.parametrize("settings", [{}, {"intercept": False}, {"forgetting": Window(30)}])
def test_a_saved_policy_goes_on_bit_for_bit(tmp_path, settings):
    policy = LinUCB(4, ridge="learned", seed=1, **settings)
    played(policy, 45)
    policy.save(tmp_path / "policy")
    assert played(rarely.load(tmp_path / "policy"), 30, seed=2) == played(policy, 30, seed=2)


def test_sums_of_rewards_from_elsewhere_are_those_of_its_own():
    policy = LinUCB(4, FixedGrid(1000, 10), ridge="learned", seed=0)
    rng = np.random.default_rng(5)
    contexts, rewards = rng.normal(size=(20, 4)), 7 + rng.normal(size=20)
    start = policy._learner
    own = start.with_rewards(start.scale(contexts), rewards, 20.0, wide=False)
    task = start.reward_task(policy._state.history, 20)
    other = replace(start, origin=own.origin)
    other = other.with_reward_sums(task.sums(contexts, rewards), policy._state.history, 20)
    for name in ("matrix", "moment", "squares", "lengths", "count"):
        assert_allclose(getattr(other, name), getattr(own, name), atol=1e-9)
