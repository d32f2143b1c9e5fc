"""Tables as anybody has them: one door for CSV files, Parquet files and frames, and their columns by role.

    CSV       text, read line by line: of a long file nothing is kept but 8 bytes for each entry that is wanted
    Parquet   where pyarrow is installed
    frames    of pandas, polars or pyarrow, a dict of columns, and whatever gives an Arrow stream

A field is text in a CSV file and a Python value elsewhere; the functions of this module take both. Errors name the
table, and the line (of a file) or the row (of a frame, from 0 on) that is wrong.
"""

from __future__ import annotations

import csv
import difflib
import math
import os
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rarely._core.errors import InvalidInput, RarelyError, shown
from rarely._core.saving.files import path_of
from rarely._core.types import Array, IntArray

MISSING = {"", "?", "na", "n/a", "nan", "null", "none"}
"""Fields that stand for a value that is not known."""
NAME_LIKE = {"none", "na", "n/a", "null"}
"""Those of them that may as well be the name of an arm or a class."""
SUSPICIOUS = {"reward", "rewards", "arm", "action", "propensity", "pscore", "prob", "probability"} | {
    *("propensities", "probs", "probabilities", "id", "uuid", "index", "time", "timestamp", "date", "label")
}
"""Words in a column's name that seldom describe a context."""
FEW_ROWS, MANY_TIMES = 3, 10
"""The most rows of an arm that may be a misspelling, and how many times as many the median arm then has at least."""
MAX_NAMED = 5
"""Arms that a remark names."""

Role = Literal["arm", "reward", "probability", "round"]
CODED: tuple[Role, ...] = ("arm", "round")
"""Roles whose entries are names; the entries of the others are numbers."""


class InvalidLog(InvalidInput):
    """A decision or a table that does not fit a log, or a log without what a call needs."""


class ParquetUnavailable(RarelyError, ImportError):
    """Parquet was asked for, and pyarrow is not installed."""


# --- fields


def is_missing(field: Any) -> bool:
    """Return whether a field stands for an unknown value."""
    return field.strip().lower() in MISSING if isinstance(field, str) else field is None or field != field


def is_name_like(field: Any) -> bool:
    """Return whether a field stands for an unknown value but could also be a name, as `None` could."""
    return isinstance(field, str) and field.strip().lower() in NAME_LIKE


def finite_number(field: Any) -> float | None:
    """Return the number in a field, or None if it holds no finite one."""
    try:
        value = float(field)
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None


def _name(field: Any) -> str:
    """Return a field as a name; frames turn whole numbers into floats where a column has gaps."""
    return str(int(field)) if isinstance(field, float) and field.is_integer() else str(field)


# --- tables


def read_lines(
    path: str | os.PathLike[str], error: type[InvalidInput], delimiter: str = ","
) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of each line of a CSV file that is not empty, and its fields without the space around them.

    All lines have as many fields as the first. What cannot be read is raised as `error`.
    """
    name = path_of(path)
    width = None
    try:
        # utf-8-sig: spreadsheets put a byte order mark in front of the first name.
        with open(name, newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, delimiter=delimiter)
            for line in reader:
                if not line:
                    continue
                width = width or len(line)
                if len(line) != width:
                    raise error(f"{name}, line {reader.line_num}: {width} fields are expected; got {len(line)}.")
                yield reader.line_num, [field.strip() for field in line]
    except (UnicodeDecodeError, csv.Error) as reason:
        raise error(f"{name} is not a CSV file in UTF-8: {reason}.") from reason
    except OSError as reason:
        raise error(f"{name} cannot be read: {reason.strerror}.") from reason


@dataclass(frozen=True)
class NamedRows:
    """The rows of a table whose columns have names; `lines` can be read once."""

    name: str
    """What errors call the table."""
    header: list[str]
    lines: Iterator[tuple[int, Sequence[Any]]]
    """The number of each row and its fields."""
    unit: Literal["line", "row"]
    """What the numbers count."""


def open_csv(path: str | os.PathLike[str]) -> NamedRows:
    """Open a CSV file whose first line names its columns."""
    lines = read_lines(path, InvalidLog)
    _, header = next(lines, (0, []))
    return NamedRows(os.fspath(path), header, lines, "line")


def open_parquet(path: str | os.PathLike[str]) -> NamedRows:
    """Open a Parquet file; raise ParquetUnavailable without pyarrow."""
    name, (_, parquet) = path_of(path), import_pyarrow()
    return _open_frame(parquet.read_table(name), name)


def open_table(source: Any) -> NamedRows:
    """Open a frame, or a file by its path: Parquet if its name ends so, CSV otherwise."""
    if not isinstance(source, str | os.PathLike):
        return _open_frame(source, "the frame")
    return open_parquet(source) if os.fspath(source).endswith(".parquet") else open_csv(source)


def _open_frame(frame: Any, name: str) -> NamedRows:
    if not isinstance(frame, Mapping) and not hasattr(frame, "columns"):
        if not hasattr(frame, "__arrow_c_stream__"):
            raise InvalidLog(
                "a frame must be of pandas, polars or pyarrow, a dict of columns, or the path of a file; got "
                f"{type(frame).__name__}."
            )
        frame = import_pyarrow()[0].table(frame)
    names = list(getattr(frame, "column_names", frame if isinstance(frame, Mapping) else frame.columns))
    _check_distinct(name, names)
    columns = [_values(frame[each], f"{name}: column {each}") for each in names]
    if len({len(column) for column in columns}) > 1:
        sizes = ", ".join(f"{each} has {len(column)}" for each, column in zip(names, columns, strict=True))
        raise InvalidLog(f"{name}: all columns must have as many rows; {sizes}.")
    return NamedRows(name, [str(each) for each in names], enumerate(zip(*columns, strict=True)), "row")


def _check_distinct(name: str, header: Sequence[Any]) -> None:
    if len(set(header)) < len(header):
        twice = next(each for each in header if header.count(each) > 1)
        raise InvalidLog(f"{name}: the columns' names must differ; {twice!r} occurs more than once.")


def _values(column: Any, what: str) -> list[Any]:
    """Return a column as Python values, None for what its library calls NA."""
    values = column
    for method in ("to_pylist", "to_list", "tolist"):  # of pyarrow, of pandas and polars, of NumPy
        if hasattr(column, method):
            values = getattr(column, method)()
            break
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidLog(f"{what} must be a list or an array, one value a row; got {shown(column)}.")
    return [None if type(value).__name__ in ("NAType", "NaTType") else value for value in values]


def import_pyarrow() -> tuple[Any, Any]:
    """Return pyarrow and its Parquet module."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ParquetUnavailable(
            "Parquet needs pyarrow: pip install 'rarely[parquet]'. write_csv and read_csv need nothing."
        ) from None
    return pyarrow, pyarrow.parquet


# --- columns by role


@dataclass(frozen=True)
class Coded:
    """Names as codes 0, 1, … into `values`, in the order in which they first appear."""

    values: tuple[str, ...]
    codes: IntArray

    def sorted(self) -> Coded:
        """Return the same with values in order: by number if all are whole numbers, else by alphabet."""
        whole = all(re.fullmatch(r"[+-]?\d+", value) for value in self.values)
        order = sorted(range(len(self.values)), key=lambda i: (int(self.values[i]) if whole else 0, self.values[i]))
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        return Coded(tuple(self.values[i] for i in order), place[self.codes])


def remarks_on_arms(column: str, arms: Coded) -> Iterator[str]:
    """Say which arms may be a missing entry, another arm in another spelling, or a misspelling.

    >>> list(remarks_on_arms("page", Coded(("news", "nwes"), np.array([0] * 30 + [1]))))[0][:60]
    "Few rows have these arms of column page, 'nwes' (1; 'news'?)"
    """
    for name in filter(is_name_like, arms.values):
        yield f"{name!r} in column {column} is taken for an arm; drop its rows if it means that no arm is known."
    spelled: dict[Any, str] = {}
    alike = set()
    for name in arms.values:
        number = finite_number(name)
        first = spelled.setdefault(
            " ".join(re.split(r"[\s_-]+", name.strip().lower())) if number is None else number, name
        )
        if first != name:
            alike |= {first, name}
            yield f"{first!r} and {name!r} in column {column} are two arms; correct their rows if they should be one."
    counts = np.bincount(arms.codes, minlength=len(arms.values))
    rare = np.flatnonzero((counts <= FEW_ROWS) & (MANY_TIMES * counts <= np.median(counts)))
    rare = rare[[arms.values[i] not in alike for i in rare]]
    if len(rare):
        common = [arms.values[i] for i in np.flatnonzero(MANY_TIMES * counts > np.median(counts))]
        close = [difflib.get_close_matches(arms.values[i], common, 1) for i in rare[:MAX_NAMED]]
        named = ", ".join(
            f"{arms.values[i]!r} ({counts[i]}{f'; {match[0]!r}?' if match else ''})"
            for i, match in zip(rare, close, strict=False)
        )
        more = f" and {len(rare) - MAX_NAMED} more" if len(rare) > MAX_NAMED else ""
        yield (
            f"Few rows have these arms of column {column}, {named}{more}, and each counts as one of the "
            f"{len(counts)} arms; correct or drop the rows if it is misspelt."
        )


def may_be_propensity(column: Array, arms: IntArray) -> bool:
    """Return whether a column may be the probability p of the chosen arm: 1/p averages 1 over the rounds, for each arm.

    >>> arms = np.array([0, 0, 0, 1] * 25)
    >>> may_be_propensity(np.array([0.75, 0.25])[arms], arms), may_be_propensity(np.full(100, 0.25), arms)
    (True, False)
    """
    if not ((column > 0) & (column <= 1)).all() or (column == 1).all():
        return False
    inverse = 1 / np.maximum(column, 1e-100)
    means, squares = (np.bincount(arms, terms) / len(arms) for terms in (inverse, inverse**2))
    errors = np.sqrt(np.maximum(squares - means**2, 0.0) / len(arms))
    known = (np.bincount(arms) >= MANY_TIMES) & (errors <= 0.25)  # of the others the mean is hardly known
    return int(known.sum()) > 1 and bool((np.abs(means - 1) <= 4 * errors)[known].all())


@dataclass(frozen=True)
class Columns:
    """The columns of a table of past rounds."""

    names: tuple[str, ...]
    """Of the context columns."""
    context: Array
    """(rows, columns)."""
    numbers: dict[Role, Array]
    """Rewards, NaN where unknown, and probabilities."""
    coded: dict[Role, Coded]
    """Arms and rounds."""
    suspicious: tuple[str, ...]
    """Context columns that the caller did not name, and whose names do not sound like one."""


def read_columns(
    table: NamedRows, context: Sequence[str] | None, ignore: Sequence[str], roles: dict[Role, str]
) -> Columns:
    """Read the columns with a role, and as context those named, or all others that are not ignored."""
    for name, given in (("context", context), ("ignore", ignore)):
        if isinstance(given, str):
            raise InvalidInput(f"{name} must be a list of columns, such as [{given!r}]; got one text.")
        if not isinstance(given, Iterable) and not (given is None and name == "context"):
            raise InvalidInput(f"{name} must be a list of columns; got {shown(given)}.")
    for role, name in roles.items():
        if not isinstance(name, str):
            raise InvalidInput(f"{role} must be the name of a column; got {shown(name)}.")
        if twice := [other for other, same in roles.items() if same == name and other != role]:
            raise InvalidLog(f"{table.name}: one column cannot be both {role} and {twice[0]}; got {name!r} for both.")
    names = _context_columns(table, context, ignore, roles)
    columns, numbers, coded = _read(table, names, roles)
    odd = tuple(name for name in names if context is None and SUSPICIOUS & set(_words(name)))
    return Columns(tuple(names), np.column_stack(columns), numbers, coded, odd)


def _context_columns(
    table: NamedRows, context: Sequence[str] | None, ignore: Sequence[str], roles: dict[Role, str]
) -> list[str]:
    name, header = table.name, table.header
    if not header:
        raise InvalidLog(f"{name} is empty; its first line must name the columns.")
    if len(header) == 1 and (mark := next((mark for mark in ";\t|" if mark in header[0]), None)):
        raise InvalidLog(
            f"{name} must separate its columns by commas; its first line has {mark!r}. Write it with commas."
        )
    _check_distinct(name, header)
    for column in (*(context or ()), *ignore, *roles.values()):
        if column not in header:
            raise InvalidLog(f"{name} has no column {column!r}; its columns are {', '.join(header)}.")
    taken = {*roles.values(), *ignore}
    if context is None:
        context = [column for column in header if column not in taken]
    if both := [column for column in context if column in taken]:
        raise InvalidLog(
            f"{name}: {both[0]!r} cannot be a context column and something else; leave it out of the context."
        )
    if not context:
        raise InvalidLog(f"{name} has no column left for the context; its columns are {', '.join(header)}.")
    return list(dict.fromkeys(context))


def _read(
    table: NamedRows, names: list[str], roles: dict[Role, str]
) -> tuple[list[Array], dict[Role, Array], dict[Role, Coded]]:
    header = table.header
    places = [header.index(name) for name in names]
    columns = [array("d") for _ in names]
    numbers = {role: (header.index(name), array("d")) for role, name in roles.items() if role not in CODED}
    texts: dict[Role, tuple[int, dict[str, int], array[int]]] = {
        role: (header.index(name), {}, array("q")) for role, name in roles.items() if role in CODED
    }
    wrong: dict[str, tuple[Any, int]] = {}
    count = 0
    for number, line in table.lines:
        count += 1
        for at, column in zip(places, columns, strict=True):
            if (value := finite_number(line[at])) is None:
                wrong.setdefault(header[at], (line[at], number))
            column.append(math.nan if value is None else value)
        for role, (at, column) in numbers.items():
            value = math.nan if role == "reward" and is_missing(line[at]) else finite_number(line[at])
            if value is None:
                wrong.setdefault(header[at], (line[at], number))
            elif role == "probability" and not 0 < value <= 1:
                raise InvalidLog(
                    f"{table.name}, {table.unit} {number}: {header[at]}, the probability of the chosen arm, must be "
                    f"above 0 and at most 1; got {line[at]}."
                )
            column.append(math.nan if value is None else value)
        for role, (at, codes, column_of_codes) in texts.items():
            field = line[at]
            if is_missing(field) and not (role == "arm" and is_name_like(field)):
                raise InvalidLog(
                    f"{table.name}, {table.unit} {number}: {header[at]} must not be {field!r}; drop the row."
                )
            column_of_codes.append(codes.setdefault(_name(field), len(codes)))
    if wrong:
        raise InvalidLog(_complaint(table, wrong, hint="reward" not in roles))
    if not count:
        raise InvalidLog(f"{table.name} has a header and no rows.")
    coded = {role: Coded(tuple(codes), np.array(column, np.int64)) for role, (_, codes, column) in texts.items()}
    return list(map(np.asarray, columns)), {role: np.asarray(column) for role, (_, column) in numbers.items()}, coded


def _complaint(table: NamedRows, wrong: dict[str, tuple[Any, int]], *, hint: bool) -> str:
    found = ", ".join(f"{name} has {field!r} in {table.unit} {number}" for name, (field, number) in wrong.items())
    blank = next((name for name, (field, _) in wrong.items() if is_missing(field)), None) if hint else None
    guess = (
        "" if blank is None else f" Is {blank} the reward, unknown there? Then say reward={blank!r} (--reward {blank})."
    )
    return (
        f"{table.name}: context columns, rewards and probabilities must be finite numbers, but {found}.{guess} Name "
        "the columns of the context, or those to ignore; code text as numbers, and fill in gaps or drop their rows."
    )


def _words(name: str) -> list[str]:
    """Return the words of snake_case and camelCase, in lower case."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)]
