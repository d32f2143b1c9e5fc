"""Updates when the caller's clock decides, budgets that grow on purpose, and last batches of unknown length."""

import copy

import numpy as np
import pytest

import rarely
from rarely import (
    AtRounds,
    BatchNeuralUCB,
    BudgetSpent,
    EveryRound,
    FixedGrid,
    InvalidInput,
    InvalidSchedule,
    LinUCB,
    NothingToLearn,
    NothingToLearnWarning,
    OnDemand,
    Paced,
)
from rarely._core.covariance import factory
from rarely._core.policies.state import BatchClock
from rarely._core.schedules import NEVER, Budget
from worlds import MAKERS, contexts, rewards, small


def decide(policy, rounds, seed=0):
    stream = contexts(seed=seed, rounds=rounds)
    decision = policy.select(stream)
    policy.observe(decision, rewards(stream[np.arange(rounds), decision.arm]))


@pytest.mark.parametrize("name", MAKERS)
def test_no_update_is_due_and_each_spends_a_version(name):
    policy = MAKERS[name](OnDemand(batches=3))
    assert policy.versions_left == 2
    for left in (1, 0):
        decide(policy, 6)
        assert not policy.due
        assert policy.update().accepted
        assert policy.versions_left == left
    decide(policy, 3)
    with pytest.raises(BudgetSpent, match="extend_budget"):
        policy.update()


def test_without_a_limit_there_is_no_count():
    policy = MAKERS["linear"](OnDemand())
    for _ in range(30):
        decide(policy, 2)
        policy.update()
    assert (policy.version, policy.versions_left) == (30, None)


@pytest.mark.parametrize("schedule", [EveryRound(), FixedGrid(24, 4), Paced(24, 4), AtRounds([4, 8, 12])])
def test_every_schedule_counts_what_is_left(schedule):
    policy = MAKERS["linear"](schedule)
    expected = None if schedule.batches is None else 3
    assert policy.versions_left == expected
    decide(policy, 12)
    policy.update()
    assert policy.versions_left == (None if expected is None else 2)


def test_an_update_without_a_new_reward_is_refused_on_demand_and_skipped_where_one_is_due():
    policy = MAKERS["linear"](OnDemand())
    with pytest.raises(NothingToLearn, match="no reward has arrived yet"):
        policy.update()
    decide(policy, 4)
    policy.update()
    policy.select(contexts()[0])
    with pytest.raises(NothingToLearn, match="since the last"):
        policy.update()
    assert policy.update(force=True).accepted
    due = MAKERS["linear"](EveryRound())
    due.select(contexts()[0])
    with pytest.warns(NothingToLearnWarning):
        assert not due.update().accepted


@pytest.mark.parametrize("settings", [{"batches": 0}, {"batches": 2.5}, {"horizon": 0}, {"horizon": "long"}])
def test_a_count_must_be_one(settings):
    with pytest.raises(InvalidSchedule, match="whole number"):
        OnDemand(**settings)


class TestExtension:
    def test_it_is_on_record_and_saved(self, tmp_path):
        policy = MAKERS["tuned"](FixedGrid(12, 2))
        decide(policy, 6)
        policy.update()
        assert policy.versions_left == 0
        policy.extend_budget(2, reason="the campaign was prolonged")
        assert policy.versions_left == 2
        (event,) = policy.events
        assert (event.kind, event.round, event.version) == ("budget", 6, 1)
        assert event.reason == "the campaign was prolonged"
        assert "4 instead of 2" in event.detail
        policy.save(tmp_path / "policy.rarely")
        loaded = rarely.load(tmp_path / "policy.rarely")
        assert loaded.fingerprint() == policy.fingerprint()
        assert loaded.events == policy.events
        for each in (policy, loaded):
            decide(each, 6)
            assert each.update().version == 2
        loaded.extend_budget(1, reason="again")
        assert (loaded.versions_left, policy.versions_left) == (2, 1)
        loaded.save(tmp_path / "policy.rarely")
        assert rarely.load(tmp_path / "policy.rarely").versions_left == 2

    def test_a_trigger_fires_again(self):
        policy = MAKERS["linear"](Budget(EveryRound(), 2))
        decide(policy, 3)
        policy.update()
        decide(policy, 3)
        assert not policy.due
        policy.extend_budget(1, reason="more")
        decide(policy, 1)
        assert policy.due

    @pytest.mark.parametrize(
        ("versions", "reason", "match"),
        [(0, "why", "whole number"), (1.5, "why", "whole number"), (1, " ", "for the record"), (1, None, "the record")],
    )
    def test_a_number_and_a_reason_must_be_given(self, versions, reason, match):
        policy = MAKERS["linear"](OnDemand(batches=2))
        before = policy.fingerprint()
        with pytest.raises(InvalidInput, match=match):
            policy.extend_budget(versions, reason=reason)
        assert policy.fingerprint() == before

    def test_a_budget_without_a_limit_cannot_grow(self):
        with pytest.raises(InvalidInput, match="no limit"):
            MAKERS["linear"](OnDemand()).extend_budget(1, reason="why")

    def test_a_budget_describes_its_own_part(self):
        budget = Budget(EveryRound(), 50).extended(5)
        assert (budget.batches, budget.extended(7).batches) == (55, 57)
        assert budget.describe()["batches"] == 50


class TestUnknownEnd:
    def test_a_trial_of_300_patients_is_a_small_file(self, tmp_path):
        policy = BatchNeuralUCB(6, AtRounds([100, 200]), hidden=100, training=5, seed=0)
        rng = np.random.default_rng(0)
        for _ in range(3):
            decision = policy.select(rng.normal(size=(100, 2, 6)))
            policy.observe(decision, rng.normal(size=100))
            if policy.due:
                policy.update()
        policy.save(path := tmp_path / "trial.rarely")
        assert policy.versions_left == 0
        assert path.stat().st_size < 2_000_000  # the p×p form took 86 MB with p = 1400

    @pytest.mark.parametrize("schedule", [AtRounds([5]), OnDemand(), OnDemand(horizon=10**6), EveryRound()])
    def test_no_end_in_sight_is_not_an_endless_batch(self, schedule):
        clock = BatchClock(Budget.around(schedule))
        assert clock.rounds_ahead(7, 1) <= 1
        assert clock.rounds_ahead(7, 0) <= 1  # beyond the last round of a grid, with versions left
        assert OnDemand().lookahead(0, 0.0, 0) == NEVER

    def test_a_horizon_and_a_budget_give_an_expectation(self):
        clock = BatchClock(Budget.around(OnDemand(batches=10, horizon=1000)))
        assert clock.rounds_ahead(0, 0) == 100
        assert clock.rounds_ahead(950, 3) == 50
        assert clock.rounds_ahead(600, 9) == 400


class TestLongLastBatch:
    """`Auto` leaves the t×t form inside a batch that outlasts what anyone knew."""

    @pytest.fixture(autouse=True)
    def _narrow(self, monkeypatch):
        monkeypatch.setattr(factory, "SMALL_PRIMAL", 8)

    def make(self, within):
        # p = 4·2 + 4 = 12, so round 48 is the last of the dual form.
        policy = small(AtRounds([5]), hidden=4, within_batch=within)
        decide(policy, 5)
        policy.update()
        assert policy.covariance == "dual"
        return policy

    @pytest.mark.parametrize("within", ["frozen", "running"])
    def test_it_decides_as_the_form_that_it_left(self, within):
        policy = self.make(within)
        always = small(AtRounds([5]), hidden=4, within_batch=within, covariance="dual")
        decide(always, 5)
        always.update()
        stream = contexts(seed=4, rounds=80)
        for t in range(80):
            one, other = policy.select(stream[t]), always.select(stream[t])
            assert policy.covariance == ("dual" if policy.round < 48 else "primal")
            assert one.arm == other.arm
            np.testing.assert_allclose(one.bonuses, other.bonuses, rtol=1e-6)
        assert policy.log_det == pytest.approx(always.log_det, rel=1e-9)

    @pytest.mark.parametrize("within", ["frozen", "running"])
    def test_blocks_are_single_rounds(self, within):
        policy = self.make(within)
        singly = copy.deepcopy(policy)
        stream = contexts(seed=4, rounds=80)
        together = policy.select(stream)
        one_by_one = [singly.select(contexts) for contexts in stream]
        np.testing.assert_array_equal(together.arm, [decision.arm for decision in one_by_one])
        np.testing.assert_allclose(together.bonuses, [decision.bonuses for decision in one_by_one], rtol=1e-7)

    def test_it_is_saved_on_either_side(self, tmp_path):
        policy = self.make("frozen")
        for rounds in (42, 1, 30):
            decide(policy, rounds)
            policy.save(tmp_path / "policy.rarely")
            assert rarely.load(tmp_path / "policy.rarely").fingerprint() == policy.fingerprint()
        assert policy.covariance == "primal"


def test_linear_policies_take_the_schedule_too():
    policy = LinUCB(2, OnDemand(batches=5, horizon=100))
    assert policy.settings()["schedule"] == {"kind": "OnDemand", "batches": 5, "horizon": 100}
    assert LinUCB(**policy.settings()).fingerprint() == policy.fingerprint()
