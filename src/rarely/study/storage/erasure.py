"""Delete a study with all its rows, and keep on record that it was there, who deleted it, and why."""

from __future__ import annotations

import time

from rarely.study.errors import InvalidStudy, UnknownStudy
from rarely.study.events import check_signature
from rarely.study.storage.database import Database
from rarely.study.storage.tables import TABLES, triggers

KEPT = ("rarely_schema", "rarely_erasures")


def delete_study(database: Database, name: str, actor: str, reason: str) -> int:
    """Delete a study, and return how many events it had; its rows are overwritten in an SQLite file."""
    if not actor:
        raise InvalidStudy("delete must say who decides: actor='name'.")
    check_signature(actor, reason)
    sqlite = database.dialect == "sqlite"
    if sqlite:
        with database.lock:
            database.execute("PRAGMA secure_delete = ON")
    with database.transaction(database.writable) as tables:
        row = tables.study(name)
        if row is None:
            raise UnknownStudy(f"{database.url} has no study called {name!r}.")
        if not sqlite:
            database.execute("SELECT 1 FROM rarely_studies WHERE name = ? FOR UPDATE", (name,))
        mine = tables.of(row)
        last = mine.event(mine.last_seq())
        events, head = (0, "") if last is None else (last.seq, last.hash)
        for table in reversed([table for table in TABLES if table not in KEPT]):
            refusal = triggers(table, database.dialect)[-1]  # with SQLite that of DELETE
            database.execute(f"DROP TRIGGER {table}_no_delete" if sqlite else f"DROP TRIGGER {table}_fixed ON {table}")
            database.execute(f"DELETE FROM {table} WHERE study = ?", (row.study,))
            database.execute(refusal)
        number = database.execute("SELECT count(*) FROM rarely_erasures")[0][0] + 1
        erased = (number, name, round(time.time() * 1e6), actor, reason, events, head)
        database.execute("INSERT INTO rarely_erasures VALUES (?, ?, ?, ?, ?, ?, ?)", erased)
    with database.checkpoints() as tables:
        tables.run("DELETE FROM rarely_checkpoints WHERE study = ?", (row.study,))
    return events
