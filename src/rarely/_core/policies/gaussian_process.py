"""What takes time when evidence learns: means and likelihoods under a covariance of rewards.

K    (n, n)  gram    of n rewards, over its unit          λ   (ridges,)  noise, in units of the signal
α    (n,)    coefficients  (K + noise)⁻¹ r of the mean Σ_i α_i k(x, x_i)
"""

from __future__ import annotations

import math

import numpy as np

from rarely._core.covariance.cholesky import cholesky, lower_inverse
from rarely._core.types import Array

SPAN = 6.0  # nats behind the best beyond which a ridge counts for nothing


def solved(gram: Array, target: Array, noise: Array | float) -> tuple[Array, Array]:
    """Return the coefficients of a mean, and the residuals of predictions of each reward by all others, (n,) each."""
    matrix = gram.copy()
    matrix.flat[:: len(matrix) + 1] += noise
    inverse = lower_inverse(cholesky(matrix)[0])
    coefficients = inverse.T @ (inverse @ target)
    return coefficients, coefficients / np.einsum("ij,ij->j", inverse, inverse)


def misfits(
    gram: Array, trust: Array, target: Array, ridges: Array, start: int | None = None, best: float = math.inf
) -> tuple[Array, Array]:
    """Return minus the log likelihood of rewards under each ridge, s² put in, and s², (ridges,) each.

    The covariance is s²(gram + λ/trust). A walk from the ridge `start`, or the middle one, down to the least, and on
    to both sides up to the first that is SPAN behind it, or behind what is known as the `best`; the ridges beyond are
    infinitely bad.
    """
    root, count = np.sqrt(trust), len(target)
    matrix = np.empty((count + 1, count + 1))
    np.multiply(gram * root, root[:, None], out=matrix[:-1, :-1])
    diagonal = matrix.diagonal()[:-1].copy()
    # The last row of the factor is L⁻¹r.
    matrix[-1, :-1] = matrix[:-1, -1] = root * target
    size, common = float(matrix[-1, :-1] @ matrix[-1, :-1]), float(np.log(root).sum())
    lost, variance = np.full(len(ridges), np.inf), np.ones(len(ridges))

    def look(at: int) -> float:
        matrix.flat[: -1 : count + 2] = diagonal + ridges[at]
        matrix[-1, -1] = 2 * size / ridges[at] + 1
        try:
            lower = np.linalg.cholesky(matrix)
        except np.linalg.LinAlgError:  # so small a ridge is lost in rounding
            return math.inf
        variance[at] = (float(lower[-1, :-1] @ lower[-1, :-1]) + 1) / (count + 1)
        lost[at] = 0.5 * count * math.log(variance[at]) + float(np.log(lower.diagonal()[:-1]).sum()) - common
        return float(lost[at])

    start = len(ridges) // 2 if start is None else start
    before = look(start)
    for step in (1, -1):
        at, last = start + step, before
        while 0 <= at < len(ridges):
            now = look(at)
            if now > last and now > min(best, float(lost.min())) + SPAN:
                break
            at, last = at + step, now
    return lost, variance
