"""A drifting and a delayed form of every problem.

    drift   between rounds T/4 and 3T/4 the world turns gradually into another: round t belongs to the new one with a
            probability that rises from 0 to 1, as in the gradual drift of Gama et al. (2014)
    delay   a reward can be told D ≥ 1 rounds late, D geometric with mean T/20

The new world has the same contexts in distribution. Where arms are blocks of one row, each arm pays what its neighbour
paid; elsewhere it is the same world with another secret, that of another seed.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from rarely.core.types import IntArray
from rarely.worlds.protocol import Rounds, World

Variant = Literal["", "drift", "delay"]
VARIANTS: tuple[Variant, ...] = ("", "drift", "delay")
OTHER = 2**31
"""Added to a seed for another run of the same world: no run that is compared has such a seed."""
MEAN_DELAY = 1 / 20
"""In horizons."""


def drifted(world: World, seed: int, count: int, *, blocks: bool) -> Rounds:
    """The rounds of a run whose world turns into another."""
    before, after = world.rounds(seed, count), world.rounds(seed + OTHER, count)
    means, rewards = after.means, after.rewards
    if blocks:
        means, rewards = np.roll(means, 1, axis=1), np.roll(rewards, 1, axis=1)
    share = np.clip(2 * np.arange(1, count + 1) / count - 0.5, 0, 1)
    new = np.random.default_rng((seed, 0, 3)).random(count) < share
    return Rounds(
        np.where(new[:, None, None], after.contexts, before.contexts),
        np.where(new[:, None], means, before.means),
        np.where(new[:, None], rewards, before.rewards),
    )


def delays(seed: int, count: int) -> IntArray:
    """How many rounds late each reward can be told, (T,)."""
    chance = min(1.0, 1 / (MEAN_DELAY * count))
    return np.asarray(np.random.default_rng((seed, 0, 4)).geometric(chance, count))
