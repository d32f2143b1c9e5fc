"""What an update says aloud."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rarely import (
    BatchNeuralUCB,
    LinUCB,
    NothingToLearnWarning,
    OnDemand,
    OutlierWarning,
    RejectedWarning,
)
from rarely.core.policies.announcing import FAR, outlier

RNG = np.random.default_rng(0)


class Frame:
    """A table with names, as libraries of data frames have it."""

    columns = ("age", "visits")

    def __init__(self, rows):
        self.rows = rows

    def __array__(self, dtype=None, copy=None):
        return np.array(self.rows, dtype)


def policies():
    return [
        LinUCB(2, schedule=OnDemand(), seed=0),
        BatchNeuralUCB(2, schedule=OnDemand(), hidden=4, training=5, seed=0),
    ]


def play(policy, rewards, contexts=None):
    contexts = RNG.normal(size=(len(rewards), 3, 2)) if contexts is None else contexts
    decision = policy.select(contexts)
    policy.observe(decision, rewards)
    return decision


@pytest.mark.parametrize("policy", policies(), ids=["linear", "neural"])
def test_a_reward_that_stands_for_a_missing_one_is_told_with_its_round(policy):
    rewards = RNG.normal(size=40)
    rewards[17] = -99999.0
    play(policy, rewards)
    with pytest.warns(OutlierWarning, match="the reward of round 18 is -99999, more than 10,000 times as far") as told:
        policy.update()
    assert told[0].filename == __file__


def test_a_later_reward_is_compared_with_earlier_ones():
    policy = LinUCB(2, seed=0)
    told = []
    for round in range(1, 65):
        play(policy, RNG.normal(size=1) if round != 37 else [1e300])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            policy.update()
        told += [(round, str(one.message)) for one in caught if one.category is OutlierWarning]
    ((when, what),) = told  # once, with the first sixteen rewards that it is among
    assert when == 48
    assert what.startswith("the reward of round 37 is 1e+300")


def test_a_number_of_a_context_is_told_with_its_column():
    policy = LinUCB(2, seed=0)
    for value in (*RNG.normal(size=31), 1e9):
        play(policy, [0.0], Frame([[value, RNG.normal()]]))
        if value < 1e9:
            policy.update()
    with pytest.warns(OutlierWarning, match="column 'age' of the context of round 32 is 1e\\+09"):
        policy.update()


def test_a_column_far_from_0_is_judged_by_its_own_range():
    policy = LinUCB(1, seed=0)
    for second in (*range(31), -1_700_000_000):  # a time stamp of 0 among those of today
        play(policy, [float(second % 2)], [[1_700_000_000.0 + second]])
        if second >= 0:
            policy.update()
    with pytest.warns(OutlierWarning, match="column 0 of the context of round 32 is 0, more than"):
        policy.update()


def test_a_log_is_looked_at_too():
    contexts = RNG.normal(size=(50, 2))
    contexts[3, 1] = 1e12
    with pytest.warns(OutlierWarning, match="column 1 of the context of the log is 1e\\+12"):
        LinUCB.from_log(contexts, RNG.normal(size=50), schedule=OnDemand())


@pytest.mark.parametrize(
    "rewards",
    [
        np.zeros(50),
        np.eye(1, 50)[0],  # one click
        np.eye(1, 50)[0] * 1e9,  # one sale: the others are all the same, and say nothing of what is usual
        RNG.normal(size=50) * 1e-9,
        np.where(RNG.random(50) < 0.1, 50.0, 1.2 + 0.01 * RNG.normal(size=50)),  # Riquelme's wheel
        RNG.pareto(1.5, size=500),
    ],
)
def test_rewards_as_they_come_are_not_told(rewards):
    policy = LinUCB(2, schedule=OnDemand(), seed=0)
    play(policy, rewards)
    policy.update()


@pytest.mark.parametrize("count", range(4, 60))
def test_columns_that_are_mostly_zero_are_not_told(count):
    """As the columns of one arm in `ArmBlocks`: nothing between 0 and a value is how far three quarters are."""
    for there in range(1, count // 4 + 1):
        assert outlier(np.arange(count, dtype=float) * (np.arange(count) >= count - there), count) is None


@given(
    values=st.lists(st.floats(-1, 1), min_size=8, max_size=60),
    unit=st.floats(-100, 100),
    center=st.floats(-5, 5),
    new=st.integers(1, 8),
)
def test_units_do_not_matter(values, unit, center, new):
    numbers = np.array(values)
    numbers[-1] = 3 * FAR
    found = outlier(numbers, new)
    scaled = outlier((numbers + center) * 10.0**unit, new)
    usual = np.quantile(np.abs(numbers - np.median(numbers)), 0.75, method="lower")
    if usual > 1e-3:  # adding the centre loses digits of numbers that differ by less
        assert found == scaled == len(numbers) - 1


def test_a_rejected_training_is_told():
    policy = BatchNeuralUCB(1, schedule=OnDemand(), hidden=4, training=30, preset="paper", seed=0)
    play(policy, RNG.normal(size=20), RNG.normal(size=(20, 3, 1)))
    policy.observe(policy.select(RNG.normal(size=(1, 3, 1))), [1e308])
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", OutlierWarning)
        with pytest.warns(RejectedWarning, match="the update after round 21 was rejected: .* Version 0 goes on"):
            record = policy.update()
    assert not record.accepted
    assert policy.version == 0


def test_an_update_without_a_reward_is_told_once_and_not_as_rejected():
    policy = LinUCB(2, seed=0)
    policy.select(RNG.normal(size=(3, 2)))
    with pytest.warns(NothingToLearnWarning) as told:
        policy.update()
    assert len(told) == 1
