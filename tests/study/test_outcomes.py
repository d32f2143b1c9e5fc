"""Several outcomes of a decision, combined into one reward and each on record."""

from __future__ import annotations

import numpy as np
import pytest

from rarely import InvalidReward, LinUCB, OnDemand
from rarely.study import InvalidStudy, RewardRule, Study, StudyConflict

WORTH = {"click": 1.0, "purchase": 20.0, "cost": -0.5}


def study_of(name: str, rule: RewardRule, clock=None) -> Study:
    """A study with a decision for each of three visits."""
    given = {} if clock is None else {"clock": clock}
    policy = LinUCB(1, OnDemand(), seed=0)
    study = Study.create(f"memory://outcomes-{name}", "shop", policy=policy, arms=["a", "b"], rewards=rule, **given)
    for number in range(3):
        study.ask([[1.0], [2.0]], id=f"{number}")
    return study


def test_the_reward_is_the_weighted_sum_and_each_outcome_is_on_record():
    study = study_of("sum", RewardRule(outcomes=WORTH))
    told = [{"click": 1, "purchase": 0}, {"purchase": 2.0, "cost": 3, "click": np.float64(1)}, {"cost": 4}]
    for number, outcomes in enumerate(told):
        assert study.tell(f"{number}", outcomes).status == "accepted"
    log = study.log()
    np.testing.assert_array_equal(log.rewards, [1.0, 39.5, -2.0])
    assert log.outcomes == {round + 1: outcomes for round, outcomes in enumerate(told)}
    assert study.update() == "version"
    assert study.verify().whole
    assert study.settings.rewards.outcomes == WORTH


def test_a_repeated_delivery_is_a_duplicate_and_another_of_equal_worth_is_not():
    study = study_of("again", RewardRule(outcomes={"a": 1.0, "b": 1.0}))
    assert study.tell("0", {"a": 1.0, "b": 0.0}).status == "accepted"
    assert study.tell("0", {"b": 0, "a": 1}).status == "duplicate"
    assert study.tell("0", {"b": 1.0}).reason == "already rewarded"
    assert study.tell("1", {"a": 1.0}, key="k").status == "accepted"
    with pytest.raises(StudyConflict, match="another key"):
        study.tell("1", {"b": 1.0}, key="k")


def test_outcomes_that_arrive_one_by_one_are_summed():
    time = [1000.0]
    study = study_of("parts", RewardRule("sum", wait=60.0, outcomes=WORTH), clock=lambda: time[0])
    study.tell("0", {"click": 1}, key="1")
    study.tell("0", {"click": 1, "purchase": 1}, key="2")
    time[0] += 100
    study.ask([[1.0], [2.0]], id="later")
    log = study.log()
    assert log.rewards[0] == 22.0
    assert log.outcomes == {1: {"click": 2.0, "purchase": 1.0}}


@pytest.mark.parametrize("reward", [1.0, {}, {"clicks": 1}, {"click": None}, {"click": np.nan}, {"click": "1"}, [1.0]])
def test_what_is_no_outcome_of_the_study_is_refused(reward):
    study = study_of("refused", RewardRule(outcomes=WORTH))
    with pytest.raises(InvalidReward):
        study.tell("0", reward)
    assert study.status().rewards.received == 0


def test_a_study_without_outcomes_takes_no_dict():
    with pytest.raises(InvalidReward):
        study_of("plain", RewardRule()).tell("0", {"click": 1.0})


@pytest.mark.parametrize("outcomes", [{}, {"click": np.inf}, {"click": "1"}, {1: 1.0}, ["click"], "click"])
def test_impossible_outcomes_are_refused(outcomes):
    with pytest.raises(InvalidStudy if outcomes != {1: 1.0} else Exception, match="outcome"):
        RewardRule(outcomes=outcomes)


@pytest.mark.parametrize("huge", [{"a": 1e300, "b": 1e300}, {"a": 1e300}, {"b": -1.1e100}])
def test_outcomes_whose_sum_is_no_number_are_refused(huge):
    study = study_of(f"huge {huge}", RewardRule(outcomes={"a": 1e100, "b": -1e100}))
    before = study.status()
    with pytest.raises(InvalidReward, match="outcomes must be numbers from -1e100 to 1e100"):
        study.tell("0", huge)
    assert study.status() == before
    assert study.tell("0", {"a": 1e100, "b": 1e100}).status == "accepted"
    assert study.tell("1", {"a": 1e100}).reason == "out of range"
    assert [event.content["outcomes"] for event in study.events() if event.why] == [{"a": 1e100}]
