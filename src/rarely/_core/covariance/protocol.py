"""The matrix Z of past features, and how unsure it leaves us about a new one.

    Z_t   (implicit)  (p, p)  λI + Σ_{s<t} φ_s φ_sᵀ, each φ_s at the weights of its own version
    φ     factors     (p,)    g(x; θ_b)/√m, held as (a, δ) per layer
    λ     ridge       ()      Z_1 = λI, λ > 0
    v     variances   (n,)    φ_iᵀ Z⁻¹ φ_i of n candidates, Z frozen at the batch's start or running
    ω     unit        ()      multiplies √v: bonuses are β·ω·√v
          log_det     ()      log det Z_t − log det λI of the running Z

Two matrices in one object: the *frozen* one scores, unless the caller asks for the *running* one, which grows with
every round and feeds the determinant rule. They part when a round is accepted and meet again at `freeze`.

What a form costs is known before anything is allocated. Bytes are those of the arrays kept; scoring adds blocks of a
fixed size, and growing may for a moment hold the factors twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from rarely._core.errors import InvalidInput, TooExpensive
from rarely._core.growable_array import shallow
from rarely._core.model.features import Factors
from rarely._core.parts import Registry
from rarely._core.saving.fields import Fields
from rarely._core.types import Array, Arrays

Widths = tuple[tuple[int, int], ...]  # (out_l, in_l) of the layers that features have
CANCELLED = 1e-4
"""A difference below this part of what it was subtracted from is computed in another way, where there is one."""
DEFAULT_LIMIT = 4 * 2**30
UNPLANNED_ROUNDS = 1000
"""Rounds at which a message compares the forms where no horizon is known: at none the dual form costs nothing."""
FORMS: Registry[Covariance] = Registry("covariance")  # every form of Z by its name, the package's and the user's


class RowCost(NamedTuple):
    """What the features of a round take in the dual form, where they are not one pair (a, δ) per layer."""

    numbers: int  # numbers stored per round
    products: int  # multiplications of an inner product

    @classmethod
    def of(cls, widths: Widths, row: RowCost | None) -> RowCost:
        """Return the cost of a row, given or that of one pair (a, δ) per layer."""
        return row or cls(*(sum(o + i for o, i in widths),) * 2)


@dataclass(frozen=True, slots=True)
class Price:
    """Memory kept, and the work for one arm's bonus at the end.

    `clock` is measured: microseconds of a decision among ten arms, with bonuses that follow the running Z, and what
    each operation adds to them. It is constant, so that what depends on it is the same on every machine;
    `benchmarks/prices.py` compares it with the machine at hand.

    Examples
    --------
    >>> from rarely import prices
    >>> print(prices(((10, 3), (1, 10)), rounds=1000)["primal"])
    primal (exact): 70.4 kB, 0.42 ms a decision
    """

    kind: str
    exact: bool
    bytes: int
    flops: int
    clock: tuple[float, float] = (400.0, 1.5e-3)

    @property
    def seconds(self) -> float:
        """Seconds of a decision among ten arms."""
        return 1e-6 * (self.clock[0] + self.clock[1] * self.flops)

    def __str__(self) -> str:
        how = "exact" if self.exact else "approximate"
        return f"{self.kind} ({how}): {in_bytes(self.bytes)}, {1e3 * self.seconds:.2g} ms a decision"


def prices(widths: Widths, rounds: int, row: RowCost | None = None) -> dict[str, Price]:
    """Return the price of every form of Z at that many rounds.

    Parameters
    ----------
    widths
        (out, in) of the network's layers, as `policy.network.shapes` has them.
    rounds
        t.
    row
        What a round of a model of your own takes, as `policy.model.row` has it.

    Examples
    --------
    >>> str(prices(((200, 10), (1, 200)), rounds=2000)["dual"])
    'dual (exact): 24.6 MB, 7 ms a decision'
    """
    exact_first = sorted(FORMS.items(), key=lambda item: (not item[1].exact, item[1].auto_rank or 0.0))
    return {name: form.price(widths, rounds, row) for name, form in exact_first}


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound on memory that a form asks before it allocates."""

    widths: Widths
    bytes: int = DEFAULT_LIMIT
    horizon: int | None = None
    row: RowCost | None = None

    def allows(self, kind: str, rounds: int) -> bool:
        """Return whether the form fits at that many rounds."""
        return self._price(kind, rounds).bytes <= self.bytes

    def check_rounds(self, kind: str, rounds: int) -> None:
        """Refuse a form that does not fit, with what the others would cost."""
        if self.allows(kind, rounds):
            return
        at = max(rounds, self.horizon or 0) or UNPLANNED_ROUNDS
        others = "; ".join(str(other) for name, other in prices(self.widths, at, self.row).items() if name != kind)
        raise TooExpensive(
            f"covariance {kind!r} must fit limits.memory = {in_bytes(self.bytes)}, but at {at} rounds it needs "
            f"{in_bytes(self._price(kind, at).bytes)}. The others: {others}. Choose one that fits by "
            "name, or raise limits.memory (memory_limit in with_covariance)."
        )

    def _price(self, kind: str, rounds: int) -> Price:
        return FORMS[kind].price(self.widths, rounds, self.row)


def in_bytes(count: int) -> str:
    """Format a number of bytes for people.

    >>> in_bytes(1_500_000)
    '1.5 MB'
    """
    value, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while value >= 1000 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.3g} {units[0]}"


@dataclass(slots=True, eq=False)
class Candidates:
    """Features measured against the frozen matrix, or the running one."""

    factors: Factors
    variances: Array  # (n,): φᵀZ⁻¹φ under that matrix
    solved: Array | None = None  # (·, n): what a form would have to compute again if the candidate is chosen
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
    log_dets: Array  # (n,): log det Z − log det λI after each of the rounds
    kept: Any = None  # what a form wants to keep of the measuring


class Covariance(ABC):
    """One way of holding Z.

    A form has a name, `kind`, a constructor with these arguments, a `price`, and six methods: `measure`, `propose`,
    `accept`, `freeze` (which calls this one), `state` and `read`. `fork` is shallow, so `accept` replaces arrays and
    does not change them in place. Its definition registers it: `covariance="its kind"` makes it, `prices` and messages
    list it, and files hold it. `rarely.testing.check_covariance` compares a form with the dense matrix.
    """

    kind: ClassVar[str]
    exact: ClassVar[bool] = False  # whether v and log det are those of the full Z, rounding aside
    additive: ClassVar[bool] = False
    """Whether a round adds φφᵀ to the matrix and nothing else; only then is there a `cross`."""
    takes_matrices: ClassVar[bool] = False  # whether it has a `take_part`
    takes_sums: ClassVar[bool] = False
    """Whether it has `contribution` and `with_contributions`, so that a campaign or a fleet may update it."""
    auto_rank: ClassVar[float | None] = None
    """Its place among the approximations that "auto" tries where Z becomes too large, the lowest first; None: it is
    used only by name."""

    def __init_subclass__(cls, *, by_name: bool = True) -> None:
        """Register a form under its `kind`, unless it is made for one kind of features and has no name of its own."""
        super().__init_subclass__()
        if cls.auto_rank is not None and not cls.takes_matrices:
            raise InvalidInput(f"{cls.__name__} has an auto_rank, so it must have take_part and takes_matrices = True.")
        if by_name and "kind" in vars(cls):
            if getattr(cls.price, "__isabstractmethod__", False):
                raise InvalidInput(
                    f"{cls.__name__} must have a price, so that limits.memory can be kept: a class method "
                    "price(widths, rounds, row=None) that returns a Price of bytes and operations."
                )
            FORMS.add(cls, cls.kind)

    rounds: int = 0  # features in the running matrix
    log_det: float = 0.0  # log det Z − log det λI of the running matrix
    frozen_log_det: float = 0.0  # log det Z − log det λI of the frozen matrix
    running_unit: float = 1.0
    """ω of √v under the running matrix; other than 1 only after `CovarianceFactory.rescale_bonuses`."""
    frozen_unit: float = 1.0  # ω under the frozen one, which lacks the rounds of the batch and may have another scale

    def __init__(self, widths: Widths, ridge: float, limit: Limit) -> None:
        self.widths, self.ridge, self.limit = widths, ridge, limit

    @classmethod
    @abstractmethod
    def price(cls, widths: Widths, rounds: int, row: RowCost | None = None) -> Price:
        """Return what Z takes after that many rounds, of features with these layers or, in the dual form, rows."""

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

    def add(self, factors: Factors) -> None:
        """Make rounds part of the running matrix, where log det after each of them is not asked for."""
        self.accept(self.propose(self.measure(factors)), len(factors))

    def freeze(self) -> None:
        """Make the frozen matrix equal to the running one."""
        self.frozen_log_det, self.frozen_unit = self.log_det, self.running_unit

    def take_over(self, past: Factors, jitters: int, frozen: int = 0) -> None:
        """Become the matrices of another form, this one being empty: of all features, the first ones frozen."""
        for start, end in ((0, frozen), (frozen, len(past))):
            for first in range(start, end, self.block()):
                self.add(past[first : min(first + self.block(), end)])
            if end == frozen:
                self.freeze()

    def take_part(self, running: Array, frozen: Array, rounds: int, jitters: int) -> None:
        """Become these p×p matrices as far as the form can hold them, this one being empty."""
        raise InvalidInput(f"Z in the form {self.kind!r} cannot be made of a matrix; it needs all features.")

    def contribution(self, factors: Factors) -> Array:
        """Return what `with_contributions` needs of n rounds: a sum over them, which adds up in any number of parts."""
        raise InvalidInput(f"Z in the form {self.kind!r} is not made of sums over rounds; it needs every round.")

    def with_contributions(self, total: Array, rounds: int) -> Self:
        """Return Z whose running matrix has these rounds too."""
        raise InvalidInput(f"Z in the form {self.kind!r} is not made of sums over rounds; it needs every round.")

    def fork(self) -> Self:
        """Return a copy to work on; the original stays valid as long as the fork is kept or dropped whole."""
        return shallow(self)

    def counts(self) -> dict[str, Any]:
        """Return rounds and both log det, for a `state`; `read_counts` takes them back."""
        return {"rounds": self.rounds, "log_det": self.log_det, "frozen_log_det": self.frozen_log_det}

    def read_counts(self, saved: Fields) -> None:
        """Take over what `counts` returned."""
        self.rounds = saved.whole("rounds")
        self.log_det, self.frozen_log_det = saved.number("log_det"), saved.number("frozen_log_det")

    @abstractmethod
    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return numbers and arrays from which `read` makes the same object, bit for bit."""

    @abstractmethod
    def read(self, saved: Fields) -> None:
        """Take over a saved state."""


def prior_variances(factors: Factors, ridge: float) -> Array:
    """Return ‖φ‖²/λ, the variance before any data; no later one is above it."""
    return np.asarray(factors.squared_norms / ridge)
