"""The table of README: means of published runs whose seeds no decision about the default policy used.

    python benchmarks/fresh_seeds.py                       # docs/records, seeds 30 to 99

Faults of the default were found and mended on seeds 0 to 29 of these worlds. Each cell is the mean total regret ± its
standard error, in preset `practical`; LinUCB has a constant in its contexts.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from rarely_lab.engine.record import read_packed
from rarely_lab.reproduce.catalogue import FAIR, PAPER, PROBLEMS
from rarely_lab.reproduce.config import Configuration
from rarely_lab.reproduce.records import Record


def cell(regrets: list[float]) -> str:
    """Return the mean ± its standard error."""
    return f"{statistics.mean(regrets):.1f} ± {statistics.stdev(regrets) / len(regrets) ** 0.5:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="?", type=Path, default=Path(__file__).parents[1] / "docs" / "records")
    parser.add_argument("--seeds", type=int, nargs=2, metavar=("FIRST", "LAST"), default=(30, 99))
    asked = parser.parse_args()
    runs: dict[tuple[str, Configuration], list[float]] = {}
    for record in read_packed(asked.records, Record).records:
        views = ("practical", PROBLEMS[record.problem].view("practical"))
        fresh = asked.seeds[0] <= record.seed <= asked.seeds[1]
        if fresh and record.problem in PAPER and record.reading in views:
            runs.setdefault((record.problem, record.configuration), []).append(record.regret)
    print(
        "| problem | LinUCB, λ = β = 1 | LinUCB, best of 16 | NeuralUCB | default, B = 40 | default, B = 100 | runs |"
    )
    print("|---|---|---|---|---|---|---|")
    for problem in PAPER:
        mine = {configuration: found for (name, configuration), found in runs.items() if name == problem}
        linear = {c: found for c, found in mine.items() if c.kind == "linucb-intercept"}
        best = min(linear.values(), key=statistics.mean)
        fair = linear[Configuration("linucb-intercept", ridge=FAIR[0], beta=FAIR[1])]
        default = [mine[Configuration("default", batches=b)] for b in PROBLEMS[problem].batches[:2]]
        shown = [fair, best, mine[Configuration("neuralucb")], *default]
        print(f"| {problem} | {' | '.join(map(cell, shown))} | {len(fair)} |")


if __name__ == "__main__":
    main()
