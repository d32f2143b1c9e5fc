"""What goes into a log comes out of it, or is refused aloud."""

import copy
import dataclasses

import numpy as np
import pytest

from rarely import (
    ArmBlocks,
    ConflictingReward,
    InvalidContexts,
    InvalidInput,
    InvalidReward,
    Uniform,
    UnknownRound,
    WrongDecision,
)
from rarely.offpolicy import DecisionLog, InvalidLog, snips
from worlds import contexts as stream
from worlds import small

ROUNDS = stream(rounds=6)


def recorded(**settings):
    policy, log = Uniform(2, seed=1), DecisionLog()
    decision = policy.select(ROUNDS)
    log.record(ROUNDS, decision, **settings)
    return log, decision


def test_a_log_holds_what_the_policy_decided():
    policy, log = Uniform(2, seed=1), DecisionLog()
    block = policy.select(ROUNDS[:4])
    log.record(ROUNDS[:4], block)
    single = policy.select(ROUNDS[4])
    log.record(ROUNDS[4], single)
    log.observe(single, 7.0)
    log.observe(rounds=[2, 1], rewards=[2.0, 1.0])
    assert log.arms.tolist() == [*block.arm, single.arm]
    assert log.rounds.tolist() == [1, 2, 3, 4, 5]
    assert log.versions.tolist() == [0] * 5
    np.testing.assert_array_equal(log.contexts, ROUNDS[:5])
    np.testing.assert_array_equal(log.probabilities, np.vstack([block.probabilities, single.probabilities]))
    np.testing.assert_array_equal(log.propensities, [*block.propensity, single.propensity])
    np.testing.assert_array_equal(log.rewards, [1.0, 2.0, np.nan, np.nan, 7.0])
    assert log.observed.tolist() == [0, 1, 4]
    assert log.present.all()
    assert log.rows is None
    assert repr(log) == "<DecisionLog: 5 rounds, 2 rewards missing>"


def test_block_by_block_and_round_by_round_are_one_log():
    block, decision = recorded()
    single = DecisionLog()
    for t in range(6):
        single.record(ROUNDS[t], decision[t])
    for name in ("arms", "rounds", "versions", "contexts", "probabilities", "propensities"):
        np.testing.assert_array_equal(getattr(block, name), getattr(single, name))


def test_rounds_may_be_recorded_in_any_order_and_come_out_in_theirs():
    _, decision = recorded()
    log = DecisionLog()
    log.record(ROUNDS[3:], decision[3:])
    log.record(ROUNDS[:3], decision[:3])
    log.observe(decision, np.arange(6.0))
    assert log.rounds.tolist() == [4, 5, 6, 1, 2, 3]
    assert log.rewards[log.observed].tolist() == [0, 1, 2, 3, 4, 5]


def test_absent_arms_are_known_from_the_decision():
    mask = np.array([[True, False, True], [False, True, True]])
    holes = np.where(mask[..., None], ROUNDS[:2], np.nan)
    policy = Uniform(2, seed=1)
    masked, listed = DecisionLog(), DecisionLog()
    decision = policy.select(holes, mask)
    masked.record(holes, decision)
    listed.record(list(holes), decision)
    for log in (masked, listed):
        np.testing.assert_array_equal(log.present, mask)
        np.testing.assert_array_equal(log.contexts, holes)
        np.testing.assert_array_equal(policy.probabilities(log.contexts, mask=log.present), log.probabilities)


def test_ragged_rounds_and_slices_of_them_fit_one_log():
    ragged = [ROUNDS[0, :1], ROUNDS[1], ROUNDS[2, :2]]
    policy, log = Uniform(2, seed=1), DecisionLog()
    decision = policy.select(ragged)
    log.record(ragged[:1], decision[:1])
    log.record(ragged[1:], decision[1:])
    assert log.present.sum(axis=1).tolist() == [1, 3, 2]
    np.testing.assert_array_equal(log.contexts[2, :2], ragged[2])
    assert np.isnan(log.contexts[2, 2]).all()


def test_rounds_of_more_arms_widen_the_log():
    policy, log = Uniform(2, seed=1), DecisionLog()
    for arms in (2, 3):
        log.record(ROUNDS[:1, :arms], policy.select(ROUNDS[:1, :arms]))
    assert log.present.tolist() == [[True, True, False], [True, True, True]]
    assert log.probabilities[0].tolist() == [0.5, 0.5, 0.0]


def test_shared_rows_are_kept():
    rows = np.random.default_rng(0).normal(size=(5, 2))
    blocks = ArmBlocks.fit(rows, arms=3)
    policy, log = Uniform(blocks.dim, seed=0), DecisionLog()
    log.record(blocks(rows[:4]), policy.select(blocks(rows[:4])), rows=rows[:4])
    log.record(blocks(rows[4]), policy.select(blocks(rows[4])), rows=rows[4])
    np.testing.assert_array_equal(log.rows, rows)


def test_decisions_until_due_are_recorded_with_their_own_rounds():
    policy, log, many = small(), DecisionLog(), stream(rounds=12)
    decision = policy.select(many, until_due=True)
    with pytest.raises(InvalidLog, match=r"contexts\[:len\(decision\)\]"):
        log.record(many, decision)
    log.record(many[: len(decision)], decision)
    assert len(log) == len(decision) == 6


@pytest.mark.parametrize(
    ("told", "error"),
    [
        (([7], [1.0]), UnknownRound),
        (([1.5], [1.0]), UnknownRound),
        (([1], [np.nan]), InvalidReward),
        (([1, 2], [1.0]), InvalidReward),
        (([1], ["much"]), InvalidReward),
        (([2], [3.0]), ConflictingReward),
        (([1, 1], [3.0, 4.0]), ConflictingReward),
    ],
)
def test_a_wrong_reward_is_refused_as_by_a_policy_and_nothing_is_kept(told, error):
    log, _ = recorded()
    log.observe(rounds=[2], rewards=[2.0])
    with pytest.raises(error):
        log.observe(rounds=told[0], rewards=told[1])
    assert log.missing == 5
    log.observe(rounds=[2], rewards=[2.0])


def changed(decision, **fields):
    return dataclasses.replace(decision, **fields)


@pytest.mark.parametrize("numbers", [[1, 2], np.array([1, 2]), 1, "first", 2.0])
def test_numbers_for_a_decision_are_refused_with_what_to_do(numbers):
    log, decision = recorded()
    with pytest.raises(InvalidInput, match=r"observe\(rounds=\[…\], rewards=\[…\]\)"):
        log.observe(numbers, [1.0, 2.0])
    with pytest.raises(InvalidInput, match="are not arms"):
        log.observe(decision.arm, np.ones(6))
    assert log.missing == 6


def test_a_reward_is_told_for_a_decision_or_for_rounds():
    log, decision = recorded()
    with pytest.raises(InvalidInput, match="either a decision"):
        log.observe(decision, np.ones(6), rounds=[1, 2, 3, 4, 5, 6])
    with pytest.raises(InvalidInput, match="either a decision"):
        log.observe(rewards=[1.0])
    with pytest.raises(InvalidReward, match="needs rewards"):
        log.observe(decision)
    log.observe(rounds=3, rewards=1.0)
    log.observe(rounds=[3, 3, 4], rewards=[1.0, 1.0, 2.0])
    assert log.rewards[2:4].tolist() == [1.0, 2.0]
    assert log.missing == 4


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"arm": lambda d: (d.arm + 1) % 3}, "the arm on record for round 3 is"),
        ({"version": lambda d: d.version + 1}, "the version on record for round 3 is 0, and this decision has 1"),
        ({"probabilities": lambda d: np.full((2, 3), 0.25)}, r"probability of the arm on record .* has 0\.25"),
        ({"arm": lambda d: np.full(2, 7)}, "has 7"),
    ],
)
def test_a_decision_that_is_not_on_record_gets_no_reward(fields, message):
    log, decision = recorded()
    part = decision[2:4]
    other = changed(part, **{name: make(part) for name, make in fields.items()})
    with pytest.raises(WrongDecision, match=message):
        log.observe(other, [1.0, 2.0])
    assert log.missing == 6
    log.observe(part, [1.0, 2.0])
    with pytest.raises(UnknownRound, match="round 9 is not in the log"):
        log.observe(changed(part, round=np.array([3, 9])), [1.0, 2.0])


def test_after_a_restart_the_lost_decisions_get_no_reward():
    """Saved, decided, crashed and loaded: the new rounds have the numbers of the lost ones."""
    lost = Uniform(2, seed=1).select(ROUNDS)
    log = DecisionLog()
    again = Uniform(2, seed=2).select(ROUNDS)
    log.record(ROUNDS, again)
    assert not np.array_equal(lost.arm, again.arm)
    with pytest.raises(WrongDecision, match="decided that round again"):
        log.observe(lost, np.ones(6))
    assert log.missing == 6


MASKED = np.ma.masked_array([0, 1, 0, 1, 0, 1], mask=[1, 0, 0, 0, 0, 0])
ODD = {"complex": np.ones(6) + 1j, "masked": MASKED, "object": np.array([object()] * 6), "text": ["0"] * 6}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize(
    ("name", "error"), [("rewards", InvalidReward), ("arms", InvalidLog), ("propensities", InvalidLog)]
)
def test_odd_arrays_are_no_columns_of_a_log(name, error, kind):
    given = {"contexts": ROUNDS, "arms": [0] * 6, "rewards": [1.0] * 6, "propensities": [0.5] * 6} | {name: ODD[kind]}
    with pytest.raises(error, match=f"{name} must"):
        DecisionLog.from_arrays(**given)


@pytest.mark.parametrize("kind", ODD)
def test_odd_arrays_are_no_rewards_rounds_or_rows(kind):
    log, decision = recorded()
    with pytest.raises(InvalidReward, match="rewards must"):
        log.observe(decision, ODD[kind])
    with pytest.raises(UnknownRound, match="rounds must"):
        log.observe(rounds=ODD[kind], rewards=np.ones(6))
    with pytest.raises(InvalidContexts, match="rows must"):
        DecisionLog().record(ROUNDS, decision, rows=np.ma.atleast_2d(ODD[kind]).T if kind == "masked" else ODD[kind])
    for name in ("arm", "version", "round"):
        with pytest.raises(InvalidLog, match=f"{name} of a decision must"):
            DecisionLog().record(ROUNDS, changed(decision, **{name: ODD[kind]}))
    chances = decision.probabilities
    odd = {"complex": chances + 1j, "masked": np.ma.masked_less(chances, 2.0), "object": chances.astype(object) + 1j}
    with pytest.raises(InvalidLog, match="probabilities of a decision must"):
        DecisionLog().record(ROUNDS, changed(decision, probabilities=odd.get(kind, "text")))
    assert log.missing == 6


@pytest.mark.parametrize("rounds", [[1.0], [[1]], np.array([2**64 - 1], np.uint64)])
def test_rounds_are_whole_numbers(rounds):
    log, _ = recorded()
    with pytest.raises(UnknownRound, match="whole numbers in one dimension"):
        log.observe(rounds=rounds, rewards=[1.0])


@pytest.mark.parametrize(
    "fields", [{"arm": np.zeros(5, int)}, {"version": 0}, {"round": [1]}, {"probabilities": np.ones(6)}]
)
def test_a_decision_has_as_many_of_everything(fields):
    _, decision = recorded()
    with pytest.raises(InvalidLog, match="one arm, version and round for each"):
        DecisionLog().record(ROUNDS, changed(decision, **fields))


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"probabilities": np.full((6, 3), 0.5)}, InvalidLog, "sum to 1"),
        ({"probabilities": np.full((6, 3), np.nan)}, InvalidLog, "at least 0"),
        ({"probabilities": np.array([[1.5, -0.5, 0.0]] * 6)}, InvalidLog, "at least 0"),
        ({"probabilities": np.full((6, 2), 0.5)}, InvalidLog, "for each arm"),
        ({"probabilities": np.eye(3)[[0] * 6], "arm": np.full(6, 2)}, InvalidLog, "positive probability"),
        ({"arm": np.full(6, 3)}, InvalidLog, "positive probability"),
        ({"round": np.full(6, 1)}, InvalidLog, "round 1 came twice"),
        ({"round": np.arange(5, 11)}, InvalidLog, "round 5 came twice"),
    ],
)
def test_a_decision_that_cannot_be_is_refused_and_nothing_is_kept(fields, error, message):
    log, decision = recorded()
    later = changed(decision, **({"round": decision.round + 6} | fields))
    with pytest.raises(error, match=message):
        log.record(ROUNDS, later)
    assert len(log) == 6
    log.record(ROUNDS, changed(decision, round=decision.round + 6))
    assert len(log) == 12


def test_contexts_of_another_shape_are_refused():
    _, decision = recorded()
    log = DecisionLog()
    with pytest.raises(InvalidLog, match="6 rounds of 3 arms; got 5 rounds of 3"):
        log.record(ROUNDS[:5], decision)
    with pytest.raises(InvalidLog, match="got 6 rounds of 2"):
        log.record(ROUNDS[:, :2], decision)
    with pytest.raises(InvalidContexts, match="what select was given"):
        log.record(3.0, decision)
    with pytest.raises(InvalidContexts, match="finite"):
        log.record(np.full((6, 3, 2), np.inf), decision)
    with pytest.raises(InvalidInput, match="the decision that select gave"):
        log.record(ROUNDS, [1] * 6)
    log.record(ROUNDS[:3], decision[:3])
    with pytest.raises(InvalidContexts):
        log.record(ROUNDS[3:, :, :1], decision[3:])
    assert len(log) == 3


def test_rows_come_with_every_decision_or_with_none():
    log, decision = recorded(rows=np.ones((6, 1)))
    later = changed(decision, round=decision.round + 6)
    for rows, error in [
        (None, InvalidLog),
        (np.ones((6, 2)), InvalidContexts),
        (np.full((6, 1), np.nan), InvalidContexts),
    ]:
        with pytest.raises(error):
            log.record(ROUNDS, later, rows=rows)
    with pytest.raises(InvalidContexts):
        DecisionLog().record(ROUNDS, decision, rows=np.ones((5, 1)))
    assert len(log) == 6


def test_a_log_from_arrays_is_the_log_of_those_decisions():
    log, decision = recorded(rows=np.arange(6.0)[:, None])
    rewards = np.array([1.0, np.nan, 3.0, 4.0, np.nan, 6.0])
    log.observe(decision[[0, 2, 3, 5]], rewards[[0, 2, 3, 5]])
    settings = {"probabilities": decision.probabilities, "rows": np.arange(6.0)[:, None]}
    made = DecisionLog.from_arrays(ROUNDS, decision.arm, rewards, **settings)
    for name in ("arms", "rounds", "rewards", "rows", "contexts", "probabilities", "present", "observed"):
        np.testing.assert_array_equal(getattr(made, name), getattr(log, name))
    assert made.versions.tolist() == [-1] * 6


def test_propensities_alone_say_of_other_arms_only_what_follows():
    mask = np.array([[True, True, True], [True, False, True], [False, True, False]])
    log = DecisionLog.from_arrays(ROUNDS[:3], [0, 2, 1], np.zeros(3), propensities=[0.5, 0.9, 1.0], mask=mask)
    nan = np.nan
    np.testing.assert_allclose(log.probabilities, [[0.5, nan, nan], [0.1, 0.0, 0.9], [0.0, 1.0, 0.0]])
    np.testing.assert_array_equal(log.present, mask)
    ragged = DecisionLog.from_arrays([ROUNDS[0], ROUNDS[1, :2]], [0, 1], np.zeros(2), propensities=[0.5, 0.7])
    np.testing.assert_allclose(ragged.probabilities, [[0.5, nan, nan], [0.3, 0.7, 0.0]])
    rows = DecisionLog.from_arrays(
        arms=[0, 2, 1], rewards=np.zeros(3), propensities=[0.5, 1.0, 0.1], rows=np.ones((3, 1)), arm_count=3
    )
    np.testing.assert_array_equal(rows.probabilities, [[0.5, nan, nan], [0.0, 0.0, 1.0], [nan, 0.1, nan]])


def test_a_bad_propensity_is_named_with_its_row():
    given = {"contexts": ROUNDS, "arms": [0] * 6, "rewards": [1.0] * 6}
    for bad in (1.3, 0.0, -0.5, np.nan):
        with pytest.raises(InvalidLog, match=rf"that of round 3 \(row 2\) is {bad}\."):
            DecisionLog.from_arrays(**given, propensities=[0.5, 0.5, bad, 0.5, 0.5, 0.5])
    with pytest.raises(InvalidLog, match="and 1 more are wrong"):
        DecisionLog.from_arrays(**given, propensities=[0.5, 0.5, 2.0, 0.5, 0.5, 2.0])
    with pytest.raises(InvalidReward, match="that of round 2 is not"):
        DecisionLog.from_arrays(**given | {"rewards": [1.0, np.inf, 1.0, 1.0, 1.0, 1.0]})
    with pytest.raises(InvalidContexts, match="row 1 "):
        DecisionLog.from_arrays(rows=[[1.0], [np.nan]], arm_count=2)
    chances = np.full((6, 3), 1 / 3)
    chances[4] = [1.5, -0.5, 0.0]
    with pytest.raises(InvalidLog, match=r"those of round 5 are \[1.5, -0.5, 0.0\]"):
        DecisionLog.from_arrays(**given, probabilities=chances)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"contexts": ROUNDS[0]}, InvalidLog, r"\(n, K, d\)"),
        ({"arms": ["a"] * 6}, InvalidLog, "return_inverse"),
        ({"arms": [0] * 5}, InvalidLog, "whole number"),
        ({"arms": [3] * 6}, InvalidLog, "round 1 has 3"),
        ({"rewards": [1.0] * 5}, InvalidReward, "one number a round"),
        ({"rewards": [np.inf] * 6}, InvalidReward, "finite"),
        ({"rewards": np.inf}, InvalidReward, "one number a round"),
        ({"arm_names": None}, InvalidInput, "arm_names must be a list of texts"),
        ({"names": 5}, InvalidInput, "names must be a list of texts"),
        ({"names": "ab"}, InvalidInput, "names must be a list of texts"),
        ({"arm_count": np.ones(2)}, InvalidInput, "arm_count must be a whole number"),
        ({"propensities": [0.0] * 6}, InvalidLog, "above 0"),
        ({"propensities": [1.1] * 6}, InvalidLog, "at most 1"),
        ({"propensities": [0.5] * 5}, InvalidLog, "each round"),
        ({"probabilities": np.full((6, 3), 1 / 3)}, InvalidLog, "either"),
        ({"propensities": [0.5] * 6, "mask": np.eye(3, dtype=bool)[[0] * 6]}, InvalidLog, "sum to 1"),
    ],
)
def test_arrays_that_are_no_log_are_refused(change, error, message):
    given = {"contexts": ROUNDS, "arms": [0] * 6, "rewards": [1.0] * 6, "propensities": [0.5] * 6} | change
    with pytest.raises(error, match=message):
        DecisionLog.from_arrays(**given)


def test_overridden_rounds_have_no_reward_take_none_and_are_left_out_with_a_note():
    policy, log, rng = Uniform(dim=1, seed=0), DecisionLog(), np.random.default_rng(0)
    contexts = rng.normal(size=(60, 2, 1))
    decision = policy.select(contexts)
    log.record(contexts, decision)
    log.observe(decision[:50], rng.random(50))
    plain = np.delete(np.arange(60), [3, 4, 55])
    alone = DecisionLog()
    alone.record(contexts[plain], decision[plain])
    alone.observe(decision[plain][:48], log.rewards[plain][:48])
    log.override(decision[3:5], reason="an allergy")
    log.override(rounds=[56], reason="a complaint")
    assert log.overrides == {4: "an allergy", 5: "an allergy", 56: "a complaint"}
    found, wanted = snips(log, [1] * 60), snips(alone, [1] * 57)
    assert (found.value, found.low, found.rounds) == (wanted.value, wanted.low, 48)
    assert "12 of 60 rounds have no reward and are left out; in 3 of them a person gave another arm" in found.note
    with pytest.raises(InvalidLog, match="a person gave another arm in round 56, which takes no reward"):
        log.observe(decision[50:], np.zeros(10))
    for wrong in ({"rounds": [99], "reason": "x"}, {"rounds": [1], "reason": ""}, {"rounds": [1], "reason": None}):
        with pytest.raises(InvalidLog, match="an override needs rounds of the log and a reason"):
            log.override(**wrong)
    assert len(log.overrides) == 3
    assert copy.copy(log).overrides == log.overrides
