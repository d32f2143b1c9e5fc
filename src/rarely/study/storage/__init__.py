"""Databases of studies, each named by one string.

sqlite:///trial.db            a file; four slashes for an absolute path
sqlite:///trial.db?shared=1   a file that several processes use
postgresql://user@host/name   a PostgreSQL database
memory://                     the memory of this process
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

from rarely.extend.checks import shown
from rarely.study.errors import InvalidStorage
from rarely.study.storage.postgresql import PostgresqlStorage
from rarely.study.storage.sqlite import SqliteStorage, loses_writes, open_file, open_memory
from rarely.study.storage.tables import CHUNK, Lease, StudyRow, Tables

__all__ = ["CHUNK", "Lease", "Storage", "StudyRow", "Tables", "loses_writes", "open_storage"]


Storage = SqliteStorage | PostgresqlStorage  # a database of studies; several studies and several threads may share one


def open_storage(url: Any, *, new: bool = False, reading: bool = False) -> Storage:
    """Open the database that a storage string names.

    `new` allows one that does not exist yet, and `reading` a file that cannot be written to, as on read-only media.

    >>> open_storage("trial.db")
    Traceback (most recent call last):
        ...
    rarely.study.errors.InvalidStorage: storage must be a string such as sqlite:///trial.db, \
postgresql://user@host/name or memory://; got 'trial.db'.
    """
    scheme, separator, rest = url.partition("://") if isinstance(url, str) else ("", "", "")
    if separator and scheme == "memory":
        return open_memory(rest, new=new)
    if separator and scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        path, _, query = rest[1:].partition("?")
        options = dict(parse_qsl(query, keep_blank_values=True))
        if path and set(options) <= {"shared"} and options.get("shared", "0") in ("0", "1"):
            return open_file(path, shared=options.get("shared") == "1", new=new, reading=reading)
    if separator and scheme in ("postgresql", "postgres"):
        return PostgresqlStorage(url)
    raise InvalidStorage(
        "storage must be a string such as sqlite:///trial.db, postgresql://user@host/name or memory://; got "
        f"{shown(url)}."
    )
