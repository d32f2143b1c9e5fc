"""A proposal's rounds as combinations of points, each with the points of its own time.

    w    weights     (n, k)  of each round; k counts the points that the rounds add
    Kw   images      (n, k)  Φ_SA
    ‖R‖² remainders  (n,)    ‖φ‖² − 2wᵀΦ_Sφ + wᵀKw: what these weights leave, however they were found
    γ²   growths     (n,)

The other names are those of `dictionary.py`.
"""

from __future__ import annotations

import numpy as np

from rarely.core.covariance.sketch.dictionary import INDEPENDENT, Dictionary
from rarely.core.model.features import Factors, gram
from rarely.core.types import Array, BoolArray

DISTINCT = 4.0
"""A remainder is real if it exceeds what rounding may hide of it this many times."""
LONG = 30.0
"""γ/‖φ‖ of long weights: they multiply the rounding of K by its square, so that a point is better."""
FEW = 16
"""Rounds that are measured together."""


class Projection:
    """n rounds on top of a sketch, not yet part of it."""

    def __init__(self, dictionary: Dictionary, factors: Factors) -> None:
        points, rounds = len(dictionary), len(factors)
        self.dictionary = dictionary
        """With the points that the rounds have added so far; the one given stays as it is."""
        self._factors, self._among = factors, gram(factors, factors)
        self._squares = np.diagonal(self._among)
        room = min(points + rounds, dictionary.size)
        self._products, self.weights, self.images = np.zeros((3, rounds, room))
        self._products[:, :points] = dictionary.products(factors, points).T
        self.remainders, self.growths = np.empty((2, rounds))
        self.kept: BoolArray = np.zeros(rounds, np.bool_)
        """Which rounds became points."""
        self._before: list[tuple[int, Dictionary]] = []
        """The rounds at which the pivots were chosen anew, and the dictionary before each."""
        self._project(0)

    @property
    def rounding(self) -> Array:
        """What rounding may hide of ‖R‖², (n,)."""
        return np.asarray(self.dictionary.rounding * self.growths)

    def reach(self, i: int) -> None:
        """Bring the numbers of round i up to date with the points before it."""
        if i >= self._measured:
            self._settle(slice(i, i + FEW))

    def independent(self, i: int) -> bool:
        """Whether round i would be a pivot."""
        return bool(self.remainders[i] > INDEPENDENT * self.dictionary.rounding * self.growths[i])

    def long(self, i: int) -> bool:
        """Whether the weights of round i are long."""
        return bool(self.growths[i] > LONG**2 * self._squares[i])

    def distinct(self, i: int) -> bool:
        """Whether round i is anything but a short combination of points."""
        return self.long(i) or bool(self.remainders[i] > DISTINCT * self.dictionary.rounding * self.growths[i])

    def lost(self, i: int, margin: float = 1.0) -> float:
        """‖R‖² of round i at most: with what rounding may hide of it, `margin` times."""
        return float(self.remainders[i] + margin * self.dictionary.rounding * self.growths[i])

    def promote(self, i: int) -> None:
        """Make round i a point, and a pivot if it is independent; later rounds get weights on it.

        If it is dependent and its weights were long, the pivots are chosen anew, so that later rounds can use it.
        """
        points, products = len(self.dictionary), self._products[i, : len(self.dictionary)]
        pivot, anew = self.independent(i), self.long(i) and not self.independent(i)
        if anew:
            self._before.append((i, self.dictionary))
        if anew or not self.kept.any():
            self.dictionary = self.dictionary.fork()
        self.dictionary.add(self._factors[[i]], products, float(self._squares[i]))
        self._products[i + 1 :, points] = self._among[i + 1 :, i]
        self.images[i + 1 :, points] = self.weights[i + 1 :, :points] @ products
        if pivot:
            row = self.dictionary.make_pivot(self.weights[i, :points], float(self.remainders[i]))
            self._lengthen(i + 1, row)
        elif anew:
            self.dictionary.choose_pivots()
            self._project(i + 1)
        self.weights[i], self.weights[i, points] = 0.0, 1.0
        self.images[i, : points + 1] = self.dictionary.gram[points]
        self.remainders[i], self.growths[i], self.kept[i] = 0.0, 0.0, True

    def shorten(self, i: int, rounding: float) -> None:
        """Replace the long weights of round i by shorter ones, which leave more of it, unless rounding can hide no
        more than `rounding` of its ‖R‖²."""
        here, limit = (i, slice(len(self.dictionary))), rounding / self.dictionary.rounding
        if self.long(i) and self.growths[i] > limit:
            longest = max(np.sqrt(limit), LONG * np.sqrt(self._squares[i]))
            self.weights[here] = self.dictionary.short_weights(self._products[here], longest)
            self.images[here] = self.weights[here] @ self.dictionary.gram
            self._measure(slice(i, i + 1))

    def dictionary_after(self, rounds: int) -> Dictionary:
        """The dictionary with the points of the first `rounds` rounds alone."""
        dropped = int(self.kept[rounds:].sum())
        if not dropped:
            return self.dictionary
        last = next((before for i, before in self._before if i >= rounds), self.dictionary)
        return last.fork(len(self.dictionary) - dropped)

    def _project(self, first: int) -> None:
        """Compute the weights of the rounds from `first` on."""
        here = (slice(first, None), slice(len(self.dictionary)))
        self.weights[here] = self.dictionary.weights(self._products[here])
        self.images[here] = self.weights[here] @ self.dictionary.gram
        self._settle(slice(first, len(self.kept)))

    def _lengthen(self, first: int, row: Array) -> None:
        """Add to the weights of the rounds from `first` on what a new row of T gives them."""
        here = (slice(first, None), slice(len(row)))
        coordinates = ((self._products[here] - self.images[here]) @ row)[:, None]
        self.weights[here] += coordinates * row
        self.images[here] += coordinates * (row @ self.dictionary.gram)
        self._measured = first

    def _settle(self, rounds: slice) -> None:
        here = (rounds, slice(len(self.dictionary)))
        for _ in range(self.dictionary.passes - 1):  # as Gram and Schmidt must on a computer
            self.weights[here] += self.dictionary.weights(self._products[here] - self.images[here])
            self.images[here] = self.weights[here] @ self.dictionary.gram
        self._measure(rounds)
        self._measured = rounds.stop

    def _measure(self, rounds: slice) -> None:
        here = (rounds, slice(len(self.dictionary)))
        squares, weights = self._squares[rounds], self.weights[here]
        explained = np.einsum("ij,ij->i", weights, 2 * self._products[here] - self.images[here])
        self.remainders[rounds] = np.maximum(squares - explained, 0.0)
        self.growths[rounds] = np.square(np.sqrt(squares) + np.abs(weights) @ self.dictionary.norms)
