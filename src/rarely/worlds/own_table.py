"""A labelled table of one's own, from a CSV file, with its columns as they are named on a command line."""

from __future__ import annotations

from functools import cache

from rarely.core.errors import InvalidInput
from rarely.logs.csv_lines import is_missing, is_word, read_lines
from rarely.worlds.table import Table

MOST_CLASSES = 100


@cache
def own_table(path: str, label: str | None = None, ignore: tuple[str, ...] = ()) -> Table:
    """The table of a file; `label` is the column of the class (None: the last), and `ignore` are those to omit."""
    lines = (line for _, line in read_lines(path, InvalidInput))
    first = next(lines, [])
    columns = [_column(name, first) for name in ignore]
    table = Table.from_csv(path, None if label is None else _column(label, first), ignore=columns)
    if gaps := [name for name in table.classes if is_missing(name) and not is_word(name)]:
        raise InvalidInput(f"{path}: some rows have {gaps[0]!r} for their class; drop them, or name the class.")
    if len(table.classes) > MOST_CLASSES:
        raise InvalidInput(
            f"{path}: the label has {len(table.classes)} classes, and each would be an arm; at most {MOST_CLASSES} are "
            "played. Is it the right column? --label names another."
        )
    return table


def _column(given: str, first: list[str]) -> str | int:
    """A column as it is named on the command line: a name of the first line comes before a number."""
    return int(given) if given not in first and given.lstrip("-").isdigit() else given
