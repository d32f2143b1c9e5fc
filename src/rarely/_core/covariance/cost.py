"""What each form of Z costs, known before anything is allocated.

Bytes are those of the arrays kept; scoring adds blocks of a fixed size, and growing may for a moment
hold the factors twice.

p  parameters    m  last layer's inputs    t  rounds    c  numbers in one round's factors

form         bytes                        operations for one arm's bonus at round t
dual         8(t²/2 + 128t + ct)          t² + 2ct
primal       8·(3p² + 2.5p²)              p²           (Z and two factors; a block of pending rounds)
diagonal     8·3p                         3p
last_layer   8·5.5m²                      m²
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from rarely._core.errors import InvalidInput, TooExpensive

Widths = tuple[tuple[int, int], ...]


class RowCost(NamedTuple):
    """What the features of a round take in the dual form, where they are not one pair (a, δ) per layer."""

    numbers: int
    """c that is kept,"""
    products: int
    """and multiplications of an inner product."""


DEFAULT_LIMIT = 4 * 2**30
UNPLANNED_ROUNDS = 1000
"""Rounds at which a message compares the forms where no horizon is known: at none the dual form costs nothing."""
KINDS = ("dual", "primal", "diagonal", "last_layer")


@dataclass(frozen=True, slots=True)
class Price:
    """Memory kept, and the work for one arm's bonus at the end.

    Examples
    --------
    >>> from rarely import prices
    >>> print(prices(((10, 3), (1, 10)), rounds=1000)["primal"])
    primal (exact): 70.4 kB, 1.6e+03 operations an arm
    """

    kind: str
    exact: bool
    bytes: int
    flops: int

    def __str__(self) -> str:
        how = "exact" if self.exact else "approximate"
        return f"{self.kind} ({how}): {in_bytes(self.bytes)}, {self.flops:.2g} operations an arm"


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
    'dual (exact): 24.6 MB, 5.6e+06 operations an arm'
    """
    return {kind: price(kind, widths, rounds, row) for kind in KINDS}


def price(kind: str, widths: Widths, rounds: int, row: RowCost | None = None) -> Price:
    """Return the price of one form."""
    p, (c, products) = sum(o * i for o, i in widths), row or RowCost(*(sum(o + i for o, i in widths),) * 2)
    m, t = widths[-1][1], rounds
    match kind:
        case "dual":
            return Price(kind, True, 8 * (t * t // 2 + 128 * t + c * t), t * t + 2 * products * t)
        case "primal":
            return Price(kind, True, 44 * p * p, p * p)
        case "diagonal":
            return Price(kind, False, 24 * p, 3 * p)
        case "last_layer":
            return Price(kind, False, 44 * m * m, m * m)
        case _:
            raise InvalidInput(
                f"covariance {kind!r} must have a price, so that limits.memory can be kept. Add its bytes and "
                "operations to `price`, and its name to `KINDS`, in rarely/_core/covariance/cost.py."
            )


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound on memory that a form asks before it allocates."""

    widths: Widths
    bytes: int = DEFAULT_LIMIT
    horizon: int | None = None
    row: RowCost | None = None

    def allows(self, kind: str, rounds: int) -> bool:
        """Return whether the form fits at that many rounds."""
        return price(kind, self.widths, rounds, self.row).bytes <= self.bytes

    def check_rounds(self, kind: str, rounds: int) -> None:
        """Refuse a form that does not fit, with what the others would cost."""
        if self.allows(kind, rounds):
            return
        at = max(rounds, self.horizon or 0) or UNPLANNED_ROUNDS
        others = "; ".join(str(other) for name, other in prices(self.widths, at, self.row).items() if name != kind)
        raise TooExpensive(
            f"covariance {kind!r} must fit limits.memory = {in_bytes(self.bytes)}, but at {at} rounds it needs "
            f"{in_bytes(price(kind, self.widths, at, self.row).bytes)}. The others: {others}. Choose one that fits by "
            "name, or raise limits.memory (memory_limit in with_covariance)."
        )


def in_bytes(count: int) -> str:
    """Format a number of bytes for people.

    >>> in_bytes(1_500_000)
    '1.5 MB'
    """
    value, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while value >= 1000 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.3g} {units[0]}"
