"""The rows of a table as numbers, column by column, under names that lead back to the table."""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from rarely.extend import Affine, Array
from rarely.extend.checks import (
    ContextsWarning,
    InvalidContexts,
    InvalidInput,
    TooExpensive,
    check_whole,
    nearest,
    shown,
)
from rarely.extend.provisional import all_finite
from rarely.frames.columns import Column, ColumnKind, Table, WrongValue, bucket_of, read_table

MAX_NUMBERS = 2**16  # numbers that a row may become
MAX_CELLS = 2**31  # numbers that a table may become: 16 GiB


@dataclass(frozen=True, eq=False)
class FrameEncoder:
    """How the columns of a table become numbers, as `rarely.frames.columns` says; `fit` finds it from a sample.

    Examples
    --------
    >>> encoder = FrameEncoder.fit({"age": [20, None, 40], "town": ["Ulm", "Bonn", "Ulm"]})
    >>> encoder.names
    ('age', 'age (missing)', 'town=Bonn', 'town=Ulm', 'town (unknown)')
    >>> encoder({"age": [None, 25], "town": ["Bonn", "Ulm"]})
    array([[30.,  1.,  1.,  0.,  0.],
           [25.,  0.,  0.,  1.,  0.]])
    >>> encoder({"age": 50, "town": "Ulm"})
    array([50.,  0.,  0.,  1.,  0.])
    """

    columns: tuple[Column, ...]
    scale: Affine
    """It standardises the numbers as the sample had them; its center is the average row."""
    ignore: tuple[str, ...] = ()
    """Columns that may be there and are not read."""
    _announced: set[tuple[str, bool]] = field(default_factory=set, repr=False)

    @classmethod
    def fit(
        cls,
        frame: Any,
        *,
        kinds: Mapping[str, ColumnKind] | None = None,
        ignore: Iterable[str] = (),
        max_categories: int = 32,
        buckets: int = 64,
    ) -> FrameEncoder:
        """Return the encoder of tables like this sample: a log, last month's users, or those of the first rounds.

        Raises `InvalidContexts` if a column has values of several kinds, or only gaps.

        Parameters
        ----------
        frame
            A frame of pandas, polars or pyarrow, a dict of columns, or a list of dicts.
        kinds
            "number", "date", "category" or "hash" for columns whose kind their values do not show, such as a postcode
            that is a number. Text of the kind "date" is read as ISO 8601.
        ignore
            Columns that are not read, such as ids.
        max_categories, buckets
            Text of more values than `max_categories` is hashed into so many `buckets`, one number each.
        """
        check_whole("max_categories", max_categories, 1)
        check_whole("buckets", buckets, 2)
        if isinstance(ignore, str) or not isinstance(ignore, Iterable) or not isinstance(kinds, Mapping | None):
            raise InvalidInput(f"ignore must be a list of columns, kinds a dict; got {shown(ignore)}, {shown(kinds)}.")
        table, named, left_out = read_table(frame, "the sample"), dict(kinds or {}), tuple(map(str, ignore))
        _check_names((*named, *left_out), table.columns, "the sample must have the column")
        read = {name: values for name, values in table.columns.items() if name not in left_out}
        columns: tuple[Column, ...] = ()
        for name, values in read.items():
            try:
                columns += (Column.fit(name, values, named.get(name), max_categories, buckets),)
            except WrongValue as error:
                raise _refusal(error, name, "the sample") from None
        if not columns:
            raise InvalidContexts("a table must have at least one column that is not ignored; the sample has none.")
        new = cls(columns, Affine.identity(1), left_out)
        scale = Affine.fit(new._encoded(table, "the sample"), constant=False)
        # A sample of one day must not blow up the cycles of which it shows a small part.
        least = [(column.kind == "date") * 0.5 * math.sqrt(scale.dim) for column in columns for _ in column.names]
        return replace(new, scale=replace(scale, spread=np.maximum(scale.spread, least)))

    def __post_init__(self) -> None:
        size, widest = sum(column.size for column in self.columns), max(self.columns, key=lambda column: column.size)
        if size > MAX_NUMBERS:
            raise TooExpensive(
                f"a row must become at most {MAX_NUMBERS:,} numbers; these columns make {size:,}, most of them "
                f"{widest.name!r}. Give ignore=[{widest.name!r}], or fewer max_categories or buckets."
            )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the numbers, such as 'age', 'age (missing)' and 'town=Ulm'."""
        return tuple(name for column in self.columns for name in column.names)

    @cached_property
    def slices(self) -> dict[str, slice]:
        """Which of the numbers each column becomes, by its name."""
        ends = np.cumsum([len(column.names) for column in self.columns]).tolist()
        return {c.name: slice(end - len(c.names), end) for c, end in zip(self.columns, ends, strict=True)}

    def __repr__(self) -> str:
        listed = ", ".join(f"{column.name}: {column.kind}" for column in self.columns)
        return f"<FrameEncoder: {listed}; {len(self.names)} numbers>"

    def __call__(self, frame: Any, what: str = "the table", unseen: set[str] | None = None) -> Array:
        """Return the numbers of n rows, (n, d), or of a single row, (d,); `what` names the table in errors.

        A `ContextsWarning` announces, once for each column, a value or a gap that the sample did not have. Where
        `unseen` is given, the column goes there instead.
        """
        if type(frame) is dict and (row := self._row(frame)) is not None:
            return row
        table = read_table(frame, what)
        out = self._encoded(table, what, unseen)
        return out[0] if table.single else out

    @cached_property
    def _plan(self) -> tuple[tuple[str, int, dict[str | None, int] | None, int], ...] | None:
        """Of each column its name, where its numbers begin, the places of a category, and buckets; None with dates."""
        starts = [place.start for place in self.slices.values()]
        if any(column.kind == "date" for column in self.columns):
            return None
        return tuple(
            (column.name, start, column.places if column.kind == "category" else None, column.buckets)
            for column, start in zip(self.columns, starts, strict=True)
        )

    def _row(self, row: dict[Any, Any]) -> Array | None:
        """Return the numbers of one row of known values without gaps; None for any other row."""
        plan = self._plan
        if plan is None or len(row) != len(plan):
            return None
        numbers = [0.0] * len(self.names)
        for name, start, places, buckets in plan:
            value = row.get(name)
            if type(value) is str and places is not None:
                place = places.get(value)
                if place is None:
                    return None
                numbers[start + place] = 1.0
            elif type(value) is str and buckets:
                numbers[start + bucket_of(value, buckets)] = 1.0
            elif type(value) is float and places is None and not buckets and math.isfinite(value):
                numbers[start] = value
            else:
                return None
        return np.array(numbers)

    def transform(self, frame: Any) -> Array:
        """Return the numbers of n rows, (n, d), of a table that may have other columns besides, as a log has."""
        table = read_table(frame, "the table")
        read = {name: values for name, values in table.columns.items() if name in self.slices}
        return self._encoded(table._replace(columns=read), "the table")

    def _encoded(self, table: Table, what: str, unseen: set[str] | None = None) -> Array:
        if table.columns.keys() != self.slices.keys():
            _check_names(self.slices, table.columns, f"{what} must have the column")
            _check_names(table.columns, (*self.slices, *self.ignore), f"{what} must not have the column")
        if table.rows * len(self.names) > MAX_CELLS:
            raise TooExpensive(
                f"{what} must become at most {MAX_CELLS:,} numbers; {table.rows:,} rows of {len(self.names):,} are "
                "more. Take fewer rows at a time, or fewer max_categories or buckets."
            )
        out = np.zeros((table.rows, len(self.names)))
        for column, place in zip(self.columns, self.slices.values(), strict=True):
            try:
                unknown = column.encode(table.columns[column.name], out[:, place])
            except WrongValue as error:
                raise _refusal(error, column.name, what) from None
            if unknown is not None:
                self._announce(column, f"{unknown} was not in the sample, and counts as unknown", unseen)
        if not all_finite(out):
            self._fill(out, what, unseen)
        return out

    def _fill(self, out: Array, what: str, unseen: set[str] | None) -> None:
        """Fill the gaps, which are NaN; raise InvalidContexts for infinite numbers."""
        for column, place in zip(self.columns, self.slices.values(), strict=True):
            part = out[:, place]
            gaps = np.isnan(part[:, 0])
            if gaps.any():
                column.fill(part, gaps)
                if not column.gaps:
                    event = "a gap is filled in and not marked, because the sample had none"
                    self._announce(column, event, unseen)
            if not all_finite(part):
                row = int(np.flatnonzero(~np.isfinite(part).all(axis=1))[0])
                raise InvalidContexts(f"column {column.name!r} of {what} must be finite; row {row} has {part[row, 0]}.")

    def _announce(self, column: Column, event: str, unseen: set[str] | None) -> None:
        if unseen is not None:
            unseen.add(column.name)
            return
        kind = (column.name, event.startswith("a gap"))
        if kind not in self._announced:
            warnings.warn(f"column {column.name!r}: {event}. This is said once.", ContextsWarning, stacklevel=6)
            self._announced.add(kind)  # only now: a warning may be turned into an error

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of one row."""
        return {
            "type": "object",
            "properties": {column.name: column.schema() for column in self.columns},
            "required": [column.name for column in self.columns],
        }

    def describe(self) -> dict[str, Any]:
        """Return the encoder as JSON, for `from_description`."""
        columns = [asdict(column) for column in self.columns]
        return {"columns": columns, "scale": self.scale.describe(), "ignore": list(self.ignore)}

    @classmethod
    def from_description(cls, description: dict[str, Any]) -> FrameEncoder:
        """Return the encoder that `describe` described."""
        columns = tuple(map(Column.from_description, description["columns"]))
        encoder = cls(columns, Affine(**description["scale"]), tuple(description["ignore"]))
        if encoder.scale.dim != len(encoder.names):
            raise InvalidInput(
                f"a scale must have {len(encoder.names)} numbers as its columns; got {encoder.scale.dim}."
            )
        return encoder


def _check_names(wanted: Iterable[str], columns: Collection[str], rule: str) -> None:
    """Raise InvalidContexts for a name that no column has, with the nearest that one has."""
    for name in wanted:
        if name not in columns:
            raise InvalidContexts(
                f"{rule} {name!r}; the columns are {', '.join(columns)}. {nearest(name, columns)}Leave out columns "
                "that do not matter with FrameEncoder.fit(frame, ignore=[…])."
            )


def _refusal(error: WrongValue, column: str, what: str) -> InvalidContexts:
    row, value, wanted = error.args
    return InvalidContexts(
        f"column {column!r} of {what} must be {wanted}; row {row} has {shown(value)}. Convert it, or say what it is: "
        f"FrameEncoder.fit(frame, kinds={{{column!r}: 'category'}})."
    )
