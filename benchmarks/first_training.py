"""A policy made from a log: how many folds with both paths before the first choice, and how even folds are.

python benchmarks/first_training.py                                    # cosine and quadratic, 200, 400 and 1000 rows
python benchmarks/first_training.py --rows 300 --seeds 20 sklearn:breast_cancer
python benchmarks/first_training.py --evenness                         # the folds' counts at every period up to 400

Version 0 is trained on the rewards of random arms and plays 1000 fresh rounds without an update; regret per 1000
rounds. "s = 3 alone" is what version 0.1 did: one trial, of the path that comes first. Differences are paired by seed.
"""

from __future__ import annotations

import argparse
import os
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from rarely import BatchNeuralUCB, FixedGrid
from rarely.core.training import tuning
from rarely.core.training.tuning import FOLDS, SKIP_GRID, Tuning
from rarely.experiments.problems import find_problem

FIRST_SEED = 74_000
FRESH = 1000
WAYS = {"s = 3 alone": 1, "one fold": len(SKIP_GRID), "two folds": 2 * len(SKIP_GRID), "five folds": 5 * len(SKIP_GRID)}
"""Trials before the first choice."""


def regret(problem: str, rows: int, seed: int) -> float:
    """Of version 0 on fresh rounds."""
    world = find_problem(problem).world("standard", constant=True)
    rounds = world.rounds(seed=seed, count=min(rows + FRESH, world.horizon or rows + FRESH))
    log, fresh, each = rounds[:rows], rounds[rows:], np.arange(rows)
    arms = np.random.default_rng(seed).integers(world.arms, size=rows)
    policy = BatchNeuralUCB.from_log(
        log.contexts[each, arms],
        log.rewards[each, arms],
        schedule=FixedGrid(FRESH, 2),
        context_scale=world.context_scale,
        seed=seed,
    )
    return FRESH * float(fresh.regrets(policy.select(fresh.contexts).arm).mean())


def compare(problem: str, rows: int, seeds: range) -> None:
    regrets: dict[str, np.ndarray] = {}
    for way, trials in WAYS.items():
        tuning.MOST = trials
        Tuning.comparable = property(lambda self: False)  # type: ignore[method-assign, assignment]
        start = time.process_time()
        regrets[way] = np.array([regret(problem, rows, seed) for seed in seeds])
        seconds = (time.process_time() - start) / len(seeds)
        off = regrets[way] - regrets["s = 3 alone"]
        print(
            f"{problem}, {rows} rows, {way:11s}: {regrets[way].mean():6.1f}, {off.mean():+5.1f} ± "
            f"{off.std(ddof=1) / np.sqrt(len(seeds)):.1f}, {seconds:.2f} s each",
            flush=True,
        )


def evenness(periods: range, count: int) -> float:
    """The largest deviation of a fold's count over all periods and offsets, in binomial standard deviations."""
    worst = 0.0
    for period in periods:
        rows = np.arange(period)[:, None] + period * np.arange(count)
        for fold in range(FOLDS):
            held = Tuning(turn=len(SKIP_GRID) * fold).held_out(rows).sum(axis=1)
            worst = max(worst, float(np.abs(held - count / FOLDS).max()))
    return worst / float(np.sqrt(count / FOLDS * (1 - 1 / FOLDS)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", default=["cosine", "quadratic"])
    parser.add_argument("--rows", type=int, nargs="+", default=[200, 400, 1000])
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--evenness", action="store_true", help="of folds alone")
    asked = parser.parse_args()
    if asked.evenness:
        for count in (20, 50, 100, 500, 1000):
            print(f"{count} rows: {evenness(range(2, 401), count):.1f}", flush=True)
        return
    for problem in asked.problems:
        for rows in asked.rows:
            compare(problem, rows, range(asked.first_seed, asked.first_seed + asked.seeds))


if __name__ == "__main__":
    main()
