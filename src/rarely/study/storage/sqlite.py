"""Studies in one SQLite file or in memory: WAL, synchronous=FULL, one writer at a time.

SQLite 3.7.0 to 3.51.2 (except 3.44.6 and 3.50.7) may lose committed writes in WAL mode if two connections write and
checkpoint at the same moment. With such a version a file has one connection, which locks it: a second process is
refused. `?shared=1` admits several processes, by a rollback journal with such a version and by WAL with a later one.
"""

from __future__ import annotations

import atexit
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any

from rarely.study.errors import BrokenStudy, InvalidStorage, StudyBusy, StudyError, StudyFailed
from rarely.study.storage.tables import TABLES, Tables, check_schema, checkpoint_statement, create_tables

BUSY_TIMEOUT = 10.0
"""Seconds that a connection waits for another one."""
BACKUP_PAGES, BACKUP_PAUSE = 1000, 0.002
"""Pages that a backup copies at a time, and the seconds after them in which others may write."""
ROWS_PER_INSERT = 64
"""Rows that one statement inserts; an event has 13 columns."""
WAL_FIRST, WAL_FIXED = (3, 7, 0), (3, 51, 3)
WAL_BACKPORTS = {(3, 44): 6, (3, 50): 7}
"""SQLite versions that may lose committed writes in WAL mode, and earlier releases that have the fix as well."""
NETWORK = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "afs", "glusterfs", "ceph", "fuse.s3fs")
"""File systems on which SQLite's locks do not hold, or a sync does not reach a disk."""
MOUNTS = Path("/proc/mounts")


def loses_writes(version: tuple[int, ...]) -> bool:
    """Return whether this version of SQLite may lose commits when two connections use WAL mode.

    >>> [loses_writes(v) for v in [(3, 40, 1), (3, 44, 6), (3, 50, 6), (3, 51, 3)]]
    [True, False, True, False]
    """
    backport = WAL_BACKPORTS.get((version[0], version[1]), version[2] + 1)
    return version >= WAL_FIRST and not (version >= WAL_FIXED or version[2] >= backport)


def file_system(path: str) -> str:
    """Return the kind of file system that holds a path, such as "ext4"; "" where the system does not say."""
    if not MOUNTS.exists():
        return ""
    best, kind = "", ""
    for line in MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines():
        _, place, name, *_ = line.split()
        if (path == place or path.startswith(place.rstrip("/") + "/")) and len(place) >= len(best):
            best, kind = place, name
    return kind


class SqliteConnection:
    """A connection to a file or to a database in memory, shared by all studies of the process."""

    def __init__(self, path: str, *, shared: bool = False, read_only: bool = False) -> None:
        self.path, self.shared, self.read_only = path, shared, read_only
        self.lock = threading.RLock()
        self.users, self.process = 0, os.getpid()
        self.failed = ""
        self._beside: SqliteConnection | None = None
        self._beside_lock = threading.RLock()  # opening the file may take long, and nobody must wait for it
        place = f"{Path(path).as_uri()}?mode=ro&immutable=1" if read_only else path
        options: dict[str, Any] = {"timeout": BUSY_TIMEOUT, "isolation_level": None, "check_same_thread": False}
        with _translated(path):
            self._raw: sqlite3.Connection = sqlite3.connect(place, uri=read_only, **options)
            try:
                if not read_only:
                    self._prepare()
            except BaseException:
                self._raw.close()
                raise

    def _prepare(self) -> None:
        in_memory, unsafe = self.path == ":memory:", loses_writes(sqlite3.sqlite_version_info)
        if unsafe and not self.shared and not in_memory:
            self._raw.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._raw.execute("PRAGMA trusted_schema = OFF")
        self._raw.execute("PRAGMA foreign_keys = ON")
        if not in_memory:
            self._raw.execute(f"PRAGMA journal_mode = {'DELETE' if self.shared and unsafe else 'WAL'}")
        self._raw.execute("PRAGMA synchronous = FULL")
        # Take the first lock now, so that a second process is refused here and not in the middle of its work.
        self._raw.execute("BEGIN IMMEDIATE")
        self._raw.execute("COMMIT")

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._raw.execute(sql, parameters).fetchall()

    def insert(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Insert many rows with few statements: executemany would yield to other threads at every row."""
        begin, values, marks = sql.partition("VALUES ")
        left = list(rows)
        while left:
            # Powers of 2, so that there are few different statements to prepare; every SQLite accepts 999 parameters.
            count = min(1 << (len(left).bit_length() - 1), ROWS_PER_INSERT)
            self._raw.execute(begin + values + ", ".join([marks] * count), list(chain(*left[:count])))
            left = left[count:]

    @contextmanager
    def transaction(self, begin: str) -> Iterator[Tables]:
        """Run a block between BEGIN and COMMIT, or ROLLBACK if it raises."""
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
            # After a failed fsync the state of the disk is unknown, and a second fsync may claim success.
            self.failed = str(error)
            raise StudyFailed(
                f"{self.path} did not confirm the commit ({error}), so it may or may not be stored. Check the disk, "
                "open the study again, and repeat the request with the same id: a stored one gets its stored answer."
            ) from error

    def _check(self) -> None:
        if self.process != os.getpid():
            raise StudyFailed(
                "an SQLite connection must not be used in a process that was forked after it was opened. Open the "
                "study in the new process."
            )
        if self.failed:
            raise StudyFailed(f"{self.path} failed earlier ({self.failed}). Check the disk, and open the study again.")

    def stream(self, sql: str) -> Iterable[tuple[Any, ...]]:
        """Yield the rows of a statement, reading some at a time."""
        return self._raw.execute(sql)

    def backup(self, path: str) -> None:
        """Copy the database in steps between which others may write: SQLite adds to the copy what they write."""

        def let_others_write(*_: int) -> None:
            self.lock.release()
            time.sleep(BACKUP_PAUSE)
            self.lock.acquire()

        with self.lock, _translated(path):
            self._check()
            with closing(sqlite3.connect(path)) as target:
                self._raw.backup(target, pages=BACKUP_PAGES, progress=let_others_write)
                target.execute("PRAGMA journal_mode = DELETE")

    def beside(self) -> SqliteConnection:
        """Return the connection to the file of checkpoints, which nobody waits for and a transaction never needs."""
        with self._beside_lock:
            if self._beside is None:
                path = ":memory:" if self.read_only or self.path == ":memory:" else f"{self.path}-checkpoints"
                self._beside = SqliteConnection(path, shared=self.shared)
            return self._beside

    def set_beside_aside(self) -> None:
        """Rename a damaged file of checkpoints, which holds nothing that the record does not."""
        with self._beside_lock, suppress(OSError):
            if self._beside is not None:
                self._beside.close()
                self._beside = None
            os.replace(f"{self.path}-checkpoints", f"{self.path}-checkpoints-damaged")

    def close(self) -> None:
        if self.process == os.getpid():
            if self._beside is not None:
                self._beside.close()
            self._raw.close()


_CONNECTIONS: dict[tuple[str, bool, bool], SqliteConnection] = {}
"""The connections of this process by file: two to the same file could trigger the bug described above."""
_REGISTRY = threading.Lock()


def _connection(*key: Any) -> SqliteConnection:
    path, shared, read_only = key
    with _REGISTRY:
        found = _CONNECTIONS.get(key)
        if found is not None and found.failed:
            found.close()
        if found is None or found.failed or found.process != os.getpid():
            found = _CONNECTIONS[key] = SqliteConnection(path, shared=shared, read_only=read_only)
        found.users += 1
        return found


def _release(connection: SqliteConnection) -> None:
    with _REGISTRY:
        connection.users -= 1
        if connection.users:
            return
        key = (connection.path, connection.shared, connection.read_only)
        if _CONNECTIONS.get(key) is connection:
            del _CONNECTIONS[key]
    connection.close()


class SqliteStorage:
    """Studies in an SQLite file."""

    time: float | None = None
    """A file has no clock."""

    def __init__(self, path: str, *, shared: bool = False, new: bool = False, reading: bool = False) -> None:
        where = os.path.realpath(path)
        self.url = f"sqlite:///{path}" + ("?shared=1" if shared else "")
        self.connection = _connection(where, shared, _check_file(path, where, new, reading))
        self._closed = False

    def writing(self, name: str) -> AbstractContextManager[Tables]:
        return self.connection.transaction("BEGIN IMMEDIATE")

    def reading(self) -> AbstractContextManager[Tables]:
        return self.connection.transaction("BEGIN")

    @contextmanager
    def checkpoints(self) -> Iterator[Tables]:
        try:
            beside = self.connection.beside()
            with beside.transaction("BEGIN IMMEDIATE") as tables:
                beside.execute(checkpoint_statement("sqlite"))
                yield tables
        except BrokenStudy:
            self.connection.set_beside_aside()
            raise

    def create(self) -> None:
        with self.connection.transaction("BEGIN IMMEDIATE"):
            if not self._names():
                create_tables(self.connection.execute, "sqlite")
                return
        self.check()

    def check(self) -> None:
        with self.connection.transaction("BEGIN" if self.connection.read_only else "BEGIN IMMEDIATE"):
            if "rarely_schema" not in self._names():
                what = "is empty" if not self._names() else "holds tables of another program"
                raise InvalidStorage(
                    f"{self.url} {what}, not studies. Check the path, or create a study: rarely study create."
                )
            check_schema(self.url, self.connection.execute("SELECT max(version) FROM rarely_schema")[0][0])

    def _names(self) -> list[str]:
        return [str(name) for (name,) in self.connection.execute("SELECT name FROM sqlite_master")]

    def backup(self, path: str) -> None:
        self.connection.backup(path)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            _release(self.connection)


_MEMORY: dict[str, SqliteConnection] = {}
"""The databases in the memory of this process, by name."""


class MemoryStorage(SqliteStorage):
    """Studies in the memory of this process, for tests: all that use the same name share a database."""

    def __init__(self, name: str = "", *, new: bool = False) -> None:
        self.url = f"memory://{name}"
        with _REGISTRY:
            if name not in _MEMORY:
                if not new:
                    raise InvalidStorage(f"{self.url} holds no study in this process. Create one with Study.create.")
                _MEMORY[name] = SqliteConnection(":memory:")
            self.connection = _MEMORY[name]

    def close(self) -> None:
        """Do nothing: the database lives until the process ends."""


@atexit.register
def _forget_memory() -> None:
    while _MEMORY:
        _MEMORY.popitem()[1].close()


def copy_tables(stream: Callable[[str], Iterable[tuple[Any, ...]]], path: str) -> None:
    """Copy every row of another database, given by a function from SQL to rows, to a new SQLite file."""
    with closing(SqliteConnection(path, shared=True)) as target, target.transaction("BEGIN IMMEDIATE") as tables:
        create_tables(target.execute, "sqlite", empty=True)
        tables.take(stream, TABLES)


def _check_file(path: str, where: str, new: bool, reading: bool) -> bool:
    """Refuse an unusable path with a reason, where SQLite would only say 'unable to open'.

    Returns whether the file can only be read, which is refused unless `reading`.
    """
    folder = os.path.dirname(where)
    if os.path.isdir(where):
        raise InvalidStorage(f"{path} is a folder; name the file of the database, as in sqlite:///{path}/trial.db.")
    if not os.path.isdir(folder):
        raise InvalidStorage(f"the folder of {path} does not exist. Create it first: {folder}.")
    if not os.path.exists(where) and not new:
        raise InvalidStorage(f"{path} does not exist. Check the path, or create a study: rarely study create.")
    kind, writable = file_system(where), os.access(folder, os.W_OK)
    if reading and not (writable and os.access(where, os.W_OK)):
        if os.path.exists(f"{where}-wal") and os.path.getsize(f"{where}-wal"):
            raise InvalidStorage(f"{path} was not closed: copy it and {path}-wal to a writable folder first.")
        return True
    if kind in NETWORK:
        raise InvalidStorage(
            f"{path} lies on a network file system ({kind}), where SQLite's locks do not hold. Use a local disk or "
            "PostgreSQL."
        )
    if not writable or (os.path.exists(where) and not os.access(where, os.W_OK)):
        raise InvalidStorage(
            f"{path} cannot be written to, and a study writes before it answers. Change the permissions of the file "
            "and its folder, or copy the database to a writable folder."
        )
    return False


@contextmanager
def _translated(path: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise _translation(path, error) from error


def _translation(path: str, error: sqlite3.Error) -> StudyError:
    said = str(error)
    if "locked" in said or "busy" in said:
        return StudyBusy(
            f"{path} is in use by another process, which is in a long transaction or uses the file alone (SQLite "
            f"{sqlite3.sqlite_version}). Stop that process, use PostgreSQL, or add ?shared=1 to the storage string of "
            "all processes, which makes commits slower."
        )
    if "full" in said:
        return StudyError(f"{path} was not changed, because the disk is full. Free some space, and repeat the request.")
    if any(sign in said for sign in ("not a database", "malformed", "corrupt", "no such")):
        return BrokenStudy(f"{path} is not an intact SQLite database ({said}). Use a backup.")
    if "readonly" in said or "unable to open" in said:
        return InvalidStorage(f"{path} cannot be written to ({said}). Change the permissions of the file and folder.")
    if isinstance(error, sqlite3.IntegrityError):
        return StudyError(f"{path} refused rows that do not fit the others ({said}); nothing was written.")
    return StudyError(f"{path} was not changed, because SQLite failed: {said}. Check the disk.")
