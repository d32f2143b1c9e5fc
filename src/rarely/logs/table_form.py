"""A log as a table, and back: the form of CSV and Parquet files.

A table has one row a round and these columns; a cell is empty where no reward is in, or no arm was:

    round  version  arm  reward  propensity
    probability_k                k = 0 … K−1
    row_j                        j = 0 … r−1, where rows were recorded
    context_k_j                  j = 0 … d−1, of arm k

Numbers keep all their digits, so what is read back is what was written.
"""

from __future__ import annotations

import numpy as np

from rarely.core.types import Arrays, Decision
from rarely.logs.decision_log import DecisionLog
from rarely.logs.errors import InvalidLog

WHOLE = ("round", "version", "arm")


def columns_of(log: DecisionLog) -> Arrays:
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


def log_of(columns: Arrays) -> DecisionLog:
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
