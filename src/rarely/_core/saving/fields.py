"""The saved fields of a part of a policy, read one by one: each with its kind and its shape.

    with Fields("covariance", numbers, arrays) as saved:
        rounds = saved.whole("rounds")
        matrix = saved.array("matrix", (p, p))

A field that is missing, of another kind, or left over at the end is a `SnapshotError`. Its sentence
continues after the path of the file, which `load` puts before it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
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

    def inner(self, name: str) -> Fields:
        """Return what an inner part saved: the numbers under `name`, if any, and the arrays called `name.…`."""
        prefix = name + "."
        arrays = {full: array for full, array in self._arrays.items() if full.startswith(prefix)}
        self._unread -= arrays.keys()
        numbers = self.value(name) if name in self._numbers else {}
        return Fields(self._named(name), numbers, {full.removeprefix(prefix): array for full, array in arrays.items()})

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

    def text(self, name: str) -> str:
        """Return text."""
        return str(self._typed(name, str, "text"))

    def listed(self, name: str) -> list[Any]:
        """Return a JSON list."""
        return list(self._typed(name, list, "a list"))

    def rest(self) -> dict[str, Any]:
        """Return everything that JSON has and nothing has read yet, by name."""
        return {name: self._taken(name) for name in self._numbers if name in self._unread}

    def number(self, name: str) -> float:
        """Return a finite number."""
        value = self._typed(name, Real, "a finite number")
        if not math.isfinite(value):
            raise self._wrong(name, "a finite number", shown(value))
        return float(value)

    def whole(self, name: str) -> int:
        """Return a whole number."""
        return int(self._typed(name, Integral, "a whole number"))

    def flag(self, name: str) -> bool:
        """Return true or false."""
        return bool(self._typed(name, bool, "true or false"))

    def array(self, name: str, shape: Shape | None, dtype: DType = "float", *, missing: bool = False) -> NDArray[Any]:
        """Return an array of finite numbers, or NaN if `missing`, of that shape; None stands for any."""
        value = self._typed(name, np.ndarray, "an array")
        if value.dtype.name != _DTYPES[dtype]:
            raise self._wrong(name, f"an array of {_DTYPES[dtype]}", f"one of {value.dtype}")
        shape = value.shape if shape is None else shape
        fits = len(value.shape) == len(shape) and all(n in (None, m) for n, m in zip(shape, value.shape, strict=True))
        if not fits:
            raise self._wrong(name, f"an array of shape {_shape(shape)}", f"of shape {_shape(value.shape)}")
        if not np.isfinite(value[~np.isnan(value)] if missing else value).all():
            raise self._wrong(name, "an array of finite numbers" + (", or NaN" if missing else ""), "one with others")
        return np.asarray(value)

    def _typed(self, name: str, kind: type, wanted: str) -> Any:
        value = self._taken(name)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self._wrong(name, wanted, shown(value))
        return value

    def _taken(self, name: str) -> Any:
        if name not in self:
            raise self._missing(name)
        self._unread.discard(name)
        return self._numbers[name] if name in self._numbers else self._arrays[name]

    def _named(self, name: str) -> str:
        return f"{self.place}.{name}" if self.place else name

    def _missing(self, name: str) -> SnapshotError:
        return SnapshotError(f"must hold {self._named(name)}, but does not. Use a backup.")

    def _wrong(self, name: str, wanted: str, got: str) -> SnapshotError:
        return SnapshotError(f"must hold {wanted} in {self._named(name)}, not {got}. Use a backup.")


def _shape(shape: Shape) -> str:
    lengths = ", ".join("n" if length is None else str(length) for length in shape)
    return f"({lengths},)" if len(shape) == 1 else f"({lengths})"
