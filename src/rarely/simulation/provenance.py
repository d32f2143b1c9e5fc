"""What a result was made on, and by which code."""

from __future__ import annotations

import ast
import ctypes
import hashlib
import io
import itertools
import platform
import re
import sys
import tokenize
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

import rarely
from rarely.core import native

PACKAGE = Path(rarely.__file__).parent
OWN = "rarely"
DECISIVE = (
    *("core", "worlds/protocol.py", "worlds/synthetic.py", "worlds/table.py"),
    *("experiments/config.py", "experiments/catalogue.py", "simulation/play.py"),
)
"""What a record's numbers depend on; a change of a plot, a page or a comment spoils no record."""


@cache
def machine() -> str:
    """The processor, and how many of its cores there are to use."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text(encoding="utf-8").splitlines()
        cpu = next((line.split(":")[1].strip() for line in lines if "model name" in line), cpu)
    return f"{cpu}, {cores()} cores"


def cores() -> int:
    """Cores that this process may use; in a container no more than its quota."""
    return native._cores()


def describe() -> dict[str, str]:
    """The machine and the versions that matter."""
    return {
        "machine": machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "rarely": rarely.__version__,
        "passes": "compiled" if native.available() else "numpy",
        "form": native.form(),
    }


@cache
def code_fingerprint() -> str:
    """A hash of the source that decides a record's numbers, wherever its files lie.

    Comments and docstrings do not count, nor do the folders of files and of what they import: sources are hashed in
    the order of their own text. A file that is moved, and imported from its new place, leaves the fingerprint as it
    was; one that is renamed, or edited, does not.
    """
    return fingerprint_of(DECISIVE)


@cache
def fingerprint_of(parts: tuple[str, ...]) -> str:
    """The same hash of other files and folders of the package."""
    files = [file for part in parts for file in _files(PACKAGE / part) if file.suffix in SOURCES]
    sources = sorted(SOURCES[file.suffix](file.read_bytes()) for file in files)
    return hashlib.sha256("\0".join(source for source in sources if source).encode()).hexdigest()[:16]


def _files(path: Path) -> list[Path]:
    return list(path.rglob("*.*")) if path.is_dir() else [path]


@cache
def bare(source: bytes) -> str:
    """Source without comments, docstrings and empty lines; the same for every version of Python.

    What it imports from the package stands first, without the folders that it is in.

    >>> bare(b"'What it is.'\\nfrom rarely.core.types import Array\\nx = 1  # a number\\n")
    'types.Array\\nx = 1'
    """
    lines = source.decode().splitlines()
    fresh, importing, start = True, False, (1, 0)
    tokens = list(tokenize.tokenize(io.BytesIO(source).readline))
    # From the end, so that places found earlier stay where they are.
    spans = []
    for token, following in itertools.pairwise(tokens):
        ends = (tokenize.NEWLINE, tokenize.ENDMARKER, tokenize.COMMENT)
        documents = token.type == tokenize.STRING and fresh and following.type in ends
        if fresh and token.string in ("from", "import") and following.string == OWN:
            importing, start = True, token.start
        elif importing and token.type == tokenize.NEWLINE:
            importing = False
            spans.append((start, token.start))
        elif documents or (token.type == tokenize.COMMENT and not importing):
            spans.append((token.start, token.end))
        if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.ENCODING) and not documents:
            fresh = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    for (row, column), (last_row, last_column) in reversed(spans):
        kept = lines[row - 1][:column] + lines[last_row - 1][last_column:]
        lines[row - 1 : last_row] = [kept]
    return "\n".join([*_imported(source), *(line.rstrip() for line in lines if line.strip())])


def _imported(source: bytes) -> list[str]:
    """What a module imports from the package: names, under those of the modules that have them."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == OWN:
            module = (node.module or "").rpartition(".")[2]
            found |= {f"{module}.{name.name}" + (f" as {name.asname}" if name.asname else "") for name in node.names}
        elif isinstance(node, ast.Import):
            own = [name for name in node.names if name.name.partition(".")[0] == OWN]
            found |= {f"{name.name.rpartition('.')[2]} as {name.asname}" for name in own}
    return sorted(found)


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
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return


def peak_memory() -> int:
    """Bytes that this process held at most since the reset, or since its start where there is none."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    if sys.platform == "win32":
        return _windows_peak_memory()
    import resource  # not there on Windows

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


class _MemoryCounters(ctypes.Structure):
    """PROCESS_MEMORY_COUNTERS of the Windows API, up to the field that is read."""

    _fields_ = (
        *(("size", ctypes.c_uint32), ("page_faults", ctypes.c_uint32), ("peak_working_set", ctypes.c_size_t)),
        ("others", ctypes.c_size_t * 7),
    )


def _windows_peak_memory() -> int:
    kernel = ctypes.CDLL("kernel32")
    kernel.GetCurrentProcess.restype = ctypes.c_void_p
    kernel.K32GetProcessMemoryInfo.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32]
    counters = _MemoryCounters(size=ctypes.sizeof(_MemoryCounters))
    if not kernel.K32GetProcessMemoryInfo(kernel.GetCurrentProcess(), ctypes.byref(counters), counters.size):
        raise OSError("Windows did not tell how much memory this process uses")
    return int(counters.peak_working_set)
