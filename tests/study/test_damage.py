"""What is damaged, foreign or cannot be written to is refused with what to do, and never served."""

import os
import shutil
import sqlite3
import sys
from contextlib import closing

import pytest

from rarely.study import BrokenStudy, Event, InvalidStorage, NewerSchema, Study, StudyError
from rarely.study.storage import database
from studies import contexts_of, every_storage, linear, play

root = hasattr(os, "geteuid") and os.geteuid() == 0


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A small study in a file."""
    path = tmp_path_factory.mktemp("original") / "trial.db"
    with Study.create(f"sqlite:///{path}", "trial", policy=linear(), arms=["a", "b", "c"]) as study:
        play(study, 0, 10)
        study.update()
        play(study, 10, 10)
        study.update()
        play(study, 20, 5)
    return path


@pytest.fixture
def path(original, tmp_path):
    """A copy of it that nobody has open."""
    return shutil.copy(original, tmp_path / "trial.db")


def tamper(path, *statements):
    """Change rows as somebody would who has the file: triggers are dropped first."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        triggers = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for (name,) in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("PRAGMA foreign_keys = OFF")
        for statement in statements:
            connection.execute(statement)


def url(path):
    return f"sqlite:///{path}"


@every_storage
@pytest.mark.parametrize("table", database.TABLES)
def test_rows_cannot_be_changed_or_deleted(make, table):
    study = make()
    play(study, 0, 3)
    study.update()
    with study._session.storage.writing("trial") as tables:
        tables.run("INSERT INTO rarely_erasures VALUES (1, 'other', 0, 'ann', '', 0, '')")
    columns = {"rarely_schema": "rarely", "rarely_studies": "name", "rarely_leases": "holder"}
    column = (columns | {"rarely_erasures": "name"}).get(table, "sha256")
    column = "body" if table == "rarely_events" else column
    for sql in (f"DELETE FROM {table}", f"UPDATE {table} SET {column} = 'x'"):
        with pytest.raises(StudyError, match="never changed"), study._session.storage.writing("trial") as tables:
            tables.run(sql)


@pytest.mark.parametrize(
    ("statement", "bad", "says"),
    [
        ("UPDATE rarely_events SET body = replace(body, '\"arm\":', '\"arm\": ') WHERE seq = 5", 5, "altered"),
        ("UPDATE rarely_events SET time = time + 1 WHERE seq = 7", 7, "altered"),
        ("UPDATE rarely_events SET data = zeroblob(length(data)) WHERE seq = 3", 3, "altered"),
        ("UPDATE rarely_events SET ref = 'other' WHERE seq = 13", 13, "altered"),
        ("DELETE FROM rarely_events WHERE seq = 9", 9, "missing"),
        ("UPDATE rarely_events SET previous = hash WHERE seq = 9", 9, "does not continue"),
        ("UPDATE rarely_snapshots SET policy = zeroblob(100), sha256 = 'x' WHERE seq = 1", 1, "snapshot of event 1"),
        ("DELETE FROM rarely_snapshots WHERE seq > 1", 23, "snapshot of event 23"),
    ],
)
def test_verify_names_the_first_bad_row(path, statement, bad, says):
    with Study.open(url(path), lazy=True) as study:
        assert study.verify().whole
        events = study.verify().events
    tamper(path, statement)
    with Study.open(url(path), lazy=True) as study:
        found = study.verify()
    assert not found.whole
    assert found.bad == (events + 1 if bad is None else bad)
    assert says in found.flaw


def test_an_altered_first_event_is_no_study(path):
    tamper(path, "UPDATE rarely_events SET actor = 'eve' WHERE seq = 1")
    with pytest.raises(BrokenStudy, match="first event"):
        Study.open(url(path), lazy=True)


def test_an_end_that_was_cut_off_is_found_by_who_noted_the_last_hash(path):
    with Study.open(url(path)) as study:
        noted = study.status()
        assert study.verify(noted.head, noted.events).whole
        study.ask(contexts_of(99))
        assert study.verify(noted.head, noted.events).whole
        assert not study.verify(noted.head, noted.events - 1).whole
    tamper(path, f"DELETE FROM rarely_events WHERE seq >= {noted.events}")
    with Study.open(url(path)) as study:
        assert study.verify().whole
        assert "cut off" in study.verify(noted.head, noted.events).flaw


def test_an_altered_decision_is_not_served(path):
    tamper(path, "UPDATE rarely_events SET data = zeroblob(length(data)) WHERE seq = 47")
    with pytest.raises(BrokenStudy, match="event 47"):
        Study.open(url(path))


@pytest.mark.parametrize(
    "change",
    [
        "body = body || ' '",
        "body = '{}'",
        "body = '[1]'",
        """body = '{"reward":"x","round":[],"snapshot":"x","cut":null,"number":"x"}'""",
        "body = '{'",
        "body = CAST(x'7b22ff' AS TEXT)",
        "body = x'00'",
        "data = 'text'",
        "seq = 'five'",
        "hash = 7",
        "ref = 1",
    ],
)
@pytest.mark.parametrize("kind", ["decide", "reward", "version"])
def test_an_altered_record_is_not_analysed(path, change, kind):
    """Also where the change leaves a record that can be read: its numbers are not those that were recorded."""
    last = f"(SELECT max(seq) FROM rarely_events WHERE kind = '{kind}')"
    tamper(path, f"UPDATE rarely_events SET {change} WHERE seq = {last}")
    with Study.open(url(path), lazy=True) as study:
        for read in (study.analysis, study.log, study.replay, lambda: list(study.decisions())):
            with pytest.raises(BrokenStudy, match="Use a backup"):
                read()
    if kind == "version":
        with pytest.raises(BrokenStudy, match="Use a backup"):
            Study.open(url(path))


def test_a_body_without_its_field_is_damage():
    """As when a damaged index names another row: the chain is intact, but what is read is no reward."""
    for body in ('{"rewarc":1.0}', "[1]", "{", None):
        with pytest.raises(BrokenStudy, match="Use a backup"):
            Event(1, "reward", 0, "", "", None, None, "", body, b"", "", "").content["reward"]


def test_a_damaged_snapshot_is_not_served(path):
    tamper(path, "UPDATE rarely_snapshots SET policy = substr(policy, 1, 500)")
    with pytest.raises(BrokenStudy, match="SHA-256"):
        Study.open(url(path))
    with Study.open(url(path), lazy=True) as study:
        with pytest.raises(BrokenStudy, match="SHA-256"):
            study.ask(contexts_of(1), id="visit-1")
        assert "SHA-256" in study.verify().flaw


def test_a_database_of_another_program_is_refused(tmp_path):
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("CREATE TABLE customers (name TEXT)")
    with pytest.raises(InvalidStorage, match="another program"):
        Study.open(url(tmp_path / "other.db"), "x")
    with pytest.raises(InvalidStorage, match="another program"):
        Study.create(url(tmp_path / "other.db"), "x", policy=linear(), arms=3)
    (tmp_path / "empty.db").touch()
    with pytest.raises(InvalidStorage, match="is empty"):
        Study.open(url(tmp_path / "empty.db"), "x")


def test_a_newer_schema_is_refused(path):
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("INSERT INTO rarely_schema VALUES (?, '9.9')", (database.SCHEMA + 1,))
    with pytest.raises(NewerSchema, match=f"schema {database.SCHEMA + 1}"):
        Study.open(url(path))


def test_a_truncated_file_is_refused(path):
    with open(path, "r+b") as file:
        file.truncate(9000)
    with pytest.raises(BrokenStudy, match="Use a backup"):
        Study.open(url(path))


def test_a_backup_is_a_study(path, tmp_path):
    with Study.open(url(path)) as study:
        study.backup(tmp_path / "copy.db")
        known = study.status()
        study.ask(contexts_of(50), id="later")
        with pytest.raises(InvalidStorage, match="exists already"):
            study.backup(tmp_path / "copy.db")
    with Study.open(url(tmp_path / "copy.db")) as copy:
        assert copy.status() == known
        assert copy.replay().equal
    assert not list(tmp_path.glob("*.part*"))


def test_a_backup_of_a_server_is_a_file(postgresql, tmp_path):
    with Study.create(postgresql.new_schema("backup"), "trial", policy=linear(), arms=3) as study:
        play(study, 0, 10)
        study.update()
        known = study.status()
        study.backup(tmp_path / "copy.db")
    with Study.open(url(tmp_path / "copy.db")) as copy:
        assert copy.status() == known
        assert copy.verify().whole
        assert copy.replay().equal


@pytest.mark.skipif(root, reason="root may write to every folder")
def test_a_folder_that_cannot_be_written_to(path):
    folder = path.parent
    os.chmod(folder, 0o500)
    try:
        with pytest.raises(InvalidStorage, match="cannot be written to"):
            Study.open(url(path))
    finally:
        os.chmod(folder, 0o700)


@pytest.mark.skipif(sys.platform == "win32", reason="modes of files are POSIX's")
def test_a_file_that_cannot_be_written_to(path, monkeypatch):
    """Root may write to every file, so the answer of the system is set."""
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(InvalidStorage, match="cannot be written to"):
        Study.open(url(path))


def test_a_full_disk_refuses_and_the_study_goes_on_when_there_is_room(path):
    with Study.open(url(path)) as study:
        pages = study._session.storage.execute("PRAGMA page_count")[0][0]
        before = study.status()
        study._session.storage.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StudyError, match="disk is full"):
            play(study, 1000, 1000)
        study._session.storage.execute("PRAGMA max_page_count = 1000000")
        stored = study.status().decisions
        assert stored >= before.decisions
        again = study.ask(contexts_of(77), id="room")
        assert again.round == stored + 1
        assert study.verify().whole
        assert study.replay().equal


def test_a_network_file_system_is_refused(path, monkeypatch):
    monkeypatch.setattr("rarely.study.storage.sqlite.file_system", lambda path: "nfs4")
    with pytest.raises(InvalidStorage, match=r"network file system \(nfs4\)"):
        Study.open(url(path))


def test_a_file_that_is_removed_is_no_study(path):
    shutil.move(path, path.with_suffix(".away"))
    with pytest.raises(InvalidStorage, match="does not exist"):
        Study.open(url(path))


def test_postgresql_without_psycopg_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(InvalidStorage, match=r"rarely\[postgres\]"):
        Study.open("postgresql://nobody@127.0.0.1:1/none", "x")


def test_a_server_that_cannot_be_reached_is_named_without_its_password(postgresql):
    with pytest.raises(InvalidStorage, match="cannot be reached") as caught:
        Study.open("postgresql://nobody:secret@127.0.0.1:1/none", "x")
    assert "secret" not in str(caught.value)
    with pytest.raises(InvalidStorage, match="holds no studies"):
        Study.open(postgresql.new_schema("empty"), "x")
