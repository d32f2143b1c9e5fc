"""Studies in PostgreSQL: any number of processes, and one writer per study at a time.

A writer locks the study's row, reads what others have written since, and commits with synchronous_commit = on. A
lost connection or an unconfirmed commit is final: the study must be opened again, and a repeated request with the same
id gets its stored answer if it was stored.
"""

from __future__ import annotations

import copy
import os
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from importlib import import_module
from typing import Any, Self

from rarely.study.errors import InvalidStorage, StudyBusy, StudyError, StudyFailed
from rarely.study.storage.sqlite import copy_tables
from rarely.study.storage.tables import Tables, check_schema, create_tables

psycopg: Any = None
"""The optional package; imported by the first `PostgresqlStorage`."""

LOCK = 0x72617265
"""The advisory lock under which tables and studies are created."""
_LIMIT = "SET LOCAL statement_timeout = '60s'"
_WRITABLE = f"BEGIN; {_LIMIT}; SET LOCAL synchronous_commit = on; SET LOCAL lock_timeout = '30s'"
_READ_ONLY = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {_LIMIT}"
CONNECTION = {"connect_timeout": 10, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
"""With these a server that vanished is noticed after 25 seconds, or 30 (milliseconds below) while something is sent."""


class PostgresqlStorage:
    """Studies in a PostgreSQL database."""

    time: float | None = None
    """The server's clock at the beginning of the last transaction that writes."""

    def __init__(self, url: str) -> None:
        global psycopg
        try:
            psycopg = import_module("psycopg")
        except ModuleNotFoundError:
            raise InvalidStorage("PostgreSQL needs psycopg: pip install 'rarely[postgres]'.") from None
        self.url = without_password(url)
        self._url, self._lock = url, threading.RLock()
        self.connect()

    def connect(self) -> None:
        """Connect, also again after the connection was lost."""
        self._process, self._failed = os.getpid(), ""
        try:
            self._raw = psycopg.connect(self._url, autocommit=True, tcp_user_timeout=30_000, **CONNECTION)
        except psycopg.Error as error:
            self._failed = _said(error)
            raise InvalidStorage(f"{self.url} cannot be reached: {_said(error)}") from None

    @contextmanager
    def _beside(self) -> Iterator[Self]:
        """Yield the same database on a connection of its own, for long work that nobody must wait for."""
        other = copy.copy(self)
        other._lock = threading.RLock()
        other.connect()
        with closing(other):
            yield other

    # --- inside a transaction

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        cursor = self._raw.execute(sql.replace("?", "%s"), parameters)  # no literal has a ? or %
        return cursor.fetchall() if cursor.description is not None else []

    def insert(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        with self._raw.cursor() as cursor:
            cursor.executemany(sql.replace("?", "%s"), rows)

    def stream(self, sql: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a statement, fetching some at a time."""
        with self._raw.cursor(name="rarely_stream") as cursor:
            cursor.execute(sql)
            yield from cursor

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Tables]:
        with self._lock:
            self._check()
            try:
                self._raw.execute(begin)
                yield Tables(self)
                self._commit()
            except BaseException as error:
                with suppress(psycopg.Error):
                    if not self._raw.closed:
                        self._raw.execute("ROLLBACK")
                if isinstance(error, psycopg.Error):
                    raise self._translation(error) from error
                raise

    def _commit(self) -> None:
        try:
            self._raw.execute("COMMIT")
        except psycopg.Error as error:
            self._failed = _said(error)
            raise StudyFailed(
                f"{self.url} did not confirm the commit ({_said(error)}), so it may or may not be stored. Open the "
                "study again, and repeat the request with the same id: a stored request gets its stored answer."
            ) from error

    def _check(self) -> None:
        if self._process != os.getpid():
            raise StudyFailed("a connection must not be used in a process that was forked later. Open the study there.")
        if self._failed or self._raw.closed:
            why = f" ({self._failed})" if self._failed else ""
            raise StudyFailed(f"the connection to {self.url} is lost{why}. Open the study again.")

    def _translation(self, error: Any) -> StudyError:
        # After the ROLLBACK a connection that is alive is idle; one that died in a pipeline may not know it yet.
        if self._raw.closed or self._raw.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            self._raw.close()
            self._failed = _said(error)
            return StudyFailed(
                f"the connection to {self.url} was lost ({_said(error)}), and nothing of this request was stored. Open "
                "the study again, and repeat the request."
            )
        if isinstance(error, psycopg.errors.LockNotAvailable):
            return StudyBusy(f"another process has locked the study in {self.url} for long. Repeat the request later.")
        if isinstance(error, psycopg.IntegrityError):
            return StudyError(f"{self.url} refused rows that do not fit others ({_said(error)}); nothing was written.")
        if isinstance(error, psycopg.errors.DiskFull):
            return StudyError(f"{self.url} was not changed, because the server's disk is full. Free some space.")
        if isinstance(error, psycopg.errors.ReadOnlySqlTransaction | psycopg.errors.InsufficientPrivilege):
            return InvalidStorage(f"{self.url} may not be written to ({_said(error)}). Use another user or server.")
        return StudyError(f"{self.url} was not changed, because PostgreSQL failed: {_said(error)}.")

    # --- what a study needs

    @contextmanager
    def writing(self, name: str) -> Iterator[Tables]:
        with self._transaction(_WRITABLE) as tables:
            # Lock first, so that everything read afterwards is current.
            clock = "extract(epoch FROM clock_timestamp())::float8"
            found = self.execute(f"SELECT {clock} FROM rarely_studies WHERE name = ? FOR UPDATE", (name,))
            if not found:
                self.execute("SELECT pg_advisory_xact_lock(?)", (LOCK,))
            self.time = found[0][0] if found else None
            yield tables

    def reading(self) -> AbstractContextManager[Tables]:
        return self._transaction(_READ_ONLY)

    @contextmanager
    def checkpoints(self) -> Iterator[Tables]:
        with self._beside() as other, other._transaction("BEGIN") as tables:
            yield tables

    def create(self) -> None:
        with self._transaction(_WRITABLE):
            self.execute("SELECT pg_advisory_xact_lock(?)", (LOCK,))
            if self._schema() is None:
                create_tables(self._raw.execute, "postgresql")

    def check(self) -> None:
        with self._transaction(_WRITABLE):
            if self._schema() is None:
                raise InvalidStorage(f"{self.url} holds no studies. Check the name, or make one: rarely study create.")

    def _schema(self) -> int | None:
        if self.execute("SELECT to_regclass('rarely_schema')")[0][0] is None:
            return None
        found = self.execute("SELECT max(version) FROM rarely_schema")[0][0]
        check_schema(self.url, found)
        return int(found)

    def backup(self, path: str) -> None:
        """Copy all tables to an SQLite file of the same schema."""
        with self._beside() as other, other.reading():
            copy_tables(other.stream, path)

    def close(self) -> None:
        if self._process == os.getpid():
            with suppress(psycopg.Error):
                self._raw.close()


def without_password(url: str) -> str:
    """Return a storage string as it may be shown and logged."""
    shown = re.sub(r"(?<=[?&])((?:ssl)?password)=[^&]*", r"\1=…", url)
    return re.sub(r"(?<=://)([^/?@:]*):[^/?]*@", r"\1@", shown)


def _said(error: Any) -> str:
    return " ".join(str(error).split()) or type(error).__name__
