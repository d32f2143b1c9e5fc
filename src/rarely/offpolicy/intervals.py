"""Intervals for a mean reward: the normal one, and one for rewards in a known range.

    V      (unknown)     ()      mean reward of a target in a round
    V̂, s   value, error  ()      its estimate and the standard error of that
    z      z             ()      standard deviations of the level, 1.96 for 95 %
    w      weights       (n,)    how much each round counts
    r − q  residuals     (n,)    rewards less what is expected of them
    a, b   span          ()      values of V at which all variance would vanish

The normal interval V̂ ± z·s is too short when few rewards differ from the others: at 1 % clicks the variance is
estimated from the same handful of clicks as the value, and without a click it is 0. Rewards in a known range
[low, high] have a variance of at most (V − low)(high − V), which is known for every V that might be true. So, as in
Wilson's interval for a proportion, every V is kept whose own standard error reaches V̂:

    (V̂ − V)² ≤ z²·s²(V),     s²(V) = rest + share·(V − a)(b − V)/m

    m       (Σw)²/Σw², the effective rounds
    share   how much of the largest variance the residuals have: Σw(r − q)² out of Σw·(r̄ − low)(high − r̄), each with
            one reward more at full distance, and at most 1; a good model has a small share
    rest    what s² has beyond the second term at V̂, such as the spread of the weights

With equal weights and 0/1 rewards it is Wilson's interval. Coverage is measured by `benchmarks/offpolicy_notes.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from rarely.extend import Array
from rarely.extend.checks import InvalidInput, as_number, read_real, shown

Range = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Span:
    """(V − low)(high − V)/rounds is the largest variance that an estimate of V can have."""

    low: float
    high: float
    rounds: float


def read_range(reward_range: Any, rewards: Array) -> Range | None:
    """Return the range given, or [0, 1] if all rewards are 0 or 1, or None.

    >>> read_range(None, np.array([0.0, 1.0, 0.0])), read_range(None, np.array([0.0, 2.0]))
    ((0.0, 1.0), None)
    """
    if reward_range is None:
        return (0.0, 1.0) if np.isin(rewards, (0.0, 1.0)).all() else None
    ends = read_real(reward_range, "reward_range", InvalidInput)
    low, high = map(float, ends) if ends.shape == (2,) else (math.nan, math.nan)
    if not (low < high and math.isfinite(high - low)):
        raise InvalidInput(f"reward_range must be two finite numbers, low < high; got {reward_range!r}.")
    outside = rewards[(rewards < low) | (rewards > high)]
    if len(outside):
        raise InvalidInput(f"rewards must lie in reward_range, [{low:g}, {high:g}]; the log has {outside[0]}.")
    return low, high


def check_level(level: Any) -> None:
    """Refuse a level that is not between 0 and 1."""
    if not 0 < as_number(level) < 1:
        raise InvalidInput(f"level must be a number between 0 and 1, such as 0.95; got {shown(level)}.")


def deviations(level: float) -> float:
    """Return z, the standard deviations of a level."""
    check_level(level)
    return NormalDist().inv_cdf((1 + level) / 2)


def normal(value: float, error: float, z: float) -> Range:
    """Return V̂ ± z·s."""
    return value - z * error, value + z * error


def effective(weights: Array) -> float:
    """Return (Σw)²/Σw², or 0 if all weights are 0."""
    squares = float(np.square(weights).sum())
    return float(weights.sum()) ** 2 / squares if squares else 0.0


def variance_share(weights: Array, rewards: Array, residuals: Array, within: Range) -> float:
    """Return how much of the largest variance that rewards in a range can have the residuals show, at most 1.

    One reward at full distance is added, so that a few residuals near 0 do not pass for no variance at all.
    """
    low, width = within[0], within[1] - within[0]
    total = float(weights.sum())
    mean = float(weights @ ((rewards - low) / width)) / total
    shown = float(weights @ np.square(residuals / width)) + 1
    return min(1.0, shown / (total * max(0.0, mean * (1 - mean)) + 1))


def score(value: float, error: float, z: float, span: Span, share: float, within: Range) -> Range:
    """Return the score interval of this module, cut to the range of the rewards.

    >>> low, high = score(0.1, 0.03, 1.959964, Span(0.0, 1.0, 100.0), 1.0, (0.0, 1.0))  # 10 of 100
    >>> round(low, 4), round(high, 4)
    (0.0552, 0.1744)
    """
    # The truth lies in the range, so the nearest point of the range is a better guess than a value beyond it.
    nearest = min(max(value, within[0]), within[1])
    width = span.high - span.low
    x, part = (nearest - span.low) / width, share / span.rounds
    rest = max(0.0, (error / width) ** 2 - part * x * (1 - x))
    # (x − u)² = z²(rest + part·u(1 − u)), solved for u = (V − a)/(b − a).
    a = z**2 * part
    middle = x + a / 2
    half = math.sqrt(max(0.0, middle**2 - (1 + a) * (x**2 - z**2 * rest)))
    low, high = (span.low + width * (middle + side) / (1 + a) for side in (-half, half))
    return cut((min(low, nearest), max(high, nearest)), within)


def cut(interval: Range, within: Range) -> Range:
    """Return the part of an interval that lies in the range."""
    low, high = (min(max(end, within[0]), within[1]) for end in interval)
    return low, high


def pooled_error(weights: Array, residuals: Array, distance: float) -> float:
    """Return a standard error of mean(w·(r − q)), if residuals spread alike at every weight.

    The usual error is far too small if the few residuals with large weights happen to be small; this one is not. Two
    residuals are added, as of a reward at either end of a range of length `distance`.
    """
    sizes = np.abs(weights)
    spread = (float(sizes @ np.square(residuals / distance)) + 1) / (float(sizes.sum()) + 2)
    return distance * math.sqrt(spread * float(np.square(weights).sum())) / len(weights)
