"""How long a decision takes in each form, and how many rounds an exact one stays fast.

    K   arms     p   parameters    t   rounds    c   numbers in one round's factors    r   points of a sketch

    seconds = overhead + operations/rate + bytes/reads,    operations as `cost.price` counts them, for K arms

When a policy leaves the exact form must not depend on what else the machine was doing: the same seed gives the same
decisions. So this is worked out with the rates of a nominal machine, which a policy keeps for life and in its file.
What this machine does is measured once in a process, in a few milliseconds, and rounded down to powers of 2;
`policy.cost` tells seconds by that.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from functools import cache
from math import floor, isqrt, log2
from typing import Any

import numpy as np

from rarely.core.covariance.cost import Widths, price
from rarely.core.covariance.growing_cholesky import GrowingCholesky
from rarely.core.saving.fields import Fields

OVERHEAD = 0.0006
"""Seconds of a decision that do not depend on the form: reading contexts, the network, the choice."""
ROWS, COLUMNS, NUMBERS, REPEATS = 512, 8, 2**20, 12
"""Of the factor, its right-hand sides and the array by which rates are measured, and how often."""
FAR = 2**62


@dataclass(frozen=True, slots=True)
class Rates:
    """What a machine does in a second."""

    operations: float
    """Multiplications with additions, of a solve for the arms of one decision."""
    reads: float
    """Bytes that come from memory."""


NOMINAL = Rates(2.0**33, 2.0**34)
"""A core of a common server: 8.6·10⁹ multiplications and 17 GB a second."""


@cache
def rates() -> Rates:
    """Of this machine, measured at the first call."""
    factor = GrowingCholesky.of(np.eye(ROWS))[0]
    columns, numbers = np.ones((ROWS, COLUMNS)), np.ones(NUMBERS)
    operations = ROWS * ROWS * COLUMNS / 2 / _shortest(lambda: factor.solve(columns, ROWS))
    reads = 8 * NUMBERS / _shortest(lambda: numbers.sum())
    return Rates(_power(operations), _power(reads))


def _shortest(work: Any) -> float:
    best = 1.0
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return max(best, 1e-9)


def _power(rate: float) -> float:
    """The power of 2 below."""
    return float(2 ** floor(log2(rate)))


@dataclass(frozen=True, slots=True)
class Latency:
    """What a decision may take, and what is known about how long it takes."""

    seconds: float
    arms: int | None
    """K, the most so far or as was said; None before any decision."""
    rates: Rates

    def among(self, arms: int) -> Latency:
        """The same for decisions with so many arms."""
        return Latency(self.seconds, arms, self.rates)

    def decision(self, kind: str, widths: Widths, rounds: int, arms: int, size: int = 0) -> float:
        """Seconds of one decision in that form after so many rounds."""
        p, c, t = sum(o * i for o, i in widths), sum(o + i for o, i in widths), rounds
        match kind:
            case "dual":
                operations, kept = arms * (t * t // 2 + 2 * c * t), 4 * t * t + 8 * c * t
            case "primal":
                operations, kept = arms * (p * p // 2 + p), 4 * p * p
            case "sketched":
                operations, kept = arms * (2 * size * size + 2 * c * size), 32 * size * size
            case _:
                operations, kept = arms * price(kind, widths, rounds).flops, price(kind, widths, rounds).bytes // 3
        return OVERHEAD + operations / self.rates.operations + kept / self.rates.reads

    def allows(self, kind: str, widths: Widths, rounds: int) -> bool:
        """Whether a decision in that form keeps to it; before K is known, whether it may."""
        return self.arms is None or self.decision(kind, widths, rounds, self.arms) <= self.seconds

    def dual_rounds(self, widths: Widths) -> int:
        """Rounds after which a decision in the t×t form takes too long; `FAR` before K is known."""
        if self.arms is None:
            return FAR
        c = sum(o + i for o, i in widths)
        # a·t² + b·t ≤ s
        a = self.arms / 2 / self.rates.operations + 4 / self.rates.reads
        b = 2 * c * self.arms / self.rates.operations + 8 * c / self.rates.reads
        left = max(self.seconds - OVERHEAD, 0.0)
        root = (-b + (b * b + 4 * a * left) ** 0.5) / (2 * a)
        # Rounded down to a power of √2, so that rates that differ a little do not matter.
        return isqrt(2 ** (max(1, int(root) ** 2).bit_length() - 1))

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @classmethod
    def restored(cls, saved: Fields) -> Latency:
        """The saved value."""
        with saved:
            seconds = saved.number("seconds", above=0)
            arms = None if saved.is_null("arms") else saved.whole("arms", least=1)
            with saved.inner("rates") as found:
                measured = Rates(found.number("operations", above=0), found.number("reads", above=0))
        return cls(seconds, arms, measured)
