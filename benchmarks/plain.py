"""The default policy on plain arms, beside LinUCB and the textbook rivals with the same number of updates.

python benchmarks/plain.py --seeds 20 --jobs 16                        # all plain arms, T = 2000, B = 20
python benchmarks/plain.py --worlds plain gallery --batches 20 40      # the gallery too; rivals where arms are fixed
python benchmarks/plain.py --worlds drifting magic+drift --memory none 50 200   # beside memories that are set
python benchmarks/plain.py --worlds safe-or-risky --policies default default@loglog thompson --first-seed 0

Worlds and policies have the names of `rarely compare`; ucb1, elimination, thompson and thompson-beta, also with @fixed,
@geometric or @loglog, play where arms are the same in every round.

A row has the mean regret of each policy, and in brackets its worst run as a share of what uniform play would lose; then
the first policy's mean over the smallest of the others'. Every finished run is a line of --out, and is not played
again. It needs NumPy and the package alone.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from rarely import BatchNeuralUCB, Paced, Window
from rarely_lab.compare import POLICIES, find_problem
from rarely_lab.compare.policies import GRIDS
from rarely_lab.compare.problems import Problem, Task, expand
from rarely_lab.engine.play import LibraryContestant
from rarely_lab.engine.play import play as play_contestant
from suite.plain_arms import RIVALS
from suite.studies import play_all, play_batches

ROUNDS, FIRST_SEED = 2000, 95_000
WAYS = ("default", "linucb", "ucb1", "elimination", "thompson", "thompson-beta")
NAMES = [*POLICIES, *RIVALS, *(f"{rival}@{grid}" for rival in RIVALS for grid in GRIDS)]
TASK = ("world", "policy", "rounds", "batches", "seed")


def make(policy: str, task: Task, batches: int) -> Any:
    """A policy of `rarely compare`, a rival, or the default with a memory that is set: "default+50"."""
    rival, _, grid = policy.partition("@")
    if rival in RIVALS:
        return RIVALS[rival](task, GRIDS[grid or "paced"](task.horizon, batches))
    _, _, memory = policy.partition("+")
    if not memory:
        return POLICIES[policy].make(task)
    forgetting, schedule = None if memory == "none" else Window(int(memory)), Paced(task.horizon, batches)
    scale = task.context_scale
    return LibraryContestant(
        BatchNeuralUCB(task.dim, schedule, context_scale=scale, forgetting=forgetting, seed=task.seed)
    )


def play(name: str, policy: str, count: int, batches: int, seed: int) -> dict[str, Any]:
    """One run."""
    warnings.simplefilter("ignore")
    began, problem = time.process_time(), find_problem(name)
    rounds = problem.rounds(seed, count)
    contestant = make(policy, problem.task(count, batches, seed), batches)
    if isinstance(contestant, LibraryContestant):  # a batch in one call is faster, and the same
        regrets = rounds.regrets(play_batches(contestant.policy, rounds.contexts, rounds.rewards))
        updates = contestant.policy.version
    else:
        played = play_contestant(contestant, rounds, batches)
        regrets, updates = played.regrets, len(played.updates)
    run = dict(zip(TASK, (name, policy, count, batches, seed), strict=True))
    uniform = rounds.means.max(axis=1) - rounds.means.mean(axis=1)
    return run | {
        "regret": float(regrets.sum()),
        "end": float(regrets[-count // 4 :].mean()),
        "uniform": float(uniform.sum()),
        "updates": updates,
        "seconds": time.process_time() - began,
    }


def fixed_arms(problem: Problem) -> bool:
    """Whether contexts are the same in every round, so that an arm is its index."""
    contexts = problem.rounds(0, problem.length(8)).contexts  # with +drift the last of eight are in the new world
    return bool((contexts == contexts[0]).all())


def show(runs: list[dict[str, Any]], policies: list[str]) -> None:
    """A row for each world and B."""
    found: dict[tuple[str, int], dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        found[run["world"], run["batches"]][run["policy"]].append(run)
    print(f"{'world':16}{'B':>4}{'uniform':>9}", *(f"{name:>16}" for name in policies), f"{'÷ best':>7}")
    for (world, batches), of in found.items():
        means = {name: float(np.mean([run["regret"] for run in of[name]])) for name in policies if of[name]}
        line = f"{world:16}{batches:4}{np.mean([run['uniform'] for run in of[policies[0]]]):9.0f}"
        for name in policies:
            worst = max((run["regret"] / run["uniform"] for run in of[name]), default=0.0)
            line += f"{means[name]:10.1f} ({worst:4.2f})" if name in means else " " * 17
        others = [mean for name, mean in means.items() if name != policies[0]]
        print(line + (f"{means[policies[0]] / min(others):8.2f}" if others else ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", nargs="+", default=["plain"], help="names of problems or sets: plain, gallery, …")
    parser.add_argument("--policies", nargs="+", default=list(WAYS), choices=NAMES, metavar="POLICY")
    parser.add_argument(
        "--memory", nargs="+", default=[], help="also the default with these: none, or rounds of a window"
    )
    parser.add_argument("--batches", nargs="+", type=int, default=[20])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=Path("out/plain.jsonl"))
    given = parser.parse_args()
    problems = [find_problem(name) for name in expand(given.worlds)]
    policies = [*given.policies, *(f"default+{memory}" for memory in given.memory)]
    tasks = [
        (problem.name, policy, problem.length(given.rounds), batches, seed)
        for seed in range(given.first_seed, given.first_seed + given.seeds)
        for policy in policies
        for problem in problems
        for batches in given.batches
        if policy.partition("@")[0] not in RIVALS or fixed_arms(problem)
    ]
    show(play_all(play, tasks, TASK, given.out, given.jobs), policies)


if __name__ == "__main__":
    main()
