"""What is fast, slow or broken about this installation, and what to do about it: `rarely doctor`.

ok        nothing to do
note      it works, and could be better
problem   something that was asked for does not work
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

from rarely.core.errors import RarelyError
from rarely.core.native.build_info import BuildInfo
from rarely.simulation.provenance import machine
from rarely.study.storage.sqlite_version import loses_writes
from rarely.worlds.datasets import DATASETS, Dataset, DataUnavailable, cache_folder, located

Status = Literal["ok", "note", "problem"]
EXTRAS = {
    "typer": "lab",
    "rich": "lab",
    "matplotlib": "lab",
    "loky": "lab",
    "ray": "ray",
    "pyarrow": "parquet",
    "torch": "torch",
    "scikit-learn": "",
}
"""Optional packages, and the extra that installs each; scikit-learn, for `sklearn:NAME`, has none."""
LITTLE_DISK = 2**30
"""Bytes free below which a long run may not fit: the paper's experiments in full write about a tenth of that."""
BUSY = 0.5
"""Load for each core, from which on other work is felt."""


@dataclass(frozen=True)
class Finding:
    """One line of the table."""

    topic: str
    status: Status
    says: str
    advice: str = ""
    """What to do, where there is something."""


def examine(info: BuildInfo, out: Path) -> Iterator[Finding]:
    """Everything worth knowing about this installation, one after another; `out` is where results would be written."""
    yield from _versions(info)
    yield _loops(info)
    yield from _threads(info)
    yield _load(info)
    yield from _data()
    yield _sqlite(_sqlite_version())
    yield from _extras()
    yield _disk(out)


def is_broken(findings: Iterable[Finding]) -> bool:
    """Whether there is a problem among them."""
    return any(finding.status == "problem" for finding in findings)


def as_json(findings: Sequence[Finding], info: BuildInfo) -> dict[str, Any]:
    """The same for programs, with what `rarely.build_info()` says."""
    return {"ok": not is_broken(findings), "findings": list(map(asdict, findings)), "build": info.describe()}


def _versions(info: BuildInfo) -> Iterator[Finding]:
    yield Finding("rarely", "ok", f"{info.rarely}, Python {info.python}, NumPy {info.numpy}")
    yield Finding("machine", "ok", f"{machine()}, {info.machine}, {platform.system()}")


def _loops(info: BuildInfo) -> Finding:
    """Which loops decide and train."""
    wish = info.variables.get("RARELY_COMPILED", "")
    if wish not in ("", "0", "1"):
        return Finding("loops", "problem", f"RARELY_COMPILED is {wish!r}", "Set it to 0 or 1, or unset it.")
    if info.form != "numpy":
        compiler = info.build["compiler"] or "a compiler that is not on record"
        says = f"compiled loops ({info.form}) decide and train; built by {compiler}"
        return Finding("loops", "note" if info.missing else "ok", says, info.missing)
    if wish == "1":
        return Finding(
            "loops", "problem", "RARELY_COMPILED=1 asks for compiled loops, and there are none", info.missing
        )
    return Finding("loops", "note", "NumPy decides and trains, several times slower than compiled loops", info.missing)


def _threads(info: BuildInfo) -> Iterator[Finding]:
    """BLAS and its threads, beside those of the loops."""
    blas = info.blas
    kernel = f", {blas.kernel} kernels" if blas.kernel else ""
    yield Finding("BLAS", "ok", f"{blas.name} {blas.version}{kernel}")
    given = ", ".join(f"{name}={value}" for name, value in info.variables.items() if name.endswith("THREADS"))
    threads = "an unknown number" if blas.threads is None else str(blas.threads)
    compiled = info.threads if info.form != "numpy" else 0
    loops = f", compiled loops {compiled}" if compiled else ""
    says = f"BLAS {threads}{loops}, cores {info.cores}" + (f" ({given})" if given else "")
    if max(compiled, blas.threads or 1) > info.cores:
        advice = f"Threads that wait for each other are slow: set OPENBLAS_NUM_THREADS={info.cores}, or 1."
        yield Finding("threads", "note", says, advice)
    else:
        yield Finding("threads", "ok", says)


def _load(info: BuildInfo) -> Finding:
    """Whether other work shares the cores."""
    if not hasattr(os, "getloadavg"):
        return Finding("load", "ok", f"{platform.system()} does not tell")
    load = os.getloadavg()[0]
    says = f"{load:.1f} on {info.cores} cores in the last minute"
    if load <= BUSY * info.cores:
        return Finding("load", "ok", says)
    if info.threads == 1 and info.blas.threads in (1, None):
        return Finding("load", "note", says, "Other work shares the cores, so everything takes longer than it could.")
    return Finding(
        "load", "note", says, "If that is other work, set OPENBLAS_NUM_THREADS=1: threads would wait for it."
    )


def _data() -> Iterator[Finding]:
    """The UCI files."""
    given = os.environ.get("RARELY_DATA")
    if given and not Path(given).exists():
        advice = "Set it to the folder that holds the files, or unset it."
        yield Finding("data", "problem", f"RARELY_DATA names {given}, which does not exist", advice)
    else:
        yield Finding(
            "data", "ok", f"looked for in {f'{given} (RARELY_DATA), then in ' if given else ''}{cache_folder()}"
        )
    yield from map(_dataset, DATASETS.values())


def _dataset(dataset: Dataset) -> Finding:
    try:
        place = located(dataset)
    except DataUnavailable as error:
        return Finding(dataset.name, "problem", f"{dataset.file} cannot be used", str(error))
    if place is None:
        advice = f"rarely data {dataset.name} --fetch downloads it, where an experiment needs it."
        return Finding(dataset.name, "note", f"{dataset.file} is not here", advice)
    return Finding(dataset.name, "ok", f"verified: {place}")


def _sqlite_version() -> tuple[int, ...] | None:
    try:
        import sqlite3
    except ImportError:
        return None
    return sqlite3.sqlite_version_info


def _sqlite(found: tuple[int, ...] | None) -> Finding:
    """Python's SQLite, in which studies are kept."""
    if found is None:
        return Finding("SQLite", "ok", "this Python was built without it")
    says = ".".join(map(str, found))
    if not loses_writes(found):
        return Finding("SQLite", "ok", says)
    advice = (
        "Two connections to one file in WAL mode may lose committed writes before 3.51.3 (but for 3.44.6 and 3.50.7). "
        "A study therefore locks its file for one process; if your program keeps decisions or rewards in SQLite, "
        "use a later version of it, or one connection."
    )
    return Finding("SQLite", "note", says, advice)


def _extras() -> Iterator[Finding]:
    """Optional packages: which version is here, or how to get it."""
    least = _least_versions()
    for name, extra in EXTRAS.items():
        install = f"pip install 'rarely[{extra}]'" if extra else f"pip install {name}"
        try:
            found = version(name)
        except PackageNotFoundError:
            yield Finding(name, "ok", f"not installed; {install} adds it")
            continue
        if _numbers(found) < _numbers(least.get(name, "0")):
            yield Finding(name, "note", f"{found}; rarely is tested with {least[name]} and later", install)
        else:
            yield Finding(name, "ok", found)


def _least_versions() -> dict[str, str]:
    """The version of each optional package that this one asks for."""
    try:
        asked = requires("rarely") or []
    except PackageNotFoundError:  # run from its sources
        return {}
    pairs = (re.match(r"([\w.-]+)\s*[>=]=\s*([\w.]+)", requirement) for requirement in asked)
    return {found[1]: found[2] for found in pairs if found}


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, to compare by.

    >>> _numbers("3.10.1rc1") > _numbers("3.9")
    True
    """
    leading = "".join(takewhile(lambda letter: letter in "0123456789.", version))
    return tuple(int(part) for part in leading.split(".") if part)


def _disk(out: Path) -> Finding:
    """Room for results, and leave to write them."""
    there = next(path for path in (out.absolute(), *out.absolute().parents) if path.exists())
    try:
        if not there.is_dir():
            raise RarelyError("it is a file")
        with tempfile.TemporaryFile(dir=there):
            free = shutil.disk_usage(there).free
    except (OSError, RarelyError) as error:
        reason = getattr(error, "strerror", None) or error
        return Finding(
            "disk", "problem", f"nothing can be written to {there}: {reason}", "Choose another folder, --out."
        )
    says = f"{free / 2**30:.1f} GiB free for {out}"
    if free < LITTLE_DISK:
        return Finding("disk", "note", says, "A long run may not fit: make room, or choose another folder, --out.")
    return Finding("disk", "ok", says)
