"""Z with each past feature as a combination of a few chosen ones: an approximation with a computed error bound.

    S    _dictionary  (k, p)  inducing points, k ≤ r: features of chosen rounds, as factors
    w                 (k,)    weights of a round: A_s = Φ_Sᵀw_s stands for φ_s; a point has A_s = φ_s
    K                 (k, k)  Φ_SΦ_Sᵀ
    W                 (k, k)  Σ_s w_s w_sᵀ

    Z~ = λI + Σ_s A_s A_sᵀ = λI + Φ_SᵀWΦ_S
    φᵀZ~⁻¹φ = (‖φ‖² − xᵀ(K + λW⁻¹)⁻¹x)/λ, x = Φ_Sφ          log det(Z~/λ) = log det(K + λW⁻¹) + log det(W/λ)

This is the dual form of k rounds that count W times, so neither t nor p enters its size: Nyström's approximation
(Williams and Seeger, 2001) with points chosen on the way (docs/decisions/0009). While every round is a point, W = I and
it is the dual form itself, with the same rounding; nearly dependent points are no worse here than nearly dependent
rounds are there (docs/decisions/0016). Later points change no score of the frozen matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from rarely.core.covariance.cost import Limit, Widths
from rarely.core.covariance.protocol import (
    FAR,
    Candidates,
    ErrorBound,
    Proposal,
    announce_rounding,
    prior_variances,
    refuse_cross,
)
from rarely.core.covariance.sketch.compressed import Compressed
from rarely.core.covariance.sketch.dictionary import Dictionary
from rarely.core.covariance.sketch.error_bound import Remainders
from rarely.core.covariance.sketch.old_sketch import converted
from rarely.core.covariance.sketch.projection import DISTINCT, Projection
from rarely.core.growable_array import shallow
from rarely.core.model.features import Factors
from rarely.core.saving.fields import CLOSE, Fields
from rarely.core.types import Array, Arrays, BoolArray

BLOCK_NUMBERS = 2**21
"""Numbers in the (r, n) arrays of one scoring."""
TOLERABLE = 0.1
"""The part of λ that rounding may hide of a lost round's ‖R‖²; long weights beyond that are shortened."""


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
    """Rounds on top of the running sketch; `rows` are those of its factor."""

    projection: Projection

    @property
    def kept(self) -> BoolArray:
        """Which rounds become points."""
        return self.projection.kept


class Sketched:
    """The r×r form."""

    kind = "sketched"
    additive = False
    lasts = FAR

    def __init__(self, widths: Widths, ridge: float, limit: Limit) -> None:
        limit.check_rounds(self.kind, 0)
        self.ridge, self._size = ridge, limit.sketch.size
        self._widths, self._limit = widths, limit
        self._dictionary = Dictionary(widths, self._size)
        self._remainders = Remainders(widths, self._size)
        self._running = Compressed(self._size)
        self._frozen, self._frozen_rows, self._frozen_points = self._running, 0, 0
        self._jitters = self.rounds = 0
        self.log_det = self.frozen_log_det = 0.0

    @property
    def size(self) -> int:
        """The most points."""
        return self._size

    @property
    def points(self) -> int:
        """Points so far."""
        return len(self._dictionary)

    @property
    def jitters(self) -> int:
        return self._jitters + self._running.factor.jitters

    @property
    def error_bound(self) -> ErrorBound | None:
        return self._remainders.bound(self._dictionary, self.ridge)

    def block(self) -> int:
        return max(1, min(1024, BLOCK_NUMBERS // self._size))

    def measure(self, factors: Factors, *, running: bool = False) -> Candidates:
        matrix, rows, points = self._frozen, self._frozen_rows, self._frozen_points
        if running:
            matrix, rows, points = self._running, len(self._running), self.points
        if not points:
            return Candidates(factors, prior_variances(factors, self.ridge))
        solved = matrix.factor.solve(matrix.products(self._dictionary.products(factors, points), rows), rows)
        norms = factors.squared_norms
        left = norms - np.einsum("ij,ij->j", solved, solved)
        announce_rounding(left, norms)
        return Candidates(factors, np.maximum(left, 0.0) / self.ridge)

    def cross(self, one: Candidates, others: Candidates) -> Array:
        refuse_cross(self.kind)

    def propose(self, chosen: Candidates) -> Proposal:
        factors, running = chosen.factors, self._running
        self._count_beyond(self._size // 2 - len(factors))
        projection = self._projected(factors)
        points = len(projection.dictionary)
        weights, images = projection.weights[:, :points], projection.images[:, :points]
        # Of a later round the images under all points of an earlier one are known, so below the diagonal all is there.
        corner = np.tril(images @ weights.T)
        corner += np.tril(corner, -1).T
        corner.flat[:: len(factors) + 1] += self.ridge
        rows = running.factor.border(running.products(images[:, : self.points].T, len(running)), corner)
        growth = 2 * np.log(np.diagonal(rows, offset=len(running))) - np.log(self.ridge)
        return Projected(factors, self.log_det + np.cumsum(growth), rows, projection)

    def _projected(self, factors: Factors) -> Projection:
        """The rounds as combinations of points, of which they may become some."""
        projection = Projection(self._dictionary, factors)
        count, total = self._remainders.recent()
        for i in range(len(factors)):
            projection.reach(i)
            # A place goes to a round that would lose no less, rounding aside, than rounds lately did.
            if self._place(projection, i) and projection.lost(i, DISTINCT) * count >= total:
                projection.promote(i)
            else:
                projection.shorten(i, TOLERABLE * self.ridge)
                count, total = count + 1, total + projection.lost(i)
                if count == self._size:
                    count, total = 0, 0.0
        return projection

    def _place(self, projection: Projection, i: int) -> bool:
        """Whether there is a place for a round of the proposal.

        Spare points do not take the places of pivots: they are at most r/8, or r/2 where they make weights shorter.
        """
        points, pivots = len(projection.dictionary), projection.dictionary.pivots
        if points == self._size or not projection.distinct(i):
            return False
        if projection.independent(i):
            return places(self.rounds + i + 1, self._size) - pivots >= 1
        return points - pivots < self._size // (2 if projection.long(i) else 8)

    def accept(self, proposal: Proposal, count: int) -> None:
        assert isinstance(proposal, Projected)
        if not count:
            return
        projection = proposal.projection
        self._dictionary = projection.dictionary_after(count)
        weights, lost = projection.weights[:count, : self.points], np.flatnonzero(~projection.kept[:count])
        rounding = projection.rounding[lost]
        squares = projection.remainders[lost] + rounding
        self._remainders.add(proposal.factors[lost], weights[lost], squares, rounding, self._dictionary)
        self._running.append(proposal.rows[:count], weights)
        self.rounds += count
        self.log_det = float(proposal.log_dets[count - 1])
        self._count_beyond(self._size // 2)

    def _count_beyond(self, waiting: int) -> None:
        """Count the pending rounds in W if there are more than so many."""
        if len(self._running.pending) <= max(waiting, 0):
            return
        dictionary, running = self._dictionary, self._running
        stays = len(running) == len(dictionary) and not dictionary.dependent
        if not stays and self._frozen is running:
            self._frozen = running.leading(self._frozen_rows)
        running.count(len(dictionary))
        if not stays:
            self._jitters += running.factor.jitters
            self.log_det, jitters = running.factorise(dictionary.gram, self.ridge, dictionary.dependent)
            self._jitters += jitters

    def freeze(self, ahead: int = 0) -> None:
        # Bordering is less exact than a factor that is ordered: let it be a small part where that matters.
        self._count_beyond((self.points if self._dictionary.dependent else self._size) // 4)
        self._frozen, self._frozen_rows, self._frozen_points = self._running, len(self._running), self.points
        self.frozen_log_det = self.log_det

    def fork(self) -> Self:
        other = shallow(self)
        other._remainders, other._running = self._remainders.fork(), self._running.fork()
        if self._frozen is self._running:
            other._frozen = other._running
        return other

    def state(self) -> tuple[dict[str, Any], Arrays]:
        numbers: dict[str, Any] = {
            "rounds": self.rounds,
            "log_det": self.log_det,
            "frozen_log_det": self.frozen_log_det,
            "rows": len(self._running),
            "frozen_rows": self._frozen_rows,
            "frozen_points": self._frozen_points,
            "jitters": self._jitters,
            "pending_jitters": self._running.factor.jitters,
        }
        numbers["lost"], lost = self._remainders.state()
        parts = {"points": self._dictionary.state(), "running": self._running.state(), "lost": lost}
        if self._frozen is not self._running:
            parts["frozen"] = self._frozen.state()
        return numbers, {f"{part}.{name}": array for part, arrays in parts.items() for name, array in arrays.items()}

    def restore(self, numbers: dict[str, Any], arrays: Arrays) -> None:
        with Fields("covariance", numbers, arrays) as saved:
            if "inner" not in saved:
                self._read(saved)
                return
            found = converted(saved, self._widths, self.ridge, self._limit)
        with Fields("covariance", *found) as saved:
            self._read(saved)

    def _read(self, saved: Fields) -> None:
        with saved.inner("points") as part:
            self._dictionary.read(part)
        with saved.inner("lost") as part:
            self._remainders.read(part, self.points)
        rows = saved.whole("rows")
        self._jitters, jitters = saved.whole("jitters"), saved.whole("pending_jitters")
        with saved.inner("running") as part:
            self._running.read(part, rows, self.points, jitters)
        self._frozen_points = saved.whole("frozen_points", most=self.points)
        if saved.has_part("frozen"):
            self._frozen_rows, self._frozen = saved.whole("frozen_rows"), Compressed(self._size)
            with saved.inner("frozen") as part:
                self._frozen.read(part, self._frozen_rows, self._frozen_points, jitters=0, whole=False)
        else:
            self._frozen_rows, self._frozen = saved.whole("frozen_rows", self._frozen_points, rows), self._running
        self.rounds = saved.whole("rounds", least=self.points)
        self.log_det, self.frozen_log_det = saved.number("log_det"), saved.number("frozen_log_det")
        self._check_log_dets(saved)

    def _check_log_dets(self, saved: Fields) -> None:
        """Refuse log dets that the factors do not have, and a factor that does not fit W."""
        dictionary, rows, doubt = self._dictionary, len(self._running), self._running.doubt
        for name, value, part, count, points in (
            ("log_det", self.log_det, self._running, rows, self.points),
            ("frozen_log_det", self.frozen_log_det, self._frozen, self._frozen_rows, self._frozen_points),
        ):
            least, most = part.log_det_range(dictionary.gram[:points, :points], count, dictionary.rounding)
            saved.require(least < np.inf, f"the factor must belong to the rounds of {name}, on the saved points")
            slack = doubt + CLOSE * (1 + abs(value))
            fits = least - slack <= value <= most + slack
            saved.require(fits, f"{name} must be from {least:.9g} to {most:.9g}, as its arrays give; it is {value:.9g}")
        weights, jitters = self._running.log_det_of_weights()
        grown = self._running.factor.log_det(rows) + weights - rows * float(np.log(self.ridge))
        if not jitters and abs(self.log_det - grown) > doubt:
            saved.require_close("log_det", self.log_det, grown)
