"""The paper's learner against a plain reading of Algorithms 1 and 2."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rarely import BatchNeuralUCB, OnDemand, Preset, Training
from rarely._core.policies.network_learner import NetworkLearner

PAPER = {"preset": "paper", "training": Training(steps=7)}


def learner_of(policy):
    return policy._state.current.learner


def played(policy, rounds, seed=0):
    rng = np.random.default_rng(seed)
    decision = policy.select(rng.normal(size=(rounds, 3, policy.dim)))
    policy.observe(decision, rng.normal(size=rounds))
    return policy


def plain_gradients(network, weights, x):
    """f and its gradient for two layers, one context at a time, by the chain rule written out."""
    first, last = weights
    unit = first @ x
    value = np.sqrt(network.hidden) * last[0] @ np.maximum(unit, 0)
    inner = np.sqrt(network.hidden) * np.outer(last[0] * (unit > 0), x)
    return value, (inner, np.sqrt(network.hidden) * np.maximum(unit, 0)[None])


@given(st.integers(1, 4), st.sampled_from([2, 6]), st.floats(0.01, 2.0), st.integers(1, 12), st.integers(0, 5))
def test_it_takes_the_plain_steps_from_the_initial_weights(dim, hidden, ridge, rounds, seed):
    policy = played(BatchNeuralUCB(dim, OnDemand(), hidden=hidden, ridge=ridge, seed=seed, **PAPER), rounds, seed)
    before = learner_of(policy)
    assert type(before) is NetworkLearner
    record = policy.update()
    after, m = learner_of(policy), hidden
    theta = [w.copy() for w in before.initial]
    x, rewards = policy.history.contexts, policy.history.rewards
    for _ in range(7):
        total = [m * ridge * (w - v) for w, v in zip(theta, before.initial, strict=True)]
        for context, reward in zip(x, rewards, strict=True):
            value, gradient = plain_gradients(before.network, theta, context)
            total = [t + (value - reward) * g for t, g in zip(total, gradient, strict=True)]
        theta = [w - record.step_size * t for w, t in zip(theta, total, strict=True)]
    if record.attempts == 1:  # else it began anew, with a smaller step
        for trained, plain in zip(after.weights, theta, strict=True):
            np.testing.assert_allclose(trained, plain, rtol=1e-6, atol=1e-9)


def test_means_are_those_of_the_network_and_features_its_gradient_over_the_root_of_m():
    policy = played(BatchNeuralUCB(3, OnDemand(), hidden=6, seed=1, **PAPER), 10)
    policy.update()
    learner, contexts = learner_of(policy), np.random.default_rng(2).normal(size=(4, 3))
    means, factors = learner.assess(contexts)
    for x, mean, feature in zip(contexts, means, factors.vectors(), strict=True):
        value, gradient = plain_gradients(learner.network, learner.weights, x)
        assert mean == pytest.approx(value)
        np.testing.assert_allclose(feature, np.concatenate([g.ravel() for g in gradient]) / np.sqrt(6))


def test_standardised_rewards_are_learned_in_their_own_units():
    def made(scale):
        preset = Preset.named("paper", standardise_rewards=True)
        policy = BatchNeuralUCB(2, OnDemand(), hidden=4, seed=0, preset=preset, training=10)
        rng = np.random.default_rng(0)
        decision = policy.select(rng.normal(size=(9, 2, 2)))
        policy.observe(decision, 100 + scale * rng.normal(size=9))
        policy.update()
        return learner_of(policy).assess(np.eye(2))[0] - 100

    np.testing.assert_allclose(made(10.0), 10 * made(1.0), rtol=1e-6)
