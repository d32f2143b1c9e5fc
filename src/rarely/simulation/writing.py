"""Files and folders of results: an error is a sentence that names the path and says what to do."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rarely.core.errors import InvalidInput, RarelyError

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


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Say which path it was if the system refuses to write.

    >>> with writing("full/record.json"):
    ...     raise OSError(errno.ENOSPC, "No space left on device")
    Traceback (most recent call last):
    ...
    rarely.simulation.writing.CannotWrite: full/record.json cannot be written: No space left on device. Free some ...
    """
    try:
        yield
    except OSError as error:
        advice = ADVICE.get(error.errno or 0, "Choose another place.")
        raise CannotWrite(
            f"{os.fspath(path)} cannot be written: {(error.strerror or str(error)).rstrip('.')}. {advice}"
        ) from error


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    with writing(path):
        try:
            part.write_text(text, encoding="utf-8")
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Make a folder that can be written to, or say why it cannot be."""
    check_folder(folder)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)


def check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be written to, before what is to be written there takes its time."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(path))
    if not there.is_dir():
        raise InvalidInput(f"--out names a folder; {there if there != folder.absolute() else folder} is a file.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise InvalidInput(f"--out must name a folder that can be written to; {there} cannot.")
