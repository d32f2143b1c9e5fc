"""Contexts and rewards on scales that a network trains well on.

    x̃ = [(x − center)/spread, 1]    contexts: fitted at the first update, kept for life
    r̃ = (r − μ)/s                   rewards: fitted anew at every update

Contexts U[0, 1]^d without an intercept are badly conditioned: see docs/decisions/.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rarely.core.errors import InvalidInput, check_whole
from rarely.core.rows import shallow
from rarely.core.types import Array, Arrays, BoolArray

FEWEST = 4
"""Rounds before a scale is fitted at all: the spread of two or three numbers can be anything."""
ENOUGH = 16
"""Rounds that a column's spread must have seen before it is kept for life."""


@dataclass(frozen=True, eq=False)
class Affine:
    """A fixed affine map of contexts, with or without a constant appended.

    >>> Affine(center=np.array([1.0]), spread=np.array([2.0]))(np.array([[5.0]]))
    array([[2., 1.]])
    """

    center: Array
    spread: Array
    constant: bool = True

    def __post_init__(self) -> None:
        center = np.array(self.center, np.float64, ndmin=1)
        spread = np.array(self.spread, np.float64, ndmin=1)
        if center.ndim != 1 or center.shape != spread.shape:
            raise InvalidInput(
                f"center and spread must be two vectors of one length; got {center.shape} and {spread.shape}."
            )
        if not (np.all(np.isfinite(center)) and np.all(np.isfinite(spread)) and np.all(spread > 0)):
            raise InvalidInput("center must be finite and spread finite and positive in every coordinate.")
        object.__setattr__(self, "center", center)
        object.__setattr__(self, "spread", spread)

    @classmethod
    def identity(cls, dim: int, *, constant: bool = False) -> Affine:
        """Contexts as they are: the printed algorithm, or contexts that are already scaled."""
        check_whole("dim", dim, 1)
        return cls(np.zeros(dim), np.ones(dim), constant)

    @classmethod
    def fit(cls, contexts: Array, *, constant: bool = True) -> Affine:
        """Standardise the columns of (n, d) contexts and divide by √d, so that ‖x̃‖ is about 1 before the constant."""
        rows = np.atleast_2d(np.asarray(contexts, np.float64))
        moments = Moments(rows.shape[1])
        moments.add(rows, len(rows))
        return moments.affine(constant=constant)

    @property
    def dim(self) -> int:
        """Numbers in a context as it comes."""
        return len(self.center)

    @property
    def scaled_dim(self) -> int:
        """Numbers in a context as the network gets it."""
        return self.dim + self.constant

    def describe(self) -> dict[str, Any]:
        """The map as JSON: its fields, so `Affine(**description)` is the inverse."""
        return {"center": self.center.tolist(), "spread": self.spread.tolist(), "constant": self.constant}

    def __call__(self, contexts: Array) -> Array:
        """Scale (n, d) contexts to (n, scaled_dim)."""
        out = np.ones((len(contexts), self.scaled_dim))
        np.subtract(contexts, self.center, out=out[:, : self.dim])
        out[:, : self.dim] /= self.spread
        return out


class Moments:
    """Mean and spread of the contexts seen so far, every arm's and not the chosen ones' alone."""

    def __init__(self, dim: int) -> None:
        self.count = self.rounds = 0
        self.mean = np.zeros(dim)
        self.squares = np.zeros(dim)
        """Σ (x − mean)²."""

    def add(self, contexts: Array, rounds: int) -> None:
        """Take in (n, d) contexts of so many rounds; the pairwise update keeps the digits that Σx² would lose."""
        if not len(contexts):
            return
        mean = contexts.mean(axis=0)
        total, shift = self.count + len(contexts), mean - self.mean
        squares = np.square(contexts - mean).sum(axis=0)
        self.squares = self.squares + squares + np.square(shift) * (self.count * len(contexts) / total)
        self.mean = self.mean + shift * (len(contexts) / total)
        self.count, self.rounds = total, self.rounds + rounds

    def fork(self) -> Moments:
        """Moments that start with these; `add` replaces arrays and never writes into them."""
        return shallow(self)

    def settled(self) -> BoolArray:
        """Which columns have shown their spread: enough rounds, and not one number all along."""
        return ~self._still() if self.rounds >= ENOUGH else np.zeros(len(self.mean), np.bool_)

    def _still(self) -> BoolArray:
        return np.asarray(np.less_equal(self._deviation(), 1e-12 * np.abs(self.mean)), np.bool_)

    def _deviation(self) -> Array:
        return np.asarray(np.sqrt(self.squares / max(self.count, 1)))

    def affine(self, *, constant: bool = True) -> Affine:
        """The map that standardises what was seen; a column that never varied is only centred."""
        spread = np.where(self._still(), 1.0, self._deviation()) * np.sqrt(len(self.mean))
        return Affine(self.mean.copy(), spread, constant)


@dataclass(frozen=True, eq=False)
class ContextScale:
    """The scale of contexts as it stands: given, or fitted to what was seen, a column's for life once it is settled."""

    affine: Affine
    moments: Moments | None = None
    """Of the contexts seen, until every column is settled; None from then on, and where the scale was given."""
    settled: BoolArray = field(default_factory=lambda: np.array(False))
    """Which columns are fixed."""

    @classmethod
    def start(cls, dim: int, given: Affine | None, *, constant: bool, fitted: bool) -> ContextScale:
        """The scale before any context: the given one or, until it is `fitted`, none."""
        if given is not None and (not isinstance(given, Affine) or given.dim != dim):
            raise InvalidInput(f"context_scale must be an Affine for dim = {dim} numbers; got {given!r}.")
        affine = given or Affine.identity(dim, constant=constant)
        return cls(affine, Moments(dim) if fitted and given is None else None)

    def __call__(self, contexts: Array) -> Array:
        """Scale (n, d) contexts."""
        return self.affine(contexts)

    def seen(self, contexts: Array, rounds: int) -> ContextScale:
        """The scale after contexts of so many rounds were seen; it changes when it is `fitted`."""
        if self.moments is None:
            return self
        moments = self.moments.fork()
        moments.add(contexts, rounds)
        return replace(self, moments=moments)

    def fitted(self) -> ContextScale:
        """The scale fitted to what was seen, for life or for now."""
        if self.moments is None or self.moments.rounds < FEWEST:
            return self
        fresh, kept, old = self.moments.affine(), self.settled, self.affine
        center, spread = np.where(kept, old.center, fresh.center), np.where(kept, old.spread, fresh.spread)
        affine = Affine(center, spread, old.constant)
        settled = kept | self.moments.settled()
        return ContextScale(affine, None if settled.all() else self.moments, settled)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Numbers and arrays from which `restored` makes the same scale."""
        numbers: dict[str, Any] = {"constant": self.affine.constant}
        arrays: Arrays = {"center": self.affine.center, "spread": self.affine.spread}
        if self.moments is not None:
            numbers |= {"seen": self.moments.count, "seen_rounds": self.moments.rounds}
            arrays |= {"settled": self.settled}
            arrays |= {"seen_mean": self.moments.mean, "seen_squares": self.moments.squares}
        return numbers, arrays

    @classmethod
    def restored(cls, numbers: dict[str, Any], arrays: Arrays) -> ContextScale:
        """The saved scale."""
        affine, moments = Affine(arrays["center"], arrays["spread"], numbers["constant"]), None
        if "seen" in numbers:
            moments = Moments(affine.dim)
            moments.count, moments.rounds = numbers["seen"], numbers["seen_rounds"]
            moments.mean, moments.squares = arrays["seen_mean"], arrays["seen_squares"]
        return cls(affine, moments, np.asarray(arrays.get("settled", np.True_), np.bool_))


@dataclass(frozen=True, slots=True)
class RewardScale:
    """r = μ + s·r̃."""

    center: float = 0.0
    spread: float = 1.0

    @classmethod
    def fit(cls, rewards: Array, weights: Array | None = None) -> RewardScale:
        """Mean and standard deviation, weighted if so; rewards that never varied are only centred.

        >>> RewardScale.fit(np.array([1.0, 3.0]))
        RewardScale(center=2.0, spread=1.0)
        """
        if not len(rewards):
            return cls()
        with np.errstate(over="ignore", invalid="ignore"):
            center = float(np.average(rewards, weights=weights))
            spread = float(np.sqrt(np.average(np.square(rewards - center), weights=weights)))
        still = spread <= 1e-12 * abs(center)
        return cls(center, 1.0 if still or spread == 0.0 else spread)
