"""What takes part in a comparison: an object with four methods, made for one task.

    select(contexts)                        the arm of one round
    observe(round, contexts, arm, reward)   one reward, right before an update
    due(round)                              whether to update after this round
    update()                                learn from what was observed

Rewards are revealed when an update begins, and at no other time. So nothing can be learned between updates, whatever
the four methods do, nor after B − 1 updates.
"""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np

from rarely import RarelyError
from rarely.extend import Array, ContextMap, IntArray
from rarely.worlds.protocol import Rounds
from rarely_lab.engine.play import Stopwatch


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
    >>> task.squares
    (4, 16, 36, 64)
    """

    arms: int
    dim: int
    horizon: int
    batches: int
    seed: int
    context_scale: ContextMap | None = None
    block: int = 0
    pilot: Callable[[], Array] | None = None

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


@runtime_checkable
class Contestant(Protocol):
    """A policy for one task.

    Examples
    --------
    >>> class Fixed:  # plays the first arm and never learns
    ...     def select(self, contexts): return 0
    ...     def observe(self, round, contexts, arm, reward): pass
    ...     def due(self, round): return False
    ...     def update(self): pass
    >>> isinstance(Fixed(), Contestant)
    True
    """

    def select(self, contexts: Array) -> int:
        """Return the arm to play, 0 … K − 1; contexts are (K, d)."""

    def observe(self, round: int, contexts: Array, arm: int, reward: float) -> None:
        """Take the reward of one past round, which is numbered from 1."""

    def due(self, round: int) -> bool:
        """Return whether to update after this round; asked after every round but the last, while updates are left."""

    def update(self) -> None:
        """Make the next version from what was observed."""


class AtEnds:
    """A contestant that is due at given rounds, T(b/B)² if none are given, and then until it was updated.

    Late rewards may hold that up.

    >>> contestant = AtEnds(Task(arms=2, dim=1, horizon=9, batches=3, seed=0))
    >>> contestant.due(1), contestant.due(2), contestant.update(), contestant.due(3), contestant.due(4)
    (True, True, None, False, True)
    """

    def __init__(self, task: Task, ends: tuple[int, ...] | None = None) -> None:
        self._task = task
        self._ends = ends if ends is not None else tuple(range(1, task.horizon)) if task.sequential else task.squares
        self._passed = self._made = 0

    def due(self, round: int) -> bool:
        """Return whether an end has passed since the last update."""
        self._passed = bisect_right(self._ends, round)
        return self._passed > self._made

    def update(self) -> None:
        self._made = self._passed


class WrongContestant(RarelyError):
    """A contestant has done what the protocol does not allow."""


@dataclass(frozen=True)
class Played:
    """What a contestant did in T rounds."""

    regrets: Array
    """Pseudo-regret of every round, (T,)."""
    updates: list[int]
    """The rounds after which it was updated."""
    selecting: Stopwatch
    training: Stopwatch


def play(contestant: Contestant, rounds: Rounds, batches: int, delays: IntArray | None = None) -> Played:
    """Play all rounds with at most `batches` − 1 updates; `delays` (T,) are the rounds until each reward arrives.

    An update without a new reward is not made, nor one after the last round.
    """
    count = len(rounds)
    arms = np.zeros(count, np.int64)
    arrival = np.arange(1, count + 1) + (0 if delays is None else delays)
    hidden = np.ones(count, bool)
    selecting, training = Stopwatch(), Stopwatch()
    updates: list[int] = []
    # The library's own policies decide the rounds up to an update in one call, which is the same and sooner done.
    until_due = getattr(contestant, "_select_until_due", None)
    ahead: list[int] = []
    for t in range(1, count + 1):
        contexts = rounds.contexts[t - 1]
        with selecting:
            if until_due is not None:
                ahead = ahead or until_due(rounds.contexts[t - 1 :])
            chosen = ahead.pop(0) if ahead else contestant.select(contexts)
        arms[t - 1] = _checked(chosen, len(contexts), t)
        if t == count or ahead or len(updates) >= batches - 1 or not contestant.due(t):
            continue
        arrived = np.flatnonzero(hidden[:t] & (arrival[:t] <= t))
        if len(arrived):
            with training:
                for s in arrived[np.argsort(arrival[arrived], kind="stable")]:
                    contestant.observe(int(s) + 1, rounds.contexts[s], int(arms[s]), float(rounds.rewards[s, arms[s]]))
                contestant.update()
            hidden[arrived] = False
            updates.append(t)
    return Played(rounds.regrets(arms), updates, selecting, training)


def _checked(chosen: Any, arms: int, t: int) -> int:
    try:
        arm = operator.index(chosen)
    except TypeError as error:
        raise WrongContestant(f"select must give an arm, a whole number 0 … {arms - 1}; got {chosen!r}.") from error
    if not 0 <= arm < arms:
        raise WrongContestant(f"select must give an arm 0 … {arms - 1}; got {arm} in round {t}.")
    return arm
