"""Which cells there are to play, and in which order."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from rarely.core.errors import InvalidInput
from rarely.core.policies.presets import PresetName
from rarely.experiments.catalogue import configurations
from rarely.experiments.config import PRESETS, Cell, Problem
from rarely.experiments.pace import cost


def plan_cells(
    problems: Iterable[Problem],
    presets: Iterable[PresetName] = PRESETS,
    runs: int = 10,
    rounds: int = 2000,
    patterns: Sequence[str] = ("*",),
) -> list[Cell]:
    """Every cell asked for, run by run, so that what is there after an interruption is whole runs.

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
    return sorted(cells.values(), key=lambda cell: (cell.seed, -cost(cell)))
