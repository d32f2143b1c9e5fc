"""Rivals that other packages compute: scikit-learn, LightGBM, Vowpal Wabbit and bayesianbandits.

FALCON (Simchi-Levi and Xu, 2020) plays arm a ≠ â with probability 1/(K + γ(ŷ(â) − ŷ(a))), and otherwise the arm â with
the largest estimate; γ = √(K n) for the n rewards of the version in use, on rewards divided by their range.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from rarely import AtRounds, EveryRound
from rarely.ensembles import EnsemblePolicy
from rarely.extend import Array
from rarely_lab.compare.problems import AtEnds, Task
from rarely_lab.engine.play import LibraryContestant

EPSILON = 0.1
TREES = (10, 30, 100, 300)
FOLDS, ENOUGH = 5, 25  # parts of a cross-validation, and rewards from which there is one; with fewer, 10 trees


class RegressorContestant(LibraryContestant):
    """An `EnsemblePolicy` at the rounds T(b/B)²; where arms are blocks of one row, it gets the row and the arm."""

    def __init__(self, task: Task, regressor: tuple[str, str, dict[str, Any]], settings: dict[str, Any]) -> None:
        module, name, parameters = regressor
        dim = task.block + task.arms if task.block else task.dim
        schedule = EveryRound() if task.sequential else AtRounds(task.squares)
        estimator = getattr(import_module(module), name)(**parameters)
        super().__init__(EnsemblePolicy(estimator, dim, schedule, seed=task.seed, **settings))
        self._task = task

    def select_until_due(self, contexts: Array) -> list[int]:
        return super().select_until_due(np.array([self._task.features(one) for one in contexts[: self._block]]))


class VowpalContestant(AtEnds):
    """Vowpal Wabbit, one pass over the rewards of each batch, or with `refits` over all rewards so far."""

    stream = 7

    def __init__(
        self, task: Task, exploration: str = f"--epsilon {EPSILON}", *, refits: bool = False, package: Any = None
    ) -> None:
        super().__init__(task)
        vowpal = package or import_module("vowpalwabbit")
        options = f"--cb_explore_adf {exploration} --quiet --random_seed {task.seed % 2**31}"
        self._workspace = vowpal.Workspace(options)
        self._chances: dict[int, float] = {}
        self._round, self.refits = 0, refits

    def select(self, contexts: Array) -> int:
        """Return an arm drawn from the probabilities that it predicts."""
        chances = np.array(self._workspace.predict(_lines(contexts)), np.float64)
        arm = int(self._generator.choice(len(contexts), p=chances / chances.sum()))
        self._round += 1
        self._chances[self._round] = float(chances[arm])
        return arm

    def observe(self, round: int, contexts: Array, arm: int, reward: float) -> None:
        """Keep the round as an example: its cost is the negative reward."""
        lines = _lines(contexts)
        lines[arm] = f"0:{-reward:.9g}:{max(self._chances.pop(round), 1e-6):.9g} {lines[arm]}"
        self._told.append((arm, lines, reward))

    def learn(self, arms: Sequence[int], rows: Sequence[Any], rewards: Sequence[float]) -> None:
        for lines in rows:
            self._workspace.learn(lines)


def _lines(contexts: Array) -> list[str]:
    """Return a line of Vowpal Wabbit's text format for each arm, without zeros."""
    return ["|x " + " ".join(f"{i}:{row[i]:.7g}" for i in np.flatnonzero(row)) for row in contexts]


class BayesianContestant(AtEnds):
    """bayesianbandits with one learner for all arms: as in its README, or another of its regressions and policies."""

    stream = 11

    def __init__(
        self,
        task: Task,
        learner: tuple[str, dict[str, float]] = ("NormalRegressor", {"alpha": 1.0, "beta": 1.0}),
        policy: str = "ThompsonSampling",
        package: Any = None,
    ) -> None:
        super().__init__(task)
        package = package or import_module("bayesianbandits")
        self.agent = package.LipschitzContextualAgent(
            arms=[package.Arm(arm) for arm in range(task.arms)],
            learner=getattr(package, learner[0])(**learner[1]),
            arm_featurizer=package.FunctionArmFeaturizer(lambda x, arms: x.transpose(0, 2, 1)[:, :, arms]),
            policy=getattr(package, policy)(),
            random_seed=self._generator,
        )

    def rows(self, contexts: Array) -> Array:
        return self._task.linear_view(contexts)

    def select(self, contexts: Array) -> int:
        return int(self.agent.pull(self.rows(contexts)[None])[0])

    def learn(self, arms: Sequence[int], rows: Sequence[Array], rewards: Sequence[float]) -> None:
        self.agent.learner.partial_fit(np.array(rows), np.array(rewards))


class ArmwiseBayesian(AtEnds):
    """bayesianbandits as its README begins: a regression of its own for each arm, and upper bounds with α = 0.84."""

    stream = 13

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        package: Any = import_module("bayesianbandits")
        arms = [package.Arm(arm, learner=package.NormalInverseGammaRegressor()) for arm in range(task.arms)]
        self.agent = package.ContextualAgent(
            arms, package.UpperConfidenceBound(alpha=0.84), random_seed=self._generator
        )

    def rows(self, contexts: Array) -> Array:
        """Return the row that all arms share, with a constant: that of a table, or else all contexts."""
        block = self._task.block
        own = contexts.reshape(len(contexts), -1, block).sum(axis=1)[:1] if block else contexts.reshape(1, -1)
        return np.hstack([own, np.ones((1, 1))]).repeat(len(contexts), axis=0)

    def select(self, contexts: Array) -> int:
        return int(self.agent.pull(self.rows(contexts)[:1])[0])

    def learn(self, arms: Sequence[int], rows: Sequence[Array], rewards: Sequence[float]) -> None:
        for arm, row, reward in zip(arms, rows, rewards, strict=True):
            self.agent.select_for_update(arm).update(row[None], np.array([reward]))


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

    stream, refits = 12, True

    def __init__(self, task: Task, *, falcon: bool, regressor: Callable[[int, int], Any] = boosted_trees) -> None:
        super().__init__(task)
        self._falcon, self._regressor = falcon, regressor
        self._model: Any = None
        self._sharpness = 0.0

    def rows(self, contexts: Array) -> Array:
        return self._task.features(contexts)

    def select(self, contexts: Array) -> int:
        """Return an arm, any of them before the first update."""
        arms = len(contexts)
        if self._model is None:
            return int(self._generator.integers(arms))
        means = self._model.predict(self.rows(contexts))
        best = int(np.argmax(means + 1e-9 * self._generator.random(arms)))
        chances = 1 / (arms + self._sharpness * (means[best] - means)) if self._falcon else np.zeros(arms)
        chances[best] = 0.0
        chances[best] = 1 - chances.sum()
        return int(self._generator.choice(arms, p=chances))

    def learn(self, arms: Sequence[int], rows: Sequence[Array], rewards: Sequence[float]) -> None:
        self._model = self._regressor(self._task.seed, len(rewards)).fit(np.array(rows), np.array(rewards))
        self._sharpness = float(np.sqrt(self._task.arms * len(rewards))) / (float(np.ptp(rewards)) or 1.0)
