"""Files of JSON with a digest of their own content, so that a changed number does not pass for a measured one.

The digest is SHA-256 over canonical JSON (sorted names, no spaces) of everything but the digest itself. It shows
damage and edits by hand. It is not a signature: a forger can compute it too.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import zlib
from numbers import Integral, Real
from pathlib import Path
from typing import Any

DIGEST = "digest"
LARGEST_FILE = 2**28
"""Bytes that a file may unpack to: about a thousand times those of a run of 2000 rounds."""
_DAMAGE = (OSError, EOFError, ValueError, RecursionError, zlib.error)
"""Errors of the readers for a damaged or missing file."""


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
