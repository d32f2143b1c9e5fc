"""Play a contestant: rewards are told when an update begins, so that the budget holds by construction."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np

from rarely.comparison.contestant import Contestant
from rarely.core.errors import RarelyError
from rarely.core.types import Array, IntArray
from rarely.simulation.play import Stopwatch
from rarely.worlds.protocol import Rounds


class WrongContestant(RarelyError):
    """A contestant has done what the protocol does not allow."""


@dataclass(frozen=True)
class Played:
    """What a contestant did in T rounds."""

    regrets: Array
    """Pseudo-regret of every round, (T,)."""
    reward: float
    updates: list[int]
    """The rounds after which it was updated."""
    covered: tuple[int, int]
    """Rewards within the 95 % intervals that it gave, and how many intervals there were."""
    selecting: Stopwatch
    training: Stopwatch


def play(contestant: Contestant, rounds: Rounds, batches: int, delays: IntArray | None = None) -> Played:
    """All rounds with at most `batches` − 1 updates; `delays` (T,) are rounds after which a reward can be told.

    An update without a new reward is not made. Neither is one after the last round, which nothing would follow.
    """
    count = len(rounds)
    arms = np.zeros(count, np.int64)
    arrival = np.arange(1, count + 1) + (0 if delays is None else delays)
    untold = np.ones(count, bool)
    selecting, training = Stopwatch(), Stopwatch()
    updates: list[int] = []
    inside = asked = 0
    interval = getattr(contestant, "interval", None)
    for t in range(1, count + 1):
        contexts = rounds.contexts[t - 1]
        with selecting:
            chosen = contestant.select(contexts)
        arm = arms[t - 1] = _checked(chosen, len(contexts), t)
        if interval is not None and (ends := interval(contexts, int(arm))) is not None:
            low, high = _ends(ends, t)
            inside += low <= float(rounds.rewards[t - 1, arm]) <= high
            asked += 1
        if t == count or len(updates) >= batches - 1 or not contestant.due(t):
            continue
        told = np.flatnonzero(untold[:t] & (arrival[:t] <= t))
        if len(told):
            with training:
                for s in told[np.argsort(arrival[told], kind="stable")]:
                    contestant.observe(int(s) + 1, rounds.contexts[s], int(arms[s]), float(rounds.rewards[s, arms[s]]))
                contestant.update()
            untold[told] = False
            updates.append(t)
    reward = float(rounds.paid(arms).sum())
    return Played(rounds.regrets(arms), reward, updates, (inside, asked), selecting, training)


def _ends(given: Any, t: int) -> tuple[float, float]:
    try:
        low, high = map(float, given)
    except (TypeError, ValueError) as error:
        raise WrongContestant(f"interval must give two numbers, low and high; got {given!r} in round {t}.") from error
    if not low <= high:
        raise WrongContestant(f"interval must give low ≤ high; got {low} and {high} in round {t}.")
    return low, high


def _checked(chosen: Any, arms: int, t: int) -> int:
    try:
        arm = operator.index(chosen)
    except TypeError as error:
        raise WrongContestant(f"select must give an arm, a whole number 0 … {arms - 1}; got {chosen!r}.") from error
    if not 0 <= arm < arms:
        raise WrongContestant(f"select must give an arm 0 … {arms - 1}; got {arm} in round {t}.")
    return arm
