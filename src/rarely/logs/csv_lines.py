"""The lines of a CSV file, with errors that name the file and the line: every reader of CSV files uses these."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterator

from rarely.core.errors import InvalidInput

MISSING = {"", "?", "na", "n/a", "nan", "null", "none"}
"""Fields that stand for a value that is not known."""
WORDS = {"none", "na", "n/a", "null"}
"""Those of them that may as well be the name of an arm or a class."""


def read_lines(
    path: str | os.PathLike[str], error: type[InvalidInput], delimiter: str = ","
) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of each line that is not empty, and its fields without the space around them.

    All lines have as many fields as the first. What cannot be read is raised as `error`.
    """
    name = os.fspath(path)
    width = None
    try:
        # utf-8-sig: spreadsheets put a byte order mark in front of the first name.
        with open(path, newline="", encoding="utf-8-sig") as file:
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


def is_missing(field: str) -> bool:
    """Whether a field stands for a value that is not known."""
    return field.strip().lower() in MISSING


def is_word(field: str) -> bool:
    """Whether a field may stand for a value that is not known, and may as well be a name."""
    return field.strip().lower() in WORDS


def finite_number(field: str) -> float | None:
    """The number in a field, or None if there is no finite one."""
    try:
        value = float(field)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
