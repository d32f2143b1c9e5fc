"""Boosted trees whose number is chosen by cross-validation: greedy, or with the chances of FALCON.

FALCON (Simchi-Levi and Xu, 2020) plays arm a ≠ â with probability 1/(K + γ(ŷ(â) − ŷ(a))), and otherwise the arm â with
the largest estimate; γ = √(K n) for the n rewards of the version in use, on rewards divided by their range.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from rarely.extend import Array
from rarely_lab.compare.contestant import AtEnds, Task

TREES = (10, 30, 100, 300)
FOLDS, ENOUGH = 5, 25
"""Parts of a cross-validation, and rewards from which there is one; with fewer, 10 trees."""


def boosted_trees(seed: int, count: int) -> Any:
    """Return what is fitted to so many rewards."""
    trees = import_module("sklearn.ensemble").HistGradientBoostingRegressor
    model = trees(max_iter=TREES[0], min_samples_leaf=5, random_state=seed % 2**31)
    if count < ENOUGH:
        return model
    search = import_module("sklearn.model_selection").GridSearchCV
    return search(model, {"max_iter": TREES}, cv=FOLDS, scoring="neg_mean_squared_error")


class BoostedTrees(AtEnds):
    """Histogram boosting of scikit-learn, fitted anew to all rewards at each update."""

    def __init__(self, task: Task, *, falcon: bool, regressor: Callable[[int, int], Any] | None = None) -> None:
        super().__init__(task)
        self._generator, self._falcon = np.random.default_rng((task.seed, 0, 12)), falcon
        self._regressor = regressor or boosted_trees
        self._rows: list[Array] = []
        self._rewards: list[float] = []
        self._model: Any = None
        self._sharpness = 0.0

    def select(self, contexts: Array) -> int:
        """Return an arm, any of them before the first update."""
        arms = len(contexts)
        if self._model is None:
            return int(self._generator.integers(arms))
        means = self._model.predict(self._task.features(contexts))
        best = int(np.argmax(means + 1e-9 * self._generator.random(arms)))
        chances = 1 / (arms + self._sharpness * (means[best] - means)) if self._falcon else np.zeros(arms)
        chances[best] = 0.0
        chances[best] = 1 - chances.sum()
        return int(self._generator.choice(arms, p=chances))

    def observe(self, round: int, contexts: Array, arm: int, reward: float) -> None:
        """Keep the reward for all versions that follow."""
        self._rows.append(self._task.features(contexts)[arm])
        self._rewards.append(reward)

    def update(self) -> None:
        super().update()
        count, range_ = len(self._rewards), float(np.ptp(self._rewards)) or 1.0
        model = self._regressor(self._task.seed, count)
        self._model = model.fit(np.array(self._rows), np.array(self._rewards))
        self._sharpness = float(np.sqrt(self._task.arms * count)) / range_
