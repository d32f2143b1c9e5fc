"""Files that are replaced atomically: a reader finds the old file or the new one, never half of one."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from rarely._core.errors import InvalidInput, shown

if sys.platform == "win32":
    fcntl = None
else:
    import fcntl

PREFIX, SUFFIX = ".rarely-", ".part"  # the name of a file while it is written: `.rarely-`, 16 digits and `.part`
_UNSUPPORTED = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)
"""Errors of file systems that cannot sync a folder, and of folders that may be written to and not read."""


@contextmanager
def replacing(path: str | os.PathLike[str], mode: int | None = None) -> Iterator[BinaryIO]:
    """Yield a binary file to write to, which replaces `path` when the block ends.

    A symbolic link stays, and the file that it leads to is replaced. An existing file keeps its mode, and its
    owner where this process may give files away, as root may; a new one gets `mode`, or 0666 minus the umask. File and
    folder are synced to the disk.

    If the block, the disk or the folder fails, the old file is untouched and nothing is left behind. A process that
    is killed leaves its temporary file, which the next call for that folder removes (not on Windows): a file that is
    being written is locked, so one that can be locked is abandoned.
    """
    target, old = _target(path)
    mode = mode if old is None else stat.S_IMODE(old.st_mode)
    folder = os.path.dirname(target)
    temporary = os.path.join(folder, f"{PREFIX}{os.urandom(8).hex()}{SUFFIX}")
    try:
        _remove_abandoned(folder)
        try:
            with _created(temporary, private=mode is not None) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
                if old is not None and sys.platform != "win32":
                    with suppress(OSError):
                        os.chown(temporary, old.st_uid, old.st_gid)
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
        raise _explained(error, "the file was not written, and the old one is untouched", path) from error
    _sync(folder, path)


def lock(handle: int) -> bool:
    """Lock an open file until it is closed or the process ends; return False where another has it (not on Windows)."""
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def write(path: str | os.PathLike[str], content: bytes | str, mode: int | None = None) -> None:
    """Write a file atomically, as `replacing` does; text is encoded as UTF-8, with line ends as they are."""
    with replacing(path, mode) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def path_of(path: Any) -> Any:
    """Return a path as text or bytes; raise InvalidInput for what is not one."""
    try:
        name = os.fspath(path)
    except TypeError:
        raise InvalidInput(f"a file must be given by its path, text or a Path; got {shown(path)}.") from None
    if ("\0" if isinstance(name, str) else b"\0") in name:
        raise InvalidInput(f"a path must not contain the character 0; got {shown(path)}.")
    try:
        os.fsencode(name)
    except UnicodeEncodeError as error:
        raise InvalidInput(f"a path must be text that a file can be called; got {shown(path)}: {error}.") from None
    return name


def _target(path: str | os.PathLike[str]) -> tuple[str, os.stat_result | None]:
    """Return the file to be replaced, links followed, and what is known of it if it exists."""
    target = os.path.realpath(path_of(path))
    try:
        old = os.stat(target)
    except FileNotFoundError:
        if not os.path.isdir(os.path.dirname(target)):
            raise FileNotFoundError(errno.ENOENT, "a file needs a folder that exists", os.fspath(path)) from None
        return target, None
    if stat.S_ISDIR(old.st_mode):
        raise IsADirectoryError(errno.EISDIR, "a file must be given to write to, not a folder", os.fspath(path))
    if not stat.S_ISREG(old.st_mode):
        raise OSError(errno.EINVAL, "only a regular file can be replaced, not a device or a pipe", os.fspath(path))
    return target, old


def _created(name: str, *, private: bool) -> BinaryIO:
    """Return a new file, locked; its mode is 0666 minus the umask, or private until its mode is set."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    while True:
        file = os.fdopen(os.open(name, flags, 0o600 if private else 0o666), "wb")
        if _claimed(file, name):
            return file
        file.close()


def _claimed(file: BinaryIO, name: str) -> bool:
    """Lock a new file; return False if another process took it for abandoned before that, and removed it."""
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
    """Return whether the open file is the one of that name."""
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
            raise _explained(error, "the file was replaced, but may not be on the disk", path) from error


def _explained(error: OSError, sentence: str, path: str | os.PathLike[str]) -> OSError:
    """Return the system's error with what became of the file, and its path."""
    return OSError(error.errno, f"{sentence} ({error.strerror or error})", os.fspath(path))


def cache_folder() -> Path:
    """Return where is kept what can be had again, such as downloads: RARELY_CACHE, or the user's cache."""
    if own := os.environ.get("RARELY_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "rarely"
