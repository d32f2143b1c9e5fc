"""What an operator relies on: leases that end, clocks that leap, backups, exports and published heads."""

import csv
import json
import os
import sqlite3
import threading
import time

import numpy as np
import pytest

from rarely import ArmBlocks, LinUCB
from rarely.logs import read_log
from rarely.study import (
    BrokenStudy,
    ClockAhead,
    InvalidStorage,
    InvalidStudy,
    RewardRule,
    Study,
    StudyBusy,
    train,
    versions,
)
from studies import Clock, contexts_of, every_storage, play

YEARS = 5 * 365 * 86400.0


# --- leases


def test_a_lease_is_short_and_renewed_while_the_training_runs(make, monkeypatch):
    monkeypatch.setattr(versions, "LEASE", 0.3)
    study = make()
    play(study, 0, 5)
    job = study.begin_update()
    with study.renewed(job):
        time.sleep(0.8)
        with pytest.raises(StudyBusy, match="unless it is renewed"):
            study.begin_update()
    time.sleep(0.4)
    second = study.begin_update(force=True)
    assert second.token > job.token


@pytest.mark.parametrize("storage", ["postgresql"], indirect=True)
def test_a_lease_ends_by_the_clock_of_the_database(make, monkeypatch):
    study = make()
    play(study, 0, 5)
    ahead = make.open(clock=lambda: time.time() + 200.0)
    monkeypatch.setattr(versions, "holder_name", lambda: "elsewhere/1/00000000")
    study.begin_update()
    with pytest.raises(StudyBusy, match="unless it is renewed"):
        ahead.begin_update()


def test_a_lease_that_cannot_be_renewed_is_logged_and_tried_again(make, monkeypatch, caplog):
    study = make()
    play(study, 0, 5)
    monkeypatch.setattr(versions, "LEASE", 0.03)
    job, writing = study.begin_update(), study._session.storage.writing
    failures = [StudyBusy("another process has locked it"), ZeroDivisionError("whatever")]

    def sometimes(name):
        if failures:
            raise failures.pop()
        return writing(name)

    monkeypatch.setattr(study._session.storage, "writing", sometimes)
    with study.renewed(job):
        deadline = time.monotonic() + 60
        while failures and time.monotonic() < deadline:
            time.sleep(0.01)
    assert [record.message.rpartition(": ")[2] for record in caplog.records] == [
        "whatever",
        "another process has locked it",
    ]


def test_process_1_of_a_container_takes_over_the_lease_of_its_predecessor(make, monkeypatch):
    study = make()
    play(study, 0, 5)
    study.begin_update()
    with pytest.raises(StudyBusy):
        study.update()
    monkeypatch.setattr(versions, "_ACTIVE", {})  # as a new process, which has begun no training
    assert study.update() == "version"


@pytest.mark.parametrize("storage", ["postgresql"], indirect=True)
def test_a_training_that_outlives_its_connection_is_published(make):
    study = make()
    play(study, 0, 5)
    trained = train(study.begin_update())
    study._session.storage._raw.close()
    with pytest.raises(Exception, match="connection"):
        study.ask(contexts_of(9), id="lost")
    study.reconnect()
    assert study.finish_update(trained) == "version"
    assert study.finish_update(trained) == "version"  # whose commit was not confirmed, say
    assert [version.number for version in study.versions()] == [0, 1]


def test_a_training_that_was_given_up_leaves_no_lease_to_its_own_process(make, monkeypatch):
    study = make()
    play(study, 0, 5)
    job = study.begin_update()
    with monkeypatch.context() as patched:
        patched.setattr(study._session.storage, "writing", lambda name: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            study.give_up_update(job)  # the database is away
    assert study.update() == "version"


# --- clocks


@pytest.mark.parametrize("storage", ["sqlite"], indirect=True)
def test_a_clock_years_ahead_is_refused_and_nothing_is_recorded(make):
    clock = Clock()
    study = make(clock=clock)
    play(study, 0, 2)
    clock.now += YEARS
    events = study.status().events
    for call in (lambda: study.ask(contexts_of(5), id="x"), lambda: study.tell("visit-0", 2.0), study.begin_update):
        with pytest.raises(ClockAhead, match="ahead of the last event"):
            call()
    assert study.status().events == events
    with pytest.raises(InvalidStudy, match="actor"):
        study.repair_clock(actor="")
    assert study.repair_clock(actor="ann", reason="a long pause") == 0
    assert study.ask(contexts_of(5), id="x").time == round(clock.now * 1e6)
    assert study.verify().whole


@pytest.mark.parametrize("storage", ["postgresql"], indirect=True)
def test_a_clock_ahead_of_the_database_is_refused(make):
    clock = Clock(time.time())
    study = make(clock=clock)
    play(study, 0, 2)
    clock.now += 3600
    with pytest.raises(ClockAhead, match="clock of the database"):
        study.ask(contexts_of(5), id="x")
    clock.now -= 3600 + 86400 * 90
    study.ask(contexts_of(5), id="x")


@every_storage
def test_a_study_led_astray_is_repaired_by_an_event(make, monkeypatch):
    clock = Clock(time.time() - 10)
    study = make(clock=clock, rewards=RewardRule(wait=60.0, default=0.0))
    play(study, 0, 3, tell=False)
    with monkeypatch.context() as patched:
        patched.setattr("rarely.study.session.MAX_LEAP", 1e12)
        patched.setattr("rarely.study.session.MAX_SKEW", 1e12)
        clock.now += YEARS
        play(study, 3, 3, tell=False)
        clock.now -= YEARS
    before = study.ask(contexts_of(6), id="visit-6").time
    assert before > (clock.now + YEARS - 1) * 1e6  # time stands still
    offset = study.repair_clock(actor="ann", reason="the clock was wrong on Monday")
    assert offset == round(YEARS * 1e6)
    answer = study.ask(contexts_of(7), id="visit-7")
    clock.now += 5
    assert study.ask(contexts_of(8), id="visit-8").time - answer.time == 5_000_000
    assert study.tell("visit-8", 1.0).status == "accepted"
    clock.now -= 3
    again = make.open(clock=clock)
    clock.now += 100 if "postgresql" not in make.storage else 8
    assert again.tell("visit-7", 1.0).status == ("late" if "postgresql" not in make.storage else "accepted")
    assert again.verify().whole
    assert again.replay().equal


# --- backups, exports and heads


@pytest.mark.parametrize("storage", ["sqlite", "postgresql"], indirect=True)
def test_decisions_go_on_during_a_backup_which_is_restored_elsewhere(make, tmp_path, monkeypatch, request):
    monkeypatch.setattr("rarely.study.storage.sqlite.BACKUP_PAGES", 1)
    monkeypatch.setattr("rarely.study.storage.sqlite.BACKUP_PAUSE", 0.01)
    study = make()
    play(study, 0, 20)
    study.update()
    status, made = study.status(), []
    copying = threading.Thread(target=lambda: made.append(study.backup(tmp_path / "copy.db")))
    copying.start()
    play(study, 20, 5)
    copying.join()
    assert made == [None]
    with Study.open(f"sqlite:///{tmp_path / 'copy.db'}") as copy:
        assert copy.verify(status.head, status.events).whole
        head = copy.status().head
    target = request.getfixturevalue("postgresql").new_schema(f"restored_{os.urandom(4).hex()}")
    assert Study.restore(tmp_path / "copy.db", target) == ["trial"]
    with Study.open(target) as restored:
        assert restored.status().head == head
        assert restored.replay().equal
        restored.ask(contexts_of(99), id="goes on")
    with pytest.raises(InvalidStorage, match="empty database"):
        Study.restore(tmp_path / "copy.db", target)


def test_a_damaged_backup_is_not_restored(make, tmp_path):
    study = make()
    play(study, 0, 3)
    study.backup(tmp_path / "copy.db")
    with sqlite3.connect(tmp_path / "copy.db") as connection:
        connection.execute("DROP TRIGGER rarely_events_no_update")
        connection.execute("UPDATE rarely_events SET actor = 'eve' WHERE seq = 3")
    target = f"sqlite:///{tmp_path / 'new.db'}"
    with pytest.raises(BrokenStudy, match="event 3"):
        Study.restore(tmp_path / "copy.db", target)
    assert not (tmp_path / "new.db").exists()


def test_an_export_carries_id_time_stage_and_actor(make, tmp_path):
    study = make()
    answers = play(study, 0, 4)
    study.ask(contexts_of(9), id="visit, 9", actor="ben")
    log = study.export(tmp_path / "log.csv")
    with open(tmp_path / "log.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == [*(answer.id for answer in answers), "visit, 9"]
    assert (rows[0]["time"], rows[0]["stage"], rows[4]["actor"]) == (str(answers[0].time), "main", "ben")
    whole = study.log()
    assert log == (5, whole.missing)
    read = read_log(tmp_path / "log.csv")
    for name in ("propensities", "rewards", "contexts", "probabilities", "rounds", "versions", "arms"):
        assert np.array_equal(getattr(read, name), getattr(whole, name), equal_nan=True)


def test_an_export_names_its_columns_before_the_first_decision(monkeypatch):
    blocks = ArmBlocks.fit(np.arange(12.0).reshape(4, 3) ** 2, arms=2)
    policy = LinUCB(dim=blocks.dim, seed=0)
    with Study.create("memory://late-decision", "rows", policy=policy, blocks=blocks) as study:
        study.tell("nobody", 1.0)
        study.ask([1.0, 2.0, 3.0], id="one")
        monkeypatch.setattr("rarely.study.audit.CHUNK", 2)
        header, *rows = [line.split(",") for line in "".join(study.csv_text()).splitlines()]
        assert [len(row) for row in rows] == [len(header)]


@every_storage
def test_an_export_reads_some_rows_at_a_time_and_any_number_of_arms(make, tmp_path, monkeypatch):
    study = make(arms=None)
    for number in range(25):
        study.tell(study.ask(contexts_of(number, arms=2 + number % 3)).id, 0.1 * number)
    monkeypatch.setattr("rarely.study.audit.CHUNK", 4)
    parts = list(study.csv_text())
    assert len(parts) == 7  # of at most four decisions each
    assert study.export(tmp_path / "log.csv") == (25, 0)
    assert "".join(parts) == (tmp_path / "log.csv").read_text()
    read, whole = read_log(tmp_path / "log.csv"), study.log()
    assert np.array_equal(read.contexts, whole.contexts, equal_nan=True)
    assert np.array_equal(read.rewards, whole.rewards)


@pytest.mark.parametrize("aggregation", ["first", "last", "sum"])
def test_an_export_has_the_rewards_that_a_version_may_learn_from(make, clock, tmp_path, monkeypatch, aggregation):
    study = make(rewards=RewardRule(aggregation, wait=10.0, default=-1.0), clock=clock)
    for number in range(12):
        clock.now += 1.0
        answer = study.ask(contexts_of(number))
        for key in range(number % 3):
            study.tell(answer.id, number + 0.25 * key, key=str(key))
    monkeypatch.setattr("rarely.study.audit.CHUNK", 3)
    study.export(tmp_path / "log.csv")
    assert np.array_equal(read_log(tmp_path / "log.csv").rewards, study.log().rewards, equal_nan=True)


def test_published_heads_show_that_the_end_was_cut_off(make, tmp_path):
    study = make()
    heads = tmp_path / "heads.jsonl"
    for first in range(0, 6, 3):
        play(study, first, 3)
        with open(heads, "a") as file:
            file.write(json.dumps(study.status().describe()) + "\n")
    assert study.verify(heads=heads).whole
    with open(heads, "a") as file:
        file.write('{"name": "trial", "ev')  # cut off by a crash
    assert study.verify(heads=heads).whole
    last = study.status().events
    study.backup(tmp_path / "copy.db")
    with sqlite3.connect(tmp_path / "copy.db") as connection:
        connection.execute("DROP TRIGGER rarely_events_no_delete")
        connection.execute("DELETE FROM rarely_events WHERE seq >= ?", (last - 1,))
    with Study.open(f"sqlite:///{tmp_path / 'copy.db'}") as copy:
        assert copy.verify().whole
        assert "cut off" in copy.verify(heads=heads).flaw
    heads.write_text("not a head\n")
    with pytest.raises(InvalidStudy, match="line 1"):
        study.verify(heads=heads)


def test_read_only_media_are_verified_exported_and_replayed(make, tmp_path, monkeypatch):
    study = make()
    play(study, 0, 5)
    study.update()
    folder = tmp_path / "disc"
    folder.mkdir()
    study.backup(folder / "trial.db")
    files = sorted(os.listdir(folder))
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and access(path, mode))
    with Study.open(f"sqlite:///{folder / 'trial.db'}", lazy=True) as copy:
        assert copy.verify().whole
        assert len(copy.log()) == 5
        monkeypatch.undo()
        with pytest.raises(InvalidStorage, match="written"):
            copy.ask(contexts_of(7))
    assert sorted(os.listdir(folder)) == files
    (folder / "trial.db-wal").write_bytes(b"x")
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and access(path, mode))
    with pytest.raises(InvalidStorage, match="not closed"):
        Study.open(f"sqlite:///{folder / 'trial.db'}", lazy=True)
    with pytest.raises(InvalidStorage, match="cannot be written"):
        Study.open(f"sqlite:///{folder / 'trial.db'}")
