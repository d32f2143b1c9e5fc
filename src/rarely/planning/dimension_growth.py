"""How log det(I + H/λ) grows with contexts: effective dimension, how sure it is, and what it would be of more.

    n        count    contexts measured, K a round
    TK       wanted   contexts of the horizon
    ℓ(n)     log_det  log det(I + H/λ) of the first n contexts
    d̃        value    ℓ(n)/log(1 + n/λ), the effective dimension

Three things make it unsure. Where ℓ is approximated, its certified interval. Which rounds happened to be in the log:
the spread over random halves of the rounds, which is about the standard error of the whole (for a mean, the variance
between halves drawn without replacement is that of the whole). And contexts that nobody has seen. If rounds to come
are like those of the log, each adds less than those before, so a line through ℓ(n/2) and ℓ(n) in n is too high; and
dℓ/d log n, the degrees of freedom, do not fall, so a line in log n is too low. Between these the estimate is a power
of n through both points. A linear model's ℓ ends as rank·log n, so there the estimate is the line in log n, and above
it is one of slope rank. Beyond 100 times the contexts measured there are bounds and no estimate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from rarely._core.types import Array
from rarely.theory import Dimension, effective_dimension

HALVES = 6
NESTED = (8, 4, 2)
"""Parts of the rounds that growth is measured on, beside all of them."""
STANDARD_ERRORS = 2.0
"""Standard errors to both sides of an interval."""

MAX_EXTRAPOLATION = 100
"""Times the contexts measured, beyond which two points say nothing."""

Measure = Callable[[Array], Dimension]


@dataclass(frozen=True)
class Growth:
    """The effective dimension of a horizon's contexts, and what is known of it."""

    measured: Dimension
    spread: float
    """Standard deviation over random halves of the rounds, in units of d̃ of the whole."""
    curve: tuple[tuple[int, float], ...]
    """(n, ℓ(n)) of nested parts of the contexts."""
    wanted: int
    value: float
    """d̃ of the `wanted` contexts; extrapolated where these are more than were measured, NaN where by far."""
    lower: float
    upper: float

    @property
    def extrapolated(self) -> bool:
        """Whether more contexts are wanted than were measured."""
        return self.wanted > self.measured.count

    def describe(self) -> dict[str, Any]:
        return asdict(self) | {"extrapolated": self.extrapolated}


def neural_measure(ridge: float, depth: int, seed: int, memory_limit: int) -> Measure:
    """Measure by the limit of the policy's own networks, whose log det the B and q of theory are about."""
    return partial(effective_dimension, ridge=ridge, depth=depth, kind="network", seed=seed, memory_limit=memory_limit)


def linear_measure(ridge: float) -> Measure:
    """Measure by the linear kernel ⟨x, x'⟩: exact for any number of contexts, by det(I + XXᵀ/λ) = det(I + XᵀX/λ)."""

    def measure(contexts: Array) -> Dimension:
        matrix = np.eye(contexts.shape[1]) + contexts.T @ contexts / ridge
        log_det = 2 * float(np.log(np.diag(np.linalg.cholesky(matrix))).sum())
        value = log_det / math.log1p(len(contexts) / ridge)
        return Dimension(value, value, value, log_det, len(contexts), confidence=1.0, exact=True)

    return measure


def measure_growth(
    contexts: Array,
    wanted: int,
    ridge: float,
    measure: Measure,
    seed: int,
    progress: Callable[[int, int], None] = lambda done, of: None,
    *,
    linear: bool = False,
) -> Growth:
    """Measure on scaled contexts (n, K, d), n ≥ 2, of rounds in any order; extrapolate to `wanted` ≥ nK contexts."""
    rounds, steps = len(contexts), len(NESTED) + 1 + HALVES
    done = 0
    progress(done, steps)

    def of(part: Array) -> Dimension:
        nonlocal done
        found = measure(part.reshape(-1, contexts.shape[-1]))
        done += 1
        progress(done, steps)
        return found

    measured = [of(contexts[: max(1, rounds // part)]) for part in (*NESTED, 1)]
    generator = np.random.default_rng((seed, 2))
    halves = [of(contexts[generator.permutation(rounds)[: rounds // 2]]).log_det for _ in range(HALVES)]
    whole, half = measured[-1], measured[-2]
    relative = float(np.std(halves, ddof=1) / np.mean(halves))
    low = value = high = whole.value
    if wanted > whole.count:
        scale, risen = math.log1p(wanted / ridge), whole.log_det - half.log_det
        doublings = math.log(wanted / whole.count) / math.log(whole.count / half.count)
        low = (whole.log_det + doublings * risen) / scale
        value = whole.log_det * (whole.log_det / half.log_det) ** doublings / scale
        high = (whole.log_det + (wanted - whole.count) * risen / (whole.count - half.count)) / scale
        if linear:
            rank = int(np.linalg.matrix_rank(contexts.reshape(-1, contexts.shape[-1])))
            steep = (whole.log_det + rank * math.log(wanted / whole.count)) / scale
            # No kernel of that rank has more dimensions, unless its contexts are longer than 1.
            most = max(rank, whole.value)
            low, high = min(low, most), min(high, steep, most)
            value = low
        if wanted > MAX_EXTRAPOLATION * whole.count:
            value = math.nan
    doubt, curve = 1 + STANDARD_ERRORS * relative, tuple((one.count, one.log_det) for one in measured)
    lower, upper = low * (whole.lower / whole.value) / doubt, high * (whole.upper / whole.value) * doubt
    return Growth(whole, relative * whole.value, curve, wanted, value, lower, upper)
