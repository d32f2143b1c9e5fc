"""Studies in the memory of this process, for tests and trials of an idea: nothing survives its end."""

from __future__ import annotations

import atexit
import threading

from rarely.study.errors import InvalidStorage
from rarely.study.storage.sqlite import SqliteConnection, SqliteStorage

_DATABASES: dict[str, SqliteConnection] = {}
_REGISTRY = threading.Lock()


class MemoryStorage(SqliteStorage):
    """A database in memory; all studies of one process that give the same name share it."""

    def __init__(self, name: str = "", *, new: bool = False) -> None:
        self.url = f"memory://{name}"
        with _REGISTRY:
            if name not in _DATABASES:
                if not new:
                    raise InvalidStorage(f"{self.url} holds no study in this process; Study.create makes one.")
                _DATABASES[name] = SqliteConnection(":memory:")
            self._connection = _DATABASES[name]

    def close(self) -> None:
        """The database stays until the process ends."""


def forget(name: str = "") -> None:
    """Drop a database in memory, so that a test may begin anew."""
    with _REGISTRY:
        found = _DATABASES.pop(name, None)
    if found is not None:
        found.close()


@atexit.register
def _forget_all() -> None:
    for name in list(_DATABASES):
        forget(name)
