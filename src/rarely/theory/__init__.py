"""The paper's theory as functions: its kernel, its dimension, its bounds, and the policy in its limit.

From contexts, of all arms and rounds, to the B and q that follow from them, and what they promise:

    >>> import numpy as np
    >>> rounds, arms, ridge = 200, 2, 1.0
    >>> contexts = np.random.default_rng(0).normal(size=(rounds * arms, 3))
    >>> contexts /= np.linalg.norm(contexts, axis=1, keepdims=True)
    >>> own = effective_dimension(contexts, ridge=ridge, kind="network")
    >>> plan = adaptive_plan(own, rounds=rounds, arms=arms, ridge=ridge)
    >>> round(own.value, 1), plan.batches, fixed_batches(rounds)
    (11.5, 69, 15)
    >>> D = log_det_bound(own.value, rounds=rounds, arms=arms, ridge=ridge)
    >>> round(adaptive_regret(D, rounds=rounds, batches=plan.batches, log_ratio=plan.log_ratio, radius=1.0))
    907

A bound above the rounds, as this one, promises nothing: theory speaks of large T, and compares.
"""

from rarely.extend.provisional import NTK
from rarely.theory.bounds import (
    adaptive_plan,
    adaptive_regret,
    fixed_batches,
    fixed_regret,
    log_det_bound,
    step_size,
    steps,
)
from rarely.theory.dimension import Dimension, effective_dimension, reward_norm
from rarely.theory.kernel_ucb import KernelUCB

__all__ = [
    "NTK", "Dimension", "KernelUCB", "adaptive_plan", "adaptive_regret", "effective_dimension",
    "fixed_batches", "fixed_regret", "log_det_bound", "reward_norm", "step_size", "steps",
]  # fmt: skip
