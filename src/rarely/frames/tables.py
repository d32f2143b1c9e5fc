"""What a policy's tables are, and how a round's rows become contexts.

users and items   a round is one user and K items; every number of the one is crossed with every number of the other
                  (`ArmBlocks` of content arms), so the policy learns which users like which items
users and arms    a round is one user and K arms with names, each with weights of its own
items             a round is K items, and nothing is known about the user
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from rarely.extend import ArmBlocks, Array
from rarely.extend.checks import InvalidContexts, InvalidInput, shown
from rarely.extend.provisional import Layout
from rarely.frames.columns import read_table
from rarely.frames.encoder import FrameEncoder


@dataclass(frozen=True, eq=False)
class FrameTables:
    """The encoders of users and items, or the names of the arms, and how `ArmBlocks` joins them.

    Examples
    --------
    >>> tables = FrameTables.fit({"age": [20, 40]}, None, arms=["tea", "rum"])
    >>> tables.contexts({"age": 30}).shape, tables.settings["dim"]
    ((2, 4), 4)
    """

    users: FrameEncoder | None = None
    items: FrameEncoder | None = None
    arms: tuple[str, ...] = ()
    layout: Layout | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "arms", self.arms if isinstance(self.arms, str) else tuple(self.arms))
        _ = self.blocks  # refuses what does not go together

    @classmethod
    def fit(
        cls,
        users: Any,
        items: Any,
        *,
        arms: Sequence[str] = (),
        ignore: Sequence[str] = (),
        layout: Layout | None = None,
    ) -> FrameTables:
        """Return the value for tables like these samples; see `FramePolicy.fit`."""
        return cls(_encoder(users, ignore), _encoder(items, ignore), arms, layout)  # type: ignore[arg-type]

    @cached_property
    def blocks(self) -> ArmBlocks | None:
        """What makes contexts of rows; None where items alone are the contexts."""
        if isinstance(self.arms, str) or len({*self.arms}) < len(self.arms):
            raise InvalidInput(f"arms must be a list of different names; got {shown(self.arms)}.")
        if (self.items is None) != bool(self.arms) or (self.users is None and self.items is None):
            raise InvalidInput(
                "a policy must choose among rows of items, or for users among arms with names, not both."
            )
        if self.users is None:
            return None
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
        self.check_given(users, items)
        rows = self.rows(users)
        if not isinstance(items, list | tuple) or all(isinstance(item, dict) for item in items):
            return self.placed(rows, self.features(items))
        if rows is not None and rows.shape[:-1] != (len(items),):
            raise InvalidContexts(f"{len(items)} tables of items need as many users; got {rows.shape[:-1] or 'one'}.")
        return [self.placed(None if rows is None else rows[i], self.features(each)) for i, each in enumerate(items)]

    def check_given(self, users: Any, items: Any) -> None:
        """Raise InvalidContexts unless just the tables that there are were given."""
        for name, table in (("users", users), ("items", items)):
            if (table is None) != (getattr(self, name) is None):
                raise InvalidContexts(f"{name} must {'not ' if table is not None else ''}be given to this policy.")

    def rows(self, users: Any) -> Any:
        """Return the numbers of users; None where there is no such table."""
        return None if self.users is None else self.users(users, "users")

    def features(self, items: Any) -> Any:
        """Return the numbers of items, which may be those already; None where there is no such table."""
        return items if self.items is None or isinstance(items, np.ndarray) else self.items(items, "items")

    def placed(self, rows: Any, features: Any) -> Array:
        """Return the contexts that numbers of users and items make."""
        return np.atleast_2d(features) if self.blocks is None else self.blocks(rows, features)

    def describe(self) -> dict[str, Any]:
        """Return the tables as JSON: each column with its kind, and what stands for its gaps."""
        users, items = (None if table is None else table.describe() for table in (self.users, self.items))
        return {"users": users, "items": items, "arms": list(self.arms), "layout": self.layout}

    @classmethod
    def from_description(cls, saved: dict[str, Any]) -> FrameTables:
        """Return the tables that `describe` described."""
        users, items = (saved[n] and FrameEncoder.from_description(saved[n]) for n in ("users", "items"))
        return cls(users, items, saved["arms"], saved["layout"])


def _encoder(table: Any, ignore: Sequence[str]) -> FrameEncoder | None:
    """Return the encoder given, or that of a sample without those of the columns to ignore that it has."""
    if table is None or isinstance(table, FrameEncoder):
        return table
    columns = read_table(table, "the sample").columns if ignore else ()
    return FrameEncoder.fit(table, ignore=[name for name in ignore if name in columns])
