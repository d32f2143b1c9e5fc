"""Files that are replaced in one step: a reader finds the old file or the new one, never half of one."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

if sys.platform == "win32":
    fcntl = None
else:
    import fcntl

PREFIX, SUFFIX = ".rarely-", ".part"
"""What a file is called while it is written: `.rarely-` and 16 digits and `.part`."""
_UNSUPPORTED = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)
"""What file systems answer that cannot sync a folder, or whose folder may be written to and not read."""


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A binary file to write, which takes the place of `path` when the block ends.

    A symbolic link stays, and the file that it leads to is replaced. A file that exists keeps its mode; a new one gets
    0666 less the umask. Its owner is the user of this process. File and folder are synced to the disk.

    If the block, the disk or the folder fails, the old file is untouched and nothing is left behind. A process that
    is killed leaves its temporary file, and the next call for that folder removes it (not on Windows): a file under
    way is locked, so one that can be locked belongs to nobody.
    """
    target, mode = _target(path)
    folder = os.path.dirname(target)
    temporary = os.path.join(folder, f"{PREFIX}{os.urandom(8).hex()}{SUFFIX}")
    try:
        _remove_abandoned(folder)
        try:
            with _created(temporary, private=mode is not None) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
                if mode is not None:
                    os.chmod(temporary, mode)
                if fcntl is None:
                    file.close()  # Windows renames no open file
                os.replace(temporary, target)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
    except OSError as error:
        raise _told(error, "the file was not written, and the old one is untouched", path) from error
    _sync(folder, path)


def _target(path: str | os.PathLike[str]) -> tuple[str, int | None]:
    """The file to be replaced, links followed, and its mode if it exists."""
    target = os.path.realpath(path)
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        if not os.path.isdir(os.path.dirname(target)):
            raise FileNotFoundError(
                errno.ENOENT, "a file must be written into a folder that exists", os.fspath(path)
            ) from None
        return target, None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "a file must be given to write to, not a folder", os.fspath(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "only a regular file can be replaced, not a device or a pipe", os.fspath(path))
    return target, stat.S_IMODE(mode)


def _created(name: str, *, private: bool) -> BinaryIO:
    """A new file, locked; its mode is 0666 less the umask, or for its owner alone until it is known."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    while True:
        file = os.fdopen(os.open(name, flags, 0o600 if private else 0o666), "wb")
        if _claimed(file, name):
            return file
        file.close()


def _claimed(file: BinaryIO, name: str) -> bool:
    """Lock a new file; False if another process held it for abandoned before it was locked, and removed it."""
    if fcntl is None:
        return True
    with suppress(OSError):  # a file system without locks, on which nobody else can lock it either
        fcntl.flock(file, fcntl.LOCK_EX)
    return _is_at(file.fileno(), name)


def _remove_abandoned(folder: str) -> None:
    """Remove the temporary files of processes that were killed."""
    if fcntl is None:
        return
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and entry.name.endswith(SUFFIX):
                _remove_if_abandoned(entry.path)


def _remove_if_abandoned(name: str) -> None:
    with suppress(OSError):  # locked, gone by now, or another user's
        handle = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(handle, name):
                os.unlink(name)
        finally:
            os.close(handle)


def _is_at(handle: int, name: str) -> bool:
    """Whether the open file is the one of that name."""
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(name))
    except FileNotFoundError:
        return False


def _sync(folder: str, path: str | os.PathLike[str]) -> None:
    """Make the new name durable."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise _told(error, "the file was replaced, but may not be on the disk", path) from error


def _told(error: OSError, sentence: str, path: str | os.PathLike[str]) -> OSError:
    """What the system says, with what became of the file and its path."""
    return OSError(error.errno, f"{sentence} ({error.strerror or error})", os.fspath(path))
