"""The matrix Z of past features, and how unsure it leaves us about a new one.

    Z_t   (implicit)  (p, p)  λI + Σ_{s<t} φ_s φ_sᵀ, each φ_s at the weights of its own version
    φ     factors     (p,)    g(x; θ_b)/√m, held as (a, δ) per layer
    λ     ridge       ()      Z_1 = λI, λ > 0
    v     variances   (n,)    φ_iᵀ Z⁻¹ φ_i of n candidates, Z frozen at the batch's start or running
          log_det     ()      log det Z_t − log det λI of the running Z

Two matrices in one object: the *frozen* one scores, unless the caller asks for the *running* one, which grows with
every round and feeds the determinant rule. They part when a round is accepted and meet again at `freeze`.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, Self

import numpy as np

from rarely.core.errors import InvalidInput, RoundingWarning
from rarely.core.model.features import Factors
from rarely.core.types import Array, Arrays

FAR = 2**62
"""More rounds than anyone will see."""
DIGITS_LOST = 1e-13
"""λv below this part of ‖φ‖² is mostly rounding where it is a difference, and may come out negative."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Features measured against the frozen matrix, or the running one."""

    factors: Factors
    variances: Array
    """(n,): φᵀZ⁻¹φ under that matrix."""
    solved: Array | None = None
    """(·, n): what a form would have to compute again if the candidate is chosen."""

    def __getitem__(self, rows: Any) -> Candidates:
        solved = None if self.solved is None else self.solved[:, rows]
        return Candidates(self.factors[rows], self.variances[rows], solved)

    def unsolved(self) -> Candidates:
        """The same without what was solved for them."""
        return Candidates(self.factors, self.variances)


@dataclass(frozen=True, slots=True)
class Proposal:
    """n rounds measured on top of the running matrix, not yet part of it."""

    factors: Factors
    log_dets: Array
    """(n,): log det Z − log det λI after each of the rounds."""
    rows: Array
    """What a form wants to keep of the measuring; its own business."""


@dataclass(frozen=True, slots=True)
class ErrorBound:
    """How far a form can be from the full matrix: never farther, but for the rounding of what it computes.

    That rounding is a small multiple of ε·cond(Z) of v. What a sketch drops is part of the bound, together with what
    rounding can hide of it.

    Examples
    --------
    >>> from rarely import LinUCB
    >>> LinUCB(dim=2).error_bound  # an exact form
    ErrorBound(ratio=1.0, log_det=0.0)
    """

    ratio: float
    """1 + c: v lies between v~/(1 + c) and (1 + c)·v~ for every candidate, v~ being what is measured."""
    log_det: float
    """The most by which `log_det` can be off."""


EXACT = ErrorBound(1.0, 0.0)


class Covariance(Protocol):
    """One way of holding Z."""

    @property
    def kind(self) -> str:
        """ "dual", "primal", "diagonal", "last_layer" or "sketched"."""

    @property
    def rounds(self) -> int:
        """Features in the running matrix."""

    @property
    def log_det(self) -> float:
        """log det Z − log det λI, running."""

    @property
    def frozen_log_det(self) -> float:
        """The same of the frozen matrix."""

    @property
    def jitters(self) -> int:
        """How often rounding had to be mended; each was announced by a `JitterWarning`."""

    @property
    def error_bound(self) -> ErrorBound | None:
        """Of the running matrix, and so of the frozen one; rounding aside. None where none is known."""

    @property
    def additive(self) -> bool:
        """Whether a round adds φφᵀ to the matrix and nothing else; only then is there a `cross`."""

    @property
    def lasts(self) -> int:
        """After how many more rounds it may change its form, at least 1; `FAR` if it never does."""

    def block(self) -> int:
        """How many candidates are well scored at a time."""

    def measure(self, factors: Factors, *, running: bool = False) -> Candidates:
        """Measure features against the frozen matrix, or the running one."""

    def cross(self, one: Candidates, others: Candidates) -> Array:
        """φᵀZ⁻¹φ' of one candidate with n others, (n,), all measured together against the running matrix."""

    def propose(self, chosen: Candidates) -> Proposal:
        """Measure rounds one after another on top of the running matrix."""

    def accept(self, proposal: Proposal, count: int) -> None:
        """Make the first `count` rounds of the latest proposal part of the running matrix."""

    def freeze(self, ahead: int = 0) -> None:
        """Let the frozen matrix be what the running one is now, for at least `ahead` rounds if that is known."""

    def fork(self) -> Self:
        """A copy to work on; the original stays valid as long as the fork is kept or dropped whole."""

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Numbers and arrays from which `restore` makes the same object, bit for bit."""

    def restore(self, numbers: dict[str, Any], arrays: Arrays) -> None:
        """Take over a saved state."""


def prior_variances(factors: Factors, ridge: float) -> Array:
    """‖φ‖²/λ, the variance before any data; no later one is above it."""
    return np.asarray(factors.squared_norms / ridge)


def announce_rounding(left: Array, norms: Array) -> None:
    """Warn where λv came from a subtraction from ‖φ‖² that left no digits of it."""
    if (left < DIGITS_LOST * norms).any():
        warnings.warn(
            "a bonus is the difference of two numbers that agree to 13 digits: rounding has eaten it. Use a "
            "larger ridge, contexts of smaller norm, or covariance='primal'.",
            RoundingWarning,
            stacklevel=3,
        )


def refuse_cross(kind: str) -> NoReturn:
    """Refuse cross terms of a form that is not `additive`."""
    raise InvalidInput(
        f"cross terms need a form to which a round adds φφᵀ and nothing else; {kind!r} changes by more. Accept the "
        "round with propose and accept, and measure the others again."
    )
