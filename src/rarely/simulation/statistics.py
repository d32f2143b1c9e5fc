"""Means over few runs, and how sure they are: Student's intervals, paired by run where two are compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

CONFIDENCE = 0.95


@dataclass(frozen=True)
class IntervalEstimate:
    """A figure with its 95 % interval; with one run the interval is everything."""

    value: float
    low: float
    high: float
    runs: int


def mean(values: Sequence[float]) -> IntervalEstimate:
    """The mean over runs.

    >>> mean([1.0, 2.0, 3.0])
    IntervalEstimate(value=2.0, low=-0.484..., high=4.484..., runs=3)
    """
    if not len(values):
        return IntervalEstimate(math.nan, -math.inf, math.inf, 0)
    centre = float(np.mean(values))
    if len(values) < 2:
        return IntervalEstimate(centre, -math.inf, math.inf, len(values))
    half = t_quantile(len(values) - 1) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return IntervalEstimate(centre, centre - half, centre + half, len(values))


def difference(a: Sequence[float], b: Sequence[float]) -> IntervalEstimate:
    """a − b, paired."""
    return mean([x - y for x, y in zip(a, b, strict=True)])


def ratio(a: Sequence[float], b: Sequence[float]) -> IntervalEstimate:
    """a/b, paired: the geometric mean of the runs' ratios, so that a/b and b/a tell the same.

    >>> ratio([2.0, 8.0], [1.0, 4.0])
    IntervalEstimate(value=2.0, low=2.0, high=2.0, runs=2)
    """
    if not all(x > 0 for x in (*a, *b)):
        return IntervalEstimate(math.nan, 0.0, math.inf, len(a))
    logs = mean([math.log(x / y) for x, y in zip(a, b, strict=True)])
    return IntervalEstimate(math.exp(logs.value), math.exp(logs.low), _exp(logs.high), logs.runs)


def ratio_of_means(a: Sequence[float], b: Sequence[float], confidence: float = CONFIDENCE) -> IntervalEstimate:
    """Σa/Σb of non-negative, paired runs, with Student's interval around its logarithm by the jackknife.

    Unlike a mean of ratios it lets a bad run count for what it cost, and one without any cost takes part. The
    jackknife leaves out each run in turn; percentiles of resampled runs would be far too narrow for so few. The
    interval is everything with fewer than three runs, and where one run alone has all the cost.

    >>> ratio_of_means([2.0, 3.0, 2.0, 4.0], [1.0, 2.0, 1.0, 2.0])
    IntervalEstimate(value=1.83..., low=1.38..., high=2.42..., runs=4)
    """
    runs, x, y = len(a), np.asarray(a, np.float64), np.asarray(b, np.float64)
    if not runs or not y.sum() > 0:
        return IntervalEstimate(math.nan, 0.0, math.inf, runs)
    value = float(x.sum() / y.sum())
    without = np.stack([x.sum() - x, y.sum() - y])
    if runs < 3 or not np.all(without > 1e-12 * without.max()):
        return IntervalEstimate(value, 0.0, math.inf, runs)
    logs = np.log(without[0] / without[1])
    error = math.sqrt((runs - 1) * float(np.var(logs)))
    factor = _exp(t_quantile(runs - 1, confidence) * error)
    return IntervalEstimate(value, value / factor, value * factor, runs)


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
