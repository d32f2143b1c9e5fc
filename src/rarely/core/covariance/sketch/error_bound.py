"""What a sketch of Z has lost, and how far from Z that can make it: a bound that is computed, not estimated.

    F = A + R    (t, p)  features; A_s = Φ_Sᵀw_s, what the sketch has of round s, with the points of that time
    Z~                   λI + AᵀA, where Z is λI + FᵀF
    ε            ()      at least ‖R‖²/λ, in the operator norm
    τ            ()      Σ_s ‖R_s‖²/λ, so ‖R‖²/λ in Frobenius' norm
    n, k         ()      lost rounds, those with R_s ≠ 0; points, so that A has rank k at most

Variances. By Young, FᵀF ≼ (1 + c)AᵀA + (1 + 1/c)RᵀR for every c > 0, and RᵀR ≼ ελI. So Z ≼ (1 + c)Z~ where
c = (1 + 1/c)ε; as A = F − R, Z~ ≼ (1 + c)Z too. Hence v~/(1 + c) ≤ v ≤ (1 + c)v~ for every candidate.

Log det. Young again, in FFᵀ (t, t), with det(I + X + Y) ≤ det(I + X)·det(I + Y) for X, Y ≽ 0:
log det Z − log det Z~ ≤ k·log(1 + c) + log det(I + (1 + 1/c)RRᵀ/λ), whose last term is at most
n·log(1 + (1 + 1/c)τ/n) by concavity. The other way, everything is first compressed to the points' span, which
leaves AᵀA as it is and no determinant larger, and n becomes k. Any c > 0 will do; c = (1 + 1/c)τ/k is near the
best.

ε is a sum over blocks of rounds, ‖R‖² ≤ Σ_b ‖R_b‖², with the norm of each block: an order of magnitude below τ,
because remainders point in many directions. To every ‖R_s‖² what rounding can hide of it is added.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rarely.core.covariance.cost import Widths
from rarely.core.covariance.protocol import EXACT, ErrorBound
from rarely.core.covariance.sketch.dictionary import Dictionary
from rarely.core.growable_array import GrowableArray, shallow
from rarely.core.model.features import FactorRows, Factors, gram
from rarely.core.saving.fields import CLOSE, Fields
from rarely.core.types import Array, Arrays


def excess(ratio: float) -> float:
    """The c > 0 with c = (1 + 1/c)·ratio.

    >>> excess(0.5)
    1.0
    """
    return (ratio + math.sqrt(ratio * (ratio + 4))) / 2


class Remainders:
    """The lost rounds: sums over closed blocks, and the factors of a block of at most `size` that is open."""

    def __init__(self, widths: Widths, size: int) -> None:
        self._widths, self._size = widths, size
        self._count, self._total, self._closed = 0, 0.0, 0.0
        """n, τλ, and Σ‖R_b‖² of closed blocks."""
        self._open_block()

    def _open_block(self) -> None:
        self._block, self._weights = FactorRows(self._widths), GrowableArray(self._size)
        self._squares, self._rounding = GrowableArray(None), GrowableArray(None)

    def recent(self) -> tuple[int, float]:
        """Rounds of the open block, and their Σ‖R_s‖²."""
        return len(self._block), float(self._squares.view.sum())

    def add(self, factors: Factors, weights: Array, squares: Array, rounding: Array, dictionary: Dictionary) -> None:
        """Add lost rounds: weights on the points, (n, k), ‖R_s‖² at most, and what rounding has of that."""
        self._count += len(squares)
        self._total += float(squares.sum())
        done = 0
        while done < len(factors):
            upto = done + self._size - len(self._block)
            self._block.append(factors[done:upto])
            self._weights.append(weights[done:upto])
            self._squares.append(squares[done:upto])
            self._rounding.append(rounding[done:upto])
            done = upto
            if len(self._block) == self._size:
                self._closed += self._top(dictionary)
                self._open_block()

    def _top(self, dictionary: Dictionary) -> float:
        """‖R‖² of the open block, at most."""
        if not len(self._block):
            return 0.0
        factors, weights = self._block.view, self._weights.view[:, : len(dictionary)]
        crossed = weights @ dictionary.products(factors, len(dictionary))
        products = gram(factors, factors) - crossed - crossed.T + weights @ dictionary.gram @ weights.T
        return max(float(np.linalg.eigvalsh(products)[-1]), 0.0) + float(self._rounding.view.sum())

    def bound(self, dictionary: Dictionary, ridge: float) -> ErrorBound:
        """How far Z~ may be from Z."""
        if not self._total:
            return EXACT
        lost, points = self._total / ridge, max(len(dictionary), 1)
        largest = (self._closed + self._top(dictionary)) / ridge
        c, rank = excess(lost / points), max(self._count, points)
        log_det = points * math.log1p(c) + rank * math.log1p(c * points / rank)
        return ErrorBound(1 + excess(min(largest, lost)), log_det)

    def fork(self) -> Remainders:
        """Remainders that start with these; see `GrowableArray.fork`."""
        other = shallow(self)
        other._block, other._weights = self._block.fork(), self._weights.fork()
        other._squares, other._rounding = self._squares.fork(), self._rounding.fork()
        return other

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Numbers and arrays from which `read` makes the same sums."""
        numbers = {"count": self._count, "total": self._total, "closed": self._closed}
        rows = {"weights": self._weights, "squares": self._squares, "rounding": self._rounding}
        return numbers, self._block.state() | {name: row.view for name, row in rows.items()}

    def read(self, saved: Fields, points: int) -> None:
        """Take over a saved state, beside so many points."""
        self._open_block()
        self._block.read(saved)
        n = len(self._block)
        saved.require(n < self._size, f"a block of {self._size} lost rounds must be closed; {n} are open")
        self._count = saved.whole("count", least=n)
        self._total, self._closed = saved.number("total", least=0.0), saved.number("closed", least=0.0)
        weights = saved.array("weights", (n, self._size))
        saved.require(not weights[:, points:].any(), f"weights must be 0 beyond the {points} points")
        squares = saved.array("squares", (n,), least=0.0)
        rounding = saved.array("rounding", (n,), least=0.0)
        saved.require(bool((rounding <= squares).all()), "rounding must be a part of squares")
        among = float(squares.sum())
        saved.require(self._total >= (1 - CLOSE) * among, f"total must be at least {among:.9g}, the sum of squares")
        self._weights.append(weights)
        self._squares.append(squares)
        self._rounding.append(rounding)
