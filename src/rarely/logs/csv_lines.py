"""The lines of a CSV file, with errors that name the file and the line: every reader of CSV files uses these."""

from __future__ import annotations

import csv
import gzip
import math
import os
import zlib
from collections.abc import Iterator
from itertools import islice
from typing import IO

from rarely.core.errors import InvalidInput

MISSING = {"", "?", "na", "n/a", "nan", "null", "none"}
"""Fields that stand for a value that is not known."""


def read_lines(
    path: str | os.PathLike[str], error: type[InvalidInput], delimiter: str = ",", every: int = 1
) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of each line that is not empty, and its fields without the space around them.

    All lines have as many fields as the first. A file whose name ends in .gz is unpacked. With `every` = n the first
    of each n lines is read; such a file has no line breaks within its fields. What cannot be read is raised as `error`.
    """
    name = os.fspath(path)
    width = None
    try:
        with _opened(path) as file:
            reader = csv.reader(file if every == 1 else islice(file, None, None, every), delimiter=delimiter)
            for line in reader:
                if not line:
                    continue
                width, number = width or len(line), every * (reader.line_num - 1) + 1
                if len(line) != width:
                    raise error(f"{name}, line {number}: {width} fields are expected; got {len(line)}.")
                yield number, [field.strip() for field in line]
    except (UnicodeDecodeError, csv.Error) as reason:
        raise error(f"{name} is not a CSV file in UTF-8: {reason}.") from reason
    except (OSError, EOFError, zlib.error) as reason:
        raise error(f"{name} cannot be read: {getattr(reason, 'strerror', None) or reason}.") from reason


def _opened(path: str | os.PathLike[str]) -> IO[str]:
    # utf-8-sig: spreadsheets put a byte order mark in front of the first name.
    if os.fspath(path).endswith(".gz"):
        return gzip.open(path, "rt", newline="", encoding="utf-8-sig")
    return open(path, newline="", encoding="utf-8-sig")


def is_missing(field: str) -> bool:
    """Whether a field stands for a value that is not known."""
    return field.strip().lower() in MISSING


def finite_number(field: str) -> float | None:
    """The number in a field, or None if there is no finite one."""
    try:
        value = float(field)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
