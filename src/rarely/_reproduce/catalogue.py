"""Every problem and configuration of the paper, as data, and the cells to play."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

from rarely._core.policies.options import PresetName
from rarely._reproduce.cells import Cell
from rarely._reproduce.config import PRESETS, Configuration, Kind, Problem
from rarely.worlds import DATASETS, Cosine, Quadratic
from rarely.worlds.synthetic import DEVIATION_READING


def growing(rounds: int) -> tuple[int, int]:
    """Return ⌈log₂ T⌉ and √T batches."""
    return math.ceil(math.log2(rounds)), round(math.sqrt(rounds))


GRID = (0.001, 0.01, 0.1, 1.0)
"""The paper's values of LinUCB's λ and β; it reports the best of the 16 pairs."""
FAIR = (1.0, 1.0)
"""LinUCB's λ and β fixed beforehand: the plain choice, made without a look at any result."""

_COSINE: dict[str, Any] = {
    "hidden": 200,
    "ridge": 0.01,
    "beta": 0.001,
    "step_size": 0.01,
    "log_ratios": (20, 40, 60),
    "base": "cosine",
}
_QUADRATIC: dict[str, Any] = {
    "hidden": 100,
    "ridge": 0.01,
    "beta": 0.01,
    "step_size": 0.005,
    "log_ratios": (20, 25, 30),
    "base": "quadratic",
}
_LENGTHS = (500, 1000, 2000, 4000, 8000)
_MUSHROOM: dict[str, Any] = {"batches": (40, 100, 250), "log_ratios": (20, 30, 40), "base": "mushroom"}
_MAGIC: dict[str, Any] = {"log_ratios": (50, 60, 70), "base": "magic"}
PROBLEMS = {
    problem.name: problem
    for problem in (
        Problem("cosine", Cosine(), **_COSINE),
        Problem("quadratic", Quadratic(), **_QUADRATIC),
        Problem("mushroom", DATASETS["mushroom"], **_MUSHROOM),
        Problem("magic", DATASETS["magic"], **_MAGIC),
        # Where the text can be read in two ways, the other way.
        Problem("cosine-sd", Cosine(noise=DEVIATION_READING), **_COSINE),
        Problem("quadratic-sd", Quadratic(noise=DEVIATION_READING), **_QUADRATIC),
        Problem("magic-m400", DATASETS["magic"], hidden=400, **_MAGIC),
        # The four once more, for their processor times where a GPU has played the runs.
        Problem("cosine-timed", Cosine(), **_COSINE, timed=True),
        Problem("quadratic-timed", Quadratic(), **_QUADRATIC, timed=True),
        Problem("mushroom-timed", DATASETS["mushroom"], **_MUSHROOM, timed=True),
        Problem("magic-timed", DATASETS["magic"], **_MAGIC, timed=True),
        # One problem at five lengths, with grids of log T and √T batches: how regret and versions grow with T.
        *(
            Problem(f"quadratic-T{t}", Quadratic(), **_QUADRATIC | {"base": ""}, rounds=t, batches=growing(t))
            for t in _LENGTHS
        ),
    )
}
PAPER = ("cosine", "quadratic", "mushroom", "magic")
"""The paper's four problems; the others are second readings of them, them timed, and one problem at five lengths."""
TIMED = tuple(f"{name}-timed" for name in PAPER)
SECOND_READINGS = ("cosine-sd", "quadratic-sd", "magic-m400")
GROWTH = tuple(f"quadratic-T{length}" for length in _LENGTHS)


def configurations(problem: Problem) -> Iterator[Configuration]:
    """Yield the paper's comparison on a problem and the library's default; with a length, without LinUCB."""
    if problem.rounds is not None:
        yield Configuration("neuralucb")
        yield from (Configuration("fixed", batches=b) for b in problem.batches)
        # Without a budget: how many versions there are is the question.
        yield from (Configuration("adaptive", batches=problem.rounds, log_ratio=q) for q in problem.log_ratios)
        yield Configuration("default", batches=problem.batches[-1])
        return
    kinds: tuple[Kind, ...] = ("linucb", "linucb-intercept")
    for kind, (ridge, beta) in itertools.product(kinds, [FAIR] if problem.timed else itertools.product(GRID, GRID)):
        yield Configuration(kind, ridge=ridge, beta=beta)
    yield Configuration("neuralucb")
    yield from (Configuration("fixed", batches=b) for b in problem.batches)
    yield from (Configuration("adaptive", batches=b, log_ratio=q) for b in problem.batches for q in problem.log_ratios)
    if not problem.timed:
        yield from (Configuration("default", batches=b) for b in problem.batches[:2])


def plan_cells(
    problems: Iterable[Problem],
    presets: Iterable[PresetName] = PRESETS,
    runs: int = 10,
    rounds: int = 2000,
    patterns: Sequence[str] = ("*",),
) -> list[Cell]:
    """Return every cell asked for, run by run, so that an interruption leaves whole runs.

    `patterns` picks configurations by name: `fixed-*`, say. A table has no more rounds than rows.
    """
    cells = dict[str, Cell]()
    for problem, seed, preset in itertools.product(problems, range(runs), presets):
        for configuration in configurations(problem):
            if configuration.part_of(preset) and any(fnmatchcase(configuration.id, pattern) for pattern in patterns):
                reading = problem.view(preset) if configuration.linear else preset
                count = problem.rounds or min(rounds, problem.horizon or rounds)
                cell = Cell(problem, reading, configuration, seed, count)
                cells.setdefault(cell.id, cell)
    return sorted(cells.values(), key=lambda cell: (cell.seed, -cell.work()))
