"""The default policy on worlds that played no part in its making, beside the library's other policies.

python benchmarks/elsewhere.py                                # all worlds, three seeds: about 20 minutes on two cores
python benchmarks/elsewhere.py --worlds linear30 xor --seeds 1
python benchmarks/elsewhere.py --policies default linucb --first-seed 91000
python benchmarks/elsewhere.py --policies linucb-few linucb-frozen --versions 10

Everyone has nothing set but its dimension and its schedule: `Paced` with 20 versions for the neural policies and
linucb-few, an update after every round for linucb and lints. linucb-frozen has the bonuses of linucb-few frozen within
a batch; it takes part if asked. Regret is summed over T = 1000 rounds. "end" is the regret
of a round in the last quarter: a policy that has stopped learning shows there. Every finished run is a line of --out,
and is not played again.

The worlds were written by somebody who had not seen the policy's code, to break it. Those with many arms that are the
same in every round showed what decision 0027 mends.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rarely import (
    Affine,
    ArmBlocks,
    BatchNeuralUCB,
    EveryRound,
    LinTS,
    LinUCB,
    NeuralEpsilonGreedy,
    NeuralTS,
    Paced,
    Policy,
)
from rarely._core.types import Array
from suite.studies import play_all, play_batches

ROUNDS, FIRST_SEED = 1000, 90_000
NEURAL = {"default": BatchNeuralUCB, "neural-ts": NeuralTS, "epsilon-greedy": NeuralEpsilonGreedy}
LINEAR = {"linucb-few": LinUCB, "linucb": LinUCB, "lints": LinTS}
FROZEN = "linucb-frozen"
TASK = ("world", "policy", "seed", "versions")


@dataclass
class Rounds:
    """T rounds: contexts (T, K, d), the means and the rewards of all arms, (T, K)."""

    contexts: Array
    means: Array
    rewards: Array
    scale: Any = None


Maker = Callable[[np.random.Generator], Rounds]
WORLDS: dict[str, Maker] = {}


def world(make: Maker) -> Maker:
    WORLDS[make.__name__] = make
    return make


def same_arms(contexts: Array, means: Array, noise: Array) -> Rounds:
    """Arms that are the same in every round."""
    every = np.broadcast_to(means, (ROUNDS, len(means)))
    return Rounds(np.broadcast_to(contexts, (ROUNDS, *contexts.shape)), every, every + noise)


def noisy(g: np.random.Generator, contexts: Array, means: Array, spread: float, scale: Any = None) -> Rounds:
    return Rounds(contexts, means, means + g.normal(0, spread, means.shape), scale)


def one_better(g: np.random.Generator, arms: int) -> Array:
    """Means up to 0.5, and one of 1."""
    means = g.uniform(0, 0.5, arms)
    means[g.integers(arms)] = 1
    return means


@world
def onehot30(g: np.random.Generator) -> Rounds:
    """Nothing is shared between 30 arms."""
    return same_arms(np.eye(30), g.normal(0, 1, 30), g.normal(0, 1, (ROUNDS, 30)))


@world
def rotated20(g: np.random.Generator) -> Rounds:
    """The same, and no column shows it."""
    return same_arms(np.linalg.qr(g.normal(size=(20, 20)))[0], one_better(g, 20), g.normal(0, 0.5, (ROUNDS, 20)))


@world
def linear30(g: np.random.Generator) -> Rounds:
    arms, theta = g.normal(size=(30, 5)), g.normal(size=5)
    return same_arms(arms, arms @ theta / np.linalg.norm(theta), g.normal(0, 0.5, (ROUNDS, 30)))


@world
def bernoulli20(g: np.random.Generator) -> Rounds:
    means = g.uniform(0.2, 0.5, 20)
    means[g.integers(20)] = 0.65
    rounds = same_arms(g.normal(size=(20, 4)), means, np.zeros((ROUNDS, 20)))
    rounds.rewards = (g.random((ROUNDS, 20)) < means).astype(np.float64)
    return rounds


@world
def coded(g: np.random.Generator) -> Rounds:
    """Twelve arms known by a number that means nothing."""
    return same_arms(np.arange(12.0)[:, None], g.permutation(12) / 11, g.normal(0, 0.3, (ROUNDS, 12)))


@world
def jackpot(g: np.random.Generator) -> Rounds:
    """One arm in six pays 50 in 2 % of the rounds, the others 0.3 for sure."""
    best, rounds = int(g.integers(6)), same_arms(np.eye(6), np.full(6, 0.3), g.normal(0, 0.05, (ROUNDS, 6)))
    rounds.means = np.where(np.arange(6) == best, 1.0, rounds.means)
    rounds.rewards[:, best] = 50.0 * (g.random(ROUNDS) < 0.02)
    return rounds


@world
def arms_and_user(g: np.random.Generator) -> Rounds:
    """Fifteen one-hot arms, and a column of the user that all share."""
    user = g.normal(size=(ROUNDS, 1))
    contexts = np.concatenate(
        [np.broadcast_to(np.eye(15), (ROUNDS, 15, 15)), np.repeat(user, 15, axis=1)[..., None]], axis=2
    )
    return noisy(g, contexts, one_better(g, 15) + 0.3 * user, 0.5)


def in_blocks(g: np.random.Generator, arms: int, users: Array, means: Array, spread: float, layout: Any) -> Rounds:
    blocks = ArmBlocks(arms, Affine.identity(users.shape[1], constant=True), layout)
    return noisy(g, np.stack([blocks(user) for user in users]), means, spread, blocks.scale)


@world
def shared20(g: np.random.Generator) -> Rounds:
    users = g.normal(size=(ROUNDS, 3))
    return in_blocks(g, 20, users, one_better(g, 20) + 0.5 * users[:, :1], 0.4, "shared")


@world
def hybrid8(g: np.random.Generator) -> Rounds:
    users = g.normal(size=(ROUNDS, 4))
    return in_blocks(g, 8, users, users @ g.normal(size=(4, 8)) / 2, 0.5, "hybrid")


@world
def categories(g: np.random.Generator) -> Rounds:
    """Two categories of the user decide together, which no linear model of disjoint arms can say."""
    first, second = g.integers(4, size=ROUNDS), g.integers(3, size=ROUNDS)
    users = np.hstack([np.eye(4)[first], np.eye(3)[second]])
    return in_blocks(g, 5, users, (g.normal(size=(4, 3, 5)) / 2)[first, second], 0.3, "disjoint")


@world
def users8(g: np.random.Generator) -> Rounds:
    user = g.integers(8, size=ROUNDS)
    return in_blocks(g, 6, np.eye(8)[user], g.random((8, 6))[user], 0.2, "disjoint")


@world
def safe_arm(g: np.random.Generator) -> Rounds:
    """The first arm pays 0.5 for sure; the others are linear, under much noise."""
    contexts, theta = g.normal(size=(ROUNDS, 4, 3)), g.normal(size=3)
    contexts[:, 0] = 0
    means = contexts @ theta * 0.7 / np.linalg.norm(theta)
    means[:, 0] = 0.5
    noise = g.normal(0, 1, means.shape)
    noise[:, 0] = 0
    return Rounds(contexts, means, means + noise)


@world
def xor(g: np.random.Generator) -> Rounds:
    contexts = g.uniform(-1, 1, (ROUNDS, 4, 4))
    return noisy(g, contexts, (contexts[..., 0] * contexts[..., 1] > 0) * 1.0, 0.2)


@world
def checkerboard(g: np.random.Generator) -> Rounds:
    contexts = g.random((ROUNDS, 5, 2))
    return noisy(g, contexts, np.floor(3 * contexts).sum(axis=2) % 2, 0.1)


@world
def friedman(g: np.random.Generator) -> Rounds:
    """Friedman's first function of five columns, and five that do not matter."""
    contexts = g.random((ROUNDS, 6, 10))
    x = np.moveaxis(contexts, -1, 0)
    return noisy(g, contexts, 10 * np.sin(np.pi * x[0] * x[1]) + 20 * (x[2] - 0.5) ** 2 + 10 * x[3] + 5 * x[4], 1.0)


@world
def wave(g: np.random.Generator) -> Rounds:
    contexts = g.uniform(-1, 1, (ROUNDS, 5, 6))
    return noisy(g, contexts, np.sin(8 * contexts[..., 2]), 0.2)


@world
def threshold(g: np.random.Generator) -> Rounds:
    contexts, theta = g.normal(size=(ROUNDS, 5, 3)), g.normal(size=3)
    return noisy(g, contexts, (contexts @ theta > 1.2 * np.linalg.norm(theta)) * 1.0, 0.3)


@world
def rare_column(g: np.random.Generator) -> Rounds:
    """A column that is 1 in 2 % of the contexts is worth 5."""
    contexts = g.normal(size=(ROUNDS, 5, 4))
    contexts[..., 3] = g.random((ROUNDS, 5)) < 0.02
    return noisy(g, contexts, 0.2 * contexts[..., 0] + 5 * contexts[..., 3], 0.3)


@world
def correlated100(g: np.random.Generator) -> Rounds:
    contexts = g.normal(size=(ROUNDS, 4, 5)) @ g.normal(size=(5, 100)) + g.normal(size=(ROUNDS, 4, 100)) / 2
    return noisy(g, contexts, contexts[..., g.permutation(100)[:3]] @ g.normal(size=3), 0.5)


@world
def lognormal(g: np.random.Generator) -> Rounds:
    contexts = g.lognormal(0, 1.5, (ROUNDS, 5, 4))
    return noisy(g, contexts, np.tanh(np.log(contexts) @ g.normal(size=4) / 2), 0.2)


@world
def million(g: np.random.Generator) -> Rounds:
    """Rewards of a million, give or take one."""
    contexts = g.normal(size=(ROUNDS, 4, 5))
    return noisy(g, contexts, 1e6 + np.tanh(contexts @ g.normal(size=5)), 0.1)


@world
def losses(g: np.random.Generator) -> Rounds:
    contexts = g.normal(size=(ROUNDS, 5, 4))
    means = -np.exp(contexts @ g.normal(size=4) / 2)
    return Rounds(contexts, means, means * g.lognormal(-0.125, 0.5, means.shape))


@world
def clock(g: np.random.Generator) -> Rounds:
    """A column with the seconds since 1970."""
    contexts = g.normal(size=(ROUNDS, 4, 5))
    means = np.cos(contexts[..., :4] @ g.normal(size=4))
    contexts[..., 4] = 1.7e9 + 3600 * np.arange(ROUNDS)[:, None]
    return noisy(g, contexts, means, 0.1)


@world
def glitch(g: np.random.Generator) -> Rounds:
    """A linear world with one wrong reward of 100 in round 3."""
    contexts, theta = g.normal(size=(ROUNDS, 5, 4)), g.normal(size=4)
    rounds = noisy(g, contexts, contexts @ theta / np.linalg.norm(theta), 0.2)
    rounds.rewards[2] += 100
    return rounds


def policy_of(name: str, rounds: Rounds, seed: int, versions: int) -> Policy:
    settings = {"dim": rounds.contexts.shape[2], "context_scale": rounds.scale, "seed": seed}
    few = Paced(ROUNDS, versions)
    if name in NEURAL:
        return NEURAL[name](schedule=few, **settings)
    settings |= {"intercept": rounds.scale is None, "schedule": EveryRound() if name in ("linucb", "lints") else few}
    return LinUCB(within_batch="frozen", **settings) if name == FROZEN else LINEAR[name](**settings)


def play(name: str, policy_name: str, seed: int, versions: int) -> dict[str, Any]:
    """One run."""
    warnings.simplefilter("ignore")
    began = time.process_time()
    rounds = WORLDS[name](np.random.default_rng([seed, *map(ord, name)]))
    policy = policy_of(policy_name, rounds, seed, versions)
    arms = play_batches(policy, rounds.contexts, rounds.rewards)
    best = rounds.means.max(axis=1)
    regrets = best - rounds.means[np.arange(ROUNDS), arms]
    return {
        "world": name,
        "policy": policy_name,
        "seed": seed,
        "versions": versions,
        "regret": float(regrets.sum()),
        "end": float(regrets[-ROUNDS // 4 :].mean()),
        "uniform": float((best - rounds.means.mean(axis=1)).sum()),
        "seconds": time.process_time() - began,
    }


def show(runs: list[dict[str, Any]], policies: list[str]) -> None:
    """Means over seeds, a row for each world, and for the default what it ends with and the best of the others."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        found[run["world"]][run["policy"]].append(run)
    print(f"{'world':16}{'uniform':>9}", *(f"{name:>15}" for name in policies), f"{'end':>8}{'÷ best':>8}")
    for name, by_policy in found.items():
        means = {p: float(np.mean([run["regret"] for run in of])) for p, of in by_policy.items()}
        others = [value for p, value in means.items() if p != "default"]
        line = f"{name:16}{np.mean([r['uniform'] for of in by_policy.values() for r in of]):9.0f}"
        line += "".join(f"{means[p]:16.1f}" if p in means else f"{'':16}" for p in policies)
        if "default" in means and others:
            end = np.mean([run["end"] for run in by_policy["default"]])
            line += f"{end:9.3f}{means['default'] / min(others):8.2f}"
        print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", nargs="+", default=list(WORLDS), choices=list(WORLDS), metavar="WORLD")
    parser.add_argument("--policies", nargs="+", default=[*NEURAL, *LINEAR], choices=[*NEURAL, *LINEAR, FROZEN])
    parser.add_argument("--versions", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=Path("out/elsewhere.jsonl"))
    given = parser.parse_args()
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    tasks = [(w, p, s, given.versions) for s in seeds for p in given.policies for w in given.worlds]
    show(play_all(play, tasks, TASK, given.out, given.jobs), given.policies)


if __name__ == "__main__":
    main()
