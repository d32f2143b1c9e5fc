"""Worlds that change: how much a past round still counts.

    Window(n)      the last n rounds count, and no other
    Discount(γ)    a round counts γ^age, its age being the rounds since

A policy is frozen between updates, and so is its memory: at each update the weights are worked out anew, training
counts every sample by its weight, and Z = λI + Σ w φφᵀ is built again from what is remembered, with features at the
new version's weights. Within a batch new rounds count in full, and log det is that of this very matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from rarely.core.errors import InvalidInput, check_whole
from rarely.core.types import Array

NEGLIGIBLE = 1e-6
"""A weight below this is 0, so that what must be kept in mind is bounded."""


@dataclass(frozen=True, slots=True)
class Window:
    """The last so many rounds.

    A good policy earns good rewards, and a short window soon remembers nothing else: then it must find out again what
    is bad, in a batch or two of mistakes that the next record's `coverage` shows. Take a window of several times what
    it takes to learn the world, explore (a `Mixture`, a larger `beta`), or prefer a `Discount`, which forgets softly.

    Examples
    --------
    >>> Window(2).weights(np.array([0, 1, 2]))
    array([1., 1., 0.])
    """

    rounds: int

    def __post_init__(self) -> None:
        check_whole("rounds", self.rounds, 1)

    def weights(self, ages: Array) -> Array:
        """Of rounds so old; the latest has age 0."""
        return np.asarray(ages < self.rounds, np.float64)

    def describe(self) -> dict[str, Any]:
        """As JSON, for `forgetting_from`."""
        return {"kind": "Window", "rounds": self.rounds}


@dataclass(frozen=True, slots=True)
class Discount:
    """A geometric discount.

    Examples
    --------
    >>> Discount(0.5).weights(np.array([0, 1, 2]))
    array([1.  , 0.5 , 0.25])
    """

    factor: float

    def __post_init__(self) -> None:
        if isinstance(self.factor, bool) or not isinstance(self.factor, Real) or not 0 < self.factor <= 1:
            raise InvalidInput(f"factor must be a number above 0 and at most 1, as 0.999; got {self.factor!r}.")

    def weights(self, ages: Array) -> Array:
        """Of rounds so old; the latest has age 0."""
        weights = np.power(float(self.factor), ages)
        return np.where(weights < NEGLIGIBLE, 0.0, weights)

    def describe(self) -> dict[str, Any]:
        """As JSON, for `forgetting_from`."""
        return {"kind": "Discount", "factor": float(self.factor)}


Forgetting = Window | Discount


def check_forgetting(forgetting: Any) -> None:
    """Refuse what is neither."""
    if forgetting is not None and not isinstance(forgetting, Window | Discount):
        raise InvalidInput(f"forgetting must be a Window(rounds), a Discount(factor) or None; got {forgetting!r}.")


def describe_forgetting(forgetting: Forgetting | None) -> dict[str, Any] | None:
    """As JSON."""
    return None if forgetting is None else forgetting.describe()


def forgetting_from(description: dict[str, Any] | None) -> Forgetting | None:
    """The inverse of `describe_forgetting`.

    >>> forgetting_from(Window(5).describe())
    Window(rounds=5)
    """
    if description is None:
        return None
    kinds: dict[str, type[Forgetting]] = {"Window": Window, "Discount": Discount}
    return kinds[description["kind"]](**{name: value for name, value in description.items() if name != "kind"})
