"""What a user asks for, as cells in the order of play, and about how long each takes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from functools import cache
from importlib import import_module
from pathlib import Path

from rarely.core.errors import InvalidInput, RarelyError
from rarely.core.policies.neural import Preset
from rarely.lab.catalogue import PROBLEMS, configurations
from rarely.lab.config import PRESETS, Cell, Problem
from rarely.worlds import Table, World


def find_problem(name: str, label: str | None = None) -> Problem:
    """A problem by name: the paper's, a CSV file, or `sklearn:digits` and its like.

    >>> find_problem("magic-m400").hidden
    400
    """
    if name in PROBLEMS:
        return PROBLEMS[name]
    if name.startswith("sklearn:"):
        return Problem(name.replace(":", "-"), _sklearn(name.removeprefix("sklearn:")))
    if name.endswith(".csv"):
        return Problem(Path(name).stem, _csv(name, label))
    raise InvalidInput(
        f"no problem is called {name!r}; there are {', '.join(PROBLEMS)}, any file.csv, and sklearn:NAME for a dataset "
        "that comes with scikit-learn."
    )


def plan_cells(
    problems: Iterable[Problem],
    presets: Iterable[Preset] = PRESETS,
    runs: int = 10,
    rounds: int = 2000,
    patterns: Sequence[str] = ("*",),
) -> list[Cell]:
    """Every cell asked for, run by run, so that what is there after an interruption is whole runs.

    `patterns` picks configurations by name: `fixed-*`, say. A table has no more rounds than rows.
    """
    cells: dict[str, Cell] = {}
    for problem, seed, preset in itertools.product(problems, range(runs), presets):
        for configuration in configurations(problem):
            if any(fnmatch(configuration.id, pattern) for pattern in patterns):
                reading = problem.view(preset) if configuration.linear else preset
                cell = Cell(problem, reading, configuration, seed, min(rounds, problem.horizon or rounds))
                cells.setdefault(cell.id, cell)
    return sorted(cells.values(), key=lambda cell: (cell.seed, -cost(cell)))


def cost(cell: Cell) -> float:
    """About how many seconds a cell takes, for its place in the queue and its share of the progress bar."""
    rounds, problem, configuration = cell.rounds, cell.problem, cell.configuration
    deciding = 0.5e-3 * rounds
    if configuration.linear:
        return deciding
    updates = min(configuration.batches or rounds, rounds)
    if cell.reading == "code":
        return 2 * deciding + updates * problem.steps * 6e-5
    width = 10 if isinstance(problem.source, World) else 40
    return 2 * deciding + 2 * updates * rounds * problem.hidden * width * problem.steps / 25e9


@cache
def _csv(path: str, label: str | None) -> Table:
    try:
        return Table.from_csv(path, int(label) if label is not None and label.lstrip("-").isdigit() else label)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}.") from error


@cache
def _sklearn(name: str) -> Table:
    try:
        datasets = import_module("sklearn.datasets")
    except ModuleNotFoundError as error:
        raise RarelyError("datasets of scikit-learn need it installed: pip install scikit-learn.") from error
    load = getattr(datasets, f"load_{name}", None)
    if load is None:
        raise InvalidInput(f"scikit-learn has no load_{name}; try digits, wine, breast_cancer or iris.")
    return Table.from_bunch(load())
