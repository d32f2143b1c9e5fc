"""What is fast, slow or broken about this installation, and what to do about it: `rarely doctor`.

ok        nothing to do
note      it works, and could be better
problem   something that was asked for does not work

The facts come from `rarely.build_info()`; this module judges them, together with the machine's load, the UCI files,
SQLite, the optional packages and the disk.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Literal, NamedTuple

from rarely._core.errors import RarelyError
from rarely._core.native.build_info import BuildInfo
from rarely._runs.provenance import machine
from rarely.study.storage import loses_writes
from rarely.worlds.datasets import DATASETS, Dataset, DataUnavailable, cache_folder, located

FOR_DEVELOPERS = ("dev", "docs")
"""Extras whose packages a user does not need."""
LITTLE_DISK = 2**30
"""Free bytes below which a long run may not fit; the paper's experiments in full write about a tenth of that."""
BUSY = 0.5
"""Load per core above which other work slows this process down."""


class Finding(NamedTuple):
    """What an examination found about a topic; `advice` says what to do, where something can be done."""

    topic: str
    status: Literal["ok", "note", "problem"]
    says: str
    advice: str = ""


def examine(info: BuildInfo, out: Path) -> Iterator[Finding]:
    """Examine this installation, topic by topic; `out` is the folder that results would be written to."""
    yield Finding("rarely", "ok", f"{info.rarely}, Python {info.python}, NumPy {info.numpy}")
    yield Finding("machine", "ok", f"{machine()}, {info.machine}, {platform.system()}")
    yield _loops(info)
    yield from _threads(info)
    yield _load(info)
    yield from _data()
    yield _sqlite(sqlite3.sqlite_version_info)
    yield from _extras()
    yield _disk(out)


def _loops(info: BuildInfo) -> Finding:
    """Judge the loops that decide and train by what RARELY_COMPILED asks for."""
    wish = info.variables.get("RARELY_COMPILED", "")
    if wish not in ("", "0", "1"):
        return Finding("loops", "problem", f"RARELY_COMPILED is {wish!r}", "Set it to 0 or 1, or unset it.")
    if info.form != "numpy":
        compiler = info.build["compiler"] or "an unknown compiler"
        says = f"compiled loops ({info.form}), built by {compiler}"
        return Finding("loops", "note" if info.missing else "ok", says, info.missing)
    if wish == "1":
        return Finding("loops", "problem", "RARELY_COMPILED=1, but there are no compiled loops", info.missing)
    return Finding("loops", "note", "NumPy, several times slower than compiled loops", info.missing)


def _threads(info: BuildInfo) -> Iterator[Finding]:
    """Compare the threads of BLAS and of the compiled loops with the number of cores."""
    blas = info.blas
    kernel = f", {blas.kernel} kernels" if blas.kernel else ""
    yield Finding("BLAS", "ok", f"{blas.name} {blas.version}{kernel}")
    given = ", ".join(f"{name}={value}" for name, value in info.variables.items() if name.endswith("THREADS"))
    threads = "unknown" if blas.threads is None else str(blas.threads)
    compiled = info.threads if info.form != "numpy" else 0
    loops = f", compiled loops {compiled}" if compiled else ""
    says = f"BLAS {threads}{loops}, cores {info.cores}" + (f" ({given})" if given else "")
    if max(compiled, blas.threads or 1) > info.cores:
        advice = f"Threads that wait for each other are slow: set OPENBLAS_NUM_THREADS={info.cores}, or 1."
        yield Finding("threads", "note", says, advice)
    else:
        yield Finding("threads", "ok", says)


def _load(info: BuildInfo) -> Finding:
    """Find out whether other work shares the cores."""
    if not hasattr(os, "getloadavg"):
        return Finding("load", "ok", f"unknown on {platform.system()}")
    load = os.getloadavg()[0]
    says = f"{load:.1f} on {info.cores} cores in the last minute"
    if load <= BUSY * info.cores:
        return Finding("load", "ok", says)
    if info.threads == 1 and info.blas.threads in (1, None):
        return Finding("load", "note", says, "Other work shares the cores, so everything takes longer than it could.")
    advice = "If that is other work, set OPENBLAS_NUM_THREADS=1: threads would wait for it."
    return Finding("load", "note", says, advice)


def _data() -> Iterator[Finding]:
    """Look for the UCI files."""
    given = os.environ.get("RARELY_DATA")
    if given and not Path(given).exists():
        advice = "Set it to the folder that holds the files, or unset it."
        yield Finding("data", "problem", f"RARELY_DATA names {given}, which does not exist", advice)
    else:
        first = f"{given} (RARELY_DATA), then " if given else ""
        yield Finding("data", "ok", f"searched in {first}{cache_folder()}")
    yield from map(_dataset, DATASETS.values())


def _dataset(dataset: Dataset) -> Finding:
    try:
        place = located(dataset)
    except DataUnavailable as error:
        return Finding(dataset.name, "problem", f"{dataset.file} cannot be used", str(error))
    if place is None:
        advice = f"rarely data {dataset.name} --fetch downloads it, if an experiment needs it."
        return Finding(dataset.name, "note", f"{dataset.file} not found", advice)
    return Finding(dataset.name, "ok", f"verified: {place}")


def _sqlite(found: tuple[int, ...]) -> Finding:
    """Judge Python's SQLite, in which studies are kept."""
    says = ".".join(map(str, found))
    if not loses_writes(found):
        return Finding("SQLite", "ok", says)
    advice = (
        "Two connections to one file in WAL mode may lose committed writes before 3.51.3 (except 3.44.6, 3.50.7), so "
        "a study locks its file for one process. For a database of your own use a later SQLite, or one connection."
    )
    return Finding("SQLite", "note", says, advice)


def _extras() -> Iterator[Finding]:
    """List the optional packages: the version that is installed, or how to install one."""
    for name, (extra, least) in _optional_packages().items():
        install = f"pip install 'rarely[{extra}]'"
        try:
            found = version(name)
        except PackageNotFoundError:
            yield Finding(name, "ok", f"not installed; {install} adds it")
            continue
        if _numbers(found) < _numbers(least):
            yield Finding(name, "note", f"{found}; rarely is tested with {least} and later", install)
        else:
            yield Finding(name, "ok", found)


def _optional_packages() -> dict[str, tuple[str, str]]:
    """Return the first extra that installs each optional package, and the lowest version that it asks for."""
    try:
        asked = requires("rarely") or []
    except PackageNotFoundError:  # run from its sources
        return {}
    packages: dict[str, tuple[str, str]] = {}
    for requirement in asked:
        found = re.match(r"([\w.-]+)(?:\[\w+\])?\s*[>=]=\s*([\w.]+).*extra == ['\"](\w+)['\"]", requirement)
        if found and found[3] not in FOR_DEVELOPERS:
            packages.setdefault(found[1], (found[3], found[2]))
    return packages


def _numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version, to compare by.

    >>> _numbers("3.10.1rc1") > _numbers("3.9")
    True
    """
    leading = re.match(r"[\d.]*", version)
    return tuple(int(part) for part in (leading[0] if leading else "").split(".") if part)


def _disk(out: Path) -> Finding:
    """Check that results can be written, and that there is room for them."""
    nearest = next(path for path in (out.absolute(), *out.absolute().parents) if path.exists())
    try:
        if not nearest.is_dir():
            raise RarelyError("it is a file")
        with tempfile.TemporaryFile(dir=nearest):
            free = shutil.disk_usage(nearest).free
    except (OSError, RarelyError) as error:
        reason = getattr(error, "strerror", None) or error
        return Finding("disk", "problem", f"cannot write to {nearest}: {reason}", "Choose another folder with --out.")
    says = f"{free / 2**30:.1f} GiB free for {out}"
    if free < LITTLE_DISK:
        return Finding("disk", "note", says, "A long run may not fit: make room, or choose another folder with --out.")
    return Finding("disk", "ok", says)
