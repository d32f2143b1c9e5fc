"""What takes time when evidence learns: likelihoods under sums of kernels, means, and the slopes of a mean.

G    (c, n, n)  kernels among n rewards, each over its unit     w   (kernels,)  their weights
F    (n, n)     the factor of time (`Memory`)                   λ   ridge

likelihood    of (Σ_c w_c G_c)∘F + λ/trust          α = (K + noise)⁻¹ r          mean   Σ_i α_i k(x, x_i)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from rarely._core.covariance.cholesky import cholesky, lower_inverse
from rarely._core.model import kernels
from rarely._core.model.features import Factors
from rarely._core.model.kernels import Memory, Units, Views
from rarely._core.types import Array

SPAN = 6.0  # nats behind the best beyond which a ridge counts for nothing


def solved(gram: Array, target: Array, noise: Array | float) -> tuple[Array, Array]:
    """Return the coefficients of a mean, and the residuals of predictions of each reward by all others, (n,) each."""
    matrix = gram.copy()
    matrix.flat[:: len(matrix) + 1] += noise
    inverse = lower_inverse(cholesky(matrix)[0])
    coefficients = inverse.T @ (inverse @ target)
    return coefficients, coefficients / np.einsum("ij,ij->j", inverse, inverse)


class Grams:
    """The kernels among the rewards that judge."""

    def __init__(self, views: Views, wanted: Sequence[int], divisors: Array, times: Array) -> None:
        self.wanted, self.times = list(wanted), times
        self.matrices = views.grams(self.wanted) / divisors[self.wanted, None, None]

    def misfits(
        self, weights: Array, memory: Memory, trust: Array, target: Array, ridges: Array, *walk: Any
    ) -> tuple[Array, Array]:
        """Return minus the log likelihood of rewards under each ridge, s² put in, and s², (ridges,) each; ridges that
        a `walk` as `misfits` describes it leaves out may be infinitely bad."""
        gram = np.tensordot(weights[self.wanted], self.matrices, 1)
        if memory:
            gram *= memory(self.times, self.times)
        return misfits(gram, trust, target, ridges, *walk)


class System:
    """The equations for the coefficients of a mean at points, whose kernels are to be multiplied by `scale`."""

    def __init__(self, points: Factors, scale: float) -> None:
        self.points, self.scale = points, scale

    @cached_property
    def gram(self) -> Array:
        return kernels.products(self.points, self.points) * self.scale

    def solved(self, target: Array, noise: Array) -> tuple[Array, Array]:
        """Return what `solved` does of these equations."""
        return solved(self.gram, target, noise)


def slopes(
    views: Views, units: Units, metric: Array | None, weights: Array, memory: Memory, times: Array, target: Array,
    noise: float,
) -> Array:  # fmt: skip
    """Return the sum over points of the outer products of the mean's gradients there, (d, d)."""
    factors = views.features(weights, times, memory)
    coefficients = solved(kernels.products(factors, factors), target, noise)[0]
    gradients = views.gradients(views, coefficients, weights, units, metric)
    return np.asarray(gradients.T @ gradients)


def misfits(
    gram: Array, trust: Array, target: Array, ridges: Array, start: int | None = None, best: float = math.inf
) -> tuple[Array, Array]:
    """Return what `Grams.misfits` does, of one matrix.

    A walk from the ridge `start`, or the middle one, down to the least, and on to both sides up to the first that is
    SPAN behind it, or behind what is known as the `best`; the ridges beyond are infinitely bad.
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
