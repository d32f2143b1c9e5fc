"""Plain arms are one-hot, and pay what they say."""

import json

import numpy as np
import pytest

from rarely.worlds import PLAIN_ARMS
from rarely.worlds.gallery import BernoulliArms, SafeOrRisky, StudentArms, UnequalArms

COUNT = 4000


@pytest.mark.parametrize("name", PLAIN_ARMS)
def test_every_world_has_one_hot_arms_and_derives_from_seed_and_round_alone(name):
    world = PLAIN_ARMS[name]
    whole, part = world.rounds(seed=3, count=40), world.rounds(seed=3, count=10, first=21)
    np.testing.assert_array_equal(whole.contexts, np.broadcast_to(np.eye(world.arms), (40, world.arms, world.arms)))
    np.testing.assert_array_equal(whole.means, np.broadcast_to(whole.means[0], whole.means.shape))
    np.testing.assert_array_equal(whole.rewards[20:30], part.rewards)
    assert not np.array_equal(whole.rewards, world.rounds(seed=4, count=40).rewards)
    assert whole.means[0].max() > whole.means[0].mean()
    assert json.loads(json.dumps(world.describe()))["arms"] == world.arms


@pytest.mark.parametrize("name", [name for name in PLAIN_ARMS if name != "student-2"])
def test_rewards_have_the_means_that_they_are_judged_by(name):
    """Within five standard errors; with two degrees of freedom there is none."""
    rounds = PLAIN_ARMS[name].rounds(seed=1, count=COUNT)
    error = rounds.rewards.std(axis=0) / np.sqrt(COUNT)
    assert (np.abs(rounds.rewards.mean(axis=0) - rounds.means[0]) <= 5 * error + 1e-12).all()


def test_the_median_of_heavy_tails_is_the_mean_and_some_rewards_are_far():
    rounds = StudentArms().rounds(seed=0, count=COUNT)
    np.testing.assert_allclose(np.median(rounds.rewards, axis=0), rounds.means[0], atol=0.1)
    assert np.abs(rounds.rewards - rounds.means).max() > 20


def test_coins_pay_exactly_zero_or_one():
    rounds = BernoulliArms(10, best=0.3, rest=0.05).rounds(seed=0, count=200)
    assert set(np.unique(rounds.rewards)) == {0.0, 1.0}
    assert sorted(rounds.means[0]) == [0.05] * 9 + [0.3]
    assert set(np.unique(BernoulliArms(20).rounds(seed=0, count=200).rewards)) == {0.0, 1.0}


def test_the_safe_arm_never_varies_and_either_arm_may_be_it():
    safe = []
    for seed in range(8):
        rounds = SafeOrRisky().rounds(seed=seed, count=30)
        safe.append(int(rounds.means[0].argmin()))
        assert (rounds.rewards[:, safe[-1]] == 0.4).all()
        assert set(rounds.rewards[:, 1 - safe[-1]].round(12)) == {0.0, 1.0}
    assert set(safe) == {0, 1}


def test_each_arm_of_unequal_noise_has_its_own():
    rounds = UnequalArms().rounds(seed=0, count=500)
    deviations = rounds.rewards.std(axis=0)
    assert deviations.min() > 0.04
    assert deviations.max() < 2.3
    assert deviations.max() > 4 * deviations.min()
    assert abs(np.corrcoef((rounds.rewards - rounds.means).T)[0, 1]) < 0.2


def test_the_small_gap_is_the_worst_for_two_thousand_rounds():
    world = PLAIN_ARMS["small-gap"]
    assert world.gap == pytest.approx(2 * world.noise * np.sqrt(world.arms / 2000))
