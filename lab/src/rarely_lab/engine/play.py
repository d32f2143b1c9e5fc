"""Play a policy in a world, and note what happened.

Rounds are decided one at a time, as an online system must. `select(…, until_due=True)` decides a whole batch in
one block of linear algebra and chooses the same arms in less time; but sequential NeuralUCB has batches of
one round, and times are compared with it.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rarely.extend import Array, Policy
from rarely.extend.checks import OutlierWarning, RejectedWarning, ScheduleWarning
from rarely.worlds.protocol import Rounds

POINTS = 200
"""Values of log det on record, about."""


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

    updates: Sequence[Any]
    """Its `UpdateRecord`s, or what has their names."""
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
    """Play all rounds, and update whenever an update is due; every reward is observed at once."""
    selecting, training = Stopwatch(), Stopwatch()
    arms: list[int] = []
    log_dets, count = [(0, 0.0)], len(rounds)
    noted = set(log_det_rounds(count))
    for t in range(1, count + 1):
        with selecting:
            decision = policy.select(rounds.contexts[t - 1])
        arms.append(int(decision.arm))
        reward = rounds.rewards[t - 1, arms[-1]]
        with selecting:
            policy.observe(decision, reward)
        if t in noted:
            log_dets.append((t, policy.log_det))
        if policy.due and t < count:
            with training, warnings.catch_warnings():
                # Budgets that are spent early and trainings that fail are in the report.
                for category in (ScheduleWarning, RejectedWarning, OutlierWarning):
                    warnings.simplefilter("ignore", category)
                policy.update()
    regrets = rounds.regrets(arms)
    right = float(np.mean(arms == rounds.best)) if count else 0.0
    return Played(policy.updates, regrets, float(rounds.paid(arms).sum()), right, log_dets, selecting, training)


def log_det_rounds(count: int) -> list[int]:
    """Return the rounds after which log det is noted: about `POINTS` of them, and the last.

    >>> log_det_rounds(5), log_det_rounds(401)[-3:]
    ([1, 2, 3, 4, 5], [398, 400, 401])
    """
    step = max(1, count // POINTS)
    return sorted({*range(step, count + 1, step), *([count] if count else [])})
