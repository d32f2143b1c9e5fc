"""Play a contestant in the rounds of a world, and note what it chose and when it was updated.

    select(contexts)                        the arm of one round
    observe(round, contexts, arm, reward)   one reward
    due(round)                              whether to update after this round
    update()                                learn from what was observed

In a comparison rewards are revealed when an update begins, and at no other time. So nothing can be learned between
updates, whatever the four methods do, nor after B − 1 updates. In the paper's experiments they are revealed at once.
"""

from __future__ import annotations

import operator
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from rarely import Policy
from rarely.errors import RarelyError
from rarely.extend import Array, IntArray
from rarely.extend.checks import OutlierWarning, RejectedWarning, ScheduleWarning
from rarely.extend.provisional import ROUNDED, TIE, state_of
from rarely.runs.machine import describe
from rarely.worlds import Rounds

NEARLY = 1e-5
"""Two arms are nearly tied if their scores differ by less than this part of the larger one, or of a reward's spread."""


@dataclass
class Stopwatch:
    """Seconds spent in a `with` block, of the processor's time and of the clock's.

    The processor's time is the fair one where other work shares the cores.
    """

    seconds: float = 0.0
    wall: float = 0.0
    _start: tuple[float, float] = field(default=(0.0, 0.0), repr=False)

    def __enter__(self) -> None:
        self._start = time.process_time(), time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.process_time() - self._start[0]
        self.wall += time.perf_counter() - self._start[1]


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


class WrongContestant(RarelyError):
    """A contestant has done what the protocol does not allow."""


class OneByOne:
    """A policy of the library that decides and observes one round at a time, as an online system must.

    `select(…, until_due=True)` decides a whole batch in one block of linear algebra and chooses the same arms in less
    time; but sequential NeuralUCB has batches of one round, and times are compared with it.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def select(self, contexts: Array) -> int:
        self._decision = self.policy.select(contexts)
        return int(self._decision.arm)

    def observe(self, round: int, contexts: Array, arm: int, reward: float) -> None:
        """Observe the decision that was just made."""
        self.policy.observe(self._decision, reward)

    def due(self, round: int) -> bool:
        return self.policy.due

    def update(self) -> None:
        """Train; budgets that are spent early and trainings that fail are on record."""
        with warnings.catch_warnings():
            for category in (ScheduleWarning, RejectedWarning, OutlierWarning):
                warnings.simplefilter("ignore", category)
            self.policy.update()


class LibraryContestant(OneByOne):
    """A policy of the library that decides in blocks, with the rewards of a batch observed in one call.

    A block ends at the latest with one of the `stops`, rounds after which something is to be noted.
    """

    def __init__(self, policy: Policy, stops: Sequence[int] = ()) -> None:
        super().__init__(policy)
        self._rounds: list[int] = []
        self._rewards: list[float] = []
        self._block, self._done, self._stops = 1, 0, np.array(stops, np.int64)
        self.near_ties = 0  # rounds in which two arms were nearly tied

    def select(self, contexts: Array) -> int:
        return self.select_until_due(contexts[None])[0]

    def select_until_due(self, contexts: Array) -> list[int]:
        """Decide some of the next rounds, (n, K, d), at most up to the one that ends the batch."""
        open_batch = not self.policy.due
        most = self._block if open_batch else 1
        ahead = self._stops[self._stops > self._done]
        if len(ahead):
            most = min(most, int(ahead[0]) - self._done)
        decision = self.policy.select(contexts[:most], until_due=open_batch)
        # All rounds that are given are checked, so no more of them than may be decided.
        count = np.size(decision.arm)
        self._block, self._done = max(2 * count, self._block if count == most else 1), self._done + count
        self.near_ties += near_ties(decision.means + decision.bonuses, state_of(self.policy).current.learner)
        return [int(arm) for arm in np.ravel(decision.arm)]

    def observe(self, round: int, contexts: Array, arm: int, reward: float) -> None:
        """Keep the reward for the update that follows."""
        self._rounds.append(round)
        self._rewards.append(reward)

    def update(self) -> None:
        self.policy.observe(rounds=self._rounds, rewards=self._rewards)
        self._rounds, self._rewards = [], []
        super().update()


@dataclass(frozen=True)
class Played:
    """What a contestant did in T rounds."""

    rounds: Rounds
    arms: IntArray  # the arm of every round, (T,)
    updates: list[int]  # the rounds after which it was updated
    selecting: Stopwatch
    training: Stopwatch
    near_ties: int | None = None  # rounds in which two arms were nearly tied, where they are counted

    @property
    def regrets(self) -> Array:
        """Pseudo-regret of every round, (T,)."""
        return self.rounds.regrets(self.arms)

    def shared(self) -> dict[str, Any]:
        """Return what records of all kinds say of a run, as JSON."""
        means, near = self.rounds.means, self.near_ties
        uniform = float((means.max(axis=1) - means.mean(axis=1)).sum())
        return {"uniform": uniform, "environment": describe()} | ({} if near is None else {"near_ties": near})


def play(
    contestant: Contestant,
    rounds: Rounds,
    batches: int | None = None,
    delays: IntArray | None = None,
    *,
    at_once: bool = False,
    watch: Callable[[int], None] = lambda t: None,
) -> Played:
    """Play all rounds with at most `batches` − 1 updates; `delays` (T,) are the rounds until each reward arrives.

    Rewards are told when an update begins, or `at_once`. An update without a new reward is not made, nor one after the
    last round. `watch` is called after every round.
    """
    count = len(rounds)
    arms, hidden = np.zeros(count, np.int64), np.ones(count, bool)
    arrival = np.arange(1, count + 1) + (0 if delays is None else delays)
    selecting, training = Stopwatch(), Stopwatch()
    updates, ahead = list[int](), list[int]()
    # The library's own policies decide the rounds up to an update in one call, which is the same and sooner done.
    until_due = getattr(contestant, "select_until_due", None)

    def tell(s: int) -> None:
        contestant.observe(s + 1, rounds.contexts[s], int(arms[s]), float(rounds.rewards[s, arms[s]]))

    for t in range(1, count + 1):
        contexts = rounds.contexts[t - 1]
        with selecting:
            if until_due is not None:
                ahead = ahead or until_due(rounds.contexts[t - 1 :])
            chosen = ahead.pop(0) if ahead else contestant.select(contexts)
        arms[t - 1] = _checked(chosen, len(contexts), t)
        if at_once:
            with selecting:
                tell(t - 1)
        watch(t)
        if t == count or ahead or len(updates) >= (batches or count) - 1 or not contestant.due(t):
            continue
        arrived = np.flatnonzero(hidden[:t] & (arrival[:t] <= t))
        if len(arrived):
            with training:
                for s in () if at_once else arrived[np.argsort(arrival[arrived], kind="stable")]:
                    tell(int(s))
                contestant.update()
            hidden[arrived] = False
            updates.append(t)
    return Played(rounds, arms, updates, selecting, training, getattr(contestant, "near_ties", None))


def near_ties(scores: Array, learner: Any) -> int:
    """Return in how many rounds two arms were nearly tied, (n, K) scores: the arms of other arithmetic may differ."""
    ranked = np.sort(np.atleast_2d(scores), axis=1)
    if ranked.shape[1] < 2 or not learner.predicts:
        return 0
    size = np.maximum(ranked[:, -1] - ranked[:, 0], learner.reward_spread)
    gap = ranked[:, -1] - ranked[:, -2]
    return int(np.count_nonzero((gap < NEARLY * size) & (gap > TIE * size + ROUNDED * np.abs(ranked).max(axis=1))))


_LAST: list[tuple[Any, int, int, Rounds]] = []


def drawn(source: Any, seed: int, count: int) -> Rounds:
    """Return the rounds of a run of a world or a problem, drawn once for several policies in a row."""
    if not _LAST or _LAST[0][0] is not source or _LAST[0][1:3] != (seed, count):
        _LAST[:] = [(source, seed, count, source.rounds(seed, count))]
    return _LAST[0][3]


def play_policy(policy: Policy, rounds: Rounds, watch: Callable[[int], None] = lambda t: None) -> Played:
    """Play a policy of the library round by round, each reward observed at once."""
    return play(OneByOne(policy), rounds, at_once=True, watch=watch)


def _checked(chosen: Any, arms: int, t: int) -> int:
    try:
        arm = operator.index(chosen)
    except TypeError as error:
        raise WrongContestant(f"select must give an arm, a whole number 0 … {arms - 1}; got {chosen!r}.") from error
    if not 0 <= arm < arms:
        raise WrongContestant(f"select must give an arm 0 … {arms - 1}; got {arm} in round {t}.")
    return arm
