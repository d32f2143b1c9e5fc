"""Means over few runs with their intervals and tests, paired by run where two are compared.

    t    (x̄ − μ)/(s/√n), Student's statistic
    γ    skewness of the runs, whose standard error is about √(6/n)
    a    γ/(3√n); h(t) = t + at² + a²t³/3 + a/2 is Hall's (1992) statistic, from which the skewness is removed

Student's test alone errs where runs are skewed or mostly tied, and few runs hardly show that they are. So t and h(t)
are both asked, h with the least favourable γ within `SKEWNESS_ERRORS` standard errors, and a mean is above a bound only
if all say so. The interval is what these tests do not exclude. Runs without any spread decide nothing: that ten of them
are equal does not mean that the eleventh is. `python benchmarks/judge.py --tests` measures how often the tests err.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from statistics import NormalDist

import numpy as np

from rarely.extend import Array

CONFIDENCE = 0.95
SKEWNESS_ERRORS = 1.75
ROUNDING = 1e-12  # two numbers that differ by less, relative to their size, are equal


@dataclass(frozen=True)
class IntervalEstimate:
    """A figure with its interval, of 95 % unless said otherwise; with one run the interval is everything."""

    value: float
    low: float
    high: float
    runs: int

    @classmethod
    def around(cls, value: float, values: Sequence[float] | Array, confidence: float) -> IntervalEstimate:
        """Return a value with the interval of the mean of `values`, moved there."""
        below, above = _reaches(values, confidence)
        return cls(value, value - below, value + above, len(values))


def mean(values: Sequence[float], confidence: float = CONFIDENCE) -> IntervalEstimate:
    """Return the mean over runs; its interval is everything with fewer than three runs, or without spread.

    >>> mean([1.0, 2.0, 3.0])
    IntervalEstimate(value=2.0, low=-8.03..., high=12.03..., runs=3)
    """
    return IntervalEstimate.around(float(np.mean(values)) if len(values) else math.nan, values, confidence)


def share_of_sums(a: Sequence[float], b: Sequence[float], confidence: float = CONFIDENCE) -> IntervalEstimate:
    """Return Σa/Σb of paired runs, in which a may have either sign, with an interval by the jackknife.

    The interval is everything with fewer than three runs, and where Σb is not positive without one of them.

    >>> share_of_sums([1.0, 2.0, 1.0, 3.0], [10.0, 21.0, 11.0, 31.0])
    IntervalEstimate(value=0.095..., low=0.081..., high=0.110..., runs=4)
    """
    runs, x, y = len(a), np.asarray(a, np.float64), np.asarray(b, np.float64)
    value, without = float(x.sum() / y.sum()) if y.sum() > 0 else math.nan, y.sum() - y
    if runs < 3 or math.isnan(value) or not np.all(without > 1e-12 * without.max()):
        return IntervalEstimate(value, -math.inf, math.inf, runs)
    return IntervalEstimate.around(value, runs * value - (runs - 1) * (x.sum() - x) / without, confidence)


@dataclass(frozen=True)
class Sample:
    """Runs, on a scale on which they are averaged: numbers as they are, or logarithms of ratios of paired runs."""

    values: tuple[float, ...]  # one for each run; NaN where a run has no such value
    unit: float | None = None  # the ratio whose logarithm is 0; None for numbers as they are
    exact: bool = False
    """Whether equal runs are equal by construction: counts that a schedule fixes. Then they leave no doubt."""

    @property
    def runs(self) -> int:
        return len(self.values)

    def interval(self, confidence: float = CONFIDENCE) -> IntervalEstimate:
        """Return the mean with its interval, as a number or as a ratio.

        >>> Sample((3.0, 5.0, 4.0)).interval()
        IntervalEstimate(value=4.0, low=-6.03..., high=14.03..., runs=3)
        """
        estimate = mean(self.values, confidence)
        if self.exact and len({*self.values}) == 1:
            estimate = IntervalEstimate(*(self.values[0],) * 3, self.runs)
        if self.unit is None:
            return estimate
        if math.isnan(estimate.value) or not self.unit:
            return IntervalEstimate(math.nan if self.unit else 0.0, 0.0, math.inf, self.runs)
        with np.errstate(over="ignore"):
            value, low, high = self.unit * np.exp([estimate.value, estimate.low, estimate.high])
        return IntervalEstimate(float(value), float(low), float(high), self.runs)

    def repeated(self, times: int) -> Sample:
        """Return a sample of `times` as many runs, with the same mean and the same standard deviation.

        >>> few = Sample((3.0, 5.0, 4.0))
        >>> bool(np.isclose(np.std(few.repeated(5).values, ddof=1), np.std(few.values, ddof=1)))
        True
        """
        centre, many = float(np.mean(self.values)), times * self.runs
        wider = math.sqrt((many - 1) / (times * (self.runs - 1))) if self.runs > 1 else 1.0
        return Sample(tuple(centre + wider * (value - centre) for value in self.values) * times, self.unit, self.exact)

    def p_above(self, bound: float, *, or_equal: bool = False) -> float:
        """Return the p-value against "the mean is not above `bound`", one-sided: the largest of the tests.

        `or_equal` says on which side a tie is that is exact.

        >>> round(Sample((3.0, 5.0, 4.0)).p_above(0.0), 3)
        0.123
        >>> ratios([2000] * 3, [250] * 3).p_above(7)
        1.0
        """
        return self._p(bound, 1.0, or_equal)

    def p_below(self, bound: float, *, or_equal: bool = False) -> float:
        """Return the p-value against "the mean is not below `bound`", one-sided."""
        return self._p(bound, -1.0, or_equal)

    def _p(self, bound: float, sign: float, or_equal: bool) -> float:
        if not self.values or any(map(math.isnan, self.values)):
            return 1.0
        place = self._place(bound)
        if math.isinf(place):
            return 0.0 if sign * place < 0 else 1.0
        if self.exact and len({*self.values}) == 1:
            excess = sign * (self.values[0] - place)
            tie = abs(excess) <= ROUNDING * max(1.0, abs(place))  # 2000 versions are 8 times 250, their logarithms not
            return 0.0 if (or_equal if tie else excess > 0) else 1.0
        error, bends = self._spread
        if not error:
            return 1.0
        t = sign * (float(np.mean(self.values)) - place) / error
        least = _least(t, sign, bends)
        inside = _within(abs(least), self.runs - 1)
        return (1 - inside) / 2 if least > 0 else (1 + inside) / 2

    @cached_property
    def _spread(self) -> tuple[float, tuple[float, float]]:
        return _spread(self.values)

    def _place(self, bound: float) -> float:
        """Return the bound on the scale of the values."""
        if self.unit is None or math.isinf(bound):
            return bound
        return math.log(bound / self.unit) if bound > 0 < self.unit else -math.inf


def ratios(a: Sequence[float], b: Sequence[float]) -> Sample:
    """Return a/b, run by run; the mean of the logarithms makes a/b and b/a agree.

    >>> ratios([2.0, 8.0, 4.0], [1.0, 4.0, 2.0]).interval()
    IntervalEstimate(value=2.0, low=0.0, high=inf, runs=3)
    """
    if not len(a) or not all(0 < x < math.inf for x in (*a, *b)):
        return Sample((math.nan,) * len(a), 1.0)
    unit = a[0] / b[0]
    return Sample(tuple(math.log(x / y / unit) for x, y in zip(a, b, strict=True)), unit)


def ratios_of_means(a: Sequence[float], b: Sequence[float]) -> Sample:
    """Return Σa/Σb of non-negative, paired runs, as the pseudo-values of the jackknife of its logarithm.

    Unlike a mean of ratios it lets a bad run count for what it cost, and one without any cost takes part. The jackknife
    leaves out each run in turn. It decides nothing with fewer than three runs, or where one run alone has all the cost.

    >>> ratios_of_means([2.0, 3.0, 2.0, 4.0], [1.0, 2.0, 1.0, 2.0]).interval()
    IntervalEstimate(value=1.83..., low=0.58..., high=2.46..., runs=4)
    """
    runs, x, y = len(a), np.asarray(a, np.float64), np.asarray(b, np.float64)
    if not runs or not y.sum() > 0:
        return Sample((math.nan,) * runs, 1.0)
    value, without = float(x.sum() / y.sum()), np.stack([x.sum() - x, y.sum() - y])
    if runs < 3 or not np.ptp(np.stack([x, y]), axis=1).any() or not np.all(without > 1e-12 * without.max()):
        return Sample((0.0,) * runs, value)
    each = (1 - runs) * np.log(without[0] / without[1])
    return Sample(tuple((each - each.mean()).tolist()), value)


def share(count: int, runs: int) -> IntervalEstimate:
    """Return the share of runs that something happened in, with Wilson's interval of 95 %.

    >>> share(0, 100)
    IntervalEstimate(value=0.0, low=0.0, high=0.036..., runs=100)
    """
    if not runs:
        return IntervalEstimate(math.nan, 0.0, 1.0, 0)
    z, rate = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2), count / runs
    middle, reach = rate + z**2 / (2 * runs), z * math.sqrt(rate * (1 - rate) / runs + (z / (2 * runs)) ** 2)
    low, high = ((middle + sign * reach) / (1 + z**2 / runs) for sign in (-1, 1))
    return IntervalEstimate(rate, max(0.0, low) if count else 0.0, min(1.0, high), runs)


def _spread(values: Sequence[float] | Array) -> tuple[float, tuple[float, float]]:
    """Return the standard error of the mean, and the least and the largest a; an error of 0 if runs cannot show it."""
    runs, x = len(values), np.asarray(values, np.float64)
    least, most = (float(x.min()), float(x.max())) if runs > 2 else (0.0, 0.0)
    if not most - least > ROUNDING * max(1.0, -least, most):
        return 0.0, (0.0, 0.0)
    # Sums by hand: a judge asks for ten thousands of these, and mean() and std() take five times as long.
    centred = x - np.add.reduce(x) / runs
    squares, cubes = float(np.add.reduce(centred * centred)), float(np.add.reduce(centred**3))
    skewness = cubes / runs / (squares / runs) ** 1.5 * math.sqrt(runs * (runs - 1)) / (runs - 2)
    error = math.sqrt(6 * runs * (runs - 1) / ((runs - 2) * (runs + 1) * (runs + 3)))
    low, high = ((skewness + end * SKEWNESS_ERRORS * error) / (3 * math.sqrt(runs)) for end in (-1, 1))
    return math.sqrt(squares / (runs - 1)) / math.sqrt(runs), (low, high)


def _vertex(t: float) -> float:
    """Return the a with the smallest h(t), a parabola in a, for t > 0."""
    return -(1.5 / t + 0.75 / (t * t * t))


def _least(t: float, sign: float, bends: tuple[float, float]) -> float:
    """Return the smallest of t and h(t) with any a between `bends`, whose signs are those of the side that is asked."""
    low, high = sorted(sign * bend for bend in bends)
    vertex = min(max(_vertex(t), low), high) if t > 0 else low
    return min(t + a * t**2 + a * a * t**3 / 3 + a / 2 for a in (0.0, low, high, vertex))


def _reaches(values: Sequence[float] | Array, confidence: float) -> tuple[float, float]:
    """Return how far the interval of the mean reaches below it and above it: where `_least` is Student's quantile."""
    error, bends = _spread(values)
    if not error:
        return math.inf, math.inf
    h = t_quantile(len(values) - 1, confidence)
    at_vertex = h
    for _ in range(20):  # h(t) at its vertex is t/4 − 3/(4t) − 3/(16t³)
        at_vertex = 4 * h + 3 / at_vertex + 0.75 / at_vertex**3

    def reach(low: float, high: float) -> float:
        """Return the largest t with this h(t), for any a between these."""
        reaches = [h if abs(a) < 1e-9 else (float(np.cbrt(1 + 3 * a * (h - a / 2))) - 1) / a for a in (0.0, low, high)]
        return error * max(reaches + [at_vertex] * (low < _vertex(at_vertex) < high))

    return reach(*bends), reach(-bends[1], -bends[0])


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
