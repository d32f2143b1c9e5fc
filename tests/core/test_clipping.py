"""Rewards with heavy tails, clipped for training."""

import numpy as np
import pytest

import rarely
from rarely import BatchNeuralUCB, FixedGrid, InvalidInput, Training


def learned(rewards, clip=None):
    policy = BatchNeuralUCB(2, FixedGrid(40, 2), hidden=8, seed=0, training=Training(steps=20, clip=clip))
    contexts = np.random.default_rng(0).normal(size=(40, 2, 2))
    policy.observe(policy.select(contexts[:20]), rewards)
    policy.update()
    return policy


def test_training_takes_far_rewards_as_equal_to_the_quantiles():
    rewards = np.random.default_rng(1).normal(size=20)
    rewards[[3, 7]] = 50.0, -40.0
    clipped, plain = learned(rewards, (0.1, 0.9)), learned(np.clip(rewards, *np.quantile(rewards, (0.1, 0.9))))
    for one, other in zip(clipped.weights, plain.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    assert (clipped.updates[-1].clipped, plain.updates[-1].clipped) == (4, None)
    np.testing.assert_array_equal(clipped.history.rewards, rewards)


def test_a_clipped_policy_is_saved_and_tunes_itself(tmp_path):
    policy = BatchNeuralUCB(2, FixedGrid(40, 2), hidden=8, seed=0, training=Training(clip=(0.02, 0.98)))
    assert policy.tunes
    policy.save(tmp_path / "policy.rarely")
    assert rarely.load(tmp_path / "policy.rarely").settings() == policy.settings()


@pytest.mark.parametrize("clip", [(0.9, 0.1), (0.1,), 0.1, (-0.1, 0.5), (0.1, 1.1), ("a", 1), (np.nan, 1)])
def test_quantiles_that_make_no_sense_are_refused(clip):
    with pytest.raises(InvalidInput, match="clip must be two quantiles"):
        Training(clip=clip)
