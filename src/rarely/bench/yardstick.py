"""What this machine can do: its matrix products and its reads of memory are the yardsticks of every figure.

A machine's speed changes from minute to minute. So a product is taken right before and right after what it
measures, in the same process, and the better of the two counts: against us, never for us. A read is taken in
turns with what it measures.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from rarely.core import native
from rarely.core.types import Floats
from rarely.lab import environment

Result = TypeVar("Result")
COLUMNS = 1000
REST = 0.1
"""Seconds after which BLAS's threads no longer spin, and what is measured next has the cores."""


def describe() -> str:
    """Processor, cores, Python and NumPy."""
    facts = environment.describe()
    return f"{facts['machine']}, Python {facts['python']}, NumPy {facts['numpy']}"


def facts() -> dict[str, str | int]:
    """Everything that a figure may depend on."""
    return {**environment.describe(), "code": environment.code_fingerprint(), "threads": native.threads()}


def seconds_of(work: Callable[[], object]) -> float:
    """The time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def best_of(repeats: int, work: Callable[[], object]) -> float:
    """The shortest of a few calls: what is slower is something else on the machine."""
    return min(seconds_of(work) for _ in range(repeats))


def around(rate: Callable[[], float], work: Callable[[], Result]) -> tuple[float, Result]:
    """What the work gives, and the better of the rates right before and right after it."""
    before = rate()
    result = work()
    return max(before, rate()), result


def product_rate(dtype: type, size: int = 2000, repeats: int = 5) -> float:
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
