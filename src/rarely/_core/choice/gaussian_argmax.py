"""How often each of several independent Gaussians is the highest.

    F(x) = Π_j N((x − μ_j)/σ_j)     the distribution of the highest; N the standard one, n its density
    P(k) = ∫ F(x) h_k(x) dx         h_k = n(z)/(σ_k N(z)) at z = (x − μ_k)/σ_k; Σ_k h_k = F′/F

All K integrands share F(x), so a place x costs K evaluations and not K². Nothing is the highest below the greatest
lower end μ − 9σ: there the axis begins, t = 0, and Gaussians that end below it are dropped. All others are alive at
t = 0 and end before t = 18σ. So pieces three times as wide as the narrowest Gaussian still alive are few, even where
the σ's differ by many orders of magnitude, and Gauss's rule integrates each.

The P(k) of a piece add up to the growth of F in it. A piece where they do not, to 1e-13, is halved. The absolute error
of a probability is below 1e-12, measured for up to 10 000 arms (tests/core/test_gaussian.py). A probability below 1e-18
has no right digits, which only an inverse weight would notice: `Mixture` keeps them away. An arm that is never within
nine deviations of the highest has exactly 0.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np

from rarely._core.errors import InvalidInput
from rarely._core.growable_array import address
from rarely._core.native import in_use, library
from rarely._core.native.linalg import NO_MEMORY
from rarely._core.types import Array, BoolArray

TAIL = 9.0  # standard deviations beyond which nothing is left in double precision
STEP = 1 / 512  # between two tabulated values of N
NODES = 16  # of the quadrature in one piece
WIDTH = 3.0  # of a piece at first, in deviations of the narrowest Gaussian alive
MOST_PIECES = 2**24
ACCURATE = 1e-13
RESOLVED = 7.5  # standard deviations beyond which less than that is left: only a piece that begins later may be wider
ROUNDING = 2.0**-52  # the error of one factor of F, which halving does not reduce
HALVINGS = 12
NEVER = 1e-20  # a piece in which F stays below this is left out
TINY, LOST = 1e-290, 2.0**-46
"""A smaller σ counts as 0, also relative to its mean: its inverse would overflow, or its digits are lost."""
LARGE_BONUSES = "bonuses must be finite numbers that can be compared with each other. Use a smaller beta."
AT_ONCE = 2**15  # numbers in the arrays of one integration: the second-level cache holds several of these

_LAST, _GONE = round(2 * TAIL / STEP), round((TAIL + 39) / STEP)
"""The last tabulated place, and one where n is 0: in a wide piece even what is left at the last one would count."""


@cache
def tables() -> Array:
    """Return what `native/gaussian.c` looks up: N and its density at the tabulated places, nodes and weights."""
    z, (nodes, weights) = np.arange(_LAST + 1) * STEP - TAIL, np.polynomial.legendre.leggauss(NODES)
    values = np.array([0.5 * math.erfc((TAIL - i * STEP) / math.sqrt(2)) for i in range(_LAST + 1)])
    return np.concatenate((values, np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi), nodes, weights))


def distribution(z: Array) -> Array:
    """Return N(z), the standard normal distribution function, to 1e-15.

    >>> distribution(np.array([-np.inf, 0.0, 1.6448536269514722])).round(12)
    array([0.  , 0.5 , 0.95])
    """
    return _normal((np.clip(z, -TAIL, TAIL) + TAIL) / STEP)[1]


def _normal(places: Array) -> tuple[Array, Array]:
    """Return n and N at z = STEP·place − TAIL: N by Taylor's series from the nearest tabulated value.

    N(z) = N(z − b) + n(z)·b·(1 + b/2·(z + b/3·(z² − 1 + b/4·(z² − 3)·z))), whose next term is below 1e-17.
    """
    nearest = np.rint(places)
    np.minimum(nearest, _LAST, out=nearest)
    values = tables().take(nearest.astype(np.int64))
    b = np.subtract(places, nearest, out=nearest)
    b *= STEP
    z = places * STEP
    z -= TAIL
    squares = z * z
    density = np.exp(-0.5 * squares)
    density *= 1 / math.sqrt(2 * math.pi)
    # In place, because a new array costs more than the product.
    series = squares - 3
    series *= z
    series *= b
    series *= 1 / 4
    series += squares
    series -= 1
    series *= b
    series *= 1 / 3
    series += z
    series *= b
    series *= 1 / 2
    series += 1
    series *= b
    series *= density
    series += values
    return density, series


def highest_of_gaussians(means: Array, deviations: Array, tolerance: Array, *, lowest: bool = False) -> Array:
    """Return the probability of each N(μ, σ²) to be the highest of its row, (n, K); 0 for NaN, rows sum to 1.

    A σ within the tolerance counts as 0. The probability left to arms with σ = 0 goes to the best of them; arms that
    tie within the tolerance share it equally, or the `lowest` gets all of it.

    >>> highest_of_gaussians(np.array([[0.0, 1.0, np.nan]]), np.array([[1.0, 0.0, np.nan]]), np.zeros(1)).round(4)
    array([[0.1587, 0.8413, 0.    ]])
    """
    out, there = np.zeros(means.shape), ~np.isnan(means)
    one, within = _in_c if in_use() else _in_numpy, np.broadcast_to(tolerance, len(means)).tolist()
    for row, here in enumerate(there):
        out[row, here] = one(means[row, here], deviations[row, here], within[row], lowest)
    return out


def _in_c(means: Array, deviations: Array, tolerance: float, lowest: bool) -> Array:
    values, out, count = np.array([means, deviations]), np.empty(len(means)), len(means)
    places = address(values), address(values[1]), tolerance, lowest, address(tables()), address(out)
    if trouble := library().rarely_highest(count, *places):
        raise MemoryError(NO_MEMORY) if trouble == 1 else InvalidInput(LARGE_BONUSES)
    return out


def _in_numpy(means: Array, deviations: Array, tolerance: float, lowest: bool) -> Array:
    lower, upper = means - TAIL * deviations, means + TAIL * deviations
    present = upper >= lower.max() - tolerance
    still = present & (deviations <= np.maximum(LOST * np.abs(means), max(tolerance, TINY)))
    best = means[still].max(initial=-np.inf)
    # The best of those that stand still: nothing is the highest below it.
    low = max(np.nextafter(lower[present & ~still].max(initial=-np.inf), np.inf), best)
    varies = present & ~still & (upper > low)
    sigma = deviations[varies]
    # The distance to `low` is rounded once, so that a large mean costs a small σ no digits.
    starts = np.maximum((low - means[varies]) / sigma + TAIL, 0.0)
    race, out = _Race(1 / (sigma * STEP), starts / STEP, (2 * TAIL - starts) * sigma), np.zeros(len(means))
    out[varies] = _integrated(race, sigma) if len(sigma) else 0.0
    stands = np.flatnonzero(still & (means >= best - tolerance))[: 1 if lowest else None]
    out[stands] += np.prod(_normal(race.starts)[1]) / max(len(stands), 1)
    return np.asarray(out / out.sum())


class _Race(NamedTuple):
    """The Gaussians that vary, (K,): at t each is at the place starts + slopes·t, and ended beyond the last one."""

    slopes: Array  # 1/(σ·STEP)
    starts: Array
    ends: Array  # t where it reaches the last place

    def normal(self, t: Array, alive: BoolArray) -> tuple[Array, Array]:
        """Return n and N of those alive at t (p,), (k, p)."""
        places = self.starts[alive, None] + self.slopes[alive, None] * t
        return _normal(np.minimum(places, _GONE, out=places))

    def highest(self, t: Array) -> Array:
        """Return F at t (p,)."""
        out, size = np.empty(len(t)), max(1, AT_ONCE // len(self.ends))
        for start in range(0, len(t), size):
            part = t[start : start + size]
            out[start : start + size] = np.prod(self.normal(part, self.ends > part.min())[1], axis=0)
        return out


def _integrated(race: _Race, sigma: Array) -> Array:
    """Return P of all Gaussians that vary, (K,)."""
    out, edges = np.zeros(len(sigma)), _edges(race, sigma)
    reached = race.highest(edges)
    pieces = np.array([edges[:-1], edges[1:], reached[:-1], reached[1:]])  # left, right, and F at both
    pieces = pieces[:, pieces[3] > NEVER]
    size = max(1, AT_ONCE // (len(out) * NODES))
    for halving in range(HALVINGS + 1):
        tolerance = ACCURATE + ROUNDING * len(out) if halving < HALVINGS else np.inf
        wrong = [_added(out, race, pieces[:, i : i + size], tolerance) for i in range(0, pieces.shape[1], size)]
        if not any(each.any() for each in wrong):
            break
        left, right, before, after = pieces[:, np.concatenate(wrong)]
        middle = (left + right) / 2
        at = race.highest(middle)
        pieces = np.hstack([[left, middle, before, at], [middle, right, at, after]])
    return np.asarray(out * race.slopes * STEP)


def _added(out: Array, race: _Race, pieces: Array, tolerance: float) -> BoolArray:
    """Add ∫ F σh of each arm over the pieces to `out`; leave out and return those where the sum is off."""
    left, right, before, after = pieces
    alive, half = race.ends > left.min(), (right - left) / 2
    nodes, weights = np.split(tables()[-2 * NODES :], 2)
    t = (left + half)[:, None] + half[:, None] * nodes
    density, below = race.normal(t.ravel(), alive)
    density /= below
    density *= np.prod(below, axis=0) * (half[:, None] * weights).ravel()
    parts = density.reshape(-1, *t.shape).sum(axis=2)
    wrong = np.abs(STEP * (race.slopes[alive] @ parts) - (after - before)) > tolerance
    out[alive] += parts[:, ~wrong].sum(axis=1)
    return np.asarray(wrong, np.bool_)


def _edges(race: _Race, sigma: Array) -> Array:
    """Return the ends of pieces at most WIDTH times as wide as the narrowest Gaussian alive."""
    # An edge need not be where a Gaussian ends, so the next one must still come in time for it.
    ends = np.minimum(race.ends + (RESOLVED + WIDTH - TAIL) * sigma, race.ends.max())
    order = np.argsort(ends)
    narrowest = np.minimum.accumulate(sigma[order][::-1])[::-1]
    ends = np.concatenate(([0.0], ends[order]))
    # How many pieces fit up to each end, stretched to a whole number in all; the edges are where it is whole.
    count = np.concatenate(([0.0], np.cumsum(np.diff(ends) / (WIDTH * narrowest))))
    whole = np.ceil(count[-1])
    if not whole <= MOST_PIECES:
        raise InvalidInput(LARGE_BONUSES)
    return np.interp(np.arange(whole + 1), count * (whole / count[-1]), ends)
