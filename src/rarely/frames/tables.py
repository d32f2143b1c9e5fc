"""Tables of any library as named columns, without importing the library.

    a frame      of pandas, polars or pyarrow, a dict of columns, or a list of dicts, one for each row
    one row      a dict, or a row of a pandas frame (`frame.iloc[0]`)

A column of numbers, booleans or dates is a NumPy array where its library has one, and every other column is a list. A
gap is None, NaN, NaT or pandas' NA; the text "" is not a gap.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Sized
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rarely._core.errors import InvalidContexts, InvalidInput, shown

Values = NDArray[Any] | list[Any]


class Table(NamedTuple):
    """A table by its columns."""

    columns: dict[str, Values]
    rows: int
    single: bool
    """Whether one row came without a table around it."""


def is_gap(value: Any) -> bool:
    """Return whether a value stands for one that is not known.

    >>> [is_gap(value) for value in (None, float("nan"), np.datetime64("NaT"), "", 0)]
    [True, True, True, False, False]
    """
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, Decimal):  # a signalling NaN refuses to be compared
        return value.is_nan()
    return isinstance(value, float | np.generic) and bool(value != value)


def read_table(table: Any, what: str, error: type[InvalidInput] = InvalidContexts) -> Table:
    """Return a table, or one row, by its columns; `what` is its name in errors, which are of the type `error`.

    >>> read_table([{"age": 30, "town": "Ulm"}, {"age": 41}], "users").columns
    {'age': [30, 41], 'town': ['Ulm', None]}
    """
    single = _is_row(table)
    names, columns = _row(table) if single else _columns(table)
    if names is None:
        raise error(
            f"{what} must be a frame of pandas, polars or pyarrow, a dict of columns, a list of dicts, or one row as a "
            f"dict; got {shown(table)}."
        )
    check_distinct(names, what, error)
    found = {
        name: _values(column, f"{what}: column {name}", error) for name, column in zip(names, columns, strict=True)
    }
    lengths = {*map(len, found.values())}
    if len(lengths) != 1:
        sizes = ", ".join(f"{name} has {len(values)}" for name, values in found.items()) or "there are none"
        raise error(f"the columns of {what} must have equally many rows; {sizes}.")
    return Table(found, lengths.pop(), single)


def check_distinct(names: Sequence[str], what: str, error: type[InvalidInput]) -> None:
    """Refuse a table in which two columns have the same name."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise error(f"the columns of {what} must have different names; {twice!r} occurs more than once.")


def _is_row(table: Any) -> bool:
    if isinstance(table, Mapping):
        return not any(isinstance(value, Sized) and not isinstance(value, str | bytes) for value in table.values())
    return hasattr(type(table), "tolist") and hasattr(type(table), "iloc")  # a Series of pandas


def _row(row: Any) -> tuple[list[str], list[Any]]:
    named = row if isinstance(row, Mapping) else dict(zip(row.index.tolist(), row.tolist(), strict=True))
    return [str(name) for name in named], [[value] for value in named.values()]


def _columns(table: Any) -> tuple[list[str] | None, Sequence[Any]]:
    """Return names and columns; None and nothing of what is not a table."""
    kind = type(table)  # a frame looks for an attribute that it lacks for longer than a decision takes
    if isinstance(table, list | tuple) and table and all(isinstance(row, Mapping) for row in table):
        keys = list(dict.fromkeys(key for row in table for key in row))
        table = {key: [row.get(key) for row in table] for key in keys}
    elif hasattr(kind, "to_pydict"):  # pyarrow, whose columns may have the same name
        return table.column_names, list(table.columns)
    elif hasattr(kind, "get_columns"):  # polars
        table = table.to_dict(as_series=False)
    elif hasattr(kind, "columns") and hasattr(kind, "items"):  # pandas
        names, dtypes = [str(name) for name in table.columns], {*table.dtypes} if hasattr(kind, "dtypes") else {None}
        if len(dtypes) == 1 and isinstance(dtype := dtypes.pop(), np.dtype) and dtype.kind in "fiu":
            return names, list(table.to_numpy().T)  # in a tenth of the time that its columns take one by one
        return names, [column for _, column in table.items()]
    if isinstance(table, Mapping):
        return [str(name) for name in table], list(table.values())
    return None, ()


def _values(column: Any, what: str, error: type[InvalidInput]) -> Values:
    found = column if type(column) in (np.ndarray, list) else _converted(column)
    if isinstance(found, np.ndarray) and found.ndim == 1:
        return found if found.dtype.kind in "fiubMm" else found.tolist()
    if not isinstance(found, list):
        raise error(f"{what} must hold one value for each row, in a list or an array; got {shown(column)}.")
    return found


def _converted(column: Any) -> Any:
    """Return the values of a column of pandas, polars or pyarrow, or of any sequence."""
    if hasattr(type(column), "to_pylist"):  # pyarrow
        return column.to_numpy() if str(column.type) in ("double", "float", "int64") else column.to_pylist()
    column = getattr(column, "array", column)  # a Series of pandas
    kind, name = type(column), str(getattr(column, "dtype", ""))
    if hasattr(kind, "codes"):  # `tolist` of pandas' categories takes ten times as long; the code of a gap is −1
        names = [*column.categories.tolist(), None]
        return [names[code] for code in column.codes.tolist()]
    if hasattr(kind, "isna") and re.fullmatch(r"(float|double)\d*(\[pyarrow\])?", name, re.IGNORECASE):
        return column.to_numpy(dtype=float, na_value=np.nan)
    if re.fullmatch(r"datetime64\[\w+\]", name):
        return np.asarray(column)
    method = next((name for name in ("to_list", "tolist") if hasattr(kind, name)), None)
    return list(column) if method is None else getattr(column, method)()
