"""Logs that several suites use."""

import numpy as np

from rarely import Decision
from rarely.offpolicy import DecisionLog


def made(seed, rounds=5, arms=3, dim=2, width=0, told=0.6):
    """A log of any policy's: probabilities at random, arms that are not there, rewards that never came."""
    rng = np.random.default_rng(seed)
    log = DecisionLog()
    if not rounds:
        return log
    present = rng.random((rounds, arms)) < 0.7
    present[np.arange(rounds), rng.integers(arms, size=rounds)] = True
    chances = rng.random((rounds, arms)) * present
    chances /= chances.sum(axis=1, keepdims=True)
    picked = np.array([rng.choice(arms, p=p / p.sum()) for p in chances])
    blank = np.where(present, 0.0, np.nan)
    numbers, versions = 10 + rng.permutation(rounds), rng.integers(3, size=rounds)
    contexts = np.where(present[..., None], rng.normal(size=(rounds, arms, dim)), np.nan)
    rows = rng.normal(size=(rounds, width)) if width else None
    log.record(contexts, Decision(picked, blank, blank, versions, numbers, chances), rows=rows)
    inside = rng.random(rounds) < told
    log.observe(rounds=numbers[inside], rewards=rng.normal(size=inside.sum()) * 10.0 ** rng.integers(-3, 4))
    return log


def target_for(log, seed):
    """Probabilities at random on the arms that are there."""
    chances = np.random.default_rng(seed).random(log.present.shape) * log.present
    return chances / chances.sum(axis=1, keepdims=True)


def planning_log(features, arms=None, chosen=None, rewards=None, **names):
    """A log without probabilities: of rows that all arms share, (n, r), or of contexts, (n, K, d)."""
    given = {"rows": features, "arm_count": arms} if np.ndim(features) == 2 else {"contexts": features}
    return DecisionLog.from_arrays(arms=chosen, rewards=rewards, **given, **names)
