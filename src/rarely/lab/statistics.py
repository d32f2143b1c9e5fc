"""Means over few runs, and how sure they are: Student's intervals, paired by run where two are compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95 % interval; with one run the interval is everything."""

    value: float
    low: float
    high: float
    runs: int


def mean(values: Sequence[float]) -> Estimate:
    """The mean over runs.

    >>> mean([1.0, 2.0, 3.0])
    Estimate(value=2.0, low=-0.484..., high=4.484..., runs=3)
    """
    if not len(values):
        return Estimate(math.nan, -math.inf, math.inf, 0)
    centre = float(np.mean(values))
    if len(values) < 2:
        return Estimate(centre, -math.inf, math.inf, len(values))
    half = t_quantile(len(values) - 1) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return Estimate(centre, centre - half, centre + half, len(values))


def difference(a: Sequence[float], b: Sequence[float]) -> Estimate:
    """a − b, paired."""
    return mean([x - y for x, y in zip(a, b, strict=True)])


def ratio(a: Sequence[float], b: Sequence[float]) -> Estimate:
    """a/b, paired: the geometric mean of the runs' ratios, so that a/b and b/a tell the same.

    >>> ratio([2.0, 8.0], [1.0, 4.0])
    Estimate(value=2.0, low=2.0, high=2.0, runs=2)
    """
    if not all(x > 0 for x in (*a, *b)):
        return Estimate(math.nan, 0.0, math.inf, len(a))
    logs = mean([math.log(x / y) for x, y in zip(a, b, strict=True)])
    return Estimate(math.exp(logs.value), math.exp(logs.low), _exp(logs.high), logs.runs)


def falling(values: Sequence[float]) -> list[float]:
    """The nearest values, by squares, that do not rise: neighbours that do are replaced by their mean.

    >>> falling([4.0, 1.0, 3.0, 0.5])
    [4.0, 2.0, 2.0, 0.5]
    """
    pools: list[tuple[float, int]] = []
    for value in values:
        pools.append((value, 1))
        while len(pools) > 1 and pools[-2][0] < pools[-1][0]:
            (a, m), (b, n) = pools[-2:]
            pools[-2:] = [((m * a + n * b) / (m + n), m + n)]
    return [value for value, count in pools for _ in range(count)]


@cache
def t_quantile(freedom: int, confidence: float = CONFIDENCE) -> float:
    """How many standard errors a Student interval reaches to both sides.

    >>> round(t_quantile(9), 3)
    2.262
    """
    low, high = 0.0, 1e6
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < confidence else (low, middle)
    return high


def _within(t: float, freedom: int) -> float:
    """P(|T| < t) for whole degrees of freedom, a finite sum (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    term, total = (math.cos(angle), 0.0) if freedom % 2 else (1.0, 0.0)
    for k in range(freedom % 2, freedom - 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (k + 1) / (k + 2)
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if freedom % 2 else total


def _exp(x: float) -> float:
    return math.inf if x > 700 else math.exp(x)
