"""What a result was made on, and by which code."""

from __future__ import annotations

import platform
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np

from rarely.extend import __version__
from rarely.extend.provisional import native


def source() -> str:
    """Return a hash of the source files of rarely, and of rarely-lab where it is in use: what made a result."""
    from rarely.golden.family import source_digest  # which imports every policy

    return source_digest(*(name for name in ("rarely", "rarely_lab") if name in sys.modules))


@cache
def machine() -> str:
    """Return the processor, and how many of its cores can be used."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text(encoding="utf-8").splitlines()
        cpu = next((line.split(":")[1].strip() for line in lines if "model name" in line), cpu)
    return f"{cpu}, {cores()} cores"


def cores() -> int:
    """Return the number of cores that this process may use; in a container at most its quota."""
    return native._cores()


def describe() -> dict[str, str]:
    """Return the machine and the versions that matter."""
    return {
        "machine": machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "rarely": __version__,
        "source": source(),
        "passes": "compiled" if native.available() else "numpy",
        "form": native.form(),
        "engine": "cpu",
    }


def reset_peak_memory() -> None:
    """Start a new peak where the system allows it, on Linux."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_memory() -> int:
    """Return the most bytes that this process held since the reset, or else its start; 0 on Windows."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    if sys.platform == "win32":
        return 0
    import resource  # not there on Windows

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
