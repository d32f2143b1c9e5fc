"""Rewards for rounds of a log: fitted to those that are known, imagined, or a simulator's; and the log as a world.

fitted      the network that the default policy would train on the log, judged by a fifth that it did not see
imagined    a draw from the Gaussian process with the neural tangent kernel, anew in every run: what a wide network
            could learn, and nothing that anyone measured
simulated   the user's own function
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from rarely.core.errors import InvalidInput
from rarely.core.inputs.scaling import Affine
from rarely.core.policies import BatchNeuralUCB
from rarely.core.schedules import EveryRound
from rarely.core.types import Array, IntArray
from rarely.logs.errors import InvalidLog
from rarely.logs.planning_log import Log
from rarely.worlds.protocol import World, seeded

FEWEST = 50
"""Rewards below which a network is not fitted: a fifth of them would judge nothing."""
MOST = 5000
"""Rewards that a network is fitted to; of more so many are picked at random."""
RARE = 10
"""Rewards of an arm below which next to nothing is known of it."""
TRIES = 4
"""Trainings, each of which tunes one more path on one more fold."""
UNITS = 512
"""Of the imagined network: wide, so that its draws are near those of the limit."""
NOISE = 0.5
"""Noise of imagined and simulated rewards, in units of their spread, where it is not given."""

Simulator = Callable[[Array], Any]
_Secret = tuple[IntArray, Array, float]


class Rewards(Protocol):
    """What arms pay on average, and how far rewards scatter around it."""

    def means(self, rounds: IntArray, generator: np.random.Generator) -> Array:
        """(m, K) of rounds of the log; the generator is the run's."""

    def noise(self, means: Array) -> float:
        """The standard deviation of a reward around its mean."""


@dataclass(frozen=True)
class Fit:
    """How good a fitted network is."""

    rewards: int
    """How many it learned from."""
    r_squared: float
    """Share of the variance of held-out rewards that it foresees: 1 is all, 0 or below is none."""
    noise: float
    """Standard deviation of held-out rewards around its predictions."""
    tuning: str
    """How it was trained, and why so."""
    rare: tuple[tuple[int, int], ...]
    """(arm, rewards known of it) of arms with fewer than RARE; none where arms have features of their own."""


@dataclass(frozen=True, eq=False)
class FittedRewards:
    """The means of a network that was trained on the log."""

    log: Log
    network: BatchNeuralUCB
    fit: Fit

    def means(self, rounds: IntArray, generator: np.random.Generator) -> Array:
        parts = _parts(len(rounds), 8 * self.log.arms * self.log.dim)
        return np.concatenate([self.network.score(self.log.contexts(rounds[part])).means for part in parts])

    def noise(self, means: Array) -> float:
        return self.fit.noise


@dataclass(frozen=True, eq=False)
class ImaginedRewards:
    """Standardised draws of Σ_j [a_j·1(w_j·x > 0)·v_j·x + u_j·σ(w_j·x)], a, u, v, w ~ N(0, 1): in the limit NTK's."""

    log: Log
    deviation: float = NOISE

    def means(self, rounds: IntArray, generator: np.random.Generator) -> Array:
        w, v = generator.normal(size=(2, UNITS, self.log.dim))
        a, u = generator.normal(size=(2, UNITS))
        drawn = np.empty((len(rounds), self.log.arms))
        for part in _parts(len(rounds), 8 * self.log.arms * (self.log.dim + 2 * UNITS)):
            x = self.log.contexts(rounds[part])
            units = x @ w.T
            drawn[part] = ((x @ v.T) * (units > 0)) @ a + np.maximum(units, 0.0) @ u
        return np.asarray((drawn - drawn.mean()) / (drawn.std() or 1.0))

    def noise(self, means: Array) -> float:
        return self.deviation


@dataclass(frozen=True, eq=False)
class SimulatedRewards:
    """The user's function of features, (m, r) or (m, K, f) as the log has them, to means (m, K)."""

    log: Log
    simulator: Simulator
    deviation: float | None = None

    def means(self, rounds: IntArray, generator: np.random.Generator) -> Array:
        features = self.log.features[rounds]
        told = self.simulator(features)
        try:
            means = np.asarray(told, np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"the simulator must give numbers, a mean for every arm; {error}.") from None
        if means.shape != (len(rounds), self.log.arms) or not np.isfinite(means).all():
            raise InvalidInput(
                f"the simulator must give a finite mean for every arm, {(len(rounds), self.log.arms)} of features "
                f"{features.shape}; got {means.shape}{'' if np.isfinite(means).all() else ', not all finite'}."
            )
        return means

    def check(self) -> None:
        """Refuse one that cannot be used, or that draws: means must be the same whenever they are asked for."""
        some, generator = np.arange(min(8, len(self.log))), np.random.default_rng(0)
        if not np.array_equal(self.means(some, generator), self.means(some, generator)):
            raise InvalidInput(
                "the simulator must give mean rewards, the same for the same features; got others the second time. "
                "Noise is added by the plan: leave it out of the simulator, or seed it."
            )

    def noise(self, means: Array) -> float:
        return NOISE * float(means.std()) if self.deviation is None else self.deviation


def fit_rewards(log: Log, seed: int, *, noise: float | None = None) -> FittedRewards:
    """Train the default network on the known rewards of a log, after a look at how it does on a fifth of them."""
    rounds, arms, rewards = log.known()
    if len(rewards) < FEWEST:
        raise InvalidLog(
            f"a reward model needs at least {FEWEST} rewards; the log has {len(rewards)}. Leave the rewards out, and "
            "they are imagined, or give a simulator."
        )
    if not np.ptp(rewards) > 0:
        raise InvalidLog(
            f"rewards must differ for a model of them; all {len(rewards)} are {rewards[0]:g}. Leave them out, and "
            "others are imagined, or give a simulator."
        )
    counts = np.bincount(arms, minlength=log.arms)
    rare = () if log.features.ndim == 3 else tuple((int(i), int(counts[i])) for i in np.flatnonzero(counts < RARE))
    # Whole rounds in a random order: no round has one reward to learn from and another to be judged by.
    places = np.random.default_rng((seed, 5)).permutation(len(log))
    order = np.argsort(places[rounds], kind="stable")[:MOST]
    rounds, arms, rewards = rounds[order], arms[order], rewards[order]
    contexts = np.empty((len(order), log.dim))
    for part in _parts(len(order), 8 * log.arms * log.dim):
        contexts[part] = log.contexts(rounds[part])[np.arange(len(arms[part])), arms[part]]
    fifth = len(order) // 5
    held = int(np.searchsorted(places[rounds], places[rounds[fifth]])) or fifth
    early = _trained(contexts[held:], rewards[held:], seed)
    missed = rewards[:held] - early.score(contexts[:held, None]).means[:, 0]
    spread = float(np.mean(np.square(rewards[:held] - rewards[held:].mean())))
    r_squared = 1 - float(np.mean(np.square(missed))) / spread if spread > 0 else 0.0
    network = _trained(contexts, rewards, seed)
    record = network.updates[-1]
    deviation = noise if noise is not None else record.noise or float(np.sqrt(np.mean(np.square(missed))))
    return FittedRewards(log, network, Fit(len(order), r_squared, deviation, record.tuning, rare))


def _trained(contexts: Array, rewards: Array, seed: int) -> BatchNeuralUCB:
    """The default network; its bonuses are not asked for, so the cheapest covariance does."""
    scale = Affine.identity(contexts.shape[1])
    network = BatchNeuralUCB.from_log(
        contexts, rewards, schedule=EveryRound(), context_scale=scale, covariance="diagonal", seed=seed
    )
    for _ in range(TRIES - 1):
        network.update(force=True)  # judges the candidates by another fold
    return network


@dataclass(frozen=True, eq=False)
class LogWorld(World):
    """The rounds of a log in a random order, and drawn with replacement beyond its end, paying such rewards."""

    log: Log
    rewards: Rewards
    horizon: int
    settled: Mapping[str, _Secret] = field(default_factory=dict)
    """Order, means and noise of some runs, by their generators: made once, shared by all schedules."""
    arms: int = field(init=False)
    dim: int = field(init=False)
    context_scale: Affine | None = field(init=False)

    def __post_init__(self) -> None:
        derived = {"arms": self.log.arms, "dim": self.log.dim, "context_scale": Affine.identity(self.log.dim)}
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def settle(self, seeds: Sequence[int]) -> LogWorld:
        """The same world, which need not ask for the means of these runs again: simulators may be slow."""
        settled = {}
        for seed in seeds:
            generator = seeded(seed, 0)
            mark = _mark(generator)  # before anything is drawn from it
            settled[mark] = self.secret(generator)
        return replace(self, settled=settled)

    def secret(self, generator: np.random.Generator) -> _Secret:
        if (known := self.settled.get(_mark(generator))) is not None:
            return known
        order = generator.permutation(len(self.log))[: self.horizon]
        again = generator.integers(len(self.log), size=self.horizon - len(order))
        order = np.concatenate([order, again])
        means = self.rewards.means(order, generator)
        return order, means, self.rewards.noise(means)

    def round(self, t: int, secret: _Secret, generator: np.random.Generator) -> tuple[Array, Array, float]:
        order, means, noise = secret
        return self.log.contexts(order[t - 1 : t])[0], means[t - 1], noise * generator.normal()


def _mark(generator: np.random.Generator) -> str:
    return str(generator.bit_generator.state["state"])


def _parts(count: int, bytes_each: int, limit: int = 2**26) -> list[slice]:
    """Slices of so many things that each fit 64 MiB."""
    size = max(1, limit // bytes_each)
    return [slice(start, start + size) for start in range(0, count, size)]
