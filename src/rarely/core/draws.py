"""Random numbers: all of a policy's come from one explicit generator."""

from __future__ import annotations

from typing import Any

import numpy as np

from rarely.core.errors import InvalidInput
from rarely.core.types import Array


class Draws:
    """One uniform number a round from a generator that moves on only when the call succeeds."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator
        self._before = self._now = generator.bit_generator.state

    def _draw(self, count: int) -> tuple[Array, Any]:
        """The next numbers and the state after them, the generator left where it was."""
        bits = self._generator.bit_generator
        bits.state = self._now
        uniforms, after = self._generator.random(count), bits.state
        bits.state = self._before
        return uniforms, after

    def peek(self, count: int) -> Array:
        """The numbers of the next rounds."""
        return self._draw(count)[0]

    def keep(self, count: int) -> None:
        """Count so many of them as used."""
        self._now = self._draw(count)[1]

    def commit(self) -> None:
        """Let the generator move on."""
        self._generator.bit_generator.state = self._now


def make_generator(seed: int | np.random.Generator | None) -> np.random.Generator:
    """All randomness of a policy comes from here."""
    return seed if isinstance(seed, np.random.Generator) else np.random.default_rng(seed)


def generator_from(state: dict[str, Any]) -> np.random.Generator:
    """A generator in a saved state."""
    name = state["bit_generator"]
    if name not in ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"):
        raise InvalidInput(f"a saved generator must be one of NumPy's own; got {name!r}.")
    bits = getattr(np.random, name)()
    bits.state = state
    return np.random.Generator(bits)
