"""The default policy with nothing but its dimension, a horizon and a number of batches.

python benchmarks/pacing.py                                   # the four problems, B = 20, 40, 100, 20 seeds: hours
python benchmarks/pacing.py --worlds gallery --batches 40     # the adversarial worlds
python benchmarks/pacing.py --worlds cosine wheel --seeds 4 --batches 40
python benchmarks/pacing.py --schedules                       # beside it: fixed, geometric, determinant of four log q
python benchmarks/pacing.py --others                          # beside it: LinUCB, NeuralTS, ε-greedy, every round

Every finished run is a line of --out, and a run that is there is not played again: an interrupted command goes on.
Seeds from 70 000 on were used for no decision about the policy. Regret is summed over T = 2000 rounds, or all rows of a
smaller table; a row says mean ± standard error, the largest, and what uniform play would have lost.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from rarely import (
    BatchNeuralUCB,
    DeterminantTrigger,
    EveryRound,
    FixedGrid,
    GeometricGrid,
    LinUCB,
    NeuralEpsilonGreedy,
    NeuralTS,
    Paced,
    Policy,
    Schedule,
    ScheduleWarning,
)
from rarely.worlds import World
from rarely.worlds.gallery import GALLERY
from rarely_lab.compare import find_problem
from suite.studies import play_all, play_batches

ROUNDS, FIRST_SEED = 2000, 70_000
PROBLEMS = ("cosine", "quadratic", "mushroom", "magic")
LOG_RATIOS = (20.0, 40.0, 80.0, 160.0)
OTHERS = ("linucb", "neural-ts", "epsilon-greedy")
TASK = ("world", "way", "batches", "seed")


def world_of(name: str) -> World:
    """A world of the gallery, a problem of the paper, or a table."""
    return find_problem(name.removeprefix("sklearn:")).world


def schedule_of(way: str, horizon: int, batches: int) -> Schedule:
    """The schedule that a way is named after."""
    if way.startswith("determinant"):
        return DeterminantTrigger(horizon, batches, float(way.split("-")[1]))
    kinds = {"paced": Paced, "fixed": FixedGrid, "geometric": GeometricGrid}
    return kinds[way](horizon, batches) if way in kinds else EveryRound()


def policy_of(way: str, world: World, horizon: int, batches: int, seed: int) -> Policy:
    """One way to play."""
    scale = world.context_scale
    if way == "linucb":
        return LinUCB(world.dim, intercept=scale is None, context_scale=scale)
    kind = {"neural-ts": NeuralTS, "epsilon-greedy": NeuralEpsilonGreedy}.get(way, BatchNeuralUCB)
    return kind(dim=world.dim, schedule=schedule_of(way, horizon, batches), context_scale=scale, seed=seed)


def play(name: str, way: str, batches: int, seed: int) -> dict[str, Any]:
    """One run."""
    warnings.simplefilter("ignore", ScheduleWarning)
    world, began = world_of(name), time.process_time()
    rounds = world.rounds(seed=seed, count=min(ROUNDS, world.horizon or ROUNDS))
    policy = policy_of(way, world, len(rounds), batches, seed)
    arms = play_batches(policy, rounds.contexts, rounds.rewards)
    regrets = rounds.regrets(arms)
    return {
        "world": name,
        "way": way,
        "batches": batches,
        "seed": seed,
        "regret": float(regrets.sum()),
        "end": float(regrets[-len(regrets) // 4 :].mean()),
        "uniform": float(rounds.means.max(axis=1).sum() - rounds.means.mean(axis=1).sum()),
        "versions": policy.version + 1,
        "seconds": time.process_time() - began,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", nargs="+", default=list(PROBLEMS), help="problems, tables, worlds, or 'gallery'")
    parser.add_argument("--batches", nargs="+", type=int, default=[20, 40, 100])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--schedules", action="store_true", help="fixed, geometric and determinant schedules too")
    parser.add_argument("--others", action="store_true", help="other policies, updated after every round, too")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=Path("out/pacing.jsonl"))
    given = parser.parse_args()
    worlds = [name for each in given.worlds for name in (GALLERY if each == "gallery" else [each])]
    ways = ["paced"] + (["fixed", "geometric", *(f"determinant-{q:g}" for q in LOG_RATIOS)] if given.schedules else [])
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    tasks = [
        (world, way, batches, seed) for seed in seeds for world in worlds for batches in given.batches for way in ways
    ]
    if given.others:  # these have no budget: once for all
        tasks += [(world, other, 0, seed) for seed in seeds for world in worlds for other in OTHERS]
    groups = defaultdict(list)
    for run in play_all(play, tasks, TASK, given.out, given.jobs):
        groups[run["world"], run["batches"], run["way"]].append(run)
    columns = ("regret", 9), ("±", 7), ("largest", 9), ("uniform", 9), ("end", 8), ("versions", 8)
    print(f"{'world':16} {'B':>4} {'way':16}", *(f"{name:>{width}}" for name, width in columns))
    for (world, batches, way), group in sorted(groups.items()):
        regret = np.array([run["regret"] for run in group])
        error = regret.std(ddof=1) / np.sqrt(len(regret)) if len(regret) > 1 else 0.0
        mean = {key: float(np.mean([run[key] for run in group])) for key in ("uniform", "end", "versions")}
        print(
            f"{world:16} {batches or '':>4} {way:16} {regret.mean():9.1f} {error:7.1f} {regret.max():9.1f} "
            f"{mean['uniform']:9.0f} {mean['end']:8.3f} {mean['versions']:8.0f}"
        )


if __name__ == "__main__":
    main()
