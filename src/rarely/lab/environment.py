"""What a result was made on, and by which code."""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import platform
import re
import tokenize
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

import rarely
from rarely.core import native

PACKAGE = Path(rarely.__file__).parent
DECISIVE = (
    *("core", "worlds/protocol.py", "worlds/synthetic.py", "worlds/table.py"),
    *("lab/config.py", "lab/catalogue.py", "lab/play.py"),
)
"""What a record's numbers depend on; a change of a plot, a page or a comment spoils no record."""


@cache
def machine() -> str:
    """The processor, and how many of its cores there are to use."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        cpu = next((line.split(":")[1].strip() for line in info.read_text().splitlines() if "model name" in line), cpu)
    return f"{cpu}, {cores()} cores"


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe() -> dict[str, str]:
    """The machine and the versions that matter."""
    return {
        "machine": machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "rarely": rarely.__version__,
        "passes": "compiled" if native.available() else "numpy",
    }


@cache
def code_fingerprint() -> str:
    """A hash of the source that decides a record's numbers, without its comments and docstrings."""
    digest = hashlib.sha256()
    for part in DECISIVE:
        path = PACKAGE / part
        for file in sorted(path.rglob("*.*")) if path.is_dir() else [path]:
            if file.suffix in SOURCES:
                digest.update(file.relative_to(PACKAGE).as_posix().encode())
                digest.update(SOURCES[file.suffix](file.read_bytes()).encode())
    return digest.hexdigest()[:16]


def bare(source: bytes) -> str:
    """Source without comments, docstrings and empty lines; the same for every version of Python.

    >>> bare(b"'What it is.'\\nx = 1  # a number\\n")
    'x = 1'
    """
    lines = source.decode().splitlines()
    fresh = True
    tokens = list(tokenize.tokenize(io.BytesIO(source).readline))
    # From the end, so that places found earlier stay where they are.
    spans = []
    for token, following in itertools.pairwise(tokens):
        ends = (tokenize.NEWLINE, tokenize.ENDMARKER, tokenize.COMMENT)
        documents = token.type == tokenize.STRING and fresh and following.type in ends
        if documents or token.type == tokenize.COMMENT:
            spans.append((token.start, token.end))
        if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.ENCODING) and not documents:
            fresh = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    for (row, column), (last_row, last_column) in reversed(spans):
        kept = lines[row - 1][:column] + lines[last_row - 1][last_column:]
        lines[row - 1 : last_row] = [kept]
    return "\n".join(line.rstrip() for line in lines if line.strip())


def bare_c(source: bytes) -> str:
    """The same of C: it has comments alone.

    >>> bare_c(b"/* What it is. */\\nint x; /* a number */\\n")
    'int x;'
    """
    text = re.sub(r"/\*.*?\*/", "", source.decode(), flags=re.DOTALL)
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())


SOURCES: dict[str, Callable[[bytes], str]] = {".py": bare, ".c": bare_c, ".h": bare_c}


def reset_peak_memory() -> None:
    """Start a new peak, where the system allows it (Linux)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def peak_memory() -> int:
    """Bytes that this process held at most since the reset, or since its start where there is none."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource  # not there on Windows, which has no /proc either

    unit = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
