"""Rivals for plain arms: UCB1, batched successive elimination and Thompson sampling, under any schedule.

    t     round        ()    rounds decided so far
    n_k   chosen       (K,)  rounds in which arm k was chosen, those of the batch under way included
    m_k   known        (K,)  rewards of arm k that were observed
    μ     centre       ()    mean of all rewards
    μ_k   means        (K,)  mean of arm k's rewards; μ where there is none
    s_k   deviations   (K,)  √((Σ(r − μ_k)² + 3s²)/(m_k + 2)), arm k's shrunk to s; s where there is no reward

s is the largest standard deviation that all rewards had at an update, so it stays if a policy settles on an arm without
noise. No rival is given the noise of its world. All but n_k and t change at updates alone.

A rival knows an arm by its index, so it refuses contexts that differ from round to round. log det Z, which `Paced`
follows, is that of one-hot arms with λ = 1: Σ log(1 + n_k).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from rarely._core.errors import InvalidInput
from rarely._core.schedules import Budget, Schedule
from rarely._core.types import Array
from rarely_lab.compare.problems import Task

PRIOR_REWARDS = 3
"""Rewards of deviation s that each arm's deviation is shrunk by."""


class PlainContestant(ABC):
    """What the rivals share: counts, means and deviations of arms, and a schedule."""

    def __init__(self, task: Task, schedule: Schedule) -> None:
        self._task, self._schedule = task, Budget.around(schedule)
        self._generator = np.random.default_rng((task.seed, 0, 8))
        self._contexts: Any = None
        self._rewards: list[list[float]] = [[] for _ in range(task.arms)]
        self._spread = 0.0
        self._version = self._began = 0
        self._began_log_det = 0.0
        self._due = False
        self.chosen, self.known, self.means = (np.zeros(task.arms) for _ in range(3))
        self.deviations, self.centre = np.ones(task.arms), 0.0

    @abstractmethod
    def scores(self) -> Array:
        """Return a number for each arm, (K,); the largest is played, and ties are broken at random."""

    def select(self, contexts: Array) -> int:
        """Return the arm with the largest score, and count it."""
        if self._contexts is None:
            self._contexts = np.array(contexts)
        elif not np.array_equal(contexts, self._contexts):
            raise InvalidInput(
                f"{type(self).__name__} knows an arm by its index, so contexts must be the same in every round; "
                "these changed. Play it on plain arms."
            )
        scores = self.scores()
        arm = int(self._generator.choice(np.flatnonzero(scores == scores.max())))
        self.chosen[arm] += 1
        return arm

    def observe(self, round: int, contexts: Array, arm: int, reward: float) -> None:
        """Keep the reward for the update that follows."""
        self._rewards[arm].append(reward)

    def due(self, round: int) -> bool:
        """Return whether the schedule has ended the batch."""
        batch = self._schedule.in_batch(self._version, self._began, self._began_log_det)
        growth = np.array([self._log_det - self._began_log_det])
        self._due = self._due or batch.first_due(round - 1, growth) is not None
        return self._due

    def update(self) -> None:
        """Compute means and deviations from all rewards, and begin the next batch."""
        everything = np.concatenate(self._rewards)
        self.centre, self._spread = float(everything.mean()), max(self._spread, float(everything.std()))
        self.known = np.array([float(len(of)) for of in self._rewards])
        self.means = np.array([np.mean(of) if of else self.centre for of in self._rewards])
        squares = np.array([np.var(of) * len(of) if of else 0.0 for of in self._rewards])
        prior = PRIOR_REWARDS * self._spread**2
        self.deviations = np.sqrt((squares + prior) / np.maximum(self.known - 1 + PRIOR_REWARDS, PRIOR_REWARDS))
        self._version, self._due = self._version + 1, False
        self._began, self._began_log_det = int(self.chosen.sum()), self._log_det

    @property
    def last(self) -> bool:
        """Whether this version is the last one."""
        return self._version >= self._task.batches - 1

    @property
    def _log_det(self) -> float:
        return float(np.log1p(self.chosen).sum())


class UCB1(PlainContestant):
    """μ_k + s_k·√(2 log t / n_k): UCB1 of Auer et al. (2002), with s_k for the range of rewards.

    n_k follows the choices within a batch, as the library's running bonuses do; else a batch would be one arm.
    """

    def scores(self) -> Array:
        bonuses = np.sqrt(2 * np.log1p(self.chosen.sum()) / np.maximum(self.chosen, 1))
        return np.where(self.chosen > 0, self.means + self.deviations * bonuses, np.inf)


class Elimination(PlainContestant):
    """Batched successive elimination (BaSE of Gao et al., 2019): the arms that are left are chosen equally often.

    An update gives up arm k if some μ_j − μ_k exceeds √(2 (s_j²/m_j + s_k²/m_k) log(KT)), the error of a difference;
    the paper has a larger constant. The last version plays the largest mean.
    """

    def __init__(self, task: Task, schedule: Schedule) -> None:
        super().__init__(task, schedule)
        self.left = np.ones(task.arms, bool)

    def scores(self) -> Array:
        return np.where(self.left, self.means if self.last else -self.chosen, -np.inf)

    def update(self) -> None:
        """Give up the arms that are shown to be worse than another."""
        super().update()
        variances = np.where(self.known > 0, self.deviations**2 / np.maximum(self.known, 1), np.inf)
        errors = np.sqrt(2 * (variances + variances[:, None]) * np.log(self._task.arms * self._task.horizon))
        self.left &= ~(self.means - self.means[:, None] > errors).any(axis=1)


class GaussianThompson(PlainContestant):
    """Thompson sampling: each arm draws from N((m_k μ_k + μ)/(m_k + 1), s_k²/(m_k + 1))."""

    def scores(self) -> Array:
        weights = self.known + 1
        centres = (self.known * self.means + self.centre) / weights
        return self._generator.normal(centres, self.deviations / np.sqrt(weights))


class BetaThompson(PlainContestant):
    """Thompson sampling: each arm draws from Beta(1 + successes, 1 + failures).

    A reward between 0 and 1 is partly a success. Where rewards lie elsewhere, their range so far is mapped to [0, 1].
    """

    def __init__(self, task: Task, schedule: Schedule) -> None:
        super().__init__(task, schedule)
        self.successes = np.zeros(task.arms)

    def scores(self) -> Array:
        return self._generator.beta(1 + self.successes, 1 + np.maximum(self.known - self.successes, 0))

    def update(self) -> None:
        """Count successes again, because the range may have grown."""
        super().update()
        everything = np.concatenate(self._rewards)
        low, high = min(0.0, everything.min()), max(1.0, everything.max())
        self.successes = self.known * (self.means - low) / (high - low)


RIVALS: dict[str, Callable[[Task, Schedule], PlainContestant]] = {
    "ucb1": UCB1,
    "elimination": Elimination,
    "thompson": GaussianThompson,
    "thompson-beta": BetaThompson,
}
