"""The way from an earlier schema: a backup first, then all steps or none."""

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rarely._cli import app
from rarely.study import InvalidStorage, NewerSchema, OlderSchema, Study
from rarely.study.storage import database, open_storage
from studies import contexts_of, linear, play

both = pytest.mark.parametrize("storage", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture
def earlier(storage):
    """A study as schema 3 has it."""
    with Study.create(storage, "trial", policy=linear(), arms=["a", "b", "c"]) as study:
        play(study, 0, 5)
    rewrite(storage, 3, "0.4.0", "DROP TABLE rarely_erasures")
    return storage


def rewrite(storage, schema, rarely, *statements):
    with closing(open_storage(storage)) as opened, opened.transaction(opened.writable):
        if opened.dialect == "sqlite":
            opened.execute("DROP TRIGGER rarely_schema_no_update")
        else:
            opened.execute("ALTER TABLE rarely_schema DISABLE TRIGGER USER")
        opened.execute("UPDATE rarely_schema SET version = ?, rarely = ?", (schema, rarely))
        for statement in statements:
            opened.execute(statement)


def versions_of(storage):
    with closing(open_storage(storage)) as opened, opened.reading():
        return opened.execute("SELECT version FROM rarely_schema ORDER BY version")


@both
def test_an_earlier_schema_is_upgraded_after_a_backup(earlier, tmp_path):
    with pytest.raises(OlderSchema, match="rarely study upgrade STORAGE BACKUP"):
        Study.open(earlier)
    steps = Study.upgrade(earlier)
    assert [step.partition(":")[0] for step in steps] == ["schema 3 to 4", "schema 4 to 5"]
    assert versions_of(earlier) == [(3,)]  # so far it was only said
    assert Study.upgrade(earlier, tmp_path / "before.db") == steps
    assert versions_of(earlier) == [(3,), (5,)]
    with Study.open(earlier) as study:
        assert study.ask(contexts_of(9), id="visit-9").round == 6
        assert study.verify().whole
        assert study.replay().equal
    assert Study.upgrade(earlier) == []
    before = f"sqlite:///{tmp_path / 'before.db'}"
    assert versions_of(before) == [(3,)]
    Study.upgrade(before, tmp_path / "again.db")
    with Study.open(before) as study:
        assert study.status().decisions == 5


@both
def test_a_step_that_fails_changes_nothing(earlier, tmp_path, monkeypatch):
    def fail(opened):
        opened.execute("CREATE TABLE rarely_half (x INTEGER)")
        raise RuntimeError

    monkeypatch.setitem(database.STEPS, 3, ("fail", fail))
    with pytest.raises(RuntimeError):
        Study.upgrade(earlier, tmp_path / "before.db")
    with closing(open_storage(earlier)) as opened, opened.transaction(opened.writable):
        opened.execute("CREATE TABLE rarely_half (x INTEGER)")  # it is not there
        opened.execute("DROP TABLE rarely_half")
    assert versions_of(earlier) == [(3,)]
    with pytest.raises(InvalidStorage, match="exists already"):
        Study.upgrade(earlier, tmp_path / "before.db")


@both
def test_what_is_newer_or_too_old_says_what_to_do(storage, tmp_path):
    Study.create(storage, "trial", policy=linear(), arms=["a", "b", "c"]).close()
    rewrite(storage, 2, "0.3.0")
    for work in (lambda: Study.open(storage), lambda: Study.upgrade(storage, tmp_path / "b.db")):
        with pytest.raises(OlderSchema, match=r"Export\s+its studies with rarely 0\.3\.0.*from_log"):
            work()


def test_a_newer_schema_names_the_version_that_reads_it(tmp_path):
    storage = f"sqlite:///{tmp_path / 'trial.db'}"
    Study.create(storage, "trial", policy=linear(), arms=["a", "b", "c"]).close()
    with closing(sqlite3.connect(tmp_path / "trial.db")) as connection:
        connection.execute("INSERT INTO rarely_schema VALUES (?, '9.9')", (database.SCHEMA + 1,))
        connection.commit()
    for work in (lambda: Study.open(storage), lambda: Study.upgrade(storage)):
        with pytest.raises(NewerSchema, match=r"written by rarely 9\.9, which reads it"):
            work()


FIXTURES = Path(__file__).parent / "fixtures"
KNOWN = {
    4: ("5f887aba979df5a929e52f3d6cfc20eded3e7c5e61b878b57e124607cb581e0e", 39),
    5: ("687801a3bbb2222e3916da8fbef17b6276ca13ebf1830a0b182ce5454a492922", 39),
}
"""The last hash, and the events, of a study that a release of each schema wrote: never change what is in a fixture."""


@pytest.mark.parametrize("schema", KNOWN)
def test_what_was_written_once_is_read_for_ever(schema, tmp_path):
    """Two versions, a rollback, a pin, and rewards in quarantine: as they were, and it goes on."""
    path = tmp_path / "trial.db"
    path.write_bytes(gzip.decompress((FIXTURES / f"schema-{schema}.db.gz").read_bytes()))
    storage, (head, events) = f"sqlite:///{path}", KNOWN[schema]
    if schema < database.SCHEMA:
        with pytest.raises(OlderSchema, match="upgrade"):
            Study.open(storage)
        assert len(Study.upgrade(storage, tmp_path / "before.db")) == database.SCHEMA - schema
    with Study.open(storage) as study:
        status = study.status()
        assert (status.head, status.events, status.version, status.pinned) == (head, events, 0, True)
        assert study.verify(head, events).whole
        assert [(version.number, version.parent, version.cut) for version in study.versions()] == [
            (0, None, 1),
            (1, 0, 22),
        ]
        assert [answer.arm for answer in play(study, 0, 16, tell=False)] == list(
            "bccabcaccbbaabcb"
        )  # as it answered then
        assert study.ask(contexts_of(99), id="new").round == 17
        assert study.status().rewards.quarantine == {"already rewarded": 1, "unknown decision": 1}
        study.unpin()
        assert study.update(force=True) == "version"
        assert study.verify().whole
        assert not study.replay().other_arms


def test_every_schema_has_a_step():
    assert set(database.STEPS) == set(range(database.OLDEST, database.SCHEMA))


@pytest.mark.parametrize("storage", ["sqlite"], indirect=True)
def test_the_command_says_what_it_would_do(earlier, tmp_path):
    run = CliRunner().invoke
    assert "to do: schema 3 to 4" in run(app, ["study", "upgrade", earlier]).output
    assert "done: schema 3 to 4" in run(app, ["study", "upgrade", earlier, str(tmp_path / "b.db")]).output
    assert "nothing to do" in run(app, ["study", "upgrade", earlier]).output
