"""What a part of a policy saved, read field by field: each with its kind, its shape and its range.

    with Fields("covariance", numbers, arrays) as saved:
        rounds = saved.whole("rounds")
        matrix = saved.array("matrix", (p, p))
        saved.require(rounds >= len(matrix), "rounds must …")

A field that is missing, of another kind, out of range, or left over at the end is a `SnapshotError`. Its sentence
begins after the path of the file, which `load` puts before it. Fields know the format of their file, so that one
which an earlier format lacks is optional there and required from then on (`since`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Mapping
from numbers import Integral, Real
from types import TracebackType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rarely.core.errors import SnapshotError
from rarely.core.types import Arrays

Shape = tuple[int | None, ...]
"""None stands for any length."""
DType = Literal["float", "single", "int", "bool"]
_DTYPES: dict[DType, str] = {"float": "float64", "single": "float32", "int": "int64", "bool": "bool"}
Kind = Literal["number", "whole", "flag", "text"]
_KINDS: dict[Kind, tuple[set[type], str]] = {
    "number": ({int, float}, "numbers"),
    "whole": ({int}, "whole numbers"),
    "flag": ({bool}, "true or false"),
    "text": ({str}, "text"),
}
LARGEST = 2.0**53
"""Every whole number up to here is a float too; no count is beyond it."""
CLOSE = 1e-6
"""How far, relative to 1 and to themselves, two numbers may differ that are the same but for rounding."""


class Fields:
    """The numbers and arrays of one part, by name.

    >>> with Fields("learner", {"learned": 3}, {"moment": np.zeros(2)}) as saved:
    ...     saved.whole("learned"), saved.array("moment", (2,))
    (3, array([0., 0.]))
    """

    def __init__(self, place: str, numbers: Any, arrays: Arrays, format: float = math.inf) -> None:
        if not isinstance(numbers, Mapping):
            raise SnapshotError(f"must hold fields in {place}, not {shortened(numbers)}. Use a backup.")
        self.place, self.format = place, format
        if twice := numbers.keys() & arrays.keys():
            raise SnapshotError(f"holds {self._named(min(twice))} twice, as a number and as an array. Use a backup.")
        self._numbers, self._arrays = numbers, arrays
        self._unread = {*numbers, *arrays}

    def __enter__(self) -> Fields:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self.finish()

    def finish(self) -> None:
        """Refuse what nothing has read."""
        if self._unread:
            raise SnapshotError(f"holds {self._named(min(self._unread))}, which this version does not know.")

    def __contains__(self, name: str) -> bool:
        return name in self._numbers or name in self._arrays

    def since(self, format: int, name: str) -> bool:
        """Whether a field is there, which it must be from that format on."""
        if name not in self and self.format >= format:
            raise self._missing(name)
        return name in self

    def part(self, name: str) -> tuple[Any, Arrays]:
        """What a part inside saved: `name` among the numbers, if it has some, and the arrays called `name.…`."""
        prefix = name + "."
        arrays = {full: array for full, array in self._arrays.items() if full.startswith(prefix)}
        self._unread -= arrays.keys()
        numbers = self.value(name) if name in self._numbers else {}
        return numbers, {full.removeprefix(prefix): array for full, array in arrays.items()}

    def has_part(self, name: str) -> bool:
        """Whether a part inside saved any arrays."""
        return any(full.startswith(name + ".") for full in self._arrays)

    def inner(self, name: str) -> Fields:
        """The same, field by field."""
        return Fields(self._named(name), *self.part(name), self.format)

    def value(self, name: str) -> Any:
        """Whatever JSON has under that name."""
        if name not in self._numbers:
            raise self._missing(name)
        return self._taken(name)

    def is_null(self, name: str) -> bool:
        """Whether a field holds JSON's null, which is then read."""
        if name not in self:
            raise self._missing(name)
        if name not in self._numbers or self._numbers[name] is not None:
            return False
        self._unread.discard(name)
        return True

    def ndim(self, name: str) -> int:
        """How many axes an array has; 0 for anything else."""
        return self._arrays[name].ndim if name in self._arrays else 0

    def text(self, name: str, pattern: str = ".*") -> str:
        """Text that matches the whole pattern."""
        value = self._taken(name)
        if not isinstance(value, str):
            raise self._wrong(name, "text", shortened(value))
        if not re.fullmatch(pattern, value, re.DOTALL):
            raise self._wrong(name, f"text of the form {pattern}", shortened(value))
        return value

    def listed(self, name: str) -> list[Any]:
        """A JSON list."""
        value = self._taken(name)
        if not isinstance(value, list):
            raise self._wrong(name, "a list", shortened(value))
        return value

    def table(self, name: str) -> Fields:
        """A list of objects with the same fields, as those fields' columns."""
        rows = self.listed(name)
        if not all(isinstance(row, dict) and row.keys() == rows[0].keys() for row in rows):
            raise self._wrong(name, "a list of objects with the same fields", shortened(rows))
        names = list(rows[0]) if rows else []
        return Fields(self._named(name), {key: [row[key] for row in rows] for key in names}, {}, self.format)

    def column(
        self,
        name: str,
        kind: Kind,
        least: float = -math.inf,
        most: float = math.inf,
        *,
        null: bool = False,
        finite: bool = True,
    ) -> list[Any]:
        """A column of a table, as it is; numbers from `least` to `most`. With `null`, None may stand in it."""
        values: list[Any] = self._taken(name)
        types, words = _KINDS[kind]
        strays = set(map(type, values)) - types - ({type(None)} if null else set())
        if strays:
            came = next(value for value in values if type(value) in strays)
            raise self._wrong(name, f"{words}{' or null' if null else ''} alone", shortened(came))
        if kind in ("number", "whole"):
            try:
                known = np.array([value for value in values if value is not None], np.float64)
            except OverflowError:
                raise self._wrong(name, f"{words} that a float can hold", "larger ones") from None
            most = min(most, LARGEST) if kind == "whole" else most
            self._check_numbers(name, known if finite else known[np.isfinite(known)], least, most, missing=False)
        return values

    def number(self, name: str, least: float = -math.inf, most: float = math.inf, *, above: float = -math.inf) -> float:
        """A finite number from `least` to `most`, and larger than `above`."""
        found = self._taken(name)
        if isinstance(found, bool) or not isinstance(found, Real) or not math.isfinite(found):
            raise self._wrong(name, "a finite number", shortened(found))
        value = float(found)
        if not (least <= value <= most and value > above):
            bounds = [f"above {above:g}"] * (above > -math.inf) + [f"from {least:g}"] * (least > -math.inf)
            raise self._wrong(
                name, " ".join(["a number", *bounds, *[f"up to {most:g}"] * (most < math.inf)]), f"{value!r}"
            )
        return value

    def whole(self, name: str, least: int = 0, most: int | None = None) -> int:
        """A whole number from `least` to `most`, and no larger than any count can be."""
        value = self._taken(name)
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise self._wrong(name, "a whole number", shortened(value))
        most = int(LARGEST) if most is None else most
        if not least <= int(value) <= most:
            raise self._wrong(name, f"a whole number from {least} up to {most}", shortened(value))
        return int(value)

    def flag(self, name: str) -> bool:
        """True or false."""
        value = self._taken(name)
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false", shortened(value))
        return value

    def choice(self, name: str, choices: Container[str]) -> str:
        """One of several words."""
        value = self._taken(name)
        if not isinstance(value, str) or value not in choices:
            raise self._wrong(name, f"one of {choices}", shortened(value))
        return value

    def array(
        self,
        name: str,
        shape: Shape,
        dtype: DType = "float",
        *,
        least: float = -math.inf,
        most: float = math.inf,
        above: float = -math.inf,
        missing: bool = False,
    ) -> NDArray[Any]:
        """An array of that shape with numbers from `least` to `most` and larger than `above`, all of them finite.

        With `missing` NaN may stand where no number is.
        """
        value = self._taken(name)
        if not isinstance(value, np.ndarray):
            raise self._wrong(name, "an array", shortened(value))
        if value.dtype.name != _DTYPES[dtype]:
            raise self._wrong(name, f"an array of {_DTYPES[dtype]}", f"one of {value.dtype}")
        fits = len(value.shape) == len(shape) and all(n in (None, m) for n, m in zip(shape, value.shape, strict=True))
        if not fits:
            raise self._wrong(name, f"an array of shape {_shape(shape)}", f"of shape {_shape(value.shape)}")
        if dtype != "bool":
            self._check_numbers(name, value, least, most, missing, above)
        return value

    def _check_numbers(
        self, name: str, value: NDArray[Any], least: float, most: float, missing: bool, above: float = -math.inf
    ) -> None:
        known = value[~np.isnan(value)] if missing else value
        if not np.isfinite(known).all():
            raise self._wrong(name, "an array of finite numbers" + (", or NaN" if missing else ""), "one with others")
        if known.size and not (known.min() >= least and known.min() > above and known.max() <= most):
            lower = f"above {above:g}" if above > -math.inf else f"from {least:g}"
            raise self._wrong(
                name, f"an array of numbers {lower} to {most:g}", f"from {known.min():g} to {known.max():g}"
            )

    def require(self, holds: bool, sentence: str) -> None:
        """Refuse fields that do not fit together."""
        if not holds:
            place = f"in {self.place}, " if self.place else ""
            raise SnapshotError(f"holds parts that do not fit: {place}{sentence}. Use a backup.")

    def require_close(self, name: str, value: float, expected: float, source: str = "which its arrays give") -> None:
        """Refuse a number that is not what other fields say, rounding aside."""
        self.require(is_close(value, expected), f"{name} must be {expected:.9g}, {source}; it is {value:.9g}")

    def _taken(self, name: str) -> Any:
        if name not in self:
            raise self._missing(name)
        self._unread.discard(name)
        return self._numbers[name] if name in self._numbers else self._arrays[name]

    def _named(self, name: str) -> str:
        return f"{self.place}.{name}" if self.place else name

    def _missing(self, name: str) -> SnapshotError:
        return SnapshotError(f"must hold {self._named(name)}, and does not. Use a backup.")

    def _wrong(self, name: str, wanted: str, came: str) -> SnapshotError:
        return SnapshotError(f"must hold {wanted} in {self._named(name)}, not {came}. Use a backup.")


def is_close(value: float, expected: float) -> bool:
    """Whether two numbers are the same but for rounding."""
    return abs(value - expected) <= CLOSE * (1 + abs(expected))


def shortened(value: Any) -> str:
    """A value for a sentence, however long it is."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _shape(shape: Shape) -> str:
    lengths = ", ".join("n" if length is None else str(length) for length in shape)
    return f"({lengths},)" if len(shape) == 1 else f"({lengths})"
