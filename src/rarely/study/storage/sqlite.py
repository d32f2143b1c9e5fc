"""Studies in one SQLite file: WAL, synchronous=FULL, one writer at a time.

SQLite 3.7.0 to 3.51.2 (but for 3.44.6 and 3.50.7) may lose committed writes in WAL mode if two connections write and
checkpoint at the same moment. With such a version a file has one connection, which locks it: a second process is
refused. `?shared=1` lets several processes in, by a rollback journal there and by WAL with a later version.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Any

from rarely.core.version import __version__
from rarely.study.errors import BrokenStudy, InvalidStorage, StudyBusy, StudyError, StudyFailed
from rarely.study.storage.file_system import NETWORK, file_system
from rarely.study.storage.schema import APPLICATION, SCHEMA, check_schema, migration
from rarely.study.storage.sqlite_version import loses_writes
from rarely.study.storage.tables import Tables

PATIENCE = 10.0
"""Seconds that a connection waits for another one."""
MOST_ROWS = 64
"""Rows that one statement inserts; an event has 13 columns."""


class SqliteConnection:
    """One connection to a file, or to a database in memory; it is shared by all studies of the process."""

    def __init__(self, path: str, *, shared: bool = False) -> None:
        self.path, self.shared = path, shared
        self.exclusive = path != ":memory:" and not shared and loses_writes(sqlite3.sqlite_version_info)
        self.lock = threading.RLock()
        self.users, self.process = 0, os.getpid()
        self.failed = ""
        with _translated(path):
            self._raw = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
            try:
                self._prepare()
            except BaseException:
                self._raw.close()
                raise

    def _prepare(self) -> None:
        journal = "DELETE" if self.shared and loses_writes(sqlite3.sqlite_version_info) else "WAL"
        if self.exclusive:
            self._raw.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._raw.execute("PRAGMA trusted_schema = OFF")
        self._raw.execute("PRAGMA foreign_keys = ON")
        if self.path != ":memory:":
            self._raw.execute(f"PRAGMA journal_mode = {journal}")
        self._raw.execute("PRAGMA synchronous = FULL")
        # The first lock is taken here, so that a second process hears of it now and not in the middle of its work.
        self._raw.execute("BEGIN IMMEDIATE")
        self._raw.execute("COMMIT")

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._raw.execute(sql, parameters).fetchall()

    def insert(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """One statement for many rows: executemany gives other threads a turn at each row, and waits for its own."""
        begin, values, marks = sql.partition("VALUES ")
        left = list(rows)
        while left:
            # Powers of 2, so that there are few statements to prepare; every SQLite takes 999 parameters.
            count = min(1 << (len(left).bit_length() - 1), MOST_ROWS)
            self._raw.execute(begin + values + ", ".join([marks] * count), list(chain(*left[:count])))
            left = left[count:]

    @contextmanager
    def transaction(self, begin: str) -> Iterator[Tables]:
        """BEGIN … COMMIT, or ROLLBACK if the block raises."""
        with self.lock, _translated(self.path):
            self._check()
            try:
                self._begin(begin)
                yield Tables(self)
                self._commit()
            except BaseException:
                if self._raw.in_transaction:
                    with suppress(sqlite3.Error):
                        self._raw.execute("ROLLBACK")
                raise

    def _begin(self, sql: str) -> None:
        self._raw.execute(sql)

    def _commit(self) -> None:
        try:
            self._raw.execute("COMMIT")
        except sqlite3.Error as error:
            # After a failed fsync nobody knows what is on the disk, and a second fsync may claim success.
            self.failed = str(error)
            raise StudyFailed(
                f"{self.path} did not confirm that it is on the disk ({error}). Check the disk, open the study again, "
                "and repeat the request with the same id: it is answered as before if it was stored."
            ) from error

    def _check(self) -> None:
        if self.process != os.getpid():
            raise StudyFailed(
                "an SQLite connection must not be used by a process that was forked after it was opened; open the "
                "study in the new process."
            )
        if self.failed:
            raise StudyFailed(f"{self.path} failed before ({self.failed}). Check the disk, and open the study again.")

    def backup(self, path: str) -> None:
        """Copy all pages to a new file."""
        with self.lock, _translated(path):
            self._check()
            target = sqlite3.connect(path)
            try:
                self._raw.backup(target)
                target.execute("PRAGMA journal_mode = DELETE")
            finally:
                target.close()

    def close(self) -> None:
        if self.process == os.getpid():
            self._raw.close()


_CONNECTIONS: dict[tuple[str, bool], SqliteConnection] = {}
"""Those of this process, by file: two of them to one file would be what SQLite's mended bug needs."""
_REGISTRY = threading.Lock()


def _connection(path: str, shared: bool) -> SqliteConnection:
    key = (path, shared)
    with _REGISTRY:
        found = _CONNECTIONS.get(key)
        if found is not None and found.failed:
            found.close()
        if found is None or found.failed or found.process != os.getpid():
            found = _CONNECTIONS[key] = SqliteConnection(path, shared=shared)
        found.users += 1
        return found


def _release(connection: SqliteConnection) -> None:
    with _REGISTRY:
        connection.users -= 1
        if connection.users:
            return
        for key, known in list(_CONNECTIONS.items()):
            if known is connection:
                del _CONNECTIONS[key]
    connection.close()


class SqliteStorage:
    """Studies in a file."""

    def __init__(self, path: str, *, shared: bool = False, new: bool = False) -> None:
        where = os.path.realpath(path)
        self.url = f"sqlite:///{path}" + ("?shared=1" if shared else "")
        _check_file(path, where, new)
        self._connection = _connection(where, shared)
        self._closed = False

    @property
    def path(self) -> str:
        """Where the file is."""
        return self._connection.path

    @property
    def exclusive(self) -> bool:
        """Whether no other process may use the file meanwhile."""
        return self._connection.exclusive

    def writing(self, name: str) -> Any:
        return self._connection.transaction("BEGIN IMMEDIATE")

    def reading(self) -> Any:
        return self._connection.transaction("BEGIN")

    def create(self) -> None:
        with self._connection.transaction("BEGIN IMMEDIATE") as _:
            if self._tables() == 0:
                _upgrade(self._connection, 0)
                return
        self.check()

    def check(self) -> None:
        with self._connection.transaction("BEGIN IMMEDIATE") as _:
            if "rarely_schema" not in self._names():
                what = "is empty" if not self._tables() else "holds tables of another program"
                raise InvalidStorage(
                    f"{self.url} {what}: it is no database of studies. Check the path; rarely study create makes one."
                )
            found = self._connection.execute("SELECT max(version) FROM rarely_schema")[0][0]
            check_schema(self.url, found)
            _upgrade(self._connection, found)

    def _names(self) -> list[str]:
        return [str(name) for (name,) in self._connection.execute("SELECT name FROM sqlite_master")]

    def _tables(self) -> int:
        return len(self._names())

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        """One statement outside of a study, for `doctor`."""
        with self._connection.lock:
            return self._connection.execute(sql)

    def backup(self, path: str) -> None:
        self._connection.backup(path)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            _release(self._connection)


def _upgrade(connection: SqliteConnection, found: int) -> None:
    """Apply the migrations that are missing, inside the transaction that is open."""
    for version in range(found + 1, SCHEMA + 1):
        for statement in migration(version, "sqlite"):
            connection.execute(statement)
        connection.execute("INSERT INTO rarely_schema VALUES (?, ?)", (version, __version__))
    if found < SCHEMA:
        connection.execute(f"PRAGMA application_id = {APPLICATION}")


def _check_file(path: str, where: str, new: bool) -> None:
    """Say what is wrong with a path in the caller's words, where SQLite would say 'unable to open'."""
    folder = os.path.dirname(where)
    if os.path.isdir(where):
        raise InvalidStorage(f"{path} is a folder; name the file of the database, as in sqlite:///{path}/trial.db.")
    if not os.path.isdir(folder):
        raise InvalidStorage(f"the folder of {path} does not exist; make it first: {folder}.")
    if not os.path.exists(where) and not new:
        raise InvalidStorage(f"{path} does not exist. Check the path; rarely study create makes a database.")
    kind = file_system(where)
    if kind in NETWORK:
        raise InvalidStorage(
            f"{path} lies on a network file system ({kind}), on which SQLite's locks do not hold. Use a local disk, or "
            "PostgreSQL."
        )
    if not os.access(folder, os.W_OK) or (os.path.exists(where) and not os.access(where, os.W_OK)):
        raise InvalidStorage(
            f"{path} cannot be written to: a study writes before it answers. Change the permissions of the file and of "
            "its folder, or copy the database to a folder that can be written to."
        )


@contextmanager
def _translated(path: str) -> Iterator[None]:
    """SQLite's errors as ours, in one sentence each."""
    try:
        yield
    except sqlite3.Error as error:
        raise _translation(path, error) from error


def _translation(path: str, error: sqlite3.Error) -> StudyError:
    said = str(error)
    if "locked" in said or "busy" in said:
        return StudyBusy(
            f"{path} is in use by another process, and this version of SQLite ({sqlite3.sqlite_version}) allows one at "
            "a time, or the other is in a long transaction. Ask the other process, stop it, or use PostgreSQL; "
            "?shared=1 in the storage string of all of them lets several in, more slowly."
        )
    if "full" in said:
        return StudyError(f"{path} was not changed, because the disk is full. Make room, and repeat the request.")
    if "not a database" in said or "malformed" in said or "corrupt" in said:
        return BrokenStudy(f"{path} is not a whole SQLite database ({said}). Use a backup.")
    if "readonly" in said or "unable to open" in said:
        return InvalidStorage(f"{path} cannot be written to ({said}). Change the permissions of the file and folder.")
    if isinstance(error, sqlite3.IntegrityError):
        return StudyError(f"{path} refused rows that do not fit the others ({said}); nothing was written.")
    return StudyError(f"{path} was not changed, because SQLite failed: {said}. Check the disk; rarely study doctor.")
