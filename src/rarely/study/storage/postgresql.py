"""Studies in PostgreSQL: any number of processes, and one writer per study at a time.

A writer locks the study's row, reads what others have written since, and commits with synchronous_commit = on.
"""

from __future__ import annotations

import copy
import os
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from importlib import import_module
from typing import Any, Self

from rarely.study.errors import InvalidStorage, StudyBusy, StudyError, StudyFailed
from rarely.study.storage.database import REFUSAL, TABLES, Database, said
from rarely.study.storage.sqlite import SqliteStorage
from rarely.study.storage.tables import Tables

_LIMIT = "SET LOCAL statement_timeout = '60s'"
CONNECTION = {"connect_timeout": 10, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
"""With these a server that vanished is noticed after 25 seconds, or 30 (milliseconds below) while something is sent."""


class PostgresqlStorage(Database):
    """Studies in a PostgreSQL database."""

    dialect, blob, empty = "postgresql", "BYTEA", "holds no studies"
    setup = (
        "CREATE FUNCTION rarely_refuse() RETURNS trigger LANGUAGE plpgsql "
        f"AS $$ BEGIN RAISE EXCEPTION '{REFUSAL}'; END $$"
    )
    triggers = (
        "CREATE TRIGGER {0}_fixed BEFORE UPDATE OR DELETE OR TRUNCATE ON {0} "
        "FOR EACH STATEMENT EXECUTE FUNCTION rarely_refuse()",
    )
    lifts = (("ALTER TABLE {0} DISABLE TRIGGER {0}_fixed", "ALTER TABLE {0} ENABLE TRIGGER {0}_fixed"),)
    schema_lock = f"SELECT pg_advisory_xact_lock({0x72617265})"
    readable = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {_LIMIT}"
    writable = f"BEGIN; {_LIMIT}; SET LOCAL synchronous_commit = on; SET LOCAL lock_timeout = '30s'"

    def __init__(self, url: str) -> None:
        try:
            self._psycopg: Any = import_module("psycopg")
        except ModuleNotFoundError:
            raise InvalidStorage("PostgreSQL needs psycopg: pip install 'rarely[postgres]'.") from None
        super().__init__(without_password(url))
        self._full_url, self.driver_error = url, self._psycopg.Error
        self.reconnect()

    def reconnect(self) -> None:
        self.process, self.failed = os.getpid(), ""
        try:
            options = {"autocommit": True, "tcp_user_timeout": 30_000, **CONNECTION}
            self._raw = self._psycopg.connect(self._full_url, **options)
        except self.driver_error as error:
            self.failed = said(error)
            raise InvalidStorage(f"{self.url} cannot be reached: {self.failed}") from None

    @contextmanager
    def _beside(self) -> Iterator[Self]:
        """Yield the same database on a connection of its own, for long work that nobody must wait for."""
        other = copy.copy(self)
        other.lock = threading.RLock()
        other.reconnect()
        with closing(other):
            yield other

    # --- inside a transaction

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        cursor = self._raw.execute(sql.replace("?", "%s"), parameters or None)  # no literal has a ? or %
        return cursor.fetchall() if cursor.description is not None else []

    def insert(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        with self._raw.cursor() as cursor:
            cursor.executemany(sql.replace("?", "%s"), rows)

    def stream(self, sql: str) -> Iterator[tuple[Any, ...]]:
        with self._raw.cursor(name="rarely_stream") as cursor:
            cursor.execute(sql)
            yield from cursor

    def _check_usable(self) -> None:
        if self._raw.closed:
            self.failed = self.failed or "the connection is closed"
        super()._check_usable()

    def _translation(self, error: Any, place: str) -> StudyError:
        kinds = self._psycopg.errors
        # After the ROLLBACK a connection that is alive is idle; one that died in a pipeline may not know it yet.
        if self._raw.closed or self._raw.info.transaction_status != self._psycopg.pq.TransactionStatus.IDLE:
            self._raw.close()
            self.failed = said(error)
            return StudyFailed(
                f"the connection to {place} was lost ({self.failed}), and nothing of this request was stored. Open the "
                "study again, and repeat the request."
            )
        if isinstance(error, kinds.LockNotAvailable):
            return StudyBusy(f"another process has locked the study in {place} for long. Repeat the request later.")
        if isinstance(error, self._psycopg.IntegrityError):
            return StudyError(f"{place} refused rows that do not fit others ({said(error)}); nothing was written.")
        if isinstance(error, kinds.DiskFull):
            return StudyError(f"{place} was not changed, because the server's disk is full. Free some space.")
        if isinstance(error, kinds.ReadOnlySqlTransaction | kinds.InsufficientPrivilege):
            return InvalidStorage(f"{place} may not be written to ({said(error)}). Use another user or server.")
        return StudyError(f"{place} was not changed, because PostgreSQL failed: {said(error)}.")

    # --- what a study needs

    def create_tables(self) -> None:
        super().create_tables()
        self.create_checkpoints()

    @contextmanager
    def writing(self, name: str) -> Iterator[Tables]:
        with self.transaction(self.writable) as tables:
            # Lock first, so that everything read afterwards is current.
            clock = "extract(epoch FROM clock_timestamp())::float8"
            locked = self.execute(f"SELECT {clock} FROM rarely_studies WHERE name = ? FOR UPDATE", (name,))
            if not locked:
                self.execute(self.schema_lock)
            self.time = locked[0][0] if locked else None
            yield tables

    @contextmanager
    def checkpoints(self) -> Iterator[Tables]:
        with self._beside() as other, other.transaction("BEGIN") as tables:
            yield tables

    def _lack(self) -> str:
        return self.empty if self.execute("SELECT to_regclass('rarely_schema')")[0][0] is None else ""

    def backup(self, path: str) -> None:
        copied = SqliteStorage(path, path, shared=True)
        with closing(copied), self._beside() as other, other.reading(), copied.transaction(copied.writable):
            copied.create_tables()
            for table, order in TABLES.items():
                if other.execute("SELECT to_regclass(?)", (table,))[0][0] is None:  # of a later schema
                    copied.execute(f"DROP TABLE {table}")
                else:
                    copied.take(other.stream, {table: order})

    def shred(self) -> str:
        return (
            "PostgreSQL keeps the old rows until VACUUM FULL rarely_events, rarely_snapshots, rarely_checkpoints, and "
            "after that in archives of its log, in replicas and in dumps for as long as those are kept."
        )

    def close(self) -> None:
        if self.process == os.getpid():
            with suppress(self.driver_error):
                self._raw.close()


def without_password(url: str) -> str:
    """Return a storage string as it may be shown and logged."""
    shown = re.sub(r"(?<=[?&])((?:ssl)?password)=[^&]*", r"\1=…", url)
    return re.sub(r"(?<=://)([^/?@:]*):[^/?]*@", r"\1@", shown)
