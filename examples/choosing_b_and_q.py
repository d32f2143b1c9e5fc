"""The made-up clinic of docs/tutorials/choosing-b-and-q.md, and the tutorial played from top to bottom.

    python examples/choosing_b_and_q.py            # prints what the tutorial shows; its files in out/choosing-b-and-q
    python examples/choosing_b_and_q.py --images   # and puts the picture where the tutorial has it
    python examples/choosing_b_and_q.py --check    # what came of 8 and 32 batches in the clinic itself; minutes

A patient is a row of 3 numbers, an arm one of 3 doses, the reward the relief after a week. The tutorial is the only
place where its code stands: `play` of own_log.py takes it from there.
"""

from __future__ import annotations

import csv
import shutil
import sys
from pathlib import Path

import numpy as np
from own_log import ROOT, play

from rarely import ArmBlocks
from rarely.planning.frontier import improving
from rarely.planning.simulate import KINDS, Maker
from rarely.worlds import World

TUTORIAL = ROOT / "docs" / "tutorials" / "choosing-b-and-q.md"
DOSES = ("high", "low", "middle")
NOISE = 1.0


def patients(generator: np.random.Generator, count: int) -> np.ndarray:
    """Age, weight and a marker in the blood, (n, 3)."""
    columns = (
        generator.integers(18, 85, count),
        generator.normal(75, 14, count).round(1),
        generator.gamma(3.0, 2.0, count).round(2),
    )
    return np.column_stack(columns).astype(float)


def truth(rows: np.ndarray) -> np.ndarray:
    """Mean relief of every dose, (n, 3): each has its best marker, and the old bear less of it. No policy sees this."""
    age, weight, marker = ((rows - [51, 75, 6]) / [19, 14, 3.5]).T
    best = np.array([1.2, -0.8, 0.2])
    bent = 1.5 - 1.2 * np.abs(marker[:, None] + 0.3 * weight[:, None] - best)
    return bent - np.array([0.5, 0.0, 0.2]) * age[:, None]


class Clinic(World):
    """Patients to come, one a round."""

    def __init__(self, blocks: ArmBlocks) -> None:
        self.blocks, self.arms, self.dim, self.context_scale = blocks, len(DOSES), blocks.dim, blocks.scale

    def secret(self, generator: np.random.Generator) -> None:
        """Nothing: the same truth in every run."""

    def round(self, t: int, secret: None, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray, float]:
        """A patient, the mean relief of each dose, and the noise."""
        row = patients(generator, 1)
        return self.blocks(row)[0], truth(row)[0], NOISE * generator.normal()


def write_example(path: str | Path, rounds: int = 800) -> None:
    """A past trial in which doses were drawn by lot; one patient in 50 never reported."""
    generator = np.random.default_rng(0)
    rows = patients(generator, rounds)
    arms = generator.integers(len(DOSES), size=rounds)
    reports = truth(rows)[np.arange(rounds), arms] + NOISE * generator.normal(size=rounds)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["age", "weight", "marker", "dose", "chance", "relief"])
        for row, arm, report in zip(rows, arms, reports, strict=True):
            told = "" if generator.random() < 0.02 else round(report, 3)
            writer.writerow([*(f"{value:g}" for value in row), DOSES[arm], 0.3333, told])


def check(runs: int = 6, rounds: int = 2000) -> None:
    """What the tutorial planned, measured on the clinic's truth over the whole horizon: docs/decisions/0015 has it."""
    blocks = ArmBlocks.fit(patients(np.random.default_rng(0), 800), arms=len(DOSES))
    seeds, pilots = range(100, 100 + runs), range(200, 203)
    *_, came = improving(Clinic(blocks), Maker("default"), rounds, (8, 32), KINDS, tuple(seeds), tuple(pilots))
    for point in came.points:
        low, high = point.lost.low, point.lost.high
        print(
            f"{point.kind:9} {point.batches:2d}: {point.lost.value:.2f} ({low:.2f} to {high:.2f}) lost, used", end=" "
        )
        print(f"{point.used:.1f}" + (f", log q {point.log_ratio:g}" if point.log_ratio else ""))


def main() -> None:
    """Play the tutorial, or check it."""
    if "--check" in sys.argv:
        check()
        return
    folder = ROOT / "out" / "choosing-b-and-q"
    folder.mkdir(parents=True, exist_ok=True)
    for _, printed in play(folder, TUTORIAL):
        print(printed, end="")
    if "--images" in sys.argv:
        shutil.copy(folder / "plan" / "plan.svg", ROOT / "docs" / "images" / "choosing-b-and-q.svg")


if __name__ == "__main__":
    main()
