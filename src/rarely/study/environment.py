"""What a version was made on: bits are promised within one environment."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from rarely import core
from rarely.core.native.build_info import build_info

_DECISIVE = ("rarely", "code", "numpy", "machine", "loops", "blas")
"""What the last digits depend on; the versions of Python and of the system do not matter."""
_SOURCES = (".py", ".c", ".h")


def describe() -> dict[str, str]:
    """Versions, and the code that computed."""
    info = build_info()
    return {
        "rarely": info.rarely,
        "code": _code(),
        "python": info.python,
        "numpy": info.numpy,
        "platform": info.platform,
        "machine": info.machine,
        "loops": info.form,
        "blas": f"{info.blas.name} {info.blas.version} {info.blas.kernel}".strip(),
    }


@cache
def _code() -> str:
    """A hash of the files that decide and train."""
    folder = Path(core.__file__).parent
    whole = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.suffix in _SOURCES):
        whole.update(f"{file.relative_to(folder).as_posix()} {file.stat().st_size} ".encode())
        whole.update(file.read_bytes())
    return whole.hexdigest()[:16]


def same(one: dict[str, str], other: dict[str, str]) -> bool:
    """Whether both promise the same bits."""
    return all(one.get(name) == other.get(name) for name in _DECISIVE)
