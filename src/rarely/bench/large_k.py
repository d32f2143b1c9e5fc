"""Many arms: one decision among 10 to 10 000, whose time should grow with their number and no faster.

K  arms    d  dim    m  hidden
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from rarely.bench.measure import Benchmark, Figure, Tell
from rarely.bench.yardstick import seconds_of
from rarely.core.policies import BatchNeuralUCB, LinTS, LinUCB, NeuralTS
from rarely.core.policies.base import Policy
from rarely.core.schedules import OnDemand

SEEN, FEW = 60, 10
"""Rounds that are learned from first, and their arms."""


def makers(dim: int, hidden: int) -> dict[str, Callable[[], Policy]]:
    """The policies that are measured."""
    neural: dict[str, Any] = {"dim": dim, "schedule": OnDemand(), "hidden": hidden, "seed": 0}
    return {
        "LinUCB": lambda: LinUCB(dim, OnDemand(), seed=0),
        "LinTS": lambda: LinTS(dim, OnDemand(), beta=0.3, seed=0),
        "diagonal": lambda: BatchNeuralUCB(covariance="diagonal", **neural),
        "last_layer": lambda: BatchNeuralUCB(covariance="last_layer", **neural),
        "NeuralTS": lambda: NeuralTS(covariance="last_layer", **neural),
    }


def trained(policy: Policy, rng: np.random.Generator) -> Policy:
    """The policy after an update."""
    contexts = rng.normal(size=(SEEN, FEW, policy.dim))
    decision = policy.select(contexts)
    policy.observe(decision, contexts[np.arange(SEEN), decision.arm, 0] + rng.normal(size=SEEN))
    policy.update()
    return policy


def large_k(
    tell: Tell, *, sizes: tuple[int, ...] = (10, 100, 1000, 10_000), dim: int = 20, hidden: int = 50, count: int = 12
) -> list[Figure]:
    """One decision among more and more arms, under each policy."""
    rng, figures = np.random.default_rng(0), []
    for name, make in makers(dim, hidden).items():
        tell(name)
        medians = []
        for arms in sizes:
            policy, contexts = trained(make(), rng), rng.normal(size=(count, arms, dim))
            times = [seconds_of(partial(policy.select, one)) for one in contexts]
            medians.append(float(np.median(times[count // 4 :])))
        each = [seconds / arms for seconds, arms in zip(medians, sizes, strict=True)]
        figures.append(
            Figure(
                f"large-k-{name.lower().replace('_', '-')}",
                f"{name}, d = {dim}, m = {hidden}: time per arm of a decision among {sizes[-1]:,} arms over that among "
                f"{sizes[-2]:,}.",
                each[-1] / each[-2],
                "times per arm",
                "lower",
                medians[-1],
                2.0,
                ", ".join(f"K = {arms:,}: {1e3 * s:.2f} ms" for arms, s in zip(sizes, medians, strict=True)),
            )
        )
    return figures


BENCHMARKS = (Benchmark("large-k", "One decision among 10 to 10 000 arms: time per arm, by policy.", large_k),)
