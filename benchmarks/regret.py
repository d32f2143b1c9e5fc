"""Total regret on the paper's four problems, preset practical, T = 2000: the table of docs/benchmarks.md.

    python benchmarks/regret.py --seeds 4                    # all; about 15 minutes on 2 cores
    python benchmarks/regret.py cosine --seeds 2 --quick     # one problem, without sequential NeuralUCB

Mushroom and MAGIC need RARELY_DATA, a folder with mushroom/agaricus-lepiota.data and magic/magic04.data.
Their rows are standardised over the whole file and placed in blocks of the arms; contexts of cosine and
quadratic are scaled by what the policy saw until its first update.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # one process a core, one thread a process

import argparse
import itertools
import json
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from machine import describe
from play import play
from problems import Problem, cosine, have_tables, magic, mushroom, quadratic, table
from rarely import Affine, ArmBlocks, BatchNeuralUCB, DeterminantTrigger, FixedGrid, LinUCB, NeuralUCB, Policy

RATIOS = {"cosine": (20, 40, 60), "quadratic": (20, 25, 30), "mushroom": (20, 30, 40), "magic": (50, 60, 70)}
PAIRS = list(itertools.product((0.001, 0.01, 0.1, 1.0), repeat=2))


@cache
def rows_and_blocks(name: str) -> tuple[np.ndarray, np.ndarray, ArmBlocks]:
    rows, labels = mushroom() if name == "mushroom" else magic()
    return rows, labels, ArmBlocks.fit(rows, arms=2)


def problem(name: str, seed: int) -> tuple[Problem, Affine | None]:
    """A problem, and the scale that its contexts already have, if so."""
    if name in ("cosine", "quadratic"):
        return (cosine if name == "cosine" else quadratic)(seed), None
    rows, labels, blocks = rows_and_blocks(name)
    picked, means = table(rows, labels, seed, 2000)
    return Problem(blocks(picked), means, np.zeros(2000), 100, 0.001, 0.001), blocks.scale


def configurations(name: str, quick: bool) -> Iterator[str]:
    yield from (f"linucb {ridge} {beta}" for ridge, beta in PAIRS)
    yield from (f"fixed {batches}" for batches in (40, 100, 200))
    yield from (f"adaptive {batches} {ratio}" for batches in (40, 100) for ratio in RATIOS[name])
    if name in ("cosine", "quadratic"):
        yield f"known-scale 100 {RATIOS[name][1]}"
    if not quick:
        yield "neuralucb"


def policy_for(config: str, game: Problem, scale: Affine | None, seed: int) -> Policy:
    kind, *numbers = config.split()
    dim = game.contexts.shape[2]
    knobs: dict[str, Any] = {"hidden": game.hidden, "ridge": game.ridge, "beta": game.beta, "seed": seed}
    knobs["context_scale"] = scale
    if kind == "linucb":
        return LinUCB(dim, intercept=scale is None, ridge=float(numbers[0]), beta=float(numbers[1]))
    if kind == "fixed":
        return BatchNeuralUCB(dim, FixedGrid(2000, int(numbers[0])), **knobs)
    if kind == "neuralucb":
        return NeuralUCB(dim, **knobs)
    if kind == "known-scale":  # the moments of U[0, 1]
        spread = np.full(dim, np.sqrt(dim / 12))
        knobs["context_scale"] = Affine(np.full(dim, 0.5), spread)
    return BatchNeuralUCB(dim, DeterminantTrigger(2000, int(numbers[0]), float(numbers[1])), **knobs)


def run(name: str, config: str, seed: int) -> dict[str, Any]:
    game, scale = problem(name, seed)
    policy = policy_for(config, game, scale, seed)
    start = time.perf_counter()
    regret = float(play(policy, game).sum())
    return {
        "problem": name,
        "config": config,
        "seed": seed,
        "regret": regret,
        "versions": policy.version + 1,
        "log_det": policy.log_det,
        "seconds": time.perf_counter() - start,
    }


def summary(name: str, results: list[dict[str, Any]]) -> str:
    """One row of the table: means over seeds."""

    def mean(config: str, key: str = "regret") -> float:
        values = [r[key] for r in results if r["problem"] == name and r["config"] == config]
        return float(np.mean(values)) if values else np.nan

    def cells(configs: list[str]) -> str:
        return " / ".join(f"{mean(c):.0f}" for c in configs)

    ratios = RATIOS[name]
    linear = min((mean(f"linucb {r} {b}"), r, b) for r, b in PAIRS)
    known = mean(f"known-scale 100 {ratios[1]}")
    columns = [
        f"{name}, log q {'/'.join(map(str, ratios))}",
        f"{linear[0]:.0f} (λ {linear[1]:g}, β {linear[2]:g})",
        cells(["neuralucb"]),
        cells([f"fixed {b}" for b in (40, 100, 200)]),
        cells([f"adaptive 40 {q}" for q in ratios]),
        cells([f"adaptive 100 {q}" for q in ratios]),
        " / ".join(f"{mean(f'adaptive 100 {q}', 'versions'):.0f}" for q in ratios),
        "—" if np.isnan(known) else f"{known:.0f}",
    ]
    return "| " + " | ".join(columns) + " |"


def main() -> None:
    """Run what was asked for in as many processes as there are cores, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", metavar="PROBLEM", help=", ".join(RATIOS))
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--quick", action="store_true", help="leave sequential NeuralUCB out")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, help="a JSON file for every run's figures")
    args = parser.parse_args()
    if unknown := set(args.problems) - set(RATIOS):
        parser.error(f"no problem is called {', '.join(sorted(unknown))}; there are {', '.join(RATIOS)}")
    names = args.problems or [n for n in RATIOS if have_tables() or n in ("cosine", "quadratic")]
    if not args.problems and len(names) < len(RATIOS):
        print("RARELY_DATA is not set: Mushroom and MAGIC are left out")
    cells = [
        (name, config, seed)
        for name in names
        for config in configurations(name, args.quick)
        for seed in range(1 if config == "neuralucb" else args.seeds)
    ]
    cells.sort(key=lambda cell: cell[1] != "neuralucb")  # the longest first
    results: list[dict[str, Any]] = []
    with ProcessPoolExecutor(args.jobs) as pool:
        for future in as_completed([pool.submit(run, *cell) for cell in cells]):
            results.append(future.result())
            print(f"\r{len(results)} of {len(cells)} runs", end="" if len(results) < len(cells) else "\n", flush=True)
    if args.out:
        args.out.write_text(json.dumps({"machine": describe(), "runs": results}, indent=1))
    print(describe())
    print(
        "| problem | LinUCB, best pair | NeuralUCB, 1 seed | fixed 40 / 100 / 200 | adaptive B = 40 "
        "| adaptive B = 100 | its versions | middle log q, scale known |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name in names:
        print(summary(name, results))


if __name__ == "__main__":
    main()
