"""One hash of "the code": the sources of this package that a result depends on."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
SOURCES = (".py", ".c", ".cu", ".h", ".toml")


@cache
def code_digest(*parts: str) -> str:
    """Return 16 hex digits of a hash of the source files in some files and folders of the package.

    >>> code_digest("_core") == code_digest("_core"), code_digest("_core") == code_digest("_core/errors.py")
    (True, False)
    """
    every = {file for part in parts for file in (PACKAGE / part, *(PACKAGE / part).rglob("*"))}
    whole = hashlib.sha256()
    for file in sorted(file for file in every if file.suffix in SOURCES):
        data = file.read_bytes()
        whole.update(f"{file.relative_to(PACKAGE).as_posix()} {len(data)} ".encode() + data)
    return whole.hexdigest()[:16]
