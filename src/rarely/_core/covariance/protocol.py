"""The matrix Z of past features, and how unsure it leaves us about a new one.

    Z_t   (implicit)  (p, p)  λI + Σ_{s<t} φ_s φ_sᵀ, each φ_s at the weights of its own version
    φ     factors     (p,)    g(x; θ_b)/√m, held as (a, δ) per layer
    λ     ridge       ()      Z_1 = λI, λ > 0
    v     variances   (n,)    φ_iᵀ Z⁻¹ φ_i of n candidates, Z frozen at the batch's start or running
    ω     unit        ()      multiplies √v: bonuses are β·ω·√v
          log_det     ()      log det Z_t − log det λI of the running Z

Two matrices in one object: the *frozen* one scores, unless the caller asks for the *running* one, which grows with
every round and feeds the determinant rule. They part when a round is accepted and meet again at `freeze`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from rarely._core.covariance.cost import Limit, Widths
from rarely._core.errors import InvalidInput
from rarely._core.growable_array import shallow
from rarely._core.model.features import Factors
from rarely._core.saving.fields import Fields
from rarely._core.types import Array, Arrays

CANCELLED = 1e-4
"""A difference below this part of what it was subtracted from is computed in another way, where there is one."""


@dataclass(slots=True, eq=False)
class Candidates:
    """Features measured against the frozen matrix, or the running one."""

    factors: Factors
    variances: Array
    """(n,): φᵀZ⁻¹φ under that matrix."""
    solved: Array | None = None
    """(·, n): what a form would have to compute again if the candidate is chosen."""
    minuends: Array | None = None
    """(n,): what v was subtracted from, to which its rounding is relative; None where v is not a difference."""

    def __getitem__(self, rows: Any) -> Candidates:
        solved = None if self.solved is None else self.solved[:, rows]
        minuends = None if self.minuends is None else self.minuends[rows]
        return Candidates(self.factors[rows], self.variances[rows], solved, minuends)

    @property
    def rounding_scale(self) -> Array:
        """(n,): v, or what it was subtracted from."""
        return self.variances if self.minuends is None else self.minuends


@dataclass(slots=True, eq=False)
class Proposal:
    """n rounds measured on top of the running matrix, not yet part of it."""

    factors: Factors
    log_dets: Array
    """(n,): log det Z − log det λI after each of the rounds."""
    kept: Any = None
    """What a form wants to keep of the measuring."""


class Covariance(ABC):
    """One way of holding Z.

    A form has a name, `kind`, a constructor with these arguments, and six methods: `measure`, `propose`, `accept`,
    `freeze` (which calls this one), `state` and `read`. `fork` is shallow, so `accept` replaces arrays and does not
    change them in place. `rarely.testing.check_covariance` compares a form with the dense matrix.
    """

    kind: ClassVar[str]
    exact: ClassVar[bool] = False
    """Whether v and log det are those of the full Z, rounding aside."""
    additive: ClassVar[bool] = False
    """Whether a round adds φφᵀ to the matrix and nothing else; only then is there a `cross`."""

    rounds: int = 0
    """Features in the running matrix."""
    log_det: float = 0.0
    """log det Z − log det λI of the running matrix,"""
    frozen_log_det: float = 0.0
    """and of the frozen one."""
    running_unit: float = 1.0
    """ω of √v under the running matrix; other than 1 only after `CovarianceFactory.rescale_bonuses`."""
    frozen_unit: float = 1.0
    """ω under the frozen one, which lacks the rounds of the batch and may have another scale."""

    def __init__(self, widths: Widths, ridge: float, limit: Limit) -> None:
        self.widths, self.ridge, self.limit = widths, ridge, limit

    @property
    def jitters(self) -> int:
        """Return how often rounding had to be mended; each time was announced by a `JitterWarning`."""
        return 0

    def block(self) -> int:
        """Return how many candidates to score at a time."""
        return 1024

    @abstractmethod
    def measure(self, factors: Factors, *, running: bool = False) -> Candidates:
        """Measure features against the frozen matrix, or the running one.

        The running one may first have to take in the rounds accepted last: where others read Z too, measure a `fork`.
        """

    def cross(self, one: Candidates, others: Candidates) -> Array:
        """Return φᵀZ⁻¹φ' of one candidate with n others, (n,), all measured together against the running matrix."""
        raise InvalidInput(
            f"cross terms need a form to which a round adds φφᵀ and nothing else; {self.kind!r} changes by more. "
            "Accept the round with propose and accept, and measure the others again."
        )

    @abstractmethod
    def propose(self, chosen: Candidates) -> Proposal:
        """Measure rounds one after another on top of the running matrix, which stays as it was."""

    @abstractmethod
    def accept(self, proposal: Proposal, count: int) -> None:
        """Make the first `count` rounds of the latest proposal part of the running matrix."""

    def freeze(self) -> None:
        """Make the frozen matrix equal to the running one."""
        self.frozen_log_det, self.frozen_unit = self.log_det, self.running_unit

    def fork(self) -> Self:
        """Return a copy to work on; the original stays valid as long as the fork is kept or dropped whole."""
        return shallow(self)

    @abstractmethod
    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return numbers and arrays from which `read` makes the same object, bit for bit."""

    @abstractmethod
    def read(self, saved: Fields) -> None:
        """Take over a saved state."""


def prior_variances(factors: Factors, ridge: float) -> Array:
    """Return ‖φ‖²/λ, the variance before any data; no later one is above it."""
    return np.asarray(factors.squared_norms / ridge)
