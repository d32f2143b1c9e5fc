"""LinUCB after every round, against the same algorithm bare."""

from __future__ import annotations

import numpy as np

from rarely.bench.measure import Benchmark, Figure, Tell
from rarely.bench.yardstick import best_of
from rarely.core.policies import LinUCB
from rarely.core.types import Array
from rarely.simulation.play import play
from rarely.worlds import Cosine, Rounds


def bare_linucb(rounds: Rounds, ridge: float = 1.0, beta: float = 1.0) -> list[int]:
    """Arms of LinUCB with an intercept: Sherman–Morrison on a d×d inverse, and nothing else."""
    ones = np.ones((*rounds.contexts.shape[:2], 1))
    contexts = np.concatenate([rounds.contexts, ones], axis=2)
    inverse: Array = np.eye(contexts.shape[2]) / ridge
    total: Array = np.zeros(contexts.shape[2])
    arms = []
    for x, rewards in zip(contexts, rounds.rewards, strict=True):
        solved = x @ inverse
        scores = solved @ total + beta * np.sqrt(np.einsum("ij,ij->i", solved, x))
        arm = int(np.argmax(scores))
        total += rewards[arm] * x[arm]
        u = solved[arm]
        inverse -= np.outer(u, u) / (1 + u @ x[arm])
        arms.append(arm)
    return arms


def update_linucb(_: Tell, *, rounds: int = 2000, repeats: int = 3) -> list[Figure]:
    """Both on the same rounds."""
    world = Cosine().rounds(seed=0, count=rounds)
    bare = best_of(repeats, lambda: bare_linucb(world))
    ours = best_of(repeats, lambda: play(LinUCB(10, seed=0), world))
    return [
        Figure(
            "update-linucb",
            f"LinUCB with an update after every round on cosine, T = {rounds}, d = 11, K = 4: a round over one of "
            "a bare rank-one LinUCB in NumPy.",
            ours / bare,
            "times the bare one",
            "lower",
            ours,
            note=f"{1e6 * ours / rounds:.0f} µs a round against {1e6 * bare / rounds:.0f} µs",
        )
    ]


BENCHMARKS = (Benchmark("update-linucb", "LinUCB, updated after every round, against a bare one.", update_linucb),)
