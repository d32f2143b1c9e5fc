"""The policy that is in use today, as the point of comparison: what it loses in the simulated runs.

Of a log with one chosen arm a round that is the policy that wrote it. Of a log without arms, and of a world, nobody
knows one, and each arm is chosen as often as any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rarely.core.types import IntArray
from rarely.planning.reward_model import LogWorld
from rarely.planning.simulate import stretches
from rarely.simulation.statistics import IntervalEstimate, mean
from rarely.worlds.protocol import World, seeded


@dataclass(frozen=True)
class Present:
    """A policy that nobody trains, and its regret."""

    logged: bool
    """Whether it is that of the log; else it chooses every arm as often as any other."""
    regret: IntervalEstimate
    """In the simulated runs."""

    @property
    def name(self) -> str:
        """In words."""
        return "the policy of the log" if self.logged else "choosing arms at random"


def measure_present(world: World, rounds: int, seeds: Sequence[int]) -> Present:
    """The regret of the policy in use, in the same runs as the schedules'."""
    chosen = _chosen(world) if isinstance(world, LogWorld) else None
    if isinstance(world, LogWorld) and chosen is not None:
        return Present(True, mean([_logged_regret(world, chosen, rounds, seed) for seed in seeds]))
    return Present(False, mean([_random_regret(world, rounds, seed) for seed in seeds]))


def _chosen(world: LogWorld) -> IntArray | None:
    """The arm that was chosen in each round of the log, −1 where it is not known; None where no one arm is known."""
    rounds, arms, _ = world.log.known()
    if not len(rounds) or len(np.unique(rounds)) < len(rounds):
        return None
    chosen = np.full(len(world.log), -1)
    chosen[rounds] = arms
    return chosen


def _logged_regret(world: LogWorld, chosen: IntArray, rounds: int, seed: int) -> float:
    order, means, _ = world.secret(seeded(seed, 0))
    arms = chosen[order[:rounds]]
    known = np.flatnonzero(arms >= 0)
    lost = means[known].max(axis=1) - means[known, arms[known]]
    return float(rounds * lost.mean()) if len(known) else float("nan")


def _random_regret(world: World, rounds: int, seed: int) -> float:
    parts = stretches(world, seed, rounds)
    return float(sum((part.means.max(axis=1) - part.means.mean(axis=1)).sum() for part in parts))
