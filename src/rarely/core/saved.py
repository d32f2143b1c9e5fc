"""What a part of a policy saved, read field by field: each with its kind, its shape and its range.

    with Fields("covariance", numbers, arrays) as saved:
        rounds = saved.whole("rounds")
        matrix = saved.array("matrix", (p, p))
        saved.require(rounds >= len(matrix), "rounds must …")

A field that is missing, of another kind, out of range, or left over at the end is a `SnapshotError`. Its sentence
begins after the path of the file, which `load` puts before it.
"""

from __future__ import annotations

import math
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
DType = Literal["float", "int", "bool"]
_DTYPES: dict[DType, tuple[str, ...]] = {"float": ("float64",), "int": ("int64",), "bool": ("bool",)}
CLOSE = 1e-6
"""How far, relative to 1 and to themselves, two numbers may differ that are the same but for rounding."""


class Fields:
    """The numbers and arrays of one part, by name.

    >>> with Fields("learner", {"learned": 3}, {"moment": np.zeros(2)}) as saved:
    ...     saved.whole("learned"), saved.array("moment", (2,))
    (3, array([0., 0.]))
    """

    def __init__(self, place: str, numbers: Any, arrays: Arrays) -> None:
        if not isinstance(numbers, Mapping):
            raise SnapshotError(f"must hold fields in {place}, not {shortened(numbers)}. Use a backup.")
        self.place = place
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
            raise SnapshotError(f"holds {self.place}.{min(self._unread)}, which this version does not know.")

    def __contains__(self, name: str) -> bool:
        return name in self._numbers or name in self._arrays

    def inner(self, name: str) -> Fields:
        """The fields of a part inside: `name` among the numbers, and the arrays whose names begin with `name.`."""
        numbers = self._taken(name) if name in self._numbers else {}
        prefix = name + "."
        arrays = {full: array for full, array in self._arrays.items() if full.startswith(prefix)}
        self._unread -= arrays.keys()
        return Fields(f"{self.place}.{name}", numbers, {k.removeprefix(prefix): v for k, v in arrays.items()})

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
        """A whole number from `least` to `most`."""
        value = self._taken(name)
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise self._wrong(name, "a whole number", shortened(value))
        if int(value) < least or (most is not None and int(value) > most):
            raise self._wrong(
                name, f"a whole number from {least}" + ("" if most is None else f" up to {most}"), shortened(value)
            )
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
        missing: bool = False,
        single: bool = False,
    ) -> NDArray[Any]:
        """An array of that shape with numbers from `least` to `most`, all of them finite.

        With `missing` NaN may stand where no number is; with `single` float32 will do as well.
        """
        value = self._taken(name)
        if not isinstance(value, np.ndarray):
            raise self._wrong(name, "an array", shortened(value))
        if value.dtype.name not in (*_DTYPES[dtype], *(["float32"] if single else [])):
            raise self._wrong(name, f"an array of {_DTYPES[dtype][0]}", f"one of {value.dtype}")
        fits = len(value.shape) == len(shape) and all(n in (None, m) for n, m in zip(shape, value.shape, strict=True))
        if not fits:
            raise self._wrong(name, f"an array of shape {_shape(shape)}", f"of shape {_shape(value.shape)}")
        if dtype != "bool":
            self._check_numbers(name, value, least, most, missing)
        return value

    def _check_numbers(self, name: str, value: NDArray[Any], least: float, most: float, missing: bool) -> None:
        known = value[~np.isnan(value)] if missing else value
        if not np.isfinite(known).all():
            raise self._wrong(name, "an array of finite numbers" + (", or NaN" if missing else ""), "one with others")
        if known.size and not (known.min() >= least and known.max() <= most):
            raise self._wrong(
                name, f"an array of numbers from {least:g} to {most:g}", f"from {known.min():g} to {known.max():g}"
            )

    def require(self, holds: bool, sentence: str) -> None:
        """Refuse fields that do not fit together."""
        if not holds:
            raise SnapshotError(f"holds parts that do not fit: in {self.place}, {sentence}. Use a backup.")

    def require_close(self, name: str, value: float, expected: float) -> None:
        """Refuse a number that is not what the arrays say, rounding aside."""
        close = abs(value - expected) <= CLOSE * (1 + abs(expected))
        self.require(close, f"{name} must be {expected:.9g}, which its arrays give; it is {value:.9g}")

    def _taken(self, name: str) -> Any:
        if name not in self:
            raise SnapshotError(f"must hold {self.place}.{name}, and does not. Use a backup.")
        self._unread.discard(name)
        return self._numbers[name] if name in self._numbers else self._arrays[name]

    def _wrong(self, name: str, wanted: str, came: str) -> SnapshotError:
        return SnapshotError(f"must hold {wanted} in {self.place}.{name}, not {came}. Use a backup.")


def shortened(value: Any) -> str:
    """A value for a sentence, however long it is."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _shape(shape: Shape) -> str:
    lengths = ", ".join("n" if length is None else str(length) for length in shape)
    return f"({lengths},)" if len(shape) == 1 else f"({lengths})"
