"""The compiled library: its file, its functions, and the reason where it cannot be used."""

from __future__ import annotations

import ctypes
import json
import re
import sys
import zlib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

LIBRARY = Path(__file__).with_name({"win32": "_native.dll", "darwin": "_native.dylib"}.get(sys.platform, "_native.so"))
RECORD = Path(__file__).with_name("_native_build.json")  # what the build recorded about itself, also if it failed
SOURCE_TREE = RECORD.parents[4]  # of an editable install; else a folder without `hatch_build.py`
_HEADER = Path(__file__).with_name("rarely_native.h")
_KINDS = {"ptrdiff_t": ctypes.c_ssize_t, "double": ctypes.c_double, "int": ctypes.c_int, "unsigned": ctypes.c_uint}


@cache
def struct(name: str) -> Any:
    """Return a struct of the header as a class; what a struct inside it has are its own fields, with a prefix."""
    body, fields = _header().partition(f"struct rarely_{name} {{")[2].partition("\n}")[0], list[tuple[str, Any]]()
    for statement in body.split(";")[:-1]:
        inner = re.match(r"\s*struct rarely_(\w+) \w", statement)
        for declared in statement.split(","):
            field = declared.split()[-1].strip("*")
            kind: Any = ctypes.c_void_p if "*" in declared else _KINDS.get(statement.split()[0])
            parts = struct(inner[1])._fields_ if inner else ()
            fields += [(f"{field}_{part}", of) for part, of in parts] or [(field, kind)]
    return type(name, (ctypes.Structure,), {"_fields_": fields})


@cache
def _header() -> str:
    """Return the header without comments."""
    return re.sub(r"/\*.*?\*/", "", _HEADER.read_text(encoding="utf-8"), flags=re.DOTALL)


class State(NamedTuple):
    """The library, or the reason why it cannot be used."""

    library: Any  # with the types of its functions; None if it cannot be used
    reason: str  # why it cannot be used, and what to do; "" if it can
    stale: bool = False  # whether it was built from other sources than those of this version


@cache
def load() -> State:
    """Load the library, once in a process."""
    if not LIBRARY.exists():
        return State(None, _why_not_built())
    try:
        loaded = ctypes.CDLL(str(LIBRARY))
    except OSError as error:
        return State(None, f"{LIBRARY.name} cannot be loaded: {error}. {_advice()}")
    try:
        _declare(loaded)
        stale = loaded.rarely_sources() != checksum()
    except AttributeError:
        stale = True  # built before these functions existed
    if stale:
        return State(None, f"{LIBRARY.name} was built from other sources than this version's. {_advice()}", stale=True)
    return State(loaded, "")


def _declare(loaded: Any) -> None:
    for returned, name, taken in re.findall(r"\nRARELY_EXPORT (.+?)(rarely_\w+)\(([^)]*)\);", _header()):
        function = getattr(loaded, name)
        function.restype = _taken(returned)
        function.argtypes = [_taken(each) for each in taken.split(",") if each != "void"]


def _taken(declared: str) -> Any:
    """Return the type of what a function of the header takes or returns."""
    if "*" not in declared:
        return _KINDS.get(declared.split()[0])
    if named := re.search(r"struct rarely_(\w+)", declared):
        return ctypes.POINTER(struct(named[1]))
    return ctypes.c_char_p if "char" in declared else ctypes.c_void_p


def record() -> dict[str, Any]:
    """Return what the build recorded about itself; empty without a readable record."""
    try:
        recorded = json.loads(RECORD.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return recorded if isinstance(recorded, dict) else {}


def checksum() -> int:
    """Return the checksum of the sources, as the build computes it."""
    sources = sorted(RECORD.parent.glob("*.[ch]"), key=lambda path: path.name)
    # A checkout may have other line ends on Windows.
    return zlib.crc32(b"".join(path.read_bytes().replace(b"\r\n", b"\n") for path in sources))


def _why_not_built() -> str:
    if failure := record().get("failure"):
        return f"The package was built without compiled loops: {failure}. {_advice()}"
    return f"The compiled loops were not built: {LIBRARY.name} is missing. {_advice()}"


def _advice() -> str:
    # pip keeps a wheel that it once built without a compiler.
    command = "pip install --force-reinstall --no-cache-dir --no-deps rarely"
    if (SOURCE_TREE / "hatch_build.py").exists():
        command = f"pip install -e . in {SOURCE_TREE}"
    return f"Install the package again ({command}), with GCC or Clang on the PATH."
