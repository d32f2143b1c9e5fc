"""Worth in a study: on record with the decision, verified and replayed, by numbers, by arms and by columns."""

import dataclasses

import numpy as np
import pytest

from rarely import Ceiling, FixedGrid, FramePolicy, LinTS, LinUCB, Mixture, OnDemand, Shares, Worth
from rarely.errors import CeilingReached, InvalidReward, InvalidSlate, InvalidWorth
from rarely.logs import read_log
from rarely.offpolicy import ips, slates
from rarely.study import (
    Answer,
    EnrolmentClosed,
    InvalidStudy,
    Receipt,
    Request,
    RewardRule,
    Slate,
    Study,
    StudyConflict,
    Tell,
    train,
)
from studies import contexts_of, every_storage, linear

ITEMS = [
    {"sku": "a", "size": 1.0, "price": 3.0, "freight": 0.5},
    {"sku": "b", "size": 2.0, "price": 9.0, "freight": 1.0},
]


SPENT = RewardRule(outcomes={"sale": 1.0, "tokens": 0.0}, spends="tokens")


def shop(**settings):
    settings = {"key": "sku", "ignore": ["freight"], "schedule": OnDemand(), "seed": 0} | settings
    return FramePolicy.fit(LinTS, None, ITEMS, **settings)


@every_storage
def test_worth_is_on_record_and_replayed(storage):
    study, draw = Study.create(storage, "trial", policy=linear(), arms=["a", "b", "c"]), np.random.default_rng(0)
    for i in range(30):
        worth = None if i % 3 == 0 else Worth(draw.uniform(1, 5, 3), draw.normal(size=3))
        answer = study.ask(contexts_of(i), id=f"v{i}", worth=worth)
        study.tell(answer.id, float(answer.index == 1))
        if i == 15:
            study.update(force=True)
        again = study.ask(contexts_of(i), id=f"v{i}", worth=worth)
        assert again == answer
        record = study.decision(f"v{i}").question.worth
        assert (record is None) == (worth is None)
        if worth is not None:
            np.testing.assert_array_equal(record.gain, worth.gain)
            np.testing.assert_array_equal(record.cost, worth.cost)
    assert study.verify().whole
    assert study.replay().equal
    log = study.log()
    study.close()
    assert log.worth.gain.shape == (30, 3)
    assert log.worth.gain[0].tolist() == [1.0, 1.0, 1.0]
    assert ips(log.valued(), log.probabilities).rounds == 30


def test_a_block_decides_as_single_requests_would():
    one = Study.create("memory://prices-one", "trial", policy=linear())
    other = Study.create("memory://prices-other", "trial", policy=linear())
    draw = np.random.default_rng(1)
    requests = [
        Request(contexts_of(i), f"v{i}", None, "", None if i % 4 == 0 else {"gain": draw.uniform(1, 3, 3)})
        for i in range(12)
    ]
    together = one.ask_many(requests)
    alone = [other.ask_many([request])[0] for request in requests]
    assert [each.arm for each in together] == [each.arm for each in alone]
    for i in range(12):
        np.testing.assert_allclose(*(study.decision(f"v{i}").probabilities for study in (one, other)), atol=1e-12)


def test_an_infinite_cost_leaves_the_arm_out_of_the_record():
    study = Study.create("memory://prices-infinite", "trial", policy=linear(), arms=["a", "b", "c"])
    answer = study.ask(contexts_of(1), id="v", worth={"cost": {"a": 0.0, "b": np.inf, "c": 1e9}})
    record = study.decision("v")
    assert answer.arm == "a"
    assert record.present.tolist() == [True, False, True]
    assert record.question.numbers.shape == (2, 2)
    assert study.replay().equal


def test_columns_of_items_are_prices():
    policy = shop()
    assert ITEMS[policy.select(items=ITEMS, worth=Worth("price", 5e3)).arm]["sku"] in "ab"
    taken = [policy.probabilities(items=ITEMS, worth=each)[1] for each in ("price", Worth("price", "freight"))]
    np.testing.assert_allclose(taken[0], policy.probabilities(items=ITEMS, worth=[3.0, 9.0])[1])
    study = Study.create("memory://prices-columns", "trial", policy=shop())
    study.ask({"items": ITEMS}, id="v", worth=Worth("price", "freight"))
    record = study.decision("v")
    assert record.question.worth.gain.tolist() == [3.0, 9.0]
    assert record.question.worth.cost.tolist() == [0.5, 1.0]
    np.testing.assert_allclose(record.probabilities[1], taken[1])
    assert study.replay().equal


def test_an_explanation_of_a_decision_is_in_worth():
    policy = FramePolicy.fit(LinUCB, {"age": [20, 30, 40]}, arms=["tea", "rum"], schedule=OnDemand(), seed=0)
    for age in range(20, 60):
        policy.observe(policy.select({"age": age}), age / 10)
    policy.update()
    decision = policy.select({"age": 50}, worth=Worth({"tea": -2.0, "rum": 3.0}))
    plain = policy.explain({"age": 50}, arm=decision.arm)[0]
    priced = policy.explain({"age": 50}, arm=decision)[0]
    gain = decision.worth.gain[decision.arm]
    assert priced.mean == pytest.approx(gain * plain.mean)
    assert priced.bonus == pytest.approx(abs(gain) * plain.bonus)


@pytest.mark.parametrize(
    ("worth", "says"),
    [
        ("weight", "items must have the column 'weight'"),
        (Worth("sku"), "column 'sku' of items must be real numbers; got text"),
        (Worth([1.0, 2.0, 3.0]), "shape"),
        ({"gain": {"tea": 1.0}}, "no names"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_recorded(worth, says):
    study = Study.create(f"memory://prices-bad-{abs(hash(says))}", "trial", policy=shop())
    with pytest.raises(InvalidWorth, match=says):
        study.ask({"items": ITEMS}, worth=worth)
    assert study.status().events == 1


def test_a_gap_in_a_price_is_named():
    gap = [ITEMS[0], ITEMS[1] | {"freight": None}]
    with pytest.raises(
        InvalidWorth, match="column 'freight' of items must have a number for a worth in each row; row 1"
    ):
        shop().select(items=gap, worth=Worth(1.0, "freight"))


def test_what_a_policy_would_have_earned_at_other_prices():
    policy = LinUCB(2, OnDemand(), exploration=Mixture(0.5), seed=1)
    study = Study.create("memory://prices-other-prices", "trial", policy=policy)
    draw = np.random.default_rng(1)
    for i in range(300):
        answer = study.ask(contexts_of(i), id=f"v{i}", worth=draw.uniform(0, 2, 3))
        study.tell(answer.id, float(draw.random() < 0.2 + 0.3 * answer.index))
    log = study.log()
    expensive = ips(log.valued(Worth([1.0, 1.0, 0.1])), [2] * 300)
    cheap = ips(log.valued(Worth([1.0, 1.0, 2.0])), [2] * 300)
    assert cheap.value == pytest.approx(20 * expensive.value)
    assert cheap.low < 2 * 0.8 < cheap.high


@every_storage
def test_a_slate_is_decided_whole_and_each_slot_is_a_decision(storage):
    study, beside = Study.create(storage, "trial", policy=linear(), arms=["a", "b", "c"]), linear()
    for i in range(20):
        slate = study.ask(contexts_of(i), id=f"v{i}", slots=2)
        plain = beside.select(contexts_of(i), slots=2)
        assert [answer.index for answer in slate] == plain.arm.tolist()
        assert [answer.id for answer in slate] == [f"v{i}#1", f"v{i}#2"]
        assert [answer.probability for answer in slate] == pytest.approx(plain.propensity.tolist())
        assert study.ask(contexts_of(i), id=f"v{i}", slots=2) == slate
        told = study.tell(f"v{i}", [0.0, 1.0], seen=1 + i % 2)
        assert [receipt.status for receipt in told] == ["accepted"] * (1 + i % 2)
        if i == 9:
            study.update(force=True)
            beside.observe(beside.select(contexts_of(99), slots=2)[:0], [])
            break
    with pytest.raises(StudyConflict):
        study.ask(contexts_of(0), id="v0", slots=3)
    study.ask(contexts_of(50), id="single")
    assert study.decision("v3#2").question.slot == ("v3", 2, 2)
    assert study.verify().whole
    assert study.replay().equal
    log = study.log()
    study.close()
    assert log.slates.tolist() == [r for i in range(10) for r in (2 * i + 1,) * 2] + [21]
    assert slates(log, log.probabilities).rounds == 10


def test_slates_and_single_decisions_in_one_call():
    study = Study.create("memory://prices-mixed", "trial", policy=linear())
    requests = [Request(contexts_of(i), f"v{i}", slots=2 if i % 2 else None) for i in range(4)]
    answers = study.ask_many([*requests, Request(contexts_of(9), "bad", slots=4)], errors="return")
    assert [isinstance(each, Slate) for each in answers] == [False, True, False, True, False]
    assert isinstance(answers[4], InvalidSlate)
    receipts = study.tell_many([("v0", 1.0), Tell("v1", [1.0, 0.0]), Tell("v3", [1.0], seen=2)], errors="return")
    assert [receipts[0].status, *(each.status for each in receipts[1])] == ["accepted"] * 3
    assert isinstance(receipts[2], InvalidSlate)
    with pytest.raises(InvalidSlate, match="whose rewards are a list"):
        study.tell("v3", 1.0, seen=1)
    assert study.replay().equal


@every_storage
@pytest.mark.parametrize("slots", [1, 3])
def test_one_number_for_a_slate_is_shared_equally_by_its_slots(storage, slots):
    rule = RewardRule(outcomes={"click": 1.0, "cost": -0.5})
    study = Study.create(storage, "trial", policy=linear(), arms=["a", "b", "c"], rewards=rule)
    for id in ("v", "w", "x"):
        study.ask(contexts_of(3), id=id, slots=slots)
    ids = [f"v#{slot}" for slot in range(1, slots + 1)]
    assert [(each.id, each.status) for each in study.tell("v", {"click": 3.0})] == [(id, "accepted") for id in ids]
    assert [each.status for each in study.tell("v", {"click": 3.0})] == ["duplicate"] * slots
    assert study.tell("w", {"click": 1.0, "cost": 2.0}, key="k")[0].id == "w#1"
    log = study.log()
    np.testing.assert_allclose(log.rewards, [3.0 / slots] * slots + [0.0] * slots + [np.nan] * slots)
    assert log.outcomes[slots + 1] == {"click": 1.0 / slots, "cost": 2.0 / slots}
    assert study.status().rewards.balanced
    with pytest.raises(StudyConflict):  # the first slot has another reward by this key; no slot gets one
        study.tell_many([("x#1", {"click": 5.0}, "k"), ("x", {"click": 9.0}, "k")])
    assert study.status().rewards.received == 2 * slots
    receipts = study.tell_many(
        [("x#1", {"click": 5.0}, "k"), ("x", {"click": 9.0}, "k"), ("nobody", {"click": 1.0})], errors="return"
    )
    assert [type(each) for each in receipts] == [Receipt, StudyConflict, Receipt]
    assert (receipts[2].status, study.status().rewards.received) == ("quarantined", 2 * slots + 2)
    study.update()
    assert study.verify().whole
    assert study.replay().equal
    study.close()


@every_storage
def test_an_export_has_slates_and_worth(storage, tmp_path, monkeypatch):
    study = Study.create(storage, "trial", policy=linear(), arms=["a", "b", "c"])
    for i in range(10):
        asked = {"slots": 2} if i > 5 else {}
        study.ask(contexts_of(i), id=f"v{i}", worth=Worth([1.0, 2.0, i], 0.5) if i % 3 == 2 else None, **asked)
    monkeypatch.setattr("rarely.study.audit.CHUNK", 3)  # of which some have neither
    assert study.export(tmp_path / "log.csv").decisions == 14
    log, again = study.log(), read_log(tmp_path / "log.csv")
    study.close()
    np.testing.assert_array_equal(again.slates, log.slates)
    np.testing.assert_array_equal(again.worth.gain[again.present], log.worth.gain[log.present])
    np.testing.assert_array_equal(again.worth.cost[again.present], log.worth.cost[log.present])


def test_a_slate_needs_as_many_open_arms():
    study = Study.create("memory://prices-closed", "trial", policy=linear(), arms=["a", "b", "c"])
    study.close_arm("b", actor="ann", approved_by="bob")
    assert {answer.arm for answer in study.ask(contexts_of(1), id="v", slots=2)} == {"a", "c"}
    with pytest.raises(EnrolmentClosed, match="fewer arms are open than the 3 slots"):
        study.ask(contexts_of(1), id="w", slots=3)
    assert study.status().decisions == 2


def test_a_slate_that_is_on_record_outlives_the_closing_of_its_arms():
    study = Study.create("memory://prices-repeated", "trial", policy=linear(), arms=["a", "b", "c"])
    slate = study.ask(contexts_of(1), id="v", slots=3)
    study.close_arm("b", actor="ann", approved_by="bob")
    assert study.ask(contexts_of(1), id="v", slots=3) == slate
    for asked in ({"available": ["a", "b"]}, {"worth": {"cost": [0.0, 0.0, np.inf]}}):
        with pytest.raises(EnrolmentClosed, match="fewer arms are open than the 2 slots"):
            study.ask(contexts_of(1), id="w", slots=2, **asked)


def test_a_slate_that_stops_in_the_middle_keeps_no_other_request_from_its_answer():
    policy = LinTS(2, FixedGrid(6, 2), seed=3).under(Ceiling(3.0))
    study = Study.create("memory://prices-stopped", "trial", policy=policy, arms=["a", "b", "c"])
    costly = {"spends": [2.0, 2.0, 2.0]}  # of which one slot has room for, and two have not
    requests = [Request(contexts_of(0), "one", worth={"spends": [0.5, 0.5, 0.5]})]
    requests += [Request(contexts_of(1), "slate", worth=costly, slots=2)]
    requests += [Request(contexts_of(2), "two", worth={"spends": [0.5, 0.5, 0.5]})]
    with pytest.raises(CeilingReached):
        study.ask_many(requests)
    assert study.status().decisions == 0
    answers = study.ask_many(requests, errors="return")
    assert [type(each) for each in answers] == [Answer, CeilingReached, Answer]
    assert (study.status().decisions, study.status().spent) == (2, 1.0)
    assert study.ask_many(requests[::2]) == answers[::2]
    assert study.verify().whole
    assert study.replay().equal


def test_slots_that_nobody_saw_get_no_default_reward():
    rule = RewardRule(wait=60, default=0.0)
    study = Study.create("memory://prices-unseen", "trial", policy=linear(), rewards=rule)
    study.ask(contexts_of(0), id="a", slots=2)
    with pytest.raises(InvalidSlate, match="must be all 2 slots in a study with a default reward"):
        study.tell("a", [1.0, 0.0], seen=1)
    assert study.status().rewards.received == 0
    assert [each.status for each in study.tell("a", [1.0, 0.0], seen=2)] == ["accepted"] * 2


def test_slates_by_columns():
    study = Study.create("memory://prices-slate-columns", "trial", policy=shop())
    slate = study.ask({"items": ITEMS}, id="v", slots=2, worth="price")
    assert {answer.arm for answer in slate} in ({"a", "b"}, {0, 1})
    assert study.verify().whole
    assert study.replay().equal


# LinUCB draws where a floor or a holdout decides, and only there. What is stored is of the same columns for both.
@pytest.mark.parametrize(
    ("storage", "kind", "floors"),
    [
        *(("memory", kind, floors) for kind in (LinTS, LinUCB) for floors in ({}, {0: 0.1})),
        ("sqlite", LinUCB, {0: 0.1}),
        ("postgresql", LinTS, {0: 0.1}),
    ],
    indirect=["storage"],
)
def test_a_ceiling_and_shares_are_on_record_and_replayed(storage, kind, floors):
    limits = Ceiling(12.0), Shares(floors=floors, sticky=4, holdout=0.2)
    policy = kind(2, FixedGrid(60, 4), seed=3).under(*limits)
    study, draw = Study.create(storage, "trial", policy=policy, arms=["a", "b", "c"]), np.random.default_rng(0)
    costs = np.array([0.0, 0.3, 1.0])
    for i in range(60):
        asked = {"worth": {"spends": costs}, "user": f"user {draw.integers(12)}"}
        answer = study.ask(contexts_of(i), id=f"v{i}", **asked)
        if i % 4 == 0:
            assert study.ask(contexts_of(i), id=f"v{i}", **asked) == answer
        study.tell(answer.id, float(answer.index))
        if study.due:
            study.update()
    records = list(study.decisions())
    spent = sum(float(costs[each.answer.index]) for each in records)
    assert spent <= 12.0 + 1e-9
    assert {"sticky", "holdout"} <= {word for each in records for word in each.limits.split()}
    assert all(each.price >= 0 and each.question.user for each in records)
    assert study.verify().whole
    assert study.replay().equal
    study.close()
    if "sqlite" in str(storage):
        again = Study.open(storage, "trial")
        assert again.replay().equal
        again.close()


def test_a_study_refuses_what_its_ceiling_cannot_count():
    learned = LinTS(2, FixedGrid(60, 4), seed=3).under(Ceiling(12.0, costs="learned"))
    with pytest.raises(InvalidStudy, match="must come together: the outcome says what was spent; got spends=None"):
        Study.create("memory://prices-learned", "trial", policy=learned)
    with pytest.raises(InvalidStudy, match="got spends='tokens'"):
        Study.create("memory://prices-learned", "trial", policy=linear(), rewards=SPENT)
    for wrong in ({"outcomes": {"sale": 1.0}}, {}, {"outcomes": SPENT.outcomes, "aggregation": "sum", "wait": 60}):
        with pytest.raises(InvalidStudy, match="spends must be one of the outcomes, of rewards of which the first"):
            RewardRule(spends="tokens", **wrong)
    study = Study.create(
        "memory://prices-known", "trial", policy=LinTS(2, FixedGrid(60, 4), seed=3).under(Ceiling(2.0))
    )
    with pytest.raises(InvalidWorth, match="needs what each arm costs"):
        study.ask(contexts_of(0))
    for i in range(2):
        study.ask(contexts_of(i), worth={"spends": [1.0, 1.0, 1.0]})
    with pytest.raises(CeilingReached, match=r"in round 3: ceiling \(0 is left, and the cheapest takes 1\)"):
        study.ask(contexts_of(3), worth={"spends": [1.0, 1.0, 1.0]})
    assert study.ask(contexts_of(3), worth={"spends": [0.0, 1.0, 1.0]}).index == 0
    assert study.status().decisions == 3
    assert study.replay().equal


COSTS = np.array([0.1, 0.3, 1.0])


def thrifty(storage, total, rewards=SPENT, **settings):
    policy = LinTS(2, FixedGrid(80, 8), seed=3).under(Ceiling(total, costs="learned"))
    return Study.create(storage, "trial", policy=policy, arms=["a", "b", "c"], rewards=rewards, **settings)


def spend(study, rounds):
    """Ask, tell at once what was spent, and update when it is due; return what was spent, until the ceiling."""
    spent = 0.0
    for i in rounds:
        try:
            answer = study.ask(contexts_of(i), id=f"v{i}")
        except CeilingReached:
            break
        cost = float(COSTS[answer.index]) * (1.5 if i % 3 else 0.5)
        spent += cost
        study.tell(answer.id, {"sale": float(answer.index == 2), "tokens": cost})
        if study.due:
            study.update()
    return spent


@every_storage
def test_a_ceiling_of_learned_costs_is_exceeded_by_one_round_at_most(storage):
    study = thrifty(storage, 12.0)
    spent = spend(study, range(80))
    assert 9.0 < spent <= 12.0 + 1.5
    assert study.status().spent == pytest.approx(spent)
    assert study.status().version == 2
    assert max(record.price for record in study.decisions()) > 0
    assert study.verify().whole
    assert study.replay().equal
    study.close()
    if "sqlite" in str(storage):
        again = Study.open(storage, "trial")
        assert again.status().spent == pytest.approx(spent)
        assert again.replay().equal
        again.close()


@pytest.mark.parametrize("storage", ["sqlite", "postgresql"], indirect=True)
def test_processes_and_restarts_know_what_was_spent_at_every_decision(storage):
    shared = f"{storage}?shared=1" if "sqlite" in storage else storage
    one = thrifty(shared, 60.0)
    spend(one, range(14))
    again = Study.open(shared, "trial")
    spend(again, range(14, 21))
    job = one.begin_update(force=True)
    spend(again, range(21, 25))  # told while a version is trained that does not know it
    one.finish_update(train(job))
    assert one.status().spent == again.status().spent
    one.rollback(1)
    spend(again, range(25, 30))
    again.erase(["v3", "v4"], actor="ann")
    spend(one, range(30, 33))
    told = sum(event.content["outcomes"]["tokens"] for event in one.events() if event.kind == "reward")
    for study in (one, again):
        assert study.status().spent == pytest.approx(told)
        study.close()
    opened = Study.open(shared, "trial")  # by a checkpoint
    assert opened.status().spent == pytest.approx(told)
    assert opened.verify().whole
    assert opened.replay().equal
    last = opened.ask(contexts_of(32), id="v32")
    with opened._session.checkpoints() as tables:
        tables.run("DELETE FROM rarely_checkpoints")
    opened.close()
    with Study.open(shared, "trial") as repeated:
        assert repeated.status().spent == pytest.approx(told)
        assert repeated.ask(contexts_of(32), id="v32") == last


def test_what_was_spent_counts_once_and_also_late(clock):
    study = thrifty("memory://prices-late", 12.0, dataclasses.replace(SPENT, wait=60.0, most=10.0), clock=clock)
    for i in range(3):
        study.ask(contexts_of(i), id=f"v{i}")
    for wrong in ({"sale": 1.0}, {"sale": 1.0, "tokens": -0.5}):
        with pytest.raises(InvalidReward, match="must say what was spent, 'tokens', at least 0"):
            study.tell("v0", wrong)
    assert study.tell("v0", {"tokens": 2.0}).status == "accepted"
    assert study.tell("v0", {"tokens": 3.0}).status == "quarantined"
    assert study.tell("v1", {"sale": 99.0, "tokens": 5.0}).status == "quarantined"
    assert study.status().spent == 2.0
    clock.now += 100
    assert study.tell("v2", {"tokens": 4.0}).status == "late"
    assert study.tell("v2", {"tokens": 4.5}, key="again").status == "late"
    assert study.status().spent == 6.0
    assert study.replay().equal
