"""The life of a policy: what `Policy` itself does for every kind, whatever its learner and its rule of choice."""

import numpy as np
import pytest

from rarely import (
    AtRounds,
    Budget,
    BudgetSpent,
    ConflictingReward,
    EveryRound,
    FixedGrid,
    InvalidContexts,
    InvalidInput,
    InvalidReward,
    NothingToLearn,
    NothingToLearnWarning,
    UnknownRound,
    UpdateDue,
    load,
)
from worlds import HORIZON, MAKERS, contexts, play, rewards

pytestmark = pytest.mark.parametrize("name", MAKERS)


def refused(policy, error, call, *args, **named):
    before = policy.fingerprint()
    with pytest.raises(error):
        call(*args, **named)
    assert policy.fingerprint() == before


def test_a_decision_slices_into_decisions(name):
    many = MAKERS[name]().select(contexts()[:5])
    assert len(many) == 5
    assert (many[2].arm, many[2].round) == (int(many.arms[2]), 3)
    assert many[1:3].rounds.tolist() == [2, 3]
    assert many[np.array([4, 0])].rounds.tolist() == [5, 1]
    with pytest.raises(TypeError):
        len(many[0])
    with pytest.raises(TypeError):
        many[0][0]


def test_rewards_that_never_come_are_ordinary(name):
    policy, rounds = MAKERS[name](FixedGrid(8, 3)), contexts()
    for t in range(8):
        policy.select(rounds[t])
        before = policy.score(rounds[0]).means
        if policy.due:
            with pytest.warns(NothingToLearnWarning):
                record = policy.update()
            assert (record.accepted, record.version, policy.due) == (False, 0, False)
            assert record.reason
            np.testing.assert_array_equal(policy.score(rounds[0]).means, before)
    assert (policy.missing, len(policy.updates)) == (8, 2)


def test_an_update_with_nothing_to_learn_from_is_refused(name):
    policy = MAKERS[name](FixedGrid(HORIZON, 4))
    refused(policy, NothingToLearn, policy.update)
    decision = policy.select(contexts()[:2])
    policy.observe(decision, [0.0, 1.0])
    policy.update()
    policy.observe(decision, [0.0, 1.0])
    refused(policy, NothingToLearn, policy.update)
    assert policy.update(force=True).version == 2


def test_a_reward_told_twice_is_ignored_and_another_one_refused(name):
    policy = MAKERS[name]()
    decision = policy.select(contexts()[:2])
    policy.observe(decision[0], 1.0)
    refused(policy, ConflictingReward, policy.observe, rounds=[2, 2], rewards=[1.0, 4.0])
    policy.observe(rounds=[2, 2], rewards=[2.0, 2.0])
    before = policy.fingerprint()
    policy.observe(decision, [1.0, 2.0])
    assert policy.fingerprint() == before
    refused(policy, ConflictingReward, policy.observe, decision, [1.0, 3.0])
    refused(policy, ConflictingReward, policy.observe, rounds=[1, 1], rewards=[1.0, 4.0])


def test_more_batches_than_rounds_are_ordinary(name):
    """A grid of more batches than rounds has a version for each round, and a horizon is not the end."""
    play(policy := MAKERS[name](FixedGrid(5, 50)), contexts()[:5])
    assert policy.version == 4
    play(later := MAKERS[name](FixedGrid(8, 2)), contexts()[:12])
    assert (later.round, later.version) == (12, 1)


def test_an_early_update_spends_a_version(name):
    policy, rounds = MAKERS[name](FixedGrid(HORIZON, 3)), contexts()
    policy.observe(policy.select(rounds[:2]), [0.0, 1.0])
    assert (policy.due, policy.update().version) == (False, 1)
    policy.observe(policy.select(rounds[2:8]), np.arange(6.0))
    assert policy.due
    policy.update()
    policy.select(rounds[8:])
    assert not policy.due


def test_due_latches(name):
    """`due` stays true until `update`, and a late update does not shift the schedule."""
    policy, rounds = MAKERS[name](FixedGrid(24, 6)), contexts()
    policy.select(rounds[:4])
    assert policy.due
    policy.select(rounds[4])
    assert policy.due
    policy.observe(policy.select(rounds[5:11]), np.arange(6.0))
    assert policy.due
    policy.update()
    assert not policy.due
    policy.select(rounds[11])
    assert policy.due


def test_until_due_stops_with_the_round_that_ends_the_batch(name):
    policy, rounds = MAKERS[name](FixedGrid(24, 4)), contexts()
    assert len(policy.select(rounds, until_due=True)) == 6
    refused(policy, UpdateDue, policy.select, rounds, until_due=True)
    policy.observe(rounds=np.arange(1, 7), rewards=np.arange(6.0))
    policy.update()
    assert len(policy.select(rounds[:3], until_due=True)) == 3
    assert not policy.due
    assert len(policy.select(rounds, until_due=True)) == 3


def test_a_budget_can_be_extended(name):
    """`extend_budget` allows as many more versions, with the reason on record, and changes no decision."""
    policy, rounds = MAKERS[name](Budget(EveryRound(), 2)), contexts()
    play(policy, rounds[:6])
    assert (policy.version, policy.versions_left) == (1, 0)
    policy.observe(policy.select(rounds[6]), 0.5)
    refused(policy, BudgetSpent, policy.update)
    refused(policy, InvalidInput, policy.extend_budget, 1, reason=" ")
    before = policy.score(rounds[8])
    policy.extend_budget(2, reason="two more")
    assert (policy.versions_left, policy.events[-1].reason) == (2, "two more")
    np.testing.assert_array_equal(policy.score(rounds[8]).bonuses, before.bonuses)
    assert (policy.update().version, policy.versions_left) == (2, 1)


def test_a_batch_that_has_ended_is_due_after_a_file(name, tmp_path):
    policy = MAKERS[name](FixedGrid(HORIZON, 4))
    policy.select(contexts()[:7])
    policy.save(tmp_path / "policy.rarely")
    again = load(tmp_path / "policy.rarely")
    assert again.due
    refused(again, UpdateDue, again.select, contexts(), until_due=True)


def test_fewer_arms_are_a_padded_block(name):
    """A list of rounds with different numbers of arms is decided as the padded block with a mask."""
    rounds, mask = contexts()[:3], np.array([[True, True, False], [True, True, True], [True, False, False]])
    ragged, padded = MAKERS[name](), MAKERS[name]()
    one = ragged.select([rounds[0, :2], rounds[1], rounds[2, :1]])
    other = padded.select(np.where(mask[:, :, None], rounds, np.nan), mask)
    for each in ("arms", "means", "bonuses", "probabilities"):
        np.testing.assert_array_equal(getattr(one, each), getattr(other, each))
    assert ragged.log_det == padded.log_det


def test_errors_change_nothing(name):
    policy, x = MAKERS[name](FixedGrid(HORIZON, 4)), contexts()[0]
    play(policy, contexts()[:8])
    decision = policy.select(contexts()[:2])
    wider, holed, endless = np.hstack((x, x)), x.copy(), x.copy()
    holed[1, 0], endless[0, -1] = np.nan, np.inf
    shapes = ((2,), (1, 1, 1, 2), (0, 2), (0, 3, 2))
    for bad in (holed, endless, wider, "contexts", [], [x, wider], [x, holed], *map(np.zeros, shapes)):
        refused(policy, InvalidContexts, policy.select, bad)
    refused(policy, InvalidContexts, policy.score, holed)
    for mask in ([True, True], [1, 1, 0], [False] * 3):
        refused(policy, InvalidContexts, policy.select, x, mask)
    refused(policy, InvalidContexts, policy.select, [x, x[:2]], [[True] * 3] * 2)
    for bad in ([1.0, np.nan], [1.0, -np.inf], 1.0, "much"):
        refused(policy, InvalidReward, policy.observe, decision, bad)
    for rounds, values in ((0, 1.0), ([1, 99], [1.0, 1.0]), (1.5, 1.0)):
        refused(policy, UnknownRound, policy.observe, rounds=rounds, rewards=values)
    refused(policy, InvalidInput, policy.observe, rewards=1.0)


def test_a_late_reward_enters_at_the_next_update(name):
    policy, rounds = MAKERS[name](AtRounds([4, 8])), contexts()
    first = policy.select(rounds[:4])
    policy.observe(first[:3], [0.1, 0.2, 0.3])
    assert policy.update().samples == 3
    second = policy.select(rounds[4:8])
    policy.observe(first[3], 5.0)
    policy.observe(second, [0.4, 0.5, 0.6, 0.7])
    assert (policy.update().samples, policy.missing) == (8, 0)


def test_history_and_updates_say_what_happened(name):
    policy, rounds = MAKERS[name](FixedGrid(HORIZON, 4)), contexts()
    arms = play(policy, rounds)
    history = policy.history
    assert history.arms.tolist() == arms.tolist()
    np.testing.assert_array_equal(history.contexts, rounds[np.arange(HORIZON), arms])
    np.testing.assert_array_equal(history.rewards, rewards(history.contexts))
    np.testing.assert_array_equal(history.versions, np.repeat([0, 1, 2, 3], 6))
    assert [(u.round, u.version) for u in policy.updates] == [(6, 1), (12, 2), (18, 3)]
    assert all(u.accepted and not u.reason for u in policy.updates)
    with pytest.raises(ValueError, match="read-only"):
        history.rewards[0] = 1.0
