"""Files and folders of results: replaced whole, one writer at a time, and errors that name the path."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rarely.extend.checks import InvalidInput, RarelyError
from rarely.extend.provisional import lock, replacing

ADVICE = {
    errno.ENOSPC: "Free some space, or choose another --out; what was finished is saved.",
    errno.EDQUOT: "Your quota is used up: free some space, or choose another --out; what was finished is saved.",
    errno.EROFS: "The file system is read-only; choose another --out.",
    errno.EACCES: "Allow writing to it, or choose another --out.",
    errno.EPERM: "Allow writing to it, or choose another --out.",
    errno.ENOTDIR: "A part of the path is a file; choose another --out.",
    errno.EEXIST: "It is a file; choose another --out.",
    errno.EISDIR: "It is a folder; name a file.",
}


class CannotWrite(RarelyError):
    """A file or a folder of results cannot be written."""


class FolderBusy(RarelyError):
    """Another process is writing to the folder."""


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, or raise FolderBusy at once; the lock ends with this process however it ends.

    There is none on Windows, where two runs in one folder would repeat work, and spoil nothing.
    """
    with writing(folder / ".lock"):  # around the opening alone: an error of the block is not about this file
        file = open(folder / ".lock", "wb")  # noqa: SIM115 — closed by the next statement
        free = lock(file.fileno())
    with file:
        if not free:
            raise FolderBusy(f"another run is writing to {folder}; wait for it, or use another --out.")
        yield


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise CannotWrite with the path if the system refuses to write.

    >>> with writing("full/record.json"):
    ...     raise OSError(errno.ENOSPC, "No space left on device")
    Traceback (most recent call last):
    ...
    rarely.runs.writing.CannotWrite: full/record.json cannot be written: No space left on device. Free some ...
    """
    try:
        yield
    except OSError as error:
        advice = ADVICE.get(error.errno or 0, "Choose another place.")
        reason = os.strerror(error.errno) if error.errno else str(error).rstrip(".")
        raise CannotWrite(f"{os.fspath(path)} cannot be written: {reason}. {advice}") from error


def write_file(path: Path, content: bytes | str) -> None:
    """Write a file whole or not at all; text is encoded as UTF-8."""
    with writing(path), replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def make_folder(folder: Path) -> None:
    """Make a folder that can be written to, or raise an error that says why it cannot be."""
    check_folder(folder)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)


def check_folder(folder: Path) -> None:
    """Raise InvalidInput for a folder that cannot be written to, before the work for it takes its time."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(path))
    if not existing.is_dir():
        raise InvalidInput(f"--out names a folder; {existing if existing != folder.absolute() else folder} is a file.")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise InvalidInput(f"--out must name a folder that can be written to; {existing} cannot.")
