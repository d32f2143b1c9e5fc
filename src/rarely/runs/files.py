"""Files and folders of results: JSON with a digest of its content, files replaced whole, one writer at a time.

A changed number does not pass for a measured one: the digest is SHA-256 over canonical JSON (sorted names, no spaces)
of everything but the digest itself. It shows damage and edits by hand. It is not a signature: a forger can compute it
too. Errors name the path.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import json
import math
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from rarely.extend.checks import InvalidInput, RarelyError
from rarely.extend.provisional import lock, replacing

DIGEST = "digest"
BUSY = "another run is writing to {}; wait for it, or use another --out."
LARGEST_FILE = 2**28  # bytes that a file may unpack to: about a thousand times those of a run of 2000 rounds
_DAMAGE = (OSError, EOFError, ValueError, RecursionError, zlib.error)  #: What damaged or missing files raise.
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


class Malformed(ValueError):
    """A file without the content that it should have; the message says what is wrong, and the caller names the file."""


def digest_of(content: dict[str, Any]) -> str:
    """Return the SHA-256 of the content, whatever the order of its names.

    >>> digest_of({"b": 1, "a": 2}) == digest_of({"a": 2, "b": 1, "digest": "anything"})
    True
    """
    return hashlib.sha256(_canonical(content).encode()).hexdigest()


def _canonical(content: dict[str, Any], *, finite: bool = False) -> str:
    rest = {name: value for name, value in content.items() if name != DIGEST}
    return json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=not finite)


def sealed_text(content: dict[str, Any]) -> str:
    """Return the content with its digest as JSON, written once.

    >>> check_digest(json.loads(sealed_text({"a": 1})))
    """
    text = _canonical(content, finite=True)
    return f'{text[:-1]}{"," if len(text) > 2 else ""}"{DIGEST}":"{hashlib.sha256(text.encode()).hexdigest()}"}}'


def plain_json(value: Any) -> Any:
    """Return a value as JSON, which knows no infinity, no NaN, and no settings that are objects: these become words."""
    if isinstance(value, dict) or hasattr(value, "_asdict"):
        named = value if isinstance(value, dict) else value._asdict()
        return {name: plain_json(inner) for name, inner in named.items()}
    if isinstance(value, list | tuple):
        return [plain_json(inner) for inner in value]
    if isinstance(value, Integral):
        return value if isinstance(value, bool) else int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else None
    return value if value is None else str(value)


def check_digest(content: dict[str, Any], text: str = "") -> None:
    """Raise Malformed if the content was changed after it was sealed; what `sealed_text` wrote is checked quickly."""
    if DIGEST not in content:
        raise Malformed("it has no digest, although its format has one")
    body = text.removesuffix(f',"{DIGEST}":"{content[DIGEST]}"}}') + "}"
    if content[DIGEST] != hashlib.sha256(body.encode()).hexdigest() and content[DIGEST] != digest_of(content):
        raise Malformed("its content differs from its digest: it was changed after it was written")


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, which is compressed if its name ends in .gz."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            text = file.read(LARGEST_FILE + 1)
        if len(text) > LARGEST_FILE:
            raise Malformed(f"it holds more than {LARGEST_FILE // 2**20} MiB")
        content = json.loads(text)
    except Malformed:
        raise
    except _DAMAGE as error:
        raise Malformed(f"it cannot be read ({reason_of(error)})") from error
    if not isinstance(content, dict):
        raise Malformed(f"it holds a {type(content).__name__} where a JSON object is expected")
    return content


def reason_of(error: BaseException) -> str:
    """Return why a file or a folder cannot be read, in a few words."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error).rstrip(".") or type(error).__name__


# --- writing


class CannotWrite(RarelyError):
    """A file or a folder of results cannot be written."""


class FolderBusy(RarelyError):
    """Another process is writing to the folder."""


@contextmanager
def lock_folder(folder: Path, name: str = ".lock", busy: str = BUSY) -> Iterator[None]:
    """Hold the folder's lock, or raise FolderBusy at once; the lock ends with this process however it ends.

    `name` is that of its file, and `busy` says of a folder, {}, that another has it. There is none on Windows, where
    two runs in one folder would repeat work, and spoil nothing.
    """
    with writing(folder / name):  # around the opening alone: an error of the block is not about this file
        file = open(folder / name, "wb")  # noqa: SIM115 — closed by the next statement
        free = lock(file.fileno())
    with file:
        if not free:
            raise FolderBusy(busy.format(folder))
        yield


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise CannotWrite with the path if the system refuses to write.

    >>> with writing("full/record.json"):
    ...     raise OSError(errno.ENOSPC, "No space left on device")
    Traceback (most recent call last):
    ...
    rarely.runs.files.CannotWrite: full/record.json cannot be written: No space left on device. Free some ...
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
