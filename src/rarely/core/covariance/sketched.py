"""Z with each past feature projected onto a few chosen ones: an approximation, and it says how good a one.

    S    dictionary  (k, p)  inducing points, k ≤ r: features of chosen rounds, as factors
    z                (r,)    coordinates of Pφ in an orthonormal basis of their span, 0 for points to come
    ρ                ()      ‖φ‖² − ‖z‖², the remainder's squared norm
    M    inner       (r, r)  λI + Σ_s z_s z_sᵀ, each z_s with the points of its own time

    Z~ = λI + Σ_s A_s A_sᵀ, A_s = P_s φ_s          φᵀZ~⁻¹φ = ρ/λ + zᵀM⁻¹z          log det(Z~/λ) = log det(M/λ)

So M is the primal form over z, r numbers a feature, and neither t nor p enters its size: Nyström's
approximation (Williams and Seeger, 2001), its points chosen on the way (docs/decisions/0009). A later point
adds a coordinate in which every earlier round is 0, and changes no score of the frozen matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from rarely.core.covariance.dictionary import Dictionary
from rarely.core.covariance.price import Limit, Widths
from rarely.core.covariance.primal import Primal
from rarely.core.covariance.protocol import Candidates, ErrorBound, Proposal, announce_rounding, prior_variances
from rarely.core.covariance.remainders import Remainders
from rarely.core.covariance.wrapped import Wrapped
from rarely.core.factors import Factors, gram
from rarely.core.types import Array, Arrays, BoolArray


def places(rounds: int, size: int) -> float:
    """How many points there may be by then: a half for the first rounds, the rest ever more slowly.

    Features change with the weights, so some places must be left whenever the next version comes; and none
    may know how many rounds there will be.

    >>> [places(t, size=8) for t in (1, 4, 8, 16, 1024)]
    [1.0, 4.0, 6.0, 7.0, 7.984375]
    """
    half = size / 2
    return float(rounds) if rounds <= half else size - half * half / rounds


@dataclass(frozen=True, slots=True)
class Projected(Proposal):
    """Rounds on top of the running sketch; `rows` are their coordinates, (n, r)."""

    inner: Proposal
    dictionary: Dictionary
    """With the points that the rounds would add."""
    kept: BoolArray
    """Which rounds become points."""
    squares: Array
    """ρ of the others, 0 for points."""


class Sketched(Wrapped):
    """The r×r form."""

    def __init__(self, widths: Widths, ridge: float, limit: Limit) -> None:
        limit.check_rounds(self.kind, 0)
        self.ridge, self._size = ridge, limit.sketch.size
        self._dictionary = Dictionary(widths, self._size)
        self._remainders = Remainders(widths, self._size)
        super().__init__(Primal(((1, self._size),), ridge, limit.unbounded()))
        self._frozen = 0
        """Points of the frozen matrix."""

    @property
    def kind(self) -> str:
        return "sketched"

    @property
    def points(self) -> int:
        """Points so far."""
        return len(self._dictionary)

    @property
    def error_bound(self) -> ErrorBound:
        return self._remainders.bound(self._dictionary, self.ridge)

    def measure(self, factors: Factors) -> Candidates:
        if not self._frozen:
            return Candidates(factors, prior_variances(factors, self.ridge))
        # Points that came later would change nothing but the rounding.
        z = self._dictionary.coordinates(self._dictionary.products(factors, self._frozen))
        norms = factors.squared_norms
        inside = self._inner.measure(self._features(z.T)).variances
        outside = np.maximum(norms - np.einsum("ij,ij->j", z, z), 0.0)
        announce_rounding(outside + self.ridge * inside, norms)
        return Candidates(factors, outside / self.ridge + inside)

    def _features(self, coordinates: Array) -> Factors:
        """Coordinates, (n, ·), as features of the inner form."""
        padded = np.zeros((len(coordinates), self._size))
        padded[:, : coordinates.shape[1]] = coordinates
        return Factors((padded,), (np.ones((len(padded), 1)),))

    def propose(self, chosen: Candidates) -> Proposal:
        factors, points, dictionary = chosen.factors, self.points, self._dictionary.fork()
        among = gram(factors, factors)
        products = np.vstack((dictionary.products(factors, points), np.empty_like(among)))  # room for new points
        features = self._features(dictionary.coordinates(products[:points]).T)
        coordinates = features.inputs[0]
        kept, squares = np.zeros(len(factors), np.bool_), np.zeros(len(factors))
        count, total = self._remainders.recent()
        for i in range(len(factors)):
            z, row = coordinates[i, :points], None
            square = max(float(among[i, i] - z @ z), 0.0)
            free = places(self.rounds + i + 1, self._size) - points
            # A place goes to a round that would lose no less, rounding aside, than rounds lately did.
            if free >= 1 and square * count >= (1 - 1e-9) * total:
                row = dictionary.add(factors[[i]], products[:points, i], float(among[i, i]))
            if row is None:
                squares[i] = square
                count, total = (count + 1, total + square) if count + 1 < self._size else (0, 0.0)
            else:
                products[points] = among[i]
                coordinates[i:, points] = row @ products[: points + 1, i:]
                points += 1
                kept[i] = True
        inner = self._inner.propose(Candidates(features, chosen.variances))
        return Projected(factors, inner.log_dets, coordinates, inner, dictionary, kept, squares)

    def accept(self, proposal: Proposal, count: int) -> None:
        assert isinstance(proposal, Projected)
        kept = proposal.kept[:count]
        lost, points = np.flatnonzero(~kept), self.points + np.cumsum(kept)
        self._dictionary = proposal.dictionary.fork(self.points + int(kept.sum()))
        self._remainders.add(proposal.factors[lost], proposal.squares[lost], points[lost], self._dictionary)
        self._inner.accept(proposal.inner, count)

    def freeze(self, ahead: int = 0) -> None:
        self._inner.freeze()
        self._frozen = self.points

    def fork(self) -> Self:
        other = super().fork()
        other._dictionary, other._remainders = self._dictionary.fork(), self._remainders.fork()
        return other

    def state(self) -> tuple[dict[str, Any], Arrays]:
        inner, inner_arrays = self._inner.state()
        lost, lost_arrays = self._remainders.state()
        arrays = {f"inner.{name}": array for name, array in inner_arrays.items()}
        arrays |= {f"lost.{name}": array for name, array in lost_arrays.items()}
        return {"frozen": self._frozen, "inner": inner, "lost": lost}, arrays | self._dictionary.state()

    def restore(self, numbers: dict[str, Any], arrays: Arrays) -> None:
        def part(name: str) -> Arrays:
            return {k.removeprefix(name): v for k, v in arrays.items() if k.startswith(name)}

        self._frozen = numbers["frozen"]
        self._inner.restore(numbers["inner"], part("inner."))
        self._remainders.restore(numbers["lost"], part("lost."))
        self._dictionary.restore(arrays)
