"""What an update says aloud."""

import re
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rarely import (
    BatchNeuralUCB,
    EveryRound,
    FixedGrid,
    LinUCB,
    NothingToLearnWarning,
    OnDemand,
    OutlierWarning,
    Paced,
    RejectedWarning,
    ScheduleWarning,
)
from rarely._core.policies.monitor import OUTLIER_DISTANCE, outliers

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


def place(values, new):
    """Where the outlier of one column is."""
    return outliers(values[:, None], new)[0]


@pytest.mark.parametrize("count", range(4, 60))
def test_columns_that_are_mostly_zero_are_not_told(count):
    """As the columns of one arm in `ArmBlocks`: nothing between 0 and a value is how far three quarters are."""
    for there in range(1, count // 4 + 1):
        assert place(np.arange(count, dtype=float) * (np.arange(count) >= count - there), count) == -1


@given(share=st.floats(0.01, 1.0), count=st.integers(4, 400), seed=st.integers(0, 10**6))
def test_a_column_of_an_arm_that_is_seldom_chosen_is_not_told(share, count, seed):
    """Three quarters of its rows are zeros, so that the usual distance was now and then a number next to 0."""
    rng = np.random.default_rng(seed)
    assert place(np.where(rng.random(count) < share, rng.normal(size=count), 0.0), count) == -1


@given(st.integers(1, 4), st.integers(0, 10**6))
def test_of_a_few_numbers_none_is_an_outlier(count, seed):
    values = np.random.default_rng(seed).normal(size=count)
    values[0] = values[-1] + 1e-9
    assert place(values, count) == -1


def test_a_sentinel_among_zeros_and_ones_is_told():
    values = (RNG.random(100) < 0.2).astype(float)
    values[57] = -99999
    assert place(values, 60) == 57


@given(
    values=st.lists(st.floats(-1, 1), min_size=8, max_size=60),
    unit=st.floats(-100, 100),
    center=st.floats(-5, 5),
    new=st.integers(1, 8),
)
def test_units_do_not_matter(values, unit, center, new):
    numbers = np.array(values)
    numbers[-1] = 3 * OUTLIER_DISTANCE
    found = place(numbers, new)
    other = (numbers + center) * 10.0**unit
    scaled = place(other, new)
    usual = np.quantile(np.abs(numbers - np.median(numbers)), 0.75, method="lower")
    # Adding the centre loses digits of numbers that differ by less, and the least float is reached; among equal numbers
    # the others decide.
    if usual > 1e-3 and len(set(other)) == len(numbers):
        assert found == scaled == len(numbers) - 1


def test_a_rejected_training_is_told():
    policy = BatchNeuralUCB(1, schedule=OnDemand(), hidden=4, training=30, preset="paper", seed=0)
    play(policy, RNG.normal(size=20), RNG.normal(size=(20, 3, 1)))
    policy.observe(policy.select(RNG.normal(size=(1, 3, 1))), [1e308])
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", OutlierWarning)
        with pytest.warns(RejectedWarning, match="the update after round 21 was rejected: .* Version 0 stays in use"):
            record = policy.update()
    assert not record.accepted
    assert policy.version == 0


def test_an_update_without_a_reward_is_told_once_and_not_as_rejected():
    policy = LinUCB(2, seed=0)
    policy.select(RNG.normal(size=(3, 2)))
    with pytest.warns(NothingToLearnWarning) as told:
        policy.update()
    assert len(told) == 1


def late_warnings(policy, rounds, updates=()):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(rounds):
            policy.observe(policy.select(RNG.random((4, 3))), 1.0)
            if i in updates:
                policy.update()
    return [str(each.message) for each in caught if each.category is ScheduleWarning and each.filename == __file__]


def test_a_horizon_that_passes_with_an_update_due_is_said_once():
    said = late_warnings(LinUCB(3, Paced(horizon=20, batches=4), seed=0), 200)
    assert len(said) == 1
    assert said[0].startswith("round 21 is past the horizon of the schedule, and an update has been due")


@pytest.mark.parametrize("schedule", [Paced(horizon=400, batches=4), EveryRound()])
def test_an_update_that_is_due_for_a_hundred_rounds_is_said_once(schedule):
    said = late_warnings(LinUCB(3, schedule, seed=0), 350)
    assert len(said) == 1
    assert re.match("an update has been due for 100 rounds, since round [17]: version 0 still decides", said[0])
    blocks = LinUCB(3, schedule, seed=0)
    with pytest.warns(ScheduleWarning, match="due for 100 rounds, since round"):
        blocks.select(RNG.random((150, 4, 3)))


@pytest.mark.parametrize("block", [1, 40])
@pytest.mark.parametrize("make", [LinUCB, BatchNeuralUCB])
def test_the_end_of_a_batch_is_not_put_off_by_the_next_that_was_planned(make, block):
    policy = make(3, FixedGrid(600, 6), seed=0)  # ends a batch after every 100 rounds
    while policy.round < 199:
        policy.select(RNG.random((min(block, 199 - policy.round), 4, 3)) if block > 1 else RNG.random((4, 3)))
    with pytest.warns(ScheduleWarning, match="due for 100 rounds, since round 100:"):
        policy.select(RNG.random((block, 4, 3)))


def test_nothing_is_said_where_no_update_was_due():
    assert not late_warnings(LinUCB(3, OnDemand(horizon=20), seed=0), 60)
    policy = LinUCB(3, Paced(horizon=20, batches=2), seed=0)
    assert not late_warnings(policy, 60, updates=[6])
    assert policy.version == 1


@pytest.mark.parametrize("size", [1e140, 1e155, 1e300, 1.7e308, 1e-300])
@pytest.mark.parametrize(
    "make",
    [
        lambda: LinUCB(2, OnDemand(), seed=0),
        lambda: BatchNeuralUCB(2, OnDemand(), hidden=4, seed=0),
        lambda: BatchNeuralUCB(2, OnDemand(), hidden=4, training=5, preset="paper", seed=0),
        lambda: BatchNeuralUCB(2, OnDemand(), hidden=4, training=5, preset="code", seed=0),
    ],
)
def test_rewards_of_any_size_raise_no_warning_of_numpy(make, size):
    policy, draws = make(), np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", RuntimeWarning)
        for _ in range(3):
            x = draws.normal(size=(10, 3, 2))
            policy.observe(policy.select(x), draws.uniform(-1, 1, 10) * size)
            policy.update(force=True)
            policy.adopt(policy.prepare_update(force=True).run())
            assert np.isfinite(policy.score(x).means).all()
            assert np.isfinite(policy.probabilities(x)).all()


@pytest.mark.parametrize("block", [1, 7, 25, 30, 200])
def test_a_horizon_passed_with_an_update_due_is_announced_once(block):
    policy, told = LinUCB(2, FixedGrid(20, 4), seed=0), 0
    for _ in range(-(-240 // block)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            policy.observe(policy.select(RNG.normal(size=(block, 2, 2))), np.zeros(block))
        told += sum(issubclass(one.category, ScheduleWarning) for one in caught)
    assert told == 1
