"""A log in a Parquet file, where pyarrow is installed."""

from __future__ import annotations

import os
from typing import Any

from rarely.logs.decision_log import DecisionLog
from rarely.logs.errors import ParquetUnavailable
from rarely.logs.table_form import columns_of, log_of


def write_parquet(log: DecisionLog, path: str | os.PathLike[str]) -> None:
    """The same table as Parquet, with nulls for empty cells; needs `pip install 'rarely[parquet]'`.

    Parameters
    ----------
    log
        The log.
    path
        Where to write it; a file that is there is replaced.

    Examples
    --------
    >>> write_parquet(DecisionLog(), "log.parquet")  # doctest: +SKIP
    """
    arrow, parquet = _pyarrow()
    columns = {name: arrow.array(values, mask=values != values) for name, values in columns_of(log).items()}
    parquet.write_table(arrow.table(columns), os.fspath(path))


def read_parquet(path: str | os.PathLike[str]) -> DecisionLog:
    """A log from what `write_parquet` wrote.

    Parameters
    ----------
    path
        The file.

    Examples
    --------
    >>> read_parquet("log.parquet")  # doctest: +SKIP
    """
    _, parquet = _pyarrow()
    table = parquet.read_table(os.fspath(path))
    return log_of({name: table.column(name).to_numpy() for name in table.column_names})


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ParquetUnavailable(
            "Parquet needs pyarrow: pip install 'rarely[parquet]'. write_csv and read_csv need nothing."
        ) from None
    return pyarrow, pyarrow.parquet
