"""The tables of a database of studies.

    rarely_schema      the schema version, and the version of rarely that wrote it
    rarely_studies     one row per study: its name and B, the maximal number of versions
    rarely_events      the append-only record
    rarely_snapshots   serialized policies, each created by one event
    rarely_versions    number, parent, log range, settings, seed, environment, SHA-256, snapshot
    rarely_leases      who may publish the next version: the latest row with the highest token

Rows are only ever added: triggers refuse UPDATE and DELETE on every table. `rarely_checkpoints` is not part of the
record and lies beside it, in PostgreSQL in the same schema and with SQLite in a file of its own. B is part of each
version's row and of its foreign key to the study, so the database itself refuses a version beyond the budget or with
another budget.
"""

from __future__ import annotations

from typing import Any, Literal

from rarely._core.version import __version__
from rarely.study.errors import BrokenStudy, NewerSchema

Dialect = Literal["sqlite", "postgresql"]

SCHEMA = 2
"""Must be raised with every change of the tables."""
TABLES = {"rarely_schema": "version", "rarely_studies": "study", "rarely_events": "study, seq"}
TABLES |= {"rarely_snapshots": "study, seq", "rarely_versions": "study, number"}
TABLES["rarely_leases"] = "study, token, expires"
"""All tables, and the columns that order their rows."""
APPLICATION = 0x72617265
"""The application id of an SQLite file of studies: "rare"."""

_TABLES = """
CREATE TABLE rarely_schema (version INTEGER PRIMARY KEY, rarely TEXT NOT NULL);
CREATE TABLE rarely_studies (
    study INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, budget BIGINT NOT NULL CHECK (budget >= 1),
    UNIQUE (study, budget)
);
CREATE TABLE rarely_events (
    study INTEGER NOT NULL REFERENCES rarely_studies (study), seq BIGINT NOT NULL CHECK (seq >= 1),
    kind TEXT NOT NULL, time BIGINT NOT NULL, actor TEXT NOT NULL, reason TEXT NOT NULL,
    ref TEXT, key TEXT, why TEXT NOT NULL, body TEXT NOT NULL, data {blob} NOT NULL,
    previous TEXT NOT NULL, hash TEXT NOT NULL,
    PRIMARY KEY (study, seq)
);
CREATE UNIQUE INDEX rarely_decisions ON rarely_events (study, ref) WHERE kind = 'decide';
CREATE UNIQUE INDEX rarely_deliveries ON rarely_events (study, ref, key) WHERE key IS NOT NULL;
CREATE INDEX rarely_kinds ON rarely_events (study, kind, seq) WHERE kind <> 'decide';
CREATE TABLE rarely_snapshots (
    study INTEGER NOT NULL, seq BIGINT NOT NULL, sha256 TEXT NOT NULL, policy {blob} NOT NULL,
    PRIMARY KEY (study, seq),
    FOREIGN KEY (study, seq) REFERENCES rarely_events (study, seq)
);
CREATE TABLE rarely_versions (
    study INTEGER NOT NULL, number BIGINT NOT NULL, budget BIGINT NOT NULL, parent BIGINT,
    first BIGINT NOT NULL, cut BIGINT NOT NULL, seq BIGINT NOT NULL, snapshot BIGINT NOT NULL,
    sha256 TEXT NOT NULL, fingerprint TEXT NOT NULL,
    settings TEXT NOT NULL, seed TEXT NOT NULL, environment TEXT NOT NULL,
    PRIMARY KEY (study, number),
    CHECK (number >= 0 AND number < budget),
    CHECK (first <= cut AND cut <= seq),
    FOREIGN KEY (study, budget) REFERENCES rarely_studies (study, budget),
    FOREIGN KEY (study, parent) REFERENCES rarely_versions (study, number),
    FOREIGN KEY (study, snapshot) REFERENCES rarely_snapshots (study, seq),
    FOREIGN KEY (study, seq) REFERENCES rarely_events (study, seq)
);
CREATE TABLE rarely_leases (
    study INTEGER NOT NULL REFERENCES rarely_studies (study), token BIGINT NOT NULL CHECK (token >= 1),
    holder TEXT NOT NULL, taken BIGINT NOT NULL, expires BIGINT NOT NULL,
    PRIMARY KEY (study, token, expires)
);
"""
_CHECKPOINTS = """
CREATE TABLE IF NOT EXISTS rarely_checkpoints (
    study INTEGER NOT NULL, base BIGINT NOT NULL, start BIGINT NOT NULL, seq BIGINT NOT NULL,
    sha256 TEXT NOT NULL, history {blob} NOT NULL, state {blob} NOT NULL,
    PRIMARY KEY (study, base, start)
)
"""
_REFUSAL = "rows are added to a study and never changed or deleted"


def table_statements(dialect: Dialect) -> list[str]:
    """Return the statements that create all tables, their indexes and the triggers that refuse changes."""
    tables = _TABLES.format(blob="BLOB" if dialect == "sqlite" else "BYTEA")
    statements = [statement.strip() for statement in tables.split(";") if statement.strip()]
    if dialect == "sqlite":
        return statements + [
            f"CREATE TRIGGER {table}_no_{change.lower()} BEFORE {change} ON {table} "
            f"BEGIN SELECT RAISE(ABORT, '{_REFUSAL}'); END"
            for table in TABLES
            for change in ("UPDATE", "DELETE")
        ]
    body = f"$$ BEGIN RAISE EXCEPTION '{_REFUSAL}'; END $$"
    return [
        *statements,
        f"CREATE FUNCTION rarely_refuse() RETURNS trigger LANGUAGE plpgsql AS {body}",
        *(
            f"CREATE TRIGGER {table}_fixed BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION rarely_refuse()"
            for table in TABLES
        ),
    ]


def checkpoint_statement(dialect: Dialect) -> str:
    """Return the statement that creates the table of checkpoints, unless it exists."""
    return _CHECKPOINTS.format(blob="BLOB" if dialect == "sqlite" else "BYTEA")


def check_schema(url: str, found: Any) -> None:
    """Refuse a database whose schema is not the one of this version of rarely."""
    if not isinstance(found, int) or found < SCHEMA:
        raise BrokenStudy(f"{url} must have tables of schema {SCHEMA}; its schema is {found!r}. Use a backup.")
    if found > SCHEMA:
        raise NewerSchema(
            f"{url} has schema {found}, written by a later version of rarely; this is rarely {__version__}, which "
            f"reads schema {SCHEMA}. Use the later version."
        )
