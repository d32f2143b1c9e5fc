"""How contexts are scaled, and what learning the scale on the way costs: the tables of docs/decisions/0005.

python benchmarks/scales.py            # cosine and quadratic, seeds 100 to 103, adaptive B = 100
python benchmarks/scales.py --units    # contexts in other units, and a column that becomes large; seeds 0 to 5
"""

from __future__ import annotations

import os
import sys

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # one process a core, one thread a process

from concurrent.futures import ProcessPoolExecutor

import numpy as np

from rarely import Affine, BatchNeuralUCB, DeterminantTrigger, FixedGrid
from rarely.bench.yardstick import describe
from rarely.core.inputs import scaling
from rarely.experiments.catalogue import PROBLEMS
from rarely.simulation.play import play
from rarely.worlds import World

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


class Columns(World):
    """cos(2xᵀθ) of five columns U[0, 1], in some unit; a sixth, irrelevant one is small, and large from round 60 on."""

    arms = 4

    def __init__(self, unit: float = 1.0, late: float | None = None) -> None:
        self.unit, self.late, self.dim = unit, late, 5 if late is None else 6

    def secret(self, generator):
        return generator.normal(size=5)

    def round(self, t, secret, generator):
        contexts = generator.random((4, self.dim))
        means = np.cos(2 * contexts[:, :5] @ secret)
        if self.late is not None:
            contexts[:, 5] *= 1e-3 if t < 60 else self.late
        return contexts * self.unit, means, 0.1 * generator.normal()


TRIGGER, GRID = DeterminantTrigger(600, 20, 40.0), FixedGrid(600, 12)
UNITS = {
    "DeterminantTrigger, contexts as they are": (Columns(), TRIGGER),
    "DeterminantTrigger, × 0.001": (Columns(1e-3), TRIGGER),
    "DeterminantTrigger, × 1000": (Columns(1e3), TRIGGER),
    "FixedGrid, the sixth column small throughout": (Columns(late=1e-3), GRID),
    "FixedGrid, the sixth column large from round 60 on": (Columns(late=1.0), GRID),
    "FixedGrid, the same, far numbers not cut": (Columns(late=1.0), GRID),
}


def units_regret(name: str, seed: int) -> tuple[float, int]:
    """Regret and updates of one run."""
    world, schedule = UNITS[name]
    scaling.FARTHEST = np.inf if "not cut" in name else 8.0
    policy = BatchNeuralUCB(world.dim, schedule, hidden=64, seed=seed)
    return float(play(policy, world.rounds(seed, 600)).regrets.sum()), len(policy.updates)


def units() -> None:
    """Print mean regrets and updates over seeds."""
    seeds = range(6)
    cells = [(name, seed) for name in UNITS for seed in seeds]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        runs = dict(zip(cells, pool.map(units_regret, *zip(*cells, strict=True)), strict=True))
    print(describe())
    for name in UNITS:
        regrets, updates = zip(*(runs[name, seed] for seed in seeds), strict=True)
        print(f"| {name} | {np.mean(regrets):.0f} | {np.mean(updates):.0f} updates |")


def main() -> None:
    """Print a table of mean regrets and their standard deviations over seeds."""
    if "--units" in sys.argv[1:]:
        units()
        return
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
