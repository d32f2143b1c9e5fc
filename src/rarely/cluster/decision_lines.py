"""A log of decisions in a file: one line each, the CRC-32 of the rest and the decision as JSON.

A line is in the file when `append` returns, also after kill -9. One that was cut short is removed when the log is
opened again.
"""

from __future__ import annotations

import json
import os
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rarely import RarelyError
from rarely.extend import Array
from rarely.extend.provisional import lock


class LogBusy(RarelyError):
    """Another decider has the log open."""


class Log:
    """Lines that are in the file when `append` returns, whatever happens to the process then.

    The file is locked until it is closed or the process ends, however it ends.
    """

    def __init__(self, path: str | os.PathLike[str], *, sync: bool = False) -> None:
        self._path, self._sync, self._owner = path, sync, os.getpid()
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        if not lock(self._file):
            os.close(self._file)
            raise self._busy()
        with open(path, "rb") as file:
            os.ftruncate(self._file, sum(map(len, whole_lines(file))))

    def _busy(self) -> LogBusy:
        return LogBusy(f"another decider writes to {os.fspath(self._path)}; close it, or give each a log of its own.")

    def append(self, record: dict[str, Any]) -> None:
        """Write a record in one call of the operating system; with `sync` it is on the disk too."""
        if os.getpid() != self._owner:  # a fork has the same file and the same lock
            raise self._busy()
        text = json.dumps(record).encode()
        line = b"%08x %s\n" % (zlib.crc32(text), text)
        if (written := os.write(self._file, line)) < len(line):
            os.ftruncate(self._file, os.fstat(self._file).st_size - written)
            raise OSError(f"the log took {written} of {len(line)} bytes; is its disk full? Nothing was decided.")
        if self._sync:
            os.fsync(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def whole_lines(file: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of a log up to the first that is not whole."""
    for line in file:
        if line[-1:] != b"\n" or line[:8] != b"%08x" % zlib.crc32(line[9:-1]):
            return
        yield line


def packed(contexts: Array) -> dict[str, Any]:
    """Return contexts, (k, d), as the two fields of a record that hold them."""
    return {"dim": contexts.shape[1], "contexts": b64encode(contexts.tobytes()).decode()}


def records_of(path: Path, start: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the records of a log from a place in it on, with their contexts as rows, and the place behind each."""
    with open(path, "rb") as file:
        file.seek(start)
        for line in whole_lines(file):
            start, record = start + len(line), json.loads(line[9:])
            record["contexts"] = np.frombuffer(b64decode(record["contexts"])).reshape(-1, record.pop("dim"))
            yield start, record
