"""The made-up shop of docs/tutorials/own-log.md, its two pictures, and the tutorial played from top to bottom.

    python examples/own_log.py            # prints what the tutorial shows; its files in out/own-log
    python examples/own_log.py --images   # and puts the pictures where the tutorial has them

A visitor is a row of 6 numbers, an arm one of 4 pages, the reward the minutes that the visitor stays. The tutorial is
the only place where its code stands: `play` takes it from there.
"""

from __future__ import annotations

import contextlib
import csv
import io
import re
import shutil
import sys
from pathlib import Path
from statistics import NormalDist

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from rarely.pages.figures import STYLE

ROOT = Path(__file__).parents[1]
TUTORIAL = ROOT / "docs" / "tutorials" / "own-log.md"
FEATURES = ("age", "spent", "visits", "hour", "pace", "score")
PAGES = ("deals", "news", "search", "video")
NOISE = 0.5
BLUE, ORANGE = "#0072B2", "#D55E00"


def people(generator: np.random.Generator, count: int) -> np.ndarray:
    """Rows as a database gives them, (n, 6): every column on its own scale."""
    columns = (
        generator.integers(18, 80, count),
        generator.gamma(2.0, 30.0, count).round(2),
        generator.poisson(3.0, count),
        generator.integers(0, 24, count),
        generator.normal(0, 1, count).round(3),
        generator.normal(50, 10, count).round(1),
    )
    return np.column_stack(columns).astype(float)


def truth(rows: np.ndarray) -> np.ndarray:
    """Mean minutes on every page, (n, 4): not linear. No policy sees this."""
    age, spent, _, hour, pace, score = ((rows - [49, 60, 3, 11.5, 0, 50]) / [18, 42, 1.7, 6.9, 1, 10]).T
    return np.column_stack(
        [
            4.0 + 0.3 * pace,
            2.7 + 1.6 * np.abs(age),
            3.6 + 0.7 * spent * np.where(hour > 0, 1, -1),
            4.8 - 0.9 * np.abs(hour + 0.5 * score),
        ]
    )


def minutes(rows: np.ndarray, arms: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """What visitors do on the pages that they are shown, (n,)."""
    return truth(rows)[np.arange(len(rows)), arms] + NOISE * generator.normal(size=len(rows))


def write_example(path: str | Path, rounds: int = 3000) -> None:
    """A log of an old rule, which shows one page more often than the others, by the hour; one reward in 50 is lost."""
    generator = np.random.default_rng(0)
    rows = people(generator, rounds)
    favoured = (rows[:, 3] // 6).astype(int)
    chances = np.where(np.arange(4) == favoured[:, None], 0.4, 0.2)
    arms = (generator.random(rounds)[:, None] > chances.cumsum(axis=1)).sum(axis=1)
    rewards = minutes(rows, arms, generator)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*FEATURES, "arm", "probability", "reward"])
        for row, arm, chance, reward in zip(rows, arms, chances, rewards, strict=True):
            told = "" if generator.random() < 0.02 else round(reward, 3)
            writer.writerow([*(f"{value:g}" for value in row), PAGES[arm], chance[arm], told])


def draw_calibration(predicted: np.ndarray, came: np.ndarray, deviation: np.ndarray, path: str | Path) -> None:
    """Observed against predicted means by decile, and actual against nominal coverage."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7, 3.2))
        left, right = figure.subplots(1, 2)
        deciles = np.array_split(np.argsort(predicted), 10)
        at = [predicted[part].mean() for part in deciles]
        means = [came[part].mean() for part in deciles]
        halves = [1.96 * came[part].std(ddof=1) / np.sqrt(len(part)) for part in deciles]
        ends = min(at + means), max(at + means)
        left.plot(ends, ends, color="#999999", linewidth=1)
        left.errorbar(at, means, halves, fmt="o", markersize=4, color=BLUE, elinewidth=1)
        left.set(xlabel="predicted mean, by decile", ylabel="observed mean, 95 % intervals")
        levels = np.linspace(0.05, 0.99, 48)
        off = np.abs(came - predicted) / deviation
        actual = [np.mean(off <= NormalDist().inv_cdf((1 + level) / 2)) for level in levels]
        right.plot([0, 1], [0, 1], color="#999999", linewidth=1)
        right.plot(levels, actual, color=ORANGE)
        right.set(xlabel="nominal coverage", ylabel="actual coverage")
        figure.savefig(path, metadata={"Date": None})


def blocks_of(tutorial: str) -> list[tuple[str, str]]:
    """Every block of Python in a tutorial, and the output that is shown under it, if any."""
    return re.findall(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", tutorial, re.DOTALL)


def play(folder: Path, tutorial: Path = TUTORIAL) -> list[tuple[str, str]]:
    """Run all blocks of a tutorial in one namespace and in that folder: what each shows, and what it printed."""
    names: dict[str, object] = {}
    told = []
    with contextlib.chdir(folder):
        for code, shown in blocks_of(tutorial.read_text(encoding="utf-8")):
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(code, names)
            told.append((shown, printed.getvalue()))
    return told


def main() -> None:
    """Play the tutorial."""
    folder = ROOT / "out" / "own-log"
    folder.mkdir(parents=True, exist_ok=True)
    for _, printed in play(folder):
        print(printed, end="")
    if "--images" in sys.argv:
        shutil.copy(folder / "calibration.svg", ROOT / "docs" / "images" / "own-log-calibration.svg")


if __name__ == "__main__":
    main()
