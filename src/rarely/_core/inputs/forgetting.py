"""Worlds that change: how much a past round still counts.

    Window(n)      only the last n rounds count
    Discount(γ)    a round counts γ^age, its age being the rounds since

A policy is frozen between updates, and so is its memory: each update computes the weights anew, training counts every
sample by its weight, and Z = λI + Σ w φφᵀ is rebuilt from the remembered rounds, with features at the new version's
weights. Within a batch new rounds count in full, and log det is that of this very matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rarely._core.errors import InvalidInput, as_number, check_whole, named_arguments, shown
from rarely._core.parts import OfKind, made
from rarely._core.types import Array

NEGLIGIBLE = 1e-6  # smaller weights are 0, so that the memory is bounded


@named_arguments
@dataclass(frozen=True, slots=True)
class Window(OfKind):
    """A memory of the last `rounds` rounds.

    A short window soon remembers nothing but good rewards, and must learn again what is bad. Use one several times as
    long as it takes to learn the world, explore (a `Mixture`, a larger `beta`), or prefer a `Discount`.

    Examples
    --------
    >>> Window(2).weights(np.array([0, 1, 2]))
    array([1., 1., 0.])
    """

    rounds: int

    def __post_init__(self) -> None:
        check_whole("rounds", self.rounds, 1)

    def weights(self, ages: Array) -> Array:
        """Return the weights of rounds of these ages; the latest round has age 0."""
        return np.asarray(ages < self.rounds, np.float64)


@named_arguments
@dataclass(frozen=True, slots=True)
class Discount(OfKind):
    """A geometric discount.

    Examples
    --------
    >>> Discount(0.5).weights(np.array([0, 1, 2]))
    array([1.  , 0.5 , 0.25])
    """

    factor: float

    def __post_init__(self) -> None:
        if not 0 < as_number(self.factor) <= 1:
            raise InvalidInput(f"factor must be a number above 0 and at most 1, as 0.999; got {shown(self.factor)}.")

    def weights(self, ages: Array) -> Array:
        """Return the weights of rounds of these ages; the latest round has age 0."""
        weights = np.power(float(self.factor), ages)
        return np.where(weights < NEGLIGIBLE, 0.0, weights)


Forgetting = Window | Discount


def is_automatic(forgetting: Any) -> bool:
    """Return whether a policy that tunes itself chooses what it remembers."""
    return isinstance(forgetting, str) and forgetting == "auto"


def forgetting_from(description: dict[str, Any] | None) -> Forgetting | None:
    """Return what `describe` described, None for None."""
    return None if description is None else made(description, Window, Discount)
