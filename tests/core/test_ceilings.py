"""Ceilings, floors, caps, holdouts and sticky arms: kept, on record, and the same after a file."""

import copy
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rarely
from effort import MANY
from rarely import (
    BatchNeuralUCB,
    Ceiling,
    EveryRound,
    FixedGrid,
    FramePolicy,
    LinTS,
    LinUCB,
    Mixture,
    OnDemand,
    Paced,
    Shares,
    Worth,
)
from rarely._core import native
from rarely.errors import CeilingReached, InvalidInput, InvalidReward, InvalidWorth, ScheduleWarning
from rarely.extend.provisional import LiveCopy, VersionFunction

D, K = 2, 3
MAKERS = {
    "ucb": lambda s, **a: LinUCB(D, Paced(200, 5), seed=s, **a),
    "epsilon": lambda s: LinUCB(D, Paced(200, 5), exploration=Mixture(0.1), seed=s),
    "thompson": lambda s: LinTS(D, Paced(200, 5), seed=s),
    "default": lambda s: BatchNeuralUCB(D, Paced(200, 5), seed=s),
}


def played(policy, draw, rounds=200, factor=1.0, block=1):
    """Return what was spent, and the decisions; arms of more worth cost more."""
    decisions, costs, total = [], factor * np.array([0.0, 0.5, 1.0]), 0.0
    for _ in range(rounds // block):
        contexts = draw.normal(size=(block, K, D)) if block > 1 else draw.normal(size=(K, D))
        spends = costs * draw.uniform(0.5, 1.5)
        decision = policy.select(contexts, worth=Worth(spends=spends))
        total += float(spends[decision.arms].sum())
        policy.observe(decision, decision.arms * 0.4 + draw.normal(size=block))
        decisions.append(decision)
        if policy.due:
            policy.update()
    return total, decisions


@pytest.mark.parametrize("name", MAKERS)
@settings(max_examples=max(3, settings.default.max_examples // 5))
@given(seed=st.integers(0, 99), total=st.floats(1.6, 400))
def test_a_ceiling_of_known_costs_is_never_exceeded_and_nearly_spent(name, seed, total):
    policy = MAKERS[name](seed).under(Ceiling(total))
    spent, decisions = played(policy, np.random.default_rng(seed))
    assert spent <= total * (1 + 1e-9)
    assert policy.spent == pytest.approx(spent)
    for decision in decisions:
        assert decision.price >= 0
        assert decision.probabilities.sum() == pytest.approx(1)
        assert decision.worth.spends.shape == (K,)


@pytest.mark.parametrize("total", [20.0, 50.0, 90.0])
def test_what_helps_is_spent(total):
    policy = LinUCB(D, Paced(1000, 10), seed=0).under(Ceiling(5 * total))
    spent, _ = played(policy, np.random.default_rng(1), 1000)
    assert spent >= 0.97 * 5 * total


@pytest.mark.parametrize("name", ["ucb", "epsilon", "thompson"])
def test_the_probabilities_on_record_are_those_at_the_price_on_record(name):
    policy, draw = MAKERS[name](3).under(Ceiling(40.0)), np.random.default_rng(3)
    played(policy, draw, 90)
    bare = MAKERS[name](3)
    for _ in range(20):
        contexts, spends = draw.normal(size=(K, D)), draw.uniform(0, 0.3, K)
        bare._state = rarely._core.growable_array.changed(policy._state, ledger=None)
        told = policy.probabilities(contexts, worth=Worth(2.0, 0.1, spends=spends))
        price = policy.price
        plain = bare.probabilities(contexts, worth=Worth(2.0, 0.1 + price * spends))
        decision = policy.select(contexts, worth=Worth(2.0, 0.1, spends=spends))
        np.testing.assert_allclose(told, plain, atol=1e-12)
        np.testing.assert_allclose(decision.probabilities, plain, atol=1e-12)
        assert decision.price == price
        np.testing.assert_array_equal(decision.worth.cost, np.full(K, 0.1))


def test_a_block_and_single_rounds_spend_alike():
    one, other = (MAKERS["ucb"](4).under(Ceiling(30.0)) for _ in range(2))
    draw = np.random.default_rng(4)
    contexts, spends = draw.normal(size=(40, K, D)), draw.uniform(0, 1, (40, K))
    block = one.select(contexts, worth=Worth(spends=spends))
    singles = [other.select(contexts[i], worth=Worth(spends=spends[i])) for i in range(40)]
    assert block.arm.tolist() == [each.arm for each in singles]
    assert block.price.tolist() == [each.price for each in singles]
    assert one.spent == other.spent
    assert block[3].reason == singles[3].reason


def test_a_period_begins_with_the_whole_ceiling():
    policy = LinUCB(D, OnDemand(), seed=0).under(Ceiling(3.0, per=10))
    arms = [policy.select(np.ones((2, D)), worth=Worth(spends=[0.0, 1.0], gain=[0.0, 1.0])).arm for _ in range(35)]
    for start in range(0, 35, 10):
        assert sum(arms[start : start + 10]) <= 3
    assert sum(arms[:10]) == 3


@pytest.mark.parametrize("wait", [0, 5])
def test_a_ceiling_of_learned_costs_is_exceeded_by_one_round_at_most(wait):
    policy, draw, total = (
        LinUCB(D, Paced(400, 8), seed=0).under(Ceiling(60.0, costs="learned")),
        np.random.default_rng(0),
        0.0,
    )
    waiting, largest, arms = [], 0.0, np.eye(2)
    for t in range(400):
        try:
            decision = policy.select(arms, worth=Worth([0.2, 1.0]))
        except CeilingReached:
            break
        waiting.append(decision)
        if len(waiting) > wait:
            told = waiting.pop(0)
            cost = float(draw.uniform(0.8, 1.2) * (0.1 + 0.9 * told.arm))
            total, largest, rounds = total + cost, max(largest, cost), t
            policy.observe(told, float(told.arm), costs=cost)
        if policy.due and t > wait:
            policy.update()
    assert total <= 60.0 + largest
    assert total >= 0.97 * 60.0 - wait * largest
    assert policy.spent == pytest.approx(total)
    assert rounds > 300 or wait


@pytest.mark.parametrize(("reward", "cost"), [(np.nan, 1.0), ("much", 1.0), (1.0, -1.0), (1.0, np.inf)])
def test_a_call_with_a_bad_reward_or_cost_records_neither(reward, cost):
    policy = LinUCB(D, FixedGrid(400, 4), seed=0).under(Ceiling(1e6, costs="learned"))
    decision = policy.select(np.eye(K, D))
    before = policy.fingerprint()
    with pytest.raises(InvalidReward):
        policy.observe(decision, reward, costs=cost)
    assert policy.fingerprint() == before
    policy.observe(decision, 1.0, costs=2.0)
    assert (policy.spent, policy.missing) == (2.0, 0)


def test_costs_that_were_learned_are_those_that_were_told():
    policy, draw = LinUCB(D, FixedGrid(400, 4), seed=0).under(Ceiling(1e6, costs="learned")), np.random.default_rng(0)
    for _ in range(100):
        decision = policy.select(contexts := draw.normal(size=(K, D)))
        policy.observe(decision, 0.0, costs=6.0 + float(contexts[decision.arm, 0]))
    policy.update()
    decision = policy.select(np.array([[0.0, 0.0], [1.0, 0.0], [-1.0, 2.0]]))
    np.testing.assert_allclose(decision.worth.spends, [6, 7, 5], atol=0.05)


def test_floors_leave_each_arm_its_share():
    policy = LinTS(D, OnDemand(), seed=0).under(Shares(floors={0: 0.1, 2: 0.25}))
    bare, contexts = LinTS(D, OnDemand(), seed=0), np.random.default_rng(0).normal(size=(K, D))
    expected = np.array([0.1, 0, 0.25]) + 0.65 * bare.probabilities(contexts)
    np.testing.assert_allclose(policy.probabilities(contexts), expected, atol=1e-12)
    np.testing.assert_allclose(policy.select(contexts).probabilities, expected, atol=1e-12)


def test_caps_hold_in_each_period():
    policy = LinUCB(D, OnDemand(), seed=0).under(Shares(caps={1: 2}, period=10))
    arms = [policy.select(np.ones((2, D)), worth=[0.0, 1.0]) for _ in range(30)]
    assert [sum(each.arm for each in arms[start : start + 10]) for start in (0, 10, 20)] == [2, 2, 2]
    assert arms[5].reason == "cap"
    only = LinUCB(D, OnDemand(), seed=0).under(Shares(caps={0: 1}))
    only.select(np.ones((1, D)))
    with pytest.raises(CeilingReached, match="no arm may be shown in round 2: cap left none"):
        only.select(np.ones((1, D)))


def test_a_lot_decides_for_users_that_are_held_out():
    policy = LinUCB(D, OnDemand(), seed=0).under(Shares(holdout=0.3))
    users = [f"user {i}" for i in range(400)]
    decided = {user: policy.select(np.eye(2), user=user) for user in users}
    held = {user for user, each in decided.items() if each.reason == "holdout"}
    assert 0.22 < len(held) / 400 < 0.38
    for user, each in decided.items():
        assert (each.probabilities[0] == 0.5) == (user in held)
        assert (policy.select(np.eye(2), user=user).reason == "holdout") == (user in held)
    other = LinUCB(D, OnDemand(), seed=0).under(Shares(holdout=0.3, salt="b"))
    assert held != {user for user in users if other.select(np.eye(2), user=user).reason == "holdout"}


def test_a_user_keeps_an_arm_for_a_time():
    policy, draw = LinTS(D, OnDemand(), seed=0).under(Shares(sticky=10)), np.random.default_rng(0)
    first = policy.select(draw.normal(size=(K, D)), user="ann")
    for _ in range(9):
        again = policy.select(draw.normal(size=(K, D)), user="ann")
        assert (again.arm, again.reason, again.propensity) == (first.arm, "sticky", 1.0)
    policy.select(draw.normal(size=(K, D)), user="bob")
    assert policy.select(draw.normal(size=(K, D)), user="ann").reason == ""
    gone = policy.select(draw.normal(size=(K, D)), np.arange(K) != first.arm, user="cat")
    assert gone.arm != first.arm


def test_an_undone_round_leaves_no_user_an_arm():
    policy = LinTS(D, OnDemand(), seed=0).under(Shares(sticky=10))
    before = policy._state
    policy.select(np.eye(2), user="ann")
    policy._state = before
    assert policy.select(np.eye(2), user="ann").reason == ""


@pytest.mark.parametrize("maker", [LinUCB, LinTS])
@pytest.mark.parametrize("costs", ["known", "learned"])
def test_rounds_under_a_ceiling_are_decided_in_c_as_plainly(maker, costs):
    if not native.in_use():
        pytest.skip("there are no compiled loops")
    limits = Ceiling(15.0 if costs == "known" else 40.0, costs=costs), Shares(caps={1: 60}, sticky=3)
    one, plain = (maker(D, FixedGrid(80, 4), seed=1).under(*limits) for _ in range(2))
    plain._step, draw = None, np.random.default_rng(1)
    for _ in range(80):
        contexts, user = draw.normal(size=(K, D)), f"u{draw.integers(20)}"
        worth = Worth(spends=[0.0, 0.3, 1.0]) if costs == "known" else None
        made, wanted = (each.select(contexts, worth=worth, user=user) for each in (one, plain))
        assert (made.arm, made.reason) == (wanted.arm, wanted.reason)
        np.testing.assert_allclose(made.probabilities, wanted.probabilities, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose([made.price, one.spent], [wanted.price, plain.spent], rtol=1e-6)
        for each, decision in ((one, made), (plain, wanted)):
            each.observe(decision, float(decision.arm), **({"costs": 0.4} if costs == "learned" else {}))
            if each.due:
                each.update()


@pytest.mark.skipif(not native.in_use(), reason="there are no compiled loops")
@settings(deadline=None, max_examples=12 if MANY else 6)
@given(
    seed=st.integers(0, 99),
    maker=st.sampled_from([LinUCB, LinTS]),
    arms=st.sampled_from([1, 3, 20]),
    per=st.sampled_from(["horizon", 25]),
    rate=st.floats(0.05, 1.0),
)
def test_a_round_like_the_last_one_is_charged_as_plainly(seed, maker, arms, per, rate):
    """`decide_again` reads the ledger in C. The rounds that it refuses, of which there are few, go the plain way."""
    rounds, draw, again = 120 if MANY else 60, np.random.default_rng(seed), 0
    total = rate * (rounds if per == "horizon" else per)
    one, plain = (maker(D, Paced(rounds, 4), seed=seed).under(Ceiling(total, per=per)) for _ in range(2))
    plain._step = None
    for _ in range(rounds):
        contexts, spends = draw.normal(size=(arms, D)), draw.random(arms)
        spends[0] = 0.0
        worth, price, room = Worth(draw.normal(size=arms), 1.0, spends), one.price, (total - one.spent) / 2
        made, wanted = (each.select(contexts, worth=worth) for each in (one, plain))
        again += "worth" not in made.__dict__ or spends.max() > room
        assert (made.arm, made.reason) == (wanted.arm, wanted.reason)
        assert made.price == price
        np.testing.assert_allclose([made.price, one.spent], [wanted.price, plain.spent], rtol=1e-6)
        np.testing.assert_allclose(made.probabilities, wanted.probabilities, rtol=1e-6, atol=1e-9)
        for name in ("gain", "cost", "spends"):
            np.testing.assert_array_equal(getattr(made.worth, name), getattr(wanted.worth, name))
        for each, decision in ((one, made), (plain, wanted)):
            each.observe(decision, float(decision.arm))
            if each.due:
                each.update()
    assert again > rounds / 2
    for mine, theirs in zip(one._state.ledger.recent, plain._state.ledger.recent, strict=True):
        for column, other in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(column, other)


def test_a_round_like_the_last_one_that_is_refused_spends_nothing():
    policy, fits = LinUCB(D, OnDemand(), seed=0).under(Ceiling(50.0, per=100)), Worth(spends=[0.0, 0.5])
    for _ in range(3):
        policy.select(np.eye(2), worth=fits)
    before, price = policy.fingerprint(), policy.price
    for spends in (np.array([np.nan, 1.0]), [0.0, -1.0], np.inf, [0.0, 1.0, 2.0], [99.0, 99.0], None):
        with pytest.raises(InvalidWorth):
            policy.select(np.eye(2), worth=Worth(spends=spends))
        assert (policy.fingerprint(), policy.price) == (before, price)
    with pytest.raises(InvalidWorth):
        policy.select(np.eye(2))
    assert policy.select(np.eye(2), worth=Worth(spends=[0.0, 99.0])).reason == "ceiling"


@pytest.mark.parametrize("costs", ["known", "learned"])
def test_a_file_and_a_copy_go_on_alike(costs, tmp_path):
    limits = Ceiling(50.0, costs=costs), Shares(floors={0: 0.05}, caps={1: 60}, sticky=3, holdout=0.1)
    policy, draw = LinTS(D, Paced(200, 5), seed=1).under(*limits), np.random.default_rng(1)

    def play(policies, rounds):
        for _ in range(rounds):
            contexts, user = draw.normal(size=(K, D)), f"u{draw.integers(20)}"
            worth = Worth(spends=[0.0, 0.3, 1.0]) if costs == "known" else None
            made = [each.select(contexts, worth=worth, user=user) for each in policies]
            for each, decision in zip(policies, made, strict=True):
                told = {"costs": 0.4} if costs == "learned" else {}
                each.observe(decision, float(decision.arm), **told)
                if each.due:
                    each.update()
            assert len({(each.arm, each.price, each.reason) for each in made}) == 1

    play([policy], 60)
    policy.save(tmp_path / "policy.rarely")
    loaded = rarely.load(tmp_path / "policy.rarely")
    assert loaded.fingerprint() == policy.fingerprint()
    play([policy, loaded, copy.deepcopy(policy)], 60)
    assert loaded.fingerprint() == policy.fingerprint()


def test_slates_spend_slot_by_slot():
    policy = LinUCB(D, Paced(100, 5), seed=0).under(Ceiling(1.0))
    slate = policy.select(np.eye(2), worth=Worth(gain=[1.0, 5.0], spends=[0.0, 1.0]), slots=2)
    assert sorted(slate.arm.tolist()) == [0, 1]
    assert policy.spent == 1.0
    slate = policy.select(np.eye(2), np.array([True, True]), worth=Worth(gain=[1.0, 5.0], spends=[0.0, 1.0]))
    assert (slate.arm, slate.reason) == (0, "ceiling")


def test_a_frame_policy_keeps_to_a_ceiling():
    items = [{"price": 1.0, "cost": 0.0}, {"price": 5.0, "cost": 1.0}]
    policy = FramePolicy.fit(LinUCB, items=items, schedule=Paced(20, 2), seed=0).under(Ceiling(5.0))
    arms = [policy.select(items=items, worth=Worth("price", spends="cost")).arm for _ in range(20)]
    assert sum(arms) == 5
    assert isinstance(policy, FramePolicy)


def test_what_does_not_fit_is_refused_and_nothing_recorded():
    contexts = np.eye(2)
    for made, asked, error, says in [
        (Ceiling(5.0), {}, InvalidWorth, "needs what each arm costs"),
        (Ceiling(5.0), {"worth": Worth(spends=[1.0, -1.0])}, InvalidWorth, "spends .* at least 0"),
        (None, {"worth": Worth(spends=1.0)}, InvalidWorth, "for a policy with a ceiling"),
        (Ceiling(5.0), {"worth": Worth(spends=[6.0, 7.0])}, InvalidWorth, "room for one round; its total is 5"),
        (Ceiling(5.0, costs="learned"), {"worth": Worth(spends=1.0)}, InvalidWorth, "learns its costs"),
        (Shares(sticky=3), {}, InvalidInput, "user must be the id of a user"),
        (Shares(sticky=3), {"user": 7}, InvalidInput, "text that is not empty; got 7"),
        (Shares(holdout=0.5), {"user": ""}, InvalidInput, "user must be"),
    ]:
        policy = LinUCB(D, Paced(50, 5), seed=0)
        policy = policy if made is None else policy.under(made)
        before = policy.fingerprint()
        with pytest.raises(error, match=says):
            policy.select(contexts, **asked)
        assert policy.fingerprint() == before
    with pytest.raises(InvalidInput, match="schedule with a horizon"):
        LinUCB(D, EveryRound(), seed=0).under(Ceiling(5.0))
    for bad in ({"total": 0}, {"total": np.nan}, {"total": 1.0, "per": 0}, {"total": 1.0, "costs": "guessed"}):
        with pytest.raises(InvalidInput):
            Ceiling(**bad)
    for bad in ({"floors": {0: 0.7, 1: 0.6}}, {"caps": {0: -1}}, {"holdout": 2}, {"sticky": -1}, {"salt": 3}):
        with pytest.raises(InvalidInput):
            Shares(**bad)
    learned = LinUCB(D, Paced(50, 5), seed=0).under(Ceiling(5.0, costs="learned"))
    decision = learned.select(contexts)
    learned.observe(decision, costs=1.0)
    with pytest.raises(InvalidReward, match="round 1 does not"):
        learned.observe(decision, costs=1.0)
    with pytest.raises(InvalidInput, match="costs='learned'"):
        LinUCB(D, Paced(50, 5), seed=0).observe(decision, costs=1.0)


def test_deciders_that_do_not_know_of_each_other_are_refused():
    policy = LinUCB(D, Paced(50, 5), context_scale=None, seed=0).under(Ceiling(5.0))
    for kind in (LiveCopy, VersionFunction.of):
        with pytest.raises(InvalidInput, match="fleets and campaigns cannot keep to a ceiling"):
            kind(policy)


@pytest.mark.parametrize("policy", [LinUCB, LinTS])
def test_a_ceiling_below_what_every_arm_takes_is_said_once(policy):
    def play(total, costs):
        kept = policy(1, FixedGrid(60, 4), seed=0).under(Ceiling(total))
        for _ in range(30):
            kept.observe(kept.select([[1.0], [2.0]], worth=Worth(spends=costs)), 1.0)
            if kept.due:
                kept.update()

    match = r"3[0-9] is left for 58 rounds, and no arm of the latest 2 takes less than 1, so it lasts for 3[0-9] rounds"
    with pytest.warns(ScheduleWarning, match=match) as said:
        play(40.0, [1.0, 2.0])
    assert len(said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        play(61.0, [1.0, 1.0])
        play(10.0, [0.0, 1.0])
