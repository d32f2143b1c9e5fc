"""One process at a time writes to a folder of records."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rarely.core.errors import RarelyError
from rarely.simulation.writing import writing

if sys.platform == "win32":
    fcntl = None
else:
    import fcntl


class FolderBusy(RarelyError):
    """Another process is writing to the folder."""


@contextmanager
def only_here(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which ends with this process however it ends."""
    if fcntl is None:  # Windows: two runs in one folder would repeat work, and spoil nothing
        yield
        return
    with writing(folder / ".lock"):  # which names the folder where it cannot be written, and only then
        lock = open(folder / ".lock", "wb")  # noqa: SIM115 — closed by the next statement
    with lock as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise FolderBusy(f"another run is writing to {folder}; wait for it, or use another --out.") from error
        yield
