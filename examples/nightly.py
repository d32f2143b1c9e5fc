"""A recommender that trains every night, with rewards that come a day late.

    python examples/nightly.py

1000 visitors a day, one row of 6 numbers about each, 3 arms. A log of last month trains version 0. Each
night the rewards of the *day before* come in (one in ten never does), then the policy is updated and kept
in a file; the next morning another process would load it. On day 3 an arm is away.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import rarely
from rarely import ArmBlocks, AtRounds, BatchNeuralUCB, LinUCB, Uniform

DAYS, VISITORS = 6, 1000
TASTES = np.random.default_rng(0).normal(size=(3, 6))


def visitors(rng: np.random.Generator, count: int) -> np.ndarray:
    """Rows as a database gives them: every column on its own scale."""
    return rng.normal(size=(count, 6)) * [1, 10, 100, 1, 0.1, 5] + [0, 50, 300, 0, 1, 20]


def chance(rows: np.ndarray) -> np.ndarray:
    """The probability that each arm pleases, (n, 3): not linear."""
    x = (rows - [0, 50, 300, 0, 1, 20]) / [1, 10, 100, 1, 0.1, 5]
    return 1 / (1 + np.exp(-np.abs(x @ TASTES.T) + 1.5))


def play(make: type[rarely.Policy], settings: Callable[[ArmBlocks], dict[str, Any]]) -> list[float]:
    """The share of the best possible pleasure that each day got."""
    rng = np.random.default_rng(1)
    month = visitors(rng, 600)
    blocks = ArmBlocks.fit(month, arms=3)
    arms = rng.integers(3, size=len(month))
    rewards = (rng.random(len(month)) < chance(month)[np.arange(len(month)), arms]).astype(float)
    logged = blocks(month)[np.arange(len(month)), arms]
    # The first night has nothing to learn from yet: rewards come a day late.
    nights = AtRounds([VISITORS * day for day in range(2, DAYS)])
    policy = make.from_log(logged, rewards, schedule=nights, seed=0, **settings(blocks))
    shares, yesterday = [], None
    with tempfile.TemporaryDirectory() as folder:
        for day in range(DAYS):
            rows = visitors(rng, VISITORS)
            there = np.ones((VISITORS, 3), bool)
            there[:, 2] = day != 3
            decision = policy.select(blocks(rows), there)
            pleased = chance(rows)[np.arange(VISITORS), decision.arm]
            shares.append(float(pleased.sum() / np.where(there, chance(rows), 0).max(axis=1).sum()))
            if yesterday is not None:
                told, values = yesterday
                policy.observe(told, values)
            came = np.flatnonzero(rng.random(VISITORS) < 0.9)
            yesterday = decision[came], (rng.random(VISITORS) < pleased).astype(float)[came]
            if policy.due:
                policy.update()
            policy.save(Path(folder) / "policy.rarely")
            policy = rarely.load(Path(folder) / "policy.rarely")
    print(policy)
    return shares


def main() -> None:
    """Compare three policies, each with four updates."""
    neural = play(BatchNeuralUCB, settings=lambda blocks: {**blocks.settings, "hidden": 100})
    linear = play(LinUCB, settings=lambda blocks: {"intercept": False, "beta": 0.3})
    chosen_blindly = play(Uniform, settings=lambda blocks: {})
    print("share of the best possible, day by day")
    for name, shares in (("BatchNeuralUCB", neural), ("LinUCB", linear), ("Uniform", chosen_blindly)):
        print(f"{name:15}" + "".join(f"{share:7.2f}" for share in shares))


if __name__ == "__main__":
    main()
