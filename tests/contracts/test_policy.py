"""What every policy promises. A new policy is one line in worlds.MAKERS."""

from itertools import pairwise

import numpy as np
import pytest

import rarely
from rarely import (
    AtRounds,
    Budget,
    BudgetSpent,
    ConflictingReward,
    Decision,
    DeterminantTrigger,
    EveryRound,
    FixedGrid,
    InvalidContexts,
    InvalidReward,
    NothingToLearn,
    NothingToLearnWarning,
    UnknownRound,
    UpdateDue,
)
from worlds import DETERMINISTIC, HORIZON, MAKERS, REBUILT, RUNNING, by_loops, contexts, play, rewards

everyone = pytest.mark.parametrize("name", by_loops(MAKERS))
deterministic = pytest.mark.parametrize("name", by_loops(DETERMINISTIC))


def fingerprint(policy):
    """Everything that a failed call must leave alone."""
    return policy.fingerprint()


@everyone
def test_a_decision_has_arm_means_bonuses_version_and_round(name):
    policy = MAKERS[name]()
    one = policy.select(contexts()[0])
    assert isinstance(one, Decision)
    assert isinstance(one.arm, int)
    assert one.means.shape == one.bonuses.shape == (3,)
    assert (one.version, one.round) == (0, 1)
    many = policy.select(contexts()[1:4])
    assert many.arm.shape == many.version.shape == many.round.shape == (3,)
    assert many.means.shape == many.bonuses.shape == (3, 3)
    assert list(many.round) == [2, 3, 4]
    assert policy.round == 4


@everyone
def test_probabilities_are_those_of_the_decision(name):
    policy = MAKERS[name]()
    play(policy, contexts()[:9])
    before = fingerprint(policy)
    rounds = 1 if name in RUNNING else 4
    chances = policy.probabilities(contexts()[10 : 10 + rounds])
    assert fingerprint(policy) == before
    decision = policy.select(contexts()[10 : 10 + rounds])
    np.testing.assert_array_equal(decision.probabilities, chances)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, rtol=1e-12)
    assert (decision.propensity > 0).all()
    one = policy.probabilities(contexts()[14], mask=[True, False, True])
    assert one.shape == (3,)
    assert one[1] == 0
    assert one.sum() == pytest.approx(1.0)


@everyone
def test_a_decision_slices_into_decisions(name):
    many = MAKERS[name]().select(contexts()[:5])
    assert len(many) == 5
    assert many[2].arm == many.arm[2]
    assert many[2].round == 3
    assert list(many[1:3].round) == [2, 3]
    assert list(many[np.array([4, 0])].round) == [5, 1]
    with pytest.raises(TypeError):
        len(many[0])
    with pytest.raises(TypeError):
        many[0][0]


@everyone
def test_score_is_pure(name):
    policy = MAKERS[name]()
    play(policy, contexts()[:9])
    before = fingerprint(policy)
    policy.score(contexts()[3])
    policy.score(contexts())
    assert fingerprint(policy) == before


@everyone
def test_score_is_what_select_reports(name):
    policy = MAKERS[name]()
    play(policy, contexts()[:9])
    scores, decision = policy.score(contexts()[10]), policy.select(contexts()[10])
    np.testing.assert_array_equal(scores.means, decision.means)
    np.testing.assert_array_equal(scores.bonuses, decision.bonuses)


@deterministic
def test_select_twice_gives_the_same_arm_mean_and_bonus(name):
    policy = MAKERS[name](AtRounds([5]))
    play(policy, contexts()[:5])
    assert policy.version == 1
    decisions = [policy.select(contexts()[7]) for _ in range(4)]
    for earlier, d in pairwise(decisions):
        np.testing.assert_array_equal(d.means, earlier.means)
        if name in RUNNING:
            assert d.bonuses[earlier.arm] < earlier.bonuses[earlier.arm]
            continue
        assert d.arm == earlier.arm
        np.testing.assert_array_equal(d.bonuses, earlier.bonuses)
    assert [d.round for d in decisions] == [6, 7, 8, 9]


@everyone
def test_the_chosen_arm_is_one_that_is_there(name):
    policy = MAKERS[name]()
    mask = np.array([[False, True, False], [True, False, True]])
    decision = policy.select(contexts()[:2], mask)
    assert mask[[0, 1], decision.arm].all()
    assert np.isnan(decision.means[~mask]).all()
    assert np.isnan(decision.bonuses[~mask]).all()
    assert np.isfinite(decision.means[mask]).all()


@everyone
def test_one_arm_is_an_ordinary_case(name):
    policy = MAKERS[name]()
    stream = contexts(arms=1)
    arms = play(policy, stream)
    assert not arms.any()
    assert policy.version > 0


@everyone
def test_a_list_of_rounds_with_different_arms_is_the_padded_block(name):
    stream = contexts()[:3]
    mask = np.array([[True, True, False], [True, True, True], [True, False, False]])
    ragged, padded = MAKERS[name](), MAKERS[name]()
    one = ragged.select([stream[0, :2], stream[1], stream[2, :1]])
    two = padded.select(np.where(mask[:, :, None], stream, np.nan), mask)
    np.testing.assert_array_equal(one.arm, two.arm)
    np.testing.assert_array_equal(one.means, two.means)
    assert ragged.log_det == padded.log_det


@everyone
def test_nothing_is_learned_inside_a_batch(name):
    """Rewards change nothing until update, and neither do rounds, but for bonuses that follow them."""
    policy = MAKERS[name](AtRounds([4, 20]))
    play(policy, contexts()[:4])
    before = policy.score(contexts()[8])
    decision = policy.select(contexts()[4:14])
    policy.observe(decision, 100.0 + np.arange(10.0))
    after = policy.score(contexts()[8])
    np.testing.assert_array_equal(before.means, after.means)
    if name in RUNNING:
        assert (after.bonuses <= before.bonuses * (1 + 1e-9)).all()
    else:
        np.testing.assert_array_equal(before.bonuses, after.bonuses)
    policy.update()
    assert not np.array_equal(policy.score(contexts()[8]).means, before.means)


@everyone
def test_rewards_may_come_late_out_of_order_partly_and_by_round_number(name):
    policies = [MAKERS[name](AtRounds([6])) for _ in range(3)]
    decisions = [p.select(contexts()[:6]) for p in policies]
    values = rewards(contexts()[np.arange(6), decisions[0].arm])
    keep = np.array([0, 2, 3, 5])
    policies[0].observe(decisions[0][keep], values[keep])
    for i in (5, 0, 3, 2):
        policies[1].observe(decisions[1][i], values[i])
    policies[2].observe(rounds=[4, 1], rewards=values[[3, 0]])
    policies[2].observe(rounds=np.array([3, 6]), rewards=values[[2, 5]])
    for p in policies:
        assert p.missing == 2
        record = p.update()
        assert (record.samples, record.missing) == (4, 2)
    for p in policies[1:]:
        np.testing.assert_array_equal(p.score(contexts()).means, policies[0].score(contexts()).means)


@everyone
def test_a_late_reward_enters_at_the_next_update(name):
    policy = MAKERS[name](AtRounds([4, 8]))
    first = policy.select(contexts()[:4])
    policy.observe(first[:3], [0.1, 0.2, 0.3])
    assert policy.update().samples == 3
    second = policy.select(contexts()[4:8])
    policy.observe(first[3], 5.0)
    policy.observe(second, [0.4, 0.5, 0.6, 0.7])
    assert policy.update().samples == 8
    assert policy.missing == 0


@everyone
def test_rewards_that_never_come_are_an_ordinary_case(name):
    """A due update without a new reward is skipped aloud and spends no version; one that is not due is refused."""
    policy = MAKERS[name](FixedGrid(HORIZON, 4))
    for t in range(HORIZON):
        policy.select(contexts()[t])
        before = policy.score(contexts()[0])
        if policy.due:
            with pytest.warns(NothingToLearnWarning, match="no reward came"):
                record = policy.update()
            assert (record.accepted, record.version, policy.due) == (False, 0, False)
            assert "no reward came" in record.reason
            assert np.array_equal(policy.score(contexts()[0]).means, before.means)
    assert policy.missing == HORIZON
    assert len(policy.updates) == 3


@everyone
def test_an_update_with_nothing_to_learn_from_is_refused(name):
    policy = MAKERS[name](FixedGrid(HORIZON, 4))
    before = fingerprint(policy)
    with pytest.raises(NothingToLearn, match="no reward came so far"):
        policy.update()
    assert fingerprint(policy) == before
    decision = policy.select(contexts()[:2])
    policy.observe(decision, [0.0, 1.0])
    policy.update()
    policy.observe(decision, [0.0, 1.0])  # told again, so nothing new
    before = fingerprint(policy)
    with pytest.raises(NothingToLearn, match="since the last update"):
        policy.update()
    assert fingerprint(policy) == before
    assert policy.update(force=True).version == 2


@everyone
def test_the_same_value_told_twice_is_ignored_and_another_refused(name):
    policy = MAKERS[name]()
    decision = policy.select(contexts()[:2])
    policy.observe(decision, [1.0, 2.0])
    policy.observe(decision, [1.0, 2.0])
    before = fingerprint(policy)
    with pytest.raises(ConflictingReward, match=r"had 2.0 and now came 3.0"):
        policy.observe(decision, [1.0, 3.0])
    with pytest.raises(ConflictingReward):
        policy.observe(rounds=[1, 1], rewards=[1.0, 4.0])
    assert fingerprint(policy) == before


@everyone
def test_a_conflict_inside_one_call_is_refused(name):
    policy = MAKERS[name]()
    policy.select(contexts()[:2])
    with pytest.raises(ConflictingReward):
        policy.observe(rounds=[2, 2], rewards=[1.0, 4.0])
    assert policy.missing == 2
    policy.observe(rounds=[2, 2], rewards=[1.0, 1.0])
    assert policy.missing == 1


def bad_calls(policy):
    x = contexts()[0]
    decision = policy.select(contexts()[:2])
    holed = x.copy()
    holed[1, 0] = np.nan
    endless = x.copy()
    endless[0, 1] = np.inf
    return [
        (InvalidContexts, lambda: policy.select(holed)),
        (InvalidContexts, lambda: policy.select(endless)),
        (InvalidContexts, lambda: policy.select(x[:, :1])),
        (InvalidContexts, lambda: policy.select(x[0])),
        (InvalidContexts, lambda: policy.select(np.zeros((1, 1, 1, 2)))),
        (InvalidContexts, lambda: policy.select("contexts")),
        (InvalidContexts, lambda: policy.select(np.empty((0, 2)))),
        (InvalidContexts, lambda: policy.select(np.empty((0, 3, 2)))),
        (InvalidContexts, lambda: policy.select([])),
        (InvalidContexts, lambda: policy.select([x, x[:, :1]])),
        (InvalidContexts, lambda: policy.select([x, holed])),
        (InvalidContexts, lambda: policy.select([x, x[:2]], mask=[[True] * 3] * 2)),
        (InvalidContexts, lambda: policy.select(x, mask=[True, True])),
        (InvalidContexts, lambda: policy.select(x, mask=[1, 1, 0])),
        (InvalidContexts, lambda: policy.select(x, mask=[False] * 3)),
        (InvalidContexts, lambda: policy.score(holed)),
        (InvalidReward, lambda: policy.observe(decision, [1.0, np.nan])),
        (InvalidReward, lambda: policy.observe(decision, [1.0, -np.inf])),
        (InvalidReward, lambda: policy.observe(decision, 1.0)),
        (InvalidReward, lambda: policy.observe(decision, "much")),
        (UnknownRound, lambda: policy.observe(rounds=0, rewards=1.0)),
        (UnknownRound, lambda: policy.observe(rounds=[1, 99], rewards=[1.0, 1.0])),
        (UnknownRound, lambda: policy.observe(rounds=1.5, rewards=1.0)),
    ]


@everyone
def test_bad_input_gets_a_typed_error_and_changes_nothing(name):
    policy = MAKERS[name]()
    play(policy, contexts()[:8])
    calls = bad_calls(policy)
    before = fingerprint(policy)
    for i, (error, call) in enumerate(calls):
        with pytest.raises(error):
            call()
        assert fingerprint(policy) == before, i


@everyone
def test_an_update_past_the_budget_is_refused_and_changes_nothing(name):
    policy = MAKERS[name](FixedGrid(HORIZON, 3))
    play(policy, contexts())
    assert policy.version == 2
    assert not policy.due
    before = fingerprint(policy)
    with pytest.raises(BudgetSpent, match="3 versions"):
        policy.update()
    assert fingerprint(policy) == before


@everyone
def test_an_early_update_is_allowed_and_spends_a_version(name):
    policy = MAKERS[name](FixedGrid(HORIZON, 3))
    policy.observe(policy.select(contexts()[:2]), [0.0, 1.0])
    assert not policy.due
    assert policy.update().version == 1
    policy.observe(policy.select(contexts()[2:8]), np.arange(6.0))
    assert policy.due
    policy.update()
    policy.select(contexts()[8:])
    assert not policy.due


@everyone
def test_due_latches_and_a_late_update_does_not_shift_the_grid(name):
    policy = MAKERS[name](FixedGrid(24, 6))
    policy.select(contexts()[:4])
    assert policy.due
    policy.select(contexts()[4])
    assert policy.due
    policy.observe(policy.select(contexts()[5:11]), np.arange(6.0))
    assert policy.due
    policy.update()
    assert not policy.due
    policy.select(contexts()[11])
    assert policy.due


@everyone
def test_until_due_stops_with_the_round_that_ends_the_batch(name):
    policy = MAKERS[name](FixedGrid(24, 4))
    assert len(policy.select(contexts(), until_due=True)) == 6
    assert policy.due
    before = fingerprint(policy)
    with pytest.raises(UpdateDue):
        policy.select(contexts(), until_due=True)
    assert fingerprint(policy) == before
    policy.observe(rounds=np.arange(1, 7), rewards=np.arange(6.0))
    policy.update()
    assert len(policy.select(contexts()[:3], until_due=True)) == 3
    assert not policy.due
    assert len(policy.select(contexts(), until_due=True)) == 3


@everyone
def test_a_horizon_is_not_a_wall(name):
    policy = MAKERS[name](FixedGrid(8, 2))
    play(policy, contexts())
    assert policy.round == HORIZON
    assert policy.version == 1


@everyone
def test_more_batches_than_rounds_is_an_ordinary_case(name):
    policy = MAKERS[name](FixedGrid(5, 50))
    play(policy, contexts()[:5])
    assert policy.version == 4


@everyone
@pytest.mark.parametrize("batches", [1, 2, 7, *(pytest.param(many, marks=pytest.mark.once) for many in (24, 100))])
def test_at_most_b_minus_one_trainings(name, batches):
    for schedule in (
        FixedGrid(HORIZON, batches),
        DeterminantTrigger(HORIZON, batches, 0.01),
        Budget(EveryRound(), batches),
    ):
        policy = MAKERS[name](schedule)
        play(policy, contexts(), block=24)
        assert len(policy.updates) <= batches - 1
        assert policy.version <= batches - 1


@everyone
def test_history_and_updates_tell_what_happened(name):
    policy = MAKERS[name](FixedGrid(HORIZON, 4))
    arms = play(policy, contexts())
    history = policy.history
    assert history.contexts.shape == (HORIZON, 2)
    np.testing.assert_array_equal(history.arms, arms)
    np.testing.assert_array_equal(history.contexts, contexts()[np.arange(HORIZON), arms])
    np.testing.assert_array_equal(history.versions, np.repeat([0, 1, 2, 3], 6))
    assert [u.round for u in policy.updates] == [6, 12, 18]
    assert [u.version for u in policy.updates] == [1, 2, 3]
    most = 9 if name == "window" else HORIZON
    assert [u.samples for u in policy.updates] == [min(n, most) for n in (6, 12, 18)]
    assert all(u.accepted and not u.reason for u in policy.updates)
    with pytest.raises(ValueError, match="read-only"):
        history.rewards[0] = 1.0


@pytest.mark.parametrize("name", [name for name in MAKERS if name not in REBUILT])
def test_log_det_grows_with_every_round_and_not_with_updates(name):
    policy, last = MAKERS[name](), 0.0
    for t in range(HORIZON):
        policy.observe(policy.select(contexts()[t]), float(t))
        assert policy.log_det > last or policy._learner.follows
        last = policy.log_det
        if policy.due:
            if policy.update().rescaled or (name == "tuned" and policy.version == 1):
                last = policy.log_det  # features changed with the scale, or with the linear path, and Z with them
            assert policy.log_det == pytest.approx(last, rel=1e-10)


@everyone
@pytest.mark.parametrize("at", [0, 3, 6, 7, 15])
def test_save_and_load_in_mid_batch_then_the_same_future_bit_for_bit(name, at, tmp_path):
    policy = MAKERS[name]()
    play(policy, contexts()[:at])
    policy.save(tmp_path / "policy.rarely")
    again = rarely.load(tmp_path / "policy.rarely")
    assert type(again) is type(policy)
    assert fingerprint(again) == fingerprint(policy)
    future = contexts(seed=7)
    for t in range(HORIZON - at):
        one, two = policy.select(future[t]), again.select(future[t])
        assert one.arm == two.arm
        assert one.means.tobytes() == two.means.tobytes()
        assert one.bonuses.tobytes() == two.bonuses.tobytes()
        for p, d in ((policy, one), (again, two)):
            p.observe(d, rewards(future[t, d.arm])[0])
            if p.due:
                p.update()
    assert fingerprint(again) == fingerprint(policy)
    assert again.updates == policy.updates
    assert again.schedule == policy.schedule


@everyone
def test_a_batch_that_has_ended_is_still_due_after_a_file(name, tmp_path):
    policy = MAKERS[name](FixedGrid(HORIZON, 4))
    policy.select(contexts()[:7])
    policy.save(tmp_path / "p")
    again = rarely.load(tmp_path / "p")
    assert again.due
    with pytest.raises(UpdateDue):
        again.select(contexts(), until_due=True)


@everyone
def test_saving_changes_nothing(name, tmp_path):
    policy = MAKERS[name]()
    play(policy, contexts()[:9])
    before = fingerprint(policy)
    policy.save(tmp_path / "a")
    assert fingerprint(policy) == before
