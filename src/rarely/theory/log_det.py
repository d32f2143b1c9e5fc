"""log det(I + H/λ) of a kernel matrix that is too large to be held, between bounds that are certain.

    H   (n, n)  never written out                 F   (r, n)   H ⪰ FᵀF, from r columns of it
    E           H − FᵀF ⪰ 0, its diagonal known    A           I + FᵀF/λ
    G           A^{−½}(E/λ)A^{−½} ⪰ 0              log det(I + H/λ) = log det A + tr log(I + G)

The first term is exact. Of the second it is always certain that

    0 ≤ tr log(I + G) ≤ log det(I + E/λ) ≤ Σ_i log(1 + E_ii/λ)                                   (Hadamard)

and where that is too wide, m Gaussian vectors v narrow it: vᵀ log(I + G) v lies between the quadratures of
Gauss–Radau and Gauss that k steps of Lanczos give (Golub and Meurant, 1994), for the even derivatives of log(1 + x)
are negative and the odd ones positive; and the mean over v is near the trace by the tail of a weighted χ²
(Laurent and Massart, 2000, Lemma 1), with probability at least 1 − δ for any n and m:

    −2f√(x/m) ≤ mean − trace ≤ 2f√(x/m) + 2s·x/m,   x = log(2/δ)
    f² = tr log²(I + G) ≤ 0.648·tr E/λ     (log²(1 + x) ≤ 0.648·x)        s = ‖log(I + G)‖ ≤ log(1 + tr E/λ)

Nothing in this is an asymptotic statement; rounding is left aside.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rarely.core.types import Array
from rarely.theory.ntk import NTK

Tell = Callable[[str], None]
BLOCK = 64
"""Columns of H at a time."""
PROBES, FAILURE = 32, 0.05
"""m and δ."""
STEPS = 24
"""Of Lanczos, at most; it stops where quadrature no longer is what makes the bounds wide."""
NARROW = 0.01
"""A bracket whose width is this part of its middle needs no sampling."""
SQUARE = 0.648
"""max log²(1 + x)/x, at x = 3.92."""
NOISE = 1e-12
"""Part of H's largest diagonal entry below which a remainder is rounding."""


@dataclass(frozen=True, slots=True)
class LogDet:
    """A log determinant between its bounds."""

    value: float
    lower: float
    upper: float
    confidence: float
    """The probability with which it lies between them: 1 where nothing was sampled."""


def exact(kernel: NTK, contexts: Array, ridge: float) -> LogDet:
    """From the whole matrix."""
    matrix = kernel.matrix(contexts)
    matrix /= ridge
    matrix.flat[:: len(matrix) + 1] += 1.0
    value = float(2 * np.log(np.diagonal(np.linalg.cholesky(matrix))).sum())
    return LogDet(value, value, value, 1.0)


def bracketed(kernel: NTK, contexts: Array, ridge: float, rank: int, seed: int, tell: Tell) -> LogDet:
    """Between bounds, from `rank` columns and a few products with H, in memory for (rank + 4m·k)·n numbers."""
    rng = np.random.default_rng(seed)
    factor, rest = _low_rank(kernel, contexts, rank, rng, tell)
    values, directions = _orthogonal(factor)
    known = float(np.log1p(values / ridge).sum())
    ceiling = float(np.log1p(rest / ridge).sum())
    if ceiling <= NARROW * known:
        return LogDet(known + ceiling / 2, known, known + ceiling, 1.0)
    trace = float(rest.sum()) / ridge
    spread, largest = math.sqrt(SQUARE * trace), math.log1p(trace)
    x = math.log(2 / FAILURE)
    below = 2 * spread * math.sqrt(x / PROBES) + 2 * largest * x / PROBES
    above = 2 * spread * math.sqrt(x / PROBES)

    # G v = A^{−½}(Hv/λ − …)A^{−½}: in the span of `directions` A^{−½} is known, and elsewhere it is 1.
    shrink = 1 / np.sqrt(1 + values / ridge) - 1

    def root(v: Array) -> Array:
        return v + directions.T @ (shrink[:, None] * (directions @ v))

    def times(v: Array) -> Array:
        inner = root(v)
        product = _product(kernel, contexts, inner) - directions.T @ (values[:, None] * (directions @ inner))
        return root(product) / ridge

    least, most = _quadratures(times, rng.normal(size=(len(contexts), PROBES)), below + above, tell)
    lower, upper = max(0.0, least - below), min(ceiling, most + above)
    middle = min(max((least + most) / 2, lower), upper)
    return LogDet(known + middle, known + lower, known + upper, 1 - FAILURE)


def _low_rank(kernel: NTK, contexts: Array, rank: int, rng: np.random.Generator, tell: Tell) -> tuple[Array, Array]:
    """F (r, n) with FᵀF ⪯ H, and the diagonal of H − FᵀF.

    Blocks of columns are drawn in proportion to what is left of the diagonal (Chen, Epperly, Tropp and Webber,
    2025); what is dependent within a block is left out.
    """
    n, diagonal = len(contexts), kernel.diagonal(contexts)
    rest, floor = diagonal.copy(), NOISE * float(diagonal.max(initial=0.0))
    factor, done = np.empty((rank, n)), 0
    while done < rank and rest.max(initial=0.0) > floor:
        pivots = np.unique(rng.choice(n, min(BLOCK, rank - done), p=rest / rest.sum()))
        columns = kernel.cross(contexts[pivots], contexts)
        columns -= factor[:done, pivots].T @ factor[:done]
        values, vectors = np.linalg.eigh(columns[:, pivots])
        kept = values > max(floor, NOISE * float(values[-1]))
        if not kept.any():
            break
        new = (vectors[:, kept] / np.sqrt(values[kept])).T @ columns
        factor[done : done + len(new)] = new
        done += len(new)
        rest = np.maximum(rest - np.einsum("ij,ij->j", new, new), 0.0)
        tell(f"{done} of {rank} columns, {rest.sum() / max(diagonal.sum(), floor):.1%} of the trace left")
    return factor[:done], rest


def _orthogonal(factor: Array) -> tuple[Array, Array]:
    """FᵀF = QᵀΛQ: the values, and Q (r, n) in the place of F."""
    values, vectors = np.linalg.eigh(factor @ factor.T)
    kept = values > NOISE * values.max(initial=0.0)
    turn = (vectors[:, kept] / np.sqrt(values[kept])).T
    for start in range(0, factor.shape[1], 4096):
        part = factor[:, start : start + 4096]
        part[: len(turn)] = turn @ part
    return values[kept], factor[: len(turn)]


def _product(kernel: NTK, contexts: Array, v: Array) -> Array:
    """H v, tile by tile; each tile above the diagonal serves twice."""
    out = np.zeros_like(v)
    for rows, columns, tile in kernel.tiles(contexts):
        out[rows] += tile @ v[columns]
        if rows != columns:
            out[columns] += tile.T @ v[rows]
    return out


def _quadratures(times: Callable[[Array], Array], probes: Array, width: float, tell: Tell) -> tuple[float, float]:
    """Bounds on the mean of vᵀ log(I + G) v over the probes' columns."""
    norms = np.linalg.norm(probes, axis=0)
    basis = [probes / norms]
    diagonal: list[Array] = []
    beside: list[Array] = []
    least = most = 0.0
    for step in range(1, STEPS + 1):
        image = times(basis[-1])
        diagonal.append(np.einsum("ij,ij->j", basis[-1], image))
        for _ in range(2):  # what rounding leaves of the earlier vectors would blur the bounds
            for earlier in basis:
                image -= earlier * np.einsum("ij,ij->j", earlier, image)
        length = np.linalg.norm(image, axis=0)
        bounds = [
            _gauss_bounds(np.array([d[i] for d in diagonal]), np.array([b[i] for b in beside]), length[i])
            for i in range(len(norms))
        ]
        least, most = (float(np.mean(norms**2 * [b[side] for b in bounds])) for side in (0, 1))
        tell(f"step {step} of Lanczos, {most - least:.3g} between the quadratures")
        if most - least <= width / 50:
            break
        beside.append(length)
        basis.append(np.divide(image, length, out=np.zeros_like(image), where=length > 0))
    return least, most


def _gauss_bounds(diagonal: Array, beside: Array, length: float) -> tuple[float, float]:
    """Gauss–Radau's and Gauss' quadratures of log(1 + x) from a tridiagonal matrix, whose next entry is `length`."""
    matrix = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
    nodes, vectors = np.linalg.eigh(matrix)
    upper = float(vectors[0] ** 2 @ np.log1p(np.maximum(nodes, 0.0)))
    k, tiny = len(diagonal), 1e-10 * max(float(nodes[-1]), 0.0)
    if length <= tiny or nodes[0] <= tiny:  # all of the space is found, or one node is at 0 already
        return upper if length <= tiny else 0.0, upper
    # The node at 0: the last diagonal entry that makes the bordered matrix singular.
    bordered = np.zeros((k + 1, k + 1))
    bordered[:k, :k], bordered[k, k - 1], bordered[k - 1, k] = matrix, length, length
    unit = np.zeros(k)
    unit[-1] = length**2
    bordered[k, k] = np.linalg.solve(matrix, unit)[-1]
    nodes, vectors = np.linalg.eigh(bordered)
    return float(vectors[0] ** 2 @ np.log1p(np.maximum(nodes, 0.0))), upper
