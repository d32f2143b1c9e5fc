"""Planned looks at a trial, and their boundaries: alpha spending, after Lan and DeMets (1983).

    v_j    information at look j: the variance of the sum S_j that is looked at, of any unit
    a_j    error that both sides together may have spent by look j
    c_j    boundary: |S_j|/√v_j exceeds c_j for the first time at look j with probability a_j − a_{j−1}

Under the null hypothesis S is a Brownian motion at times v_j. Its density where no boundary was crossed is carried from
look to look by numerical integration (Armitage, McPherson and Rowe, 1969), and each c_j is found by bisection.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist
from typing import Any, Literal

import numpy as np

from rarely._core.choice.gaussian_argmax import distribution
from rarely._core.errors import check_choice, check_whole, is_whole, named_arguments, shown
from rarely._core.types import Array
from rarely.offpolicy.intervals import check_level
from rarely.study.errors import InvalidStudy

Spending = Literal["obrien-fleming", "pocock"]
MIN_PIECES, MAX_PIECES = 12, 400
"""Pieces of the range between two boundaries, each about one deviation of the next step and integrated by Gauss."""
NODES, WEIGHTS = np.polynomial.legendre.leggauss(8)
FURTHEST = 8.0
"""A boundary that is never crossed in double precision."""
MAX_LOOKS = 100
_normal = NormalDist()


@named_arguments
@dataclass(frozen=True, slots=True)
class AnalysisPlan:
    """When a trial is looked at, and how the error is spent on the looks; give it to `Study.create`.

    Parameters
    ----------
    rounds
        The decisions that are planned in all: the last look comes after them.
    looks
        The number of looks, at equal distances, or the rounds after which they come.
    spending
        "obrien-fleming" spends little on early looks; "pocock" about the same on each.
    level
        The level of each interval, for all looks together.

    Examples
    --------
    >>> AnalysisPlan(1200).at
    (240, 480, 720, 960, 1200)
    >>> AnalysisPlan(1200, looks=[100, 1200], spending="pocock").at
    (100, 1200)
    """

    rounds: int
    looks: int | Sequence[int] = 5
    spending: Spending = "obrien-fleming"
    level: float = 0.95

    def __post_init__(self) -> None:
        check_whole("rounds of an analysis", self.rounds, 2)
        check_choice("spending", self.spending, Spending)
        check_level(self.level)
        if not is_whole(self.looks):
            looks = list(self.looks) if isinstance(self.looks, Sequence | np.ndarray) else []
            if not all(is_whole(look) and look > 0 for look in looks) or looks != sorted({*looks, self.rounds}):
                raise InvalidStudy(
                    f"looks must be a number, or increasing rounds that end with {self.rounds}; got "
                    f"{shown(self.looks)}."
                )
            object.__setattr__(self, "looks", tuple(int(look) for look in looks))
        if not 1 <= len(self.at) <= min(MAX_LOOKS, self.rounds):
            raise InvalidStudy(f"there must be 1 to {MAX_LOOKS} looks, and no more than rounds; got {len(self.at)}.")

    @property
    def at(self) -> tuple[int, ...]:
        """The rounds after which the trial is looked at."""
        if not isinstance(self.looks, int | np.integer):
            return tuple(self.looks)
        return tuple(round(self.rounds * look / int(self.looks)) for look in range(1, int(self.looks) + 1))

    def describe(self) -> dict[str, Any]:
        """Return the plan as JSON: its fields, so that `AnalysisPlan(**description)` is the inverse."""
        return {
            "rounds": int(self.rounds),
            "looks": list(self.at) if isinstance(self.looks, Sequence) else int(self.looks),
            "spending": self.spending,
            "level": float(self.level),
        }


def spent(spending: Spending, fraction: float, alpha: float) -> float:
    """Return the error of both sides that may be spent by a fraction of the planned rounds, α at the last.

    >>> spent("obrien-fleming", 0.2, 0.05) < 2e-6, round(spent("pocock", 0.2, 0.05), 4), spent("pocock", 1.0, 0.05)
    (True, 0.0148, 0.05)
    """
    if spending == "pocock":
        return alpha * math.log(1 + (math.e - 1) * fraction)
    # Each side spends α/2 by the function of a one-sided test, hence α/4.
    return 4 * _normal.cdf(_normal.inv_cdf(alpha / 4) / math.sqrt(fraction))


def boundaries(errors: Sequence[float], information: Sequence[float]) -> list[float]:
    """Return c_j of each look, given the error spent by each and its information, both increasing.

    >>> looks = [0.2, 0.4, 0.6, 0.8, 1.0]
    >>> [round(c, 2) for c in boundaries([spent("obrien-fleming", look, 0.05) for look in looks], looks)]
    [4.88, 3.36, 2.68, 2.29, 2.03]
    """
    found: list[float] = []
    state = start()
    steps = [after - before for before, after in pairwise([0.0, *information])]
    for place, (before, after) in enumerate(pairwise([0.0, *errors])):
        deviation = math.sqrt(information[place])
        found.append(_solve(state, steps[place], deviation, after - before))
        if place + 1 < len(steps):
            state = carried(state, steps[place], found[-1] * deviation, steps[place + 1])
    return found


State = tuple[Array, Array]
"""Places, and the probability at each: a Gauss rule's weight times the density of S where nothing was crossed."""


def start() -> State:
    """Return the state before the first look: S is 0."""
    return np.zeros(1), np.ones(1)


def crossing(state: State, step: float, bound: float) -> float:
    """Return the probability that |S| exceeds the bound after its variance has grown by a step."""
    places, masses = state
    # Both sides alike: the state is symmetric.
    return 2 * float(masses @ distribution((places - bound) / math.sqrt(step)))


def carried(state: State, step: float, bound: float, following: float) -> State:
    """Return the state after the step where |S| stays within the bound, fine enough for the step that follows."""
    finest = math.sqrt(min(step, following))
    pieces = min(max(math.ceil(2 * bound / finest), MIN_PIECES), MAX_PIECES)
    half = bound / pieces
    at = (half * (2 * np.arange(pieces)[:, None] + 1 + NODES) - bound).ravel()
    places, masses = state
    density = np.exp(-np.square(at[:, None] - places) / (2 * step)) @ masses / math.sqrt(2 * math.pi * step)
    return at, density * np.tile(WEIGHTS * half, pieces)


def _solve(state: State, step: float, deviation: float, error: float) -> float:
    """Return the boundary, in standard deviations, that is crossed with probability `error`."""
    low, high = 0.0, FURTHEST
    while high - low > 1e-7:
        middle = (low + high) / 2
        low, high = (middle, high) if crossing(state, step, middle * deviation) > error else (low, middle)
    return high
