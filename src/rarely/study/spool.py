"""Rewards that wait in a file, a line of JSON each, until a service takes them."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from typing import Any

from rarely.core.saving.files import replacing


class Spool:
    """A file of rewards, for the threads of one process.

    Examples
    --------
    >>> import tempfile, os
    >>> spool = Spool(os.path.join(tempfile.mkdtemp(), "rewards.jsonl"))
    >>> spool.add({"id": "visit-1", "reward": 1.0})
    >>> spool.first(10)
    [{'id': 'visit-1', 'reward': 1.0}]
    >>> spool.drop(1)
    >>> len(spool)
    0
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._lock = threading.Lock()

    def add(self, body: dict[str, Any]) -> None:
        """Keep a reward; it is on the disk when this returns."""
        with self._lock:
            _append(self.path, [body])

    def first(self, count: int) -> list[dict[str, Any]]:
        """The oldest rewards."""
        with self._lock:
            return [json.loads(line) for line in self._lines()[:count]]

    def drop(self, count: int, refused: Sequence[dict[str, Any]] = ()) -> None:
        """Forget the oldest rewards; those that were refused go to a file of their own."""
        with self._lock:
            if refused:
                _append(f"{self.path}.refused", refused)
            rest = self._lines()[count:]
            with replacing(self.path) as file:
                file.writelines(rest)

    def __len__(self) -> int:
        with self._lock:
            return len(self._lines())

    def _lines(self) -> list[bytes]:
        try:
            with open(self.path, "rb") as file:
                lines = file.readlines()
        except FileNotFoundError:
            return []
        # A process that was killed while it wrote leaves half a line, whose `add` never returned.
        return [line for line in lines if line.endswith(b"\n")]


def _append(path: str, bodies: Sequence[dict[str, Any]]) -> None:
    with open(path, "a+b") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            half = file.read(1) != b"\n"
            file.write(b"\n" if half else b"")
        file.write(b"".join(json.dumps(body, allow_nan=False).encode() + b"\n" for body in bodies))
        file.flush()
        os.fsync(file.fileno())
