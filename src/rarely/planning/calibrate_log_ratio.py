"""The log q with which an adaptive schedule spends B batches: from pilot runs, not from a guess.

    B      batches    the budget
    G      growth     of log det Z over a run; B equal parts of it would make log q = G/B
    N      spent      batches that a run without a budget has, the last by the part of log q that it grew

How log det Z grows depends on the updates themselves: an untrained policy keeps to what it knows, and log det
with it. So G/B of another schedule's run is a start, and is then corrected by N/B, which it would be off by if N fell
as 1/log q.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rarely.core.schedules import DeterminantTrigger
from rarely.planning.simulate import Maker, Outcome, Trial, play_trial
from rarely.worlds.protocol import World

PILOTS = 3
"""Runs of every try."""
TRIES = 4
CLOSE = 0.08
"""|log N/B| at which a try is good enough."""


@dataclass(frozen=True)
class Calibrated:
    """A value of log q, and what the pilots spent with it."""

    batches: int
    log_ratio: float
    spent: float


def calibrate(world: World, maker: Maker, rounds: int, seeds: Sequence[int], growth: float, batches: int) -> Calibrated:
    """The log q of B batches, by a few pilots; never one with which a pilot is not updated at all."""
    tried: list[Calibrated] = []
    log_ratio, low, high = growth / batches, 0.0, math.inf
    for _ in range(TRIES):
        # Twice the budget shows by how much it is exceeded, and bounds what a bad start costs.
        schedule = DeterminantTrigger(rounds, 2 * batches, log_ratio=log_ratio)
        runs = [play_trial(world, maker, rounds, Trial("adaptive", schedule, seed)) for seed in seeds]
        spent = float(np.median([_spent(run, log_ratio) for run in runs]))
        if min(run.updates for run in runs):
            tried.append(Calibrated(batches, log_ratio, spent))
            if abs(math.log(spent / batches)) < CLOSE:
                break
            low, high = (log_ratio, high) if spent > batches else (low, log_ratio)
            guess = log_ratio * spent / batches
        else:
            # Some run ended before its first update: log q has to fit into what that one grew.
            high = min(log_ratio, *(run.log_dets[-1][1] for run in runs))
            guess = min(log_ratio * spent / batches, 0.9 * high)
        # Corrections that leave what is known to be too small or too large would go back and forth.
        log_ratio = guess if low < guess < high else math.sqrt(low * high)
    if not tried:
        return Calibrated(batches, log_ratio / 2, math.nan)
    return min(tried, key=lambda one: abs(math.log(one.spent / batches)))


def _spent(run: Outcome, log_ratio: float) -> float:
    # A run that had no versions left grew by more than log q after its last update, and shows by how much.
    (_, last_end), (_, end) = run.log_dets[-2:]
    return run.updates + max((end - last_end) / log_ratio, 1e-3)
