"""Checkpoints: a study that starts from one is that which repeats every decision, and a bad one is never trusted."""

import itertools
import os
import sqlite3
import threading
import time
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rarely import DeterminantTrigger, FixedGrid, LinTS, LinUCB, Mixture, ScheduleWarning, Uniform
from rarely.extend.provisional import content_at
from rarely.study import ApprovalNeeded, CheckpointWarning, Stage, Study, StudyFailed, session, train
from studies import contexts_of, every_storage, linear, neural, play


def make_often(patch, every=4):
    """Let every fourth transaction wait for a checkpoint, and groups be so small that a short study has several."""
    for name, value in {"CHECKPOINT_WORK": 0.0, "CHECKPOINT_SHARE": 0.0, "GROUP": 4, "FEW_EVENTS": 6}.items():
        patch.setattr(session, name, value)
    begin, calls = session.Session._begin_checkpoint, itertools.count(1)

    def wait(self):
        if not next(calls) % every:
            begin(self)
            self._checkpoint.join()

    patch.setattr(session.Session, "_begin_checkpoint", wait)


@pytest.fixture
def often(monkeypatch):
    make_often(monkeypatch)


def rows_of(study):
    with study._session.storage.checkpoints() as tables:
        return tables.run("SELECT base, start, seq FROM rarely_checkpoints ORDER BY base, start")


def forget(study):
    with study._session.storage.checkpoints() as tables:
        tables.run("DELETE FROM rarely_checkpoints")


def fingerprint(study):
    with study._session.writing():
        return study._session.live.bare().fingerprint(), study._session.position


def repeated(monkeypatch):
    """Count the decisions that policies repeat."""
    count, follow = [0], session.LivePolicy.follow_records

    def counted(self, block, **options):
        count[0] += len(block)
        return follow(self, block, **options)

    monkeypatch.setattr(session.LivePolicy, "follow_records", counted)
    return count


@every_storage
def test_reopening_repeats_only_what_came_after_the_checkpoint(make, often, monkeypatch):
    study = make(linear())
    play(study, 0, 60)
    expected = fingerprint(study)
    monkeypatch.setattr(session, "CHECKPOINT_WORK", 1e9)
    study._session._patience = 1e9
    play(study, 60, 3, tell=False)
    last = fingerprint(study)
    count = repeated(monkeypatch)
    again = make.open()
    assert count[0] < 10
    assert fingerprint(again) == last != expected
    forget(again)
    count[0] = 0
    assert fingerprint(make.open()) == last
    assert count[0] == 63


STEPS = ["ask", "block", "train", "back", "approve", "reopen"]


@settings(max_examples=6, deadline=None)
@given(st.lists(st.sampled_from(STEPS), min_size=4, max_size=14), st.booleans())
def test_any_life_with_checkpoints_is_the_life_without(steps, running):
    with pytest.MonkeyPatch.context() as patch:
        make_often(patch)
        name = f"memory://lives-{time.monotonic_ns()}"
        stages = [Stage("first", rounds=9, approval=True), Stage("main")]
        policy = (neural if running else linear)()
        study, asked = Study.create(name, "trial", policy=policy, arms=["a", "b", "c"], stages=stages), 0
        for step in ["ask", *steps, "ask"]:
            if step in ("ask", "block"):
                size = 5 if step == "block" else 1
                for _ in range(2):
                    ids = [f"visit-{asked + i}" for i in range(size)]
                    answers = study.ask_many([(contexts_of(asked + i), id) for i, id in enumerate(ids)])
                    study.tell_many([(answer.id, float(answer.index)) for answer in answers])
                    asked += size
            elif step == "train" and study.status().versions < study.status().budget and not study.status().candidate:
                job = study.begin_update(force=True)
                study.ask(contexts_of(asked), id=f"visit-{asked}")
                asked += 1
                study.finish_update(train(job))
            elif step == "back":
                study.rollback(max(study.status().version - 1, 0))
            elif step == "approve" and study.status().candidate:
                study.approve(actor="ann")
            elif step == "reopen":
                study.close()
                study = Study.open(name, "trial")
        kept = fingerprint(Study.open(name, "trial"))
        found = study.replay()
        assert found.equal
        assert not found.checkpoints
        forget(study)
        assert kept == fingerprint(study) == fingerprint(Study.open(name, "trial"))
        assert study.verify().whole


@pytest.mark.parametrize("damage", ["state", "history", "foreign"])
def test_a_damaged_or_foreign_checkpoint_is_announced_and_not_used(make, often, damage):
    study = make(linear())
    play(study, 0, 12)
    expected = fingerprint(study)
    with study._session.storage.checkpoints() as tables:
        run = tables.run
        if damage == "foreign":
            other = Study.create("memory://another", "trial", policy=linear(), arms=["a", "b", "c"])
            play(other, 50, 12)
            with other._session.storage.checkpoints() as theirs:
                rows = theirs.run("SELECT * FROM rarely_checkpoints")
            run("DELETE FROM rarely_checkpoints")
            tables._insert("INSERT INTO rarely_checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        else:
            where = "(SELECT max(start) FROM rarely_checkpoints)" if damage == "state" else "0"
            [(data,)] = run(f"SELECT {damage} FROM rarely_checkpoints WHERE start = {where}")
            bad = bytes([*data[:-9], data[-9] ^ 1, *data[-8:]])
            run(f"UPDATE rarely_checkpoints SET {damage} = ? WHERE start = {where}", (bad,))
    with pytest.warns(CheckpointWarning, match="repeated from the record"):
        again = make.open()
    assert fingerprint(again) == expected


@pytest.mark.parametrize("storage", ["sqlite"], indirect=True)
def test_a_destroyed_file_of_checkpoints_is_announced_and_put_aside(make, often, tmp_path):
    study = make(linear())
    play(study, 0, 12)
    expected = fingerprint(study)
    study.close()
    (tmp_path / "trial.db-checkpoints").write_bytes(b"no database" * 1000)
    with pytest.warns(CheckpointWarning, match="not an intact"):
        again = make.open()
    assert fingerprint(again) == expected
    play(again, 12, 8)
    assert rows_of(again)


def overwrite(path, start):
    """Damage a file of a database from a byte on, so that SQLite opens it all the same."""
    with open(path, "r+b") as file:
        file.seek(start)
        file.write(b"\x5a" * 4096)


@pytest.mark.parametrize("storage", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "harm",
    [
        lambda path: overwrite(path, 4096),
        lambda path: change(path, "ALTER TABLE rarely_checkpoints RENAME COLUMN start TO begin"),
        lambda path: change(path, "UPDATE rarely_checkpoints SET history = 'text'"),
        lambda path: change(path, "UPDATE rarely_checkpoints SET seq = 1000000"),
    ],
)
def test_whatever_is_wrong_with_the_file_of_checkpoints_new_ones_are_made(make, often, tmp_path, harm):
    study = make(linear())
    play(study, 0, 12)
    expected = fingerprint(study)
    study.close()
    harm(tmp_path / "trial.db-checkpoints")
    with pytest.warns(CheckpointWarning, match="repeated from the record"):
        again = make.open()
    assert fingerprint(again) == expected
    play(again, 12, 8)
    last = fingerprint(again)
    again.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        third = make.open()
    assert third.saved > expected[1].seq
    assert fingerprint(third) == last


def test_overdue_updates_are_told_of_where_they_are_of_the_present(tmp_path):
    url = f"sqlite:///{tmp_path}/trial.db"
    schedule = FixedGrid(600, 6)  # batches of 100

    def decide(study, first, count):
        answers = study.ask_many([(contexts_of(i), f"visit-{i}") for i in range(first, first + count)])
        study.tell_many([(answer.id, float(answer.index == 1)) for answer in answers])

    def told(do):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with Study.open(url) as study:
                do(study)
                forget(study)
        return [str(each.message) for each in caught if each.category is ScheduleWarning]

    Study.create(url, "trial", policy=LinUCB(2, schedule, seed=0), arms=["a", "b", "c"]).close()
    assert len(told(lambda study: decide(study, 0, 210))) == 1
    assert told(lambda study: None) == [
        "an update has been due for 110 rounds, since round 100: version 0 still decides, without what was observed "
        "since. Call policy.update() when policy.due is True."
    ]
    assert not told(lambda study: study.update())[1:]
    assert len(told(lambda study: decide(study, 210, 250))) == 1
    told(lambda study: study.update())
    assert not told(lambda study: study.rollback(0, actor="ann", reason="to see"))
    said = told(lambda study: (study.replay(), study.verify(), decide(study, 460, 5)))
    assert [text.partition(":")[0] for text in said] == ["an update has been due for 360 rounds, since round 100"]


def change(path, sql):
    with sqlite3.connect(path) as raw:
        raw.execute(sql)
    raw.close()


@every_storage
def test_only_the_version_in_use_and_the_one_before_keep_checkpoints(make, often):
    study = make(linear())
    for first in range(0, 40, 10):
        play(study, first, 10)
        study.update()
    play(study, 40, 10)
    bases = [version.snapshot for version in study.versions()]
    assert {row[0] for row in rows_of(study)} == set(bases[-2:])
    study.rollback(1)
    play(study, 50, 10)
    assert {row[0] for row in rows_of(study)} == {bases[1], bases[4]}
    assert study.replay().equal


def test_checkpoints_that_fail_are_logged_ever_more_rarely(make, monkeypatch, caplog):
    study = make(linear())
    play(study, 0, 4)
    kept = study._session
    monkeypatch.setattr(session.Session, "save_checkpoint", lambda *_: 1 / 0)
    for times in (2, 4):
        with kept.writing():
            taken = (kept.live, kept.live.mark)
        kept._write_checkpoint(*taken)
        assert kept._patience == times * session.CHECKPOINT_WORK
    assert [record.message for record in caplog.records] == [
        "study 'trial' goes without a checkpoint: division by zero"
    ] * 2
    assert study.ask(contexts_of(5)).round == 5


def test_a_forged_checkpoint_is_found_by_the_replay(make, often):
    study = make(linear())
    play(study, 0, 12)
    assert study.replay().equal
    other = Study.create("memory://forged", "trial", policy=linear(), arms=["a", "b", "c"])
    play(other, 30, 12)
    forget(study)
    with study._session.writing(), other._session.writing():
        position, forged = study._session.position, other._session.live
    study._session.save_checkpoint(forged, (forged.mark[0], position))
    found = study.replay()
    assert found.checkpoints
    assert not found.equal


@every_storage
def test_a_rollback_keeps_nobody_waiting_and_repeats_little(make, often, monkeypatch):
    study = make(LinUCB(dim=2, schedule=FixedGrid(1000, 5), seed=1))
    play(study, 0, 20)
    study.update()
    for first in range(20, 80, 5):
        play(study, first, 5, tell=False)
    count, inside = repeated(monkeypatch), []
    install = session.Session.install

    def counted(self, *arguments):
        before = count[0]
        install(self, *arguments)
        inside.append(count[0] - before)

    monkeypatch.setattr(session.Session, "install", counted)
    study.rollback(0, actor="ann", reason="complaints")
    assert count[0] < 20  # of the 60 since: the version before is kept warm
    assert inside[-1] <= 8  # in the transaction
    play(study, 80, 3)
    assert study.replay().equal
    assert fingerprint(make.open())[0] == fingerprint(study)[0]


def test_the_version_that_is_kept_ready_does_not_make_checkpoints_rarer(make, monkeypatch):
    study = make(linear())
    play(study, 0, 8)
    study.update()
    kept, now, follow = study._session, [0.0], session.LivePolicy.follow_records

    def costly(self, block, **options):
        now[0] += 100.0
        return follow(self, block, **options)

    monkeypatch.setattr(session, "GROUP", 4)
    monkeypatch.setattr(session.time, "thread_time", lambda: now[0])
    monkeypatch.setattr(session.LivePolicy, "follow_records", costly)
    play(study, 8, 40)
    with kept.writing():
        taken = (kept.live, kept.live.mark)
    kept._write_checkpoint(*taken)
    assert now[0] >= 1000  # it was brought up to date
    assert kept._patience == session.CHECKPOINT_WORK
    play(study, 48, 40)
    count, kept._work = repeated(monkeypatch), kept._patience + 1  # a checkpoint of the version in use is due
    kept._follow_standby(kept.position.version)
    assert 0 < count[0] <= 8


def test_decisions_go_on_while_a_version_catches_up(make, often, monkeypatch):
    """A rollback, an approval and a new version repeat decisions outside of the transaction."""
    study = make(linear())
    play(study, 0, 8)
    study.update()
    play(study, 8, 40)
    forget(study)
    study._session._standby = None
    held, gate, follow = threading.Event(), threading.Event(), session.LivePolicy.follow_records

    def slow(self, block, **options):
        if threading.current_thread().name == "brake":
            held.set()
            assert gate.wait(60)
        return follow(self, block, **options)

    monkeypatch.setattr(session.LivePolicy, "follow_records", slow)
    brake = threading.Thread(target=lambda: study.rollback(0), name="brake")
    brake.start()
    assert held.wait(60)
    assert study.ask(contexts_of(99), id="meanwhile").version == 1
    gate.set()
    brake.join()
    assert study.ask(contexts_of(98), id="after").version == 0
    assert study.replay().equal


def test_approval_of_a_candidate_that_is_gone(make, monkeypatch):
    study = make(linear(), stages=[Stage("main", approval=True)])
    play(study, 0, 5)
    study.update()
    ready = session.Session.ready

    def dismissed(self, *arguments):
        study.dismiss(actor="ben")
        return ready(self, *arguments)

    monkeypatch.setattr(session.Session, "ready", dismissed)
    with pytest.raises(ApprovalNeeded):
        study.approve(actor="ann")


@pytest.mark.parametrize("storage", ["postgresql"], indirect=True)
def test_a_reconnect_keeps_the_policy_whether_or_not_the_commit_was_stored(make, monkeypatch):
    study = make(linear())
    play(study, 0, 10)
    count = repeated(monkeypatch)
    for stored in (False, True):
        commit = type(study._session.storage)._commit

        def cut(self, stored=stored, commit=commit):
            if stored:
                commit(self)
            self._raw.close()
            commit(self)

        with monkeypatch.context() as patched:
            patched.setattr(type(study._session.storage), "_commit", cut)
            with pytest.raises(StudyFailed, match="may or may not"):
                study.ask(contexts_of(50), id=f"doubt-{stored}")
        with pytest.raises(StudyFailed):
            study.ask(contexts_of(51))
        study.reconnect()
        before = study.status().decisions
        study.ask(contexts_of(50), id=f"doubt-{stored}")
        assert study.status().decisions == before + (not stored)
    assert count[0] == 0
    assert study.replay().equal


@pytest.mark.parametrize("storage", ["postgresql"], indirect=True)
def test_another_service_follows_a_new_version_from_its_checkpoint(make, monkeypatch):
    make_often(monkeypatch, every=1)
    one = make(linear())
    other = make.open()
    job = one.begin_update(force=True)
    play(one, 0, 40, tell=False)
    one.finish_update(train(job))
    count = repeated(monkeypatch)
    assert other.ask(contexts_of(77), id="b").version == 1
    assert count[0] < 10
    assert np.isfinite(other.status().log_det)
    assert one.replay().equal


@every_storage
def test_opening_without_checkpoints_tells_how_far_it_is_and_goes_on_where_it_was_killed(make, monkeypatch, caplog):
    study = make()
    play(study, 0, 30)
    study.update()
    play(study, 30, 30)
    before = fingerprint(study)
    study.close()
    monkeypatch.setattr(session, "REPEAT_WORK", 0.0)
    take_in, parts = session.LivePolicy._take_in, itertools.count()

    def killed(self, *given, **named):
        if next(parts) == 20:
            raise KeyboardInterrupt
        take_in(self, *given, **named)

    with monkeypatch.context() as patch, caplog.at_level("INFO", "rarely.study"):
        patch.setattr(session.LivePolicy, "_take_in", killed)
        with pytest.raises(KeyboardInterrupt):
            make.open()
    assert "'trial' repeats its record: event " in caplog.text
    count = repeated(monkeypatch)
    again = make.open()
    assert 0 < count[0] < 15  # of 30 since the cut
    assert fingerprint(again) == before
    assert again.replay().equal


@every_storage
def test_a_restored_backup_opens_from_the_checkpoints_that_it_has(make, often, monkeypatch, tmp_path, request):
    study = make()
    play(study, 0, 12)
    study.update()
    play(study, 12, 20)
    before = fingerprint(study)
    study.backup(tmp_path / "copy.db")
    play(study, 32, 3)
    server = request.getfixturevalue("postgresql").new_schema(f"again_{time.monotonic_ns()}")
    for target in (f"sqlite:///{tmp_path / 'new.db'}", server):
        Study.restore(tmp_path / "copy.db", target)
    count = repeated(monkeypatch)
    for storage in (f"sqlite:///{tmp_path / 'copy.db'}", f"sqlite:///{tmp_path / 'new.db'}", server):
        count[0] = 0
        with Study.open(storage) as restored:
            assert count[0] < 8  # of 20 since the cut
            assert fingerprint(restored) == before
            assert restored.replay().equal
    assert sorted(os.listdir(tmp_path))[:1] == ["copy.db"]
    assert not [name for name in os.listdir(tmp_path) if ".part" in name]


def test_the_version_kept_ready_rests_while_others_decide(make, often, monkeypatch):
    study = make()
    play(study, 0, 8)
    study.update()
    pauses = []
    monkeypatch.setattr(session.time, "sleep", pauses.append)
    play(study, 8, 16)
    assert pauses
    assert all(0 <= pause <= session.BUSY for pause in pauses)
    monkeypatch.setattr(session, "BUSY", -1.0)  # nobody decides
    pauses.clear()
    play(study, 24, 16)
    assert not pauses


LIVES = {
    "draws": (LinTS(dim=2, schedule=DeterminantTrigger(5000, 50, 1.0), seed=0), {}),
    "mixture": (LinUCB(dim=2, schedule=FixedGrid(5000, 5), exploration=Mixture(0.2), seed=0), {}),
    "limits": (LinTS(dim=2, schedule=FixedGrid(5000, 5), seed=0), {"stages": [Stage("main", least=0.1)]}),
    "stages": (Uniform(dim=2, seed=0), {"stages": [Stage("burn-in", 200, burn_in=True), Stage("main")]}),
    "network": (neural(), {}),
}


@pytest.mark.parametrize("life", LIVES)
def test_a_policy_that_is_repeated_has_the_bits_of_the_one_that_decided(make, life, monkeypatch):
    """Whatever decided it, in blocks of any size: in NumPy or in C."""
    monkeypatch.setattr(session, "GROUP", 64)
    policy, settings = LIVES[life]
    study, rng = make(policy, **settings), np.random.default_rng(0)
    for turn in range(30 if life == "network" else 90):
        requests = [(rng.normal(size=(3, 2)), f"{turn}-{i}") for i in range(int(rng.integers(1, 6)))]
        study.tell_many([(answer.id, float(answer.index)) for answer in study.ask_many(requests)])
        if turn in (20, 75) and life != "stages":
            study.update()
    states = []
    for _ in range(2):
        with study._session.writing():
            live = study._session.live
            header, arrays = content_at(live.policy, live.mark[0])
        states.append((header, {name: array.tobytes() for name, array in arrays.items()}, live.position))
        study._session._live = None
        with study._session.checkpoints() as tables:
            tables.run("DELETE FROM rarely_checkpoints")
    assert states[0] == states[1]
    assert life == "network" or study.status().decisions > 3 * session.GROUP
