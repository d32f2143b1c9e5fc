"""All rows of a database in an SQLite file: the backup of a server."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any, Protocol

from rarely.study.storage.schema import APPLICATION, SCHEMA, TABLES, migration

_ORDERS = {
    "rarely_schema": "version",
    "rarely_studies": "study",
    "rarely_events": "study, seq",
    "rarely_snapshots": "study, seq",
    "rarely_versions": "study, number",
    "rarely_leases": "study, token",
}


class Source(Protocol):
    """A database whose rows are read one after another."""

    def stream(self, sql: str) -> Iterator[tuple[Any, ...]]:
        """The rows of a statement."""


def copy_tables(source: Source, path: str) -> None:
    """Copy every table, inside the transaction that is open."""
    target = sqlite3.connect(path, isolation_level=None)
    try:
        target.execute("PRAGMA synchronous = FULL")
        target.execute("BEGIN")
        for version in range(1, SCHEMA + 1):
            for statement in migration(version, "sqlite"):
                target.execute(statement)
        for table in TABLES:
            columns = [name for _, name, *_ in target.execute(f"PRAGMA table_info({table})")]
            marks, order = ", ".join("?" * len(columns)), _ORDERS[table]
            rows = source.stream(f"SELECT {', '.join(columns)} FROM {table} ORDER BY {order}")
            target.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
        target.execute(f"PRAGMA application_id = {APPLICATION}")
        target.execute("COMMIT")
    finally:
        target.close()
