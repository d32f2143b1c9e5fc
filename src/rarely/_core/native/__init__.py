"""The hot loops in C, where the package was built with GCC or Clang: `passes.c` trains, `scores.c` decides.

Everything here has a NumPy form with the same results up to rounding; it does the work if the library is missing, and
is the tests' oracle. The environment variable RARELY_COMPILED decides between them:

    unset   the compiled form if available
    0       NumPy
    1       the compiled form; if it is missing, its first use raises `NotCompiled`
"""

from __future__ import annotations

import os
import warnings
from functools import cache
from pathlib import Path
from typing import Any

from rarely._core.errors import InvalidInput, NotCompiled
from rarely._core.native import loader

_OFF = "RARELY_COMPILED=0 turns the compiled loops off; unset it to use them."


def available() -> bool:
    """Return whether the compiled form is in use."""
    return library() is not None


def missing() -> str:
    """Return why the compiled form is not in use, and what to do; "" if it is."""
    return _OFF if _wish() == "0" else loader.load().reason


@cache
def form() -> str:
    """Return the instruction set of the form in use: "avx512", "avx2", "sse2", "neon", or "numpy"."""
    loaded = library()
    return "numpy" if loaded is None else loaded.rarely_form().decode()


def build() -> dict[str, Any]:
    """Return what the library was built by and from.

    Keys: compiler, flags, platform (the wheel's), sources (a checksum of those it was built from), failure (why it was
    not built, or ""), library (its file, or "") and stale (whether it was built from other sources than these).
    """
    record = {name: loader.record().get(name, "") for name in ("compiler", "flags", "platform", "sources", "failure")}
    there = loader.LIBRARY.exists()
    return {**record, "library": str(loader.LIBRARY) if there else "", "stale": loader.load().stale}


def library() -> Any:
    """Return the loaded library, or None if it is not in use."""
    return None if _wish() == "0" else loader.load().library


@cache
def in_use() -> bool:
    """Return whether the compiled form does the work, for code that has two forms.

    Raises `NotCompiled` if RARELY_COMPILED=1 and the library is missing, and warns if it cannot be used.
    """
    if _wish() not in ("", "0", "1"):
        raise InvalidInput(f"RARELY_COMPILED must be 0, 1 or unset; got {_wish()!r}.")
    if _wish() == "1" and not available():
        raise NotCompiled(f"RARELY_COMPILED=1 asks for the compiled loops, and they are missing. {missing()}")
    if _wish() != "0" and not available() and loader.LIBRARY.exists():
        warnings.warn(f"NumPy takes the place of the compiled loops. {missing()}", RuntimeWarning, stacklevel=3)
    return available()


@cache
def threads() -> int:
    """Return as many as the environment allowed BLAS when first asked, else one for each core of this process."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        if (count := os.environ.get(name, "")).isdecimal() and int(count) > 0:
            return int(count)
    return _cores()


@cache
def _wish() -> str:
    """Return RARELY_COMPILED as it was when first asked."""
    return os.environ.get("RARELY_COMPILED", "")


@cache
def _cores() -> int:
    """Return the cores by affinity and, in a container, by its quota, which spinning threads would use up."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(cores, int(quota) // int(period)))
    except (OSError, ValueError):
        return cores  # no such file, or no quota
