"""What is known of persons is erased from every file, the chain still verifies, and the study goes on."""

import json
import sqlite3
import struct
import threading
import warnings
from contextlib import closing

import numpy as np
import pytest

from command_line import call, told
from rarely import Ceiling, FixedGrid, FramePolicy, LinUCB, OnDemand, Shares, Worth
from rarely.study import (
    BrokenStudy,
    Erased,
    ErasedWarning,
    InvalidId,
    InvalidStudy,
    RewardRule,
    Stage,
    StaleTrainer,
    Study,
    StudyError,
    train,
)
from rarely.study.events import blanked
from studies import contexts_of, every_storage, linear, neural, play

SIGNED = {"actor": "ann", "reason": "asked on Monday"}
PERSON = np.array([[41.123456789, -17.25], [3.5, 2.75], [-9.0, 8.125]])
"""Contexts that no other decision has."""


def with_person(study, rounds=30, at=(3, 17), tell=True):
    """Play rounds, some of them of the person whose visits are called mustermann-0, …"""
    for i in range(rounds):
        if i in at:
            study.ask(PERSON, id=f"mustermann-{at.index(i)}", user=None)
            study.tell(f"mustermann-{at.index(i)}", 0.75, key=f"mustermann-click-{i}", reason="mustermann said so")
        else:
            play(study, i, 1, tell=tell)


IDS = [f"mustermann-{i}" for i in range(4)]


def rows_of(study):
    """All rows of the record as text, with the numbers of arrays as bytes."""
    with study._session.reading() as tables:
        return repr(tables.run("SELECT * FROM rarely_events WHERE study = ?", (study._session.row.study,))).lower()


def knows(study):
    number = struct.pack("<d", PERSON[0, 0])
    with study._session.reading() as tables:
        data = b"".join(row[0] for row in tables.run("SELECT data FROM rarely_events"))
        data += b"".join(row[0] for row in tables.run("SELECT policy FROM rarely_snapshots"))
    with study._session.checkpoints() as tables:
        data += b"".join(
            bytes(part) for row in tables.run("SELECT history, state FROM rarely_checkpoints") for part in row
        )
    return "mustermann" in rows_of(study) or number in data


def test_an_erasure_says_that_the_last_version_of_a_budget_keeps_what_it_learned():
    """No other version will replace it, so waiting would end nothing."""
    study = Study.create("memory://spent", "trial", policy=linear(batches=2))
    with_person(study)
    assert study.update(force=True) == "version"
    (said,) = study.erase(IDS, **SIGNED).remains
    assert "its snapshot stays, because the study has published all versions of its budget" in said


@every_storage
def test_a_person_is_erased_the_chain_holds_and_the_study_goes_on(make, storage):
    study = make()
    with_person(study)
    heads = study.status().events, study.status().head
    assert knows(study)
    done = study.erase(IDS, **SIGNED)
    assert (done.decisions, done.rewards) == (2, 2)
    assert ("VACUUM FULL" in " ".join(done.remains)) == storage.startswith("postgresql")
    assert not knows(study)
    checked = study.verify(heads[1], heads[0])
    assert checked.whole
    assert len(checked.gone) == 1
    assert "'ann' erased 2 decisions of a person, and 2 rewards: asked on Monday" in checked.gone[0]
    with pytest.warns(ErasedWarning, match="asked on Monday"):
        assert len(study.log()) == 28
    assert [record.erased for record in study.decisions()].count(True) == 2
    assert study.status().decisions == 30
    assert study.status().rewards.balanced
    assert study.replay().since == checked.events
    play(study, 30, 9)
    assert study.update() == "version"
    play(study, 40, 9)
    assert study.verify().whole
    again = study.replay()
    assert again.equal
    assert again.decisions == 18
    assert len(again.trainings) == 1
    head = study.status()
    study.close()
    with make.open() as opened:
        assert opened.status() == head


@pytest.mark.parametrize("policy", [linear, neural])
def test_others_follow_and_the_next_version_does_not_know_them(make, policy):
    study = make(policy(), rewards=RewardRule())
    other = make.open()
    with_person(study)
    assert other.status().decisions == 30
    study.erase(IDS, **SIGNED)
    ours, theirs = study.ask(contexts_of(99), id="ours"), other.ask(contexts_of(98), id="theirs")
    assert (ours.round, theirs.round) == (31, 32)
    assert study.ask(contexts_of(97), id="third").round == 33
    fingerprints = {each._session.live.policy.fingerprint() for each in (study, other, make.open()) if each.status()}
    assert len(fingerprints) == 1
    study.update(force=True)
    history = study.policy(1).history
    assert 33 - len(history) == 2
    assert not np.isin(PERSON, history.contexts).any()


@every_storage
def test_no_checkpoint_is_written_that_would_pass_for_one_from_before(make, storage):
    study = make(linear(9))
    with_person(study)
    study.update()
    study.erase(IDS, **SIGNED)
    session = study._session
    earlier = session.at_cut(1, 1, session.specials())  # as of the first event, read after the erasure
    session.save_checkpoint(earlier, earlier.mark)
    assert session.read_checkpoint(1) is None  # without a warning


@every_storage
def test_versions_that_knew_them_are_gone_and_the_one_in_use_goes_when_it_is_replaced(make, storage):
    study = make(linear(9))
    play(study, 0, 10)
    study.update()
    with_person(study, 20, at=(5,))
    study.update()
    play(study, 20, 10)
    study.update()
    done = study.erase(IDS, **SIGNED)
    assert "version 3, which is in use" in " ".join(done.remains)
    assert study.verify().whole
    with pytest.raises(Erased, match=r"was erased or pruned; `verify` says by whom"):
        study.rollback(2, actor="ann")
    with pytest.raises(Erased):
        study.policy(2)
    assert study.policy(3).version == 3  # in use
    play(study, 30, 10)
    assert study.update() == "version"
    assert not knows(study)
    with pytest.raises(Erased):
        study.rollback(3, actor="ann")
    with pytest.raises(Erased):
        study.policy(3)
    study.rollback(1, actor="ann")  # it never knew them
    play(study, 40, 10)
    assert study.update() == "version"
    assert study.verify().whole
    assert study.replay().equal
    assert not study.erase(IDS, **SIGNED).decisions
    head = study.status()
    study.close()
    assert make.open().status() == head


def test_nothing_of_them_is_left_in_any_file(tmp_path):
    path = tmp_path / "trial.db"
    number = struct.pack("<d", PERSON[0, 0])
    with Study.create(f"sqlite:///{path}", "trial", policy=linear(), arms=["a", "b", "c"]) as study:
        with_person(study, 400, at=(3, 17, 99))
        study._session.save_checkpoint(study._session.live, study._session.live.mark)
        files = [each.read_bytes() for each in tmp_path.iterdir()]
        assert any(b"mustermann" in each for each in files)
        assert any(number in each for each in files)
        assert study.erase(IDS, **SIGNED).remains == ()
        for each in tmp_path.iterdir():
            data = each.read_bytes()
            assert b"mustermann" not in data.lower(), each
            assert number not in data, each
            assert each.stat().st_mode & 0o077 == 0
    assert not any(b"mustermann" in each.read_bytes() for each in tmp_path.iterdir())


def test_what_another_process_keeps_from_being_overwritten_is_said(tmp_path):
    path = tmp_path / "trial.db"
    with Study.create(f"sqlite:///{path}?shared=1", "trial", policy=linear(), arms=["a", "b", "c"]) as study:
        with_person(study)
        study._session.save_checkpoint(study._session.live, study._session.live.mark)
        study._session.storage._beside._raw.execute("PRAGMA busy_timeout = 1")
        with closing(sqlite3.connect(f"{path}-checkpoints", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            done = study.erase(IDS, **SIGNED)
            assert done.decisions == 2
            assert "checkpoints have what was erased, because others use them" in done.remains[0]
            other.execute("COMMIT")
        assert study.erase(IDS, **SIGNED).remains == ()
        assert not knows(study)
        assert study.verify().whole


def test_erasing_twice_or_nobody_changes_nothing(make):
    study = make()
    with_person(study)
    head = study.status().head
    assert study.erase(["nobody", 17], **SIGNED).decisions == 0
    assert study.status().head == head
    study.erase(IDS, **SIGNED)
    head = study.status().head
    done = study.erase(IDS, **SIGNED)
    assert (done.decisions, done.rewards) == (0, 0)
    assert study.status().head == head
    assert study.tell(IDS[0], 1.0).reason == "unknown decision"
    assert study.erase(IDS[0], **SIGNED).rewards == 1  # whose decision is unknown
    assert "mustermann" not in rows_of(study)
    assert study.ask(contexts_of(1), id=IDS[1]).round == 31  # the id is free
    assert study.verify().whole
    assert len(study.verify().gone) == 2


@every_storage
def test_nobody_can_stand_where_an_erased_id_was(make, storage):
    study = make()
    study.ask(contexts_of(0), id="visit-0")
    study.ask(contexts_of(1), id="erased 2")  # what an erased id might be called
    assert study.erase(["visit-0", "no\0id", "\ud800"], **SIGNED).decisions == 1
    (placeholder,) = (record.answer.id for record in study.decisions() if record.erased)
    with pytest.raises(InvalidId):
        study.tell(placeholder, 1.0)
    with pytest.raises(InvalidId):
        study.ask(contexts_of(2), id=placeholder)
    assert study.verify().whole


@pytest.mark.parametrize("same", [17, np.array(17), np.array([17]), np.array("17"), [17.0], iter(["17"])])
def test_an_id_may_be_any_text_or_number(make, same):
    study = make()
    study.ask(contexts_of(0), id="17")
    assert study.erase(same, **SIGNED).decisions == 1


BYTES = (b"17", bytearray(b"17"), memoryview(b"17"), np.True_, np.array([True]))


@pytest.mark.parametrize("wrong", [None, "", [], [None], True, float("nan"), {"a": 1}, [["a"]], *BYTES])
def test_ids_that_name_nobody_are_refused(make, wrong):
    study = make()
    with pytest.raises(InvalidId, match="ids must be"):
        study.erase(wrong, **SIGNED)
    with pytest.raises(InvalidStudy, match="by must be what the ids are"):
        study.erase("a", by="patient", **SIGNED)
    with pytest.raises(InvalidStudy, match="who decides"):
        study.erase("a", actor="")


def test_persons_are_found_by_a_column_and_ids_need_not_be_text(make):
    sample = {"age": [20, 40, 60], "patient": [1, 2, 3]}
    policy = FramePolicy.fit(LinUCB, sample, arms=["tea", "rum"], ignore=["patient"], schedule=OnDemand(), seed=0)
    study = make(policy, arms=None)
    for i, patient in enumerate([4711, "4711", 4711.0, 47110, "x4711", None]):
        study.ask({"user": {"age": 20 + i, "patient": patient}}, id=f"visit-{i}")
    assert study.erase(4711, by="patient", **SIGNED).decisions == 3
    assert '"patient":4711}' not in rows_of(study)
    assert study.verify().whole
    assert study.erase("4711", by="patient", **SIGNED).decisions == 0
    assert study.ask({"user": {"age": 30, "patient": 4711}}, id="visit-9").round == 7
    with pytest.raises(InvalidStudy, match=r"a column of the user's table \(age, patient\)"):
        study.erase(4711, by="pateint", **SIGNED)


@pytest.mark.parametrize("column", ["id", "user"])
def test_a_column_with_the_name_of_something_else_is_told_from_it(make, column):
    sample = {"age": [20, 40, 60], column: [1, 2, 3]}
    policy = FramePolicy.fit(LinUCB, sample, arms=["tea", "rum"], ignore=[column], schedule=OnDemand(), seed=0)
    study = make(policy, arms=None)
    study.ask({"user": {"age": 20, column: "mustermann"}}, id="visit-0")
    done = study.erase("mustermann", by=column, **SIGNED)
    assert done.decisions == 0
    assert done.remains == (f"the column {column!r} was not looked at: give by='user.{column}' for it.",)
    assert study.erase("mustermann", by=f"user.{column}", **SIGNED).decisions == 1
    assert "mustermann" not in rows_of(study)
    assert study.verify().whole


def test_a_person_with_a_large_number_is_not_taken_for_the_next(make):
    sample = {"age": [20, 40, 60], "patient": [1, 2, 3]}
    policy = FramePolicy.fit(LinUCB, sample, arms=["tea", "rum"], ignore=["patient"], schedule=OnDemand(), seed=0)
    study = make(policy, arms=None)
    for patient in (2**53, 2**53 + 1):
        study.ask({"user": {"age": 30, "patient": patient}}, id=f"visit-{patient}")
    assert study.erase(10**400, by="patient", **SIGNED).decisions == 0
    assert study.erase(2**53 + 1, by="patient", **SIGNED).decisions == 1
    assert f'"patient":{2**53}' in rows_of(study)
    assert str(2**53 + 1) not in rows_of(study)


def test_persons_are_found_by_user_and_keep_no_arm(make):
    study = make(LinUCB(dim=2, schedule=OnDemand(), seed=0).under(shares=Shares(sticky=100)))
    for i in range(6):
        study.ask(contexts_of(i), id=f"visit-{i}", user="mustermann" if i % 2 else "other")
    assert study.erase("mustermann", by="user", **SIGNED).decisions == 3
    assert "mustermann" not in rows_of(study)
    study.tell("visit-0", 1.0)
    study.update()
    assert not knows(study)
    assert study.replay().equal


def test_a_user_keeps_the_arm_that_came_after_one_that_was_erased(make):
    study = make(LinUCB(dim=2, schedule=OnDemand(), seed=0).under(shares=Shares(sticky=4)))
    best = np.eye(3)[:, :, None] * [1.0, 1.0] - 0.1  # the first, second and third arm
    ask = lambda round, arm, user: study.ask(best[arm], id=f"visit-{round}", user=user)  # noqa: E731
    study.ask(best[0], id="visit-0", user="ann")
    for round, arm in enumerate([1, 2, 2, 2, 2], 1):  # in round 6 she gets another arm
        ask(round, arm, "ann")
    study.erase("visit-0", **SIGNED)
    assert [each.limits for each in study.decisions()] == ["", *["sticky"] * 4, ""]
    assert ask(6, 0, "ann").index == 2
    assert study.decision("visit-6").limits == "sticky"
    study.tell("visit-6", 1.0)
    assert study.update() == "version"
    assert np.isfinite(study.policy(1).updates[-1].chosen)
    assert study.replay().equal


@pytest.mark.parametrize("given", [{}, {"shares": Shares(caps={0: 1000})}])
def test_prices_are_not_solved_on_their_contexts_again(make, given):
    study = make(LinUCB(dim=2, schedule=FixedGrid(1000, 9), seed=0).under(Ceiling(500.0), **given))
    for i in range(9):
        id, costs = f"{'mustermann' if i in (2, 5) else 'visit'}-{i}", Worth(spends=[0.0, 1.0, 2.0])
        study.ask(PERSON if i in (2, 5) else contexts_of(i), id=id, worth=costs)
        study.tell(id, 1.0)
        if i == 3:
            study.update(force=True)
    study.erase("mustermann-2", **SIGNED)
    study.update(force=True)
    study.erase("mustermann-5", **SIGNED)
    assert knows(study)  # the version in use
    study.update(force=True)
    assert study.erase("mustermann-5", **SIGNED).remains == ()
    assert not knows(study)
    assert study.replay().equal


@pytest.mark.parametrize("id", ["mustermann-0", "mustermann-0#1", "mustermann-0#2"])  # all slots have the contexts
def test_slates_are_erased_whole(make, id):
    study = make()
    study.ask(PERSON, id="mustermann-0", slots=2)
    study.tell("mustermann-0", [0.0, 1.0])
    play(study, 0, 3)
    done = study.erase(id, **SIGNED)
    assert (done.decisions, done.rewards) == (2, 2)
    assert not knows(study)
    study.update()
    assert study.replay().equal


def altered(study, sql, *values):
    with study._session.storage.writing("trial") as tables, study._session.storage.altering("rarely_events"):
        tables.run(sql, values)


@every_storage
def test_contexts_that_are_blanked_without_an_erasure_are_detected(make, storage):
    study = make()
    with_person(study)
    study.erase(IDS[0], **SIGNED)
    rows = {e.seq: e for e in study.events()}
    erased = next(e for e in rows.values() if e.kind == "decide" and "erased" in e.content)
    whole = next(e for e in rows.values() if e.kind == "decide" and "erased" not in e.content)
    one = "UPDATE rarely_events SET body = ?, data = ? WHERE seq = ?"
    forged = blanked(whole)
    altered(study, one, forged.body, forged.data, whole.seq)
    assert "was altered" in study.verify().flaw
    with pytest.raises(BrokenStudy, match="was altered"):
        list(study.decisions())
    altered(study, one, whole.body, whole.data, whole.seq)
    assert study.verify().whole
    body = json.loads(erased.body)
    body["arm"] = (body["arm"] + 1) % 3
    altered(study, one, json.dumps(body, separators=(",", ":"), sort_keys=True), erased.data, erased.seq)
    assert study.verify().bad == erased.seq  # what is left of a row is vouched for, too


def test_the_snapshot_in_use_must_be_there_although_it_will_go(make):
    study = make()
    with_person(study)
    study.update()
    study.erase(IDS, **SIGNED)
    assert study.verify().whole
    snapshot = study.versions()[1].snapshot
    with study._session.storage.writing("trial") as tables, study._session.storage.altering("rarely_snapshots"):
        tables.of(study._session.row).drop_snapshots([snapshot])
    assert "it is in use" in study.verify().flaw


def test_a_training_that_began_before_is_not_published(make):
    study = make()
    with_person(study)
    trained = train(study.begin_update())
    study.erase(IDS, **SIGNED)
    with pytest.raises(StaleTrainer, match="were erased meanwhile"):
        study.finish_update(trained)
    assert study.update() == "version"
    assert not knows(study)


def test_a_candidate_that_knows_them_is_dropped(make):
    study = make(stages=[Stage("main", approval=True)])
    with_person(study)
    assert study.update() == "candidate"
    study.erase(IDS, **SIGNED)
    assert study.status().candidate is None
    assert not knows(study)
    play(study, 40, 3)
    assert study.update() == "candidate"
    study.approve(actor="bob")
    assert study.status().version == 1
    assert study.verify().whole


@every_storage
def test_others_decide_while_persons_are_erased(make, storage):
    study = make()
    with_person(study, 60)
    failed, ended = [], threading.Event()

    def decide():
        try:
            with Study.open(storage, "trial") as other:
                i = 1000
                while not ended.is_set():
                    play(other, i, 1)
                    i += 1
        except StudyError as error:  # pragma: no cover
            failed.append(error)

    thread = threading.Thread(target=decide)
    thread.start()
    try:
        for i in range(3):
            study.ask(PERSON, id=f"mustermann-{10 + i}")
            study.erase(f"mustermann-{10 + i}", **SIGNED)
    finally:
        ended.set()
        thread.join()
    assert not failed
    study.erase(IDS, **SIGNED)
    assert study.verify().whole
    assert not knows(study)
    assert study.replay().equal


def checkpointed(study):
    study._session.save_checkpoint(study._session.live, study._session.live.mark)


@pytest.mark.parametrize("act", ["erase", "prune"])
def test_checkpoints_of_versions_that_went_go_too(make, act):
    study = make(neural())
    with_person(study)
    study.update()
    play(study, 40, 5)
    if act == "erase":
        study.erase(IDS, **SIGNED)
    checkpointed(study)  # of the version in use, which has learned of them
    study.update(force=True)
    if act == "prune":
        study.prune(10**6, **SIGNED)
    study.ask(contexts_of(99), id="next")
    checkpointed(study)
    with study._session.checkpoints() as tables:
        bases = {base for (base,) in tables.run("SELECT base FROM rarely_checkpoints")}
    assert bases == {study._session.position.base}
    assert study.replay().equal


def test_nothing_is_left_in_a_restored_file_and_it_is_backed_up_again(make, tmp_path):
    study = make(neural())
    with_person(study)
    checkpointed(study)
    study.backup(tmp_path / "backup.db")
    Study.restore(tmp_path / "backup.db", f"sqlite:///{tmp_path}/restored.db")
    with Study.open(f"sqlite:///{tmp_path}/restored.db") as restored:
        play(restored, 40, 5)
        checkpointed(restored)
        restored.backup(tmp_path / "again.db")
        assert restored.erase(IDS, **SIGNED).remains == ()
        for name in ("restored.db", "restored.db-checkpoints", "restored.db-wal"):
            data = (tmp_path / name).read_bytes() if (tmp_path / name).exists() else b""
            assert struct.pack("<d", PERSON[0, 0]) not in data, name
    with Study.open(f"sqlite:///{tmp_path}/again.db") as again:
        assert again.status().decisions == 35
        assert again.replay().equal


def test_a_checkpoint_that_was_begun_before_is_not_kept(make):
    study = make()
    with_person(study)
    session = study._session
    live, mark = session.live, session.live.mark
    study.erase(IDS, **SIGNED)
    session.save_checkpoint(live, mark)
    assert not knows(study)
    study.ask(contexts_of(1), id="new")
    session.save_checkpoint(session.live, session.live.mark)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert make.open().status() == study.status()


def test_an_analysis_counts_outcomes_of_erased_patients(make):
    study = make(control="a", stages=[Stage("main", least=0.1)], rewards=RewardRule(least=0.0, most=1.0))
    with_person(study, 60)
    before = study.analysis()
    study.erase(IDS, **SIGNED)
    after = study.analysis()
    assert after.rewards == before.rewards
    assert after.flow == before.flow
    assert any("contexts of 2 decisions were erased" in each for each in after.deviations)
    assert abs(after.contrasts[0].estimate - before.contrasts[0].estimate) < 0.2


def test_an_erased_study_is_backed_up_and_restored(make, tmp_path):
    study = make()
    with_person(study)
    study.erase(IDS, **SIGNED)
    play(study, 40, 3)
    study.backup(tmp_path / "backup.db")
    assert b"mustermann" not in (tmp_path / "backup.db").read_bytes()
    Study.restore(tmp_path / "backup.db", f"sqlite:///{tmp_path}/restored.db")
    with Study.open(f"sqlite:///{tmp_path}/restored.db") as restored:
        assert restored.status().head == study.status().head
        assert restored.verify().gone == study.verify().gone
        with pytest.warns(ErasedWarning):
            restored.export(tmp_path / "log.csv")
        assert (tmp_path / "log.csv").stat().st_mode & 0o077 == 0
        assert restored.update() == "version"


def said_by(*arguments):
    result = call(*arguments)
    assert not result.exit_code, result.output
    return told(result)


def test_the_commands_erase_and_prune(tmp_path):
    storage = f"sqlite:///{tmp_path}/trial.db"
    with Study.create(storage, "trial", policy=linear(), arms=["a", "b", "c"]) as study:
        with_person(study)
        study.update()
    signed = ["--actor", "ann", "--reason", "asked on Monday"]
    done = said_by("study", "erase", storage, *IDS, *signed)
    assert "erased: 2 decisions and 2 rewards" in done
    assert "version 1, which is in use" in done
    assert "would go: " in said_by("study", "prune", storage, "2100-01-01", *signed, "--dry-run")
    assert "gone: " in said_by("study", "prune", storage, "2100-01-01", *signed)
    said = said_by("study", "verify", storage)
    assert "whole: " in said
    assert "erased 2 decisions" in said
    assert "pruned " in said
    assert "on: what was before rests on what was erased or pruned" in said_by("study", "replay", storage)
