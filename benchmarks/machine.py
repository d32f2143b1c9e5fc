"""What machine this is, and its own matrix-product rate: the yardstick of every other figure."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

import numpy as np


def describe() -> str:
    """Processor, cores, Python and NumPy."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        cpu = next((line.split(":")[1].strip() for line in info.read_text().splitlines() if "model name" in line), cpu)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cpu}, {cores} cores, Python {platform.python_version()}, NumPy {np.__version__}"


def product_rate(dtype: type, size: int = 2000, repeats: int = 5) -> float:
    """Operations a second of a large square matrix product, the best of a few."""
    a = np.random.default_rng(0).random((size, size)).astype(dtype)
    a @ a
    best = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best
