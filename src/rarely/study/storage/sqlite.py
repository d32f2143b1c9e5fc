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
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any

from rarely.study.errors import BrokenStudy, InvalidStorage, StudyBusy, StudyError
from rarely.study.storage.database import CHECKPOINTS, REFUSAL, Database, said
from rarely.study.storage.tables import Tables

BUSY_TIMEOUT = 10.0  # seconds that a connection waits for another one
BACKUP_PAGES, BACKUP_PAUSE = 1000, 0.002
"""Pages that a backup copies at a time, and the seconds after them in which others may write."""
JOURNAL = 16 << 20  # bytes of a journal that are kept for the next transactions: one of a checkpoint may be larger
ROWS_PER_INSERT = 64  # rows that one statement inserts; an event has 13 columns
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


def make_private(path: str) -> None:
    """Make a new file that its owner alone may read, as are the journals that SQLite makes beside it."""
    if path != ":memory:" and not os.path.exists(path):
        with suppress(OSError):  # which SQLite explains
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600))


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


class SqliteStorage(Database):
    """Studies in an SQLite file or in memory, over one connection that all studies of the process share."""

    dialect, blob, readable, writable, empty = "sqlite", "BLOB", "BEGIN", "BEGIN IMMEDIATE", "is empty"
    setup = f"PRAGMA application_id = {0x72617265}"  # "rare"
    triggers = tuple(
        f"CREATE TRIGGER {{0}}_no_{change.lower()} BEFORE {change} ON {{0}} BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END"
        for change in ("UPDATE", "DELETE")
    )
    lifts = (("DROP TRIGGER {0}_no_update", triggers[0]), ("DROP TRIGGER {0}_no_delete", triggers[1]))
    driver_error = sqlite3.Error

    def __init__(self, url: str, path: str, *, shared: bool = False, read_only: bool = False) -> None:
        super().__init__(url)
        self.path, self.shared, self.read_only, self.users = path, shared, read_only, 0
        self._beside: SqliteStorage | None = None
        self._beside_lock = threading.RLock()  # opening the file may take long, and nobody must wait for it
        place = f"{Path(path).as_uri()}?mode=ro&immutable=1" if read_only else path
        options: dict[str, Any] = {"timeout": BUSY_TIMEOUT, "isolation_level": None, "check_same_thread": False}
        with self._translated(url):
            if not read_only:
                make_private(path)
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
        if not in_memory:
            self._raw.execute(f"PRAGMA journal_mode = {'DELETE' if self.shared and unsafe else 'WAL'}")
        # Deleted bytes are overwritten, because snapshots of erased contexts go when a version is replaced.
        for pragma in ("trusted_schema = OFF", "foreign_keys = ON", "secure_delete = ON", "synchronous = FULL"):
            self._raw.execute(f"PRAGMA {pragma}")
        self._raw.execute(f"PRAGMA journal_size_limit = {JOURNAL}")
        # Take the first lock now, so that a second process is refused here and not in the middle of its work.
        self._raw.execute("BEGIN IMMEDIATE")
        self._raw.execute("COMMIT")

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._raw.execute(sql, parameters).fetchall()

    def insert(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Insert many rows with few statements: executemany would yield to other threads at every row."""
        begin, values, marks = sql.partition("VALUES ")
        while rows:
            # Powers of 2, so that there are few different statements to prepare; every SQLite accepts 999 parameters.
            count = min(1 << (len(rows).bit_length() - 1), ROWS_PER_INSERT)
            self._raw.execute(begin + values + ", ".join([marks] * count), list(chain(*rows[:count])))
            rows = rows[count:]

    def stream(self, sql: str) -> Iterable[tuple[Any, ...]]:
        """Return the rows of a statement, reading some at a time."""
        return self._raw.execute(sql)

    def _was_refused(self, error: Any) -> bool:
        # A full disk is found before anything is synced, and the transaction is rolled back.
        return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL

    def _lack(self) -> str:
        names = [name for (name,) in self.execute("SELECT name FROM sqlite_master")]
        return "" if "rarely_schema" in names else "holds tables of another program" if names else self.empty

    def _translation(self, error: Any, place: str) -> StudyError:
        what = said(error)
        if "locked" in what or "busy" in what:
            return StudyBusy(
                f"{place} is in use by another process, which is in a long transaction or uses the file alone (SQLite "
                f"{sqlite3.sqlite_version}). Stop that process, use PostgreSQL, or add ?shared=1 to the storage string "
                "of all processes, which makes commits slower."
            )
        if "full" in what:
            return StudyError(f"{place} was not changed, because the disk is full. Free some space, and repeat it.")
        if any(sign in what for sign in ("not a database", "malformed", "corrupt", "no such", "decode")):
            return BrokenStudy(f"{place} is not an intact SQLite database ({what}). Use a backup.")
        if "readonly" in what or "unable to open" in what:
            return InvalidStorage(f"{place} cannot be written to ({what}). Change the permissions of file and folder.")
        if isinstance(error, sqlite3.IntegrityError):
            return StudyError(f"{place} refused rows that do not fit the others ({what}); nothing was written.")
        return StudyError(f"{place} was not changed, because SQLite failed: {what}. Check the disk.")

    def backup(self, path: str) -> None:
        """Copy the database in steps between which others may write: SQLite adds to the copy what they write."""

        def let_others_write(*_: int) -> None:
            self.lock.release()
            time.sleep(BACKUP_PAUSE)
            self.lock.acquire()

        with self.lock, self._translated(path):
            self._check_usable()
            make_private(path)
            with closing(sqlite3.connect(path)) as target:
                self._raw.backup(target, pages=BACKUP_PAGES, progress=let_others_write)
                target.execute("PRAGMA journal_mode = DELETE")

    @contextmanager
    def checkpoints(self) -> Iterator[Tables]:
        try:
            with self._beside_lock:
                if self._beside is None:
                    path = ":memory:" if self.read_only or self.path == ":memory:" else f"{self.path}-checkpoints"
                    new = not os.path.exists(path)
                    self._beside = SqliteStorage(path, path, shared=self.shared)
                    if new and self.has_checkpoints:  # a backup that is used as it is
                        with self._beside.transaction(self.writable), self.lock:
                            self._beside.create_checkpoints()
                            self._beside.take(self.stream, CHECKPOINTS)
                beside = self._beside
            with beside.transaction(self.writable) as tables:
                beside.create_checkpoints()
                yield tables
        except BrokenStudy:
            self._set_checkpoints_aside()
            raise

    def shred(self) -> str:
        """Write the file and that of checkpoints anew: pages that were split may have copies of rows."""
        with suppress(OSError):
            os.unlink(f"{self.path}-checkpoints-damaged")
        for each in filter(None, (self, self._beside)):
            try:
                with each.lock:
                    each._check_usable()
                    if each is self:  # where a backup had them, before they were taken beside it
                        each.execute("DROP TABLE IF EXISTS rarely_checkpoints")
                    each.execute("VACUUM")
                    busy = each.execute("PRAGMA wal_checkpoint(TRUNCATE)")[0][0]
            except sqlite3.Error as error:
                busy = said(error)
            if busy:
                return f"{each.url} has free pages that could not be overwritten, because others use it: repeat this."
        return ""

    @property
    def has_checkpoints(self) -> bool:
        with self.lock:
            return bool(self.execute("SELECT 1 FROM sqlite_master WHERE name = 'rarely_checkpoints'"))

    def _set_checkpoints_aside(self) -> None:
        """Rename a damaged file of checkpoints, which holds nothing that the record does not."""
        with self._beside_lock, suppress(OSError):
            if self._beside is not None:
                self._beside.close()
                self._beside = None
            os.replace(f"{self.path}-checkpoints", f"{self.path}-checkpoints-damaged")

    def close(self) -> None:
        """Close the connection, unless other studies of the process use it."""
        with _REGISTRY:
            self.users -= 1
            if self.users > 0:
                return
            key = (self.path, self.shared, self.read_only)
            if _OPEN.get(key) is self:
                del _OPEN[key]
        self._disconnect()

    def _disconnect(self) -> None:
        if self.process == os.getpid():
            if self._beside is not None:
                self._beside.close()
            self._raw.close()


_OPEN: dict[tuple[str, bool, bool], SqliteStorage] = {}
"""The open files of this process: two connections to one file could trigger the bug described above."""
_MEMORY: dict[str, SqliteStorage] = {}
"""The databases in the memory of this process, by name; each lives until the process ends."""
_REGISTRY = threading.RLock()


def open_file(path: str, *, shared: bool = False, new: bool = False, reading: bool = False) -> SqliteStorage:
    """Return the database in a file; see `open_storage`."""
    where = os.path.realpath(path)
    key = (where, shared, _check_file(path, where, new, reading))
    with _REGISTRY:
        storage = _OPEN.get(key)
        if storage is not None and storage.failed:
            storage._disconnect()  # it may hold a lock on the file
        if storage is None or storage.failed or storage.process != os.getpid():
            url = f"sqlite:///{path}" + ("?shared=1" if shared else "")
            storage = _OPEN[key] = SqliteStorage(url, where, shared=shared, read_only=key[2])
        storage.users += 1
        return storage


def open_memory(name: str, *, new: bool = False) -> SqliteStorage:
    """Return a database in the memory of this process, for tests: all that use the same name share it."""
    with _REGISTRY:
        if name not in _MEMORY:
            if not new:
                raise InvalidStorage(f"memory://{name} holds no study in this process. Create one with Study.create.")
            _MEMORY[name] = SqliteStorage(f"memory://{name}", ":memory:")
            _MEMORY[name].users = 1  # until the process ends
        _MEMORY[name].users += 1
        return _MEMORY[name]


@atexit.register
def _forget_memory() -> None:
    while _MEMORY:
        _MEMORY.popitem()[1]._disconnect()


def copy_checkpoints(database: Database, path: str) -> None:
    """Copy all checkpoints of a database to a new SQLite file; see `take_checkpoints`."""
    make_private(path)
    with closing(sqlite3.connect(path)) as target, database.checkpoints() as tables:
        target.execute(SqliteStorage.statements()[-1])
        for place in tables.run("SELECT study, base, start FROM rarely_checkpoints"):
            (row,) = tables.run("SELECT * FROM rarely_checkpoints WHERE study = ? AND base = ? AND start = ?", place)
            target.execute("INSERT INTO rarely_checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        target.commit()


def take_checkpoints(path: str, beside: str) -> None:
    """Add checkpoints that `copy_checkpoints` wrote to a database file."""
    if os.path.exists(beside):
        with closing(sqlite3.connect(path)) as target:
            target.execute(SqliteStorage.statements()[-1])
            target.execute("DELETE FROM rarely_checkpoints")  # those that a backup began with
            target.execute("ATTACH ? AS beside", (beside,))
            target.execute("INSERT INTO rarely_checkpoints SELECT * FROM beside.rarely_checkpoints")
            target.commit()


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
