"""The adversarial worlds are what they say they are."""

import json

import numpy as np
import pytest

from effort import MANY
from rarely import BatchNeuralUCB, FixedGrid, Paced
from rarely.worlds import EVERYDAY, find_world
from rarely.worlds.gallery import GALLERY, ConstantArms, InUnits, Wheel

everyone = pytest.mark.parametrize("name", [*GALLERY, *EVERYDAY])


@everyone
def test_a_round_derives_from_seed_and_round_alone(name):
    world = find_world(name)
    whole, part = world.rounds(seed=3, count=40), world.rounds(seed=3, count=10, first=21)
    np.testing.assert_array_equal(whole.contexts[20:30], part.contexts)
    np.testing.assert_array_equal(whole.means[20:30], part.means)
    np.testing.assert_array_equal(whole.rewards[20:30], part.rewards)
    assert np.isfinite(whole.contexts).all()
    assert np.isfinite(whole.rewards).all()
    assert whole.contexts.shape == (40, world.arms, world.dim)
    assert not np.array_equal(whole.rewards, world.rounds(seed=4, count=40).rewards)


@everyone
def test_arms_differ_and_worlds_describe_themselves(name):
    world = find_world(name)
    rounds = world.rounds(seed=0, count=200)
    uniform = rounds.means.max(axis=1) - rounds.means.mean(axis=1)
    assert uniform.mean() > 0
    assert json.loads(json.dumps(world.describe()))["world"] == type(world).__name__


@pytest.mark.parametrize("name", EVERYDAY)
def test_rewards_of_everyday_worlds_have_the_means_that_they_say(name):
    """And what is worth knowing is more than which arm is best on average."""
    rounds = EVERYDAY[name].rounds(seed=3, count=4000 if MANY else 1200)
    luck = (rounds.rewards - rounds.means).mean(axis=1)
    assert abs(luck.mean()) < 4 * luck.std() / np.sqrt(len(luck))
    best_arm = rounds.means.max(axis=1).sum() - rounds.means.sum(axis=0).max()
    assert best_arm > 0.1 * (rounds.means.max(axis=1) - rounds.means.mean(axis=1)).sum()


def test_everyday_rewards_are_of_the_kind_that_they_are_named_for():
    drawn = {name: EVERYDAY[name].rounds(seed=1, count=300) for name in EVERYDAY}
    whole = {name: np.allclose(each.rewards, each.rewards.round(), atol=1e-9) for name, each in drawn.items()}
    assert {name for name, one in whole.items() if one} == {"clicks", "ranking", "calls"}
    assert set(np.unique(drawn["clicks"].rewards.round())) == {0.0, 1.0}
    assert set(np.unique(drawn["ranking"].rewards.round())) == {0.0, 1.0, 2.0, 3.0, 4.0}
    assert (drawn["payments"].rewards == 0).mean() > 0.4
    assert (drawn["words"].contexts == 0).mean() > 0.9
    rows = drawn["sensors"].contexts[:, 0, 0]
    assert np.corrcoef(rows[1:], rows[:-1])[0, 1] > 0.8


def test_one_needle_pays():
    rounds = GALLERY["needle"].rounds(seed=1, count=2)
    assert np.sort(rounds.means[0])[-2] <= 0.3 < 0.9 == rounds.means[0].max()
    np.testing.assert_array_equal(rounds.contexts[0], rounds.contexts[1])


@pytest.mark.parametrize("delta", [0.5, 0.8, 0.95])
def test_the_wheel_pays_outside_its_radius(delta):
    rounds = Wheel(delta).rounds(seed=0, count=4000)
    point = rounds.contexts[:, 0, :2]
    outside = np.linalg.norm(point, axis=1) > delta
    assert outside.mean() == pytest.approx(1 - delta**2, abs=0.03)
    assert (rounds.means.max(axis=1) == np.where(outside, 50.0, 1.2)).all()
    assert set(rounds.best[outside]) == {1, 2, 3, 4}


def test_rare_rewards_are_clicks_with_their_chances():
    rounds = GALLERY["rare-reward"].rounds(seed=0, count=20_000 if MANY else 6000)
    assert set(np.unique(rounds.rewards)) == {0.0, 1.0}
    assert rounds.rewards.mean() == pytest.approx(rounds.means.mean(), abs=0.005)
    assert rounds.means.mean() < 0.1


def test_units_change_contexts_and_nothing_else():
    world = GALLERY["late-spread"]
    plain, scaled = (each.rounds(seed=2, count=5) for each in (world, InUnits(world, 1e-6)))
    np.testing.assert_allclose(scaled.contexts, 1e-6 * plain.contexts)
    np.testing.assert_array_equal(scaled.rewards, plain.rewards)


def test_constant_arms_have_a_column_each():
    rounds = ConstantArms(arms=4).rounds(seed=0, count=3)
    np.testing.assert_array_equal(rounds.contexts[1], np.eye(4))
    np.testing.assert_array_equal(rounds.rewards, rounds.means)


ROUNDS, BATCHES, UNSURE = (400, 12, 3) if MANY else (300, 8, 2)
"""Of a run; and how many runs there are where one says little."""
FIXED_ARMS = ("needle", "constant-arms", "wheel")[: 3 if MANY else 2]
PLAYED = [(name, Paced(ROUNDS, BATCHES)) for name in GALLERY]
PLAYED += [(name, FixedGrid(ROUNDS, BATCHES)) for name in FIXED_ARMS]


@pytest.mark.filterwarnings("ignore::rarely.ForgettingWarning")  # one world drifts
@pytest.mark.parametrize(("name", "schedule"), PLAYED, ids=[f"{name}-{type(each).__name__}" for name, each in PLAYED])
def test_the_default_policy_goes_on_exploring(name, schedule):
    """It loses less than uniform play, and less than half as much in the last quarter; no run is stuck.

    One arm in fifty, which nothing hints at, is found by most runs: LinUCB finds it in none.
    """
    world, runs, last = GALLERY[name], [], slice(ROUNDS * 3 // 4, None)
    # A run with fifteen clicks, or one that waits for a lucky try, says little alone.
    for seed in range(21, 21 + (UNSURE if name in ("rare-reward", "wheel", "one-in-fifty") else 1)):
        rounds = world.rounds(seed=seed, count=ROUNDS)
        policy = BatchNeuralUCB(world.dim, schedule, context_scale=world.context_scale, seed=seed)
        uniform = rounds.means.max(axis=1) - rounds.means.mean(axis=1)
        runs.append((rounds.regrets(played(policy, rounds)), uniform))
    lost, uniform = np.mean(runs, axis=0)
    assert lost.sum() < 0.8 * uniform.sum()
    assert lost[last].sum() < 0.5 * uniform[last].sum()
    stuck = sum(mine[last].sum() >= 0.8 * even[last].sum() for mine, even in runs)
    assert stuck <= (name == "one-in-fifty")


def played(policy, rounds):
    arms = []
    while len(arms) < len(rounds):
        start = len(arms)
        decision = policy.select(rounds.contexts[start:], until_due=True)
        arms += decision.arm.tolist()
        policy.observe(decision, rounds.rewards[np.arange(start, len(arms)), decision.arm])
        if policy.due and len(arms) < len(rounds):
            policy.update()
    return arms
