"""All rows of a database in an SQLite file: the backup of a server."""

from __future__ import annotations

import sqlite3

from rarely.study.storage.schema import APPLICATION, SCHEMA, TABLES, migration
from rarely.study.storage.tables import Connection

CHUNK = 500
_ORDERS = {
    "rarely_schema": "version",
    "rarely_studies": "study",
    "rarely_events": "study, seq",
    "rarely_snapshots": "study, seq",
    "rarely_versions": "study, number",
    "rarely_leases": "study, token",
}


def copy_tables(source: Connection, path: str) -> None:
    """Copy every table, in parts, inside the transaction that is open."""
    target = sqlite3.connect(path, isolation_level=None)
    try:
        target.execute("PRAGMA synchronous = FULL")
        target.execute("BEGIN")
        for version in range(1, SCHEMA + 1):
            for statement in migration(version, "sqlite"):
                target.execute(statement)
        for table in TABLES:
            columns = [name for _, name, *_ in target.execute(f"PRAGMA table_info({table})")]
            done = 0
            while True:
                sql = f"SELECT {', '.join(columns)} FROM {table} ORDER BY {_ORDERS[table]} LIMIT {CHUNK} OFFSET {done}"
                rows = source.execute(sql)
                if not rows:
                    break
                marks = ", ".join("?" * len(columns))
                target.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
                done += len(rows)
        target.execute(f"PRAGMA application_id = {APPLICATION}")
        target.execute("COMMIT")
    finally:
        target.close()
