"""The saved fields of a part of a policy, read one by one: each with its kind, its shape and its range.

    with Fields("covariance", numbers, arrays) as saved:
        rounds = saved.whole("rounds")
        matrix = saved.array("matrix", (p, p))

A field that is missing, of another kind, out of range, or left over at the end is a `SnapshotError`. Its sentence
continues after the path of the file, which `load` puts before it.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from numbers import Integral, Real
from types import TracebackType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rarely._core.errors import SnapshotError, shown
from rarely._core.types import Arrays

Shape = tuple[int | None, ...]
"""None stands for any length."""
DType = Literal["float", "single", "int", "bool"]
_DTYPES: dict[DType, str] = {"float": "float64", "single": "float32", "int": "int64", "bool": "bool"}
MAX_COUNT = 2.0**53
"""Every whole number up to here is a float too; no count is larger."""


class Fields:
    """The numbers and arrays of one part, by name.

    >>> with Fields("learner", {"learned": 3}, {"moment": np.zeros(2)}) as saved:
    ...     saved.whole("learned"), saved.array("moment", (2,))
    (3, array([0., 0.]))
    """

    def __init__(self, place: str, numbers: Any, arrays: Arrays) -> None:
        if not isinstance(numbers, Mapping):
            raise SnapshotError(f"must hold fields in {place}, not {shown(numbers)}. Use a backup.")
        self.place = place
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
        """Raise SnapshotError for a field that was not read."""
        if self._unread:
            raise SnapshotError(f"holds {self._named(min(self._unread))}, which this version does not know.")

    def __contains__(self, name: str) -> bool:
        return name in self._numbers or name in self._arrays

    def part(self, name: str) -> tuple[Any, Arrays]:
        """Return what an inner part saved: the numbers under `name`, if any, and the arrays called `name.…`."""
        prefix = name + "."
        arrays = {full: array for full, array in self._arrays.items() if full.startswith(prefix)}
        self._unread -= arrays.keys()
        numbers = self.value(name) if name in self._numbers else {}
        return numbers, {full.removeprefix(prefix): array for full, array in arrays.items()}

    def has_part(self, name: str) -> bool:
        """Return whether an inner part saved any arrays."""
        return any(full.startswith(name + ".") for full in self._arrays)

    def inner(self, name: str) -> Fields:
        """Return the fields of an inner part."""
        return Fields(self._named(name), *self.part(name))

    def value(self, name: str) -> Any:
        """Return whatever JSON has under that name."""
        if name not in self._numbers:
            raise self._missing(name)
        return self._taken(name)

    def is_null(self, name: str) -> bool:
        """Return whether a field holds JSON's null, and count it as read if so."""
        if name not in self:
            raise self._missing(name)
        if name not in self._numbers or self._numbers[name] is not None:
            return False
        self._unread.discard(name)
        return True

    def ndim(self, name: str) -> int:
        """Return how many axes an array has; 0 for anything else."""
        return self._arrays[name].ndim if name in self._arrays else 0

    def text(self, name: str) -> str:
        """Return text."""
        value = self._taken(name)
        if not isinstance(value, str):
            raise self._wrong(name, "text", shown(value))
        return value

    def listed(self, name: str) -> list[Any]:
        """Return a JSON list."""
        value = self._taken(name)
        if not isinstance(value, list):
            raise self._wrong(name, "a list", shown(value))
        return value

    def rest(self) -> dict[str, Any]:
        """Return everything that JSON has and nothing has read yet, by name."""
        return {name: self._taken(name) for name in self._numbers if name in self._unread}

    def number(self, name: str, least: float = -math.inf, most: float = math.inf, *, above: float = -math.inf) -> float:
        """Return a finite number from `least` to `most`, and larger than `above`."""
        found = self._taken(name)
        if isinstance(found, bool) or not isinstance(found, Real) or not math.isfinite(found):
            raise self._wrong(name, "a finite number", shown(found))
        value = float(found)
        if not (least <= value <= most and value > above):
            bounds = [f"above {above:g}"] * (above > -math.inf) + [f"from {least:g}"] * (least > -math.inf)
            bounds += [f"up to {most:g}"] * (most < math.inf)
            raise self._wrong(name, " ".join(["a number", *bounds]), f"{value!r}")
        return value

    def whole(self, name: str, least: int = 0, most: int | None = None) -> int:
        """Return a whole number from `least` to `most`, and no larger than any count can be."""
        value = self._taken(name)
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise self._wrong(name, "a whole number", shown(value))
        most = int(MAX_COUNT) if most is None else most
        if not least <= int(value) <= most:
            raise self._wrong(name, f"a whole number from {least} up to {most}", shown(value))
        return int(value)

    def flag(self, name: str) -> bool:
        """Return true or false."""
        value = self._taken(name)
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false", shown(value))
        return value

    def choice(self, name: str, choices: Container[str]) -> str:
        """Return one of several words."""
        value = self._taken(name)
        if not isinstance(value, str) or value not in choices:
            raise self._wrong(name, f"one of {choices}", shown(value))
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
        """Return an array of that shape with finite numbers from `least` to `most` and larger than `above`.

        With `missing` NaN is allowed too.
        """
        value = self._taken(name)
        if not isinstance(value, np.ndarray):
            raise self._wrong(name, "an array", shown(value))
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
            came = f"from {known.min():g} to {known.max():g}"
            raise self._wrong(name, f"an array of numbers {lower} to {most:g}", came)

    def require(self, holds: bool, sentence: str) -> None:
        """Raise SnapshotError if fields do not fit together."""
        if not holds:
            place = f"in {self.place}, " if self.place else ""
            raise SnapshotError(f"holds parts that do not fit: {place}{sentence}. Use a backup.")

    def _taken(self, name: str) -> Any:
        if name not in self:
            raise self._missing(name)
        self._unread.discard(name)
        return self._numbers[name] if name in self._numbers else self._arrays[name]

    def _named(self, name: str) -> str:
        return f"{self.place}.{name}" if self.place else name

    def _missing(self, name: str) -> SnapshotError:
        return SnapshotError(f"must hold {self._named(name)}, but does not. Use a backup.")

    def _wrong(self, name: str, wanted: str, came: str) -> SnapshotError:
        return SnapshotError(f"must hold {wanted} in {self._named(name)}, not {came}. Use a backup.")


def _shape(shape: Shape) -> str:
    lengths = ", ".join("n" if length is None else str(length) for length in shape)
    return f"({lengths},)" if len(shape) == 1 else f"({lengths})"
