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

from rarely.extend import Array, in_bytes
from rarely.extend.checks import InvalidContexts, TooExpensive, check_positive, check_whole, read_rewards
from rarely.extend.provisional import NTK, Directions, KernelKind, read_contexts

MAX_OUTSIDE = 1e-6  # part of h, in units of its contexts' norms, outside the range of H up to which it is rounding


@dataclass(frozen=True, slots=True)
class Dimension:
    """The effective dimension d̃ of a set of contexts.

    Examples
    --------
    >>> import numpy as np
    >>> from rarely.theory import effective_dimension
    >>> found = effective_dimension(np.random.default_rng(0).random((20, 2)), ridge=1.0)
    >>> found.count, found.value < 3
    (20, True)
    """

    value: float
    """The effective dimension d̃."""
    log_det: float
    """The log determinant of I + H/λ."""
    count: int
    """TK, the contexts."""


def effective_dimension(
    contexts: Any, *, ridge: float, depth: int = 2, kind: KernelKind = "definition", memory_limit: int = 2**30
) -> Dimension:
    """Return d̃ of (n, d) contexts, Definition 2.

    `kind` "definition" is the paper's H; "network" the limit of our networks, for which Lemma 2 bounds their log det.
    Raises `TooExpensive` if the n×n matrix does not fit the limit.

    Parameters
    ----------
    contexts
        (n, d): those of all arms of all rounds, or a sample of them.
    ridge, depth
        λ, and the number of layers L.
    kind, memory_limit
        "definition" or "network", as above; bytes that the computation may take, 24 for each pair of contexts.

    Examples
    --------
    >>> round(effective_dimension(np.eye(3), ridge=1.0).value, 3)
    1.95
    >>> repeated = effective_dimension(np.ones((3, 2)), ridge=1.0)
    >>> bool(np.isclose(repeated.log_det, np.log(1 + 3 * 3.0)))
    True
    """
    x = read_contexts(contexts)
    check_positive("ridge", ridge, "because H is divided by it")
    check_whole("memory_limit", memory_limit, 1)
    kernel, n = NTK(depth, kind), len(x)
    if not n:
        raise InvalidContexts("the dimension is that of at least one context; got none.")
    needed = 24 * n * n  # the matrix, LAPACK's copy of it and the factor
    if needed > memory_limit:
        raise TooExpensive(
            f"the dimension of {n:,} contexts needs {in_bytes(needed)}, but memory_limit is {in_bytes(memory_limit)}; "
            "raise it, or take a sample of the contexts."
        )
    log_det = _log_det(kernel.matrix(x), ridge)
    # log(1 + n/λ) for any λ, however small
    unit = float(np.logaddexp(0.0, math.log(n) - math.log(ridge)))
    return Dimension(log_det / unit, log_det, n)


def reward_norm(contexts: Any, rewards: Any, *, depth: int = 2, kind: KernelKind = "definition") -> float:
    """Return √(2hᵀH⁻¹h), the least S of Theorem 1, for the expected rewards h of (n, d) contexts.

    Parameters
    ----------
    contexts, rewards
        (n, d); (n,): the expected reward of each.
    depth, kind
        As in `effective_dimension`.

    Examples
    --------
    >>> round(reward_norm(np.eye(2), [1.0, 1.0]), 3)
    1.483
    >>> round(reward_norm([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], [1.0, 1.0, 1.0]), 3)
    1.483
    >>> reward_norm(np.ones((2, 2)), [1.0, 0.0])
    inf
    """
    x = read_contexts(contexts)
    h = read_rewards(rewards, len(x))
    # h²/‖x‖² and the kernel of directions: so short contexts weigh as much as long ones.
    unit, norms = Directions.of(x)
    if np.any(h[norms == 0]):
        return math.inf  # every function of this kernel is 0 at 0
    unit, h = unit[norms > 0], h[norms > 0] / norms[norms > 0]
    largest = float(np.abs(h).max(initial=0.0))
    if largest == 0:
        return 0.0
    values, vectors = np.linalg.eigh(NTK(depth, kind).matrix(unit))
    kept = values > len(h) * np.finfo(np.float64).eps * values[-1]
    parts: Array = vectors.T @ (h / largest)
    if np.linalg.norm(parts[~kept]) > MAX_OUTSIDE * np.linalg.norm(parts):
        return math.inf
    return float(largest * math.sqrt(2 * float(np.sum(parts[kept] ** 2 / values[kept]))))


def _log_det(matrix: Array, ridge: float) -> float:
    """Return log det(I + H/λ). Eigenvalues that are rounding beside the largest count as 0."""
    size = float(np.trace(matrix))
    if 1e-10 * size < ridge < 1e3 * size / len(matrix):
        matrix /= ridge
        matrix.flat[:: len(matrix) + 1] += 1.0
        return float(2 * np.log(np.diagonal(np.linalg.cholesky(matrix))).sum())
    # where adding one to the other would lose the smaller
    values = np.linalg.eigvalsh(matrix)
    values = values[values > len(values) * np.finfo(np.float64).eps * values[-1]]
    return float(np.logaddexp(0.0, np.log(values) - math.log(ridge)).sum())
