"""Rewards come at least once and count once; all of them are accounted for."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rarely import InvalidInput
from rarely.study import InvalidStudy, RewardRule, Study, StudyConflict, StudyError
from rarely.study.tell import rewards_to_learn
from studies import Clock, contexts_of, linear

NAMES = itertools.count()


def study_of(rule, clock=None):
    clock = Clock() if clock is None else clock
    name = f"rewards {next(NAMES)}"
    return Study.create("memory://rewards", name, policy=linear(50), arms=3, rewards=rule, clock=clock)


def learned(study):
    """Round → reward, as the policy in use has learned them."""
    with study._session.writing():
        history = study._session.live.policy.history
    return {i + 1: float(reward) for i, reward in enumerate(history.rewards) if reward == reward}


def test_a_reward_after_its_window_is_late_and_the_default_counts():
    clock = Clock()
    study = study_of(RewardRule(wait=60, default=-1.0), clock)
    for i in range(3):
        study.ask(contexts_of(i), id=f"{i}")
    assert study.tell("0", 5.0).status == "accepted"
    clock.now += 61
    assert study.tell("1", 7.0).status == "late"
    study.update()
    assert learned(study) == {1: 5.0, 2: -1.0, 3: -1.0}
    accounts = study.status().rewards
    assert (accounts.received, accounts.used, accounts.late, accounts.pending) == (2, 1, 1, 0)


def test_a_window_is_open_at_its_last_moment_and_the_cut_agrees():
    clock = Clock()
    study = study_of(RewardRule(wait=60, default=-1.0), clock)
    study.ask(contexts_of(0), id="0")
    study.ask(contexts_of(1), id="1")
    clock.now += 60
    assert study.tell("1", 3.0).status == "accepted"
    study.update()
    assert learned(study) == {2: 3.0}
    assert study.tell("0", 5.0).status == "accepted"
    study.update()
    assert learned(study) == {2: 3.0, 1: 5.0}


@pytest.mark.parametrize(("aggregation", "expected"), [("last", 4.0), ("sum", 7.0), ("first", 1.0)])
def test_several_rewards_become_one_when_the_window_has_closed(aggregation, expected):
    clock = Clock()
    study = study_of(RewardRule(aggregation, wait=60), clock)
    study.ask(contexts_of(0), id="0")
    study.ask(contexts_of(1), id="silent")
    told = [study.tell("0", value, key=f"click-{i}").status for i, value in enumerate([1.0, 2.0, 4.0])]
    assert told == ["accepted"] * 3 if aggregation != "first" else told == ["accepted", "quarantined", "quarantined"]
    if aggregation != "first":
        assert study.update(force=True) == "version"
        assert learned(study) == {}
        assert study.status().rewards.pending == 3
    clock.now += 61
    study.update()
    assert learned(study) == {1: expected}
    assert study.status().rewards.pending == 0
    assert study.status().rewards.balanced


def test_equal_rewards_are_summed_if_they_have_keys():
    clock = Clock()
    study = study_of(RewardRule("sum", wait=60), clock)
    study.ask(contexts_of(0), id="0")
    assert [study.tell("0", 1.0, key=key).status for key in ("a", "b", "b")] == ["accepted", "accepted", "duplicate"]
    assert [study.tell("0", 1.0).status for _ in range(2)] == ["accepted", "duplicate"]
    clock.now += 61
    study.update()
    assert learned(study) == {1: 3.0}


def test_a_key_with_another_value_is_a_conflict():
    study = study_of(RewardRule())
    study.ask(contexts_of(0), id="0")
    study.tell("0", 1.0, key="a")
    before = study.status()
    with pytest.raises(StudyConflict, match="another key"):
        study.tell("0", 2.0, key="a")
    assert study.status() == before


def test_what_is_out_of_range_goes_to_the_quarantine():
    study = study_of(RewardRule(least=0.0, most=1.0))
    study.ask(contexts_of(0), id="0")
    assert study.tell("0", 1.5).reason == "out of range"
    assert study.tell("0", 1.0).status == "accepted"
    assert study.status().rewards.quarantine == {"out of range": 1}


def test_a_reward_before_its_decision_stays_in_the_quarantine():
    study = study_of(RewardRule())
    assert study.tell("0", 1.0).status == "quarantined"
    study.ask(contexts_of(0), id="0")
    assert study.tell("0", 1.0).status == "duplicate"
    assert study.tell("0", 1.0, key="again").status == "accepted"


def test_a_clock_that_is_set_back_does_not_turn_the_record_back():
    clock = Clock()
    study = study_of(RewardRule(wait=60), clock)
    first = study.ask(contexts_of(0), id="0")
    clock.now -= 1000
    second = study.ask(contexts_of(1), id="1")
    assert second.time == first.time
    assert study.tell("1", 1.0).status == "accepted"
    assert study.verify().whole


@pytest.mark.parametrize(
    "settings",
    [
        {"aggregation": "sum"},
        {"aggregation": "mean"},
        {"default": 0.0},
        {"wait": 0},
        {"wait": float("nan")},
        {"least": 1.0, "most": 0.0},
        {"least": 1.0, "most": 1.0},
        {"wait": True},
    ],
)
def test_rules_that_make_no_sense_are_refused(settings):
    with pytest.raises((InvalidStudy, ValueError)):
        RewardRule(**settings)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(0, 5)),
        st.tuples(st.just("tell"), st.integers(0, 7), st.sampled_from([0.0, 1.0, 9.0]), st.sampled_from([None, "k"])),
        st.tuples(st.just("wait"), st.sampled_from([1, 30, 61, -50])),
        st.tuples(st.just("update")),
        st.tuples(st.just("die")),
    ),
    max_size=30,
)


@given(steps, st.sampled_from(["first", "last", "sum"]), st.sampled_from([None, 0.5]))
def test_every_reward_is_accounted_for(steps, aggregation, default):
    """received = used + pending + late + quarantined, whatever happens; and the replay is equal."""
    clock = Clock()
    study = study_of(RewardRule(aggregation, wait=60, default=default, most=5.0), clock)
    received = set()
    for step, *given_ in steps:
        if step == "ask":
            study.ask(contexts_of(given_[0]), id=f"{given_[0]}")
        elif step == "tell":
            number, value, key = given_
            try:
                study.tell(f"{number}", value, key=key)
                received.add((number, value if key is None else key))
            except StudyConflict:
                assert (number, key) in received
        elif step == "wait":
            clock.now += given_[0]
        elif step == "update":
            study.update(force=True)
        else:
            study._session._live = None
        accounts = study.status().rewards
        assert accounts.received == len(received)
        assert accounts.balanced
        assert min(accounts.used, accounts.pending) >= 0
    assert study.verify().whole
    assert study.replay().equal


@pytest.mark.parametrize("aggregation", ["first", "last", "sum"])
def test_an_update_reads_its_rewards_in_parts(aggregation, monkeypatch):
    clock = Clock()
    study = study_of(RewardRule(aggregation, wait=60, default=-1.0), clock)
    for i in range(40):
        study.ask(contexts_of(i), id=f"{i}")
        for key in range(i % 3):
            study.tell(f"{i}", float(10 * i + key), key=f"k{key}")
        clock.now += 5
    monkeypatch.setattr("rarely.study.tell.CHUNK", 7)
    session = study._session
    longest, reading = [], session.storage.reading
    monkeypatch.setattr(session.storage, "reading", lambda: longest.append(1) or reading())
    job = study.begin_update()
    assert len(longest) > 3
    monkeypatch.undo()
    plain = rewards_to_learn(session, 0, job.cut)
    assert list(zip(job.rounds, job.rewards, strict=True)) == list(plain.items())
    assert len(plain) > 20


def test_a_lease_is_given_back_if_the_rewards_cannot_be_read(monkeypatch):
    study = study_of(RewardRule())
    study.ask(contexts_of(0), id="0")
    study.tell("0", 1.0)

    def broken(*_):
        raise StudyError("the disk is gone.")

    with monkeypatch.context() as patched:
        patched.setattr("rarely.study.tell.closed_until", broken)
        with pytest.raises(StudyError):
            study.begin_update()
    assert study.update() == "version"


def other_arm(study, id):
    return (study.decision(id).answer.index + 1) % 3


def test_an_override_is_on_record_with_its_reason_and_nobody_learns_from_it():
    clock = Clock()
    study = study_of(RewardRule(wait=60, default=-1.0), clock)
    for i in range(4):
        study.ask(contexts_of(i), id=f"{i}")
    given_ = other_arm(study, "0")
    receipt = study.tell("0", 5.0, arm=given_, actor="ann", reason="an allergy")
    assert (receipt.status, receipt.reason) == ("quarantined", "override")
    assert study.tell("0", 5.0, arm=given_, reason="an allergy").status == "duplicate"
    assert study.tell("0", 6.0).reason == "override"  # the round belongs to the other arm
    assert study.tell("1", 7.0, arm=str(study.decision("1").answer.index)).status == "accepted"  # the arm decided
    event = next(event for event in study.events() if event.why == "override")
    assert (event.actor, event.reason, event.content["arm"]) == ("ann", "an allergy", given_)
    clock.now += 61
    study.update()
    assert learned(study) == {2: 7.0, 3: -1.0, 4: -1.0}  # no default for round 1
    log = study.log()
    assert (log.overrides, log.missing) == ({1: "an allergy"}, 1)
    assert study.status().rewards.quarantine == {"override": 2}
    assert study.verify().whole
    assert study.replay().equal


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"arm": 1}, "needs an arm and a reason"),
        ({"arm": 3, "reason": "x"}, "got 3 and 'x'"),
        ({"arm": "nobody", "reason": "x"}, "got 'nobody' and 'x'"),
        ({"arm": -1, "reason": "x"}, "got -1"),
        ({"arm": [1], "reason": "x"}, "a name or a number"),
        ({"arm": True, "reason": "x"}, "a name or a number"),
    ],
)
def test_an_override_without_an_arm_or_a_reason_is_refused_and_changes_nothing(options, says):
    study = study_of(RewardRule())
    while study.ask(contexts_of(0), id=f"{study.status().decisions}").index == 1:
        pass
    before, id = study.status(), f"{study.status().decisions - 1}"
    with pytest.raises(InvalidInput, match=says):
        study.tell(id, 1.0, **options)
    assert study.status() == before


def test_a_reward_that_came_before_its_override_is_not_in_the_log():
    study = study_of(RewardRule())
    study.ask(contexts_of(0), id="0")
    assert study.tell("0", 5.0).status == "accepted"
    assert study.tell("0", 4.0, arm=other_arm(study, "0"), reason="seen later").reason == "override"
    log = study.log()
    assert (log.missing, log.overrides) == (1, {1: "seen later"})
