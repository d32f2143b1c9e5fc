"""Means over few runs with Student's intervals, paired by run where two are compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

CONFIDENCE = 0.95
ROUNDING = 1e-12
"""Two numbers that differ by less, relative to their size, are equal."""


@dataclass(frozen=True)
class IntervalEstimate:
    """A figure with its interval, of 95 % unless said otherwise; with one run the interval is everything."""

    value: float
    low: float
    high: float
    runs: int


def mean(values: Sequence[float], confidence: float = CONFIDENCE) -> IntervalEstimate:
    """Return the mean over runs, with Student's interval.

    >>> mean([1.0, 2.0, 3.0])
    IntervalEstimate(value=2.0, low=-0.484..., high=4.484..., runs=3)
    """
    if not len(values):
        return IntervalEstimate(math.nan, -math.inf, math.inf, 0)
    centre = float(np.mean(values))
    if len(values) < 2:
        return IntervalEstimate(centre, -math.inf, math.inf, len(values))
    half = t_quantile(len(values) - 1, confidence) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return IntervalEstimate(centre, centre - half, centre + half, len(values))


def ratio_of_means(a: Sequence[float], b: Sequence[float], confidence: float = CONFIDENCE) -> IntervalEstimate:
    """Return Σa/Σb of non-negative, paired runs, with Student's interval around its logarithm by the jackknife.

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


@dataclass(frozen=True)
class Sample:
    """Paired runs, on a scale on which they are averaged: differences, or logarithms of ratios."""

    values: tuple[float, ...]
    """One for each run; NaN where a run has no such value."""
    unit: float | None = None
    """The ratio whose logarithm is 0; None for differences."""

    @property
    def runs(self) -> int:
        return len(self.values)

    def interval(self, confidence: float = CONFIDENCE) -> IntervalEstimate:
        """Return the mean with Student's interval, as a difference or as a ratio.

        >>> differences([3.0, 5.0], [1.0, 2.0]).interval()
        IntervalEstimate(value=2.5, low=-3.853..., high=8.853..., runs=2)
        """
        estimate = mean(self.values, confidence)
        if self.unit is None:
            return estimate
        if math.isnan(estimate.value):
            return IntervalEstimate(math.nan, 0.0, math.inf, self.runs)
        value, low, high = (self.unit * _exp(x) for x in (estimate.value, estimate.low, estimate.high))
        return IntervalEstimate(value, low, high, self.runs)

    def repeated(self, times: int) -> Sample:
        """Return a sample of `times` as many runs, with the same mean and the same standard deviation.

        >>> few = differences([3.0, 5.0, 4.0], [0.0, 0.0, 0.0])
        >>> bool(np.isclose(np.std(few.repeated(5).values, ddof=1), np.std(few.values, ddof=1)))
        True
        """
        centre, many = float(np.mean(self.values)), times * self.runs
        wider = math.sqrt((many - 1) / (times * (self.runs - 1))) if self.runs > 1 else 1.0
        return Sample(tuple(centre + wider * (value - centre) for value in self.values) * times, self.unit)

    def p_above(self, bound: float, *, or_equal: bool = False) -> float:
        """Return the p-value against "the mean is not above `bound`", one-sided.

        Runs that all have the same value leave no doubt: 0 or 1. `or_equal` says on which side a tie is then.

        >>> round(differences([3.0, 5.0, 4.0], [0.0, 0.0, 0.0]).p_above(0.0), 4)
        0.0101
        >>> ratios([2000] * 3, [250] * 3).p_above(8, or_equal=True)
        0.0
        """
        return self._p(bound, 1.0, or_equal)

    def p_below(self, bound: float, *, or_equal: bool = False) -> float:
        """Return the p-value against "the mean is not below `bound`", one-sided."""
        return self._p(bound, -1.0, or_equal)

    def _p(self, bound: float, sign: float, or_equal: bool) -> float:
        if self.runs < 2 or any(map(math.isnan, self.values)):
            return 1.0
        place = self._place(bound)
        if math.isinf(place):
            return 0.0 if sign * place < 0 else 1.0
        centre, error = float(np.mean(self.values)), float(np.std(self.values, ddof=1)) / math.sqrt(self.runs)
        size = max(1.0, abs(place))
        excess = sign * (centre - place)
        if abs(excess) <= ROUNDING * size:
            excess = 0.0
        if error <= ROUNDING * size:
            return 0.0 if excess > 0 or (or_equal and not excess) else 1.0
        inside = _within(abs(excess) / error, self.runs - 1)
        return (1 - inside) / 2 if excess > 0 else (1 + inside) / 2

    def _place(self, bound: float) -> float:
        """Return the bound on the scale of the values."""
        if self.unit is None or math.isinf(bound):
            return bound
        return math.log(bound / self.unit) if bound > 0 else -math.inf


def differences(a: Sequence[float], b: Sequence[float]) -> Sample:
    """Return a − b, run by run."""
    return Sample(tuple(x - y for x, y in zip(a, b, strict=True)))


def ratios(a: Sequence[float], b: Sequence[float]) -> Sample:
    """Return a/b, run by run; the mean of the logarithms makes a/b and b/a agree.

    Ratios that are all equal stay exactly what they are.

    >>> ratios([2.0, 8.0], [1.0, 4.0]).interval()
    IntervalEstimate(value=2.0, low=2.0, high=2.0, runs=2)
    """
    if not len(a):
        return Sample((), 1.0)
    if not all(x > 0 for x in (*a, *b)):
        return Sample((math.nan,) * len(a), 1.0)
    unit = a[0] / b[0]
    return Sample(tuple(math.log(x / y / unit) for x, y in zip(a, b, strict=True)), unit)


@cache
def t_quantile(freedom: int, confidence: float = CONFIDENCE) -> float:
    """Return how many standard errors a Student interval reaches to both sides.

    >>> round(t_quantile(9), 3)
    2.262
    """
    low, high = 0.0, 1e6
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < confidence else (low, middle)
    return high


def _within(t: float, freedom: int) -> float:
    """Return P(|T| < t) for whole degrees of freedom, a finite sum (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    term, total = (math.cos(angle), 0.0) if freedom % 2 else (1.0, 0.0)
    for k in range(freedom % 2, freedom - 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (k + 1) / (k + 2)
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if freedom % 2 else total


def _exp(x: float) -> float:
    return math.inf if x > 700 else math.exp(x)
