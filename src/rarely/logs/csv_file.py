"""A log in a CSV file."""

from __future__ import annotations

import csv
import os
from typing import Any

import numpy as np

from rarely.logs.csv_lines import is_missing, read_lines
from rarely.logs.decision_log import DecisionLog
from rarely.logs.errors import InvalidLog
from rarely.logs.table_form import WHOLE, columns_of, log_of


def write_csv(log: DecisionLog, path: str | os.PathLike[str]) -> None:
    """Write a log as a table; `read_csv` is the inverse.

    Parameters
    ----------
    log
        The log.
    path
        Where to write it; a file that is there is replaced.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from rarely import Uniform
    >>> log, policy = DecisionLog(), Uniform(dim=1, seed=0)
    >>> log.record([[0.1], [3.0]], policy.select([[0.1], [3.0]]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_csv(log, folder + "/log.csv")
    ...     print(pathlib.Path(folder, "log.csv").read_text())
    round,version,arm,reward,propensity,probability_0,probability_1,context_0_0,context_1_0
    1,0,1,,0.5,0.5,0.5,0.1,3.0
    <BLANKLINE>
    """
    columns = columns_of(log)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        # tolist gives Python's own floats, whose text has every digit.
        for row in zip(*(values.tolist() for values in columns.values()), strict=True):
            writer.writerow("" if value != value else value for value in row)


def read_csv(path: str | os.PathLike[str]) -> DecisionLog:
    """A log from a table that `write_csv` wrote, or another program with the same columns.

    Parameters
    ----------
    path
        The file.

    Examples
    --------
    >>> import tempfile
    >>> from rarely import Uniform
    >>> log, policy = DecisionLog(), Uniform(dim=1, seed=0)
    >>> log.record([[0.1], [3.0]], policy.select([[0.1], [3.0]]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_csv(log, folder + "/log.csv")
    ...     read_csv(folder + "/log.csv")
    <DecisionLog: 1 rounds, 1 rewards missing>
    """
    lines = read_lines(path, InvalidLog)
    _, header = next(lines, (0, []))
    cells: list[list[Any]] = [[] for _ in header]
    for number, line in lines:
        for name, cell, column in zip(header, line, cells, strict=True):
            column.append(_number(cell, name, f"line {number} of {os.fspath(path)}"))
    kinds = (np.int64 if name in WHOLE else np.float64 for name in header)
    return log_of({name: np.array(c, kind) for name, c, kind in zip(header, cells, kinds, strict=True)})


def _number(cell: str, name: str, where: str) -> int | float:
    try:
        if name in WHOLE:
            return int(cell)
        return np.nan if is_missing(cell) else float(cell)
    except ValueError:
        kind = "a whole number" if name in WHOLE else "a number or empty"
        raise InvalidLog(f"{name} in {where} must be {kind}; got {cell!r}.") from None
