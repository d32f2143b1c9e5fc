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

from rarely.core.errors import InvalidContexts, check_positive, check_whole
from rarely.core.inputs.rewards import read_rewards
from rarely.core.types import Array
from rarely.theory.log_det import Tell, bracketed, exact, exact_bytes
from rarely.theory.ntk import NTK, Directions, KernelKind, read_contexts

INSIDE = 1e-6
"""Part of h, in units of its contexts' norms, outside the range of H up to which it is rounding."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """d̃ between its bounds, which are the value itself where it was computed exactly.

    Examples
    --------
    >>> import numpy as np
    >>> from rarely.theory import effective_dimension
    >>> found = effective_dimension(np.random.default_rng(0).random((20, 2)), ridge=1.0)
    >>> found.exact, found.lower <= found.value <= found.upper
    (True, True)
    """

    value: float
    lower: float
    upper: float
    log_det: float
    """log det(I + H/λ)."""
    count: int
    """TK, the contexts."""
    confidence: float
    """The probability with which d̃ lies between the bounds: 1 where they come without sampling."""
    exact: bool
    """Whether the whole matrix was used."""


def effective_dimension(
    contexts: Any,
    *,
    ridge: float,
    depth: int = 2,
    kind: KernelKind = "definition",
    seed: int = 0,
    memory_limit: int = 2**30,
    progress: Tell | None = None,
) -> Dimension:
    """d̃ of (n, d) contexts, Definition 2: exact where the n×n matrix fits the limit, else between bounds.

    `theory.log_det` says what is certain of the bounds. `kind` "definition" is the paper's H; "network" the limit of
    our networks, for which Lemma 2 bounds their log det.

    Parameters
    ----------
    contexts
        (n, d): those of all arms of all rounds.
    ridge, depth
        λ, and the number of layers L.
    kind
        "definition" or "network", as above.
    seed
        Of the random vectors by which the bounds are found.
    memory_limit
        Bytes that the computation may take.
    progress
        Called with a line of text for each stage.

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
    check_whole("seed", seed, 0)
    kernel, n = NTK(depth, kind), len(x)
    if not n:
        raise InvalidContexts("the dimension is that of at least one context; got none.")
    fits = exact_bytes(n) <= memory_limit
    if fits:
        found = exact(kernel, x, ridge)
    else:
        found = bracketed(kernel, x, ridge, memory_limit, seed, progress or (lambda text: None))
    # log(1 + n/λ) for any λ, however small
    unit = float(np.logaddexp(0.0, math.log(n) - math.log(ridge)))
    return Dimension(
        value=found.value / unit,
        lower=found.lower / unit,
        upper=found.upper / unit,
        log_det=found.value,
        count=n,
        confidence=found.confidence,
        exact=fits,
    )


def reward_norm(contexts: Any, rewards: Any, *, depth: int = 2, kind: KernelKind = "definition") -> float:
    """√(2hᵀH⁻¹h), the least S of Theorem 1, for the expected rewards h of (n, d) contexts.

    Parameters
    ----------
    contexts
        (n, d).
    rewards
        (n,): the expected reward of each.
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
    if np.linalg.norm(parts[~kept]) > INSIDE * np.linalg.norm(parts):
        return math.inf
    return float(largest * math.sqrt(2 * float(np.sum(parts[kept] ** 2 / values[kept]))))
