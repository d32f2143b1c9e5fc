"""How often alarms are false, and how often they tell of a change: python benchmarks/alarms.py

python benchmarks/alarms.py                              # 40 lives of each cell: about 20 minutes
python benchmarks/alarms.py --lives 20 LinUCB LinTS      # some policies, fewer lives

A life has 2000 rounds with five arms of five numbers x ~ N(0, I) and 40 updates, after every 50 rounds.

    linear     reward x·θ + N(0, 0.5²), ‖θ‖ = 1
    bent       reward sin(2·x·θ) + N(0, 0.5²), which a linear policy cannot learn
    clicks     1 with probability 1/(1 + exp(3 − 1.5·x·θ)): clicks become more frequent while a policy learns
    spend      such clicks that pay log-normal amounts, σ = 1

    nothing    nothing changes: every alarm is false
    flip       θ changes its sign after round 1000
    level      rewards are lower by one standard deviation of the noise (clicks: a third as frequent) from there on
    contexts   the first arm's contexts are shifted by θ from there on
    silence    a quarter of the rewards is lost from there on

A cell says in how many lives an alarm of any kind was raised, and how often each kind was; with a change only alarms
after it count, those before it stand in brackets.
"""

from __future__ import annotations

import argparse
import os
import warnings

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from collections import Counter

import numpy as np

from rarely import BatchNeuralUCB, DriftWarning, LinTS, LinUCB, OnDemand, Policy, Uniform

ROUNDS, BATCH, ARMS, DIM = 2000, 50, 5, 5
CHANGES = ("nothing", "flip", "level", "contexts", "silence")
WORLDS = ("linear", "bent", "clicks", "spend")
POLICIES = {
    "LinUCB": lambda seed: LinUCB(DIM, OnDemand(), seed=seed),
    "LinTS": lambda seed: LinTS(DIM, OnDemand(), seed=seed),
    "Uniform": lambda seed: Uniform(DIM, OnDemand(), seed=seed),
    "BatchNeuralUCB": lambda seed: BatchNeuralUCB(DIM, OnDemand(horizon=ROUNDS, batches=41), seed=seed),
}


def rewards_of(world: str, sizes: np.ndarray, lower: bool, generator: np.random.Generator) -> np.ndarray:
    """Return a reward for each x·θ."""
    noise, chances = generator.normal(0, 0.5, len(sizes)), generator.random(len(sizes))
    if world in ("linear", "bent"):
        return (sizes if world == "linear" else np.sin(2 * sizes)) + noise - 0.5 * lower
    clicks = chances < 1 / (1 + np.exp(3 - 1.5 * sizes)) / (3 if lower else 1)
    return clicks * (np.exp(2 * noise) if world == "spend" else 1.0)


def life(name: str, world: str, change: str, seed: int) -> list[tuple[int, str]]:
    """Return the round and the kind of every alarm of one life."""
    generator = np.random.default_rng([seed, 31])
    theta = generator.normal(size=DIM)
    theta /= np.linalg.norm(theta)
    policy: Policy = POLICIES[name](seed)
    for start in range(0, ROUNDS, BATCH):
        changed = start >= ROUNDS // 2
        x = generator.normal(size=(BATCH, ARMS, DIM))
        if changed and change == "contexts":
            x[:, 0] += theta
        decision = policy.select(x)
        sizes = x[np.arange(BATCH), decision.arm] @ (-theta if changed and change == "flip" else theta)
        rewards = rewards_of(world, sizes, changed and change == "level", generator)
        kept = generator.random(BATCH) >= (0.25 if changed and change == "silence" else 0.02)
        policy.observe(rounds=decision.rounds[kept], rewards=rewards[kept])
        policy.update()
    return [(event.round, event.detail.partition(":")[0]) for event in policy.events if event.kind == "alarm"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policies", nargs="*", default=list(POLICIES))
    parser.add_argument("--lives", type=int, default=40)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--worlds", nargs="*", default=WORLDS)
    parser.add_argument("--changes", nargs="*", default=CHANGES)
    given = parser.parse_args()
    warnings.simplefilter("ignore", DriftWarning)
    for name in given.policies:
        for world in given.worlds:
            for change in given.changes:
                lives = [life(name, world, change, seed) for seed in range(given.first, given.first + given.lives)]
                half = 0 if change == "nothing" else ROUNDS // 2
                raised = sum(any(round > half for round, _ in found) for found in lives)
                early = sum(any(round <= half for round, _ in found) for found in lives)
                kinds = Counter(kind for found in lives for kind in {kind for round, kind in found if round > half})
                said = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
                print(f"{name:15} {world:7} {change:9} {raised:4} of {len(lives)} [{early}]  {said}", flush=True)


if __name__ == "__main__":
    main()
