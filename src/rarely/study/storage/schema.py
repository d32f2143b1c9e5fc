"""The tables of a study, and the migrations that lead to them from every earlier schema.

    rarely_schema      which migrations were applied
    rarely_studies     a row for each study: its name, and B, the most versions that it may have
    rarely_events      the record
    rarely_snapshots   policies as bytes, each made by one event
    rarely_versions    number, parent, log range, settings, seed, environment, SHA-256, snapshot
    rarely_leases      who may publish the next version: the row of the highest token

Rows are added, never changed: triggers refuse UPDATE and DELETE on every table. B is part of each version's row and
of its reference to the study, so that a version beyond it, or with another B, is refused by the database.
"""

from __future__ import annotations

from typing import Any, Literal

from rarely.core.version import __version__
from rarely.study.errors import BrokenStudy, NewerSchema

Dialect = Literal["sqlite", "postgresql"]

SCHEMA = 1
"""Raised with every change of the tables; databases of all schemas from 1 on are upgraded when they are opened."""
TABLES = ("rarely_schema", "rarely_studies", "rarely_events", "rarely_snapshots", "rarely_versions", "rarely_leases")
APPLICATION = 0x72617265
"""What an SQLite file says about the program that it belongs to: "rare"."""

_TABLES_1 = """
CREATE TABLE rarely_schema (
    version INTEGER PRIMARY KEY,
    rarely TEXT NOT NULL
);
CREATE TABLE rarely_studies (
    study INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    budget BIGINT NOT NULL CHECK (budget >= 1),
    UNIQUE (study, budget)
);
CREATE TABLE rarely_events (
    study INTEGER NOT NULL REFERENCES rarely_studies (study),
    seq BIGINT NOT NULL CHECK (seq >= 1),
    kind TEXT NOT NULL,
    time BIGINT NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    ref TEXT,
    key TEXT,
    why TEXT NOT NULL,
    body TEXT NOT NULL,
    data {blob} NOT NULL,
    previous TEXT NOT NULL,
    hash TEXT NOT NULL,
    PRIMARY KEY (study, seq)
);
CREATE UNIQUE INDEX rarely_decisions ON rarely_events (study, ref) WHERE kind = 'decide';
CREATE UNIQUE INDEX rarely_deliveries ON rarely_events (study, ref, key) WHERE key IS NOT NULL;
CREATE INDEX rarely_kinds ON rarely_events (study, kind, seq) WHERE kind <> 'decide';
CREATE TABLE rarely_snapshots (
    study INTEGER NOT NULL,
    seq BIGINT NOT NULL,
    sha256 TEXT NOT NULL,
    policy {blob} NOT NULL,
    PRIMARY KEY (study, seq),
    FOREIGN KEY (study, seq) REFERENCES rarely_events (study, seq)
);
CREATE TABLE rarely_versions (
    study INTEGER NOT NULL,
    number BIGINT NOT NULL,
    budget BIGINT NOT NULL,
    parent BIGINT,
    first BIGINT NOT NULL,
    cut BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    snapshot BIGINT NOT NULL,
    sha256 TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    settings TEXT NOT NULL,
    seed TEXT NOT NULL,
    environment TEXT NOT NULL,
    PRIMARY KEY (study, number),
    CHECK (number >= 0 AND number < budget),
    CHECK (first <= cut AND cut <= seq),
    FOREIGN KEY (study, budget) REFERENCES rarely_studies (study, budget),
    FOREIGN KEY (study, parent) REFERENCES rarely_versions (study, number),
    FOREIGN KEY (study, snapshot) REFERENCES rarely_snapshots (study, seq),
    FOREIGN KEY (study, seq) REFERENCES rarely_events (study, seq)
);
CREATE TABLE rarely_leases (
    study INTEGER NOT NULL REFERENCES rarely_studies (study),
    token BIGINT NOT NULL CHECK (token >= 1),
    holder TEXT NOT NULL,
    taken BIGINT NOT NULL,
    expires BIGINT NOT NULL,
    PRIMARY KEY (study, token)
);
"""
_FIXED = "rows are added to a study and never changed or deleted"


def _statements_1(dialect: Dialect) -> list[str]:
    tables = _TABLES_1.format(blob="BLOB" if dialect == "sqlite" else "BYTEA")
    statements = [statement.strip() for statement in tables.split(";") if statement.strip()]
    if dialect == "sqlite":
        for table in TABLES:
            for change in ("UPDATE", "DELETE"):
                statements.append(
                    f"CREATE TRIGGER {table}_no_{change.lower()} BEFORE {change} ON {table} "
                    f"BEGIN SELECT RAISE(ABORT, '{_FIXED}'); END"
                )
        return statements
    statements.append(
        "CREATE FUNCTION rarely_refuse() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{_FIXED}'; END $$"
    )
    for table in TABLES:
        statements.append(
            f"CREATE TRIGGER {table}_fixed BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION rarely_refuse()"
        )
    return statements


def migration(version: int, dialect: Dialect) -> list[str]:
    """The statements that lead to a schema from the one before it."""
    return {1: _statements_1}[version](dialect)


def check_schema(url: str, found: Any) -> None:
    """Refuse a database of a later rarely."""
    if not isinstance(found, int) or found < 1:
        raise BrokenStudy(f"{url} does not say which schema its tables have. Use a backup.")
    if found > SCHEMA:
        raise NewerSchema(
            f"{url} has schema {found}, which a later rarely wrote; this is rarely {__version__}, which knows schemas "
            f"up to {SCHEMA}. Use the later version."
        )
