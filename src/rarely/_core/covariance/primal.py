"""Z written out: exact, p×p, the cheap form once rounds outnumber parameters.

    Z     matrix    (p, p)  running, without the pending rounds     C   Cholesky factor of Z
    Φ     pending   (n, p)  rounds since Z was last factorised      Y   ΦC⁻ᵀ

    φᵀZ⁻¹φ = ‖C⁻¹φ‖²          det(Z + ΦᵀΦ) = det Z·det(I + YYᵀ)

Inside a batch, rounds wait in a block of at most p: a growing factor of I + YYᵀ gives log det round by
round, and a full block is absorbed into Z. So memory stays p×p however long the batch.

Numbers that involve pending rounds are differences, and lose their digits where one column is much larger than the
others, a timestamp, say: all of Y then points along it. The factor of Z does not care about the units of columns, so
where a difference would lose more than four digits, the pending rounds are absorbed first. While fewer rounds than
large columns have been, λ is lost in the sum Z as well, and the factor is updated without forming it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from rarely._core.covariance.cholesky import GrowingCholesky, definite, updated_factor
from rarely._core.covariance.protocol import CANCELLED, Candidates, Covariance, Limit, Price, Proposal, RowCost, Widths
from rarely._core.growable_array import GrowableArray, changed
from rarely._core.model.features import Factors
from rarely._core.native.linalg import product
from rarely._core.saving.fields import Fields
from rarely._core.types import Array, Arrays

BLOCK_NUMBERS = 2**21  # numbers in the (n, p) features of one scoring
PRECISE_PIVOT = 1e-6  # a pivot of Z below this part of its diagonal has lost digits of λ
MOST_UPDATED = 1024
"""Parameters up to which the factor may be updated without Z; that takes eight times as long as a factorisation."""


class Pending(NamedTuple):
    """Rounds on top of Z, (n, ·) each."""

    features: Array
    solved: Array  # Y
    rows: Array | None  # of the factor of I + YYᵀ; None for rounds that must be absorbed at once
    absorbed: Primal | None = None  # Z with all of these


class Primal(Covariance):
    """The p×p form."""

    kind = "primal"
    exact = additive = takes_matrices = takes_sums = True

    @classmethod
    def price(cls, widths: Widths, rounds: int, row: RowCost | None = None) -> Price:
        """Return 8·(3p² + 2.5p²) bytes, Z and two factors and a block of pending rounds, and p² operations an arm."""
        p = sum(o * i for o, i in widths)
        return Price(cls.kind, cls.exact, 44 * p * p, p * p, (415.0, 1.46e-3))

    def __init__(self, widths: Widths, ridge: float, limit: Limit) -> None:
        super().__init__(widths, ridge, limit)
        limit.check_rounds(self.kind, 0)
        self.parameters = sum(o * i for o, i in widths)
        self._jitters = 0
        self._clear_pending()

    _matrix: Array
    _running: GrowingCholesky
    _frozen: GrowingCholesky
    advanced_to: Array | None = None
    """The inverse of the factor of the running Z, and Z, (2, p, p), as a compiled step left them, until they are read
    otherwise; no round is pending then."""
    frozen_at: Array | None = None  # the same of the frozen Z, where it was the running one as a step left it

    def __getattr__(self, name: str) -> Any:
        """Make Z and its factors when first asked for: λI, unless the running one has advanced."""
        if name not in ("_matrix", "_running", "_frozen"):
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        running, frozen = self.advanced_to, self.frozen_at
        if name in self.__dict__:  # another thread has asked meanwhile
            return self.__dict__[name]
        held = frozen if name == "_frozen" else running
        matrix = self.ridge * np.eye(self.parameters) if held is None else held[1]
        factor = GrowingCholesky.of(matrix)[0] if held is None else GrowingCholesky.from_inverse(held[0])
        if held is frozen and "_frozen" not in self.__dict__:
            self._frozen = factor
        if held is running and "_running" not in self.__dict__:
            self._matrix, self._running, self.advanced_to = matrix, factor, None
        return self.__dict__[name]

    def _clear_pending(self) -> None:
        # Both are empty, and forked before they grow.
        self._pending = self._solved = GrowableArray(self.parameters)
        self._factor = GrowingCholesky()

    @property
    def jitters(self) -> int:
        return self._jitters + self._factor.jitters

    def block(self) -> int:
        return max(1, min(1024, BLOCK_NUMBERS // self.parameters))

    def measure(self, factors: Factors, *, running: bool = False) -> Candidates:
        factor = self._running if running else self._frozen
        solved = factor.solve(factors.columns(), self.parameters, overwrite=True)
        variances = np.einsum("ij,ij->j", solved, solved)
        if running and len(self._pending):
            # (Z + ΦᵀΦ)⁻¹ = Z⁻¹ − Z⁻¹Φᵀ(I + YYᵀ)⁻¹ΦZ⁻¹
            below = self._factor.solve(product(self._solved.view, solved.T), len(self._pending))
            left = variances - np.einsum("ij,ij->j", below, below)
            if np.count_nonzero(left < CANCELLED * variances):
                self._absorb()
                return self.measure(factors, running=True)
            return Candidates(factors, left, np.vstack((solved, below)), variances)
        return Candidates(factors, variances, solved)

    def cross(self, one: Candidates, others: Candidates) -> Array:
        assert one.solved is not None
        assert others.solved is not None
        p, mine, theirs = self.parameters, one.solved[:, 0], others.solved
        return np.asarray(mine[:p] @ theirs[:p] - mine[p:] @ theirs[p:])

    def propose(self, chosen: Candidates) -> Proposal:
        factors, waiting = chosen.factors, len(self._pending)
        if waiting and waiting + len(factors) > self.parameters:
            self._absorb()
            waiting = 0
        features = factors.columns().T
        # Until the batch's first block is absorbed the two matrices have one factor, and scoring has solved it.
        if self._running is self._frozen and chosen.solved is not None:
            solved = chosen.solved[: self.parameters].T
        else:
            solved = self._running.solve(features.T, self.parameters).T
        corner = product(solved, solved)
        corner.flat[:: len(factors) + 1] += 1.0
        cross = product(self._solved.view, solved) if waiting else solved[:0].T
        rows = self._factor.precise_border(cross, corner, CANCELLED)
        if rows is None:
            absorbed, log_dets = self._absorbed(features)
            return Proposal(factors, log_dets, Pending(features, solved, None, absorbed))
        growth = 2 * np.log(rows.diagonal(waiting))
        return Proposal(factors, self.log_det + growth.cumsum(), Pending(features, solved, rows))

    def _absorbed(self, features: Array) -> tuple[Self, Array]:
        """Return Z with these rounds and log det after each, by as many factors of Z as keep the digits of all."""
        scratch, log_dets, done = self.fork(), [], 0
        scratch._absorb()
        while done < len(features):
            count = min(len(features) - done, self.parameters)
            while True:
                some = features[done : done + count]
                solved = scratch._running.solve(some.T, self.parameters).T
                corner = product(solved, solved)
                corner.flat[:: count + 1] += 1.0
                # Of a single round nothing is subtracted.
                lower = np.sqrt(corner) if count == 1 else definite(corner, corner.diagonal(), CANCELLED)
                if lower is not None:
                    break
                count //= 2
            log_dets.append(scratch.log_det + 2 * np.log(lower.diagonal()).cumsum())
            scratch._absorb(some)
            done += count
        return scratch, np.concatenate(log_dets)

    def accept(self, proposal: Proposal, count: int) -> None:
        if not count:
            return
        kept: Pending = proposal.kept
        if count < len(kept.features):
            rows = None if kept.rows is None else kept.rows[:count]
            kept = Pending(kept.features[:count], kept.solved[:count], rows)
        self.rounds += count
        if kept.absorbed is not None:
            self._matrix, self._running = kept.absorbed._matrix, kept.absorbed._running
            self._jitters = kept.absorbed._jitters
            self._clear_pending()
        elif kept.rows is None:
            self._absorb(kept.features)
        else:
            self._pending, self._solved = self._pending.fork(), self._solved.fork()
            self._pending.append(kept.features)
            self._solved.append(kept.solved)
            self._factor.append(kept.rows)
        self.log_det = float(proposal.log_dets[count - 1])
        if len(self._pending) > self.parameters:
            self._absorb()

    def settled(self) -> tuple[Self, Array, Array]:
        """Return the same Z without pending rounds, the inverse of the factor of the running one, and that one."""
        other = self.fork()
        other._absorb()
        return other, other._running.inverse, other._matrix

    def frozen_inverse(self) -> tuple[Any, Array]:
        """Return the inverse of the factor of the frozen Z, after what tells it from another."""
        if self.frozen_at is not None:
            return self.frozen_at, self.frozen_at[0]
        return self._frozen, self._frozen.inverse

    def advanced(self, rounds: int, log_det: float, inverse_and_matrix: Array) -> Self:
        """Return Z so many rounds later, none pending, by the inverse of its factor and itself, (2, p, p)."""
        other = changed(self, rounds=self.rounds + rounds, log_det=log_det, advanced_to=inverse_and_matrix)
        for name in ("_running", "_matrix"):
            other.__dict__.pop(name, None)
        return other

    def take_over(self, past: Factors, jitters: int, frozen: int = 0) -> None:
        """Become the matrices of another form: the running one of all features, the frozen one of the first ones."""
        self._jitters = jitters
        if frozen:
            self._add(past[:frozen])
            self._frozen, self.frozen_log_det = self._running, self.log_det
        self._add(past[frozen:])

    def take_part(self, running: Array, frozen: Array, rounds: int, jitters: int) -> None:
        """Become these matrices."""
        self._jitters = jitters
        for matrix in (frozen, running):
            self._matrix = matrix.copy()
            self._factorise()
            if matrix is frozen:
                self._frozen, self.frozen_log_det = self._running, self.log_det
        self.rounds = rounds

    def contribution(self, factors: Factors) -> Array:
        """Return Σ φφᵀ."""
        features = factors.vectors()
        return np.asarray(features.T @ features)

    def with_contributions(self, total: Array, rounds: int) -> Self:
        other = self.fork()
        other._absorb()
        other._matrix, other.rounds = other._matrix + total, other.rounds + rounds
        other._factorise()
        return other

    def _add(self, past: Factors) -> None:
        parts = [past[start : start + self.block()] for start in range(0, len(past), self.block())]
        self.rounds += len(past)
        for part in parts:
            features = part.vectors()
            self._matrix = self._matrix + features.T @ features
        self._factorise(parts)

    def _factorise(self, added: Sequence[Factors | Array] = ()) -> None:
        """Factorise Z, or where that would lose digits update the factor of Z without the rounds added to it."""
        lower = definite(self._matrix, self._matrix.diagonal(), PRECISE_PIVOT)
        if lower is None and added and self.parameters <= MOST_UPDATED:
            lower = self._running.lower()
            for rows in added:
                lower = updated_factor(lower, rows if isinstance(rows, np.ndarray) else rows.vectors())
        if lower is None:
            self._running, log_det = GrowingCholesky.of(self._matrix)
            self._jitters += self._running.jitters
        else:
            self._running, log_det = GrowingCholesky.from_lower(lower)
        self.log_det = log_det - self.parameters * float(np.log(self.ridge))

    def _absorb(self, more: Array | None = None) -> None:
        """Make the pending rounds, and those of `more`, part of Z."""
        features = self._pending.view if more is None else np.concatenate((self._pending.view, more))
        if not len(features):
            return
        self._matrix = self._matrix + features.T @ features
        self._jitters += self._factor.jitters
        self._factorise([features])
        self._clear_pending()

    def freeze(self) -> None:
        self._absorb()
        super().freeze()
        self.frozen_at = self.advanced_to
        self.__dict__.pop("_frozen", None)
        if self.frozen_at is None:
            self._frozen = self._running

    def fork(self) -> Self:
        return changed(self, _factor=self._factor.fork())

    def frozen(self) -> Self:
        """Return a fork, frozen."""
        if self.advanced_to is None:
            other = self.fork()
            other.freeze()
            return other
        other = changed(self, frozen_at=self.advanced_to, frozen_log_det=self.log_det, frozen_unit=self.running_unit)
        other.__dict__.pop("_frozen", None)
        return other

    def state(self) -> tuple[dict[str, Any], Arrays]:
        numbers = self.counts() | {"jitters": self._jitters, "pending_jitters": self._factor.jitters}
        arrays = {
            "matrix": self._matrix,
            "running": self._running.packed(),
            "pending": self._pending.view,
            "solved": self._solved.view,
            "factor": self._factor.packed(),
        }
        if self._frozen is not self._running:
            arrays["frozen"] = self._frozen.packed()
        return numbers, arrays

    def read(self, saved: Fields) -> None:
        p = self.parameters
        self._matrix = saved.array("matrix", (p, p))
        self._running = self._frozen = GrowingCholesky.read(saved, "running", p)
        if "frozen" in saved:
            self._frozen = GrowingCholesky.read(saved, "frozen", p)
        self._clear_pending()
        self._pending, self._solved = GrowableArray(p), GrowableArray(p)
        self._pending.append(pending := saved.array("pending", (None, p)))
        self._solved.append(saved.array("solved", pending.shape))
        self._factor = GrowingCholesky.read(saved, "factor", len(pending))
        self._factor.jitters, self._jitters = saved.whole("pending_jitters"), saved.whole("jitters")
        self.read_counts(saved)

    def written_out(self) -> tuple[Array, Array]:
        """Return Z with its pending rounds, and the frozen Z, for a form that takes them over."""
        features, frozen = self._pending.view, self._matrix
        if self._frozen is not self._running:
            lower = self._frozen.lower()
            frozen = lower @ lower.T
        return self._matrix + features.T @ features, frozen


class LastLayer(Primal):
    """Z over the last layer's weights alone: exact for an m×m matrix, an approximation of the whole.

    The feature is then a_{L−1}(x; θ), the last hidden layer: the *neural-linear* way (Riquelme et al., 2018).
    """

    kind = "last_layer"
    exact = False
    auto_rank = 2.0

    @classmethod
    def price(cls, widths: Widths, rounds: int, row: RowCost | None = None) -> Price:
        """Return 8·5.5m² bytes and m² operations an arm, m the last layer's inputs."""
        m = widths[-1][1]
        return Price(cls.kind, cls.exact, 44 * m * m, m * m, (325.0, 2.5e-3))

    def __init__(self, widths: Widths, ridge: float, limit: Limit) -> None:
        super().__init__(widths, ridge, limit)
        (outputs, inputs) = widths[-1]
        self.parameters = outputs * inputs
        self._clear_pending()

    def take_over(self, past: Factors, jitters: int, frozen: int = 0) -> None:
        super().take_over(past.last_layer(), jitters, frozen)

    def take_part(self, running: Array, frozen: Array, rounds: int, jitters: int) -> None:
        size = self.parameters
        super().take_part(running[-size:, -size:], frozen[-size:, -size:], rounds, jitters)

    def contribution(self, factors: Factors) -> Array:
        return super().contribution(factors.last_layer())

    def measure(self, factors: Factors, *, running: bool = False) -> Candidates:
        return super().measure(factors.last_layer(), running=running)
