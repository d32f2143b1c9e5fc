"""Policies made of other packages: regressors of scikit-learn and LightGBM, and Vowpal Wabbit.

    forest, boosting, lightgbm     a regressor of rewards with ε-greedy choice, ε = 0.1
    NAME-bootstrap                 ten of them, each trained on a resample; one of the ten decides a round
    vowpal                         Vowpal Wabbit, --cb_explore_adf with ε = 0.1 and its other defaults

All update at rounds T(b/B)². Packages are imported when a policy is made.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, Literal

import numpy as np

from rarely.comparison.contestant import Contestant, Task
from rarely.core.types import Array

EPSILON = 0.1
MEMBERS = 10
FEWEST = 2
"""Rewards that a regressor needs; with fewer, version 0 stays in use."""
Exploration = Literal["epsilon", "bootstrap"]


class SquaresClock:
    """Due at the rounds T(b/B)², and then until the update was made: late rewards may hold it up.

    >>> clock = SquaresClock(Task(arms=2, dim=1, horizon=9, batches=3, seed=0))
    >>> clock.due(1), clock.due(2), clock.reset(), clock.due(3), clock.due(4)
    (True, True, None, False, True)
    """

    def __init__(self, task: Task) -> None:
        self._ends = tuple(range(1, task.horizon)) if task.sequential else task.squares
        self._passed = self._made = 0

    def due(self, round: int) -> bool:
        """Whether an end has passed since the last update."""
        self._passed = bisect_right(self._ends, round)
        return self._passed > self._made

    def reset(self) -> None:
        """Note that the update was made."""
        self._made = self._passed


class RegressorContestant:
    """Any regressor with `fit` and `predict`; version 0 chooses any arm alike."""

    def __init__(self, task: Task, regressor: Callable[[int], Any], exploration: Exploration) -> None:
        self._task, self._regressor, self._exploration = task, regressor, exploration
        self._generator = np.random.default_rng((task.seed, 0, 6))
        self._rows: list[Array] = []
        self._rewards: list[float] = []
        self._models: list[Any] = []
        self._clock = SquaresClock(task)

    def select(self, contexts: Array) -> int:
        """The best arm of one model; with ε-greedy, sometimes any."""
        explores = self._exploration == "epsilon" and self._generator.random() < EPSILON
        if not self._models or explores:
            return int(self._generator.integers(len(contexts)))
        model = self._models[self._generator.integers(len(self._models))]
        return int(np.argmax(model.predict(self._task.features(contexts))))

    def observe(self, round: int, contexts: Array, arm: int, reward: float) -> None:
        """Keep the chosen arm's features and the reward."""
        self._rows.append(self._task.features(contexts)[arm])
        self._rewards.append(reward)

    def due(self, round: int) -> bool:
        """Whether one of the rounds T(b/B)² has passed."""
        return self._clock.due(round)

    def update(self) -> None:
        """Fit again, to all that was observed or to resamples of it."""
        self._clock.reset()
        rows, rewards = np.array(self._rows), np.array(self._rewards)
        if len(rows) < FEWEST:
            return
        self._models = []
        for member in range(1 if self._exploration == "epsilon" else MEMBERS):
            drawn = np.arange(len(rows)) if self._exploration == "epsilon" else self._resample(len(rows))
            self._models.append(self._regressor(self._task.seed + member).fit(rows[drawn], rewards[drawn]))

    def _resample(self, count: int) -> Any:
        return self._generator.integers(count, size=count)


class VowpalContestant:
    """Vowpal Wabbit, one pass over the rewards of each batch."""

    def __init__(self, task: Task) -> None:
        vowpal = import_module("vowpalwabbit")
        self._generator = np.random.default_rng((task.seed, 0, 7))
        self._workspace = vowpal.Workspace(
            f"--cb_explore_adf --epsilon {EPSILON} --quiet --random_seed {task.seed % 2**31}"
        )
        self._task = task
        self._waiting: list[list[str]] = []
        self._chances: dict[int, float] = {}
        self._round = 0
        self._clock = SquaresClock(task)

    def select(self, contexts: Array) -> int:
        """An arm drawn from the probabilities that it predicts."""
        chances = np.array(self._workspace.predict(_lines(contexts)), np.float64)
        arm = int(self._generator.choice(len(contexts), p=chances / chances.sum()))
        self._round += 1
        self._chances[self._round] = float(chances[arm])
        return arm

    def observe(self, round: int, contexts: Array, arm: int, reward: float) -> None:
        """Keep the round as an example: its cost is the negative reward."""
        lines = _lines(contexts)
        lines[arm] = f"0:{-reward:.9g}:{max(self._chances.pop(round), 1e-6):.9g} {lines[arm]}"
        self._waiting.append(lines)

    def due(self, round: int) -> bool:
        """Whether one of the rounds T(b/B)² has passed."""
        return self._clock.due(round)

    def update(self) -> None:
        """Learn from each new example once."""
        self._clock.reset()
        for lines in self._waiting:
            self._workspace.learn(lines)
        self._waiting = []


def _lines(contexts: Array) -> list[str]:
    """One line of Vowpal Wabbit's text format for each arm, without zeros."""
    return ["|x " + " ".join(f"{i}:{row[i]:.7g}" for i in np.flatnonzero(row)) for row in contexts]


def _forest(seed: int) -> Any:
    ensemble = import_module("sklearn.ensemble")
    return ensemble.ExtraTreesRegressor(50, min_samples_leaf=2, random_state=seed)


def _boosting(seed: int) -> Any:
    ensemble = import_module("sklearn.ensemble")
    return ensemble.HistGradientBoostingRegressor(random_state=seed, max_iter=50, min_samples_leaf=5)


def _lightgbm(seed: int) -> Any:
    lightgbm = import_module("lightgbm")
    settings = {"n_estimators": 50, "min_child_samples": 5, "n_jobs": 1, "verbosity": -1, "deterministic": True}
    return lightgbm.LGBMRegressor(random_state=seed, **settings)


def _adapters() -> dict[str, tuple[Callable[[Task], Contestant], str]]:
    found: dict[str, tuple[Callable[[Task], Contestant], str]] = {}
    regressors = {
        "forest": (_forest, "sklearn"),
        "boosting": (_boosting, "sklearn"),
        "lightgbm": (_lightgbm, "lightgbm"),
    }
    for name, (regressor, package) in regressors.items():
        epsilon, bootstrap = (
            partial(RegressorContestant, regressor=regressor, exploration=kind) for kind in ("epsilon", "bootstrap")
        )
        found |= {name: (epsilon, package), f"{name}-bootstrap": (bootstrap, package)}
    return found | {"vowpal": (VowpalContestant, "vowpalwabbit")}


ADAPTERS = _adapters()
"""How each policy is made, and the package that it needs."""
