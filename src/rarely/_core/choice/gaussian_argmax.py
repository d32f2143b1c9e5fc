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
from typing import NamedTuple

import numpy as np

from rarely._core.errors import InvalidInput
from rarely._core.types import Array, BoolArray, IntArray

TAIL = 9.0  # standard deviations beyond which nothing is left in double precision
STEP = 1 / 512  # between two tabulated values of N
NODES, WEIGHTS = np.polynomial.legendre.leggauss(16)
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
ARMS_AT_ONCE = 2**12  # Gaussians of the rows that are cut into pieces together

_LAST, _GONE = round(2 * TAIL / STEP), round((TAIL + 39) / STEP)
"""The last tabulated place, and one where n is 0: in a wide piece even what is left at the last one would count."""
_VALUES = np.array([0.5 * math.erfc((TAIL - i * STEP) / math.sqrt(2)) for i in range(_LAST + 1)])


def tables() -> Array:
    """Return what `native/gaussian.c` looks up: N and its density at the tabulated places, nodes and weights."""
    z = np.arange(_LAST + 1) * STEP - TAIL
    return np.concatenate((_VALUES, np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi), NODES, WEIGHTS))


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
    values = _VALUES.take(nearest.astype(np.int64))
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
    out = np.empty(means.shape)
    size = max(1, ARMS_AT_ONCE // means.shape[1])
    for start in range(0, len(means), size):
        part = slice(start, start + size)
        out[part] = _of_rows(means[part], deviations[part], tolerance[part], lowest)
    return out


def _of_rows(means: Array, deviations: Array, tolerance: Array, lowest: bool) -> Array:
    lower, upper = means - TAIL * deviations, means + TAIL * deviations
    present = upper >= (np.fmax.reduce(lower, axis=1) - tolerance)[:, None]
    least = np.maximum(LOST * np.abs(means), np.maximum(tolerance, TINY)[:, None])
    still = present & (deviations <= least)
    best = np.max(np.where(still, means, -np.inf), axis=1)
    # The best of those that stand still: nothing is the highest below it.
    low = np.max(np.where(present & ~still, lower, -np.inf), axis=1)
    low = np.maximum(np.nextafter(low, np.inf), best)[:, None]
    varies = present & ~still & (upper > low)
    out = np.zeros(means.shape)
    columns = varies.any(axis=0)
    race = _Race.of(means[:, columns], deviations[:, columns], varies[:, columns], low)
    out[:, columns] = _integrated(race).T
    if still.any():
        stands = still & (means >= (best - tolerance)[:, None])
        if lowest:
            stands &= np.cumsum(stands, axis=1) == 1
        share = np.prod(_normal(race.starts)[1], axis=0) / np.maximum(stands.sum(axis=1), 1)
        out += stands * share[:, None]
    return np.asarray(out / out.sum(axis=1, keepdims=True))


class _Race(NamedTuple):
    """The Gaussians that vary, (K, n): at t each is at the place starts + slopes·t, and ended beyond the last one."""

    slopes: Array  # 1/(σ·STEP); 0 where there is none
    starts: Array  # the last place where there is none, so that its N is 1
    ends: Array  # t where it reaches the last place; 0 where there is none

    @classmethod
    def of(cls, means: Array, deviations: Array, varies: BoolArray, low: Array) -> _Race:
        """Return the race of (n, K) Gaussians; t = 0 is at `low`, (n, 1)."""
        sigma = np.where(varies, deviations, 1.0)
        # The distance to `low` is rounded once, so that a large mean costs a small σ no digits.
        starts = np.where(varies, np.maximum((low - means) / sigma + TAIL, 0.0), 2 * TAIL)
        ends = (2 * TAIL - starts) * sigma
        return cls(*(np.ascontiguousarray(a.T) for a in (varies / (sigma * STEP), starts / STEP, ends)))

    def normal(self, t: Array, rows: IntArray, arms: IntArray) -> tuple[Array, Array]:
        """Return n and N, (arms, …), at t (p, …) in these rows (p,)."""
        along = (..., *(None,) * (t.ndim - 1))
        places = _picked(self.slopes, rows, arms)[along] * t
        places += _picked(self.starts, rows, arms)[along]
        return _normal(np.minimum(places, _GONE, out=places))

    def alive(self, t: Array, rows: IntArray) -> IntArray:
        """Return the Gaussians that have not ended at some of these t."""
        return np.flatnonzero((self.ends[:, rows] > t).any(axis=1))


def _picked(array: Array, rows: IntArray, arms: IntArray) -> Array:
    """Return (arms, rows) entries; with a single row a column, so that products run over long stretches."""
    return array[arms] if array.shape[1] == 1 else array[arms[:, None], rows]


class _Pieces(NamedTuple):
    """Pieces of the axes of several rows, (p,) each."""

    rows: IntArray
    left: Array
    right: Array
    before: Array  # F at the left end
    after: Array  # F at the right end

    def where(self, chosen: BoolArray | slice) -> _Pieces:
        """Return some of the pieces."""
        rows, left, right, before, after = self
        return _Pieces(rows[chosen], left[chosen], right[chosen], before[chosen], after[chosen])

    def halved(self, race: _Race) -> _Pieces:
        """Return the pieces, each cut in two."""
        middle = (self.left + self.right) / 2
        reached = _highest(race, middle, self.rows)
        low = self._replace(right=middle, after=reached)
        high = self._replace(left=middle, before=reached)
        return _Pieces(*(np.concatenate(pair) for pair in zip(low, high, strict=True)))


def _integrated(race: _Race) -> Array:
    """Return P of all Gaussians that vary, (K, n)."""
    out = np.zeros(race.ends.shape)
    if not out.size:
        return out
    pieces = _pieces(race)
    pieces = pieces.where(pieces.after > NEVER)
    size = max(1, AT_ONCE // (len(out) * len(NODES)))
    for halving in range(HALVINGS + 1):
        tolerance = ACCURATE + ROUNDING * len(out) if halving < HALVINGS else np.inf
        parts = (pieces.where(slice(start, start + size)) for start in range(0, len(pieces.rows), size))
        wrong = [_added(out, race, part, tolerance) for part in parts]
        if not any(each.any() for each in wrong):
            break
        pieces = pieces.where(np.concatenate(wrong)).halved(race)
    out *= race.slopes
    out *= STEP
    return out


def _added(out: Array, race: _Race, pieces: _Pieces, tolerance: float) -> BoolArray:
    """Add ∫ F σh of each arm over the pieces to `out`; leave out and return those where the sum is off."""
    rows, left, right, before, after = pieces
    arms = race.alive(left, rows)
    half = (right - left) / 2
    t = (left + half)[:, None] + half[:, None] * NODES
    density, below = race.normal(t, rows, arms)
    density /= below
    density *= np.prod(below, axis=0) * (half[:, None] * WEIGHTS)
    parts = density.sum(axis=2)
    sums = STEP * np.sum(parts * _picked(race.slopes, rows, arms), axis=0)
    wrong = np.abs(sums - (after - before)) > tolerance
    parts[:, wrong] = 0.0
    np.add.at(out, (arms[:, None], rows), parts)
    return np.asarray(wrong, np.bool_)


def _highest(race: _Race, t: Array, rows: IntArray) -> Array:
    """Return F at t."""
    out, size = np.empty(len(t)), max(1, AT_ONCE // len(race.ends))
    for start in range(0, len(t), size):
        part = slice(start, start + size)
        out[part] = np.prod(race.normal(t[part], rows[part], race.alive(t[part], rows[part]))[1], axis=0)
    return out


def _pieces(race: _Race) -> _Pieces:
    """Return pieces at most WIDTH times as wide as the narrowest Gaussian alive."""
    sigma = (race.slopes > 0) / np.where(race.slopes > 0, STEP * race.slopes, 1.0)
    # An edge need not be where a Gaussian ends, so the next one must still come in time for it.
    ends = np.minimum(race.ends + (RESOLVED + WIDTH - TAIL) * sigma, race.ends.max(axis=0))
    order = np.argsort(ends, axis=0)
    ends, sigma = np.take_along_axis(ends, order, axis=0), np.take_along_axis(sigma, order, axis=0)
    narrowest = np.minimum.accumulate(np.where(sigma > 0, sigma, np.inf)[::-1], axis=0)[::-1]
    ends = np.concatenate((np.zeros((1, ends.shape[1])), ends))
    # How many pieces fit up to each end, stretched to a whole number in all; the edges are where it is whole.
    count = np.zeros(ends.shape)
    np.cumsum((ends[1:] - ends[:-1]) / (WIDTH * narrowest), axis=0, out=count[1:])
    whole = np.ceil(count[-1])
    if not whole.sum() <= MOST_PIECES:
        raise InvalidInput(LARGE_BONUSES)
    count *= whole / np.where(whole > 0, count[-1], 1.0)
    # All rows one after another, a gap of 1 between them.
    last = np.cumsum(whole + 1)
    count += last - whole - 1
    rows = np.repeat(np.arange(len(whole)), whole.astype(np.int64) + 1)
    edges = np.interp(np.arange(len(rows)), count.T.ravel(), ends.T.ravel())
    reached = _highest(race, edges, rows)
    pieces = _Pieces(rows[:-1], edges[:-1], edges[1:], reached[:-1], reached[1:])
    return pieces.where(rows[:-1] == rows[1:])
