"""Bonuses that follow the running Z: rounds of one batch spread, and blocks are single rounds."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle import DenseZ
from rarely import (
    AtRounds,
    BatchNeuralUCB,
    DeterminantTrigger,
    FixedGrid,
    InvalidInput,
    LinTS,
    LinUCB,
    NeuralTS,
    Paced,
    ScheduleWarning,
    load,
)
from rarely._core.inputs.contexts import Part
from rarely.worlds.gallery import GaussianArms

FORMS = ["dual", "primal", "auto", "diagonal", "last_layer"]


def play(policy, stream, rewards, blocks):
    arms, t = [], 0
    while t < len(stream):
        decision = policy.select(stream[t:] if blocks else stream[t : t + 1], until_due=True)
        count = len(decision.arm)
        policy.observe(decision, rewards[np.arange(t, t + count), decision.arm])
        arms += decision.arm.tolist()
        t += count
        if policy.due and t < len(stream):
            policy.update()
    return arms


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("kind", [BatchNeuralUCB, NeuralTS])
def test_blocks_are_single_rounds(form, kind):
    rng = np.random.default_rng(1)
    stream, rewards = rng.normal(size=(60, 4, 3)), rng.normal(size=(60, 4))
    given = {"hidden": 8, "covariance": form, "within_batch": "running", "seed": 3, "beta": 0.5, "training": 20}
    single, block = (kind(3, FixedGrid(60, 4), **given) for _ in range(2))
    assert play(single, stream, rewards, blocks=False) == play(block, stream, rewards, blocks=True)
    np.testing.assert_allclose(single.history.bonuses, block.history.bonuses, rtol=1e-7)
    assert single.log_det == pytest.approx(block.log_det, rel=1e-10)


@given(
    st.integers(0, 10**6),
    st.integers(1, 5),
    st.sampled_from(["dual", "primal"]),
    st.floats(-4, 1),
    st.integers(1, 30),
    st.integers(0, 20),
)
def test_bonuses_are_those_of_a_dense_running_matrix(seed, dim, form, log_ridge, rounds, before):
    """Rounds of one call against Z written out, on top of an update; some arms are absent, some repeat."""
    rng, ridge = np.random.default_rng(seed), 10.0**log_ridge
    stream = rng.normal(size=(before + rounds, 4, dim))
    stream[:, 3] = stream[0, 3]
    mask = rng.random((before + rounds, 4)) < 0.8
    mask[:, 3] = True
    policy = LinUCB(
        dim, AtRounds([before] if before else [99]), intercept=False, ridge=ridge, covariance=form,
        within_batch="running",
    )  # fmt: skip
    if before:
        decision = policy.select(stream[:before], mask[:before])
        policy.observe(decision, rng.normal(size=before))
        policy.update()
    decision = policy.select(stream[before:], mask[before:])
    truth = DenseZ(dim, ridge)
    for x in policy.history.contexts[:before]:
        truth.add(x)
    for i in range(rounds):
        truth.freeze()
        now = np.array([truth.variance(x) for x in stream[before + i]])
        present = mask[before + i]
        np.testing.assert_allclose(decision.bonuses[i][present], np.sqrt(now[present]), rtol=1e-6)
        assert np.isnan(decision.bonuses[i][~present]).all()
        truth.add(stream[before + i, decision.arm[i]])


def test_the_means_stay_frozen_and_the_bonuses_do_not():
    x = np.eye(3)
    frozen, running = (LinUCB(3, FixedGrid(30, 3), within_batch=w) for w in ("frozen", "running"))
    for policy in (frozen, running):
        policy.select(np.tile(x, (6, 1, 1)))
    assert np.bincount(frozen.history.arms, minlength=3).tolist() == [6, 0, 0]
    assert np.bincount(running.history.arms, minlength=3).tolist() == [2, 2, 2]
    np.testing.assert_array_equal(frozen.score(x).bonuses, LinUCB(3).score(x).bonuses)
    assert (running.score(x).bonuses < frozen.score(x).bonuses).all()
    np.testing.assert_array_equal(running.score(x).means, frozen.score(x).means)


def test_with_an_update_after_every_round_both_decide_alike():
    stream = np.random.default_rng(0).normal(size=(60, 4, 3))
    frozen, running = (LinUCB(3, within_batch=w, seed=0) for w in ("frozen", "running"))
    for x in stream:
        decisions = [policy.select(x) for policy in (frozen, running)]
        assert decisions[0].arm == decisions[1].arm
        np.testing.assert_allclose(decisions[0].bonuses, decisions[1].bonuses, rtol=1e-10)
        for policy, decision in zip((frozen, running), decisions, strict=True):
            policy.observe(decision, float(np.sin(x[decision.arm].sum())))
            policy.update()


@pytest.mark.parametrize("seed", range(3))
def test_a_linear_policy_finds_the_best_of_twenty_arms_with_few_updates(seed):
    """Frozen, each of the 20 batches repeats one arm, and most of the horizon is gone before the best is tried."""
    rng = np.random.default_rng(seed)
    means, noise = np.append(rng.uniform(0, 0.5, 19), 1.0), rng.normal(0, 0.3, 1000)
    policy, arms = LinUCB(20, Paced(1000, 20), seed=seed), []
    while len(arms) < 1000:
        decision = policy.select(np.tile(np.eye(20), (1000 - len(arms), 1, 1)), until_due=True)
        arms += decision.arm.tolist()
        policy.observe(decision, means[decision.arm] + noise[decision.round - 1])
        if policy.due and len(arms) < 1000:
            policy.update()
    assert np.mean(np.array(arms[250:]) == 19) > 0.9


def test_the_default_follows_the_running_matrix_where_it_tunes_itself_and_nowhere_else():
    def chosen(**settings):
        return BatchNeuralUCB(2, FixedGrid(10, 2), **settings).settings()["within_batch"]

    assert chosen() == "running"
    assert chosen(within_batch="frozen") == "frozen"
    assert chosen(training=200) == chosen(preset="paper") == chosen(preset="code") == "frozen"
    assert NeuralTS(2, FixedGrid(10, 2)).settings()["within_batch"] == "frozen"
    assert [kind(2).settings()["within_batch"] for kind in (LinUCB, LinTS)] == ["running", "frozen"]
    with pytest.raises(InvalidInput, match="within_batch must be one of"):
        chosen(within_batch="warm")
    with pytest.raises(InvalidInput, match=r"got 'runing'\. Did you mean 'running'\?$"):
        chosen(within_batch="runing")


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_version_0_tries_every_arm_of_a_fixed_set_in_any_unit(unit):
    arms = unit * np.eye(10)
    policy = BatchNeuralUCB(10, FixedGrid(100, 2), seed=0)
    policy.select(np.tile(arms, (50, 1, 1)))
    assert np.bincount(policy.history.arms, minlength=10).min() >= 1


def test_what_was_offered_is_on_record():
    arms = np.eye(4)
    policy = LinUCB(4, FixedGrid(40, 4), intercept=False, ridge=0.5, within_batch="frozen")
    decision = policy.select(np.tile(arms, (10, 1, 1)))
    policy.observe(decision, np.ones(10))
    assert policy.update().unexplored == pytest.approx(1.0)
    decision = policy.select(np.tile(arms, (10, 1, 1)))
    policy.observe(decision, np.ones(10))
    # Arm 0 was played 10 times, and arm 1 then: 0.5/10.5 of arm 0's variance was left, and all of the others'.
    record = policy.update()
    assert record.unexplored == pytest.approx((0.5 / 10.5 + 3) / 4)
    assert record.least_known == pytest.approx(np.sqrt(1 / 0.5))
    assert record.chosen == pytest.approx(np.sqrt(1 / 0.5))
    assert record.due == "the grid ends a batch with round 20; 1 update is left, the next after round 30"


def test_a_budget_spent_early_is_said_once():
    policy = LinUCB(2, DeterminantTrigger(100, 3, 0.1))
    x = np.random.default_rng(0).normal(size=(100, 3, 2))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        play(policy, x, x[:, :, 0], blocks=True)
    told = [w for w in told if w.category is ScheduleWarning]
    assert len(told) == 1
    assert "spent after" in str(told[0].message)
    assert "Paced(horizon, batches)" in str(told[0].message)
    assert told[0].filename == __file__


def test_a_paced_budget_is_not():
    policy = LinUCB(2, Paced(100, 3))
    x = np.random.default_rng(0).normal(size=(100, 3, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        play(policy, x, x[:, :, 0], blocks=True)
    assert policy.version == 2


def test_a_saturated_trigger_is_said_and_learned_from():
    frozen = LinUCB(3, DeterminantTrigger(300, 10, 50.0), intercept=False, within_batch="frozen")
    assert frozen.select(np.tile(np.eye(3), (299, 1, 1)), until_due=True).round[-1] == 299
    policy = LinUCB(3, DeterminantTrigger(300, 10, 50.0), intercept=False, within_batch="running")
    arms = np.tile(np.eye(3), (300, 1, 1))
    with pytest.warns(ScheduleWarning, match="saturated.*smaller log_ratio"):
        play(policy, arms, np.tile([0.0, 1.0, 0.5], (300, 1)), blocks=True)
    assert policy.version >= 1


def test_arms_are_disjoint_only_if_they_are_in_every_round():
    def offered(*rounds):
        policy = LinUCB(3, FixedGrid(40, 2), intercept=False)
        for contexts in rounds:
            policy.select(np.array(contexts))
        return policy._state.arm_stats

    own, shared = [[1.0, 0.0, 0.0], [0.0, -2.0, 3.0]], [[1.0, 0.0, 0.5], [0.0, -2.0, 3.0]]
    assert offered(own, own).disjoint
    assert not offered(own, shared, own).disjoint
    assert offered([own[0]]).disjoint


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 4), st.integers(1, 5), st.booleans())
def test_disjoint_arms_have_no_column_in_common(seed, rounds, arms, dim, complete):
    rng = np.random.default_rng(seed)
    present = rng.random((rounds, arms)) < (2 if complete else 0.6)
    present[:, 0] = True
    contexts = rng.normal(size=(rounds, arms, dim)) * (rng.random((rounds, arms, dim)) < 0.3)
    part = Part(contexts[present], present, complete)
    for first in range(1, rounds + 1):
        there = [(contexts[i][present[i]] != 0).sum(axis=0).max() for i in range(first)]
        assert part.disjoint(first) == (max(there) <= 1)


def test_another_path_does_not_make_all_arms_unknown(tmp_path):
    """A skip path more or less gives other features; Z is built again with them."""
    rounds = GaussianArms().rounds(seed=3, count=240)
    policy = BatchNeuralUCB(3, Paced(240, 16), hidden=20, seed=1)
    play(policy, rounds.contexts, rounds.rewards, blocks=True)
    records = policy.updates
    changed = [i for i in range(2, len(records)) if records[i - 1].skip != records[i - 2].skip]
    # Near 1 where all is unknown. The next contexts may lie a little farther from those before, whatever the path.
    assert all(records[i].unexplored < 1.5 * records[i - 1].unexplored < 0.3 for i in changed)
    assert changed
    assert records[-1].unexplored < 0.05
    policy.save(tmp_path / "policy")
    assert load(tmp_path / "policy").fingerprint() == policy.fingerprint()
