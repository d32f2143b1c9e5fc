"""Small worlds in which a policy that stops exploring, or trusts its first impressions, is found out.

Bandits without contexts, `ConstantArms` and its kinds, have K arms that return in every round, each paying by a law of
its own. Their contexts are one-hot, so an arm is its index and nothing is learned about one arm from another. Every
world is given by its seed and round alone, as `World` promises; none takes more than a few lines.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from rarely.extend import Affine, ArmBlocks, Array, ContextMap, IntArray
from rarely.extend.checks import check_choice, check_whole
from rarely.worlds.protocol import World, seeded

Round = tuple[Array, Array, float | Array]
WHEEL_BLOCKS = ArmBlocks(5, Affine.identity(2, constant=True))


@dataclass(frozen=True)
class Sized(World):
    """A world of so many arms, with so many numbers in the context of each."""

    arms: int
    dim: int


@dataclass(frozen=True)
class _Noisy(Sized):
    noise: float  # standard deviation of normal noise, the same for all arms


class Needle(_Noisy):
    """Fixed arms in [0, 1]²: one pays 0.9, the others at most 0.3."""

    def secret(self, generator: np.random.Generator) -> tuple[Array, Array]:
        means = 0.3 * generator.random(self.arms)
        means[generator.integers(self.arms)] = 0.9
        return generator.random((self.arms, self.dim)), means

    def round(self, t: int, secret: tuple[Array, Array], generator: np.random.Generator) -> Round:
        contexts, means = secret
        return contexts, means, generator.normal(0, self.noise)


@dataclass(frozen=True)
class Wheel(World):
    """The wheel of Riquelme et al. (2018): a context in the unit disc, and five arms on disjoint blocks of it.

    Arm 0 pays 1.2 and the others 1.0; but outside radius `delta` the arm of the context's quadrant pays 50.
    """

    delta: float = 0.8
    noise: float = 0.01
    arms: int = field(init=False, default=5)
    dim: int = field(init=False, default=WHEEL_BLOCKS.dim)
    context_scale: ContextMap | None = field(init=False, default=WHEEL_BLOCKS.scale)

    def secret(self, generator: np.random.Generator) -> None:
        return None

    def round(self, t: int, secret: None, generator: np.random.Generator) -> Round:
        angle, radius = 2 * np.pi * generator.random(), np.sqrt(generator.random())
        point = radius * np.array([np.cos(angle), np.sin(angle)])
        means = np.array([1.2, 1.0, 1.0, 1.0, 1.0])
        if radius > self.delta:
            means[1 + 2 * (point[0] < 0) + (point[1] < 0)] = 50.0
        return WHEEL_BLOCKS(point), means, generator.normal(0, self.noise)


@dataclass(frozen=True)
class ConstantArms(World):
    """One-hot arms; arm k always pays u_k ~ U[0, 1]."""

    arms: int = 10
    noise: float = 0.0
    dim: int = field(init=False)

    def __post_init__(self) -> None:
        vars(self).update(dim=self.arms)

    def secret(self, generator: np.random.Generator) -> Any:
        return generator.random(self.arms)

    def round(self, t: int, secret: Any, generator: np.random.Generator) -> Round:
        return np.eye(self.arms), secret, self.luck(secret, generator)

    def luck(self, means: Array, generator: np.random.Generator) -> float | Array:
        """Return the noise of a round, one for all arms or of each."""
        return generator.normal(0, self.noise) if self.noise else 0.0


@dataclass(frozen=True)
class GaussianArms(ConstantArms):
    """One-hot arms, one of which pays `gap` more than the others, under noise of deviation 1."""

    arms: int = 3
    noise: float = 1.0
    gap: float = 0.4

    def secret(self, generator: np.random.Generator) -> Array:
        return np.where(np.arange(self.arms) == generator.integers(self.arms), self.gap, 0.0)


class RareReward(Sized):
    """A click with a chance of a few percent, twenty times larger for the best arms than for the worst."""

    def secret(self, generator: np.random.Generator) -> Array:
        theta = generator.normal(size=self.dim)
        return np.asarray(theta / np.linalg.norm(theta))

    def round(self, t: int, secret: Array, generator: np.random.Generator) -> Round:
        contexts = generator.normal(size=(self.arms, self.dim))
        chances = 0.03 * np.exp(1.5 * np.clip(contexts @ secret, -2, 1))
        return contexts, chances, 0.0

    def rounds(self, seed: int, count: int, first: int = 1) -> Any:
        """Return rounds whose rewards are 0 or 1: the same draw decides for all arms."""
        drawn = super().rounds(seed, count, first)
        luck = np.array([np.random.default_rng((seed, t, 2)).random() for t in range(first, first + count)])
        return type(drawn)(drawn.contexts, drawn.means, (luck[:, None] < drawn.means).astype(np.float64))


class TwoSided(_Noisy):
    """Rewards rise to both sides of the middle, and one side pays more: half the seeds mislead at first."""

    def secret(self, generator: np.random.Generator) -> float:
        return float(generator.choice([-1.0, 1.0]))

    def round(self, t: int, secret: float, generator: np.random.Generator) -> Round:
        contexts = generator.uniform(-1, 1, (self.arms, 1))
        x = secret * contexts[:, 0]
        return contexts, np.where(x > 0, x, -0.6 * x), generator.normal(0, self.noise)


class HeavyTails(Sized):
    """A linear reward under Student's noise with two degrees of freedom, whose variance is infinite."""

    def secret(self, generator: np.random.Generator) -> Array:
        return generator.normal(size=self.dim)

    def round(self, t: int, secret: Array, generator: np.random.Generator) -> Round:
        contexts = generator.normal(size=(self.arms, self.dim))
        return contexts, contexts @ secret, float(generator.standard_t(2))


class OneInFifty(Needle):
    """Fifty fixed arms in the plane, one of which pays 1 and the others 0."""

    def secret(self, generator: np.random.Generator) -> tuple[Array, Array]:
        contexts = generator.normal(size=(self.arms, self.dim))
        return contexts, (np.arange(self.arms) == generator.integers(self.arms)).astype(np.float64)


class UselessColumns(_Noisy):
    """Two columns of fifty matter; the others are noise of ten times their size."""

    def secret(self, generator: np.random.Generator) -> IntArray:
        return generator.permutation(self.dim)[:2]

    def round(self, t: int, secret: IntArray, generator: np.random.Generator) -> Round:
        contexts = 10 * generator.normal(size=(self.arms, self.dim))
        contexts[:, secret] /= 10
        return contexts, np.tanh(contexts[:, secret] @ np.array([1.0, -1.0])), generator.normal(0, self.noise)


@dataclass(frozen=True)
class LateSpread(_Noisy):
    """cos(2xᵀθ) of five columns; a sixth, irrelevant one grows a thousandfold after `calm` rounds."""

    calm: int = 60

    def secret(self, generator: np.random.Generator) -> Array:
        return generator.normal(size=self.dim - 1)

    def round(self, t: int, secret: Array, generator: np.random.Generator) -> Round:
        contexts = generator.random((self.arms, self.dim))
        means = np.cos(2 * contexts[:, :-1] @ secret)
        if t <= self.calm:
            contexts[:, -1] *= 1e-3
        return contexts, means, generator.normal(0, self.noise)


@dataclass(frozen=True)
class Drifting(_Noisy):
    """A linear reward in the plane whose direction makes a full turn in `period` rounds."""

    period: int = 2000

    def secret(self, generator: np.random.Generator) -> float:
        return float(2 * np.pi * generator.random())

    def round(self, t: int, secret: float, generator: np.random.Generator) -> Round:
        angle = secret + 2 * np.pi * t / self.period
        contexts = generator.normal(size=(self.arms, 2))
        return contexts, contexts @ np.array([np.cos(angle), np.sin(angle)]), generator.normal(0, self.noise)


@dataclass(frozen=True)
class InUnits(World):
    """Another world with its contexts in other units."""

    world: World
    unit: float
    arms: int = field(init=False)
    dim: int = field(init=False)

    def __post_init__(self) -> None:
        vars(self).update(arms=self.world.arms, dim=self.world.dim)

    def describe(self) -> dict[str, Any]:
        """Return the world within, and the unit."""
        return super().describe() | {"within": self.world.describe(), "unit": self.unit}

    def secret(self, generator: np.random.Generator) -> Any:
        return self.world.secret(generator)

    def round(self, t: int, secret: Any, generator: np.random.Generator) -> tuple[Any, Any, Any]:
        contexts, means, noise = self.world.round(t, secret, generator)
        return self.unit * np.asarray(contexts), means, noise


QUALITY, COST = np.array([0.35, 0.55, 0.75]), np.array([0.1, 0.5, 2.0])
NUMBERS = 4
Change = Literal["price cut", "regression"]


class Router(World):
    """Which of three models answers a prompt of four numbers, under a budget: after ParetoBandit's router.

    The large model is the best of most prompts and costs twenty times the small one. In the middle of the rounds either
    its price is cut to a fifth, or it gets worse without a word.
    """

    arms, dim = 3, 3 * (NUMBERS + 1)

    def __init__(self, change: Change, horizon: int = 4000) -> None:
        check_choice("change", change, Change)
        check_whole("horizon", horizon, 2)
        self.change, self.horizon = change, int(horizon)

    def secret(self, generator: np.random.Generator) -> Any:
        return generator.normal(size=(self.arms, NUMBERS)) * 0.15

    def round(self, t: int, secret: Any, generator: np.random.Generator) -> tuple[Any, Any, Any]:
        x = generator.normal(size=NUMBERS)
        quality = QUALITY + secret @ x
        assert self.horizon is not None
        if self.change == "regression" and t > self.horizon // 2:
            quality[2] -= 0.35
        quality = np.clip(quality, 0.02, 0.98)
        row = np.append(x, 1.0)
        contexts = np.kron(np.eye(self.arms), row)
        return contexts, quality, (generator.random(self.arms) < quality) - quality

    def costs(self, seed: int) -> Array:
        """Return what every answer costs, (horizon, K): as long as the prompt, which differs."""
        assert self.horizon is not None
        costs = COST * seeded(seed, self.horizon + 1).uniform(0.6, 1.4, (self.horizon, 1))
        if self.change == "price cut":
            costs[self.horizon // 2 :, 2] *= 0.2
        return np.asarray(costs)


# --- bandits without contexts


@dataclass(frozen=True)
class StudentArms(GaussianArms):
    """One-hot arms, one of which pays `gap` more, under Student's noise; with 2 degrees its variance is infinite."""

    arms: int = 5
    gap: float = 1.0
    degrees: float = 2.0

    def luck(self, means: Array, generator: np.random.Generator) -> Array:
        return np.asarray(self.noise * generator.standard_t(self.degrees, self.arms))


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

    def luck(self, means: Array, generator: np.random.Generator) -> Array:
        return (generator.random(self.arms) < means) - means


@dataclass(frozen=True)
class SafeOrRisky(ConstantArms):
    """One arm always pays `safe`, the other 1 with probability `chance`; the seed says which is which."""

    arms: int = 2
    safe: float = 0.4
    chance: float = 0.6

    def secret(self, generator: np.random.Generator) -> Any:
        return generator.permutation([self.safe, self.chance])

    def luck(self, means: Array, generator: np.random.Generator) -> Array:
        return np.where(means == self.chance, (generator.random() < self.chance) - self.chance, 0.0)


GALLERY: dict[str, World] = {
    "needle": Needle(10, 2, 0.3),
    "wheel": Wheel(),
    "constant-arms": ConstantArms(),
    "gaussian-arms": GaussianArms(),
    "rare-reward": RareReward(5, 4),
    "two-sided": TwoSided(4, 1, 0.2),
    "heavy-tails": HeavyTails(4, 3),
    "one-in-fifty": OneInFifty(50, 2, 0.1),
    "useless-columns": UselessColumns(4, 50, 0.1),
    "late-spread": LateSpread(4, 6, 0.1),
    "drifting": Drifting(5, 2, 0.1),
    "small-units": InUnits(LateSpread(4, 6, 0.1, calm=0), 1e-6),
    "large-units": InUnits(LateSpread(4, 6, 0.1, calm=0), 1e6),
}
"""Worlds with contexts, or a few arms, by name, as they are played."""
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
"""Bandits without contexts by name. The gap of `small-gap` is 2√(K/T) at T = 2000: the worst for T rounds."""
