"""Tables as anybody has them: one door for files and frames, and their columns by role.

    CSV          text, read line by line: of a long file nothing is kept but 8 bytes for each entry that is wanted
    JSON lines   one object a line, in a file whose name ends in .jsonl, .ndjson or .json
    Parquet      where pyarrow is installed
    frames       of pandas, polars or pyarrow, a dict of columns, a list of dicts, and whatever gives an Arrow stream

A field is text in a CSV file and a Python value elsewhere; the functions of this module take both. Errors and remarks
name the table, and the line (of a file) or the row (of a frame, from 0 on) that they are about.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from importlib import import_module
from typing import Any, Literal

import numpy as np

from rarely.extend import Array, IntArray
from rarely.extend.checks import InvalidInput, RarelyError, shown
from rarely.extend.provisional import path_of
from rarely.frames.columns import ColumnKind, check_distinct, is_gap, key_of, read_table
from rarely.frames.encoder import FrameEncoder

MISSING = {"", "?", "na", "n/a", "nan", "null", "none"}
"""Fields that stand for a value that is not known."""
NAME_LIKE = {"none", "na", "n/a", "null"}
"""Fields among them that may as well be the name of an arm or a class."""
WHOLE = re.compile(r"[+-]?\d{1,320}")
DECIMAL = re.compile(r"[+-]?\d{1,320}\.\d{1,320}")
FINER = re.compile(r"[.,]\d{6}(\d+)")
DATE = re.compile(r"\d{4}-\d\d-\d\d")
DECIMAL_COMMA = re.compile(r"^([+-]?\d+),(\d+)$")
SUSPICIOUS = {"reward", "rewards", "arm", "action", "propensity", "pscore", "prob", "probability"} | {
    *("propensities", "probs", "probabilities", "id", "uuid", "index", "time", "timestamp", "date", "label")
}
"""Words in a column's name that seldom describe a context."""
MAX_NAMED = 5
"""Rows that a sentence names."""

Faults = dict[str, dict[str, list[tuple[Any, int]]]]  # fields that cannot be used, by kind and column, with their rows
Role = Literal["arm", "reward", "probability", "round", "id", "time"]
CODED: tuple[Role, ...] = ("arm", "round", "id")
"""Roles whose entries are names; the entries of the others are numbers."""


class InvalidLog(InvalidInput):
    """A decision or a table that does not fit a log, or a log without what a call needs."""


class ParquetUnavailable(RarelyError, ImportError):
    """Parquet was asked for, and pyarrow is not installed."""


@dataclass(frozen=True, slots=True)
class Remark:
    """A sentence about a table, with the lines of the file, or the rows of the frame, that it is about.

    Examples
    --------
    >>> print(Remark("2 rewards are missing", "gap", (3, 5), "line"))
    2 rewards are missing: lines 3, 5.
    """

    text: str
    kind: Literal["column", "arm", "duplicate", "order", "gap", "unknown"]
    rows: tuple[int, ...] = ()
    unit: str = "row"

    def __str__(self) -> str:
        return f"{self.text}: {listed(self.rows, self.unit)}." if self.rows else f"{self.text}."


def listed(rows: Sequence[int], unit: str) -> str:
    """Return the first of these rows by number, as in "rows 0, 1, 2, 3, 4 and 4 more"."""
    more = f" and {len(rows) - MAX_NAMED} more" if len(rows) > MAX_NAMED else ""
    return f"{unit}{'s' if len(rows) > 1 else ''} {', '.join(map(str, rows[:MAX_NAMED]))}{more}"


# --- fields


def is_missing(field: Any) -> bool:
    """Return whether a field stands for an unknown value."""
    return field.strip().lower() in MISSING if isinstance(field, str) else is_gap(field)


def is_name_like(field: Any) -> bool:
    """Return whether a field stands for an unknown value but could also be a name, as `None` could."""
    return isinstance(field, str) and field.strip().lower() in NAME_LIKE


def finite_number(field: Any) -> float | None:
    """Return the number in a field, or None if it holds no finite one; 1_000 is none."""
    try:
        odd = isinstance(field, np.datetime64) or (isinstance(field, str) and "_" in field)
        value = math.nan if odd else float(field)
    except (TypeError, ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


def exact_number(field: Any) -> int | float | None:
    """Return the same number, a whole one with all its digits, of which a float has but the first sixteen.

    >>> exact_number("9007199254740993"), exact_number("0.5"), exact_number("tea")
    (9007199254740993, 0.5, None)
    """
    number = finite_number(field)
    whole = number is not None and not isinstance(field, float) and WHOLE.fullmatch(str(field).strip())
    return int(whole[0]) if whole else number


def moment(field: Any) -> int | float | Fraction | None:
    """Return a time as a number: of a number itself, of a date or its ISO text the seconds since 1970 in UTC.

    >>> moment(np.datetime64(1700000000000000003, "ns")) == moment("2023-11-14T22:13:20.000000003Z")
    True
    """
    text = field.isoformat() if isinstance(field, date) else str(field).strip()
    if (number := exact_number(field)) is not None:
        return Fraction(text) if DECIMAL.fullmatch(text) else number
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    since = (when if when.tzinfo else when.replace(tzinfo=UTC)) - datetime.fromtimestamp(0, UTC)
    finer = FINER.search(text)  # digits beyond the microseconds, which Python's dates lack
    return Fraction(since // timedelta(microseconds=1), 10**6) + Fraction(f"0.000000{finer[1]}" if finer else 0)


# --- tables


def read_lines(
    path: str | os.PathLike[str], error: type[InvalidInput], delimiter: str = ","
) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of each line of a CSV file that is not empty, and its fields without the space around them.

    All lines have as many fields as the first. What cannot be read is raised as `error`.
    """
    name, width = path_of(path), None
    reader = csv.reader((line for _, line in lines_of(path, error)), delimiter=delimiter)
    try:
        for line in filter(None, reader):
            width = width or len(line)
            if len(line) != width:
                raise error(f"{name}, line {reader.line_num}: {width} fields are expected; got {len(line)}.")
            yield reader.line_num, [field.strip() for field in line]
    except csv.Error as reason:
        raise error(f"{name} is not a CSV file: {reason}.") from reason


def lines_of(path: str | os.PathLike[str], error: type[InvalidInput] = InvalidLog) -> Iterator[tuple[int, str]]:
    """Yield the number of each line of a text file, and its text; what cannot be read is raised as `error`."""
    name = path_of(path)
    try:
        # utf-8-sig: spreadsheets put a byte order mark in front of the first name.
        with open(name, newline="", encoding="utf-8-sig") as file:
            yield from enumerate(file, 1)
    except UnicodeDecodeError as reason:
        raise error(f"{name} is not a text file in UTF-8: {reason}.") from reason
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
    _, first = next(lines_of(path), (0, ""))
    # Spreadsheets of many countries separate columns by semicolons, since their decimal mark is a comma.
    mark = next((mark for mark in ";\t" if mark in first and "," not in first), ",")
    lines = read_lines(path, InvalidLog, mark)
    _, header = next(lines, (0, []))
    if mark == ";":
        lines = ((number, [DECIMAL_COMMA.sub(r"\1.\2", field) for field in line]) for number, line in lines)
    return NamedRows(os.fspath(path), header, lines, "line")


def open_parquet(path: str | os.PathLike[str]) -> NamedRows:
    """Open a Parquet file; raise ParquetUnavailable without pyarrow."""
    name, parquet = path_of(path), pyarrow("parquet")
    try:
        return _open_frame(parquet.read_table(name), name)
    except (OSError, ValueError) as reason:
        raise reason if isinstance(reason, InvalidLog) else InvalidLog(f"{name} cannot be read: {reason}.") from None


def open_json_lines(path: str | os.PathLike[str]) -> NamedRows:
    """Open a file of one JSON object a line; a name that one of them lacks is a gap."""
    name, records = path_of(path), {}
    for number, line in lines_of(path):
        try:
            record = json.loads(line) if line.strip() else {}
        except ValueError as reason:
            raise InvalidLog(f"{name}, line {number}: one JSON object is expected; {reason}.") from None
        if not isinstance(record, dict):
            raise InvalidLog(f"{name}, line {number}: one JSON object is expected; got {shown(record)}.")
        if record:
            records[number] = record
    header = list(dict.fromkeys(each for record in records.values() for each in record))
    rows = ((number, [record.get(each) for each in header]) for number, record in records.items())
    return NamedRows(name, header, rows, "line")


def open_table(source: Any) -> NamedRows:
    """Open a frame, or a file by its path: Parquet or JSON lines if its name ends so, CSV otherwise."""
    if not isinstance(source, str | os.PathLike):
        return _open_frame(source, "the frame")
    openers = {".parquet": open_parquet, **dict.fromkeys((".jsonl", ".ndjson", ".json"), open_json_lines)}
    return openers.get(os.path.splitext(path_of(source))[1].lower(), open_csv)(source)


def columns_of(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
    """Return the columns of a file by name, as numbers where a column has nothing else, None for a gap."""
    columns = {}
    for name, values in zip(header, zip(*rows, strict=True), strict=True):
        stated = [None if is_missing(value) else value for value in values]
        numbers = [exact_number(value) for value in stated]
        columns[name] = numbers if numbers.count(None) == stated.count(None) else stated
    return columns


def _are_dates(values: Sequence[Any]) -> bool:
    """Return whether values are text and all dates, or dates with times, of ISO 8601: a file has no other dates."""
    stated = [value for value in values if not is_gap(value)]
    return bool(stated) and all(
        isinstance(each, str) and DATE.match(each) and moment(each) is not None for each in stated
    )


def _open_frame(frame: Any, name: str) -> NamedRows:
    if not hasattr(frame, "columns") and hasattr(frame, "__arrow_c_stream__"):
        frame = pyarrow().table(frame)
    table = read_table(frame, name, InvalidLog)
    if table.single:
        raise InvalidLog(f"{name} must have columns: lists or arrays, one value a row; got one row, {shown(frame)}.")
    columns = [_python_values(values) for values in table.columns.values()]
    return NamedRows(name, list(table.columns), enumerate(zip(*columns, strict=True)), "row")


def _python_values(values: Any) -> list[Any]:
    """Return a column as Python values; dates of finer units than Python's keep those of NumPy."""
    if isinstance(values, list):
        return values
    if values.dtype.kind not in "Mm":
        return list(values.tolist())
    coarse = values.astype(f"{values.dtype.kind}8[us]")
    return list(coarse.tolist() if np.array_equal(coarse, values, equal_nan=True) else values)


def pyarrow(part: str = "") -> Any:
    """Return pyarrow or a module of it; raise ParquetUnavailable where it is not installed."""
    try:
        whole = import_module("pyarrow")
        return import_module(f"pyarrow.{part}") if part else whole
    except ImportError:
        raise ParquetUnavailable("Parquet needs pyarrow: pip install 'rarely[parquet]', or use CSV.") from None


# --- columns by role


@dataclass(frozen=True)
class Coded:
    """Names as codes 0, 1, … into `values`, in the order in which they first appear."""

    values: tuple[str, ...]
    codes: IntArray

    def sorted(self) -> Coded:
        """Return the same with values in order: by number if all are whole numbers, else by alphabet."""
        numbers = [exact_number(value) for value in self.values]
        whole = all(isinstance(number, int) for number in numbers)
        order = sorted(range(len(self.values)), key=lambda i: (numbers[i] if whole else 0, self.values[i]))
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        return Coded(tuple(self.values[i] for i in order), place[self.codes])


def remarks_on_arms(column: str, arms: Coded, rows: IntArray, unit: str) -> Iterator[Remark]:
    """Say which arms may be a missing entry, or another arm in another spelling, and in which rows.

    >>> arms = Coded(("news", "News "), np.array([0] * 30 + [1]))
    >>> str(next(remarks_on_arms("page", arms, np.arange(31), "row")))[:47]
    "'news' and 'News ' in column page are two arms;"
    """
    counts = np.bincount(arms.codes, minlength=len(arms.values))

    def remark(text: str, name: str) -> Remark:
        return Remark(text, "arm", tuple(rows[arms.codes == arms.values.index(name)].tolist()), unit)

    for name in filter(is_name_like, arms.values):
        said = f"{name!r} in column {column} is taken for an arm; drop its rows if it means that no arm is known"
        yield remark(said, name)
    spelled: dict[Any, str] = {}
    for name in sorted(arms.values, key=lambda name: -counts[arms.values.index(name)]):
        number, words = exact_number(name), " ".join(re.split(r"[\s_-]+", name.strip().lower()))
        first = spelled.setdefault(words if number is None else number, name)
        if first != name:
            said = f"{first!r} and {name!r} in column {column} are two arms; correct the rows if they should be one"
            yield remark(said, name)


@dataclass(frozen=True)
class Columns:
    """The columns of a table of past rounds."""

    names: tuple[str, ...]
    """Names of the context columns."""
    context: Array
    """(rows, columns)."""
    numbers: dict[Role, Array]
    """Rewards, NaN where unknown, probabilities, and times as their places in the order of all times."""
    coded: dict[Role, Coded]
    """Arms, rounds and ids."""
    rows: IntArray
    """The number of each row: the line of a file, or the row of a frame."""
    remarks: tuple[Remark, ...] = ()
    """What looks odd, what was put right while reading, and which rewards are missing."""


def _check_named(
    table: NamedRows, context: Sequence[str] | None, ignore: Sequence[str], roles: dict[Role, str]
) -> None:
    """Raise InvalidInput unless columns are named by lists and texts, InvalidLog for one named twice."""
    for name, listed_ones in (("context", context), ("ignore", ignore)):
        if isinstance(listed_ones, str):
            raise InvalidInput(f"{name} must be a list of columns, such as [{listed_ones!r}]; got one text.")
        if not isinstance(listed_ones, Iterable) and not (listed_ones is None and name == "context"):
            raise InvalidInput(f"{name} must be a list of columns; got {shown(listed_ones)}.")
    for role, name in roles.items():
        if not isinstance(name, str):
            raise InvalidInput(f"{role} must be the name of a column; got {shown(name)}.")
        if twice := [other for other, same in roles.items() if same == name and other != role]:
            raise InvalidLog(f"{table.name}: one column cannot be both {role} and {twice[0]}; got {name!r} for both.")


def read_columns(
    table: NamedRows,
    context: Sequence[str] | None,
    ignore: Sequence[str],
    roles: dict[Role, str],
    encoder: Any = None,
    frame: Any = None,
    *,
    drop_unknown: bool = False,
) -> Columns:
    """Read the columns with a role, and as context those named, or all others that are not ignored.

    An encoder makes the context of the `frame`; of a file, whose columns only this function reads, of its columns.
    Rows with an id that came before are dropped, those without a probability if that is wanted, and rows are brought
    in the order of time.
    """
    _check_named(table, context, ignore, roles)
    names, encoded = _context_columns(table, context, ignore, roles, encoder), None
    guessed = names if context is None and (encoder is None or isinstance(encoder, str)) else []
    if encoder is not None:
        automatic = isinstance(encoder, str) and encoder == "auto"
        if not automatic and (context is not None or not hasattr(encoder, "transform")):
            raise InvalidInput(
                "encoder must be fitted and have transform(frame), and knows its columns, so context must be None; got "
                f"{shown(encoder)} and context={shown(context)}."
            )
        lines = list(table.lines)
        if not lines:
            raise InvalidLog(f"{table.name} has a header and no rows.")
        table = replace(table, lines=iter(lines))
        if automatic or not hasattr(frame, "columns"):
            frame = columns_of(table.header, [line for _, line in lines])
        if automatic:
            sample = {name: frame[name] for name in names}
            kinds: dict[str, ColumnKind] = {name: "date" for name in names if _are_dates(sample[name])}
            encoder, context = FrameEncoder.fit(sample, kinds=kinds), None
        encoded = np.asarray(encoder.transform(frame), np.float64)
        if encoded.ndim != 2 or len(encoded) != len(lines):
            raise InvalidLog(f"an encoder must return a row of numbers for each of {len(lines)}; got {encoded.shape}.")
        names = []
    columns, numbers, coded, rows = _read(table, names, roles, drop_unknown=drop_unknown)
    odd = [
        Remark(
            f"Column {name} is taken for a part of the context, though its name suggests something else; ignore it "
            f"(--ignore {name}) if a policy could not know it before it decides",
            "column",
        )
        for name in guessed
        if SUSPICIOUS & {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}
    ]
    if encoded is not None:
        names = [str(name) for name in getattr(encoder, "names", range(encoded.shape[1]))]
    made = np.column_stack(columns) if encoded is None else encoded
    read = Columns(tuple(names), made, numbers, coded, rows)
    kept, remarks = _tidied(table, roles, read)
    numbers = {role: column[kept] for role, column in numbers.items()}
    coded = {role: Coded(each.values, each.codes[kept]) for role, each in coded.items()}
    if "arm" in coded and "round" not in coded:
        odd += remarks_on_arms(roles["arm"], coded["arm"], rows[kept], table.unit)
    return replace(read, context=made[kept], numbers=numbers, coded=coded, rows=rows[kept], remarks=(*odd, *remarks))


def _tidied(table: NamedRows, roles: dict[Role, str], read: Columns) -> tuple[IntArray, list[Remark]]:
    """Return the places of the rows without repeated ones, in the order of time, and what to say about it."""
    numbers, coded, rows = read.numbers, read.coded, read.rows
    remarks: list[Remark] = []
    kept, rewards = np.arange(len(rows)), numbers.get("reward", np.empty(0))

    def remark(said: str, kind: Any, places: Any) -> None:
        remarks.append(Remark(said, kind, tuple(rows[places].tolist()), table.unit))

    if "id" in coded:
        if "round" in coded:
            raise InvalidLog(f"{table.name}: where each arm has its own row, the column {roles['round']} is the id.")
        facts = np.column_stack([read.context, *numbers.values(), *(each.codes for each in coded.values())])
        first = np.unique(coded["id"].codes, return_index=True)[1][coded["id"].codes]
        if len(other := np.flatnonzero(~np.isclose(facts, facts[first], 0, 0, equal_nan=True).all(axis=1))):
            where, earlier = listed(rows[other].tolist(), table.unit), f"{table.unit} {rows[first[other[0]]]}"
            raise InvalidLog(
                f"{table.name}: one {roles['id']} must be one round, but these rows have that of an earlier row and "
                f"other values: {where}; the first has that of {earlier}. Keep one row of each."
            )
        again, kept = np.flatnonzero(first != kept), np.flatnonzero(first == kept)
        if len(again):
            said = f"{len(again)} rows repeat an earlier one with the same {roles['id']} and are dropped"
            remark(said, "duplicate", again)
    if len(unknown := kept[np.isnan(numbers["probability"][kept])] if "probability" in numbers else kept[:0]):
        remark(
            f"{len(unknown)} of {len(kept)} rows have no {roles['probability']} and are left out", "unknown", unknown
        )
        kept = kept[~np.isin(kept, unknown)]
    if "time" in numbers and len(late := kept[1:][np.diff(numbers["time"][kept]) < 0]):
        said = f"Rows are put in the order of {roles['time']}; {len(late)} had an earlier one than the row before"
        remark(said, "order", late)
        kept = kept[np.argsort(numbers["time"][kept], kind="stable")]
    if "round" not in coded and len(gaps := np.sort(kept[np.isnan(rewards[kept])] if len(rewards) else kept[:0])):
        remark(f"{len(gaps)} of {len(kept)} rewards are missing, and estimates leave them out", "gap", gaps)
    return kept, remarks


def _context_columns(
    table: NamedRows, context: Sequence[str] | None, ignore: Sequence[str], roles: dict[Role, str], encoder: Any
) -> list[str]:
    name, header = table.name, table.header
    if not header:
        raise InvalidLog(f"{name} is empty; its first line must name the columns.")
    if len(header) == 1 and "|" in header[0]:
        raise InvalidLog(f"{name} must separate its columns by commas, semicolons or tabs; its first line has '|'.")
    check_distinct(header, name, InvalidLog)
    for column in (*(context or ()), *ignore, *roles.values()):
        if column not in header:
            raise InvalidLog(f"{name} has no column {column!r}; its columns are {', '.join(header)}.")
    taken = {*roles.values(), *ignore}
    if context is None:
        context = [column for column in header if column not in taken]
    if both := [column for column in context if column in taken]:
        raise InvalidLog(f"{name}: {both[0]!r} cannot be a context column and something else.")
    if not context and encoder is None:
        raise InvalidLog(f"{name} has no column left for the context; its columns are {', '.join(header)}.")
    return list(dict.fromkeys(context))


def _read(
    table: NamedRows, names: list[str], roles: dict[Role, str], *, drop_unknown: bool
) -> tuple[list[Array], dict[Role, Array], dict[Role, Coded], IntArray]:
    header = table.header
    places = [header.index(name) for name in names]
    columns = [array("d") for _ in names]
    numbers: dict[Role, tuple[int, array[float]]] = {
        role: (header.index(name), array("d")) for role, name in roles.items() if role in ("reward", "probability")
    }
    moments: list[Any] = []
    texts: dict[Role, tuple[int, dict[str, int], array[int]]] = {
        role: (header.index(name), {}, array("q")) for role, name in roles.items() if role in CODED
    }
    faults: Faults = {"number": {}, "name": {}, "probability": {}, "unknown": {}}
    rows = array("q")

    def fault(kind: str, at: int) -> None:
        faults[kind].setdefault(header[at], []).append((line[at], number))

    for number, line in table.lines:
        rows.append(number)
        for at, column in zip(places, columns, strict=True):
            if (value := finite_number(line[at])) is None:
                fault("number", at)
            column.append(math.nan if value is None else value)
        if "time" in roles:
            moments.append(moment(line[at := header.index(roles["time"])]))
            if moments[-1] is None:
                fault("name", at)
        for role, (at, column) in numbers.items():
            value, missing = finite_number(line[at]), is_missing(line[at])
            if role == "probability" and missing:
                if not drop_unknown:
                    fault("unknown", at)
            elif value is None and not missing:
                fault("number", at)
            elif role == "probability" and not 0 < (value or 0) <= 1:
                fault("probability", at)
            column.append(math.nan if value is None else value)
        for role, (at, codes, column_of_codes) in texts.items():
            if is_missing(line[at]) and not (role == "arm" and is_name_like(line[at])):
                fault("name", at)
            column_of_codes.append(codes.setdefault(str(key_of(line[at])), len(codes)))
    if not rows:
        raise InvalidLog(f"{table.name} has a header and no rows.")
    _complain(table, faults, hint="reward" not in roles)
    coded = {role: Coded(tuple(codes), np.array(column, np.int64)) for role, (_, codes, column) in texts.items()}
    values = {role: np.asarray(column) for role, (_, column) in numbers.items()}
    if moments:
        order = {time: place for place, time in enumerate(sorted({*moments}))}
        values["time"] = np.array([order[time] for time in moments], np.float64)
    return list(map(np.asarray, columns)), values, coded, np.array(rows, np.int64)


def _complain(table: NamedRows, faults: Faults, *, hint: bool) -> None:
    """Raise InvalidLog for the first kind of field that cannot be used, with its columns and the rows of each."""

    def where(fields: list[tuple[Any, int]]) -> str:
        return listed([number for _, number in fields], table.unit)

    for name, fields in faults["probability"].items():
        said = f"{name}, the probability of the arm, must be above 0 and at most 1; got {fields[0][0]}"
        raise InvalidLog(f"{table.name}, {where(fields)}: {said}.")
    for name, fields in faults["unknown"].items():
        raise InvalidLog(
            f"{table.name}, {where(fields)}: {name}, the probability of the arm, is missing. Leave such rows out by "
            "drop_unknown=True (--drop-unknown), which counts them, or do without probabilities."
        )
    for name, fields in faults["name"].items():
        raise InvalidLog(
            f"{table.name}, {where(fields)}: {name} must not be {fields[0][0]!r}; drop or correct the row."
        )
    if wrong := faults["number"]:
        said = ", ".join(f"{name} has {shown(fields[0][0])} in {where(fields)}" for name, fields in wrong.items())
        empty = next((name for name, fields in wrong.items() if is_missing(fields[0][0])), None) if hint else None
        guess = f" Is {empty} the reward, unknown there? Then say reward={empty!r} (--reward {empty})." if empty else ""
        raise InvalidLog(
            f"{table.name}: context columns, rewards and probabilities must be finite numbers, but {said}.{guess} Name "
            "the columns of the context, or those to ignore; or let a FrameEncoder code text and gaps as numbers: "
            "encoder='auto' (--encode). Write rewards as numbers, such as 1 for yes and 0 for no."
        )
