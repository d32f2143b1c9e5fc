"""The library's own policies as contestants, under every schedule."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rarely.comparison.contestant import Task
from rarely.core.policies import BatchNeuralUCB, LinTS, LinUCB, NeuralEpsilonGreedy, NeuralLinear, NeuralTS
from rarely.core.policies.base import Policy
from rarely.core.schedules import DeterminantTrigger, EveryRound, FixedGrid, GeometricGrid, Paced, Schedule
from rarely.core.types import Array
from rarely.theory.kernel_ucb import KernelUCB

WITHIN = 1.96
"""Deviations of a normal distribution that hold 95 % of it."""
Made = Callable[[Task, Schedule], Policy]


class LibraryContestant:
    """A policy of the library, with the rewards of a batch observed in one call."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._rounds: list[int] = []
        self._rewards: list[float] = []
        self._noise: float | None = None
        self._decision: Any = None

    def select(self, contexts: Array) -> int:
        """The policy's arm."""
        self._decision = self.policy.select(contexts)
        return int(self._decision.arm)

    def observe(self, round: int, contexts: Array, arm: int, reward: float) -> None:
        """Keep the reward for the update that follows."""
        self._rounds.append(round)
        self._rewards.append(reward)

    def due(self, round: int) -> bool:
        """What its schedule says."""
        return self.policy.due

    def update(self) -> None:
        """Observe all rewards, and train."""
        self.policy.observe(rounds=self._rounds, rewards=self._rewards)
        self._rounds, self._rewards = [], []
        record = self.policy.update()
        if record.accepted:
            self._noise = record.noise

    def interval(self, contexts: Array, arm: int) -> tuple[float, float] | None:
        """Mean ± 1.96·√(noise² + bonus²), once the policy has estimated the noise."""
        if self._noise is None:
            return None
        mean, bonus = float(self._decision.means[arm]), float(self._decision.bonuses[arm])
        half = WITHIN * math.hypot(self._noise, bonus)
        return mean - half, mean + half


def _of(kind: Callable[..., Policy], **settings: Any) -> Made:
    def make(task: Task, schedule: Schedule) -> Policy:
        return kind(task.dim, schedule=schedule, context_scale=task.context_scale, seed=task.seed, **settings)

    return make


MODELS: dict[str, Made] = {
    "neuralucb": _of(BatchNeuralUCB),
    "neuralts": _of(NeuralTS),
    "neurallinear": _of(NeuralLinear),
    "neuralepsilon": _of(NeuralEpsilonGreedy),
    "greedy": _of(BatchNeuralUCB, beta=0.0),
    "linucb": _of(LinUCB),
    "lints": _of(LinTS),
    "kernelucb": _of(KernelUCB),
}
"""Each with its defaults; `greedy` is the default policy without bonuses."""
SCHEDULES = ("paced", "fixed", "geometric", "trigger")


def library_contestant(model: str, schedule: str, task: Task) -> LibraryContestant:
    """A model under a schedule; with B = T all schedules are an update after every round."""
    return LibraryContestant(MODELS[model](task, EveryRound() if task.sequential else _schedule(model, schedule, task)))


def _schedule(model: str, name: str, task: Task) -> Schedule:
    if name == "paced":
        return Paced(task.horizon, task.batches)
    if name == "fixed":
        return FixedGrid(task.horizon, task.batches)
    if name == "geometric":
        return GeometricGrid(task.horizon, task.batches)
    return DeterminantTrigger(task.horizon, task.batches, _pilot_growth(model, task) / task.batches)


def _pilot_growth(model: str, task: Task) -> float:
    """How much log det Z grows over the contexts of another run, without any reward: log q is a B-th of it."""
    assert task.pilot is not None
    pilot = MODELS[model](task, DeterminantTrigger(log_ratio=math.inf))
    pilot.select(task.pilot())
    return max(float(pilot.log_det), 1e-9)
