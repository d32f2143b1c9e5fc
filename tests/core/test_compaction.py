"""Histories that do not grow: what is dropped, that nothing else changes, and what is counted."""

import copy
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rarely
from rarely import (
    BatchNeuralUCB,
    DroppedRound,
    ForgettingWarning,
    Limits,
    LinUCB,
    NeuralLinear,
    OnDemand,
    UnknownRound,
    Window,
    WrongDecision,
)
from rarely._core.inputs.history import History, RewardSums
from rarely._core.policies import compaction
from worlds import MAKERS, contexts, rewards, small

STREAM = contexts(seed=31, rounds=200)
LOSSLESS = ("linear", "linear_thompson", "no_intercept", "uniform", "window", "discount", "linear_discount")
LOSSLESS += ("kernel_steps", "paper", "tuned", "kernel", "neural_linear")


def decide(policy, start, count, skipped=()):
    decision = policy.select(STREAM[start : start + count])
    told = np.array([i for i in range(count) if start + i not in skipped], int)
    policy.observe(decision[told], rewards(STREAM[start + told, decision.arm[told]]))
    return decision


def lived(name, days=4, **own):
    """Some days, with a tenth of the rewards missing."""
    policy = MAKERS[name](OnDemand(), **own)
    for day in range(days):
        decide(policy, 15 * day, 15, skipped=range(3, 200, 10))
        policy.update()
    decide(policy, 15 * days, 5, skipped=(62,))
    return policy


@pytest.mark.parametrize("name", LOSSLESS)
def test_a_compacted_policy_has_the_same_future(name, tmp_path):
    policy = lived(name)
    whole = copy.deepcopy(policy)
    dropped = policy.compact()
    assert dropped == policy.history.dropped == whole.round - len(policy.history)
    if name.startswith(("linear", "window", "no_inter", "uniform")) and name != "linear_discount":
        assert dropped > 20
    assert (policy.round, policy.missing + policy.history.abandoned) == (whole.round, whole.missing)
    policy.save(tmp_path / "policy.rarely")
    loaded = rarely.load(tmp_path / "policy.rarely")
    assert loaded.fingerprint() == policy.fingerprint()
    for start in (65, 80, 95):
        for each in (policy, loaded, whole):
            decide(each, start, 15, skipped=(70,))
        records = [each.update() for each in (policy, loaded, whole)]
        assert records[0].log_det == records[1].log_det == records[2].log_det
        assert records[0].beta == records[1].beta == pytest.approx(records[2].beta, rel=1e-9)
    one, other = policy.select(STREAM[110:120]), whole.select(STREAM[110:120])
    np.testing.assert_array_equal(one.arm, other.arm)
    np.testing.assert_array_equal(one.means, other.means)
    np.testing.assert_allclose(one.bonuses, other.bonuses, rtol=1e-9)


@pytest.mark.parametrize("name", ["linear", "window", "tuned"])
@given(data=st.data())
@settings(max_examples=max(5, settings.default.max_examples // 3))
def test_any_life_with_compactions_is_the_life_without(name, data):
    policy, whole = (MAKERS[name](OnDemand()) for _ in range(2))
    open_rounds, start = [], 0
    for _ in range(data.draw(st.integers(2, 6))):
        count = data.draw(st.integers(1, 20))
        decisions = [each.select(STREAM[start : start + count]) for each in (policy, whole)]
        np.testing.assert_array_equal(decisions[0].arm, decisions[1].arm)
        np.testing.assert_allclose(decisions[0].means, decisions[1].means, rtol=1e-9, atol=1e-12)
        open_rounds += [(start + i + 1, decisions[0].arm[i]) for i in range(count)]
        start += count
        told = data.draw(st.lists(st.sampled_from(open_rounds), unique=True, max_size=len(open_rounds)))
        for number, arm in told:
            open_rounds.remove((number, arm))
            for each in (policy, whole):
                each.observe(rounds=number, rewards=rewards(STREAM[number - 1, arm]), late="count")
        new = all(each.history.arrived > each._state.learned for each in (policy, whole))
        if new and data.draw(st.booleans()):
            policy.update()
            whole.update()
        if data.draw(st.booleans()):
            policy.compact()
    assert policy.round == whole.round
    assert policy.log_det == pytest.approx(whole.log_det, rel=1e-9)


@given(
    gone=st.lists(st.sets(st.integers(0, 39)), min_size=1, max_size=4),
    order=st.permutations(list(range(40))),
    count=st.integers(0, 40),
)
def test_rows_keep_their_numbers_and_rewards(gone, order, count):
    history = History(2)
    rows = np.arange(80.0).reshape(40, 2)
    history = history.with_rounds(rows, np.arange(40), 0, np.ones((40, 3)), "0" * 16)
    history = history.with_rewards(np.array(order[:count], int) + 1, np.array(order[:count]) + 0.5)
    kept = set(range(40))
    for some in gone:
        history = history.without(np.isin(history.rows, list(some)))
        kept -= some
        assert history.rows.tolist() == sorted(kept)
        np.testing.assert_array_equal(history.contexts, rows[sorted(kept)])
        np.testing.assert_array_equal(history.arms, sorted(kept))
        told = [row + 0.5 if row in order[:count] else np.nan for row in sorted(kept)]
        np.testing.assert_array_equal(history.rewards, told)
        assert (history.rounds, history.arrived) == (40, count)
        assert history.abandoned == 40 - count - history.missing
        settled = history._kept.settled
        after, values = history.arrivals_between(settled, count)
        assert after.tolist() == order[:count][settled:]
        np.testing.assert_array_equal(values, after + 0.5)
    later = history.with_rounds(np.ones((2, 2)), np.array([5, 6]), 1, np.ones((2, 3)), "0" * 16)
    assert later.rows.tolist()[-2:] == [40, 41]
    later = later.with_rewards([41], [7.0])
    assert later.rewards[-2] == 7.0
    for row in range(40):
        if row not in kept:
            with pytest.raises(DroppedRound, match=f"round {row + 1} was dropped"):
                later.with_rewards([row + 1], [0.0])


@given(st.lists(st.floats(-10, 10), max_size=30), st.integers(0, 30), st.integers(0, 30))
def test_the_spread_of_dropped_rewards_is_remembered(values, first, second):
    values = np.array(values)
    sums = RewardSums().merge(values[:first]).merge(values[first : first + second])
    whole = RewardSums().spread_with(values)
    assert sums.spread_with(values[first + second :]) == pytest.approx(whole, rel=1e-9, abs=1e-9)


class TestLateRewards:
    def compacted(self):
        policy = lived("linear")
        decision = decide(policy, 65, 5, skipped=range(200))
        policy.compact(open_for=0)
        return policy, decision

    def test_a_reward_of_a_dropped_round_is_refused(self):
        policy = lived("linear")
        policy.compact(open_for=40)
        before = policy.fingerprint()
        assert policy.history.abandoned > 0
        with pytest.raises(DroppedRound, match="late='count'"):
            policy.observe(rounds=[4, 65], rewards=[1.0, 2.0])
        assert policy.fingerprint() == before
        with pytest.raises(UnknownRound):
            policy.observe(rounds=66, rewards=1.0)

    def test_or_counted(self, tmp_path):
        policy = lived("linear")
        policy.compact(open_for=40)
        missing = policy.missing
        policy.observe(rounds=[4, 63], rewards=[1.0, 2.0], late="count")
        assert (policy.history.late, policy.missing) == (1, missing - 1)
        policy.save(tmp_path / "policy.rarely")
        assert rarely.load(tmp_path / "policy.rarely").history.late == 1

    def test_open_rounds_of_the_batch_stay(self):
        policy, decision = self.compacted()
        policy.observe(decision, np.ones(5))
        assert policy.update().accepted

    def test_decisions_and_ids_are_recognised(self):
        policy = MAKERS["linear"](OnDemand())
        decision = decide(policy, 0, 20, skipped=(3, 7))
        policy.update()
        policy.compact()
        assert policy.history.rows.tolist() == [3, 7]
        other = MAKERS["linear"](OnDemand()).select(STREAM[:20])
        with pytest.raises(WrongDecision):
            policy.observe(other[3], 1.0)
        with pytest.raises(DroppedRound):
            policy.observe(decision[2:5], [1.0, 2.0, 3.0])
        policy.observe(decision[2:5], [1.0, 2.0, 3.0], late="count")
        policy.observe(ids=decision[7].id, rewards=0.5)
        np.testing.assert_array_equal(policy.history.rewards, [2.0, 0.5])
        again = policy.select(STREAM[20:23])
        assert not set(again.id) & set(decision.id)

    def test_a_choice_must_be_one(self):
        with pytest.raises(rarely.InvalidInput, match="late"):
            lived("linear").observe(rounds=1, rewards=1.0, late="ignore")


class TestAutomatic:
    @pytest.fixture(autouse=True)
    def _little(self, monkeypatch):
        monkeypatch.setattr(compaction, "WORTH_DROPPING", 10)

    def test_a_window_keeps_what_it_remembers(self):
        policy = small(OnDemand(), forgetting=Window(20))
        lengths = []
        for day in range(8):
            decide(policy, 20 * day, 20)
            record = policy.update()
            lengths.append(len(policy.history))
        assert max(lengths) <= 40
        assert record.dropped == 20
        assert sum(each.dropped for each in policy.updates) == policy.history.dropped

    def test_a_discount_too(self):
        policy = LinUCB(2, OnDemand(), forgetting=rarely.Discount(0.5))
        for day in range(8):
            decide(policy, 20 * day, 20)
            policy.update()
        assert len(policy.history) < 45

    def test_a_limit_makes_linucb_keep_its_sums_and_the_open_rounds(self):
        policy = LinUCB(2, OnDemand(), limits=Limits(history=3000))
        plain = LinUCB(2, OnDemand(), limits=Limits(history=None))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for day in range(8):
                for each in (policy, plain):
                    decide(each, 20 * day, 20, skipped=(30, 90))
                    each.update()
        assert len(policy.history) < 45
        assert policy.missing == 2
        np.testing.assert_array_equal(policy.coefficients, plain.coefficients)
        assert not policy.events

    def test_a_limit_makes_a_network_forget_its_oldest_rounds_and_says_so(self, tmp_path):
        policy = small(OnDemand(), limits=Limits(history=60 * 80))
        samples = []
        for day in range(8):
            decide(policy, 20 * day, 20)
            if day == 3:
                with pytest.warns(ForgettingWarning, match=r"limits\.history = 4.8 kB"):
                    samples.append(policy.update().samples)
            else:
                samples.append(policy.update().samples)
        assert samples == [20, 40, 60, 80, 80, 80, 80, 80]
        assert len(policy.history) == 60
        assert [record.dropped for record in policy.updates] == [0, 0, 0, 20, 20, 20, 20, 20]
        (event,) = policy.events
        assert event.kind == "limit"
        assert "would have been learned from" in event.detail
        assert policy.log_det > 0
        assert policy.updates[-1].lost == 0  # Z has them all
        policy.save(tmp_path / "policy.rarely")
        assert rarely.load(tmp_path / "policy.rarely").fingerprint() == policy.fingerprint()

    @pytest.mark.filterwarnings("ignore::rarely.ForgettingWarning")
    def test_a_limit_gives_up_open_rounds_before_those_that_are_learned_from(self):
        policy = small(OnDemand(), limits=Limits(history=60 * 80))
        for day in range(4):
            decide(policy, 20 * day, 20, skipped=range(5, 200, 20))
            policy.update()
        assert policy.history.abandoned == 4
        assert policy.missing == 0
        assert policy.updates[-1].dropped == 20
        assert np.isnan(policy.history.rewards).sum() == 0

    @pytest.mark.filterwarnings("ignore::rarely.ForgettingWarning")
    def test_a_z_that_is_built_again_says_what_it_has_lost(self, tmp_path):
        policy = small(OnDemand(), NeuralLinear, limits=Limits(history=60 * 80))
        for day in range(6):
            decide(policy, 20 * day, 20)
            record = policy.update()
        assert record.lost == policy.round - policy._covariance.rounds == 40
        policy.save(tmp_path / "policy.rarely")
        assert rarely.load(tmp_path / "policy.rarely").fingerprint() == policy.fingerprint()

    @pytest.mark.filterwarnings("ignore::rarely.ForgettingWarning")
    @pytest.mark.parametrize("name", ["tuned", "linear", "window", "neural_linear"])
    def test_jobs_are_adopted_across_it(self, name):
        policy = MAKERS[name](OnDemand(), limits=Limits(history=40 * 80))
        decide(policy, 0, 20)
        for day in range(1, 8):
            job = policy.prepare_update()
            decide(policy, 20 * day, 20)
            assert policy.adopt(job.run()).adopted == 20 * day + 20
        assert policy.history.dropped > 0
        assert policy.version == 7

    def test_a_manual_compaction_between_job_and_adoption(self):
        policy = lived("linear")
        job = policy.prepare_update()
        assert policy.compact() > 0
        assert policy.adopt(job.run()).accepted


def test_the_default_limits():
    assert BatchNeuralUCB(2, OnDemand()).settings()["limits"]["history"] == 20_000_000
    assert LinUCB(2).settings()["limits"]["history"] == 20_000_000
    assert BatchNeuralUCB(2, OnDemand(), preset="paper").settings()["limits"]["history"] is None
    assert BatchNeuralUCB(2, OnDemand(), training=10).settings()["limits"]["history"] is None
    with pytest.raises(rarely.InvalidInput, match=r"limits\.history"):
        LinUCB(2, limits=Limits(history=0))


def test_a_file_does_not_grow_with_the_days(tmp_path):
    policy, sizes = LinUCB(2, OnDemand(), limits=Limits(history=20 * 80), seed=0), []
    for day in range(9):
        decide(policy, 20 * day, 20, skipped=range(19, 200, 20))
        policy.update()
        policy.save(path := tmp_path / "policy.rarely")
        sizes.append((path.stat().st_size, len(policy.history) - policy.missing))
    assert len({kept for _, kept in sizes[-4:]}) == 1
    # A day adds the record of its update and its open round, but not 20 rows of 80 bytes.
    assert sizes[-1][0] - sizes[1][0] < 7 * 20 * 80 / 2
    assert rarely.load(path).round == 180


def test_open_rounds_are_kept_for_as_long_as_was_said():
    policy = LinUCB(2, OnDemand())
    policy.observe(policy.select(STREAM[:5])[4], 1.0)
    policy.update()
    assert policy.compact(open_for=3) == 3  # rounds 1 and 2, and round 5, whose reward is in the sums
    assert policy.history.rows.tolist() == [2, 3]


@pytest.mark.parametrize(("rounds", "dropped"), [(13, 0), (14, 4)])
def test_an_update_drops_what_a_window_forgot_once_it_is_a_quarter(monkeypatch, rounds, dropped):
    monkeypatch.setattr("rarely._core.policies.compaction.WORTH_DROPPING", 10)
    policy = LinUCB(2, OnDemand(), forgetting=Window(10))
    policy.observe(policy.select(STREAM[:rounds]), np.zeros(rounds))
    assert policy.update().dropped == dropped


def test_rewards_that_no_update_has_learned_from_are_never_dropped():
    policy = BatchNeuralUCB(2, OnDemand(), hidden=4, training=5, seed=0)
    decision = policy.select(np.random.default_rng(0).normal(size=(30, 2, 2)))
    policy.observe(decision[1:], np.arange(29.0))
    policy.update()
    policy.observe(decision[0], 1.0)
    done = compaction.compacted(policy._state, limit=5 * policy.history.row_bytes)
    assert done.dropped == 25
    assert done.state.history.rows[0] == 0


def test_large_rewards_are_dropped_without_a_warning_of_numpy():
    policy = LinUCB(2, OnDemand(), limits=Limits(history=2000))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.simplefilter("ignore", ForgettingWarning)
        for start in range(0, 60, 20):
            policy.observe(policy.select(STREAM[start : start + 20]), np.tile([0.0, 1e200], 10))
            policy.update()
    assert sum(update.dropped for update in policy.updates)


def test_late_rewards_add_up():
    policy = LinUCB(2, OnDemand(), forgetting=Window(3), seed=0)
    decision = policy.select(np.random.default_rng(0).normal(size=(20, 2, 2)))
    policy.observe(decision[10:], np.arange(10.0))
    policy.update()
    policy.compact(open_for=0)
    for i in range(2):
        policy.observe(decision[i], 1.0, late="count")
    assert policy.history._kept.late == 2
