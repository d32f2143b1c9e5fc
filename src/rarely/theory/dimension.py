"""How much there is to learn: the effective dimension d̃ of a set of contexts, and S of a reward function on it.

    d̃ = log det(I + H/λ)/log(1 + TK/λ)      Definition 2, H the kernel of all TK contexts
    S ≥ √(2hᵀH⁻¹h)                          Theorem 1, h the expected rewards of the same contexts

Repeated contexts, or parallel ones, make H singular. d̃ does not mind: it counts them as the direction that they
share, whose eigenvalue grows with each. S then takes the inverse on the range of H, which gives what the distinct
contexts alone would give, as long as repeated contexts have one reward (parallel ones: rewards in proportion); with
different rewards no function fits, and S is infinite.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from rarely.core.errors import InvalidContexts, InvalidReward, check_positive, check_whole
from rarely.core.history import read_rewards
from rarely.core.types import Array
from rarely.theory.log_det import LogDet, Tell, bracketed, exact
from rarely.theory.ntk import NTK, KernelLimit, read_contexts

MOST_COLUMNS = 2000
INSIDE = 1e-6
"""Part of ‖h‖ outside the range of H up to which it is rounding."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """d̃ between its bounds, which are the value itself where it was computed exactly."""

    value: float
    lower: float
    upper: float
    log_det: float
    """log det(I + H/λ)."""
    count: int
    """TK, the contexts."""
    confidence: float
    """The probability with which d̃ lies between the bounds: 1 where they come without sampling."""

    @property
    def exact(self) -> bool:
        """Whether the whole matrix was used."""
        return self.lower == self.upper


def effective_dimension(
    contexts: Any,
    *,
    ridge: float,
    depth: int = 2,
    limit: KernelLimit = "definition",
    seed: int = 0,
    memory_limit: int = 2**30,
    progress: Tell | None = None,
) -> Dimension:
    """d̃ of (n, d) contexts, exact where two n×n matrices fit the limit, else between bounds (`theory.log_det`).

    >>> round(effective_dimension(np.eye(3), ridge=1.0).value, 3)
    1.95
    >>> repeated = effective_dimension(np.ones((3, 2)), ridge=1.0)
    >>> bool(np.isclose(repeated.log_det, np.log(1 + 3 * 3.0)))
    True
    """
    x = read_contexts(contexts)
    check_positive("ridge", ridge, "because H is divided by it")
    check_whole("memory_limit", memory_limit, 1)
    kernel, n = NTK(depth, limit), len(x)
    if not n:
        raise InvalidContexts("the dimension is that of at least one context; got none.")
    if 16 * n * n <= memory_limit:
        found = exact(kernel, x, ridge)
    else:
        rank = max(1, min(MOST_COLUMNS, n, memory_limit // (16 * n)))
        found = bracketed(kernel, x, ridge, rank, seed, progress or (lambda text: None))
    return dimension_of(found, n, ridge)


def dimension_of(found: LogDet, count: int, ridge: float) -> Dimension:
    """d̃ from a log determinant over so many contexts."""
    unit = math.log1p(count / ridge)
    return Dimension(
        value=found.value / unit,
        lower=found.lower / unit,
        upper=found.upper / unit,
        log_det=found.value,
        count=count,
        confidence=found.confidence,
    )


def reward_norm(rewards: Any, contexts: Any, *, depth: int = 2, limit: KernelLimit = "definition") -> float:
    """√(2hᵀH⁻¹h), the least S of Theorem 1, for the expected rewards h of (n, d) contexts.

    >>> round(reward_norm([1.0, 1.0], np.eye(2)), 3)
    1.483
    >>> round(reward_norm([1.0, 1.0, 1.0], [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]), 3)
    1.483
    >>> reward_norm([1.0, 0.0], np.ones((2, 2)))
    inf
    """
    x = read_contexts(contexts)
    h = read_rewards(rewards, len(x))
    values, vectors = np.linalg.eigh(NTK(depth, limit).matrix(x))
    kept = values > len(x) * np.finfo(np.float64).eps * max(float(values[-1]), 0.0)
    parts: Array = vectors.T @ h
    if np.linalg.norm(parts[~kept]) > INSIDE * np.linalg.norm(h):
        return math.inf
    square = float(np.sum(parts[kept] ** 2 / values[kept]))
    if not math.isfinite(square):
        raise InvalidReward("rewards must be small enough for their squares to be finite.")
    return math.sqrt(2 * square)
