"""What is wrong, or could be better, with a study and its database: `rarely study doctor`.

A finding is (topic, status, says, advice), with the status "ok", "note" or "problem".
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from typing import Literal

from rarely.core.errors import RarelyError
from rarely.study.checking import verify
from rarely.study.session import Session
from rarely.study.status import Status, status_of
from rarely.study.storage.postgresql import PostgresqlStorage
from rarely.study.storage.sqlite import SqliteStorage
from rarely.study.storage.sqlite_version import loses_writes

Finding = tuple[str, Literal["ok", "note", "problem"], str, str]
LITTLE_DISK = 2**30
SETTINGS = {"fsync": "on", "full_page_writes": "on"}
"""Of a PostgreSQL server; with other values a power cut may lose what was answered."""


def diagnose(session: Session) -> Iterator[Finding]:
    """Look at the database, at the record and at what waits for somebody."""
    storage = session.storage
    if isinstance(storage, SqliteStorage):
        yield from _sqlite(storage)
    elif isinstance(storage, PostgresqlStorage):
        yield from _postgresql(storage)
    verification = verify(session)
    if not verification.whole:
        yield "record", "problem", verification.flaw, "Nothing is served from a damaged record: use a backup."
        return
    yield "record", "ok", f"{verification.events} events, the chain is whole", ""
    try:
        status = status_of(session)
    except RarelyError as error:
        yield "policy", "problem", str(error), "Use a backup."
        return
    yield from _state(session, status)


def _sqlite(storage: SqliteStorage) -> Iterator[Finding]:
    says = f"SQLite {sqlite3.sqlite_version}"
    if storage.path == ":memory:":
        yield "storage", "note", f"{says} in memory", "Nothing survives the end of the process."
        return
    if loses_writes(sqlite3.sqlite_version_info):
        mode = "a rollback journal" if not storage.exclusive else "one exclusive connection"
        yield (
            "storage",
            "note",
            f"{says}, which may lose committed writes of two connections in WAL mode; {mode} is used instead",
            "SQLite 3.51.3 or later lets several processes in, as PostgreSQL does.",
        )
    else:
        yield "storage", "ok", says, ""
    journal, synchronous = (storage.execute(f"PRAGMA {name}")[0][0] for name in ("journal_mode", "synchronous"))
    durable = synchronous >= 2 and journal in ("wal", "delete")
    yield "durability", "ok" if durable else "problem", f"journal {journal}, synchronous {synchronous}", ""
    free = shutil.disk_usage(os.path.dirname(storage.path)).free
    says = f"{free / 2**30:.1f} GiB free"
    if free < LITTLE_DISK:
        yield "disk", "note", says, "A full disk refuses decisions: make room."
    else:
        yield "disk", "ok", says, ""


def _postgresql(storage: PostgresqlStorage) -> Iterator[Finding]:
    with storage.reading():
        version = storage.execute("SHOW server_version")[0][0]
        found = {name: storage.execute(f"SHOW {name}")[0][0] for name in SETTINGS}
    yield "storage", "ok", f"PostgreSQL {version}", ""
    wrong = [f"{name} = {value}" for name, value in found.items() if value != SETTINGS[name]]
    if wrong:
        advice = "A power cut may lose what was answered: set them to on in postgresql.conf."
        yield "durability", "problem", ", ".join(wrong), advice
    else:
        yield "durability", "ok", ", ".join(f"{name} = {value}" for name, value in found.items()), ""


def _state(session: Session, status: Status) -> Iterator[Finding]:
    yield "policy", "ok", f"version {status.version} of at most {status.budget}, {status.decisions} decisions", ""
    ahead = status.time - session.wall_clock()
    if ahead > 1_000_000:
        advice = "The clock was set back. Waiting windows stand still until it has caught up: set it right."
        yield "clock", "problem", f"the last event is {ahead / 1e6:.0f} s ahead of this machine's clock", advice
    if status.candidate is not None:
        yield "approval", "note", f"the candidate of event {status.candidate} waits", "Call approve or dismiss."
    if status.due and not status.trainer and not status.pinned and status.versions < status.budget:
        yield "update", "note", "the schedule has ended the batch", "rarely study update trains the next version."
    if status.trainer:
        yield "update", "ok", f"{status.trainer} is training", ""
    rewards = status.rewards
    says = (
        f"{rewards.received} received = {rewards.used} used + {rewards.pending} pending + {rewards.late} late + "
        f"{rewards.quarantined} in quarantine"
    )
    with session.reading() as tables:
        counted = session.position.counting(tables.delivered(session.row.study, status.events))
    if not rewards.balanced or counted.received != rewards.received or dict(counted.quarantine) != rewards.quarantine:
        yield "rewards", "problem", says, "The counts must agree: report this as a defect."
    elif 10 * (rewards.quarantined + rewards.late) > rewards.received > 0:
        reasons = ", ".join(f"{count} {reason}" for reason, count in rewards.quarantine.items())
        advice = f"More than a tenth does not count ({reasons or 'late'}): check ids, range and waiting window."
        yield "rewards", "note", says, advice
    else:
        yield "rewards", "ok", says, ""
