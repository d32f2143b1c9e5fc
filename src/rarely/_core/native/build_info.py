"""What the package runs on: versions, the compiled form in use and why not a faster one, BLAS, threads."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rarely._core import native
from rarely._core.types import Described
from rarely._core.version import __version__

VARIABLES = (
    *("RARELY_COMPILED", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"),
    "OPENBLAS_CORETYPE",
)
"""Environment variables that change how fast it runs, or its last digits."""
_PREFIXES, _SUFFIXES = ("scipy_openblas_", "openblas_"), ("64_", "")
"""OpenBLAS has other names for its functions in each of its builds."""
_OLD_PROCESSOR = (
    "This processor, or the virtual machine, does not offer AVX2, with which the loops would be faster. In a virtual "
    "machine, let it pass the host's processor through."
)


@dataclass(frozen=True, slots=True)
class Blas:
    """The library of matrix products that NumPy calls."""

    name: str  # as NumPy was built: "scipy-openblas", "mkl", "accelerate"; or "unknown"
    version: str
    kernel: str  # the processor whose code OpenBLAS runs, such as "SkylakeX"; "" if unknown
    threads: int | None  # how many threads it uses; None if unknown


@dataclass(frozen=True, slots=True)
class BuildInfo(Described):
    """The result of `build_info`.

    Examples
    --------
    >>> from rarely import build_info
    >>> info = build_info()
    >>> info.form in ("avx512", "avx2", "sse2", "neon", "numpy"), info.cores >= 1
    (True, True)
    """

    rarely: str
    """Versions of this package, of Python and of NumPy."""
    python: str
    numpy: str
    platform: str
    """The system with its version."""
    machine: str
    """The kind of processor, such as "x86_64" or "arm64"."""
    form: str
    """The loops that decide and train: "avx512", "avx2", "sse2" or "neon" if compiled, else "numpy"."""
    missing: str
    """Why no faster form is in use, and what to do; "" if nothing can be done."""
    threads: int
    """Threads that the compiled loops may use, which are as many as the environment allows BLAS."""
    cores: int
    """Cores that this process may use."""
    blas: Blas
    build: dict[str, Any]
    """What the compiled loops were built by and from, as `rarely._core.native.build()` has it."""
    variables: dict[str, str]
    """Those of `VARIABLES` that are set."""

    def __str__(self) -> str:
        return "\n".join(f"{name}: {value}" for name, value in self.describe().items())


def build_info() -> BuildInfo:
    """Return which loops decide and train here, why not faster ones and what to do, versions, BLAS and threads.

    Examples
    --------
    >>> info = build_info()
    >>> info.form in ("avx512", "avx2", "sse2", "neon", "numpy"), info.cores >= 1
    (True, True)
    """
    form = native.form()
    return BuildInfo(
        rarely=__version__,
        python=platform.python_version(),
        numpy=np.__version__,
        platform=platform.platform(),
        machine=platform.machine(),
        form=form,
        missing=_OLD_PROCESSOR if form == "sse2" else native.missing(),
        threads=native.threads(),
        cores=native._cores(),
        blas=blas(),
        build=native.build(),
        variables={name: os.environ[name] for name in VARIABLES if name in os.environ},
    )


def blas() -> Blas:
    """Return NumPy's BLAS, as far as NumPy and the library itself report it."""
    config: Any = np.show_config(mode="dicts")
    dependency = config.get("Build Dependencies", {}).get("blas", {})
    kernel, threads = _asked("get_corename", ctypes.c_char_p), _asked("get_num_threads", ctypes.c_int)
    return Blas(
        name=str(dependency.get("name", "unknown")),
        version=str(dependency.get("version", "unknown")),
        kernel=kernel.decode(errors="replace") if isinstance(kernel, bytes) else "",
        threads=threads if isinstance(threads, int) else None,
    )


def _asked(function: str, result: Any) -> Any:
    """Return what OpenBLAS answers; None if NumPy has another BLAS, or the system hides its functions."""
    names = [f"{prefix}{function}{suffix}" for prefix in _PREFIXES for suffix in _SUFFIXES]
    for library in _libraries():
        for name in names:
            if asked := getattr(library, name, None):
                asked.argtypes, asked.restype = [], result
                return asked()
    return None


def _libraries() -> Iterator[ctypes.CDLL]:
    """Yield NumPy's own module, which gives most systems access to its linked libraries, and these themselves.

    All of them are loaded already.
    """
    core = sys.modules.get("numpy._core._multiarray_umath") or sys.modules.get("numpy.core._multiarray_umath")
    beside = Path(np.__file__).parents[1] / "numpy.libs"  # where a wheel has them on Linux and Windows
    paths = [core.__file__] if core is not None and core.__file__ else []
    for path in (*paths, *map(str, beside.glob("*openblas*"))):
        with suppress(OSError):
            yield ctypes.CDLL(path)
