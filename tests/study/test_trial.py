"""Trials: limits that show in the probabilities, and stages that follow one another."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rarely import AtRounds, Budget, InvalidContexts, LinUCB
from rarely.study import InvalidStudy, Stage, Study
from studies import contexts_of, linear, play

NAMES = itertools.count()


def study_of(policy=None, **settings):
    settings.setdefault("arms", ["a", "b", "c"])
    policy = linear() if policy is None else policy
    return Study.create("memory://trials", f"trial {next(NAMES)}", policy=policy, **settings)


@given(
    st.lists(st.floats(0, 1), min_size=3, max_size=3).filter(lambda x: sum(x) > 0),
    st.floats(0, 1),
    st.integers(0, 2**32 - 1),
)
def test_every_arm_has_its_limit_exactly(shares, scale, seed):
    total = sum(shares)
    least = {name: scale * share / total for name, share in zip("abc", shares, strict=True)}
    study = study_of(LinUCB(dim=2, seed=seed), stages=[Stage("main", least=least)])
    study.ask(contexts_of(seed), id="x")
    chances = study.decision("x").probabilities
    assert sum(chances.tolist()) == 1.0
    for chance, limit in zip(chances, least.values(), strict=True):
        assert chance >= limit - 2.0**-53


def test_limits_and_own_probabilities_mix():
    study = study_of(LinUCB(dim=2, seed=0), stages=[Stage("main", least=0.125)])
    study.ask(contexts_of(1), id="x")
    assert sorted(study.decision("x").probabilities) == [0.125, 0.125, 0.75]
    study.ask(contexts_of(1), id="y", available=["a", "b"])
    assert sorted(study.decision("y").probabilities) == [0.125, 0.875]


def test_limits_are_followed_in_frequency():
    study = study_of(
        LinUCB(dim=2, within_batch="frozen", seed=3), stages=[Stage("main", least={"a": 0.1, "b": 0.2, "c": 0.0})]
    )
    answers = study.ask_many([(contexts_of(1), f"{i}") for i in range(2000)])
    counts = np.bincount([answer.index for answer in answers], minlength=3) / 2000
    assert np.abs(counts - study.decision("1").probabilities).max() < 0.04


def test_stages_change_at_their_rounds_also_inside_a_block():
    stages = [Stage("burn-in", 5, burn_in=True), Stage("careful", 4, least=0.2), Stage("free")]
    study = study_of(LinUCB(dim=2, seed=0), stages=stages)
    answers = study.ask_many([(contexts_of(i), f"{i}") for i in range(12)])
    assert [answer.stage for answer in answers] == ["burn-in"] * 5 + ["careful"] * 4 + ["free"] * 3
    assert {answer.probability for answer in answers[:5]} == {1 / 3}
    assert {answer.probability for answer in answers[9:]} == {1.0}
    play(study, 100, 5)
    study._session._live = None
    play(study, 200, 5)
    assert study.replay().equal


def test_a_refused_question_does_not_move_the_stages():
    study = study_of(stages=[Stage("burn-in", 3, burn_in=True), Stage("free")])
    asked = [(contexts_of(i), f"{i}") for i in range(5)]
    asked.insert(1, (np.full((3, 2), 1e200), "huge"))
    answers = study.ask_many(asked, errors="return")
    assert isinstance(answers.pop(1), InvalidContexts)
    assert [answer.stage for answer in answers] == ["burn-in"] * 3 + ["free"] * 2
    assert study.replay().equal


def test_limits_that_leave_no_room_for_so_many_arms():
    study = study_of(arms=None, stages=[Stage("main", least=0.3)])
    study.ask(contexts_of(1, arms=3))
    with pytest.raises(InvalidContexts, match="sum to at most 1"):
        study.ask(contexts_of(1, arms=4))
    assert study.status().decisions == 1


@pytest.mark.parametrize(
    "stages",
    [
        [],
        [Stage("a"), Stage("b")],
        [Stage("a", 5)],
        [Stage("a", 5), Stage("a")],
        [Stage("a", least=0.4)],
        [Stage("a", least={"d": 0.1})],
        ["a"],
    ],
)
def test_stages_that_make_no_sense_are_refused(stages):
    with pytest.raises(InvalidStudy):
        study_of(stages=stages)


STAGES = [Stage("burn-in", 100, burn_in=True), Stage("careful", 50, least=0.2), Stage("free")]


@pytest.mark.parametrize("rounds", [[50, 150], [100], [150], [99, 149]])
def test_updates_at_given_rounds_must_follow_the_stages(rounds):
    with pytest.raises(InvalidStudy, match=r"each stage ends.*Use AtRounds\(\[.*100.*150.*\]\)"):
        study_of(LinUCB(dim=2, schedule=AtRounds(rounds)), stages=STAGES)
    with pytest.raises(InvalidStudy, match="each stage ends"):
        study_of(LinUCB(dim=2, schedule=Budget(AtRounds(rounds), 2)), stages=STAGES)


def test_updates_inside_a_stage_may_be_added():
    study = study_of(LinUCB(dim=2, schedule=AtRounds([50, 100, 150, 400])), stages=STAGES)
    assert study.settings.stages[0].rounds == 100
    assert study_of(LinUCB(dim=2, schedule=AtRounds([7]))).settings.stages[0].name == "main"
