"""The rounds that the lot of a mixture decides: marked exactly, without another draw, and comparable."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rarely import LinTS, LinUCB, Mixture, OnDemand
from rarely._core.choice.rules import ArmScores, MixedRule, UpperConfidence, held_out, sample_arms
from rarely.offpolicy import DecisionLog, NotIdentified, against_holdout, difference
from rarely.study import Stage, Study

GRID = 1000
"""Uniform numbers i/GRID: each arm and mark has its exact share of them, but for one number at either end."""


@given(
    epsilon=st.floats(0.01, 1.0),
    means=st.lists(st.floats(-1, 1), min_size=2, max_size=6),
    absent=st.booleans(),
)
def test_each_arm_is_held_out_with_its_part_of_the_lot(epsilon, means, absent):
    means = np.array([[*means, np.nan]] if absent else [means])
    rule, present = MixedRule(UpperConfidence(), Mixture(epsilon)), ~np.isnan(means)
    chances = np.repeat(rule.probabilities(ArmScores(means, np.zeros(means.shape))), GRID, axis=0)
    uniforms = np.arange(GRID) / GRID
    arms = sample_arms(chances, uniforms)
    marks = held_out(rule, np.repeat(present, GRID, axis=0), chances, arms, uniforms)
    counts = np.bincount(arms[marks], minlength=means.shape[1])
    np.testing.assert_allclose(counts, present[0] * epsilon / present.sum() * GRID, atol=1.0)


@pytest.mark.parametrize("make", [LinUCB, LinTS])
def test_marks_are_the_same_one_by_one_and_together_and_outside_of_them_the_policy_decides(make):
    contexts = np.random.default_rng(0).normal(size=(200, 4, 2))
    together = make(2, OnDemand(), exploration=Mixture(0.3), seed=5).select(contexts)
    policy = make(2, OnDemand(), exploration=Mixture(0.3), seed=5)
    single = [policy.select(each) for each in contexts]
    assert [each.held_out for each in single] == together.held_out.tolist()
    assert together[3:9].held_out.tolist() == together.held_out[3:9].tolist()
    assert 30 < together.held_out.sum() < 90
    assert single[0].describe()["held_out"] in (True, False)
    if make is LinUCB:
        best = (together.means + together.bonuses).argmax(axis=1)
        assert (together.arm == best)[~together.held_out].all()
        assert not (together.arm == best)[together.held_out].all()


def test_without_a_mixture_nothing_is_marked():
    decision = LinTS(1, OnDemand(), seed=0).select([[1.0], [2.0]])
    assert decision.held_out is None
    assert "held_out" not in decision.describe()


def log_of(seed: int, epsilon: float, rounds: int = 400) -> DecisionLog:
    """A log in which the policy earns 1 a round and a lot 0.5, with noise."""
    generator, log = np.random.default_rng(seed), DecisionLog()
    contexts = np.tile([[[0.0], [1.0]]], (rounds, 1, 1))
    decision = LinUCB(1, OnDemand(), exploration=Mixture(epsilon), within_batch="frozen", seed=seed).select(contexts)
    log.record(contexts, decision)
    log.observe(decision, decision.arm + generator.normal(0, 0.5, rounds))
    return log


def test_the_comparison_is_the_difference_of_means_and_holds_the_truth():
    found = [against_holdout(log_of(seed, 0.2)) for seed in range(200)]
    inside = np.mean([each.low <= 0.5 <= each.high for each in found])
    assert 0.90 <= inside <= 0.99
    log = log_of(0, 0.2)
    marked = np.isin(log.rounds, list(log.held_out))
    assert found[0].value == pytest.approx(log.rewards[~marked].mean() - log.rewards[marked].mean())
    both = difference(log, log.probabilities, np.full((400, 2), 0.5), estimator="snips")
    assert both.value / 0.8 == pytest.approx(found[0].value, abs=0.2)


def test_a_log_without_marks_is_refused():
    log = DecisionLog()
    with pytest.raises(NotIdentified, match="Mixture"):
        against_holdout(log)
    with pytest.raises(NotIdentified, match="got 0 and 400"):
        against_holdout(log_of(0, 0.0))


@pytest.mark.parametrize("least", [0.0, 0.2])
def test_a_study_keeps_the_marks(least):
    policy = LinUCB(1, OnDemand(), exploration=Mixture(0.5), seed=0)
    stages = [Stage("main", least=least)]
    study = Study.create(f"memory://holdout-{least}", "marks", policy=policy, arms=["a", "b"], stages=stages)
    for number in range(200):
        study.tell(study.ask([[0.0], [1.0]], id=f"{number}").id, 1.0)
    marks = [record.held_out for record in study.decisions()]
    log = study.log()
    assert sorted(log.held_out) == [round + 1 for round, mark in enumerate(marks) if mark]
    expected = 0.5 * (1 - 2 * least) * 200
    assert abs(len(log.held_out) - expected) < 4 * np.sqrt(expected)
    assert against_holdout(log).value == 0.0
    assert study.replay().equal
