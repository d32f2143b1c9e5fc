"""What this machine can do: its matrix products and its reads of memory are the yardsticks of every figure.

A machine's speed changes from second to second, by as much as a half. So a yardstick takes turns with what it
measures, in the same process, and the best of either counts; in a run that happens once, each tenth is held to
the better of the rates right before and right after it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from rarely.core import native
from rarely.core.types import Floats
from rarely.simulation import provenance

COLUMNS = 1000
REST = 0.1
"""Seconds after which BLAS's threads no longer spin, and what is measured next has the cores."""


def describe() -> str:
    """Processor, cores, Python and NumPy."""
    facts = provenance.describe()
    return f"{facts['machine']}, Python {facts['python']}, NumPy {facts['numpy']}"


def facts() -> dict[str, str | int]:
    """Everything that a figure may depend on."""
    return {**provenance.describe(), "code": provenance.code_fingerprint(), "threads": native.threads()}


def seconds_of(work: Callable[[], object]) -> float:
    """The time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def best_of(repeats: int, work: Callable[[], object]) -> float:
    """The shortest of a few calls: what is slower is something else on the machine."""
    return min(seconds_of(work) for _ in range(repeats))


def in_turns(rate: Callable[[], float], *works: Callable[[], object], turns: int = 9) -> tuple[float, list[float]]:
    """The best rate, and the shortest time of each work, when all take turns; a turn is three calls, as a product's."""
    rates: list[float] = []
    seconds: list[list[float]] = [[] for _ in works]
    for _ in range(turns):
        rates.append(rate())
        for times, work in zip(seconds, works, strict=True):
            times.append(best_of(3, work))
    return max(rates), [min(times) for times in seconds]


def product_rate(dtype: type, size: int = 2000, repeats: int = 3) -> float:
    """Operations a second of a large square matrix product, the best of a few."""
    a: Floats = np.random.default_rng(0).random((size, size)).astype(dtype)
    a @ a
    best = best_of(repeats, lambda: a @ a)
    time.sleep(REST)
    return 2 * size**3 / best


def all_cores_read_rate(numbers: int, repeats: int = 9) -> float:
    """float64 numbers read in a second, of so many: by a matrix times a vector, or by a sum if that is faster."""
    rows = -(-numbers // COLUMNS)
    matrix, vector = np.ones((rows, COLUMNS)), np.ones(COLUMNS)
    best = min(best_of(repeats, lambda: matrix @ vector), best_of(repeats, matrix.sum))
    return rows * COLUMNS / best


def reader(numbers: int) -> Callable[[], object]:
    """One read of so many float64 numbers by one core: their sum."""
    return np.ones(numbers).sum
