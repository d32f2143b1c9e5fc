"""Random numbers: every policy has one generator of its own."""

from __future__ import annotations

import json
import secrets
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from rarely.core.errors import InvalidInput, SnapshotError
from rarely.core.saving.fields import Fields
from rarely.core.types import Array

Seed = int | np.random.Generator | dict[str, Any] | None
"""A whole number, a generator, a generator's saved state, or None for a seed from the operating system."""
_BITS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
_PLACES = {"MT19937": ("pos", 624), "Philox": ("buffer_pos", 4)}
"""Where a state says which of so many buffered numbers is next, which NumPy takes as it comes."""


class Seeded(NamedTuple):
    """A generator, and the seed as JSON that makes the same one again."""

    generator: np.random.Generator
    setting: Any


class UniformStream:
    """One uniform number a round, from a generator that serves as scratch: its place in the stream is `state`."""

    def __init__(self, generator: np.random.Generator, state: Any) -> None:
        self._generator, self.state = generator, state

    def peek(self, count: int) -> Array:
        """The numbers of the next rounds."""
        self._generator.bit_generator.state = self.state
        return self._generator.random(count)

    def keep(self, count: int) -> None:
        """Count that many of them as used."""
        self.peek(count)
        self.state = self._generator.bit_generator.state


def seeded(seed: Seed) -> Seeded:
    """The generator of a policy.

    A generator that is given hands over its stream: the policy continues it, and the given one goes on with
    another, so that two policies made from one generator draw different numbers.

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
    if isinstance(seed, bool) or not isinstance(seed, Integral) or seed < 0:
        raise InvalidInput(
            f"seed must be a whole number of at least 0, a NumPy Generator or None; got {seed!r}. "
            "With None the seed comes from the operating system, and settings()['seed'] tells it."
        )
    return Seeded(np.random.default_rng(int(seed)), int(seed))


def generator_from(state: Any) -> np.random.Generator:
    """A generator in a saved state."""
    name = state.get("bit_generator") if isinstance(state, dict) else None
    if name not in _BITS:
        raise InvalidInput(f"the state of a generator must be that of one of {', '.join(_BITS)}; got {name!r}.")
    bits = getattr(np.random, name)(0)
    try:
        bits.state = state
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError, IndexError) as error:
        raise InvalidInput(f"the state of a {name} generator is malformed: {error!r}.") from None
    place, most = _PLACES.get(name, ("", 0))
    known = bits.state | bits.state["state"]
    if known.get("has_uint32", 0) not in (0, 1) or not 0 <= known.get(place, 0) <= most:
        raise InvalidInput(f"the state of a {name} generator must have places within its buffers; got {state!r}.")
    return np.random.Generator(bits)


def read_generator(saved: Fields) -> np.random.Generator:
    """The saved generator, whose state must be what NumPy makes of it: whole numbers in range, and no other fields."""
    state = saved.value("generator")
    try:
        generator = generator_from(state)
    except InvalidInput as error:
        raise SnapshotError(f"must hold the state of a generator in generator: {error} Use a backup.") from None
    saved.require(_text(generator.bit_generator.state) == _text(state), "generator must hold whole numbers in range")
    return generator


def _text(state: Any) -> str:
    return json.dumps(state, sort_keys=True, default=lambda value: value.tolist())
