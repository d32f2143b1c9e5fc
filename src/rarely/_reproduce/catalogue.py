"""Every problem and configuration of the paper, as data; problems by name, and the cells to play."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rarely._core.errors import InvalidInput
from rarely._core.policies.options import PresetName
from rarely._reproduce.cells import Cell
from rarely._reproduce.config import PRESETS, Configuration, Kind, Problem
from rarely.logs.tables import finite_number, is_name_like
from rarely.worlds import DATASETS, Cosine, Quadratic, Table
from rarely.worlds.synthetic import DEVIATION_READING
from rarely.worlds.table import own_table, sklearn_table


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
MOST_CLASSES = 20
"""More classes than this, if all are numbers, are rather a quantity."""


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
    problems, cells = list(problems), dict[str, Cell]()
    for problem in problems:
        if any(other.name == problem.name and other != problem for other in problems):
            raise InvalidInput(f"two problems are called {problem.name}; rename one, or play them in two folders.")
    for problem, seed, preset in itertools.product(problems, range(runs), presets):
        for configuration in configurations(problem):
            if configuration.part_of(preset) and any(fnmatchcase(configuration.id, pattern) for pattern in patterns):
                reading = problem.view(preset) if configuration.linear else preset
                count = problem.rounds or min(rounds, problem.horizon or rounds)
                cell = Cell(problem, reading, configuration, seed, count)
                cells.setdefault(cell.id, cell)
    return sorted(cells.values(), key=lambda cell: (cell.seed, -cell.work()))


def find_problem(name: str, label: str | None = None, ignore: tuple[str, ...] = ()) -> Problem:
    """Return a problem by name: the paper's, a CSV file, or `sklearn:digits` and its like.

    >>> find_problem("magic-m400").hidden
    400
    """
    if name in PROBLEMS:
        return PROBLEMS[name]
    if name.startswith("sklearn:"):
        return Problem(name.replace(":", "-"), sklearn_table(name.removeprefix("sklearn:")))
    if name.endswith(".csv"):
        return Problem(Path(name).stem, own_table(name, label, ignore))
    raise InvalidInput(
        f"no problem is called {name!r}; there are {', '.join(PROBLEMS)}, any file.csv, and sklearn:NAME for a dataset "
        "that comes with scikit-learn."
    )


def doubts_about(table: Table) -> list[str]:
    """Return sentences on what looks like a mistake about the classes of a table.

    >>> doubts_about(Table.of([[1.0], [2.0], [3.0]], ["none", "some", "none"]))
    ["'none' is taken for a class; if it stands for an unknown class, drop its rows."]
    """
    doubts = []
    if words := [name for name in table.classes if is_name_like(name)]:
        doubts.append(f"{words[0]!r} is taken for a class; if it stands for an unknown class, drop its rows.")
    numbers = [finite_number(name) for name in table.classes]
    known = [number for number in numbers if number is not None]
    if len(known) == len(numbers):
        fraction = next((name for name, value in zip(table.classes, known, strict=True) if value % 1), None)
        if fraction is not None or len(known) > MOST_CLASSES:
            example = fraction or table.classes[0]
            doubts.append(
                f"the classes are {len(known)} numbers, such as {example}, and each is an arm; if they "
                "are a quantity, name another column with --label."
            )
    return doubts
