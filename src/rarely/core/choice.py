"""From scores to arms.

Scores that differ by rounding alone are a tie, or the order in which a matrix product adds would choose:
the tolerance is relative, 1e-9·max(s, |score|, β‖φ‖/√λ) with s the scale of rewards (1 unless they
are standardised) and β‖φ‖/√λ the bonus before any data, which is what the bonus' rounding is relative to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rarely.core.types import Array, BoolArray, IntArray

TIE = 1e-9


def tolerances(scores: Array, prior_bonuses: Array, reward_spread: float) -> Array:
    """How far below the best score of its round an arm still ties with it, (n,)."""
    size = np.fmax(np.abs(scores), prior_bonuses)
    return np.asarray(TIE * np.maximum(reward_spread, np.nanmax(size, axis=1)))


def highest(scores: Array, tolerance: Array, uniforms: Array | None = None) -> IntArray:
    """The arm of the highest score in each row of (n, K) scores; NaN is never chosen.

    Ties go to the lowest arm or, given one uniform number a round, to any of the tied alike.

    >>> highest(np.array([[1.0, 2.0, 2.0], [np.nan, 0.0, -1.0]]), tolerance=np.zeros(2))
    array([1, 1])
    """
    tied = scores >= (np.nanmax(scores, axis=1) - tolerance)[:, None]
    return _first(tied) if uniforms is None else uniform(tied, uniforms)


def uniform(present: BoolArray, uniforms: Array) -> IntArray:
    """Any of the arms that are there, each alike.

    >>> uniform(np.array([[True, False, True]]), np.array([0.5]))
    array([2])
    """
    rank = np.floor(uniforms * present.sum(axis=1))
    return _first(present & (np.cumsum(present, axis=1) - 1 == rank[:, None]))


def _first(allowed: BoolArray) -> IntArray:
    return np.asarray(np.argmax(allowed, axis=1), np.int64)


class Chooser(Protocol):
    """How scores become arms."""

    @property
    def draws(self) -> bool:
        """Whether it uses one uniform number a round."""

    def __call__(self, scores: Array, tolerance: Array, uniforms: Array | None) -> IntArray:
        """The arm of each round, (n,)."""


@dataclass(frozen=True, slots=True)
class Optimist:
    """The arm of the highest score; ties to the lowest arm, or to the generator when asked."""

    draws: bool = False

    def __call__(self, scores: Array, tolerance: Array, uniforms: Array | None) -> IntArray:
        return highest(scores, tolerance, uniforms)


@dataclass(frozen=True, slots=True)
class Coin:
    """Any arm, whatever the scores."""

    draws: bool = True

    def __call__(self, scores: Array, tolerance: Array, uniforms: Array | None) -> IntArray:
        assert uniforms is not None
        return uniform(~np.isnan(scores), uniforms)
