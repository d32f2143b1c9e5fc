"""A log for other programs, and back: Open Bandit Pipeline's dictionary, CSV, Parquet.

A table has one row a round and these columns; a cell is empty where no reward is in, or no arm was:

    round  version  arm  reward  propensity
    probability_k                k = 0 … K−1
    row_j                        j = 0 … r−1, where rows were recorded
    context_k_j                  j = 0 … d−1, of arm k

Numbers keep all their digits, so what is read back is what was written.
"""

from __future__ import annotations

import csv
import os
from typing import Any

import numpy as np

from rarely.core.inputs.array_reader import read_real
from rarely.core.types import Arrays, Decision
from rarely.offpolicy.errors import InvalidLog, ParquetUnavailable
from rarely.offpolicy.log import DecisionLog

WHOLE = ("round", "version", "arm")


def bandit_feedback(log: DecisionLog, expected_reward: Any = None) -> dict[str, Any]:
    """The rounds whose rewards are in, as Open Bandit Pipeline's `bandit_feedback`.

    Its rounds are those of `log.observed`; make an `action_dist` of Open Bandit Pipeline on the same rounds.

    Parameters
    ----------
    log
        The decisions and their rewards.
    expected_reward
        (n, K) for each round of the log, if it is known.

    Returns
    -------
    dict
        `context` has (n, r) recorded rows or, without them, the arms' contexts side by side, (n, K·d), 0 where an arm
        is absent. `action_context` is one-hot, (K, K): here contexts belong to an arm in a round, there to an arm for
        ever. `position` is 0 everywhere, because one arm is shown. `pscore` (n,) and `pi_b` (n, K, 1) are the
        probabilities of the chosen arm and of every arm.

    Examples
    --------
    >>> from rarely import Uniform
    >>> log, policy = DecisionLog(), Uniform(dim=2, seed=0)
    >>> decision = policy.select([[1.0, 2.0], [3.0, 4.0]])
    >>> log.record([[1.0, 2.0], [3.0, 4.0]], decision, rows=[7.0])
    >>> log.observe(decision, 1.5)
    >>> feedback = bandit_feedback(log)
    >>> feedback["context"], feedback["action"], feedback["pscore"], feedback["pi_b"].shape
    (array([[7.]]), array([1]), array([0.5]), (1, 2, 1))
    """
    places = log.observed
    probabilities, rows = log.probabilities[places], log.rows
    n, arms = probabilities.shape
    if rows is None:
        rows = np.where(log.present[..., None], log.contexts, 0.0).reshape(len(log), -1)
    if expected_reward is not None:
        expected_reward = read_real(expected_reward, "expected_reward", InvalidLog)
        if expected_reward.shape != log.present.shape:
            raise InvalidLog(
                f"expected_reward must have shape {log.present.shape}, a number for each arm of each round of the log; "
                f"got {expected_reward.shape}."
            )
        expected_reward = expected_reward[places]
    return {
        "n_rounds": n,
        "n_actions": arms,
        "context": rows[places],
        "action_context": np.eye(arms, dtype=int),
        "action": log.arms[places],
        "position": np.zeros(n, int),
        "reward": log.rewards[places],
        "expected_reward": expected_reward,
        "pscore": log.propensities[places],
        "pi_b": probabilities[:, :, None],
    }


def write_csv(log: DecisionLog, path: str | os.PathLike[str]) -> None:
    """Write a log as a table; `read_csv` is the inverse.

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
    columns = _columns(log)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        # tolist gives Python's own floats, whose text has every digit.
        for row in zip(*(values.tolist() for values in columns.values()), strict=True):
            writer.writerow("" if value != value else value for value in row)


def read_csv(path: str | os.PathLike[str]) -> DecisionLog:
    """A log from a table that `write_csv` wrote, or another program with the same columns.

    >>> import tempfile
    >>> from rarely import Uniform
    >>> log, policy = DecisionLog(), Uniform(dim=1, seed=0)
    >>> log.record([[0.1], [3.0]], policy.select([[0.1], [3.0]]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_csv(log, folder + "/log.csv")
    ...     read_csv(folder + "/log.csv")
    <DecisionLog: 1 rounds, 1 rewards missing>
    """
    with open(path, newline="", encoding="utf-8") as file:
        header, *lines = list(csv.reader(file)) or [[]]
    cells: list[list[Any]] = [[] for _ in header]
    for number, line in enumerate(lines, 2):
        if len(line) != len(header):
            raise InvalidLog(f"line {number} of {os.fspath(path)} must have {len(header)} cells; it has {len(line)}.")
        for name, cell, column in zip(header, line, cells, strict=True):
            column.append(_number(cell, name, f"line {number} of {os.fspath(path)}"))
    kinds = (np.int64 if name in WHOLE else np.float64 for name in header)
    return _log({name: np.array(c, kind) for name, c, kind in zip(header, cells, kinds, strict=True)})


def write_parquet(log: DecisionLog, path: str | os.PathLike[str]) -> None:
    """The same table as Parquet, with nulls for empty cells; needs `pip install 'rarely[parquet]'`.

    >>> write_parquet(DecisionLog(), "log.parquet")  # doctest: +SKIP
    """
    arrow, parquet = _pyarrow()
    columns = {name: arrow.array(values, mask=values != values) for name, values in _columns(log).items()}
    parquet.write_table(arrow.table(columns), os.fspath(path))


def read_parquet(path: str | os.PathLike[str]) -> DecisionLog:
    """A log from what `write_parquet` wrote.

    >>> read_parquet("log.parquet")  # doctest: +SKIP
    """
    _, parquet = _pyarrow()
    table = parquet.read_table(os.fspath(path))
    return _log({name: table.column(name).to_numpy() for name in table.column_names})


def _columns(log: DecisionLog) -> Arrays:
    """The table, NaN where a cell is empty."""
    contexts = log.contexts
    whole = zip(WHOLE, (log.rounds, log.versions, log.arms), strict=True)
    columns: Arrays = {**dict(whole), "reward": log.rewards, "propensity": log.propensities}
    probabilities = np.where(log.present, log.probabilities, np.nan)
    columns |= {f"probability_{k}": probabilities[:, k] for k in range(probabilities.shape[1])}
    if log.rows is not None:
        columns |= {f"row_{j}": column for j, column in enumerate(log.rows.T)}
    return columns | {
        f"context_{k}_{j}": contexts[:, k, j] for k in range(contexts.shape[1]) for j in range(contexts.shape[2])
    }


def _log(columns: Arrays) -> DecisionLog:
    """The log of a table; every check of `record` and `observe` is made again."""
    count = {kind: sum(name.startswith(kind) for name in columns) for kind in ("probability_", "row_", "context_")}
    arms, width = count["probability_"], count["row_"]
    dim = count["context_"] // max(arms, 1)
    chances = [f"probability_{k}" for k in range(arms)]
    rows = [f"row_{j}" for j in range(width)]
    contexts = [f"context_{k}_{j}" for k in range(arms) for j in range(dim)]
    wanted = {*WHOLE, "reward", "propensity", *chances, *rows, *contexts}
    if wanted != set(columns):
        odd = sorted(wanted ^ set(columns))[0]
        raise InvalidLog(
            "a table must have the columns round, version, arm, reward, propensity, probability_k, row_j if any, and "
            f"context_k_j for every arm k; {odd} is {'missing' if odd in wanted else 'not one of them'}."
        )
    for name, values in columns.items():
        if values.dtype.kind not in ("iu" if name in WHOLE else "iuf"):
            kind = "whole numbers" if name in WHOLE else "numbers"
            raise InvalidLog(f"{name} must be a column of {kind}; got {values.dtype}.")
    log, rounds = DecisionLog(), columns["round"]
    if not len(rounds):
        return log
    probabilities = np.column_stack([columns[name] for name in chances])
    absent = np.isnan(probabilities)
    blank = np.where(absent, np.nan, 0.0)
    decision = Decision(columns["arm"], blank, blank, columns["version"], rounds, np.where(absent, 0.0, probabilities))
    given = np.column_stack([columns[name] for name in contexts]).reshape(len(rounds), arms, dim)
    log.record(given, decision, rows=np.column_stack([columns[name] for name in rows]) if width else None)
    if not np.array_equal(log.propensities, columns["propensity"]):
        raise InvalidLog("propensity must be the probability of the chosen arm in every row of a table.")
    told = ~np.isnan(columns["reward"])
    log.observe(rounds=rounds[told], rewards=columns["reward"][told])
    return log


def _number(cell: str, name: str, where: str) -> int | float:
    try:
        if name in WHOLE:
            return int(cell)
        return float(cell) if cell else np.nan
    except ValueError:
        kind = "a whole number" if name in WHOLE else "a number or empty"
        raise InvalidLog(f"{name} in {where} must be {kind}; got {cell!r}.") from None


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ParquetUnavailable(
            "Parquet needs pyarrow: pip install 'rarely[parquet]'. write_csv and read_csv need nothing."
        ) from None
    return pyarrow, pyarrow.parquet
