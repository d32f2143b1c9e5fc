"""Tables of any library by their columns, without importing the library, and one column as numbers.

    a frame    of pandas, polars or pyarrow, a dict of columns, or a list of dicts, one for each row
    one row    a dict, a namedtuple, or a row of a pandas frame (`frame.iloc[0]`)

A column of numbers, booleans or dates is a NumPy array where its library has one, and every other column is a list. A
gap is None, NaN, NaT or pandas' NA; the text "" is not a gap. As numbers a column is one of four kinds:

    number     the number itself; booleans are 0 and 1, durations are days
    date       days since the median date of the sample; sine and cosine of the week and of the year, and of the day if
               the sample has times. Times of day are those of the sample's time zone, if it has one: dates of another
               zone are taken to it, and dates without a zone are as they are. Text that reads 2031-05-17 is a date if
               all of the column does.
    category   a 1 for each value of the sample, and one for all unknown values
    hash       a 1 in one of many buckets, by a hash that is the same in every process: for text of many values

A gap in a number or a date becomes the median, and a gap in a category is an unknown value. If the sample had gaps, one
more number marks them instead.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, lru_cache
from hashlib import blake2b
from itertools import chain
from typing import Any, Literal, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from rarely.extend import Array
from rarely.extend.checks import ContextsWarning, InvalidContexts, InvalidInput, as_number, check_choice, shown

Values = NDArray[Any] | list[Any]
ColumnKind = Literal["number", "date", "category", "hash"]
DAY = np.timedelta64(1, "D")
FINEST = {"ps": 8.64e16, "fs": 8.64e19, "as": 8.64e22}
"""Units of which a day has so many that whole numbers of 64 bits do not hold a year of them."""
LARGEST = 1e300  # a number of a decision on record is smaller
CYCLES = {"week": 7.0, "year": 365.2425, "day": 1.0}  # days that each takes


class Table(NamedTuple):
    """A table by its columns."""

    columns: dict[str, Values]
    rows: int
    single: bool
    """Whether one row came without a table around it."""


def snapshot(table: Any) -> Any:
    """Return what differs once a table has been changed in place, quick to make and to compare; None if unknown.

    It holds the values of columns of objects, so that no other value can come to lie where one of them lay.

    >>> rows = [{"price": 3.0, "name": "tea"}]
    >>> before = snapshot(rows)
    >>> rows[0]["price"] = 4.0
    >>> before == snapshot(rows)
    False
    """
    kind = type(table)
    if hasattr(kind, "to_pydict"):  # pyarrow's do not change
        return True
    if kind is list and {*map(type, table)} == {dict}:
        return [*chain.from_iterable(table)], [*chain.from_iterable(map(dict.values, table))], [*map(len, table)]
    if kind is dict and all(type(values) in (list, np.ndarray) for values in table.values()):
        return [(name, type(v), v.tobytes() if type(v) is np.ndarray else [*v], [*v]) for name, v in table.items()]
    manager: Any = getattr(table, "_mgr", None)  # of pandas, whose public names take too long
    if not hasattr(manager, "arrays") or not hasattr(manager, "axes"):
        return None
    arrays = [np.asarray(block) for block in manager.arrays]
    held = [array.tolist() if array.dtype.kind == "O" else None for array in arrays]
    # Arrow makes new objects at each reading, so that only their values can be compared.
    there = [
        None if array.dtype.kind == "O" and array is not block else array.tobytes()
        for array, block in zip(arrays, manager.arrays, strict=True)
    ]
    return [there, held, _Same(manager.axes[0])]


class _Same:
    """Equal to another of the very same object."""

    def __init__(self, held: object) -> None:
        self.held = held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.held is other.held

    __hash__ = None  # type: ignore[assignment]


def is_gap(value: Any) -> bool:
    """Return whether a value stands for one that is not known.

    >>> [is_gap(value) for value in (None, float("nan"), np.datetime64("NaT", "s"), "", 0)]
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
    names, columns, single = _columns(table)
    if names is None:
        raise error(
            f"{what} must be a frame of pandas, polars or pyarrow, a dict of columns, a list of dicts, one at least, "
            f"or one row as a dict; got {shown(table)}."
        )
    check_distinct(names, what, error)
    by_name = {name: _values(each, f"{what}: column {name}", error) for name, each in zip(names, columns, strict=True)}
    lengths = {*map(len, by_name.values())}
    if len(lengths) != 1:
        sizes = ", ".join(f"{name} has {len(values)}" for name, values in by_name.items()) or "there are none"
        raise error(f"the columns of {what} must have equally many rows; {sizes}.")
    return Table(by_name, lengths.pop(), single)


def check_distinct(names: Sequence[str], what: str, error: type[InvalidInput]) -> None:
    """Refuse a table in which two columns have the same name."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise error(f"the columns of {what} must have different names; {twice!r} occurs more than once.")


def _columns(table: Any) -> tuple[list[str] | None, Sequence[Any], bool]:
    """Return names and columns, and whether they are of one row; no names of what is not a table."""
    kind, single = type(table), False  # a frame looks for an attribute that it lacks for longer than a decision takes
    if hasattr(kind, "tolist") and hasattr(kind, "iloc"):  # a Series of pandas
        table, single = dict(zip(table.index.tolist(), table.tolist(), strict=True)), True
    elif _is_named(table):  # a namedtuple, as `frame.itertuples(index=False)` has them
        table, single = table._asdict(), True
    elif isinstance(table, Mapping):
        single = not any(isinstance(value, Sized) and not isinstance(value, str | bytes) for value in table.values())
    elif isinstance(table, list | tuple) and table and all(isinstance(row, Mapping) or _is_named(row) for row in table):
        table = [row._asdict() if _is_named(row) else row for row in table]
        keys = list(dict.fromkeys(key for row in table for key in row))
        table = {key: [row.get(key) for row in table] for key in keys}
    elif hasattr(kind, "to_pydict"):  # pyarrow, whose columns may have the same name
        return table.column_names, list(table.columns), False
    elif hasattr(kind, "get_columns"):  # polars
        return table.columns, table.get_columns(), False
    elif hasattr(kind, "columns") and hasattr(kind, "items"):  # pandas
        names, dtypes = [str(name) for name in table.columns], {*table.dtypes} if hasattr(kind, "dtypes") else {None}
        if len(dtypes) == 1 and isinstance(dtype := dtypes.pop(), np.dtype) and dtype.kind in "fiu":
            return names, list(table.to_numpy().T), False  # in a tenth of the time that its columns take one by one
        return names, [column for _, column in table.items()], False
    else:
        return None, (), False
    return [str(name) for name in table], [[value] if single else value for value in table.values()], single


def _is_named(row: Any) -> bool:
    return hasattr(type(row), "_asdict")


def _values(column: Any, what: str, error: type[InvalidInput]) -> Values:
    values = column if type(column) in (np.ndarray, list) else _converted(column)
    if isinstance(values, np.ndarray) and values.ndim == 1:
        return values if values.dtype.kind in "fiubMm" else values.tolist()
    if not isinstance(values, list):
        raise error(f"{what} must hold one value for each row, in a list or an array; got {shown(column)}.")
    return values


def _converted(column: Any) -> Any:
    """Return the values of a column of pandas, polars or pyarrow, or of any sequence."""
    if hasattr(type(column), "to_pylist"):  # pyarrow, whose whole numbers would become floats beside a gap
        arrays = {"double", "float", "timestamp[ns]"} | ({"int64"} if not column.null_count else set())
        return np.asarray(column) if str(column.type) in arrays else column.to_pylist()
    column = getattr(column, "array", column)  # a Series of pandas
    kind, name = type(column), str(getattr(column, "dtype", ""))
    if hasattr(kind, "codes"):  # `tolist` of pandas' categories takes ten times as long; the code of a gap is −1
        names = [*column.categories.tolist(), None]
        return [names[code] for code in column.codes.tolist()]
    if hasattr(kind, "isna") and re.fullmatch(r"(float|double)\d*(\[pyarrow\])?", name, re.IGNORECASE):
        return column.to_numpy(dtype=float, na_value=np.nan)
    if re.fullmatch(r"datetime64\[\w+\]|Datetime\(time_unit='ns', time_zone=None\)", name):
        return np.asarray(column)
    if method := next((name for name in ("to_list", "tolist") if hasattr(kind, name)), None):
        return getattr(column, method)()
    return column if isinstance(column, str | bytes | Mapping) or not isinstance(column, Iterable) else list(column)


OF_ONE_KIND = "a number, a boolean, text or a date, the same in all rows"
IN_SAMPLE = "a number or a boolean, as in the sample"


class WrongValue(ValueError):
    """A row, its value, and what its column must be."""


@dataclass(frozen=True)
class Column:
    """A fitted column."""

    name: str
    kind: ColumnKind
    gaps: bool  # whether the sample had gaps, which are marked then
    median: float = 0.0  # the median of numbers, or of dates in days since 1970
    cycles: tuple[str, ...] = ()  # the cycles of a date
    values: tuple[str, ...] = ()  # the values of a category, in order
    buckets: int = 0
    zone: str = ""  # of dates with a time: its name, or minutes ahead of UTC; "" for none, or several

    @classmethod
    def fit(cls, name: str, values: Values, kind: ColumnKind | None, max_categories: int, buckets: int) -> Column:
        """Return the column fitted to a sample; without a kind it has that of its first value that is not a gap."""
        stated = [value for value in values if not is_gap(value)]
        gaps = len(stated) < len(values)
        if not len(values):
            raise InvalidContexts(f"the sample must have a row; column {name!r} has none.")
        if not stated:
            rule = f"column {name!r} of the sample must have a value; all are gaps"
            raise InvalidContexts(f"{rule}. Give ignore=[{name!r}] (--ignore {name}).")
        kind = _kind_of(name, values, max_categories) if kind is None else kind
        check_choice(f"the kind of {name!r}", kind, ColumnKind)
        if kind == "hash" and len(stated) == len({*map(key_of, stated)}):
            event = f"column {name!r}: all {len(stated)} values differ, as ids do, which say nothing about new rows."
            warnings.warn(
                f"{event} Leave it out with ignore=[{name!r}] (--ignore {name}) if it is one.",
                ContextsWarning,
                stacklevel=5,
            )
        if kind == "number":
            return cls(name, kind, gaps, median=float(np.nanmedian(_numbers(values))))
        if kind == "date":
            days, zones = _days(values), {*map(zone_of, values if isinstance(values, list) else ())} - {None}
            times = bool((days[~np.isnan(days)] % 1 != 0).any())
            zone = str(zones.pop()) if len(zones) == 1 else ""
            return cls(name, kind, gaps, float(np.nanmedian(days)), tuple(CYCLES)[: 2 + times], zone=zone)
        if kind == "category":
            return cls(name, kind, gaps, values=tuple(sorted({key for key in map(key_of, values) if key is not None})))
        return cls(name, kind, gaps, buckets=buckets)

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> Column:
        """Return the column of these fields; raise InvalidInput for one that `fit` does not make."""
        fields: Any = {name: tuple(each) if isinstance(each, list) else each for name, each in description.items()}
        column, usual = cls(**fields), cls("", "number", False)
        check_choice("the kind of a column", column.kind, ColumnKind)
        try:
            zone_named(column.zone)
        except (KeyError, ValueError, OverflowError, TypeError, OSError):
            raise InvalidInput(
                f"the time zone of a column must be known on this machine; got {column.zone!r}."
            ) from None
        if (
            any(type(value) is not type(getattr(usual, name)) for name, value in vars(column).items())
            or column.cycles != tuple(CYCLES)[: len(column.cycles)]
            or not all(type(value) is str for value in column.values)
            or not math.isfinite(column.median)
            or column.buckets < 0
            or bool(column.buckets) != (column.kind == "hash")
        ):
            raise InvalidInput(f"a column must be one that FrameEncoder.fit made; got {shown(description)}.")
        return column

    @property
    def size(self) -> int:
        """How many numbers it becomes: counted before they have names, because a file may say anything."""
        own = {"number": 0, "date": 2 * len(self.cycles), "category": len(self.values), "hash": self.buckets}
        return own[self.kind] + 1 + self.gaps

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the numbers that it becomes."""
        parts = [f"{part} of {cycle}" for cycle in self.cycles for part in ("sine", "cosine")]
        names = {
            "number": [self.name],
            "date": [f"{self.name} ({part})" for part in ("days", *parts)],
            "category": [*(f"{self.name}={value}" for value in self.values), f"{self.name} (unknown)"],
            "hash": [*(f"{self.name}#{bucket}" for bucket in range(self.buckets)), f"{self.name} (unknown)"],
        }[self.kind]
        return (*names, f"{self.name} (missing)") if self.gaps else tuple(names)

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of a value: categories are examples, because others are taken as unknown."""
        types = {"number": ["number", "boolean", "null"], "date": ["string", "null"]}
        out: dict[str, Any] = {"type": types.get(self.kind, ["string", "number", "boolean", "null"])}
        if self.kind == "date":
            out["description"] = "ISO 8601"
        return out | ({"examples": list(self.values)} if self.values else {})

    def encode(self, values: Values, out: Array) -> str | None:
        """Write (n, len(names)) numbers over zeros, NaN in the first for a gap to fill; name a value not known."""
        if self.kind == "number":
            known = type(values) is np.ndarray and values.dtype.kind == "f"
            out[:, 0] = values if known else _numbers(values, IN_SAMPLE)
            return None
        if self.kind == "date":
            days = _days(values, self.zone)
            out[:, 0] = days - self.median
            for place, cycle in enumerate(self.cycles):
                angle = 2 * math.pi / CYCLES[cycle] * days
                out[:, 1 + 2 * place], out[:, 2 + 2 * place] = np.sin(angle), np.cos(angle)
            return None
        keys = [value if type(value) is str or value is None else key_of(value) for value in values]
        unknown = len(self.values) + self.buckets
        if self.kind == "hash":
            codes = [out.shape[1] - 1 if key is None else bucket_of(key, self.buckets) for key in keys]
        else:
            places = self.places
            codes = [places.get(key, unknown) for key in keys]
        out[np.arange(len(codes)), codes] = 1.0
        return shown(values[codes.index(unknown)]) if unknown in codes else None

    @cached_property
    def places(self) -> dict[str | None, int]:
        """Which of its numbers is 1 for a value of a category, or for a gap."""
        return {value: place for place, value in enumerate(self.values)} | {None: len(self.names) - 1}

    def fill(self, part: Array, gaps: Any) -> None:
        """Replace rows of NaN."""
        part[gaps] = 0.0
        part[gaps, -1] = self.gaps
        if self.kind == "number":
            part[gaps, 0] = self.median


def plain_of(value: Any) -> Any:
    """Return a value as JSON has it, which is encoded as the value is; raise ValueError for any other.

    >>> [plain_of(value) for value in (np.float32(0.5), np.int8(3), math.nan, dt.date(2031, 5, 17), "Ulm")]
    [0.5, 3, None, '2031-05-17', 'Ulm']
    """
    if is_gap(value):
        return None
    if isinstance(value, np.datetime64):
        return str(value)
    if isinstance(value, dt.timedelta | np.timedelta64):
        return _number(0, value)
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, str):
        value.encode()  # raises for half a character
    elif not isinstance(value, int | float | Decimal) or not -LARGEST < value < LARGEST:
        raise ValueError("JSON has no such value")
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value


def _kind_of(name: str, values: Values, max_categories: int) -> ColumnKind:
    if isinstance(values, np.ndarray):
        return "date" if values.dtype.kind == "M" else "number"
    row, value = next((row, value) for row, value in enumerate(values) if not is_gap(value))
    if isinstance(value, str):
        texts = {key for key in map(key_of, values) if key is not None}
        others = [text for text in texts if not _is_day(text)]
        if not others:
            return "date"
        if 2 * len(others) < len(texts):
            event = (
                f"column {name!r}: text is a date if all of it is; {shown(min(others))} is none, so it is a category"
            )
            warnings.warn(f"{event}. Give None for a date that is not known.", ContextsWarning, stacklevel=6)
        return "hash" if len(texts) > max_categories else "category"
    if isinstance(value, dt.date | np.datetime64):
        return "date"
    _number(row, value, OF_ONE_KIND)
    return "number"


def _is_day(text: str) -> bool:
    """Return whether a text is a date as files have them; 20310517 may as well be a number, and 2031-05-17-03 an id.

    >>> [_is_day(text) for text in ("2031-05-17", "2031-05-17T08:30:00+02:00")]
    [True, True]
    >>> [_is_day(text) for text in ("2031-05", "2031-13-01", "20310517", "2031-05-17-03")]
    [False, False, False, False]
    """
    try:
        return bool(re.fullmatch(r"\d{4}-\d\d-\d\d([T ]\d\d:.*)?", text) and dt.datetime.fromisoformat(text))
    except ValueError:
        return False


@lru_cache(maxsize=2**16)
def bucket_of(text: str, buckets: int) -> int:
    """Return the bucket of a text, the same in every process and on every machine.

    >>> bucket_of("Ulm", 64), bucket_of("Bonn", 64)
    (41, 61)
    """
    return int.from_bytes(blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), "big") % buckets


def key_of(value: Any) -> str | None:
    """Return a value as text, None for a gap, whichever type a library gives to the number.

    Libraries turn whole numbers into floats where a column has gaps.

    >>> [key_of(value) for value in (2, np.float32(2), Decimal("2.00"), np.float16(0.5), Decimal("0.50"), 2**53 + 1)]
    ['2', '2', '2', '0.5', '0.5', '9007199254740993']
    """
    if is_gap(value):
        return None
    if isinstance(value, Decimal):
        near, whole = float(value), value.to_integral_value()
        value = near if Decimal(repr(near)) == value else whole if whole == value else value
    elif isinstance(value, np.floating):
        value = float(value)
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _numbers(values: Values, wanted: str = OF_ONE_KIND) -> Array:
    """Return numbers as they are, durations in days, and NaN for gaps."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiub":
        return values
    if isinstance(values, np.ndarray) and values.dtype.kind == "m":
        return _in_days(values)
    if {*map(type, values)} <= {float}:
        return np.array(values)
    return np.array([_number(row, value, wanted) for row, value in enumerate(values)])


def _number(row: int, value: Any, wanted: str = IN_SAMPLE) -> float:
    if is_gap(value):
        return math.nan
    if isinstance(value, dt.timedelta):
        return value / dt.timedelta(days=1)
    if isinstance(value, np.timedelta64):
        return float(_in_days(np.array([value]), row)[0])
    if isinstance(value, int | float | Decimal | np.bool_ | np.integer | np.floating):
        return float(value) if not isinstance(value, int) else as_number(int(value))
    raise WrongValue(row, value, wanted)


def _days(values: Values, zone: str = "") -> Array:
    """Return dates as days since 1970 in a zone, NaN for gaps."""
    if not (isinstance(values, np.ndarray) and values.dtype.kind == "M"):
        values = np.array([_date(row, value, zone) for row, value in enumerate(values)], "datetime64[us]")
    unit: Any = np.datetime_data(values.dtype)[0]
    return _in_days(values - np.datetime64(0, unit if unit in FINEST else "s"))


def _in_days(values: NDArray[Any], row: int = 0) -> Array:
    """Return durations in days, NaN for gaps; `row` is that of the first."""
    unit: Any = np.datetime_data(values.dtype)[0]
    if unit in ("Y", "M"):
        raise WrongValue(row, values[0], "of durations that have a fixed length, weeks or less")
    return np.asarray(values / np.timedelta64(1, unit) / FINEST[unit] if unit in FINEST else values / DAY)


def _date(row: int, value: Any, zone: str = "") -> Any:
    """Return a date as it is in a zone, without it."""
    value = _read(value)
    if isinstance(value, dt.datetime) and not is_gap(value):
        moved = value.tzinfo is not None and zone and zone != zone_of(value)
        return (value.astimezone(zone_named(zone)) if moved else value).replace(tzinfo=None)
    if is_gap(value) or isinstance(value, dt.date | np.datetime64):
        return None if is_gap(value) else value
    raise WrongValue(row, value, "a date, a date with a time, either as a text like 2031-05-17, or None")


def _read(value: Any) -> Any:
    """Return the date of a text, as JSON has them; anything else as it is."""
    try:
        return dt.datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        return value


def zone_of(value: Any) -> str | None:
    """Return the zone of a date with a time, as `Column.zone` has it; "" if it has none, None for a gap.

    >>> zone_of("2031-05-17T08:30:00+02:00"), zone_of("2031-05-17"), zone_of(None)
    ('120', '', None)
    """
    value = _read(value)
    if is_gap(value):
        return None
    zone: Any = getattr(value, "tzinfo", None)
    ahead = None if zone is None else value.utcoffset()
    if ahead is None:
        return ""
    return str(getattr(zone, "key", None) or getattr(zone, "zone", None) or ahead // dt.timedelta(minutes=1))


def zone_named(name: str) -> dt.tzinfo | None:
    """Return the zone of this name, or so many minutes ahead of UTC; None for ""."""
    if re.fullmatch(r"-?\d+", name):
        return dt.timezone(dt.timedelta(minutes=int(name)))
    return ZoneInfo(name) if name else None
