"""The default against a network in lives of 10⁴, 10⁵ and 10⁶ rounds: regret, seconds an update, µs a decision.

python benchmarks/large.py --rounds 10000 100000            # three worlds, both policies, two seeds
python benchmarks/large.py --rounds 1000000 --seeds 1       # an hour on two cores
python benchmarks/large.py --worlds linear --policies default

`network` is the same policy with hidden=200. Rounds are decided in blocks, each until its batch ends, with
40 versions of the default schedule. Contexts are drawn block by block, so that a life takes the memory of its history.
Times are processor times of one thread. Every finished run is a line of --out, and an interrupted command goes on.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rarely import BatchNeuralUCB, Paced
from rarely.runs.machine import describe
from suite.studies import play_all

TASK = ("world", "policy", "rounds", "seed")
POLICIES = ("default", "network")
ARMS, DIM, BATCHES, BLOCK = 4, 10, 40, 4096
WORLDS = ("linear", "clicks", "quadratic")


def means_of(world: str, contexts: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """Return the mean rewards of contexts, (n, K)."""
    signal = contexts @ direction
    if world == "linear":
        return 0.5 * signal
    if world == "quadratic":
        return np.square(signal)
    return 1 / (1 + np.exp(4 - 1.2 * signal - 0.6 * contexts[..., 0] * contexts[..., 1]))


def blocks(world: str, rounds: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield contexts (n, K, d), mean rewards and rewards (n, K) of some consecutive rounds."""
    direction = np.random.default_rng((seed, DIM)).normal(size=DIM)
    direction /= np.linalg.norm(direction)
    for start in range(0, rounds, BLOCK):
        rng = np.random.default_rng((seed, start, 1))
        contexts = rng.normal(size=(min(BLOCK, rounds - start), ARMS, DIM))
        means = means_of(world, contexts, direction)
        if world == "clicks":
            yield contexts, means, (rng.random(means.shape) < means).astype(float)
        else:
            yield contexts, means, means + (0.3 if world == "linear" else 0.1) * rng.normal(size=means.shape)


def play(world: str, policy: str, rounds: int, seed: int) -> dict[str, Any]:
    """Play one life, and return its regret and its processor times."""
    player = BatchNeuralUCB(DIM, Paced(rounds, BATCHES), seed=seed, hidden=200 if policy == "network" else None)
    regret, done, updates, deciding, latest = 0.0, 0, list[float](), 0.0, (0.0, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for contexts, means, rewards in blocks(world, rounds, seed):
            at = 0
            while at < len(contexts):
                start = time.process_time()
                decision = player.select(contexts[at:], until_due=True)
                every = np.arange(at, at + len(decision.arm))
                player.observe(decision, rewards[every, decision.arm])
                took = time.process_time() - start
                deciding, latest = deciding + took, (latest[0] + took, latest[1] + len(every))
                regret += float((means[every].max(axis=1) - means[every, decision.arm]).sum())
                at, done = at + len(every), done + len(every)
                if player.due and done < rounds:
                    start = time.process_time()
                    player.update()
                    updates.append(time.process_time() - start)
                    latest = (0.0, 0)
    micro = {"deciding": 1e6 * deciding / rounds, "deciding_at_the_end": 1e6 * latest[0] / max(latest[1], 1)}
    times = {"update": float(np.mean(updates)), "longest_update": max(updates), "updates": len(updates)}
    task = {"world": world, "policy": policy, "rounds": rounds, "seed": seed}
    return task | {"regret": regret, "machine": describe()["machine"]} | micro | times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", nargs="+", default=list(WORLDS), choices=WORLDS)
    parser.add_argument("--policies", nargs="+", default=list(POLICIES), choices=POLICIES)
    parser.add_argument("--rounds", nargs="+", type=int, default=[10_000, 100_000])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("out/large.jsonl"))
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.seeds)
    tasks = [
        (world, policy, rounds, seed)
        for rounds in given.rounds
        for seed in seeds
        for world in given.worlds
        for policy in given.policies
    ]
    runs = play_all(play, tasks, TASK, given.out, given.jobs)
    print(f"{'world':10} {'rounds':>8} {'policy':>8} {'regret':>9} {'s/update':>9} {'longest':>8} {'µs/decision':>12} "
          f"{'at the end':>11}")  # fmt: skip
    for world in given.worlds:
        for rounds in given.rounds:
            for policy in given.policies:
                mine = [r for r in runs if (r["world"], r["policy"], r["rounds"]) == (world, policy, rounds)]
                regret, update, longest, deciding, end = (
                    float(np.mean([run[name] for run in mine]))
                    for name in ("regret", "update", "longest_update", "deciding", "deciding_at_the_end")
                )
                print(f"{world:10} {rounds:8d} {policy:>8} {regret:9.1f} {update:9.2f} {longest:8.2f} {deciding:12.0f} "
                      f"{end:11.0f}")  # fmt: skip
    print(f"machine: {', '.join(sorted({run['machine'] for run in runs}))}")


if __name__ == "__main__":
    main()
