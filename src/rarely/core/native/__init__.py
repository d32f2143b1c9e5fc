"""The hot loops in C, where the package was built with GCC for x86-64: `passes.c` trains, `scores.c` decides.

Everything here has a NumPy form that gives the same but for rounding; it serves where the library is not
there or the processor has no AVX2, and is the tests' oracle. `RARELY_COMPILED=0` turns the library off.
"""

from __future__ import annotations

import ctypes
import os
import warnings
import zlib
from functools import cache
from pathlib import Path
from typing import Any

LIBRARY = Path(__file__).with_name("_native.so")
_SIZE, _REAL, _WIDE, _AT = ctypes.c_long, ctypes.c_double, ctypes.c_int, ctypes.c_void_p
_ARGUMENTS = {
    "descend": [*[_SIZE] * 4, *[_AT] * 5, _SIZE, *[_REAL] * 3, _SIZE, _REAL, _WIDE],
    "curve": [*[_SIZE] * 3, *[_AT] * 3, _REAL, _WIDE],
}


@cache
def library() -> Any:
    """The loaded library with its functions' types, or None."""
    if os.environ.get("RARELY_COMPILED") == "0" or not LIBRARY.exists():
        return None
    try:
        loaded = ctypes.CDLL(str(LIBRARY))
        fits = loaded.sources() & 0xFFFFFFFF == checksum()
    except (OSError, AttributeError):
        return None  # built for another system, or by another version
    if not fits:
        warnings.warn(
            "the compiled loops are not those of this version's sources, so NumPy takes their place; install the "
            "package again.",
            RuntimeWarning,
            stacklevel=2,
        )
    if not fits or not loaded.form():
        return None
    for name, arguments in _ARGUMENTS.items():
        for function in (getattr(loaded, f"{name}_f32"), getattr(loaded, f"{name}_f64")):
            function.argtypes, function.restype = arguments, _REAL
    loaded.cross.argtypes = [_WIDE, _SIZE, _SIZE, _SIZE, *[_AT] * 4, _WIDE]
    loaded.solve.argtypes = [_WIDE, _SIZE, _SIZE, _SIZE, *[_AT] * 3, _WIDE]
    loaded.factor.argtypes, loaded.invert.argtypes = [_SIZE, _AT], [_SIZE, _AT, _AT]
    loaded.cross.restype = loaded.solve.restype = loaded.factor.restype = _WIDE
    loaded.invert.restype = None
    return loaded


def checksum() -> int:
    """Of the sources, as the build took it."""
    return zlib.crc32(b"".join(path.read_bytes() for path in sorted(LIBRARY.parent.glob("*.[ch]"))))


def available() -> bool:
    """Whether the library is there."""
    return library() is not None


def threads() -> int:
    """As many as the environment allows BLAS, else as many as there are cores for this process."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        if (given := os.environ.get(name, "")).isdecimal() and int(given) > 0:
            return int(given)
    return _cores()


@cache
def _cores() -> int:
    """Cores by affinity and, in a container, by its quota: threads that spin would use that up for nothing."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(cores, int(quota) // int(period)))
    except (OSError, ValueError):
        return cores  # no such file, or no quota
