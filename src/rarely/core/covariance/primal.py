"""Z written out: exact, p×p, the cheap form once rounds outnumber parameters.

    Z     matrix    (p, p)  running, without the pending rounds     C   Cholesky factor of Z
    Φ     pending   (n, p)  rounds since Z was last factorised      Y   ΦC⁻ᵀ

    φᵀZ⁻¹φ = ‖C⁻¹φ‖²          det(Z + ΦᵀΦ) = det Z·det(I + YYᵀ)

Inside a batch, rounds wait in a block of at most p: a growing factor of I + YYᵀ gives log det round by
round, and a full block is absorbed into Z. So memory stays p×p however long the batch.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from rarely.core.covariance.cholesky import is_symmetric, probe_of
from rarely.core.covariance.cost import Limit, Widths
from rarely.core.covariance.growing_cholesky import GrowingCholesky
from rarely.core.covariance.protocol import EXACT, FAR, Candidates, ErrorBound, Proposal
from rarely.core.growable_array import GrowableArray, shallow
from rarely.core.model.features import Factors
from rarely.core.native.linalg import product
from rarely.core.saving.fields import CLOSE, Fields
from rarely.core.types import Array, Arrays

BLOCK_NUMBERS = 2**21
"""Numbers in the (n, p) features of one scoring."""


class Primal:
    """The p×p form."""

    kind = "primal"
    additive = True
    lasts = FAR
    error_bound: ErrorBound | None = EXACT

    def __init__(self, widths: Widths, ridge: float, limit: Limit) -> None:
        limit.check_rounds(self.kind, 0)
        self.parameters = sum(o * i for o, i in widths)
        self.ridge, self.rounds, self._jitters = ridge, 0, 0
        self.log_det = self.frozen_log_det = 0.0
        self._clear_pending()

    _matrix: Array
    _running: GrowingCholesky
    _frozen: GrowingCholesky

    def __getattr__(self, name: str) -> Any:
        """Z_1 = λI and its factor, made when first asked for: a form that takes over a saved state never asks."""
        if name not in ("_matrix", "_running", "_frozen"):
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        self._matrix = self.ridge * np.eye(self.parameters)
        self._running = self._frozen = GrowingCholesky.of(self._matrix)[0]
        return self.__dict__[name]

    def _clear_pending(self) -> None:
        p = self.parameters
        self._pending, self._solved, self._factor = GrowableArray(p), GrowableArray(p), GrowingCholesky()

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
            known = self._factor.solve(product(self._solved.view, solved.T), len(self._pending))
            variances = np.maximum(variances - np.einsum("ij,ij->j", known, known), 0.0)
            solved = np.vstack((solved, known))
        return Candidates(factors, variances, solved)

    def cross(self, one: Candidates, others: Candidates) -> Array:
        assert one.solved is not None
        assert others.solved is not None
        p, mine, theirs = self.parameters, one.solved[:, 0], others.solved
        return np.asarray(mine[:p] @ theirs[:p] - mine[p:] @ theirs[p:])

    def propose(self, chosen: Candidates) -> Proposal:
        factors = chosen.factors
        waiting = len(self._pending)
        if waiting and waiting + len(factors) > self.parameters:
            self._absorb()
        columns = factors.columns()
        # Until the batch's first block is absorbed the two matrices have one factor, and scoring has solved it.
        if self._running is self._frozen and chosen.solved is not None:
            solved = chosen.solved[: self.parameters].T
        else:
            solved = self._running.solve(columns, self.parameters).T
        corner = product(solved, solved)
        corner.flat[:: len(factors) + 1] += 1.0
        rows = self._factor.border(product(self._solved.view, solved), corner)
        growth = 2 * np.log(np.diagonal(rows, offset=len(self._pending)))
        return Proposal(factors, self.log_det + np.cumsum(growth), np.hstack((columns.T, solved, rows)))

    def accept(self, proposal: Proposal, count: int) -> None:
        if not count:
            return
        p = self.parameters
        kept = proposal.rows[:count]
        self._pending.append(kept[:, :p])
        self._solved.append(kept[:, p : 2 * p])
        self._factor.append(kept[:, 2 * p :])
        self.rounds += count
        self.log_det = float(proposal.log_dets[count - 1])
        if len(self._pending) > p:
            self._absorb()

    def take_over(self, past: Factors, jitters: int, frozen: int = 0) -> None:
        """Become the matrices of another form: the running one of all features, the frozen one of the first."""
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

    def _add(self, past: Factors) -> None:
        for start in range(0, len(past), self.block()):
            features = past[start : start + self.block()].vectors()
            self._matrix += features.T @ features
        self.rounds += len(past)
        self._factorise()

    def _factorise(self) -> None:
        self._running, log_det = GrowingCholesky.of(self._matrix)
        self._jitters += self._running.jitters
        self.log_det = log_det - self.parameters * float(np.log(self.ridge))

    def _absorb(self) -> None:
        if not len(self._pending):
            return
        features = self._pending.view
        self._matrix = self._matrix + features.T @ features
        self._jitters += self._factor.jitters
        self._factorise()
        self._clear_pending()

    def freeze(self, ahead: int = 0) -> None:
        self._absorb()
        self._frozen, self.frozen_log_det = self._running, self.log_det

    def fork(self) -> Self:
        other = shallow(self)
        other._pending, other._solved = self._pending.fork(), self._solved.fork()
        other._factor = self._factor.fork()
        return other

    def state(self) -> tuple[dict[str, Any], Arrays]:
        numbers = {
            "rounds": self.rounds,
            "log_det": self.log_det,
            "frozen_log_det": self.frozen_log_det,
            "jitters": self._jitters,
            "pending_jitters": self._factor.jitters,
        }
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

    def restore(self, numbers: dict[str, Any], arrays: Arrays) -> None:
        with Fields("covariance", numbers, arrays) as saved:
            self.read(saved)

    def read(self, saved: Fields) -> None:
        """Take over a saved state."""
        p = self.parameters
        self._matrix = saved.array("matrix", (p, p))
        self._running = self._frozen = GrowingCholesky.read(saved, "running", p)
        if "frozen" in saved:
            self._frozen = GrowingCholesky.read(saved, "frozen", p)
        self._clear_pending()
        self._pending.append(pending := saved.array("pending", (None, p)))
        self._solved.append(saved.array("solved", pending.shape))
        saved.require(len(pending) <= p, f"at most {p} rounds may be pending; there are {len(pending)}")
        self._factor = GrowingCholesky.read(saved, "factor", len(pending))
        self._factor.jitters, self._jitters = saved.whole("pending_jitters"), saved.whole("jitters")
        self.rounds = saved.whole("rounds", least=len(pending))
        self.log_det, self.frozen_log_det = saved.number("log_det"), saved.number("frozen_log_det")
        prior = p * float(np.log(self.ridge))
        grown = self._running.log_det(p) + self._factor.log_det(len(pending))
        saved.require_close("log_det", self.log_det, grown - prior)
        saved.require_close("frozen_log_det", self.frozen_log_det, self._frozen.log_det(p) - prior)
        self._check_factors(saved)

    def written_out(self) -> tuple[Array, Array]:
        """Z with its pending rounds, and the frozen Z; for a form that takes them over."""
        features = self._pending.view
        frozen = self._matrix if self._frozen is self._running else self._frozen.matrix()
        return self._matrix + features.T @ features, frozen

    def _check_factors(self, saved: Fields) -> None:
        """Refuse factors that belong to another matrix or to other rounds, by products with one vector."""
        saved.require(is_symmetric(self._matrix), "matrix must be symmetric with a positive diagonal")
        root, probe = np.sqrt(np.diagonal(self._matrix)), probe_of(self.parameters)
        same = self._running.is_of(self._matrix @ probe, probe, root)
        saved.require(same, "running must be the factor of matrix")
        pending, solved, probe = self._pending.view, self._solved.view, probe_of(len(self._pending))
        squares = np.einsum("ij,ij->i", solved, solved)
        off = np.abs(probe @ pending - self._running.product(probe @ solved))
        near = np.isfinite(off) & (off <= CLOSE * root * (np.sqrt(squares) @ probe))
        saved.require(bool(near.all()), "solved must belong to pending")
        same = self._factor.is_of(solved @ (probe @ solved) + probe, probe, np.sqrt(1 + squares))
        saved.require(same, "factor must be that of the pending rounds")
