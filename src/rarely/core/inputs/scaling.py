"""Contexts and rewards on scales that a network trains well on.

    x̃ = [(x − center)/spread, 1]    contexts: follows the first rounds, refitted at updates when the data leave it
    r̃ = (r − μ)/s                   rewards: fitted anew at every update

Contexts U[0, 1]^d without an intercept are badly conditioned: see docs/decisions/0005.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rarely.core.errors import InvalidContexts, InvalidInput, check_whole
from rarely.core.growable_array import changed, shallow
from rarely.core.saving.fields import CLOSE, Fields
from rarely.core.types import Array, Arrays, BoolArray

LARGEST = 1e150
"""Of a context's numbers; the sum of squares of more than 10⁷ such numbers is still finite."""
ENOUGH = 16
"""Rounds after which a column's spread can be trusted."""
OFF_SPREAD = 2.0
"""A column has left its scale when its spread is off by more than this factor,"""
OFF_CENTER = 0.5
"""or its mean by more than this part of the spread."""
FARTHEST = 8.0
"""Deviations from the center beyond which a number counts as that far: one column that leaves its scale in mid-batch
would otherwise outweigh all others until the next update."""


@dataclass(frozen=True, eq=False)
class Affine:
    """A fixed affine map of contexts, with or without a constant appended.

    Examples
    --------
    >>> Affine(center=np.array([1.0]), spread=np.array([2.0]))(np.array([[5.0]]))
    array([[2., 1.]])
    """

    center: Array
    spread: Array
    constant: bool = True
    arms: int | None = field(default=None, kw_only=True)
    """K, where blocks made the map and know it: a policy then knows its price for life when it is made."""

    def __post_init__(self) -> None:
        center = np.array(self.center, np.float64, ndmin=1)
        spread = np.array(self.spread, np.float64, ndmin=1)
        if center.ndim != 1 or center.shape != spread.shape:
            raise InvalidInput(
                f"center and spread must be two vectors of one length; got {center.shape} and {spread.shape}."
            )
        if not (np.all(np.isfinite(center)) and np.all(np.isfinite(spread)) and np.all(spread > 0)):
            raise InvalidInput("center must be finite and spread finite and positive in every coordinate.")
        if self.arms is not None:
            check_whole("arms", self.arms, 1)
        object.__setattr__(self, "center", center)
        object.__setattr__(self, "spread", spread)

    @classmethod
    def identity(cls, dim: int, *, constant: bool = False) -> Affine:
        """Contexts as they are: the printed algorithm, or contexts that are already scaled."""
        check_whole("dim", dim, 1)
        return cls(np.zeros(dim), np.ones(dim), constant)

    @classmethod
    def fit(cls, contexts: Array, *, constant: bool = True) -> Affine:
        """Standardise the columns of (n, d) contexts and divide by √d, so that ‖x̃‖ is about 1 before the constant.

        A column of two values is divided by half their distance instead: the standard deviation of a rare 0/1 column
        is near 0, and a single 1 would outweigh all other columns.

        >>> rows = np.array([[0.0, 0.0]] * 99 + [[1.0, 100.0]])
        >>> Affine.fit(rows, constant=False)(rows[-1:]).round(2)
        array([[1.4, 1.4]])
        """
        rows = np.atleast_2d(np.asarray(contexts, np.float64))
        moments = Moments(rows.shape[1])
        moments.add(rows, len(rows))
        affine = moments.affine(constant=constant)
        lowest, highest = rows.min(axis=0, initial=np.inf), rows.max(axis=0, initial=-np.inf)
        paired = ((rows == lowest) | (rows == highest)).all(axis=0) & ~moments.still()
        # The standard deviation of a column of two values is half their distance if both are equally frequent.
        half = np.subtract(highest, lowest, where=paired, out=np.zeros(affine.dim)) / 2 * math.sqrt(affine.dim)
        return replace(affine, spread=np.where(paired, half, affine.spread))

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
        known = {} if self.arms is None else {"arms": int(self.arms)}
        return {"center": self.center.tolist(), "spread": self.spread.tolist(), "constant": self.constant, **known}

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
        largest = max(float(np.maximum.reduce(contexts, axis=None)), -float(np.minimum.reduce(contexts, axis=None)))
        if largest > LARGEST:
            raise InvalidContexts(
                f"contexts must be at most {LARGEST:g} in size, because their squares are summed to scale them; got "
                f"{largest:g}. Give them in a larger unit."
            )
        # Every decision comes through here: ufuncs cost a third of what `mean` and `sum` do on so few numbers.
        mean = np.add.reduce(contexts, axis=0) / len(contexts)
        total, shift, apart = self.count + len(contexts), mean - self.mean, contexts - mean
        squares = np.add.reduce(apart * apart, axis=0)
        self.squares = self.squares + squares + shift * shift * (self.count * len(contexts) / total)
        self.mean = self.mean + shift * (len(contexts) / total)
        self.count, self.rounds = total, self.rounds + rounds

    @classmethod
    def restored(cls, saved: Fields, dim: int, rounds: int) -> Moments:
        """The saved moments, of so many rounds."""
        moments = cls(dim)
        moments.rounds = saved.whole("seen_rounds", least=rounds, most=rounds)
        moments.count = saved.whole("seen", least=rounds)
        moments.mean, moments.squares = saved.array("seen_mean", (dim,)), saved.array("seen_squares", (dim,), least=0)
        empty = not (moments.count or moments.mean.any() or moments.squares.any())
        saved.require(rounds > 0 or empty, "nothing may have been seen before the first round")
        return moments

    def fork(self) -> Moments:
        """Moments that start with these; `add` replaces arrays and never writes into them."""
        return shallow(self)

    def settled(self) -> BoolArray:
        """Which columns have shown their spread: enough rounds, and not one number all along."""
        return ~self.still() if self.rounds >= ENOUGH else np.zeros(len(self.mean), np.bool_)

    def still(self) -> BoolArray:
        """Which columns have had one number all along, but for rounding."""
        return np.asarray(np.less_equal(self._deviation(), 1e-12 * np.abs(self.mean)), np.bool_)

    def _deviation(self) -> Array:
        return np.asarray(np.sqrt(self.squares / max(self.count, 1)))

    def affine(self, *, constant: bool = True) -> Affine:
        """The map that standardises what was seen; a column that never varied is only centred."""
        spread = np.where(self.still(), 1.0, self._deviation()) * np.sqrt(len(self.mean))
        return Affine(self.mean.copy(), spread, constant)

    def early_affine(self, *, constant: bool = True) -> Affine:
        """The same from few rounds: a spread is not taken to be far below the size of the numbers themselves.

        Two arms may nearly agree in a column, and all arms agree in what they share.
        """
        doubt = max(0.0, 1 - self.rounds / ENOUGH)
        size = np.sqrt(self.squares / max(self.count, 1) + doubt * np.square(self.mean))
        spread = np.where(size > 1e-12 * np.abs(self.mean), size, 1.0) * np.sqrt(len(self.mean))
        return Affine(self.mean.copy(), spread, constant)


@dataclass(frozen=True, eq=False)
class ContextScale:
    """The scale of contexts as it stands: given, or fitted to what was seen.

    A fitted scale *follows* the contexts of the first 16 rounds, or until the first update if that comes first: nothing
    has been learned yet that depends on it. Then it stands still between updates. An update fits a column anew while
    fewer rounds than that were seen, and later when the column has left its scale. In between, numbers farther than 8
    deviations from the center count as that far.
    """

    affine: Affine
    moments: Moments | None = None
    """Of all contexts seen; None where the scale was given."""
    settled: BoolArray = field(default_factory=lambda: np.array(False))
    """Which columns were fitted to enough rounds."""
    follows: bool = False
    """Whether the next round changes the scale."""
    clips: bool = False
    """Whether numbers far from the center are cut; not in a scale that was given, nor in one of version 0.1."""

    @classmethod
    def start(cls, dim: int, given: Affine | None, *, constant: bool, fitted: bool) -> ContextScale:
        """The scale before any context: the given one or, until it is `fitted`, none."""
        if given is not None and (not isinstance(given, Affine) or given.dim != dim):
            raise InvalidInput(f"context_scale must be an Affine for dim = {dim} numbers; got {given!r}.")
        affine = given or Affine.identity(dim, constant=constant)
        fits = fitted and given is None
        return cls(affine, Moments(dim) if fits else None, follows=fits, clips=fits)

    @property
    def fits(self) -> bool:
        """Whether it is fitted to the contexts; a given scale is not."""
        return self.moments is not None

    def __call__(self, contexts: Array) -> Array:
        """Scale (n, d) contexts."""
        scaled, dim = self.affine(contexts), self.affine.dim
        if self.clips:
            most = FARTHEST / math.sqrt(dim)
            numbers = scaled[:, :dim]
            np.minimum(np.maximum(numbers, -most, out=numbers), most, out=numbers)
        return scaled

    def facing(self, contexts: Array) -> ContextScale:
        """The scale with which a round of these contexts is decided: before the first round, one fitted to them."""
        if not self.follows or self.moments is None or self.moments.count:
            return self
        return replace(self, affine=self._after(contexts, 1).early_affine(constant=self.affine.constant))

    def seen(self, contexts: Array, rounds: int) -> ContextScale:
        """The scale after contexts of so many rounds were seen."""
        if self.moments is None:
            return self
        moments = self._after(contexts, rounds)
        if not self.follows:
            return changed(self, moments=moments)
        affine = moments.early_affine(constant=self.affine.constant)
        return replace(self, affine=affine, moments=moments, follows=moments.rounds < ENOUGH)

    def _after(self, contexts: Array, rounds: int) -> Moments:
        assert self.moments is not None
        moments = self.moments.fork()
        moments.add(contexts, rounds)
        return moments

    def fitted(self) -> ContextScale:
        """The scale that an update goes on with."""
        moments, old = self.moments, self.affine
        if moments is None or not moments.count:
            return self
        few = moments.rounds < ENOUGH
        fresh = moments.early_affine(constant=old.constant) if few else moments.affine(constant=old.constant)
        ratio = fresh.spread / old.spread
        left = (ratio > OFF_SPREAD) | (ratio < 1 / OFF_SPREAD)
        left |= np.abs(fresh.center - old.center) > OFF_CENTER * fresh.spread / np.sqrt(old.dim)
        kept = self.settled & ~left
        center, spread = np.where(kept, old.center, fresh.center), np.where(kept, old.spread, fresh.spread)
        return ContextScale(Affine(center, spread, old.constant), moments, self.settled | moments.settled(), clips=True)

    def with_moments_of(self, other: ContextScale) -> ContextScale:
        """The same scale after it saw what the other one saw; until the next update it stays where it is."""
        return self if other.moments is None else changed(self, moments=other.moments)

    def changed_columns(self, other: ContextScale) -> tuple[int, ...]:
        """The columns in which another scale differs."""
        mine, theirs = self.affine, other.affine
        return tuple(np.flatnonzero((mine.center != theirs.center) | (mine.spread != theirs.spread)).tolist())

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Numbers and arrays from which `restored` makes the same scale."""
        numbers: dict[str, Any] = {"constant": self.affine.constant}
        arrays: Arrays = {"center": self.affine.center, "spread": self.affine.spread}
        if self.moments is not None:
            numbers |= {"seen": self.moments.count, "seen_rounds": self.moments.rounds}
            numbers |= {"follows": self.follows, "clips": self.clips}
            arrays |= {"settled": self.settled}
            arrays |= {"seen_mean": self.moments.mean, "seen_squares": self.moments.squares}
        return numbers, arrays

    def restored(self, saved: Fields, rounds: int, *, trained: bool) -> ContextScale:
        """The saved scale, in the place of this one, which has seen nothing.

        `rounds` are those in the history, logged ones too; `trained` says whether an update or a log fitted it.
        """
        center = saved.array("center", (self.affine.dim,))
        spread = saved.array("spread", (self.affine.dim,), above=0)
        constant = saved.flag("constant")
        saved.require(constant == self.affine.constant, f"constant must be {self.affine.constant}, as settings have it")
        if self.moments is None:
            same = np.array_equal(center, self.affine.center) and np.array_equal(spread, self.affine.spread)
            saved.require(same, "center and spread must be those of the settings, because the scale is not fitted")
            return self
        moments = Moments.restored(saved, self.affine.dim, rounds)
        settled = saved.array("settled", (self.affine.dim,) if trained and saved.ndim("settled") else (), "bool")
        # A scale of version 0.1 does not follow: its rounds are in Z as they came.
        follows, clips = (saved.since(2, name) and saved.flag(name) for name in ("follows", "clips"))
        young = rounds < ENOUGH and not trained
        saved.require(
            follows == (young and clips), f"follows must be true in the first {ENOUGH} rounds, and only there"
        )
        saved.require(rounds >= ENOUGH or not settled.any(), f"settled must be false before {ENOUGH} rounds")
        if follows:
            early = moments.early_affine(constant=constant) if rounds else self.affine
            fits = np.array_equal(center, early.center) and np.allclose(spread, early.spread, CLOSE, 0)
            saved.require(fits, "center and spread must be those of the contexts seen, because the scale follows them")
        return ContextScale(Affine(center, spread, constant), moments, settled, follows, clips)


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

    @classmethod
    def restored(cls, saved: Fields, *, fitted: bool) -> RewardScale:
        """The saved scale, which is the plain one where none was fitted."""
        scale = cls(saved.number("reward_center"), saved.number("reward_spread", above=0))
        plain = scale == cls()
        saved.require(fitted or plain, "reward_center and reward_spread must be 0 and 1, because nothing was fitted")
        return scale
