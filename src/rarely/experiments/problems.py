"""A problem by its name on the command line: the paper's, a CSV file, or a dataset of scikit-learn."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np

from rarely.core.errors import InvalidInput, RarelyError
from rarely.experiments.catalogue import PROBLEMS
from rarely.experiments.config import Problem
from rarely.logs.csv_lines import finite_number, is_word
from rarely.worlds import Table
from rarely.worlds.own_table import own_table

MANY_NUMBERS = 20
"""More whole numbers than this are rather a quantity than classes."""


def find_problem(name: str, label: str | None = None, ignore: tuple[str, ...] = ()) -> Problem:
    """A problem by name: the paper's, a CSV file, or `sklearn:digits` and its like.

    >>> find_problem("magic-m400").hidden
    400
    """
    if name in PROBLEMS:
        return PROBLEMS[name]
    if name.startswith("sklearn:"):
        return Problem(name.replace(":", "-"), _sklearn(name.removeprefix("sklearn:")))
    if name.endswith(".csv"):
        return Problem(Path(name).stem, own_table(name, label, ignore))
    raise InvalidInput(
        f"no problem is called {name!r}; there are {', '.join(PROBLEMS)}, any file.csv, and sklearn:NAME for a dataset "
        "that comes with scikit-learn."
    )


def doubts_about(table: Table) -> list[str]:
    """What looks like a mistake about the classes of a table.

    >>> doubts_about(Table.of([[1.0], [2.0], [3.0]], ["none", "some", "none"]))
    ["'none' is taken for a class; if it stands for an unknown class, drop its rows."]
    """
    doubts = []
    if words := [name for name in table.classes if is_word(name)]:
        doubts.append(f"{words[0]!r} is taken for a class; if it stands for an unknown class, drop its rows.")
    numbers = [finite_number(name) for name in table.classes]
    known = [number for number in numbers if number is not None]
    if len(known) == len(numbers):
        fraction = next((name for name, value in zip(table.classes, known, strict=True) if value % 1), None)
        if fraction is not None or len(known) > MANY_NUMBERS:
            example = fraction or table.classes[0]
            doubts.append(
                f"the classes are {len(known)} numbers, such as {example}, and each is an arm of its own; if they "
                "are a quantity, name another column with --label."
            )
    return doubts


@cache
def _sklearn(name: str) -> Table:
    try:
        datasets = import_module("sklearn.datasets")
    except ModuleNotFoundError as error:
        raise RarelyError("datasets of scikit-learn need it installed: pip install scikit-learn.") from error
    load = getattr(datasets, f"load_{name}", None)
    if load is None:
        raise InvalidInput(f"scikit-learn has no load_{name}; try digits, wine, breast_cancer or iris.")
    try:
        bunch = load()
    except TypeError as error:
        raise InvalidInput(f"load_{name} of scikit-learn is no dataset: it needs arguments.") from error
    if np.issubdtype(np.asarray(bunch.target).dtype, np.floating):
        raise InvalidInput(f"{name} is a regression: its targets are numbers, not classes to choose between.")
    return Table.from_bunch(bunch)
