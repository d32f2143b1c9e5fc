"""Databases of every schema are upgraded and go on; a migration that fails leaves the database as it was."""

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rarely.study import Study
from rarely.study.environment import describe, same
from rarely.study.storage import schema, sqlite
from studies import linear, play

MUSEUM = sorted((Path(__file__).parents[1] / "museum").glob("study-schema-*"))


def test_every_schema_is_in_the_museum():
    assert [int(folder.name.rpartition("-")[2]) for folder in MUSEUM] == list(range(1, schema.SCHEMA + 1))


@pytest.mark.parametrize("folder", MUSEUM, ids=lambda folder: folder.name)
@pytest.mark.parametrize("name", ["plain", "trial"])
def test_a_golden_database_is_upgraded_and_goes_on(folder, name, tmp_path):
    (tmp_path / "trial.db").write_bytes(gzip.decompress((folder / "trial.db.gz").read_bytes()))
    note = json.loads((folder / "trial.json").read_text())[name]
    clock = note["status"]["time"] / 1e6
    with Study.open(f"sqlite:///{tmp_path}/trial.db", name, clock=lambda: clock) as study:
        assert study.verify(note["status"]["head"], note["status"]["events"]).whole
        now = study.status().describe()
        assert now.pop("log_det") == pytest.approx(note["status"].pop("log_det"), rel=1e-9)
        assert now == note["status"]
        for answer in note["answers"]:
            known = study.decision(answer["id"])
            assert known.answer.describe() == answer
            places = [i for i, there in enumerate(known.present) if there]
            asked = {study.settings.arms[i]: row for i, row in zip(places, known.question.numbers, strict=True)}
            assert study.ask(asked, id=answer["id"]).describe() == answer
        replay = study.replay()
        assert replay.other_arms == ()
        assert replay.largest_difference < 1e-6
        environment = json.loads(study.versions()[0].environment)
        if same(environment, describe()):
            assert replay.equal
        assert study.ask({"a": [1.0, 0.0], "b": [0.0, 1.0]}, id="today").round == len(note["answers"]) + 1
        assert len(study.log()) == len(note["answers"]) + 1


@pytest.fixture
def next_schema(monkeypatch):
    """A schema that has one more column, as a later version might."""

    def set_statements(*statements):
        plain = schema.migration
        later = schema.SCHEMA + 1
        monkeypatch.setattr(sqlite, "SCHEMA", later)
        monkeypatch.setattr(schema, "SCHEMA", later)
        monkeypatch.setattr(sqlite, "migration", lambda v, d: list(statements) if v == later else plain(v, d))
        return later

    return set_statements


def schemas(path):
    with closing(sqlite3.connect(path)) as connection:
        return [version for (version,) in connection.execute("SELECT version FROM rarely_schema")]


def test_a_database_is_upgraded_when_it_is_opened(tmp_path, next_schema):
    path = tmp_path / "trial.db"
    with Study.create(f"sqlite:///{path}", "trial", policy=linear(), arms=3) as study:
        answers = play(study, 0, 5)
    later = next_schema("CREATE TABLE rarely_notes (note TEXT)")
    with Study.open(f"sqlite:///{path}") as study:
        assert play(study, 0, 5) == answers
        assert study.verify().whole
    assert schemas(path) == [*range(1, later + 1)]


def test_a_migration_that_fails_changes_nothing(tmp_path, next_schema):
    from rarely.study import StudyError

    path = tmp_path / "trial.db"
    with Study.create(f"sqlite:///{path}", "trial", policy=linear(), arms=3) as study:
        play(study, 0, 5)
    later = next_schema("CREATE TABLE rarely_notes (note TEXT)", "CREATE TABLE rarely_notes (note TEXT)")
    with pytest.raises(StudyError):
        Study.open(f"sqlite:///{path}")
    assert schemas(path) == [*range(1, later)]
    with closing(sqlite3.connect(path)) as connection:
        assert not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'rarely_notes'").fetchall()
