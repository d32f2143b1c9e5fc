"""The saved fields of a part of a policy, read one by one: each with its kind, its range and its shape.

    with Fields("covariance", numbers, arrays) as saved:
        rounds = saved.whole("rounds")
        matrix = saved.array("matrix", (p, p))

A field that is missing, of another kind or beyond its range, or left over at the end is a `SnapshotError`. Its sentence
continues after the path of the file, which `load` puts before it. A dataclass is read by its annotations (`made`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from numbers import Integral, Real
from types import NoneType, TracebackType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from rarely._core.errors import SnapshotError, shown
from rarely._core.types import Arrays

Shape = tuple[int | None, ...]  # None stands for any length
DType = Literal["float", "single", "int", "bool"]
T = TypeVar("T")
LARGEST_COUNT, LARGEST_WHOLE = 2**53, 2**63 - 1
"""The most that anything is counted to, and the largest whole number of 64 bits."""
_PLAIN: dict[Any, tuple[type, ...]] = {kind: (kind,) for kind in (str, bool, int, float)}
_PLAIN |= {float | None: (float, NoneType), int | None: (int, NoneType)}
"""Types of values that need no other check, by annotation."""
DTYPES: dict[DType, str] = {"float": "float64", "single": "float32", "int": "int64", "bool": "bool"}


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

    def is_array(self, name: str) -> bool:
        """Return whether a field is an array."""
        return name in self._arrays

    def text(self, name: str) -> str:
        """Return text."""
        return str(self._typed(name, str, "text"))

    def made(self, kind: Callable[..., T], **known: Any) -> T:
        """Return a dataclass or named tuple of saved fields, each as its annotation says, besides what is `known`."""
        read = {name: self.of(name, hint) for name, hint in _annotations(kind).items() if name not in known}
        return kind(**known, **read)

    def of(self, name: str, kind: Any) -> Any:
        """Return a field of an annotation's kind: flags, texts, numbers, counts, None, tuples and values of these."""
        value = self._taken(name)
        # A policy may have thousands of records, each of many fields, and most are plainly what they must be.
        if type(value) in _PLAIN.get(kind, ()) and (type(value) is not int or 0 <= value <= LARGEST_WHOLE):
            return value
        if (options := [option for option in get_args(kind) if option is not NoneType]) and NoneType in get_args(kind):
            if value is None:
                return None
            (kind,) = options
        if get_origin(kind) is tuple:
            return self._tuple(name, value, get_args(kind))
        if kind in (bool, str):
            return self._checked(name, value, isinstance(value, kind), "true or false" if kind is bool else "text")
        numeric = isinstance(value, Real) and not isinstance(value, bool)
        if kind is float:
            return self._checked(name, value, numeric and _is_float(value), "a number")
        if kind is int:
            whole = isinstance(value, int) and numeric and 0 <= value <= LARGEST_WHOLE
            return self._checked(name, value, whole, f"a whole number from 0 to {LARGEST_WHOLE}")
        names = _annotations(kind)
        if isinstance(value, list) and len(value) == len(names):
            value = dict(zip(names, value, strict=True))
        with Fields(self._named(name), value, {}) as inner:
            return inner.made(kind)

    def alike(self, name: str, usual: Any) -> Any:
        """Return a flag, text or number in the place of `usual`, which says which of these it must be."""
        return self.of(name, type(usual) if isinstance(usual, bool | str) else float)

    def _tuple(self, name: str, value: Any, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
        several = kinds[-1] is Ellipsis
        fits = isinstance(value, list) and (several or len(value) == len(kinds))
        items = self._checked(name, value, fits, "a list" if several else f"a list of {len(kinds)} values")
        if not items:
            return ()
        kinds = (kinds[0],) * len(items) if several else kinds
        inner = Fields(self._named(name), {str(i): item for i, item in enumerate(items)}, {})
        return tuple(inner.of(str(i), each) for i, each in enumerate(kinds))

    def check(self, holds: Any, wanted: str) -> None:
        """Raise SnapshotError unless the fields fit each other as they must; the sentence says how."""
        if not holds:
            raise SnapshotError(f"must hold {wanted}{f' in {self.place}' if self.place else ''}. Use a backup.")

    def number(self, name: str, least: float = -math.inf, *, above: float = -math.inf) -> float:
        """Return a finite number of this range."""
        value = self._typed(name, Real, "a finite number")
        fits = _is_float(value) and math.isfinite(value) and value >= least and value > above
        limit = f" above {above:g}" if above > -math.inf else f" of at least {least:g}" if least > -math.inf else ""
        return float(self._checked(name, value, fits, f"a finite number{limit}"))

    def whole(self, name: str, least: int = 0, most: int = LARGEST_COUNT) -> int:
        """Return a whole number of this range, a count if nothing else is said."""
        value = self._typed(name, Integral, wanted := f"a whole number from {least} to {most}")
        return int(self._checked(name, value, least <= value <= most, wanted))

    def flag(self, name: str) -> bool:
        """Return true or false."""
        return bool(self._typed(name, bool, "true or false"))

    def array(
        self, name: str, shape: Shape | None, dtype: DType | None = "float", *, missing: bool = False
    ) -> NDArray[Any]:
        """Return an array of finite numbers, or NaN if `missing`, of that shape and dtype; None stands for any."""
        value = self._typed(name, np.ndarray, "an array")
        if value.dtype.name not in (DTYPES.values() if dtype is None else (DTYPES[dtype],)):
            raise self._wrong(name, f"an array of {DTYPES[dtype or 'float']}", f"one of {value.dtype}")
        shape = value.shape if shape is None else shape
        fits = len(value.shape) == len(shape) and all(n in (None, m) for n, m in zip(shape, value.shape, strict=True))
        if not fits:
            raise self._wrong(name, f"an array of shape {_shape(shape)}", f"of shape {_shape(value.shape)}")
        if not np.isfinite(value[~np.isnan(value)] if missing else value).all():
            raise self._wrong(name, "an array of finite numbers" + (", or NaN" if missing else ""), "one with others")
        return np.asarray(value)

    def _typed(self, name: str, kind: type, wanted: str) -> Any:
        value = self._taken(name)
        fits = isinstance(value, kind) and (not isinstance(value, bool) or kind is bool)
        return self._checked(name, value, fits, wanted)

    def _checked(self, name: str, value: Any, fits: bool, wanted: str) -> Any:
        if not fits:
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


@lru_cache(maxsize=64)
def _annotations(kind: Any) -> dict[str, Any]:
    """Return the fields of a dataclass or named tuple, and their kinds."""
    names = getattr(kind, "__dataclass_fields__", None) or kind._fields
    return {name: hint for name, hint in get_type_hints(kind).items() if name in names}


def _is_float(value: Any) -> bool:
    """Return whether a number is one of 64 bits, or infinite, or NaN."""
    try:
        float(value)
    except OverflowError:
        return False
    return True


def _shape(shape: Shape) -> str:
    lengths = ", ".join("n" if length is None else str(length) for length in shape)
    return f"({lengths},)" if len(shape) == 1 else f"({lengths})"


def plain(value: Any) -> Any:
    """Return NumPy's numbers, and the arrays inside a generator's state, as JSON has them."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be saved as JSON")
