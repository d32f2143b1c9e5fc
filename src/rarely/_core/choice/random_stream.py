"""Random numbers: every policy has its own generator."""

from __future__ import annotations

import secrets
from typing import Any, NamedTuple

import numpy as np

from rarely._core.errors import InvalidInput, is_whole, shown
from rarely._core.growable_array import address
from rarely._core.types import Array

Seed = int | np.random.Generator | dict[str, Any] | None
"""A whole number, a generator, a generator's saved state, or None for a seed from the operating system."""
_BITS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
LARGEST_SEED = 2**4096  # Python writes no whole number of many more digits
DRAWN_AHEAD = 64  # numbers that are drawn at a time, at least
NO_NUMBERS: Array = np.empty(0)


class Seeded(NamedTuple):
    """A generator, and the seed as JSON that makes the same one again."""

    generator: np.random.Generator
    setting: Any


class RandomPlace:
    """A place in the stream of a generator: after the first `used` of the `numbers` that follow a saved state.

    Reading and setting the state of a generator takes longer than a decision, so some numbers are drawn ahead.

    >>> start = np.random.default_rng(0).bit_generator.state
    >>> place = RandomPlace(start).ahead(np.random.default_rng(), 2)
    >>> float(place.numbers[place.used]), place.after(1) == RandomPlace(start)
    (0.6369616873214543, False)
    """

    __slots__ = ("_start", "address", "numbers", "used")

    def __init__(self, start: Any, numbers: Array = NO_NUMBERS, used: int = 0, address: int = 0) -> None:
        self._start, self.numbers, self.used, self.address = start, numbers, used, address

    def __reduce__(self) -> Any:
        return RandomPlace, (self.state,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RandomPlace) and bool(self.state == other.state)

    __hash__ = None  # type: ignore[assignment]

    @property
    def state(self) -> Any:
        """The state of the generator at this place."""
        if not self.used:
            return self._start
        generator = generator_from(self._start)
        generator.random(self.used)  # one word of the stream each, or two
        return generator.bit_generator.state

    def following(self, count: int) -> Array:
        """Return the next numbers."""
        return generator_from(self.state).random(count)

    def ahead(self, generator: np.random.Generator, count: int) -> RandomPlace:
        """Return the same place with that many numbers known; `generator` is scratch."""
        if self.used + count <= len(self.numbers):
            return self
        start = generator.bit_generator.state = self.state
        numbers = generator.random(max(count, DRAWN_AHEAD))
        return RandomPlace(start, numbers, 0, address(numbers))

    def next(self, count: int) -> Array:
        """Return the next of the known numbers."""
        return self.numbers[self.used : self.used + count]

    def after(self, count: int) -> RandomPlace:
        """Return the place after that many of the known numbers."""
        return RandomPlace(self._start, self.numbers, self.used + count, self.address)


def seeded(seed: Seed) -> Seeded:
    """Return the generator of a policy.

    A given generator hands over its stream: the policy continues it, and the given one continues with another, so that
    two policies made from one generator draw different numbers.
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
