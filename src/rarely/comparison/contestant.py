"""What takes part in a comparison: an object with four methods, made for one task.

    select(contexts)                        the arm of one round
    observe(round, contexts, arm, reward)   one reward, told right before an update
    due(round)                              whether to update after this round
    update()                                learn from what was observed

Rewards are told when an update begins, and at no other time. So nothing can be learned between updates, whatever the
four methods do, and after B − 1 updates nothing more is told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np

from rarely.core.inputs.scaling import Affine
from rarely.core.schedules import FixedGrid
from rarely.core.types import Array


@dataclass(frozen=True)
class Task:
    """What is known before the first round.

    Parameters
    ----------
    arms, dim
        K arms, and d numbers in the context of each.
    horizon
        T, the rounds that will be played.
    batches
        B, the most versions that there may be: B − 1 updates. B = T is an update after every round.
    seed
        The run; randomness of a policy should depend on it alone.
    context_scale
        How the library's policies scale these contexts; None where they find their own scale.
    block
        Where arm k's context is one row in the k-th of K blocks: how many numbers a block has. 0 elsewhere.
    pilot
        Gives the contexts of another run of the problem, (T, K, d), without rewards.

    Examples
    --------
    >>> task = Task(arms=2, dim=6, horizon=100, batches=5, seed=0, block=3)
    >>> task.grid, task.squares
    ((20, 40, 60, 80), (4, 16, 36, 64))
    """

    arms: int
    dim: int
    horizon: int
    batches: int
    seed: int
    context_scale: Affine | None = None
    block: int = 0
    pilot: Callable[[], Array] | None = None

    @property
    def sequential(self) -> bool:
        """Whether there may be an update after every round."""
        return self.batches >= self.horizon

    @cached_property
    def grid(self) -> tuple[int, ...]:
        """The rounds after which B equal batches end."""
        return FixedGrid(self.horizon, self.batches).points

    @cached_property
    def squares(self) -> tuple[int, ...]:
        """The rounds T(b/B)², dense at first: a good plan if nothing else is known."""
        count = min(self.batches, self.horizon)
        ends = {max(b, round(self.horizon * (b / count) ** 2)) for b in range(1, count)}
        return tuple(sorted(end for end in ends if end < self.horizon))

    def features(self, contexts: Array) -> Array:
        """Contexts for a model that is not linear, (K, n): a row in blocks becomes the row, and which arm it is.

        >>> task = Task(arms=2, dim=4, horizon=9, batches=3, seed=0, block=2)
        >>> task.features(np.array([[5.0, 1.0, 0.0, 0.0], [0.0, 0.0, 5.0, 1.0]]))
        array([[5., 1., 1., 0.],
               [5., 1., 0., 1.]])
        """
        if not self.block:
            return contexts
        row = contexts.reshape(self.arms, self.arms, self.block).sum(axis=1)
        return np.hstack([row, np.eye(self.arms)])


@runtime_checkable
class Contestant(Protocol):
    """A policy for one task.

    It may also have a method `interval(contexts, arm)`, called after `select`: the ends of a 95 % interval for the
    reward of that arm in this round, or None. Then its calibration is on the page.

    Examples
    --------
    >>> class Fixed:  # plays the first arm and never learns
    ...     def select(self, contexts):
    ...         return 0
    ...
    ...     def observe(self, round, contexts, arm, reward):
    ...         pass
    ...
    ...     def due(self, round):
    ...         return False
    ...
    ...     def update(self):
    ...         pass
    >>> isinstance(Fixed(), Contestant)
    True
    """

    def select(self, contexts: Array) -> int:
        """The arm to play, 0 … K − 1; contexts are (K, d)."""

    def observe(self, round: int, contexts: Array, arm: int, reward: float) -> None:
        """Hear the reward of one past round, which is numbered from 1."""

    def due(self, round: int) -> bool:
        """Whether to update after this round; asked after every round but the last, while updates are left."""

    def update(self) -> None:
        """Make the next version from what was observed."""
