"""Play a policy in a world, and note what happened."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

from rarely.core.policy import Policy
from rarely.core.types import Array
from rarely.worlds.protocol import Rounds

BLOCK = 64
"""Rounds decided in one call at most, so that log det is on record at least that often."""


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


@dataclass(frozen=True)
class Played:
    """What a policy did in T rounds."""

    policy: Policy
    regrets: Array
    """Pseudo-regret of every round, (T,)."""
    reward: float
    """All rewards together."""
    right: float
    """Share of rounds in which the best arm was chosen."""
    log_dets: list[tuple[int, float]]
    """(round, log det Z less log det λI), every now and then."""
    selecting: Stopwatch
    training: Stopwatch


def play(policy: Policy, rounds: Rounds) -> Played:
    """All rounds, with the rewards of a batch told before its update; an update whenever one is due."""
    selecting, training = Stopwatch(), Stopwatch()
    regrets, paid, right = np.empty(len(rounds)), 0.0, 0
    log_dets, t = [(0, 0.0)], 0
    while t < len(rounds):
        with selecting:
            decision = policy.select(rounds.contexts[t : t + BLOCK], until_due=True)
        now = rounds[t : t + len(decision)]
        rewards = now.paid(decision.arm)
        with selecting:
            policy.observe(decision, rewards)
        regrets[t : t + len(now)] = now.regrets(decision.arm)
        paid += float(rewards.sum())
        right += int(np.sum(regrets[t : t + len(now)] == 0))
        t += len(now)
        if t - log_dets[-1][0] >= len(rounds) // 200 or t == len(rounds):
            log_dets.append((t, policy.log_det))
        if policy.due and t < len(rounds):
            with training:
                policy.update()
    return Played(policy, regrets, paid, right / max(t, 1), log_dets, selecting, training)
