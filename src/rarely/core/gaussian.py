"""How often each of several independent Gaussians is the highest.

    P(k) = ∫ n(z) Π_{j≠k} N((μ_k + σ_k z − μ_j)/σ_j) dz,  n and N the standard density and distribution

An integrand as steep as the ratio of the σ's: so the axis is cut where some Gaussian begins or ends, and each
piece is integrated by Gauss's rule. The absolute error is below 1e-9 (tests/core/test_choice.py). A probability below
1e-18 has no right digits, which only an inverse weight would notice: `Mixture` keeps them away. An arm that is never
within nine deviations of the highest has exactly 0.
"""

from __future__ import annotations

import math

import numpy as np

from rarely.core.types import Array

FAR = 9.0
"""Standard deviations beyond which nothing is left in double precision."""
STEP = 1 / 256
NODES, WEIGHTS = np.polynomial.legendre.leggauss(20)
CUTS = np.array([-FAR, -4.0, -1.5, 0.0, 1.5, 4.0, FAR])
"""Of each Gaussian, in its own standard deviations: between two of them it is smooth."""
AT_ONCE = 2**20
"""Numbers in the arrays of one integration."""

_GRID = np.arange(-FAR, FAR + STEP / 2, STEP)
_VALUES = np.array([0.5 * math.erfc(-z / math.sqrt(2)) for z in _GRID])
_SLOPES = np.exp(-(_GRID**2) / 2) / math.sqrt(2 * math.pi)


def distribution(z: Array) -> Array:
    """N(z), the standard normal distribution function, to 1e-12: cubic between tabulated values and slopes.

    >>> distribution(np.array([-np.inf, 0.0, 1.6448536269514722])).round(12)
    array([0.  , 0.5 , 0.95])
    """
    inside = np.clip(z, -FAR, FAR - STEP / 2)
    place = (inside + FAR) / STEP
    i = place.astype(np.int64)
    t = place - i
    left, right = _VALUES[i], _VALUES[i + 1]
    a, b = STEP * _SLOPES[i] - (right - left), (right - left) - STEP * _SLOPES[i + 1]
    return np.asarray(left + t * (right - left) + t * (1 - t) * ((1 - t) * a + t * b))


def highest_of_gaussians(means: Array, deviations: Array, tolerance: Array) -> Array:
    """(n, K): the probability of each N(μ, σ²) to be the highest of its row; 0 for NaN, rows sum to 1.

    A σ within the tolerance is 0, and ties between such share what is theirs.

    >>> highest_of_gaussians(np.array([[0.0, 1.0, np.nan]]), np.array([[1.0, 0.0, np.nan]]), np.zeros(1)).round(4)
    array([[0.1587, 0.8413, 0.    ]])
    """
    out = np.zeros(means.shape)
    size = max(1, AT_ONCE // (means.shape[1] ** 2 * len(CUTS) * len(NODES)))
    for start in range(0, len(means), size):
        part = slice(start, start + size)
        out[part] = _of_rows(means[part], deviations[part], tolerance[part])
    return out


def _of_rows(means: Array, deviations: Array, tolerance: Array) -> Array:
    # Arms whose upper end is below another arm's lower end have probability 0.
    sure = np.nanmax(means - FAR * deviations, axis=1, keepdims=True)
    absent = np.isnan(means) | (means + FAR * deviations < sure)
    mu = np.where(absent, -np.inf, means)
    still = ~absent & (deviations <= tolerance[:, None])
    best = np.max(np.where(still, mu, -np.inf), axis=1)
    # The highest of those that do not vary: all others compete with it alone.
    stands = still & (mu >= (best - tolerance)[:, None])
    moving = ~absent & ~still
    sigma = np.where(moving, deviations, 1.0)
    center = np.where(moving, means, 0.0)
    # The rows' common axis, cut at every Gaussian's own places and at the best that stands still.
    cuts = np.where(moving[:, :, None], center[:, :, None] + sigma[:, :, None] * CUTS, np.nan)
    cuts = np.concatenate((cuts.reshape(len(means), -1), best[:, None]), axis=1)
    cuts = np.where(np.isfinite(cuts), cuts, np.nan)
    least, most = (f(cuts, axis=1, initial=e, where=~np.isnan(cuts)) for f, e in ((np.min, np.inf), (np.max, -np.inf)))
    cuts = np.sort(np.clip(np.where(np.isnan(cuts), least[:, None], cuts), least[:, None], most[:, None]), axis=1)
    middle, half = (cuts[:, 1:] + cuts[:, :-1]) / 2, (cuts[:, 1:] - cuts[:, :-1]) / 2
    out = np.zeros(means.shape)
    pieces = max(1, AT_ONCE // (means.size * len(NODES)))
    for start in range(0, half.shape[1], pieces):  # many arms have many pieces, and memory is finite
        part = slice(start, start + pieces)
        axis = (middle[:, part, None] + half[:, part, None] * NODES).reshape(len(means), 1, -1)
        measure = (half[:, part, None] * WEIGHTS).reshape(len(means), 1, -1)
        z = (axis - center[:, :, None]) / sigma[:, :, None]
        below = np.where(moving[:, :, None], distribution(z), 1.0)
        density = np.where(moving[:, :, None], np.exp(-(z**2) / 2) / (math.sqrt(2 * math.pi) * sigma[:, :, None]), 0.0)
        above_all_still = axis >= best[:, None, None]
        out += (measure * density * _product_of_others(below) * above_all_still).sum(axis=2)
    share = np.prod(np.where(moving, distribution((best[:, None] - center) / sigma), 1.0), axis=1)
    count = np.maximum(stands.sum(axis=1), 1)
    out += stands * (share / count)[:, None]
    return np.asarray(out / out.sum(axis=1, keepdims=True))


def _product_of_others(factors: Array) -> Array:
    """Along the second axis, the product of all factors but one's own."""
    before, after = np.ones_like(factors), np.ones_like(factors)
    np.cumprod(factors[:, :-1], axis=1, out=before[:, 1:])
    np.cumprod(factors[:, :0:-1], axis=1, out=after[:, -2::-1])
    return before * after
