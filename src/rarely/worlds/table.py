"""A labelled table played as a bandit: guess a row's class, and be paid 1 if right.

A run draws rows without replacement. Arm k's context holds the row in the k-th of K blocks and 0
elsewhere, as in the paper. The row comes in one of three views:

    raw        as it is (preset `paper`)
    unit       scaled to norm 1 (preset `code`)
    standard   standardised over the whole table and divided by √r (preset `practical`)

`constant` adds a 1 to every block: an intercept for each arm.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rarely.extend import Affine, ArmBlocks, Array, ContextMap, IntArray
from rarely.extend.checks import InvalidInput, RarelyError, check_choice, check_whole
from rarely.logs.tables import finite_number, is_missing, is_name_like, read_lines
from rarely.worlds.protocol import World

View = Literal["raw", "unit", "standard"]
MAX_CLASSES = 100  # classes of a CSV file that are played, each as an arm; more are rather a quantity than classes


@dataclass(frozen=True, eq=False)
class Table:
    """n rows of r numbers, and the class 0 … K − 1 of each.

    Examples
    --------
    >>> Table.of([[1.0], [2.0], [3.0]], ["no", "yes", "no"]).labels
    array([0, 1, 0])
    """

    rows: Array
    labels: IntArray
    classes: tuple[str, ...]

    @classmethod
    def of(cls, rows: Any, labels: Any) -> Table:
        """Make a table of any rows and labels: arrays, lists, columns of a data frame."""
        try:
            # A copy that stays as it is: the digest is part of an experiment's identity.
            numbers = np.array(rows, np.float64)
            names, codes = np.unique(np.asarray(labels), return_inverse=True)
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"a table needs rows of numbers and labels of one kind; {error}.") from error
        numbers.flags.writeable = False
        if numbers.ndim != 2 or np.shape(labels) != (len(numbers),) or not numbers.size:
            raise InvalidInput(
                f"a table needs rows of shape (n, r) and n labels; got {numbers.shape} and {np.shape(labels)}."
            )
        if not np.isfinite(numbers).all():
            raise InvalidInput("a table's numbers must be finite; fill in missing ones or drop their rows.")
        if any(name != name for name in names.tolist()):
            raise InvalidInput("a table's labels must not be NaN; drop the rows without a label.")
        if len(names) < 2:
            raise InvalidInput(f"a table needs at least two classes to choose between; got {names.tolist()}.")
        return cls(numbers, codes.astype(np.int64), tuple(str(name) for name in names))

    @classmethod
    def from_csv(
        cls, path: str | Path, label: str | int | None = None, delimiter: str = ",", ignore: Sequence[str | int] = ()
    ) -> Table:
        """Read a CSV file; `label` is the class's column, by name or number (None: the last); `ignore` names others.

        A first line without numbers is a header if it names a column of numbers, or if `label` is a name. A
        column of numbers stays so, and must not lack any; any other is coded 0, 1, … in sorted order.
        """
        lines = [line for _, line in read_lines(path, InvalidInput, delimiter)]
        if not lines:
            raise InvalidInput(f"{path} is empty; a table needs rows.")
        header, wanted = None, [_named_column(column, lines[0]) for column in (label, *ignore)]
        if any(isinstance(column, str) for column in wanted) or _has_header(lines):
            header, *lines = lines
            if not lines:
                raise InvalidInput(f"{path} has a header and no rows.")
        names = header or [str(i) for i in range(len(lines[0]))]
        at, *omitted = (_column(path, column, header, len(names)) for column in wanted)
        columns = list(zip(names, zip(*lines, strict=True), strict=True))
        numbers = [_coded(path, *column) for i, column in enumerate(columns) if i not in (at, *omitted)]
        if not numbers:
            left = "one column" if len(names) == 1 else "no column left"
            raise InvalidInput(f"{path} has {left}; a table needs the class and at least one more.")
        return cls.of(np.stack(numbers, axis=1), columns[at][1])

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the numbers and labels; tables with the same one are equal."""
        return hashlib.sha256(self.rows.tobytes() + self.labels.tobytes()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


@dataclass(frozen=True, eq=False)
class TableWorld(World):
    """A table played as a bandit.

    Examples
    --------
    >>> world = TableWorld(Table.of([[3.0, 4.0], [0.0, 2.0]], ["a", "b"]), view="unit")
    >>> world.dim, world.arms, world.horizon
    (4, 2, 2)
    """

    table: Table
    view: View = "raw"
    constant: bool = False
    arms: int = field(init=False)
    dim: int = field(init=False)
    horizon: int | None = field(init=False)
    context_scale: ContextMap | None = field(init=False)
    blocks: ArmBlocks = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_choice("view", self.view, View)
        arms = len(self.table.classes)
        rows, standard = self.table.rows, self.view == "standard"
        scale = Affine.fit(rows) if standard else Affine.identity(rows.shape[1])
        blocks = ArmBlocks(arms, replace(scale, constant=self.constant))
        derived = {"arms": arms, "dim": blocks.dim, "horizon": len(rows), "blocks": blocks}
        vars(self).update(derived | {"context_scale": blocks.scale if standard else None})

    def secret(self, generator: np.random.Generator) -> IntArray:
        return generator.permutation(len(self.table.rows))

    def round(self, t: int, secret: IntArray, generator: np.random.Generator) -> tuple[Array, Array, float]:
        row, label = self.table.rows[secret[t - 1]], self.table.labels[secret[t - 1]]
        if self.view == "unit":
            row = row / (np.linalg.norm(row) or 1.0)
        return self.blocks(row), (np.arange(self.arms) == label).astype(np.float64), 0.0

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"data": self.table.digest}


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _has_header(lines: list[list[str]]) -> bool:
    """Return whether a first line without numbers has a name over a column of numbers, some perhaps missing."""
    if any(map(_is_number, lines[0])):
        return False
    for name, *column in zip(*lines, strict=False):
        stated = [field for field in column if not is_missing(field)]
        if stated and all(map(_is_number, stated)) and not _is_number(name) and not is_missing(name):
            return True
    return False


def _coded(path: str | Path, name: str, column: tuple[str, ...]) -> Array:
    others = {field for field in column if finite_number(field) is None}
    if not others:
        return np.array(column, np.float64)
    if len(others) < len(set(column)) and all(_is_number(field) or is_missing(field) for field in others):
        raise InvalidInput(f"{path}: column {name} holds numbers, but {min(others)!r} in some rows; drop these.")
    return np.unique(column, return_inverse=True)[1].astype(np.float64)


def _column(path: str | Path, label: str | int | None, header: list[str] | None, width: int) -> int:
    if isinstance(label, str):
        assert header is not None
        if label not in header:
            raise InvalidInput(f"{path} has no column {label!r}; its columns are {', '.join(header)}.")
        return header.index(label)
    at = width - 1 if label is None else label
    if not -width <= at < width:
        raise InvalidInput(f"{path} has {width} columns, numbered from 0; got column {at}.")
    check_whole("label", at, -width)
    return at % width


def own_table(path: str, label: str | None = None, ignore: tuple[str, ...] = ()) -> Table:
    """Read a table that is to be played, whose classes are therefore named and not too many."""
    table = Table.from_csv(path, label, ignore=ignore)
    if gaps := [name for name in table.classes if is_missing(name) and not is_name_like(name)]:
        raise InvalidInput(f"{path}: some rows have {gaps[0]!r} for their class; drop them, or name the class.")
    if len(table.classes) > MAX_CLASSES:
        raise InvalidInput(
            f"{path}: the label has {len(table.classes)} classes, and each would be an arm; at most {MAX_CLASSES} are "
            "played. Is it the right column? --label names another."
        )
    return table


def sklearn_table(name: str) -> Table:
    """Return a classification dataset that comes with scikit-learn: `digits`, `wine`, `breast_cancer`, `iris`."""
    try:
        datasets = import_module("sklearn.datasets")
    except ModuleNotFoundError as error:
        raise RarelyError(f"{name} comes with scikit-learn: pip install scikit-learn.") from error
    bunch = getattr(datasets, f"load_{name}")()
    return Table.of(bunch.data, bunch.target)


def _named_column(column: str | int | None, first: list[str]) -> str | int | None:
    """Return a column as a command names it, which has numbers as text: a name of the first line comes before these."""
    number = isinstance(column, str) and column not in first and column.lstrip("-").isdigit()
    return int(column or 0) if number else column
