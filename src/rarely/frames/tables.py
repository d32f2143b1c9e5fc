"""What a policy's tables are, and how a round's rows become contexts.

users and items   a round is one user and K items; every number of the one is crossed with every number of the other
                  (`ArmBlocks` of content arms), so the policy learns which users like which items
users and arms    a round is one user and K arms with names, each with weights of its own
items             a round is K items, and nothing is known about the user
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from rarely.extend import ArmBlocks, Array, Interval
from rarely.extend.checks import InvalidContexts, InvalidInput, InvalidWorth, is_whole, read_real, shown
from rarely.extend.provisional import Layout, worth_from
from rarely.frames.columns import is_gap, plain_of, read_table, snapshot
from rarely.frames.encoder import FrameEncoder


class TableRound(NamedTuple):
    """One round that was asked by columns."""

    sent: dict[str, Any]  # what came, as JSON
    numbers: Array  # (r + K·m,): the numbers of the user, then of every item
    arms: int
    names: tuple[str, ...] | None = None  # of the arms, or what the key says of the items
    unseen: tuple[str, ...] = ()  # columns with a value or a gap that the sample did not have


@dataclass(frozen=True, eq=False)
class FrameTables:
    """The encoders of users and items, or the names of the arms, and how `ArmBlocks` joins them.

    Examples
    --------
    >>> tables = FrameTables(FrameEncoder.fit({"age": [20, 40]}), arms=("tea", "rum"))
    >>> tables.contexts({"age": 30}).shape, tables.settings["dim"]
    ((2, 4), 4)
    """

    users: FrameEncoder | None = None
    items: FrameEncoder | None = None
    arms: tuple[str, ...] = ()
    layout: Layout | None = None
    key: str | None = None  # the column of items that names them, which is not read
    doses: Interval | None = None  # the interval whose points are the arms

    def __post_init__(self) -> None:
        if isinstance(self.arms, Interval):
            object.__setattr__(self, "doses", replace(self.arms, rows=None))
        if self.doses is not None:
            object.__setattr__(self, "arms", self.doses.names)
        object.__setattr__(self, "arms", _arm_names(self.arms))
        _ = self.blocks  # refuses what does not go together

    @cached_property
    def blocks(self) -> ArmBlocks | Interval | None:
        """What makes contexts of rows; None where items alone are the contexts."""
        if (self.items is None) != bool(self.arms) or (self.users is None and self.items is None):
            raise InvalidInput(
                "a policy must choose among rows of items, or for users among arms with names, not both. Without any "
                "table, LinTS(dim=K, intercept=False) has K arms: policy.select(np.eye(K))."
            )
        if self.key is not None and (self.items is None or self.key not in self.items.ignore):
            raise InvalidInput(f"key must be a column of items that is not read; got {shown(self.key)}.")
        if self.users is None:
            return None
        if self.doses is not None:
            return replace(self.doses, rows=self.users.scale)
        rows, features = replace(self.users.scale, constant=True), None if self.items is None else self.items.scale
        layout = self.layout or ("disjoint" if self.arms else "bilinear")
        return ArmBlocks(len(self.arms) or None, rows, layout, features)

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments of a policy that its tables determine."""
        if self.blocks is not None:
            return self.blocks.settings
        assert self.items is not None
        return {"dim": len(self.items.names), "context_scale": replace(self.items.scale, constant=True)}

    def contexts(self, users: Any = None, items: Any = None) -> Any:
        """Return what a policy decides on: (K, d), (n, K, d), or a list of (K_i, d) if rounds have own items.

        Parameters
        ----------
        users
            One user, as a dict or a row, for one round; a table for as many rounds as it has rows.
        items
            A table: the arms of each round; or a list of tables, one for each round. What `policy.items(table)`
            returned may be given instead of the table, and is not encoded again.
        """
        for name, table in (("users", users), ("items", items)):
            if (table is None) != (getattr(self, name) is None):
                raise InvalidContexts(f"{name} must {'not ' if table is not None else ''}be given to this policy.")
        rows = self.rows(users)
        if not isinstance(items, list | tuple) or {*map(type, items)} <= {dict}:
            return self.placed(rows, self.features(items))
        if rows is not None and rows.shape[:-1] != (len(items),):
            raise InvalidContexts(f"{len(items)} tables of items need as many users; got {rows.shape[:-1] or 'one'}.")
        return [self.placed(None if rows is None else rows[i], self.features(each)) for i, each in enumerate(items)]

    def rows(self, users: Any) -> Any:
        """Return the numbers of users; None where there is no such table."""
        return None if self.users is None else self.users(users, "users")

    def features(self, items: Any) -> Any:
        """Return the numbers of items, which may be those already; None where there is no such table."""
        if self.items is None or isinstance(items, np.ndarray):
            return items
        table, before, numbers = self.__dict__.get("_kept", (None, None, None))
        now = snapshot(items)
        if now is None or table is not items or before != now:
            numbers = self.items(items, "items")
            numbers.flags.writeable = False
            object.__setattr__(self, "_kept", (items, now, numbers))  # in one step: others may decide meanwhile
        return numbers

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the items that were encoded last, for `pickle` and `copy`."""
        return {name: value for name, value in self.__dict__.items() if name != "_kept"}

    def placed(self, rows: Any, features: Any) -> Array:
        """Return the contexts that numbers of users and items make."""
        return np.atleast_2d(features) if self.blocks is None else self.blocks(rows, features)

    def worth(self, worth: Any, items: Any) -> Any:
        """Return a worth with numbers in the place of columns of items that it names; a list of items has a list."""
        if worth is None:
            return None
        asked = worth_from(worth).of_arms(self.arms)
        named = {name: value for name in asked.__slots__ if isinstance(value := getattr(asked, name), str)}
        if named and (items is None or isinstance(items, np.ndarray)):
            raise InvalidWorth(f"{next(iter(named.values()))!r} must be a column of items, which came without columns.")
        if isinstance(items, list | tuple) and not all(isinstance(item, dict) for item in items):
            return replace(asked, **{name: [_worths(each, value) for each in items] for name, value in named.items()})
        return replace(asked, **{name: _worths(items, value) for name, value in named.items()})

    # --- rounds on record: what came, as JSON, and the numbers that it became

    def asked(self, sent: Any) -> TableRound:
        """Return one round that was asked by columns: `sent` is {"user": one row, "items": a table}, or one of both."""
        wanted = self._encoders()
        if not isinstance(sent, Mapping) or {name for name in sent if sent[name] is not None} != {*wanted}:
            came = ", ".join(map(str, sent)) if isinstance(sent, Mapping) else shown(sent)
            raise InvalidContexts(f"a round must be asked by the columns of {' and '.join(wanted)}; got {came}.")
        plain = {name: plain_rows(sent[name], name) for name in wanted}
        if "user" in wanted and len(plain["user"]) != 1:
            raise InvalidContexts(f"user must be one row; got {len(plain['user'])}.")
        unseen: set[str] = set()
        parts = [encoder(plain[name], name, unseen) for name, encoder in wanted.items()]
        arms = len(self.arms) or len(plain["items"])
        said = {name: rows[0] if name == "user" else rows for name, rows in plain.items()}
        names = self.arms or self._names(plain.get("items", []))
        return TableRound(said, np.concatenate([part.ravel() for part in parts]), arms, names, tuple(sorted(unseen)))

    def _names(self, items: list[dict[str, Any]]) -> tuple[str, ...] | None:
        """Return what the key says of each item."""
        if self.key is None:
            return None
        names: tuple[Any, ...] = tuple(row.get(self.key) for row in items)
        for place, name in enumerate(names):
            if not isinstance(name, str) or not name:
                raise InvalidContexts(f"column {self.key!r} of items must be text; row {place} has {shown(name)}.")
            if name in names[:place]:
                raise InvalidContexts(
                    f"column {self.key!r} of items must name each once; row {place} has {name!r} again."
                )
        return names

    def fits(self, said: dict[str, Any], numbers: Array) -> bool:
        """Return whether these encoders make these numbers, up to their last digits, of what was said."""
        made = self.asked(said).numbers
        return made.shape == numbers.shape and bool(np.allclose(made, numbers, 1e-12, 1e-12))

    def round_contexts(self, numbers: Array, arms: int) -> Array:
        """Return the (K, d) contexts of a round with these numbers."""
        width = 0 if self.users is None else len(self.users.names)
        features = None if self.items is None else numbers[width:].reshape(arms, -1)
        return self.placed(numbers[:width] if width else None, features)

    def _encoders(self) -> dict[str, FrameEncoder]:
        both = {"user": self.users, "items": self.items}
        return {name: encoder for name, encoder in both.items() if encoder is not None}

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of what `asked` takes."""
        rows = {name: encoder.schema() for name, encoder in self._encoders().items()}
        if "items" in rows:
            rows["items"] = {"type": "array", "minItems": 1, "items": rows["items"]}
        return {"type": "object", "properties": rows, "required": list(rows)}

    def describe(self) -> dict[str, Any]:
        """Return the tables as JSON: each column with its kind, and what stands for its gaps."""
        users, items = (None if table is None else table.describe() for table in (self.users, self.items))
        said = {"users": users, "items": items, "arms": list(self.arms), "layout": self.layout, "key": self.key}
        return said if self.doses is None else said | {"doses": self.doses.describe()}

    @classmethod
    def from_description(cls, saved: dict[str, Any]) -> FrameTables:
        """Return the tables that `describe` described."""
        users, items = (saved[n] and FrameEncoder.from_description(saved[n]) for n in ("users", "items"))
        doses = Interval.from_description(saved["doses"]) if "doses" in saved else None
        return cls(users, items, saved["arms"], saved["layout"], saved["key"], doses)


def _arm_names(arms: Any) -> tuple[str, ...]:
    """Return the names of arms, given as text or whole numbers, or as their number."""
    arms = arms.tolist() if hasattr(arms, "tolist") else arms
    named: Any = [str(name) if is_whole(name) else name for name in (range(arms) if is_whole(arms) else arms or ())]
    ordered = not isinstance(arms, str | Set | Mapping) and all(isinstance(name, str) and name for name in named)
    if not ordered or len({*named}) < len(named):
        raise InvalidInput(f"arms must be a list of different names; got {shown(arms)}.")
    return tuple(named)


def _worths(items: Any, column: str) -> Array:
    """Return a column of items as numbers."""
    columns = read_table(items, "items").columns
    if column not in columns:
        raise InvalidWorth(f"items must have the column {column!r} of a worth; the columns are {', '.join(columns)}.")
    values = [math.nan if is_gap(value) else value for value in columns[column]]
    numbers = read_real(values, f"column {column!r} of items", InvalidWorth)
    if np.isnan(numbers).any():
        row = int(np.isnan(numbers).argmax())
        raise InvalidWorth(
            f"column {column!r} of items must have a number for a worth in each row; row {row} has none."
        )
    return numbers


def plain_rows(table: Any, what: str) -> list[dict[str, Any]]:
    """Return the rows of a table as JSON."""
    columns: dict[str, list[Any]] = {}
    for name, values in read_table(table, what).columns.items():
        plain = columns[name] = []
        for row, value in enumerate(values):
            try:
                plain.append(plain_of(value))
            except ValueError:
                raise InvalidContexts(
                    f"column {name!r} of {what} must be finite numbers, booleans, text or dates, as JSON has them; row "
                    f"{row} has {shown(value)}."
                ) from None
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def encoder_of(table: Any, ignore: Sequence[str]) -> FrameEncoder | None:
    """Return the encoder given, or that of a sample without those of the columns to ignore that it has."""
    if table is None or isinstance(table, FrameEncoder):
        return table
    columns = read_table(table, "the sample").columns if ignore else ()
    return FrameEncoder.fit(table, ignore=[name for name in ignore if name in columns])
