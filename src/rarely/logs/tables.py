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
from rarely.frames.columns import check_distinct, is_gap, key_of, read_table
from rarely.frames.encoder import FrameEncoder

MISSING = {"", "?", "na", "n/a", "nan", "null", "none"}  # fields that stand for a value that is not known
NAME_LIKE = {"none", "na", "n/a", "null"}  # fields among them that may as well be the name of an arm or a class
WHOLE = re.compile(r"[+-]?\d{1,320}")
DECIMAL = re.compile(r"[+-]?\d{1,320}\.\d{1,320}")
FINER = re.compile(r"[.,]\d{6}(\d+)")
DECIMAL_COMMA = re.compile(r"^([+-]?\d+),(\d+)$")
SUSPICIOUS = {"reward", "rewards", "arm", "action", "propensity", "pscore", "prob", "probability"} | {
    *("propensities", "probs", "probabilities", "id", "uuid", "index", "time", "timestamp", "date", "label")
}
"""Words in a column's name that seldom describe a context."""
MAX_NAMED = 5  # rows that a sentence names

Faults = dict[str, dict[str, list[tuple[Any, int]]]]  # fields that cannot be used, by kind and column, with their rows
Role = Literal["arm", "reward", "probability", "round", "id", "time"]
CODED: tuple[Role, ...] = ("arm", "round", "id")  # roles whose entries are names; the entries of the others are numbers


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

    name: str  # what errors call the table
    header: list[str]
    lines: Iterator[tuple[int, Sequence[Any]]]  # the number of each row and its fields
    unit: Literal["line", "row"]  # what the numbers count


def open_table(source: Any) -> NamedRows:
    """Open a frame, or a file by its path: Parquet or JSON lines if its name ends so, CSV otherwise."""
    if not isinstance(source, str | os.PathLike):
        return _open_frame(source, "the frame")
    name = path_of(source)
    ending = os.path.splitext(name)[1].lower()
    if ending == ".parquet":
        try:
            return _open_frame(pyarrow("parquet").read_table(name), name)
        except InvalidLog:
            raise
        except (OSError, ValueError) as reason:
            raise InvalidLog(f"{name} cannot be read: {reason}.") from None
    return _open_json_lines(name) if ending in (".jsonl", ".ndjson", ".json") else _open_csv(name)


def _open_csv(name: str) -> NamedRows:
    """Open a CSV file whose first line names its columns."""
    _, first = next(lines_of(name), (0, ""))
    # Spreadsheets of many countries separate columns by semicolons, since their decimal mark is a comma.
    mark = next((mark for mark in ";\t" if mark in first and "," not in first), ",")
    lines = read_lines(name, InvalidLog, mark)
    _, header = next(lines, (0, []))
    if mark == ";":
        lines = ((number, [DECIMAL_COMMA.sub(r"\1.\2", field) for field in line]) for number, line in lines)
    return NamedRows(name, header, lines, "line")


def _open_json_lines(name: str) -> NamedRows:
    """Open a file of one JSON object a line; a name that one of them lacks is a gap."""
    records = {}
    for number, line in lines_of(name):
        try:
            record = json.loads(line) if line.strip() else {}
            wrong = "" if isinstance(record, dict) else f"got {shown(record)}"
        except ValueError as reason:
            wrong = str(reason)
        if wrong:
            raise InvalidLog(f"{name}, line {number}: one JSON object is expected; {wrong}.")
        if record:
            records[number] = record
    header = list(dict.fromkeys(each for record in records.values() for each in record))
    rows = ((number, [record.get(each) for each in header]) for number, record in records.items())
    return NamedRows(name, header, rows, "line")


def columns_of(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
    """Return the columns of a file by name, as numbers where a column has nothing else, None for a gap."""
    columns = {}
    for name, values in zip(header, zip(*rows, strict=True), strict=True):
        stated = [None if is_missing(value) else value for value in values]
        numbers = [exact_number(value) for value in stated]
        columns[name] = numbers if numbers.count(None) == stated.count(None) else stated
    return columns


def _open_frame(frame: Any, name: str) -> NamedRows:
    if not hasattr(frame, "columns") and hasattr(frame, "__arrow_c_stream__"):
        frame = pyarrow().table(frame)
    table = read_table(frame, name, InvalidLog)
    if table.single:
        raise InvalidLog(f"{name} must have columns: lists or arrays, one value a row; got one row, {shown(frame)}.")
    columns = []
    for values in table.columns.values():
        if isinstance(values, np.ndarray) and values.dtype.kind in "Mm":
            # Dates of finer units than Python's keep those of NumPy.
            coarse = values.astype(f"{values.dtype.kind}8[us]")
            values = coarse.tolist() if np.array_equal(coarse, values, equal_nan=True) else list(values)
        columns.append(values if isinstance(values, list) else values.tolist())
    return NamedRows(name, list(table.columns), enumerate(zip(*columns, strict=True)), "row")


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

    names: tuple[str, ...]  # names of the context columns
    context: Array  # (rows, columns)
    numbers: dict[Role, Array]  #: Rewards, NaN where unknown, probabilities, and times as their places in time.
    coded: dict[Role, Coded]  # arms, rounds and ids
    rows: IntArray  # the number of each row: the line of a file, or the row of a frame
    remarks: tuple[Remark, ...] = ()  # what looks odd, what was put right while reading, and which rewards are missing


def read_columns(
    table: NamedRows, context: Any, ignore: Any, roles: dict[Role, str], encoder: Any, frame: Any, *, drop_unknown: bool
) -> Columns:
    """Read the columns with a role, and as context those named, or all others that are not ignored.

    An encoder makes the context of the `frame`; of a file, whose columns only this function reads, of its columns.
    Rows with an id that came before are dropped, those without a probability if that is wanted, and rows are brought
    in the order of time.
    """
    names = _context_columns(table, context, ignore, roles, encoder)
    guessed = names if context is None and (encoder is None or isinstance(encoder, str)) else []
    if encoder is None:
        read = _read(table, names, roles, drop_unknown=drop_unknown)
    else:
        table, encoder, made = _encoded(table, names, encoder, frame, context)
        named = tuple(str(name) for name in getattr(encoder, "names", range(made.shape[1])))
        read = replace(_read(table, [], roles, drop_unknown=drop_unknown), names=named, context=made)
    read = _tidied(table, roles, read)
    odd = [
        Remark(
            f"Column {name} is taken for a part of the context, though its name suggests something else; ignore it "
            f"(--ignore {name}) if a policy could not know it before it decides",
            "column",
        )
        for name in guessed
        if SUSPICIOUS & {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}
    ]
    if "arm" in read.coded and "round" not in read.coded:
        odd += remarks_on_arms(roles["arm"], read.coded["arm"], read.rows, table.unit)
    return replace(read, remarks=(*odd, *read.remarks))


def _encoded(table: NamedRows, names: Any, encoder: Any, frame: Any, context: Any) -> tuple[NamedRows, Any, Array]:
    """Return the table to be read again, the fitted encoder, and the numbers that it makes of the frame."""
    automatic = isinstance(encoder, str) and encoder == "auto"
    if not automatic and (context is not None or not hasattr(encoder, "transform")):
        raise InvalidInput(
            "encoder must be fitted and have transform(frame), and knows its columns, so context must be None; got "
            f"{shown(encoder)} and context={shown(context)}."
        )
    lines = list(table.lines)
    if not lines:
        raise InvalidLog(f"{table.name} has a header and no rows.")
    if automatic or not hasattr(frame, "columns"):
        frame = columns_of(table.header, [line for _, line in lines])
    if automatic:
        encoder = FrameEncoder.fit({name: frame[name] for name in names})
    made = np.asarray(encoder.transform(frame), np.float64)
    if made.ndim != 2 or len(made) != len(lines):
        raise InvalidLog(f"an encoder must return a row of numbers for each of {len(lines)}; got {made.shape}.")
    return replace(table, lines=iter(lines)), encoder, made


def _tidied(table: NamedRows, roles: dict[Role, str], read: Columns) -> Columns:
    """Return the rows without repeated ones, in the order of time, with what to say about it."""
    numbers, coded, rows = read.numbers, read.coded, read.rows
    remarks: list[Remark] = []
    kept = np.arange(len(rows))

    def remark(said: str, kind: Any, places: Any) -> None:
        if len(places):
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
        remark(
            f"{len(again)} rows repeat an earlier one with the same {roles['id']} and are dropped", "duplicate", again
        )
    if "probability" in numbers:
        unknown = np.isnan(numbers["probability"][kept])
        said = f"{unknown.sum()} of {len(kept)} rows have no {roles['probability']} and are left out"
        remark(said, "unknown", kept[unknown])
        kept = kept[~unknown]
    if "time" in numbers:
        late = kept[1:][np.diff(numbers["time"][kept]) < 0]
        said = f"Rows are put in the order of {roles['time']}; {len(late)} had an earlier one than the row before"
        remark(said, "order", late)
        kept = kept[np.argsort(numbers["time"][kept], kind="stable")]
    if "round" not in coded and "reward" in numbers:
        gaps = np.sort(kept[np.isnan(numbers["reward"][kept])])
        remark(f"{len(gaps)} of {len(kept)} rewards are missing, and estimates leave them out", "gap", gaps)
    numbers = {role: column[kept] for role, column in numbers.items()}
    coded = {role: Coded(each.values, each.codes[kept]) for role, each in coded.items()}
    return Columns(read.names, read.context[kept], numbers, coded, rows[kept], tuple(remarks))


def _context_columns(table: NamedRows, context: Any, ignore: Any, roles: dict[Role, str], encoder: Any) -> list[str]:
    """Return the columns of the context; refuse names that are no columns, or that have two roles."""
    for said, columns in (("context", context), ("ignore", ignore)):
        if isinstance(columns, str):
            raise InvalidInput(f"{said} must be a list of columns, such as [{columns!r}]; got one text.")
        if not isinstance(columns, Iterable) and not (columns is None and said == "context"):
            raise InvalidInput(f"{said} must be a list of columns; got {shown(columns)}.")
    name, header = table.name, table.header
    for role, column in roles.items():
        if not isinstance(column, str):
            raise InvalidInput(f"{role} must be the name of a column; got {shown(column)}.")
        if twice := [other for other, same in roles.items() if same == column and other != role]:
            raise InvalidLog(f"{name}: one column cannot be both {role} and {twice[0]}; got {column!r} for both.")
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


def _read(table: NamedRows, names: list[str], roles: dict[Role, str], *, drop_unknown: bool) -> Columns:
    """Return the columns of the context, those with a role, and the numbers of the rows."""
    header, rows, codes = table.header, array("q"), {role: dict[str, int]() for role in CODED}
    wanted: list[tuple[Role | None, int, Any]] = [(None, header.index(name), array("d")) for name in names]
    others: dict[Role, Any] = {role: [] if role == "time" else array("q" if role in CODED else "d") for role in roles}
    wanted += [(role, header.index(roles[role]), column) for role, column in others.items()]
    faults: Faults = {"number": {}, "name": {}, "probability": {}, "unknown": {}}
    value: Any
    for number, line in table.lines:
        rows.append(number)
        for role, at, column in wanted:
            field, wrong = line[at], ""
            if role in CODED:
                wrong = "name" if is_missing(field) and not (role == "arm" and is_name_like(field)) else ""
                value = codes[role].setdefault(str(key_of(field)), len(codes[role]))
            elif role == "time":
                value = moment(field)
                wrong = "name" if value is None else ""
            elif (value := finite_number(field)) is None:
                value, stated = math.nan, role is None or not is_missing(field)
                wrong = "number" if stated else "unknown" if role == "probability" and not drop_unknown else ""
            elif role == "probability" and not 0 < value <= 1:
                wrong = "probability"
            column.append(value)
            if wrong:
                faults[wrong].setdefault(header[at], []).append((field, number))
    if not rows:
        raise InvalidLog(f"{table.name} has a header and no rows.")
    _complain(table, faults, hint="reward" not in roles)
    if "time" in others:
        order = {time: float(place) for place, time in enumerate(sorted({*others["time"]}))}
        others["time"] = [order[time] for time in others["time"]]
    coded = {role: Coded(tuple(codes[role]), np.array(others[role], np.int64)) for role in CODED if role in others}
    values = {role: np.asarray(column, np.float64) for role, column in others.items() if role not in CODED}
    context = np.column_stack([np.empty((len(rows), 0)), *(column for role, _, column in wanted if role is None)])
    return Columns(tuple(names), context, values, coded, np.array(rows, np.int64))


def _complain(table: NamedRows, faults: Faults, *, hint: bool) -> None:
    """Raise InvalidLog for the first kind of field that cannot be used, with its columns and the rows of each."""
    says = {
        "probability": "{name}, the probability of the arm, must be above 0 and at most 1; got {field}.",
        "unknown": "{name}, the probability of the arm, is missing. Leave such rows out by drop_unknown=True "
        "(--drop-unknown), which counts them, or do without probabilities.",
        "name": "{name} must not be {field!r}; drop or correct the row.",
    }
    for kind, said in says.items():
        for name, fields in faults[kind].items():
            where = listed([number for _, number in fields], table.unit)
            raise InvalidLog(f"{table.name}, {where}: {said.format(name=name, field=fields[0][0])}")
    if wrong := faults["number"]:
        each = (
            f"{name} has {shown(fields[0][0])} in {listed([number for _, number in fields], table.unit)}"
            for name, fields in wrong.items()
        )
        empty = next((name for name, fields in wrong.items() if is_missing(fields[0][0])), None) if hint else None
        guess = f" Is {empty} the reward, unknown there? Then say reward={empty!r} (--reward {empty})." if empty else ""
        raise InvalidLog(
            f"{table.name}: context columns, rewards and probabilities must be finite numbers, but {', '.join(each)}."
            f"{guess} Name the columns of the context, or those to ignore; or let a FrameEncoder code text and gaps as "
            "numbers: encoder='auto' (--encode). Write rewards as numbers, such as 1 for yes and 0 for no."
        )
