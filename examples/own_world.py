"""A world of your own in the experiments: every configuration, side by side, with records and a report.

python examples/own_world.py out/waves       # writes out/waves/report.html in about a minute
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from rarely.runs.machine import cores
from rarely.worlds import World
from rarely_lab.engine.cell import LocalExecutor, run_cells
from rarely_lab.reproduce.catalogue import plan_cells
from rarely_lab.reproduce.config import Problem
from rarely_lab.reproduce.records import Store
from rarely_lab.reproduce.report.page import write_report


class Waves(World):
    """Rewards sin(3xᵀθ*), with θ* drawn once for each run."""

    arms, dim = 3, 2

    def secret(self, generator: np.random.Generator) -> np.ndarray:
        return generator.normal(size=2)

    def round(self, t: int, secret: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray, float]:
        contexts = generator.random((3, 2))
        return contexts, np.sin(3 * contexts @ secret), 0.1 * generator.normal()


def main(out: Path, rounds: int = 500, runs: int = 3) -> Path:
    """Play what has no record yet, and report on all of it."""
    problem = Problem("waves", Waves(), hidden=40, ridge=0.01, beta=0.01, batches=(5, 20), log_ratios=(5, 20))
    patterns = ["linucb-intercept-r1-b1", "neuralucb", "fixed-*", "adaptive-*"]
    cells = plan_cells([problem], ["practical"], runs, rounds, patterns)
    executor = LocalExecutor(cores())
    failures = run_cells(cells, Store(out), executor, finished=lambda result: print(result.id, flush=True))
    for failure in failures:
        print(failure.id, failure.error)
    return write_report(out)[0]


if __name__ == "__main__":
    print(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("out/waves")))
