"""Bandits without contexts: K arms that return in every round, each paying by a law of its own.

    GaussianArms     one arm pays more than the others, under noise of deviation 1 (in `gallery`)
    ConstantArms     means from U[0, 1], here under noise (in `gallery`)
    StudentArms      one arm pays more, under noise with heavy tails
    UnequalArms      means from U[0, 1]; each arm has its own noise
    BernoulliArms    rewards of 0 and 1
    SafeOrRisky      0.4 for sure against 1 with probability 0.6

Contexts are one-hot, so an arm is its index and nothing is learned about one arm from another. `PLAIN_ARMS` names those
that are played.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rarely._core.types import Array
from rarely.worlds.gallery import ConstantArms, GaussianArms, Round
from rarely.worlds.protocol import World


@dataclass(frozen=True)
class StudentArms(GaussianArms):
    """One-hot arms, one of which pays `gap` more, under Student's noise; with 2 degrees its variance is infinite."""

    arms: int = 5
    gap: float = 1.0
    degrees: float = 2.0

    def round(self, t: int, secret: Any, generator: np.random.Generator) -> Round:
        return np.eye(self.arms), secret, self.noise * generator.standard_t(self.degrees, self.arms)


@dataclass(frozen=True)
class UnequalArms(ConstantArms):
    """One-hot arms with means from U[0, 1] and deviations from `least` to `noise`, uniform in the logarithm."""

    arms: int = 8
    noise: float = 2.0
    least: float = 0.05

    def secret(self, generator: np.random.Generator) -> tuple[Array, Array]:
        means = super().secret(generator)
        return means, np.exp(generator.uniform(np.log(self.least), np.log(self.noise), self.arms))

    def round(self, t: int, secret: Any, generator: np.random.Generator) -> Round:
        means, deviations = secret
        return np.eye(self.arms), means, deviations * generator.normal(size=self.arms)


@dataclass(frozen=True)
class BernoulliArms(ConstantArms):
    """One-hot arms that pay 0 or 1: one with chance `best`, the others with `rest`; 0 draws all from U[0, 1]."""

    best: float = 0.0
    rest: float = 0.0

    def secret(self, generator: np.random.Generator) -> Any:
        if not self.best:
            return super().secret(generator)
        return np.where(np.arange(self.arms) == generator.integers(self.arms), self.best, self.rest)

    def round(self, t: int, secret: Any, generator: np.random.Generator) -> Round:
        return np.eye(self.arms), secret, (generator.random(self.arms) < secret) - secret


@dataclass(frozen=True)
class SafeOrRisky(ConstantArms):
    """One arm always pays `safe`, the other 1 with probability `chance`; the seed says which is which."""

    arms: int = 2
    safe: float = 0.4
    chance: float = 0.6

    def secret(self, generator: np.random.Generator) -> Any:
        return generator.permutation([self.safe, self.chance])

    def round(self, t: int, secret: Any, generator: np.random.Generator) -> Round:
        risky = secret == self.chance
        return np.eye(2), secret, np.where(risky, (generator.random() < self.chance) - self.chance, 0.0)


PLAIN_ARMS: dict[str, World] = {
    "gaussian-3": GaussianArms(3, gap=0.2),
    "gaussian-5": GaussianArms(5, gap=0.5),
    "gaussian-10": GaussianArms(10, gap=0.3),
    "gaussian-30": GaussianArms(30, gap=0.5),
    "small-gap": GaussianArms(5, gap=0.1),
    "ten-coins": BernoulliArms(10, best=0.3, rest=0.05),
    "twenty-coins": BernoulliArms(20),
    "unequal-noise": UnequalArms(),
    "safe-or-risky": SafeOrRisky(),
    "student-2": StudentArms(),
    "student-3": StudentArms(gap=0.5, degrees=3.0),
    "returning-15": ConstantArms(15, noise=0.3),
    "returning-30": ConstantArms(30, noise=0.3),
}
"""All of them by name, as they are played. The gap of `small-gap` is 2√(K/T) at T = 2000: the worst for T rounds."""
