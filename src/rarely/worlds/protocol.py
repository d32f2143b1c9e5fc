"""A world: contexts, mean rewards and noise of every round, whatever a policy does in it.

seed            of one run: it draws the world's secret (θ*, A, the order of a table's rows)
t      round    1 … T; round t derives from (seed, t) alone, so all policies of a run see the same world
K, d   arms, dim

contexts (n, K, d)   what a policy may see
means    (n, K)      expected rewards; the best arm and the pseudo-regret follow from them
rewards  (n, K)      what each arm would pay; one noise ξ_t a round, as the paper's experiments have it, or one an arm
"""

from __future__ import annotations

import hashlib
import inspect
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from rarely.extend import Array, ContextMap, IntArray
from rarely.extend.checks import InvalidInput, check_whole


@dataclass(frozen=True)
class Rounds:
    """n rounds of a world. A policy sees `contexts`, and of `rewards` those of the arms that it chose.

    Examples
    --------
    >>> from rarely.worlds import Cosine
    >>> rounds = Cosine(dim=2, arms=3).rounds(seed=0, count=4)
    >>> len(rounds), float(rounds.regrets(rounds.best).sum())
    (4, 0.0)
    """

    contexts: Array
    means: Array
    rewards: Array

    def __len__(self) -> int:
        return len(self.contexts)

    def __getitem__(self, part: slice) -> Rounds:
        return Rounds(self.contexts[part], self.means[part], self.rewards[part])

    @property
    def best(self) -> IntArray:
        """The optimal arm of each round, (n,)."""
        return np.asarray(np.argmax(self.means, axis=1))

    def regrets(self, arms: Any) -> Array:
        """Return the pseudo-regret of the chosen arms, (n,): how much less they pay on average than the best."""
        return np.asarray(self.means.max(axis=1) - self._of(self.means, arms))

    def paid(self, arms: Any) -> Array:
        """Return the rewards of the chosen arms, (n,)."""
        return self._of(self.rewards, arms)

    def _of(self, table: Array, arms: Any) -> Array:
        return np.asarray(table[np.arange(len(self)), np.asarray(arms)])


class World(ABC):
    """A problem to play policies on; a world of your own defines `secret` and `round`.

    Examples
    --------
    >>> from rarely.worlds import World
    >>> class Coins(World):
    ...     arms, dim = 2, 1
    ...
    ...     def secret(self, generator):
    ...         return generator.random(2)
    ...
    ...     def round(self, t, secret, generator):
    ...         return [[0.0], [1.0]], secret, generator.normal()
    >>> Coins().rounds(seed=0, count=3).rewards.shape
    (3, 2)
    """

    arms: int
    dim: int
    horizon: int | None = None  #: How many rounds there are; None: as many as one likes.
    context_scale: ContextMap | None = None
    """Given to policies that scale their contexts, where contexts come scaled; None: they find their own."""

    @abstractmethod
    def secret(self, generator: np.random.Generator) -> Any:
        """Return what a seed decides once, and no policy sees."""

    @abstractmethod
    def round(self, t: int, secret: Any, generator: np.random.Generator) -> tuple[Any, Any, Any]:
        """Return contexts (K, d), mean rewards (K,) and the noise of round t, for all arms or (K,).

        The generator derives from (seed, t).
        """

    def describe(self) -> dict[str, Any]:
        """Return the world as JSON, part of an experiment's identity.

        For a world of your own these are its plain attributes and a hash of its class's source; a world that holds
        arrays adds to them what tells it from others.
        """
        plain = {name: value for name, value in vars(self).items() if isinstance(value, str | int | float | None)}
        source = {} if type(self).__module__.startswith("rarely.") else {"text": _text(type(self))}
        return {"world": type(self).__name__, "arms": self.arms, "dim": self.dim} | plain | source

    def rounds(self, seed: int, count: int, first: int = 1) -> Rounds:
        """Return rounds first … first + count − 1 of the run `seed`."""
        check_whole("seed", seed, 0)
        check_whole("count", count, 0)
        check_whole("first", first, 1)
        if self.horizon is not None and first + count - 1 > self.horizon:
            raise InvalidInput(
                f"{type(self).__name__} has {self.horizon} rounds; got round {first + count - 1}: ask for fewer."
            )
        secret = self.secret(seeded(seed, 0))
        contexts, means = np.empty((count, self.arms, self.dim)), np.empty((count, self.arms))
        noise = np.empty((count, self.arms))
        for i in range(count):
            t = first + i
            x, mean, noise[i] = self.round(t, secret, seeded(seed, t))
            if np.shape(x) != (self.arms, self.dim) or np.shape(mean) != (self.arms,):
                raise InvalidInput(
                    f"{type(self).__name__}.round must give contexts of shape {(self.arms, self.dim)} and "
                    f"{self.arms} means; got {np.shape(x)} and {np.shape(mean)}."
                )
            contexts[i], means[i] = x, mean
        return Rounds(contexts, means, means + noise)


def seeded(seed: int, t: int) -> np.random.Generator:
    """Return the generator of a run's round t; that of its secret is round 0's."""
    # NumPy takes (seed, 0) for seed itself, from which a policy may draw its weights: the 1 keeps them apart.
    return np.random.default_rng((seed, t, 1))


def _text(kind: type) -> str:
    """Return a hash of a class's source, where it is known."""
    try:
        return hashlib.sha256(inspect.getsource(kind).encode()).hexdigest()[:16]
    except (OSError, TypeError):
        return "unknown"
