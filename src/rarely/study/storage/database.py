"""What the databases of studies do alike: transactions, failures that are final, and the check of the schema."""

from __future__ import annotations

import os
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from typing import Any, ClassVar

from rarely.study.errors import InvalidStorage, StudyError, StudyFailed
from rarely.study.storage.tables import Dialect, Tables, check_schema, checkpoint_statement, create_tables


class Database(ABC):
    """A database of studies. SQL has ? for each parameter."""

    dialect: ClassVar[Dialect]
    writable: ClassVar[str]
    """The SQL that begins a transaction that writes."""
    schema_lock: ClassVar[str] = ""
    """The SQL that keeps others from creating tables until a transaction ends, where BEGIN alone does not."""
    empty: ClassVar[str]
    """What `_lack` says of a database in which tables may be created."""
    driver_error: type[Exception]
    """The base class of the driver's errors."""
    time: float | None = None
    """The database's clock at the beginning of the last transaction that writes; None if it has no clock."""
    _raw: Any
    """The driver's connection."""

    def __init__(self, url: str) -> None:
        self.url, self.lock = url, threading.RLock()
        self.process, self.failed = os.getpid(), ""

    @abstractmethod
    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""

    @abstractmethod
    def insert(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run one statement for each row."""

    @abstractmethod
    def reading(self) -> AbstractContextManager[Tables]:
        """Open a transaction that sees the database as it was when the transaction began."""

    @abstractmethod
    def _translation(self, error: Any, place: str) -> StudyError:
        """Return the error of a study that says what an error of the driver means, and what to do."""

    def _was_refused(self, error: Any) -> bool:
        """Return whether a COMMIT that failed has certainly stored nothing, and a later one may succeed."""
        return False

    @abstractmethod
    def _lack(self) -> str:
        """Return what the database is without the tables of studies; "" if it has them."""

    @contextmanager
    def transaction(self, begin: str) -> Iterator[Tables]:
        """Run a block between BEGIN and COMMIT, or ROLLBACK if it raises."""
        with self.lock, self._translated(self.url):
            self._check_usable()
            try:
                self._begin(begin)
                yield Tables(self.execute, self.insert)
                self._commit()
            except BaseException:
                with suppress(self.driver_error):  # of a lost connection, or outside of a transaction
                    self._raw.execute("ROLLBACK")
                raise

    def _begin(self, sql: str) -> None:
        self.execute(sql)

    def _commit(self) -> None:
        try:
            self.execute("COMMIT")
        except self.driver_error as error:
            if self._was_refused(error):
                raise
            # After a failed fsync the state of the disk is unknown, and a second fsync may claim success.
            self.failed = said(error)
            raise StudyFailed(
                f"{self.url} did not confirm the commit ({self.failed}), so it may or may not be stored. Check the "
                "disk, open the study again, and repeat the request with the same id: a stored one gets its stored "
                "answer."
            ) from error

    def _check_usable(self) -> None:
        if self.process != os.getpid():
            raise StudyFailed("a connection must not be used in a process that was forked later. Open the study there.")
        if self.failed:
            raise StudyFailed(f"{self.url} failed earlier ({self.failed}). Check the disk, and open the study again.")

    @contextmanager
    def _translated(self, place: str) -> Iterator[None]:
        """Raise errors of the driver, about a database or a file, as errors of a study."""
        try:
            yield
        except (self.driver_error, UnicodeDecodeError) as error:  # of a damaged text
            raise self._translation(error, place) from error

    def create(self) -> None:
        """Create the tables, unless they exist."""
        with self.transaction(self.writable):
            if self.schema_lock:
                self.execute(self.schema_lock)
            if self._lack() == self.empty:
                create_tables(self.execute, self.dialect)
        self.check()

    @abstractmethod
    def backup(self, path: str) -> None:
        """Copy the whole database, as of one moment, to a new SQLite file, while others write."""

    @abstractmethod
    def checkpoints(self) -> AbstractContextManager[Tables]:
        """Open a transaction of its own beside the record, for which nobody waits."""

    @property
    def has_checkpoints(self) -> bool:
        """Whether checkpoints are among the tables; of SQLite only a backup has them there."""
        return True

    def copy_checkpoints(self, path: str) -> None:
        """Copy all checkpoints to a new SQLite file; see `take_checkpoints`."""
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        with closing(sqlite3.connect(path)) as target, self.checkpoints() as tables:
            target.execute(checkpoint_statement("sqlite"))
            for study, base, start in tables.run("SELECT study, base, start FROM rarely_checkpoints"):
                which = "WHERE study = ? AND base = ? AND start = ?"
                (row,) = tables.run(f"SELECT * FROM rarely_checkpoints {which}", (study, base, start))
                target.execute("INSERT INTO rarely_checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            target.commit()

    @abstractmethod
    def close(self) -> None:
        """End the connection."""

    def check(self) -> None:
        """Refuse a database without studies, or with those of another version of rarely."""
        with self.reading():
            check_schema(self.url, *self.schema())

    def schema(self) -> tuple[Any, Any]:
        """Return the schema, and the version of rarely that wrote it."""
        if lack := self._lack():
            raise InvalidStorage(f"{self.url} {lack}. Check the name, or create a study: rarely study create.")
        rows = self.execute("SELECT version, rarely FROM rarely_schema ORDER BY version DESC LIMIT 1")
        return rows[0] if rows else (None, "")

    def reconnect(self) -> None:
        """Connect again after a lost connection, where a server keeps what was committed."""
        raise StudyFailed(f"{self.url} has no server to connect to again. Open the study again: Study.open.")


def said(error: Exception) -> str:
    """Return what a driver says about an error, in one line."""
    return " ".join(str(error).split()) or type(error).__name__
