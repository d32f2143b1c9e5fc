"""Play a problem with a policy: blocks of rounds up to each update."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from problems import Problem
from rarely import Policy


def play(policy: Policy, problem: Problem, progress: Callable[[int], None] = lambda _: None) -> float:
    """Pseudo-regret over the whole problem; rewards are told at the end of each batch."""
    rounds, total, t = len(problem.contexts), 0.0, 0
    while t < rounds:
        decision = policy.select(problem.contexts[t:], until_due=True)
        now = np.arange(t, t + len(decision))
        policy.observe(decision, problem.rewards(now, decision.arm))
        total += problem.regret(now, decision.arm)
        t += len(decision)
        if policy.due:
            policy.update()
        progress(t)
    return total
