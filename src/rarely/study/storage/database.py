"""What the databases of studies do alike: transactions, failures that are final, the schema, and deleting a study."""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import islice, product
from pathlib import Path
from typing import Any, ClassVar

from rarely import __version__
from rarely.study import errors
from rarely.study.errors import InvalidStorage, StudyError, StudyFailed
from rarely.study.storage.tables import CHUNK, Tables

SCHEMA = 5  # must be raised with every change of the tables, with a step in `STEPS`
OLDEST = 3
"""The oldest schema that can be upgraded: what 0.3 wrote, schema 2, holds policies that later versions cannot read."""
STEPS: dict[int, tuple[str, Callable[[Database], Any]]] = {
    3: ("add the table of erasures", lambda database: database.create_table("rarely_erasures")),
    4: (
        "drop the table of versions, which their events have",
        lambda database: database.execute("DROP TABLE IF EXISTS rarely_versions"),
    ),
}
"""What leads from a schema to the next one, in words, and what does it inside a transaction."""
TABLES = {"rarely_schema": "version", "rarely_studies": "study", "rarely_events": "study, seq"}
TABLES |= {"rarely_snapshots": "study, seq", "rarely_leases": "study, token, expires", "rarely_erasures": "number"}
"""All tables, and the columns that order their rows."""
CHECKPOINTS = {"rarely_checkpoints": "study, base, start"}
"""The same of the table beside them, which a backup has as well."""
REFUSAL = "rows are added to a study and never changed or deleted"


class Database(ABC):
    """A database of studies. SQL has ? for each parameter."""

    dialect: ClassVar[str]
    blob: ClassVar[str]  # the SQL type of bytes
    setup: ClassVar[str]  # the SQL that prepares for tables and their triggers
    triggers: ClassVar[tuple[str, ...]]  # the SQL of the triggers that refuse changes of a table, {0}
    lifts: ClassVar[tuple[tuple[str, str], ...]]  # the SQL that lifts each of them, and that ends this
    readable: ClassVar[str]  # the SQL that begins a transaction that sees the database as it is then
    writable: ClassVar[str]  # the SQL that begins a transaction that writes
    schema_lock: ClassVar[str] = ""
    """The SQL that keeps others from creating tables until a transaction ends, where BEGIN alone does not."""
    empty: ClassVar[str]  # what `_lack` says of a database in which tables may be created
    driver_error: type[Exception]  # the base class of the driver's errors
    time: float | None = None
    """The database's clock at the beginning of the last transaction that writes; None if it has no clock."""
    _raw: Any  # the driver's connection

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
    def _translation(self, error: Any, place: str) -> StudyError:
        """Return the error of a study that says what an error of the driver means, and what to do."""

    def _was_refused(self, error: Any) -> bool:
        """Return whether a COMMIT that failed has certainly stored nothing, and a later one may succeed."""
        return False

    @abstractmethod
    def _lack(self) -> str:
        """Return what the database is without the tables of studies; "" if it has them."""

    def reading(self) -> AbstractContextManager[Tables]:
        """Open a transaction that sees the database as it was when the transaction began."""
        return self.transaction(self.readable)

    def writing(self, name: str) -> AbstractContextManager[Tables]:
        """Open a transaction that writes to a study, while no other writer of that study is active.

        It is durable when its block has ended, and `StudyFailed` says that the database did not confirm it.
        """
        return self.transaction(self.writable)

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
            raise StudyFailed(
                f"{self.url} failed earlier ({self.failed}). Check the disk. Open the study again: Study.open."
            )

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
                self.create_tables()
                self._name_schema()
        self.check()

    def create_tables(self) -> None:
        """Create all tables inside the open transaction."""
        for statement in (*self.statements()[:-1], self.setup):
            self.execute(statement)
        for table in TABLES:
            self._refuse_changes(table)

    def create_table(self, table: str) -> None:
        """Create one table and its triggers, in a database that has the others."""
        (statement,) = (each for each in self.statements() if f"CREATE TABLE {table} (" in each)
        self.execute(statement)
        self._refuse_changes(table)

    def create_checkpoints(self) -> None:
        """Create the table of checkpoints, unless it exists."""
        self.execute(self.statements()[-1])

    @classmethod
    def statements(cls) -> list[str]:
        """Return the SQL that creates each table; the last one, unless it exists, that of checkpoints."""
        text = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")
        return text.format(blob=cls.blob).rstrip().rstrip(";").split(";")

    def _refuse_changes(self, table: str) -> None:
        for trigger in self.triggers:
            self.execute(trigger.format(table))

    def _name_schema(self) -> None:
        self.execute("INSERT INTO rarely_schema VALUES (?, ?)", (SCHEMA, __version__))

    def take(self, stream: Callable[[str], Iterable[tuple[Any, ...]]], tables: Mapping[str, str]) -> None:
        """Add all rows of another database of the same schema, given by a function from SQL to rows.

        `tables` are the tables, each with the columns that order its rows.
        """
        for table, order in tables.items():
            rows = iter(stream(f"SELECT * FROM {table} ORDER BY {order}"))
            while part := list(islice(rows, CHUNK if table in TABLES else 1)):
                self.insert(f"INSERT INTO {table} VALUES ({', '.join('?' * len(part[0]))})", part)

    def delete(self, name: str, actor: str, reason: str) -> int:
        """Delete a study, and return how many events it had; that it was there, who deleted it and why stays."""
        with self.writing(name) as tables:
            row = tables.study(name)
            if row is None:
                raise errors.UnknownStudy(f"{self.url} has no study called {name!r}.")
            mine = tables.of(row)
            last = mine.event(mine.last_seq())
            events, head = (0, "") if last is None else (last.seq, last.hash)
            for table in ("rarely_leases", "rarely_snapshots", "rarely_events", "rarely_studies"):
                with self.altering(table):
                    self.execute(f"DELETE FROM {table} WHERE study = ?", (row.study,))
            number = self.execute("SELECT count(*) FROM rarely_erasures")[0][0] + 1
            erased = (number, name, round(time.time() * 1e6), actor, reason, events, head)
            self.execute("INSERT INTO rarely_erasures VALUES (?, ?, ?, ?, ?, ?, ?)", erased)
        with self.checkpoints() as tables:
            tables.run("DELETE FROM rarely_checkpoints WHERE study = ?", (row.study,))
        self.shred()
        return events

    @contextmanager
    def altering(self, *names: str) -> Iterator[None]:
        """Allow changes of these tables inside the open transaction, until the block ends."""
        for name, (lift, _) in product(names, self.lifts):
            self.execute(lift.format(name))
        yield
        for name, (_, end) in product(names, self.lifts):
            self.execute(end.format(name))

    @abstractmethod
    def shred(self) -> str:
        """Overwrite what was deleted where the database can; return in a sentence what it still has, "" for nothing."""

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

    @abstractmethod
    def close(self) -> None:
        """End the connection."""

    def check(self) -> None:
        """Refuse a database without studies, or with those of another version of rarely."""
        if (found := self._readable_schema()[0]) < SCHEMA:
            raise errors.OlderSchema(
                f"{self.url} has schema {found}; this is rarely {__version__}, which reads schema {SCHEMA}. Upgrade "
                "it: rarely study upgrade STORAGE BACKUP."
            )

    def _readable_schema(self) -> tuple[int, str]:
        """Return `_schema`; refuse one that a later version wrote, and one that is too old to be upgraded."""
        with self.reading():
            found, rarely = self._schema()
        if not isinstance(found, int):
            raise errors.BrokenStudy(
                f"{self.url} must have tables of schema {SCHEMA}; its schema is {found!r}. Use a backup."
            )
        if found < OLDEST:
            raise errors.OlderSchema(
                f"{self.url} has schema {found}, written by rarely {rarely}, whose policies this version cannot read. "
                f"Export its studies with rarely {rarely} (rarely study export), and make new ones whose policies "
                "begin with that log: LinUCB.from_log, BatchNeuralUCB.from_log."
            )
        if found > SCHEMA:
            raise errors.NewerSchema(
                f"{self.url} has schema {found}, written by rarely {rarely}, which reads it; this is rarely "
                f"{__version__}, which reads schema {SCHEMA}. Use rarely {rarely} or a later version."
            )
        return found, rarely

    def _schema(self) -> tuple[Any, Any]:
        """Return the schema, and the version of rarely that wrote it."""
        if lack := self._lack():
            raise InvalidStorage(f"{self.url} {lack}. Check the name, or create a study: rarely study create.")
        rows = self.execute("SELECT version, rarely FROM rarely_schema ORDER BY version DESC LIMIT 1")
        return rows[0] if rows else (None, "")

    def upgrade(self, backup: str | os.PathLike[str] | None) -> list[str]:
        """Bring the database to the schema of this version, after a backup; return the steps.

        Without a name for the backup nothing is changed, and the steps are those that would be taken. All of them are
        one transaction: one that fails leaves the database as it was.
        """
        found = self._readable_schema()
        steps = {schema: STEPS[schema] for schema in range(found[0], SCHEMA)}
        if steps and backup is not None:
            if os.path.lexists(backup):
                raise InvalidStorage(f"{backup} exists already; a backup needs a new name, such as one with the date.")
            self.backup(os.fspath(backup))
            with self.transaction(self.writable):
                if self._schema() != found:
                    raise InvalidStorage(f"{self.url} was upgraded by another process meanwhile.")
                for _, step in steps.values():
                    step(self)
                self._name_schema()
            self.check()
        return [f"schema {schema} to {schema + 1}: {says}" for schema, (says, _) in steps.items()]

    def reconnect(self) -> None:
        """Connect again after a lost connection, where a server keeps what was committed."""
        raise StudyFailed(f"{self.url} has no server to connect to again. Open the study again: Study.open.")


def said(error: Exception) -> str:
    """Return what a driver says about an error, in one line."""
    return " ".join(str(error).split()) or type(error).__name__
