"""Boundaries of planned looks, and what follows from them, by numerical integration.

    v_j    information at look j: the variance of the sum S_j that is looked at, of any unit; Z_j = S_j/√v_j
    θ      drift: given the truth, S is a Brownian motion with the mean θ·v_j at information v_j
    a_j    error that both sides together may have spent by look j; b_j, the same of failing to see θ₁
    c_j    boundary: |Z_j| exceeds c_j for the first time at look j with probability a_j − a_{j−1}, if θ = 0
    f_j    futility boundary: Z_j falls below f_j for the first time at look j with probability b_j − b_{j−1}, if
           θ = θ₁. The c_j do not count on it (it is not binding)

The density of S where no boundary was crossed is carried from look to look under θ = 0 (Armitage, McPherson and Rowe,
1969; Jennison and Turnbull, 2000, chapter 19), by Gauss's rule on pieces about one deviation of a step long. Under any
other drift it is exp(θs − θ²v/2) times as high, so one passage serves all drifts. Error is spent after Lan and DeMets
(1983).

At the end, results are ordered by stage: an earlier crossing is further from 0, and at the same look a larger Z. The
p-value of a drift is the probability of a result at least as far; the drift where it is ½ is the median-unbiased
estimate, and those where it is α/2 and 1 − α/2 are the ends of an interval (Tsiatis, Rosner and Mehta, 1984).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rarely.extend import Array
from rarely.extend.provisional import distribution

Spending = Literal["obrien-fleming", "pocock"]
MIN_PIECES, MAX_PIECES = 12, 400
NODES, WEIGHTS = np.polynomial.legendre.leggauss(8)
LEAST_GROWTH = 1e-4  # of information from look to look: of less, the pieces of a passage are too long to follow
FURTHEST = 8.0  # a boundary that is never crossed in double precision
REACH = 16.0  # deviations of a step beyond which nothing arrives, under any drift of interest
BLOCK = 128  # places that are reached at a time
PRECISION = 1e-7  # to which boundaries are solved, in standard deviations
DRIFTS = np.polynomial.hermite_e.hermegauss(24)  # standardised drifts and weights by which predictive power averages
_normal = NormalDist()


def solved(
    chance: Callable[[float], float],
    share: float,
    ends: tuple[float, float],
    place: float,
    slope: float,
    precision: float,
) -> float:
    """Return where a chance that grows is `share`, from a place on and the slope of its normal quantile there.

    By secants of the quantile, which is nearly straight; by halving where they lead out.
    """
    (low, high), aim = ends, _normal.inv_cdf(share)
    last: tuple[float, float] | None = None
    while high - low > precision:
        found = chance(place)
        low, high = (place, high) if found < share else (low, place)
        after = low
        if 0 < found < 1:
            quantile = _normal.inv_cdf(found)
            if last is not None and quantile != last[1]:
                slope = (quantile - last[1]) / (place - last[0])
            last, after = (place, quantile), place + (aim - quantile) / slope
            if abs(after - place) < precision:
                return after
        place = after if low < after < high else (low + high) / 2
    return (low + high) / 2


def spent(spending: Spending, fraction: float, alpha: float) -> float:
    """Return the error of both sides that may be spent by a fraction of the planned information, α at the last.

    >>> spent("obrien-fleming", 0.2, 0.05) < 2e-6, round(spent("pocock", 0.2, 0.05), 4), spent("pocock", 1.0, 0.05)
    (True, 0.0148, 0.05)
    """
    if fraction <= 0:
        return 0.0
    if spending == "pocock":
        return alpha * math.log(1 + (math.e - 1) * fraction)
    # Each side spends α/2 by the function of a one-sided test, hence α/4.
    return 4 * _normal.cdf(_normal.inv_cdf(alpha / 4) / math.sqrt(fraction))


class Passage(NamedTuple):
    """A Brownian motion that has stayed between boundaries, just before its variance grows by a step."""

    places: Array
    masses: Array  # a Gauss rule's weight times the density of S at each place, under θ = 0
    before: float = 0.0  # its information so far

    def tilted(self, drift: ArrayLike) -> Array:
        """Return the masses under each drift."""
        drift = np.asarray(drift)[..., None]
        return np.asarray(self.masses * np.exp(drift * self.places - np.square(drift) * self.before / 2))

    def above(self, step: float, bound: float, drift: ArrayLike = 0.0) -> Array:
        """Return the probability, for each drift, that S exceeds a bound after its information has grown by a step."""
        ends = (self.places + np.asarray(drift)[..., None] * step - bound) / math.sqrt(step)
        return np.asarray((self.tilted(drift) * distribution(ends)).sum(axis=-1))

    def reached(self, step: float, root: float, error: float, drift: float = 0.0, most: float = 0.0) -> float:
        """Return the Z below which S falls with probability `error` at the end of a step, where √v is `root`."""
        masses, deviation, high = self.tilted(drift), math.sqrt(step), min(most, FURTHEST)
        if error <= 0:
            return -FURTHEST

        def below(z: float) -> float:
            return float(masses @ distribution((z * root - self.places - drift * step) / deviation))

        return solved(below, error, (-FURTHEST, high), min(_normal.inv_cdf(min(error, 0.5)), high), 1.0, PRECISION)

    def carried(self, step: float, low: float, high: float, following: float) -> Passage:
        """Return the passage after the step where S stays between two bounds, fine enough for the following step."""
        finest = math.sqrt(min(step, following))
        pieces = min(max(math.ceil((high - low) / finest), MIN_PIECES), MAX_PIECES)
        half = (high - low) / (2 * pieces)
        at = (low + half * (2 * np.arange(pieces)[:, None] + 1 + NODES)).ravel()
        spread, reach = np.empty(len(at)), REACH * math.sqrt(step)
        for part in range(0, len(at), BLOCK):  # each from the places that it can be reached from
            ends = at[part : part + BLOCK]
            near = slice(*np.searchsorted(self.places, [ends[0] - reach, ends[-1] + reach]))
            apart = ends[:, None] - self.places[near]
            spread[part : part + BLOCK] = np.exp(-np.square(apart) / (2 * step)) @ self.masses[near]
        masses = spread / math.sqrt(2 * math.pi * step) * np.tile(WEIGHTS * half, pieces)
        return Passage(at, masses, self.before + step)


START = Passage(np.zeros(1), np.ones(1))  # before the first look: S is 0


def boundaries(errors: Sequence[float], information: Sequence[float]) -> list[float]:
    """Return c_j of each look, given the error spent by each and its information, both increasing.

    >>> looks = [0.2, 0.4, 0.6, 0.8, 1.0]
    >>> [round(c, 2) for c in boundaries([spent("obrien-fleming", look, 0.05) for look in looks], looks)]
    [4.88, 3.36, 2.68, 2.29, 2.03]
    """
    return [-z for z in futility([error / 2 for error in errors], information, None, 0.0)]  # both sides alike


def futility(
    errors: Sequence[float], information: Sequence[float], efficacy: Sequence[float] | None, drift: float
) -> list[float]:
    """Return f_j of each look, given the error b_j spent by each, and c_j; none lies above its c_j.

    Without c_j, S goes on between the f_j and their mirror images.

    >>> looks = [0.5, 1.0]
    >>> [round(f, 2) for f in futility([0.05, 0.2], looks, [2.797, 1.977], 2.8)]
    [0.34, 1.92]
    """
    return list(_futility(tuple(errors), tuple(information), None if efficacy is None else tuple(efficacy), drift))


@lru_cache(1024)  # every page, look and replay of a trial asks again for the boundaries of its earlier looks
def _futility(
    errors: tuple[float, ...], information: tuple[float, ...], efficacy: tuple[float, ...] | None, drift: float
) -> list[float]:
    found: list[float] = []
    now, steps = START, _steps(information)
    for place, (before, after) in enumerate(pairwise([0.0, *errors])):
        root, most = math.sqrt(information[place]), 0.0 if efficacy is None else efficacy[place]
        low = now.reached(steps[place], root, after - before, drift, most)
        if efficacy is not None and most - low < 2 * PRECISION:  # nobody is left between the two
            return [*found, *efficacy[place:]]
        found.append(low)
        if place + 1 < len(steps):
            high = -low if efficacy is None else min(most, FURTHEST)
            now = now.carried(steps[place], low * root, high * root, steps[place + 1])
    return found


def power(efficacy: Sequence[float], information: Sequence[float], drifts: ArrayLike, start: Passage = START) -> Array:
    """Return the probability, for each drift, that Z exceeds some c_j before it falls below one, from a start on.

    >>> power([1.959964], [1.0], [0.0, 2.801585]).round(3)
    array([0.025, 0.8  ])
    """
    passages = _passages(np.minimum(efficacy, FURTHEST), information, start)
    return sum((now.above(step, end, drifts) for now, step, end in passages), np.zeros(np.shape(drifts)))


def _passages(z: ArrayLike, information: Sequence[float], start: Passage) -> list[tuple[Passage, float, float]]:
    """Return the passage before each look that stayed between ±Z, its step, and S where Z is reached."""
    now, found, steps = start, [], _steps(information, start.before)
    for place, end in enumerate(np.asarray(z) * np.sqrt(information)):
        found.append((now, steps[place], float(end)))
        if place + 1 < len(steps):
            now = now.carried(steps[place], -float(end), float(end), steps[place + 1])
    return found


def conditional_power(
    efficacy: Sequence[float], information: Sequence[float], place: float, before: float, drifts: ArrayLike
) -> Array:
    """Return, for each drift, the probability that a later Z exceeds its c_j, given where S is now.

    >>> conditional_power([1.959964], [1.0], 1.0, 0.5, [2.0]).round(3)  # Φ((1 + 2·0.5 − 1.96)/√0.5)
    array([0.523])
    """
    drifts = np.asarray(drifts)
    # The tilt of a passage is relative to where it begins, which is certain here.
    begun = np.exp(drifts * place - np.square(drifts) * before / 2)
    found = power(efficacy, information, drifts, Passage(np.array([place]), np.ones(1), before)) / begun
    return np.asarray(np.minimum(found, 1.0))


def predictive_power(efficacy: Sequence[float], information: Sequence[float], place: float, before: float) -> float:
    """Return the conditional power averaged over drifts as likely as they are now, N(s/v, 1/v).

    >>> round(predictive_power([1.959964], [1.0], 1.0, 0.5), 3)  # Φ((2 − 1.96)/√(0.5 + 0.5²/0.5))
    0.516
    """
    drifts = place / before + DRIFTS[0] / math.sqrt(before)
    found = conditional_power(efficacy, information, place, before, drifts)
    return float(DRIFTS[1] @ found) / math.sqrt(2 * math.pi)


class Final(NamedTuple):
    """What is said at the end of a trial that was looked at, by the order of stages."""

    p: float  # of no difference, two-sided
    median: float  # the drift that is as likely exceeded as not
    low: float
    high: float


def final(z: float, efficacy: Sequence[float], information: Sequence[float], alpha: float) -> Final:
    """Return what Z at the last of these looks says, given the c_j of those before it.

    >>> final(2.0, [], [4.0], 0.05).median, round(final(2.0, [], [4.0], 0.05).p, 4)
    (1.0, 0.0455)
    """
    passages = _passages([*np.minimum(efficacy, FURTHEST), z], information, START)

    def further(drift: float) -> float:
        return sum(float(now.above(step, end, drift)) for now, step, end in passages)

    root, p = math.sqrt(information[-1]), further(0.0)
    reach = (abs(z) + FURTHEST + 2) / math.sqrt(information[0])

    def solve(share: float) -> float:
        return solved(further, share, (-reach, reach), z / root, root, PRECISION / root)

    median = z / root if not efficacy else solve(0.5)
    return Final(2 * min(p, 1 - p), median, solve(alpha / 2), solve(1 - alpha / 2))


def _steps(information: Sequence[float], before: float = 0.0) -> list[float]:
    return [after - earlier for earlier, after in pairwise([before, *information])]
