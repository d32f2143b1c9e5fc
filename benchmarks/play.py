"""Play a problem with a policy: blocks of rounds up to each update."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from problems import Problem
from rarely import Policy


def play(policy: Policy, problem: Problem, progress: Callable[[int], None] = lambda _: None) -> np.ndarray:
    """Pseudo-regret of every round, (T,); rewards are told at the end of each batch."""
    rounds, t = len(problem.contexts), 0
    regrets = np.empty(rounds)
    while t < rounds:
        decision = policy.select(problem.contexts[t:], until_due=True)
        now = np.arange(t, t + len(decision))
        policy.observe(decision, problem.rewards(now, decision.arm))
        regrets[now] = problem.regrets(now, decision.arm)
        t += len(decision)
        if policy.due and t < rounds:
            policy.update()
        progress(t)
    return regrets
