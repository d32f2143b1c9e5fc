"""What takes part in a comparison: a `Contestant` of `rarely_lab.engine.play`, made for one task."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from rarely.extend import Array, ContextMap, ContextScale


@dataclass(frozen=True)
class Task:
    """What is known before the first round: K arms, and d numbers in the context of each.

    Examples
    --------
    >>> task = Task(arms=2, dim=6, horizon=100, batches=5, seed=0, block=3)
    >>> task.squares
    (4, 16, 36, 64)
    """

    arms: int
    dim: int
    horizon: int
    """The number of rounds T that will be played."""
    batches: int
    """The most versions B that there may be: B − 1 updates. B = T is an update after every round."""
    seed: int
    """The seed of the run; randomness of a policy should depend on it alone."""
    context_scale: ContextMap | None = None
    """How the library's policies scale these contexts; None where they find their own scale."""
    block: int = 0
    """How many numbers a block has, where arm k's context is one row in the k-th of K blocks; 0 elsewhere."""
    pilot: Callable[[], Array] | None = None
    """Returns the contexts of another run of the problem, (T, K, d), without rewards."""

    @property
    def sequential(self) -> bool:
        """Whether there may be an update after every round."""
        return self.batches >= self.horizon

    @cached_property
    def squares(self) -> tuple[int, ...]:
        """The rounds T(b/B)², dense at first: a good plan if nothing else is known."""
        count = min(self.batches, self.horizon)
        ends = {max(b, round(self.horizon * (b / count) ** 2)) for b in range(1, count)}
        return tuple(sorted(end for end in ends if end < self.horizon))

    @cached_property
    def linear_view(self) -> ContextMap:
        """How `LinUCB` sees contexts: with a constant where they have none of their own."""
        return ContextScale.start(self.dim, self.context_scale, constant=True, fitted=False).map

    def features(self, contexts: Array) -> Array:
        """Return contexts for a model that is not linear, (K, n): a row in blocks becomes the row and the arm.

        >>> task = Task(arms=2, dim=4, horizon=9, batches=3, seed=0, block=2)
        >>> task.features(np.array([[5.0, 1.0, 0.0, 0.0], [0.0, 0.0, 5.0, 1.0]]))
        array([[5., 1., 1., 0.],
               [5., 1., 0., 1.]])
        """
        if not self.block:
            return contexts
        row = contexts.reshape(self.arms, self.arms, self.block).sum(axis=1)
        return np.hstack([row, np.eye(self.arms)])


class AtEnds:
    """A contestant that is due at given rounds, T(b/B)² if none are given, and learns there from what it was told.

    Late rewards may hold that up.

    >>> contestant = AtEnds(Task(arms=2, dim=1, horizon=9, batches=3, seed=0))
    >>> contestant.due(1), contestant.due(2), contestant.update(), contestant.due(3), contestant.due(4)
    (True, True, None, False, True)
    """

    stream: ClassVar[int] = 0
    """The random numbers of this kind of contestant."""
    refits: bool = False
    """Whether an update learns from all rewards so far, not only from those since the last one."""

    def __init__(self, task: Task, ends: tuple[int, ...] | None = None) -> None:
        self._task, self._generator = task, np.random.default_rng((task.seed, 0, self.stream))
        self._ends = ends if ends is not None else tuple(range(1, task.horizon)) if task.sequential else task.squares
        self._passed = self._made = 0
        self._told: list[tuple[int, Any, float]] = []
        """The arm, its row and the reward of what is to be learned from."""

    def rows(self, contexts: Array) -> Array:
        """Return contexts as the model sees them, one row for each arm."""
        return contexts

    def observe(self, round: int, contexts: Array, arm: int, reward: float) -> None:
        """Keep the reward for the update that follows."""
        self._told.append((arm, self.rows(contexts)[arm], reward))

    def due(self, round: int) -> bool:
        """Return whether an end has passed since the last update."""
        self._passed = bisect_right(self._ends, round)
        return self._passed > self._made

    def update(self) -> None:
        self._made = self._passed
        if self._told:
            self.learn(*zip(*self._told, strict=True))
        if not self.refits:
            self._told = []

    def learn(self, arms: Sequence[int], rows: Sequence[Any], rewards: Sequence[float]) -> None:
        """Make the next version from n arms, their rows and rewards."""
