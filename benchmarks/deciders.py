"""What it costs that deciders do not talk to each other: regret with 1, 4, 16 and 64 of them, by how bonuses move.

python benchmarks/deciders.py                       # LinUCB on six worlds, B = 10, 20, 40; about ten minutes of a core
python benchmarks/deciders.py --policy default --worlds wheel two-sided digits --batches 20 --seeds 1

frozen            bonuses of the cut, whoever decides
frozen, Thompson  the same with LinTS, which spreads by itself
local             each decider adds its own choices to its own Z; the sums meet at the cut
merged            local, and all choices so far reach every decider twenty times in a batch
counted           local, and each choice counts as often as there are deciders, as if all of them chose alike

Rounds go to the deciders in turn. Batches have equal length, as nights have. Every cell is the regret over that of one
process with running bonuses, which is local with one decider; the last line has geometric means over the worlds.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import copy
import warnings
from typing import Any

import numpy as np

from rarely import BatchNeuralUCB, LinTS, LinUCB, OnDemand, Policy
from rarely._core.policies.replay import follow, put_back, state_of
from rarely.worlds import Recommender
from rarely.worlds.gallery import GALLERY
from rarely.worlds.table import TableWorld, sklearn_table

WORLDS = ("wheel", "rare-reward", "two-sided", "gaussian-arms")
DECIDERS = (1, 4, 16, 64)
MERGES = 20
"""In a batch."""


def world_of(name: str) -> Any:
    if name == "recommender":
        return Recommender()
    return TableWorld(sklearn_table(name)) if name in ("digits", "breast_cancer") else GALLERY[name]


def made(kind: str, world: Any, within_batch: str, seed: int) -> Policy:
    settings: dict[str, Any] = {"dim": world.dim, "schedule": OnDemand(), "seed": seed, "within_batch": within_batch}
    if kind == "default":
        return BatchNeuralUCB(**settings, context_scale=world.context_scale)
    return (LinTS if kind == "thompson" else LinUCB)(**settings, context_scale=world.context_scale)


def regret(kind: str, world: Any, rounds: Any, *, batches: int, deciders: int, bonuses: str, seed: int) -> float:
    """Play all rounds, and return the regret."""
    policy = made(kind, world, "frozen" if bonuses == "frozen" else "running", seed)
    ends = np.linspace(0, len(rounds), batches + 1).astype(int)[1:]
    total, start = 0.0, 0
    for end in ends:
        batch = rounds[start:end]
        cuts = MERGES if bonuses == "merged" else 1
        for part in np.array_split(np.arange(len(batch)), cuts):
            if len(part):
                here = batch[part[0] : part[-1] + 1]
                total += played(policy, here, 1 if bonuses == "frozen" else deciders, counted=bonuses == "counted")
        arms = policy.history.arms[-len(batch) :]
        policy.observe(rounds=np.arange(start + 1, end + 1), rewards=batch.paid(arms))
        policy.update()
        start = end
    return total


def played(policy: Policy, rounds: Any, deciders: int, *, counted: bool) -> float:
    """Let deciders that know what the policy knows decide rounds in turn, and tell the policy of them."""
    if deciders == 1:
        return float(rounds.regrets(policy.select(rounds.contexts).arm).sum())
    arms, probabilities = np.empty(len(rounds), np.int64), np.empty(len(rounds))
    for one in range(min(deciders, len(rounds))):
        own = copy.deepcopy(policy)
        put_back(own, state_of(own))
        for i in range(one, len(rounds), deciders if counted else len(rounds)):
            here = slice(i, i + 1) if counted else slice(i, None, deciders)
            decision = own.select(rounds.contexts[here])
            arms[here], probabilities[here] = decision.arm, decision.propensity
            if counted:
                others = np.repeat(rounds.contexts[i][decision.arm][None], deciders - 1, axis=0)
                follow(own, others, None, np.zeros(deciders - 1, np.int64), np.ones(deciders - 1))
    follow(policy, rounds.contexts, None, arms, probabilities)
    return float(rounds.regrets(arms).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policy", choices=["linucb", "default"], default="linucb")
    parser.add_argument("--worlds", nargs="+", default=[*WORLDS, "digits", "recommender"])
    parser.add_argument("--batches", nargs="+", type=int, default=[10, 20, 40])
    parser.add_argument("--rules", nargs="+", default=["frozen", "thompson", "local", "merged"])
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=91_000)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    columns = [
        ("frozen", 1),
        ("thompson", 1),
        *(("local", n) for n in DECIDERS),
        *(("merged", n) for n in DECIDERS[1:]),
        *(("counted", n) for n in DECIDERS[1:]),
    ]
    columns = [column for column in columns if column[0] in asked.rules or column == ("local", 1)]
    print("| world | B | regret, one process |", *(f"{how}, {n} |" for how, n in columns if (how, n) != ("local", 1)))
    print("|---|---|---|", *("---|" for _ in columns[1:]))
    for batches in asked.batches:
        ratios = []
        for name in asked.worlds:
            world, found = world_of(name), np.zeros(len(columns))
            for seed in range(asked.first_seed, asked.first_seed + asked.seeds):
                rounds = world.rounds(seed, min(asked.rounds, world.horizon or asked.rounds))
                for i, (how, count) in enumerate(columns):
                    kind = how if how == "thompson" else asked.policy
                    bonuses = "frozen" if how == "thompson" else how
                    found[i] += regret(kind, world, rounds, batches=batches, deciders=count, bonuses=bonuses, seed=seed)
            one = found[columns.index(("local", 1))]
            ratios.append(np.delete(found / one, columns.index(("local", 1))))
            print(f"| {name} | {batches} | {one / asked.seeds:.0f} |", *(f"{r:.2f} |" for r in ratios[-1]), flush=True)
        means = np.exp(np.log(ratios).mean(axis=0))
        print(f"| **geometric mean** | {batches} | |", *(f"**{r:.2f}** |" for r in means), flush=True)


if __name__ == "__main__":
    main()
