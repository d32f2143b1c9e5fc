"""What a warm start does to regret and to time: the table of docs/decisions/0011.

RARELY_DATA=... python benchmarks/warm_start.py      # four problems, seeds 0 to 9, adaptive B = 100; minutes
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # one process a core, one thread a process

import itertools
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from rarely import BatchNeuralUCB, DeterminantTrigger, Training
from rarely.bench.yardstick import describe
from rarely.experiments.catalogue import PAPER, PROBLEMS
from rarely.simulation.play import play
from rarely.simulation.statistics import ratio

SEEDS = range(10)
STARTS = {
    "cold, J = 200 (the paper's)": (False, 200),
    "warm, J = 200": (True, 200),
    "warm, J = 50": (True, 50),
    "cold, J = 50": (False, 50),
    "warm, J = 20": (True, 20),
}


def run(name: str, start: str, seed: int) -> tuple[float, float]:
    problem, (warm, steps) = PROBLEMS[name], STARTS[start]
    world = problem.world(problem.view("practical"), constant=True)
    policy = BatchNeuralUCB(
        world.dim,
        DeterminantTrigger(2000, 100, problem.log_ratios[1]),
        hidden=problem.hidden,
        ridge=problem.ridge,
        beta=problem.beta,
        training=Training(steps, warm_start=warm),
        context_scale=world.context_scale,
        seed=seed,
    )
    played = play(policy, world.rounds(seed, 2000))
    return float(played.regrets.sum()), played.training.seconds


def main() -> None:
    """Print regret by start and problem, with the ratio to the paper's start seed by seed."""
    cells = list(itertools.product(PAPER, STARTS, SEEDS))
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        found = dict(zip(cells, pool.map(run, *zip(*cells, strict=True)), strict=True))
    print(describe())
    print("| start | " + " | ".join(PAPER) + " | training |\n|---|" + "---|" * (len(PAPER) + 1))
    cold = next(iter(STARTS))
    for start in STARTS:
        texts = []
        for name in PAPER:
            ours, theirs = ([found[name, s, seed][0] for seed in SEEDS] for s in (start, cold))
            text = f"{np.mean(ours):.0f} ± {np.std(ours, ddof=1):.0f}"
            if start != cold:
                change = ratio(ours, theirs)
                text += f" ({change.value:.2f}×: {change.low:.2f} to {change.high:.2f})"
            texts.append(text)
        spent = [sum(found[n, s, seed][1] for n in PAPER for seed in SEEDS) for s in (start, cold)]
        print(f"| {start} | " + " | ".join(texts) + f" | {spent[0] / spent[1]:.2f}× |")


if __name__ == "__main__":
    main()
