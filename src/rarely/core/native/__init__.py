"""The hot loops in C, where the package was built with GCC or Clang: `passes.c` trains, `scores.c` decides.

Everything here has a NumPy form that gives the same but for rounding; it does the work where the library is not
there, and is the tests' oracle. The environment variable RARELY_COMPILED decides between them:

    unset   the compiled form where it is there
    0       NumPy
    1       the compiled form; where it is missing, its first use raises `NotCompiled`
"""

from __future__ import annotations

import os
import warnings
from functools import cache
from pathlib import Path
from typing import Any

from rarely.core.errors import InvalidInput, NotCompiled
from rarely.core.native import loader

_OFF = "RARELY_COMPILED=0 turns the compiled loops off; unset it to use them."


def available() -> bool:
    """Whether the compiled form is in use."""
    return library() is not None


def missing() -> str:
    """Why the compiled form is not in use, and what to do; "" where it is."""
    return _OFF if _wish() == "0" else loader.load().reason


@cache
def form() -> str:
    """The instruction set of the form in use: "avx512", "avx2", "sse2", "neon", or "numpy"."""
    loaded = library()
    return "numpy" if loaded is None else loaded.rarely_form().decode()


def build() -> dict[str, Any]:
    """What the library was built by and from.

    Keys: compiler, flags, platform (the wheel's), sources (a checksum of those it was built from), failure (why it was
    not built, or ""), library (its file, or "") and stale (whether it was built from other sources than these).
    """
    record = {name: loader.record().get(name, "") for name in ("compiler", "flags", "platform", "sources", "failure")}
    there = loader.LIBRARY.exists()
    return {**record, "library": str(loader.LIBRARY) if there else "", "stale": loader.load().stale}


def library() -> Any:
    """The loaded library, or None where it is not in use."""
    return None if _wish() == "0" else loader.load().library


@cache
def in_use() -> bool:
    """Whether the compiled form is to do the work at hand: what every place asks that has two forms.

    Raises `NotCompiled` where RARELY_COMPILED=1 and there is none, and warns where there is one that cannot be used.
    """
    if _wish() not in ("", "0", "1"):
        raise InvalidInput(f"RARELY_COMPILED must be 0, 1 or unset; got {_wish()!r}.")
    if _wish() == "1" and not available():
        raise NotCompiled(f"RARELY_COMPILED=1 asks for the compiled loops, and they are missing. {missing()}")
    if _wish() != "0" and not available() and loader.LIBRARY.exists():
        warnings.warn(f"NumPy takes the place of the compiled loops. {missing()}", RuntimeWarning, stacklevel=3)
    return available()


def threads() -> int:
    """As many as the environment allows BLAS, else as many as there are cores for this process."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        if (given := os.environ.get(name, "")).isdecimal() and int(given) > 0:
            return int(given)
    return _cores()


@cache
def _wish() -> str:
    """RARELY_COMPILED as it was when it was first asked for."""
    return os.environ.get("RARELY_COMPILED", "")


@cache
def _cores() -> int:
    """Cores by affinity and, in a container, by its quota: threads that spin would use that up for nothing."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(cores, int(quota) // int(period)))
    except (OSError, ValueError):
        return cores  # no such file, or no quota
