"""Where studies are kept, by one string.

sqlite:///trial.db            a file; four slashes for an absolute path
sqlite:///trial.db?shared=1   a file that several processes use
postgresql://user@host/name   a PostgreSQL database
memory://                     the memory of this process
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

from rarely.study.errors import InvalidStorage
from rarely.study.storage.memory import MemoryStorage
from rarely.study.storage.postgresql import PostgresqlStorage
from rarely.study.storage.protocol import Storage
from rarely.study.storage.sqlite import SqliteStorage
from rarely.study.storage.tables import CHUNK, Lease, StudyRow, Tables, VersionRow

__all__ = ["CHUNK", "Lease", "Storage", "StudyRow", "Tables", "VersionRow", "open_storage"]


def open_storage(url: Any, *, new: bool = False) -> Storage:
    """The database that a storage string names; `new` allows one that does not exist yet.

    >>> open_storage("trial.db")
    Traceback (most recent call last):
        ...
    rarely.study.errors.InvalidStorage: storage must be a string such as sqlite:///trial.db, \
postgresql://user@host/name or memory://; got 'trial.db'.
    """
    scheme, separator, rest = url.partition("://") if isinstance(url, str) else ("", "", "")
    if separator and scheme == "memory":
        return MemoryStorage(rest, new=new)
    if separator and scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        path, _, query = rest[1:].partition("?")
        options = dict(parse_qsl(query, keep_blank_values=True))
        if path and set(options) <= {"shared"} and options.get("shared", "0") in ("0", "1"):
            return SqliteStorage(path, shared=options.get("shared") == "1", new=new)
    if separator and scheme in ("postgresql", "postgres"):
        return PostgresqlStorage(url)
    raise InvalidStorage(
        f"storage must be a string such as sqlite:///trial.db, postgresql://user@host/name or memory://; got {url!r}."
    )
