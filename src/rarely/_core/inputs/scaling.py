"""Contexts and rewards on scales that a network trains well on.

    x̃ = [(x − center)/spread, 1]    contexts: follows the first rounds, refitted at updates when the data leave it
    r̃ = (r − μ)/s                   rewards: fitted anew at every update

Contexts U[0, 1]^d without an intercept are badly conditioned for a network.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from rarely._core.errors import InvalidContexts, InvalidInput, check_flag, check_whole, named_arguments, shown
from rarely._core.growable_array import changed
from rarely._core.parts import Part, Registry
from rarely._core.reading import read_real
from rarely._core.saving.fields import Fields
from rarely._core.types import Array, Arrays, BoolArray

MAX_CONTEXT = 1e150  # the largest number in a context; the sum of squares of more than 10⁷ such numbers is still finite
TRUSTED_ROUNDS = 16  # rounds after which a column's spread can be trusted
OFF_SPREAD = 2.0  # a column has left its scale when its spread is off by more than this factor
OFF_CENTER = 0.5  # a column has left its scale when its mean is off by more than this part of the spread
STILL = 64 * 2.0**-52
"""Rewards whose spread is below this part of their mean have not varied: it is the rounding of the mean."""
CLIP = 8.0
"""Numbers are cut at this many deviations from the center: one column that leaves its scale in mid-batch would
otherwise outweigh all others until the next update."""
MAX_DIM = 10**8  # the most numbers in a context: one context would take 800 MB


def check_dim(dim: Any) -> None:
    """Raise InvalidInput unless this many numbers may be in a context."""
    check_whole("dim", dim, 1)
    if dim > MAX_DIM:
        raise InvalidInput(f"dim must be at most {MAX_DIM:,}, numbers in one context; got {shown(dim)}.")


MAPS: Registry[ContextMap] = Registry("a map of contexts")
"""Every map of contexts by its name, the package's and the user's."""


class ContextMap(Part):
    """A fixed map from contexts as they come to what a model sees.

    A map of your own is a frozen dataclass; its definition registers it, and a policy takes it as `context_scale`.

    Examples
    --------
    >>> from rarely import Affine
    >>> isinstance(Affine.identity(2), ContextMap)
    True
    """

    registry = MAPS
    constant: bool = False
    """Whether the last number that it returns is 1."""
    arms: int | None = None
    """K, if it is known: a policy then knows its cost when it is made."""

    @property
    @abstractmethod
    def dim(self) -> int:
        """Numbers in a context as it comes."""

    @property
    @abstractmethod
    def scaled_dim(self) -> int:
        """Numbers in a context as the model gets it."""

    @abstractmethod
    def __call__(self, contexts: Array) -> Array:
        """Map (n, dim) contexts to (n, scaled_dim)."""

    def arrays(self) -> Arrays:
        """Return what a file of a policy keeps of it besides the settings."""
        return {}


@dataclass(frozen=True, eq=False)
class Standardising(ContextMap):
    """What maps share that begin with (x − center)/spread."""

    center: Array
    spread: Array
    constant: bool = True
    arms: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        center, spread = (
            np.array(read_real(values, name, InvalidInput, "a vector of numbers"), ndmin=1)
            for name, values in (("center", self.center), ("spread", self.spread))
        )
        if center.ndim != 1 or center.shape != spread.shape:
            raise InvalidInput(f"center and spread must be vectors of one length; got {center.shape}, {spread.shape}.")
        if not (np.all(np.isfinite(center)) and np.all(np.isfinite(spread)) and np.all(spread > 0)):
            raise InvalidInput("center must be finite and spread finite and positive in every coordinate.")
        check_flag("constant", self.constant)
        check_whole("arms", self.arms, 1, besides=(None,))
        object.__setattr__(self, "center", center)
        object.__setattr__(self, "spread", spread)

    @cached_property
    def dim(self) -> int:
        """Numbers in a context as it comes."""
        return len(self.center)

    def describe(self) -> dict[str, Any]:
        """Return the map as JSON: its fields, by which `scale_from` knows its class."""
        arms = {} if self.arms is None else {"arms": int(self.arms)}
        return {"center": self.center.tolist(), "spread": self.spread.tolist(), "constant": self.constant, **arms}

    def arrays(self) -> Arrays:
        return {"center": self.center, "spread": self.spread}


@named_arguments
@dataclass(frozen=True, eq=False)
class Affine(Standardising):
    """A fixed affine map of contexts, with or without a constant appended.

    Examples
    --------
    >>> Affine(center=np.array([1.0]), spread=np.array([2.0]))(np.array([[5.0]]))
    array([[2., 1.]])
    """

    @classmethod
    def identity(cls, dim: int, *, constant: bool = False) -> Affine:
        """Return the map that leaves contexts alone: for the printed algorithm, or contexts that are already scaled."""
        check_dim(dim)
        return cls(np.zeros(dim), np.ones(dim), constant)

    @classmethod
    def fit(cls, contexts: Array, *, constant: bool = True) -> Affine:
        """Return the map that standardises (n, d) contexts and divides by √d: ‖x̃‖ is about 1 before the constant.

        A column of two values is divided by half their distance instead: the standard deviation of a rare 0/1 column
        is near 0, and a single 1 would outweigh all other columns.

        >>> rows = np.array([[0.0, 0.0]] * 99 + [[1.0, 100.0]])
        >>> Affine.fit(rows, constant=False)(rows[-1:]).round(2)
        array([[1.4, 1.4]])
        """
        rows = np.atleast_2d(read_real(contexts, "contexts", InvalidContexts))
        moments = Moments(rows.shape[1]).after(rows, len(rows))
        affine = moments.affine(constant=constant, early=False)
        lowest, highest = rows.min(axis=0, initial=np.inf), rows.max(axis=0, initial=-np.inf)
        paired = ((rows == lowest) | (rows == highest)).all(axis=0) & ~moments.still()
        # The standard deviation of a column of two values is half their distance if both are equally frequent.
        half = np.subtract(highest, lowest, where=paired, out=np.zeros(affine.dim)) / 2 * math.sqrt(affine.dim)
        return replace(affine, spread=np.where(paired, half, affine.spread))

    @cached_property
    def scaled_dim(self) -> int:
        """Numbers in a context as the network gets it."""
        return self.dim + self.constant

    @cached_property
    def changes(self) -> bool:
        """Whether contexts come out other than they came."""
        return bool(self.center.any() or (self.spread != 1).any())

    def __call__(self, contexts: Array) -> Array:
        """Scale (n, d) contexts to (n, scaled_dim)."""
        out, dim = np.empty((len(contexts), self.scaled_dim)), self.dim
        if self.changes:
            numbers = out[:, :dim]
            np.subtract(contexts, self.center, out=numbers)
            numbers /= self.spread
        else:
            out[:, :dim] = contexts
        if self.constant:
            out[:, dim] = 1.0
        return out


class Moments:
    """Mean and spread of all contexts so far, those of every arm and not of the chosen ones only: a value."""

    def __init__(self, dim: int) -> None:
        self.count = self.rounds = 0
        self.mean = np.zeros(dim)
        self.squares = np.zeros(dim)  # Σ (x − mean)²

    def after(self, contexts: Array, rounds: int) -> Moments:
        """Return them after (n, d) contexts of more rounds; this pairwise form keeps the digits that Σx² would lose."""
        if not len(contexts):
            return self
        size = np.abs(contexts)
        if np.count_nonzero(size > MAX_CONTEXT):
            raise InvalidContexts(
                f"contexts must be at most {MAX_CONTEXT:g} in size; got {size.max():g}. Use a larger unit."
            )
        # Every decision comes through here: ufuncs cost a third of what `mean` and `sum` do on so few numbers.
        mean = np.add.reduce(contexts, axis=0) / len(contexts)
        apart = contexts - mean
        return self._joined(len(contexts), rounds, mean, np.add.reduce(apart * apart, axis=0))

    def _joined(self, count: int, rounds: int, mean: Array, squares: Array) -> Moments:
        total, shift = self.count + count, mean - self.mean
        squares = self.squares + squares + shift * shift * (self.count * count / max(total, 1))
        mean = self.mean + shift * (count / max(total, 1))
        return changed(self, count=total, rounds=self.rounds + rounds, mean=mean, squares=squares)

    def merge(self, other: Moments) -> Moments:
        """Return the moments of both."""
        return self._joined(other.count, other.rounds, other.mean, other.squares)

    @classmethod
    def described(cls, fields: dict[str, Any]) -> Moments:
        """Return the moments whose attributes these are, as JSON."""
        with Fields("moments", fields, {}) as saved:
            mean, squares = (np.array(saved.of(name, tuple[float, ...])) for name in ("mean", "squares"))
            fits = squares.shape == mean.shape and np.isfinite([mean, squares]).all() and (squares >= 0).all()
            saved.check(fits, "a mean and a spread of each column")
            counts = {name: saved.whole(name) for name in ("count", "rounds")}
        return changed(cls(len(mean)), mean=mean, squares=squares, **counts)

    def settled(self) -> BoolArray:
        """Return which columns have shown their spread: enough rounds, and more than one number."""
        return ~self.still() if self.rounds >= TRUSTED_ROUNDS else np.zeros(len(self.mean), np.bool_)

    def still(self) -> BoolArray:
        """Return which columns have had a single number, up to rounding."""
        deviation = np.sqrt(self.squares / max(self.count, 1))
        return np.asarray(np.less_equal(deviation, 1e-12 * np.abs(self.mean)), np.bool_)

    def affine(self, *, constant: bool = True, early: bool = True) -> Affine:
        """Return the map that standardises the contexts so far; a column that never varied is only centred.

        While rounds are few, `early`, no spread is assumed to be far below the size of the numbers themselves: two arms
        may nearly agree in a column, and all arms agree in what they share.
        """
        doubt = max(0.0, 1 - self.rounds / TRUSTED_ROUNDS) if early else 0.0
        size = np.sqrt(self.squares / max(self.count, 1) + doubt * np.square(self.mean))
        spread = np.where(size > 1e-12 * np.abs(self.mean), size, 1.0) * np.sqrt(len(self.mean))
        return Affine(self.mean.copy(), spread, constant)


@dataclass(frozen=True, eq=False)
class ContextScale:
    """The current scale of contexts: given, or fitted to the contexts so far.

    A fitted scale *follows* the contexts of the first 16 rounds, or until the first update if that comes first. Then it
    is constant between updates, and numbers are cut at 8 deviations from the center. An update fits a column anew after
    fewer rounds than that, and later if the column has left its scale.
    """

    map: ContextMap
    moments: Moments | None = None  # of all contexts so far; None if the scale was given
    settled: BoolArray = field(default_factory=lambda: np.array(False))  # which columns were fitted to enough rounds
    follows: bool = False  # whether the next round changes the scale
    clips: bool = False  # whether numbers far from the center are cut; not in a scale that was given

    @classmethod
    def start(cls, dim: int, own: ContextMap | None, *, constant: bool, fitted: bool) -> ContextScale:
        """Return the scale before any context: the policy's `own`, or the identity until it is `fitted`."""
        check_dim(dim)
        if own is not None and (not isinstance(own, ContextMap) or own.dim != dim):
            raise InvalidInput(
                f"context_scale must be an Affine, or another ContextMap, for dim = {dim} numbers; got {shown(own)}."
            )
        chosen = own or Affine.identity(dim, constant=constant)
        fits = fitted and own is None
        return cls(chosen, Moments(dim) if fits else None, follows=fits, clips=fits)

    @property
    def fits(self) -> bool:
        """Whether it is fitted to the contexts; a given scale is not."""
        return self.moments is not None

    def __call__(self, contexts: Array) -> Array:
        """Scale (n, d) contexts."""
        scaled, dim = self.map(contexts), self.map.dim
        if self.clips:
            most = CLIP / math.sqrt(dim)
            numbers = scaled[:, :dim]
            np.minimum(np.maximum(numbers, -most, out=numbers), most, out=numbers)
        return scaled

    def prepared(self, contexts: Array) -> ContextScale:
        """Return the scale that decides a round of these contexts: before the first round, one fitted to them."""
        if not self.follows or self.moments is None or self.moments.count:
            return self
        return replace(self, map=self.moments.after(contexts, 1).affine(constant=self.map.constant))

    def after(self, contexts: Array, rounds: int) -> ContextScale:
        """Return the scale after contexts of `rounds` more rounds."""
        if self.moments is None:
            return self
        moments = self.moments.after(contexts, rounds)
        if not self.follows:
            return changed(self, moments=moments)
        affine = moments.affine(constant=self.map.constant)
        return replace(self, map=affine, moments=moments, follows=moments.rounds < TRUSTED_ROUNDS)

    def fitted(self) -> ContextScale:
        """Return the scale that an update trains with."""
        moments, old = self.moments, self.map
        if moments is None or not moments.count or not isinstance(old, Affine):
            return self
        fresh = moments.affine(constant=old.constant)
        ratio = fresh.spread / old.spread
        left = (ratio > OFF_SPREAD) | (ratio < 1 / OFF_SPREAD)
        left |= np.abs(fresh.center - old.center) > OFF_CENTER * fresh.spread / np.sqrt(old.dim)
        kept = self.settled & ~left
        center, spread = np.where(kept, old.center, fresh.center), np.where(kept, old.spread, fresh.spread)
        return ContextScale(Affine(center, spread, old.constant), moments, self.settled | moments.settled(), clips=True)

    def changed_columns(self, other: ContextScale) -> tuple[int, ...]:
        """Return the columns in which another scale differs."""
        mine, theirs = self.map, other.map
        if not (isinstance(mine, Affine) and isinstance(theirs, Affine)):
            return ()  # it was given
        return tuple(np.flatnonzero((mine.center != theirs.center) | (mine.spread != theirs.spread)).tolist())

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return numbers and arrays, for `restored`."""
        numbers: dict[str, Any] = {"constant": self.map.constant}
        arrays = self.map.arrays()
        if self.moments is not None:
            numbers |= {"seen": self.moments.count, "seen_rounds": self.moments.rounds}
            numbers |= {"follows": self.follows, "clips": self.clips}
            moments = {"seen_mean": self.moments.mean, "seen_squares": self.moments.squares}
            arrays |= {"settled": self.settled} | moments
        return numbers, arrays

    def restored(self, saved: Fields) -> ContextScale:
        """Return the saved scale, of the same settings as this one."""
        dim, constant = self.map.dim, saved.flag("constant")
        parts = {name: saved.array(name, array.shape) for name, array in self.map.arrays().items()}
        if self.moments is None:  # it was given, and is part of the settings
            return self
        affine = Affine(parts["center"], parts["spread"], constant)
        saved.check(affine.scaled_dim == self.map.scaled_dim, f"the flag constant {not constant}")
        counts = {"count": saved.whole("seen"), "rounds": saved.whole("seen_rounds")}
        arrays = {name: saved.array(f"seen_{name}", (dim,)) for name in ("mean", "squares")}
        moments, settled = changed(self.moments, **counts, **arrays), saved.array("settled", None, "bool")
        saved.check(settled.shape in ((), (dim,)), "one flag in settled, or one for each column,")
        return ContextScale(affine, moments, settled, saved.flag("follows"), saved.flag("clips"))


@dataclass(frozen=True, slots=True)
class RewardScale:
    """r = μ + s·r̃."""

    center: float = 0.0
    spread: float = 1.0

    @classmethod
    def fit(cls, rewards: Array, weights: Array | None = None) -> RewardScale:
        """Return the (weighted) mean and standard deviation; rewards that never varied are only centred.

        >>> RewardScale.fit(np.array([1.0, 3.0]))
        RewardScale(center=2.0, spread=1.0)
        """
        if not len(rewards):
            return cls()
        with np.errstate(over="ignore", invalid="ignore"):
            center = float(np.average(rewards, weights=weights))
            spread = float(np.sqrt(np.average(np.square(rewards - center), weights=weights)))
        still = spread <= STILL * abs(center)
        return cls(center, 1.0 if still or spread == 0.0 else spread)

    @classmethod
    def restored(cls, saved: Fields) -> RewardScale:
        """Return the saved scale."""
        return cls(saved.number("reward_center"), saved.number("reward_spread", above=0.0))
