"""What machine this is, and its own matrix-product rate: the yardstick of every other figure."""

from __future__ import annotations

import time

import numpy as np

from rarely.lab import environment


def describe() -> str:
    """Processor, cores, Python and NumPy."""
    facts = environment.describe()
    return f"{facts['machine']}, Python {facts['python']}, NumPy {facts['numpy']}"


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
