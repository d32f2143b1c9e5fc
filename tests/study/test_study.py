"""The four verbs of a study: what is answered is on record, and the policy follows from the record."""

import numpy as np
import pytest

from rarely import InvalidContexts, InvalidInput, InvalidReward, NothingToLearn, OutlierWarning
from rarely.study import (
    InvalidId,
    InvalidStorage,
    InvalidStudy,
    Request,
    Study,
    StudyClosed,
    StudyConflict,
    StudyExists,
    StudyFull,
    UnknownDecision,
    UnknownStudy,
)
from studies import contexts_of, every_storage, linear, neural, play


@every_storage
def test_the_same_question_has_the_same_answer_after_an_update_and_a_restart(make):
    study = make()
    answers = play(study, 0, 20)
    assert study.update() == "version"
    assert play(study, 0, 20) == answers
    study.close()
    again = make.open()
    assert play(again, 0, 20) == answers
    assert again.status().decisions == 20
    assert again.status().version == 1


@every_storage
def test_an_id_with_another_body_is_a_conflict_and_changes_nothing(make):
    study = make()
    study.ask(contexts_of(1), id="x")
    before = study.status()
    for contexts, available in [(contexts_of(2), None), (contexts_of(1), ["a", "b"])]:
        with pytest.raises(StudyConflict, match="other contexts"):
            study.ask(contexts, id="x", available=available)
    assert study.status() == before


@pytest.mark.parametrize("policy", [linear, neural], ids=["draws", "running Z"])
def test_a_study_that_is_opened_again_decides_as_the_one_that_went_on(make, policy):
    study = make(policy())
    play(study, 0, 30)
    study.update()
    play(study, 30, 10)
    study._session._live = None  # as if the process had died: the next call builds the policy from the record
    rebuilt = study.ask(contexts_of(99), id="next")

    name = f"twin {make.storage.rsplit('/', 1)[1]} {policy.__name__}"
    twin = Study.create("memory://twin", name, policy=policy(), arms=["a", "b", "c"])
    play(twin, 0, 30)
    twin.update()
    play(twin, 30, 10)
    straight = twin.ask(contexts_of(99), id="next")
    one, other = study.decision("next"), twin.decision("next")
    assert rebuilt.arm == straight.arm
    for name in ("means", "bonuses", "probabilities"):
        assert np.array_equal(getattr(one, name), getattr(other, name))


@every_storage
@pytest.mark.parametrize("policy", [linear, neural], ids=["draws", "running Z"])
def test_the_policy_that_follows_the_record_is_the_one_that_decided(make, policy):
    study = make(policy())
    study.ask_many([Request(contexts_of(i), f"block-{i}") for i in range(17)])
    play(study, 0, 10)
    with study._session.writing():
        before = study._session.live.bare().fingerprint()
    study._session._live = None
    with study._session.writing():
        assert study._session.live.bare().fingerprint() == before


def test_many_questions_are_answered_as_single_ones_are(make):
    study = make()
    together = study.ask_many([Request(contexts_of(i), f"visit-{i}") for i in range(40)])
    twin = Study.create(
        "memory://twin", f"single {make.storage[-9:].replace('/', ' ')}", policy=linear(), arms=["a", "b", "c"]
    )
    single = [twin.ask(contexts_of(i), id=f"visit-{i}") for i in range(40)]
    assert [answer.arm for answer in together] == [answer.arm for answer in single]
    assert np.allclose([a.probability for a in together], [a.probability for a in single], rtol=1e-12)


@every_storage
def test_an_id_twice_in_one_call_is_one_decision(make):
    study = make()
    first, second, other = study.ask_many(
        [(contexts_of(1), "x"), (contexts_of(1), "x"), (contexts_of(2), "x")], errors="return"
    )
    assert first == second
    assert isinstance(other, StudyConflict)
    assert study.status().decisions == 1


def test_a_bad_question_among_good_ones_gets_its_error_alone(make):
    study = make()
    huge = np.full((3, 2), 1e200)
    found = study.ask_many(
        [
            (contexts_of(1), "x"),
            (np.full((3, 2), np.nan), "y"),
            (huge, "h"),
            (contexts_of(2), "z"),
            (contexts_of(2), ""),
        ],
        errors="return",
    )
    kinds = [type(each).__name__ for each in found]
    assert kinds == ["Answer", "InvalidContexts", "InvalidContexts", "Answer", "InvalidId"]
    before = study.status()
    with pytest.raises(InvalidContexts):
        study.ask_many([(contexts_of(3), "w"), (huge, "h")])
    assert study.status() == before


@every_storage
def test_a_reward_counts_once(make):
    study = make()
    answer = study.ask(contexts_of(1), id="x")
    assert [study.tell("x", 1.0).status for _ in range(3)] == ["accepted", "duplicate", "duplicate"]
    assert study.tell("x", 0.5).reason == "already rewarded"
    assert study.tell("unknown", 0.5).reason == "unknown decision"
    accounts = study.status().rewards
    assert (accounts.received, accounts.pending, accounts.quarantined) == (3, 1, 2)
    assert accounts.quarantine == {"already rewarded": 1, "unknown decision": 1}
    assert accounts.balanced
    study.update()
    assert study.status().rewards.used == 1
    assert answer.version == 0


@pytest.mark.parametrize("reward", [np.nan, np.inf, "1", None, [1.0, 2.0], 1j, {}])
def test_a_reward_that_is_no_number_is_refused(make, reward):
    study = make()
    study.ask(contexts_of(1), id="x")
    with pytest.raises(InvalidReward):
        study.tell("x", reward)
    assert study.status().rewards.received == 0


@pytest.mark.parametrize("id", ["", " x", "a\nb", "\x00", "x" * 201, "\ud800", 7, "a\u202eb"])
def test_odd_ids_are_refused(make, id):
    study = make()
    with pytest.raises(InvalidId):
        study.ask(contexts_of(1), id=id)
    with pytest.raises(InvalidId):
        study.tell(id, 1.0)


@every_storage
@pytest.mark.parametrize("id", ["e\u0301", "漢字🎲", "' OR 1=1 --", "%s ? :x"])
def test_odd_ids_that_are_allowed_are_kept_as_they_are(make, id):
    study = make()
    assert study.ask(contexts_of(1), id=id).id == id
    assert study.tell(id, 1).status == "accepted"
    assert study.decision(id).answer.id == id


def test_an_update_without_rewards_gives_its_lease_back(make):
    study = make()
    study.ask(contexts_of(1), id="x")
    with pytest.raises(NothingToLearn):
        study.update()
    assert study.status().trainer == ""
    study.tell("x", 1.0)
    assert study.update() == "version"


def test_there_are_at_most_b_versions(make):
    study = make(linear(batches=2))
    play(study, 0, 5)
    study.update()
    play(study, 5, 5)
    with pytest.raises(StudyFull, match="2 versions"):
        study.update()
    assert [version.number for version in study.versions()] == [0, 1]


@every_storage
def test_decisions_made_during_a_training_are_followed_by_the_new_version(make):
    from rarely.study import train

    study = make()
    play(study, 0, 20)
    job = study.begin_update()
    trained = train(job)
    meanwhile = play(study, 20, 40)
    assert {answer.version for answer in meanwhile} == {0}
    assert study.finish_update(trained) == "version"
    after = study.ask(contexts_of(500), id="after")
    assert (after.version, after.round) == (1, 61)
    with study._session.writing():
        live = study._session.live.bare().fingerprint()
    study._session._live = None
    with study._session.writing():
        assert study._session.live.bare().fingerprint() == live
    assert study.status().rewards.pending == 40


def test_absent_arms_are_never_chosen(make):
    study = make()
    for i in range(20):
        assert study.ask(contexts_of(i), id=f"few-{i}", available=["a", "c"]).arm in ("a", "c")
        assert study.ask({"b": [1.0, 2.0]}, id=f"one-{i}").arm == "b"
    with pytest.raises(InvalidContexts, match="available must hold names"):
        study.ask(contexts_of(1), available=["d"])
    with pytest.raises(InvalidContexts, match="at least one"):
        study.ask(contexts_of(1), available=[])


def test_arms_may_have_no_names_and_vary(make):
    study = make(arms=None)
    found = study.ask_many([(contexts_of(i, arms=2 + i % 3), None) for i in range(9)])
    assert all(0 <= answer.index < 2 + i % 3 for i, answer in enumerate(found))
    study._session._live = None
    assert study.ask(contexts_of(1, arms=7)).round == 10


@every_storage
def test_create_again_opens_and_other_settings_are_refused(make):
    study = make()
    play(study, 0, 3)
    assert make().status().decisions == 3
    with pytest.raises(StudyExists, match=r"with other settings: schedule\."):
        make(linear(batches=7))
    with pytest.raises(StudyExists, match=r"with other settings: arms\."):
        make(arms=["a", "b", "d"])


def test_what_no_study_can_be(make):
    decided = linear()
    decided.select(contexts_of(1))
    with pytest.raises(InvalidStudy, match="decided nothing"):
        make(decided)
    with pytest.raises(InvalidStudy, match="different names"):
        make(arms=["a", "a"])
    with pytest.raises(InvalidStudy, match="policy must be"):
        make("LinUCB")
    with pytest.raises(InvalidStudy, match="saved and loaded"):
        make(neural(beta=lambda t: 1.0))


@every_storage
def test_a_closed_study_says_so(make):
    study = make()
    study.close()
    with pytest.raises(StudyClosed):
        study.ask(contexts_of(1))


def test_storage_that_is_none(tmp_path):
    for url in ("trial.db", "sqlite://", "sqlite:///", "mysql://x", 7, "sqlite:///x.db?mode=ro"):
        with pytest.raises(InvalidStorage, match="storage must be"):
            Study.open(url, "x")
    with pytest.raises(InvalidStorage, match="does not exist"):
        Study.open(f"sqlite:///{tmp_path}/none.db", "x")
    with pytest.raises(InvalidStorage, match="folder"):
        Study.open(f"sqlite:///{tmp_path}", "x")


@every_storage
def test_a_study_that_is_not_there(make):
    make()
    with pytest.raises(UnknownStudy, match="'trial'"):
        Study.open(make.storage, "other")
    with Study.open(make.storage) as study:
        assert study.name == "trial"


@every_storage
def test_a_decision_that_is_not_there(make):
    with pytest.raises(UnknownDecision, match="no decision with id 'v1'"):
        make().decision("v1")


@every_storage
def test_questions_and_rewards_share_a_commit(make):
    study = make()
    answers, receipts = study.ask_and_tell(
        [Request(contexts_of(1), "x", actor="ann"), Request(contexts_of(2), "y")],
        [("x", 1.0), ("z", 1.0), ("y", np.nan)],
        actor="service",
        errors="return",
    )
    assert [answer.id for answer in answers] == ["x", "y"]
    assert [getattr(receipt, "status", None) for receipt in receipts] == ["accepted", "quarantined", None]
    assert [event.actor for event in study.events(after=1)] == ["ann", "service", "service", "service"]
    before = study.status()
    with pytest.raises(StudyConflict):
        study.ask_and_tell([Request(contexts_of(3), "w"), Request(contexts_of(9), "x")], [("y", 1.0)])
    assert study.status() == before


def test_places_of_arms_are_as_good_as_their_names(make):
    study = make()
    assert study.ask(contexts_of(1), id="x", available=[2]).arm == "c"
    assert study.ask(contexts_of(1), id="x", available=["c"]).arm == "c"


def test_a_reward_that_would_spoil_every_later_training_is_out_of_range(make):
    study = make()
    play(study, 0, 5)
    study.ask(contexts_of(9), id="x")
    assert study.tell("x", 1.7e308).reason == "out of range"
    assert study.tell("x", 1.7e308).status == "duplicate"
    assert [event.content["reward"] for event in study.events() if event.why == "out of range"] == [1.7e308]
    study.ask(contexts_of(8), id="y")
    assert study.tell("y", 9e99).status == "accepted"
    with pytest.warns(OutlierWarning, match="the reward of round 7 is 9e\\+99"):
        assert study.update() == "version"
    study.ask(contexts_of(9), id="z")


@pytest.mark.parametrize("request_", [5, "x", (), (*range(12),)])
def test_requests_of_another_form_are_refused(make, request_):
    study = make()
    with pytest.raises(InvalidInput, match="a Request is"):
        study.ask_many([request_])
    with pytest.raises(InvalidInput, match="a Tell is"):
        study.tell_many([request_])
    with pytest.raises(InvalidInput, match="finish_update takes"):
        study.finish_update(request_)


def test_callers_who_are_gathered_share_a_block(make):
    study = make()
    requests = [Request(contexts_of(i), f"{i}", actor=actor) for i, actor in enumerate(("ann", "bob", "\n"))]
    answers = study.ask_many(requests, errors="return")
    assert [type(answer).__name__ for answer in answers] == ["Answer", "Answer", "InvalidId"]
    one, other = study.decision("0"), study.decision("1")
    assert one.block == other.block
    assert (one.actor, other.actor) == ("ann", "bob")
