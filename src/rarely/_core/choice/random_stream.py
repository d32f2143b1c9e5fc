"""Random numbers: every policy has its own generator."""

from __future__ import annotations

import secrets
from typing import Any, NamedTuple

import numpy as np

from rarely._core.errors import InvalidInput, is_whole, shown
from rarely._core.types import Array

Seed = int | np.random.Generator | dict[str, Any] | None
"""A whole number, a generator, a generator's saved state, or None for a seed from the operating system."""
_BITS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
LARGEST_SEED = 2**4096
"""Python writes no whole number of many more digits."""


class Seeded(NamedTuple):
    """A generator, and the seed as JSON that makes the same one again."""

    generator: np.random.Generator
    setting: Any


class UniformStream:
    """One uniform number per round; `state` is the place in the stream, and the generator is scratch."""

    def __init__(self, generator: np.random.Generator, state: Any) -> None:
        self._generator, self.state, self._peeked = generator, state, 0

    def peek(self, count: int) -> Array:
        """Return the numbers of the next rounds."""
        self._generator.bit_generator.state, self._peeked = self.state, count
        return self._generator.random(count)

    def keep(self, count: int) -> None:
        """Count that many of those peeked at as used."""
        if count != self._peeked:
            self.peek(count)
        self.state = self._generator.bit_generator.state


class GivenNumbers(UniformStream):
    """The same of numbers that are known beforehand; the place in the policy's own stream stays as it is."""

    def __init__(self, numbers: Array, state: Any) -> None:
        self.numbers, self.state = numbers, state

    def peek(self, count: int) -> Array:
        return self.numbers[:count]

    def keep(self, count: int) -> None:
        self.numbers = self.numbers[count:]


def seeded(seed: Seed) -> Seeded:
    """Return the generator of a policy.

    A given generator hands over its stream: the policy continues it, and the given one continues with another, so that
    two policies made from one generator draw different numbers.

    >>> seeded(3).setting
    3
    """
    if isinstance(seed, np.random.Generator):
        bits: Any = seed.bit_generator
        state = bits.state
        own = generator_from(state)
        bits.state = type(bits)([int(word) for word in seed.integers(2**32, size=4)]).state
        return Seeded(own, state)
    if isinstance(seed, dict):
        return Seeded(generator_from(seed), seed)
    if seed is None:
        seed = secrets.randbits(128)
    if not is_whole(seed) or not 0 <= seed < LARGEST_SEED:
        raise InvalidInput(
            f"seed must be a whole number from 0 to 2**4096 - 1, a NumPy Generator or None; got {shown(seed)}. "
            "With None the seed comes from the operating system; settings()['seed'] returns it."
        )
    return Seeded(np.random.default_rng(int(seed)), int(seed))


def generator_from(state: Any) -> np.random.Generator:
    """Return a generator in a saved state."""
    name = state.get("bit_generator") if isinstance(state, dict) else None
    if name not in _BITS:
        raise InvalidInput(f"the state of a generator must be that of one of {', '.join(_BITS)}; got {name!r}.")
    bits = getattr(np.random, name)(0)
    try:
        bits.state = state
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError, IndexError) as error:
        raise InvalidInput(f"the state of a {name} generator is malformed: {error!r}.") from None
    return np.random.Generator(bits)
