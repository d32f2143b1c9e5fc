"""How much there is to learn: the effective dimension d̃ of a set of contexts, and S of a reward function on it.

    d̃ = log det(I + H/λ)/log(1 + TK/λ)      Definition 2, H the kernel of all TK contexts
    S ≥ √(2hᵀH⁻¹h)                          Theorem 1, h the expected rewards of the same contexts

Repeated contexts, or parallel ones, make H singular. d̃ does not mind: it counts them as the direction that they
share, whose eigenvalue grows with each. S then takes the inverse on the range of H, which gives what the distinct
contexts alone would give, as long as repeated contexts have one reward (parallel ones: rewards in proportion); with
different rewards no function fits, and S is infinite.

Where H is too large to be held, log det(I + H/λ) is found between bounds that are certain:

    H   (n, n)  never written out                  Λ, Q  (r), (r, n)   H ⪰ QᵀΛQ, from r columns of it
    E           H − QᵀΛQ ⪰ 0, its diagonal known    A                  I + QᵀΛQ/λ
    G           A^{−½}(E/λ)A^{−½} ⪰ 0              log det(I + H/λ) = log det A + tr log(I + G)

The first term is exact. Of the second it is always certain that

    0 ≤ tr log(I + G) ≤ log det(I + E/λ) ≤ Σ_i log(1 + E_ii/λ)                                   (Hadamard)

and where that is too wide, m Gaussian vectors v narrow it: vᵀ log(I + G) v lies between the quadratures of
Gauss–Radau and Gauss that k steps of Lanczos give (Golub and Meurant, 1994), for the even derivatives of log(1 + x)
are negative and the odd ones positive; and the mean over v is near the trace by the tail of a weighted χ²
(Laurent and Massart, 2000, Lemma 1), with probability at least 1 − δ for any n and m:

    −2f√(x/m) ≤ mean − trace ≤ 2f√(x/m) + 2s·x/m,   x = log(2/δ)
    f² = tr log²(I + G) ≤ Σ_i ψ(E_ii/λ)            s = ‖log(I + G)‖ ≤ log(1 + tr E/λ)

where ψ(x) ≥ log²(1 + x) is increasing and concave: a chord from 0 up to where log²(1 + x)/x is highest, and log²
from there on. (G has no eigenvalue above that of E/λ in its order, and tr ψ(M) ≤ Σψ(M_ii) for a concave ψ.)

Nothing in this is an asymptotic statement; rounding is left aside.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rarely._core.covariance import in_bytes
from rarely._core.errors import InvalidContexts, TooExpensive, check_positive, check_whole
from rarely._core.inputs.history import read_rewards
from rarely._core.types import Array
from rarely.theory.ntk import NTK, Directions, KernelKind, read_contexts

MAX_OUTSIDE = 1e-6
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
    """Return d̃ of (n, d) contexts, Definition 2: exact where the n×n matrix fits the limit, else between bounds.

    `rarely.theory.dimension` says what is certain of the bounds. `kind` "definition" is the paper's H; "network" the
    limit of our networks, for which Lemma 2 bounds their log det.

    Parameters
    ----------
    contexts
        (n, d): those of all arms of all rounds.
    ridge, depth
        λ, and the number of layers L.
    kind, seed
        "definition" or "network", as above; of the random vectors by which the bounds are found.
    memory_limit, progress
        Bytes that the computation may take; called with a line of text for each stage.

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
    fits = 24 * n * n <= memory_limit  # the matrix, LAPACK's copy of it and the factor
    if fits:
        found = exact(kernel, x, ridge)
    else:
        found = bracketed(kernel, x, ridge, memory_limit, seed, progress or (lambda text: None))
    # log(1 + n/λ) for any λ, however small
    unit = float(np.logaddexp(0.0, math.log(n) - math.log(ridge)))
    value, lower, upper = found.value / unit, found.lower / unit, found.upper / unit
    return Dimension(value, lower, upper, log_det=found.value, count=n, confidence=found.confidence, exact=fits)


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


# --- log det(I + H/λ)

Tell = Callable[[str], None]
MAX_COLUMNS, BLOCK = 2000, 64
"""Columns of H in all, and at a time."""
PROBES, MIN_PROBES, FAILURE = 32, 8, 0.05
"""m, the least m, and δ."""
MAX_STEPS, ARRAYS_BESIDE = 24, 8
"""Of Lanczos, at most (it stops where quadrature no longer is what makes the bounds wide); arrays beside its own."""
NARROW_ENOUGH = 0.01
"""A bracket whose width is this part of its middle needs no sampling."""
KNEE, SLOPE = 3.92, 0.648
"""Where log²(1 + x)/x is highest, and how high, rounded up."""
ROUNDING = 1e-12
"""Part of H's largest diagonal entry, or eigenvalue, below which a remainder is left to E."""


@dataclass(frozen=True, slots=True)
class LogDet:
    """A log determinant between its bounds."""

    value: float
    lower: float
    upper: float
    confidence: float
    """The probability with which it lies between them: 1 where nothing was sampled."""


def exact(kernel: NTK, contexts: Array, ridge: float) -> LogDet:
    """Compute it from the whole matrix. Eigenvalues that are rounding beside the largest count as 0."""
    matrix = kernel.matrix(contexts)
    size = float(np.trace(matrix))
    if 1e-10 * size < ridge < 1e3 * size / len(matrix):
        matrix /= ridge
        matrix.flat[:: len(matrix) + 1] += 1.0
        value = float(2 * np.log(np.diagonal(np.linalg.cholesky(matrix))).sum())
    else:  # where adding one to the other would lose the smaller
        values = np.linalg.eigvalsh(matrix)
        values = values[values > len(values) * np.finfo(np.float64).eps * values[-1]]
        value = float(np.logaddexp(0.0, np.log(values) - math.log(ridge)).sum())
    return LogDet(value, value, value, 1.0)


def bracketed(kernel: NTK, contexts: Array, ridge: float, memory_limit: int, seed: int, tell: Tell) -> LogDet:
    """Bound it from some columns of H and a few products with it, in as much memory as is given."""
    share = Share.of(len(contexts), memory_limit)
    rng = np.random.default_rng(seed)
    values, directions = _low_rank(kernel, contexts, share, rng, tell)
    rest = _remainder(kernel.diagonal(contexts), values, directions)
    known = float(np.log1p(values / ridge).sum())
    ceiling = float(np.log1p(rest / ridge).sum())
    if ceiling <= NARROW_ENOUGH * known:
        return LogDet(known + ceiling / 2, known, known + ceiling, 1.0)
    below, above = tails(rest / ridge, share.probes)

    # In the span of `directions` A^{−½} is known, and elsewhere it is 1.
    shrink = 1 / np.sqrt(1 + values / ridge) - 1

    def root(v: Array) -> Array:
        return v + directions.T @ (shrink[:, None] * (directions @ v))

    def times(v: Array) -> Array:
        inner = root(v)
        product = _product(kernel, contexts, inner)
        product -= directions.T @ (values[:, None] * (directions @ inner))
        return root(product) / ridge

    probes = rng.normal(size=(len(contexts), share.probes))
    least, most = quadratures(times, probes, share.steps, (below + above) / 50, tell)
    upper = min(ceiling, most + above)
    lower = min(max(0.0, least - below), upper)
    middle = min(max((least + most) / 2, lower), upper)
    return LogDet(known + middle, known + lower, known + upper, 1 - FAILURE)


@dataclass(frozen=True, slots=True)
class Share:
    """How the memory is spent: half on columns of H, half on the vectors of Lanczos."""

    columns: int
    block: int
    probes: int
    steps: int

    @classmethod
    def of(cls, count: int, memory_limit: int) -> Share:
        """Divide the memory for `count` contexts."""
        half = memory_limit // (16 * count)  # numbers a context
        probes = min(PROBES, half // (2 * ARRAYS_BESIDE))
        if probes < MIN_PROBES:
            needed = 32 * ARRAYS_BESIDE * MIN_PROBES * count
            raise TooExpensive(
                f"the dimension of {count:,} contexts needs at least {in_bytes(needed)}, but memory_limit is "
                f"{in_bytes(memory_limit)}; raise it, or take a sample of the contexts."
            )
        block, steps = min(BLOCK, half // 8), min(MAX_STEPS, half // probes - ARRAYS_BESIDE)
        return cls(min(MAX_COLUMNS, count, half - 4 * block), block, probes, steps)


def tails(remainders: Array, probes: int) -> tuple[float, float]:
    """Return how far the mean over the probes can be above and below the trace, with probability 1 − δ; from E_ii/λ."""
    high = np.log1p(remainders) ** 2 + (SLOPE * KNEE - math.log1p(KNEE) ** 2)
    spread = math.sqrt(float(np.where(remainders <= KNEE, SLOPE * remainders, high).sum()))
    x = math.log(2 / FAILURE)
    usual = 2 * spread * math.sqrt(x / probes)
    return usual + 2 * math.log1p(float(remainders.sum())) * x / probes, usual


def _low_rank(kernel: NTK, contexts: Array, share: Share, rng: np.random.Generator, tell: Tell) -> tuple[Array, Array]:
    """Return Λ and Q with QᵀΛQ ⪯ H.

    Blocks of columns are drawn in proportion to what is left of the diagonal (Chen, Epperly, Tropp and Webber,
    2025); what is dependent within a block is left out.
    """
    n, diagonal = len(contexts), kernel.diagonal(contexts)
    rest, floor = diagonal.copy(), ROUNDING * float(diagonal.max(initial=0.0))
    factor, done = np.empty((share.columns, n)), 0
    while done < share.columns and rest.max(initial=0.0) > floor:
        pivots = np.unique(rng.choice(n, min(share.block, share.columns - done), p=rest / rest.sum()))
        columns = kernel.cross(contexts[pivots], contexts)
        columns -= factor[:done, pivots].T @ factor[:done]
        values, vectors = np.linalg.eigh(columns[:, pivots])
        kept = values > max(floor, ROUNDING * float(values[-1]))
        if not kept.any():
            break
        new = (vectors[:, kept] / np.sqrt(values[kept])).T @ columns
        factor[done : done + len(new)] = new
        done += len(new)
        rest = np.maximum(rest - np.einsum("ij,ij->j", new, new), 0.0)
        tell(f"{done} of {share.columns} columns, {rest.sum() / max(diagonal.sum(), floor):.1%} of the trace left")
    return _orthogonal(factor[:done])


def _orthogonal(factor: Array) -> tuple[Array, Array]:
    """Return Λ and Q of FᵀF = QᵀΛQ, without directions lost in rounding; Q takes the place of F."""
    values, vectors = np.linalg.eigh(factor @ factor.T)
    kept = values > ROUNDING * values.max(initial=0.0)
    turn = (vectors[:, kept] / np.sqrt(values[kept])).T
    for start in range(0, factor.shape[1], 4096):
        part = factor[:, start : start + 4096]
        part[: len(turn)] = turn @ part
    return values[kept], factor[: len(turn)]


def _remainder(diagonal: Array, values: Array, directions: Array) -> Array:
    """Return the diagonal of H − QᵀΛQ, with all that was left out."""
    rest = diagonal.copy()
    for value, direction in zip(values, directions, strict=True):
        rest -= value * np.square(direction)
    return np.maximum(rest, 0.0)


def _product(kernel: NTK, contexts: Array, v: Array) -> Array:
    """Return H v, tile by tile; each tile above the diagonal serves twice."""
    out = np.zeros_like(v)
    for rows, columns, tile in kernel.tiles(contexts):
        out[rows] += tile @ v[columns]
        if rows != columns:
            out[columns] += tile.T @ v[rows]
    return out


def quadratures(
    times: Callable[[Array], Array], probes: Array, steps: int, narrow: float, tell: Tell
) -> tuple[float, float]:
    """Return bounds on the mean of vᵀ log(I + G) v over the probes' columns, from at most `steps` products Gv."""
    norms = np.linalg.norm(probes, axis=0)
    basis = [probes / norms]
    diagonal: list[Array] = []
    beside: list[Array] = []
    least, most = np.zeros(len(norms)), np.full(len(norms), np.inf)
    for step in range(1, steps + 1):
        image = times(basis[-1])
        diagonal.append(np.einsum("ij,ij->j", basis[-1], image))
        for _ in range(2):  # what rounding leaves of the earlier vectors would blur the bounds
            for earlier in basis:
                image -= earlier * np.einsum("ij,ij->j", earlier, image)
        length = np.linalg.norm(image, axis=0)
        for i, norm in enumerate(norms):
            entries = np.array([d[i] for d in diagonal]), np.array([b[i] for b in beside])
            lower, upper = gauss_bounds(*entries, float(length[i]))
            least[i], most[i] = max(least[i], norm**2 * lower), min(most[i], norm**2 * upper)
        tell(f"step {step} of Lanczos, {np.mean(most - least):.3g} between the quadratures")
        if np.mean(most - least) <= narrow:
            break
        beside.append(length)
        basis.append(np.divide(image, length, out=np.zeros_like(image), where=length > 0))
    return float(least.mean()), float(most.mean())


def gauss_bounds(diagonal: Array, beside: Array, length: float) -> tuple[float, float]:
    """Return Gauss–Radau's and Gauss' quadratures of log(1 + x); the matrix's next entry is `length`."""
    matrix = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
    nodes, vectors = np.linalg.eigh(matrix)
    upper = float(vectors[0] ** 2 @ np.log1p(np.maximum(nodes, 0.0)))
    k, tiny = len(diagonal), 1e-10 * max(float(nodes[-1]), 0.0)
    if length <= tiny:  # all of the space that v is in has been found
        return upper, upper
    if nodes[0] <= tiny:  # a node is at 0 already: an earlier step's bound must do
        return 0.0, upper
    # The node at 0: the last diagonal entry that makes the bordered matrix singular.
    bordered = np.zeros((k + 1, k + 1))
    bordered[:k, :k], bordered[k, k - 1], bordered[k - 1, k] = matrix, length, length
    unit = np.zeros(k)
    unit[-1] = length**2
    bordered[k, k] = np.linalg.solve(matrix, unit)[-1]
    nodes, vectors = np.linalg.eigh(bordered)
    return float(vectors[0] ** 2 @ np.log1p(np.maximum(nodes, 0.0))), upper
