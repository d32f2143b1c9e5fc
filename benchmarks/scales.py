"""How contexts are scaled, and what learning the scale on the way costs: the table of docs/decisions/0005.

python benchmarks/scales.py        # cosine and quadratic, seeds 100 to 103, adaptive B = 100
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # one process a core, one thread a process

from concurrent.futures import ProcessPoolExecutor

import numpy as np

from rarely import Affine, BatchNeuralUCB, DeterminantTrigger
from rarely.bench.yardstick import describe
from rarely.lab.catalogue import PROBLEMS
from rarely.lab.play import play

LOG_RATIOS = {"cosine": 40.0, "quadratic": 25.0}
SCALES = {
    "standardised/√d, learned": lambda d: None,
    "standardised/√d, known": lambda d: Affine(np.full(d, 0.5), np.full(d, np.sqrt(d / 12))),
    "to [−1, 1], known": lambda d: Affine(np.full(d, 0.5), np.full(d, 0.5)),
    "raw with a constant": lambda d: Affine.identity(d, constant=True),
    "raw": lambda d: Affine.identity(d),
}


def regret(name: str, scale: str, seed: int) -> float:
    problem = PROBLEMS[name]
    world = problem.world("raw", constant=False)
    policy = BatchNeuralUCB(
        world.dim,
        DeterminantTrigger(2000, 100, LOG_RATIOS[name]),
        hidden=problem.hidden,
        ridge=problem.ridge,
        beta=problem.beta,
        seed=seed,
        context_scale=SCALES[scale](world.dim),
    )
    return float(play(policy, world.rounds(seed, 2000)).regrets.sum())


def main() -> None:
    """Print a table of mean regrets and their standard deviations over seeds."""
    seeds = range(100, 104)
    cells = [(p, s, seed) for p in LOG_RATIOS for s in SCALES for seed in seeds]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        regrets = dict(zip(cells, pool.map(regret, *zip(*cells, strict=True)), strict=True))
    print(describe())
    print("| contexts | " + " | ".join(LOG_RATIOS) + " |\n|---|" + "---|" * len(LOG_RATIOS))
    for scale in SCALES:
        values = [[regrets[p, scale, seed] for seed in seeds] for p in LOG_RATIOS]
        print(f"| {scale} | " + " | ".join(f"{np.mean(v):.0f} ± {np.std(v, ddof=1):.0f}" for v in values) + " |")


if __name__ == "__main__":
    main()
