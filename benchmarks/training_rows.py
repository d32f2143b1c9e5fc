"""What an update must train on, once there are more rewards than it has time for: see docs/decisions/0029.

python benchmarks/training_rows.py                 # three problems, six ways, one seed
python benchmarks/training_rows.py --seeds 3 --problems recommender
python benchmarks/training_rows.py --known 5000 --problems cosine

The table of the decision has the best length of each training; here policies choose it themselves.

A log of past decisions, a third of them random, trains one version in each way. A row has its mean reward over new
rounds, less that of uniform choice, of the best possible (0: uniform, 1: the best arm of every round), and the
processor time of the update.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy; other runs share the cores

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from rarely import BatchNeuralUCB, Limits, OnDemand, Preset, Training, Window
from rarely.core.types import Array
from rarely.worlds import Cosine, Quadratic, Recommender, Rounds, World

KNOWN, NEW, MOST = 30_000, 1500, 10_000
PROBLEMS: dict[str, World] = {"recommender": Recommender(), "cosine": Cosine(), "quadratic": Quadratic()}
SINGLY = Preset(scale_contexts=True, standardise_rewards=True, optimiser="sgd")
Way = Callable[[World, Array, Array], BatchNeuralUCB]


def policy(world: World, contexts: Array, rewards: Array, **own: Any) -> BatchNeuralUCB:
    """A policy whose version 0 is trained on a log; the diagonal form, since only its means are asked for."""
    limits = Limits(history=None)
    own = {"covariance": "diagonal", "context_scale": world.context_scale, "seed": 0, "limits": limits} | own
    return BatchNeuralUCB.from_log(contexts, rewards, schedule=OnDemand(), **own)


def sampled(world: World, contexts: Array, rewards: Array) -> BatchNeuralUCB:
    """Trained on a uniform sample alone."""
    rows = np.sort(np.random.default_rng(0).permutation(len(rewards))[:MOST])
    return policy(world, contexts[rows], rewards[rows], training=Training(rows="all"))


def warm(world: World, contexts: Array, rewards: Array) -> BatchNeuralUCB:
    """The weights of yesterday, and 20 steps on all rewards."""
    day = len(rewards) // 10
    made = policy(world, contexts[:-day], rewards[:-day], training=Training(20, warm_start=True))
    made.observe(made.select(contexts[-day:, None]), rewards[-day:])
    made.update()
    return made


WAYS: dict[str, Way] = {
    "all rewards": lambda *log: policy(*log, training=Training(rows="all")),
    "window of 10 000": lambda *log: policy(*log, training=Training(rows="all"), forgetting=Window(MOST)),
    "sample of 10 000": sampled,
    "all rewards, 20 steps from the last weights, twice": warm,
    "descent on single samples, one pass": lambda *log: policy(*log, preset=SINGLY, training=len(log[2])),
    "10 000, and a linear part of all": lambda *log: policy(*log, training=Training(rows=MOST)),
}


def log_of(world: World, seed: int, known: int) -> tuple[Array, Array, Rounds]:
    """Contexts and rewards of past decisions, and new rounds; two thirds of the decisions are good ones."""
    rng, contexts, rewards = np.random.default_rng((seed, 1)), [], []
    for first in range(1, known, 5000):
        rounds = world.rounds(seed, 5000, first)
        seen = rounds.means + rounds.means.std() * rng.normal(size=rounds.means.shape)
        arms = np.where(rng.random(5000) < 1 / 3, rng.integers(world.arms, size=5000), seen.argmax(axis=1))
        contexts.append(rounds.contexts[np.arange(5000), arms])
        rewards.append(rounds.paid(arms))
    return np.concatenate(contexts), np.concatenate(rewards), world.rounds(seed, NEW, known + 1)


def worth(made: BatchNeuralUCB, new: Rounds) -> float:
    """What the means earn in new rounds: 0 is uniform choice, 1 the best arms."""
    means = np.concatenate([made.score(part).means for part in np.array_split(new.contexts, 10)])
    uniform = new.means.mean()
    earned = new.means[np.arange(len(new)), means.argmax(axis=1)].mean()
    return float((earned - uniform) / (new.means.max(axis=1).mean() - uniform))


def main() -> None:
    """Print the table, a line at a time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="+", default=list(PROBLEMS), choices=PROBLEMS)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--known", type=int, default=KNOWN, help="rewards in the log, in whole 5000s")
    given = parser.parse_args()
    print("| problem | trained on | share of the best | processor, s |\n|---|---|---|---|", flush=True)
    for name in given.problems:
        world = PROBLEMS[name]
        logs = [log_of(world, seed, given.known) for seed in range(given.seeds)]
        for way, make in WAYS.items():
            shares, seconds = [], []
            for contexts, rewards, new in logs:
                start = time.process_time()
                made = make(world, contexts, rewards)
                seconds.append(time.process_time() - start)
                shares.append(worth(made, new))
            print(f"| {name} | {way} | {np.mean(shares):.3f} | {np.mean(seconds):.0f} |", flush=True)


if __name__ == "__main__":
    main()
