"""A problem by its name on the command line: the paper's, a CSV file, or a dataset of scikit-learn."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np

from rarely.core.errors import InvalidInput, RarelyError
from rarely.experiments.catalogue import PROBLEMS
from rarely.experiments.config import Problem
from rarely.logs.csv_lines import MISSING
from rarely.worlds import Table

MOST_CLASSES = 100


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


@cache
def _csv(path: str, label: str | None) -> Table:
    try:
        table = Table.from_csv(path, int(label) if label is not None and label.lstrip("-").isdigit() else label)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}.") from error
    if gaps := [name for name in table.classes if name.lower() in MISSING]:
        raise InvalidInput(f"{path}: some rows have {gaps[0]!r} for their class; drop them, or name the class.")
    if len(table.classes) > MOST_CLASSES:
        raise InvalidInput(
            f"{path}: the label has {len(table.classes)} classes, and each would be an arm; at most {MOST_CLASSES} are "
            "played. Is it the right column? --label names another."
        )
    return table


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
