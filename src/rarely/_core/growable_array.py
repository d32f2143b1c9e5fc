"""Arrays that grow at the end, in amortised constant time per row; copies and tests fast enough for every decision."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ctypes import addressof, c_char
from typing import Any, Self, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

Something = TypeVar("Something")


def all_true(flags: NDArray[np.bool_]) -> bool:
    """Return whether every flag is set; `flags.all()` in a fraction of its time on few of them."""
    return bool(np.count_nonzero(flags) == flags.size)


def all_finite(array: NDArray[Any]) -> bool:
    """Return whether every number is finite."""
    return all_true(np.isfinite(array))


def address(array: NDArray[Any]) -> int:
    """Return where an array's first number lies in memory."""
    return int(array.__array_interface__["data"][0])  # in half the time of array.ctypes.data


def place(array: NDArray[Any]) -> int:
    """Return what `address` does of an array that can be written to and is not empty, in a third of its time."""
    return addressof(c_char.from_buffer(array))  # type: ignore[arg-type]


def shallow(original: Something) -> Something:
    """Return another object with the same attributes, as `copy.copy` does, but fast enough for every decision."""
    other = object.__new__(type(original))
    object.__setattr__(other, "__dict__", original.__dict__.copy())
    return other


def changed(original: Something, **attributes: Any) -> Something:
    """Return a frozen value with other attributes, as `dataclasses.replace` does, but faster."""
    other = object.__new__(type(original))
    object.__setattr__(other, "__dict__", original.__dict__ | attributes)
    return other


class Tail:
    """Where the rows of a shared buffer end. Whoever has all of them may write behind them, once."""

    __slots__ = ("_ends",)

    def __init__(self, end: int = 0) -> None:
        self._ends = {end: True}

    def claim(self, start: int, end: int) -> bool:
        """Return whether a value with `start` rows may write those up to `end`; else it must copy the buffer first."""
        if not self._ends.pop(start, False):  # one step, so that of two threads one comes first
            return False
        self._ends[end] = True
        return True


def with_space(buffer: NDArray[Any], length: int, rows: int) -> NDArray[Any]:
    """Return a copy of the first `length` rows of a buffer with room for more behind them, these and a half again."""
    grown = np.empty((max(length + rows, length + length // 2, 16), *buffer.shape[1:]), buffer.dtype)
    grown[:length] = buffer[:length]
    return grown


def appended(buffer: NDArray[Any], length: int, rows: NDArray[Any], *, copy: bool = False) -> NDArray[Any]:
    """Return the buffer with rows written behind its first `length`: itself, or a larger copy if they do not fit.

    Rows with fewer columns are filled with 0. What stood behind the first `length` rows is overwritten, unless a `copy`
    is asked for.
    """
    needed = length + len(rows)
    if copy or needed > len(buffer):
        buffer = with_space(buffer, length, len(rows))
    if rows.shape[1:] == buffer.shape[1:]:
        buffer[length:needed] = rows
    else:
        buffer[length:needed, : rows.shape[1]], buffer[length:needed, rows.shape[1] :] = rows, 0
    return buffer


class GrowableRows:
    """Arrays of equally many rows that grow together.

    `fork` shares the rows so far; the first of both to grow keeps the buffers, and the other one copies them.
    """

    def __init__(self, *buffers: NDArray[Any]) -> None:
        self._buffers, self._length, self._tail = buffers, 0, Tail()

    def __len__(self) -> int:
        return self._length

    def __getstate__(self) -> dict[str, Any]:
        """Return the rows so far without the room behind them, for `pickle` and `copy`."""
        rows = tuple(buffer[: self._length].copy() for buffer in self._buffers)
        return self.__dict__ | {"_buffers": rows, "_tail": Tail(self._length)}

    def grow(self, *rows: NDArray[Any]) -> None:
        """Add rows at the end of each array; those with fewer columns are filled with 0."""
        start, end, before = self._length, self._length + len(rows[0]), self._buffers[0]
        copy = not self._tail.claim(start, end)
        pairs = zip(self._buffers, rows, strict=True)
        self._buffers = tuple([appended(buffer, start, new, copy=copy) for buffer, new in pairs])
        if self._buffers[0] is not before:
            self._tail = Tail(end)
        self._length = end

    def fork(self, length: int | None = None) -> Self:
        """Return other arrays that start with these rows, or with the first `length`."""
        return shallow(self) if length is None else changed(self, _length=length)


class GrowableArray(GrowableRows):
    """A growing array; `view` shows the rows so far without a copy."""

    def __init__(self, width: int | None, dtype: Any = np.float64) -> None:
        super().__init__(np.empty((0,) if width is None else (0, width), dtype))

    @property
    def view(self) -> NDArray[Any]:
        """The rows so far."""
        return self._buffers[0][: self._length]

    def append(self, rows: NDArray[Any]) -> None:
        """Add rows at the end."""
        self.grow(rows)


class GrowingTuple(Sequence[Something]):
    """A tuple to whose end items are added in constant time.

    Those that grew from each other share a list, to which the longest of them adds; others copy it.

    >>> one = GrowingTuple([1, 2])
    >>> two = one.plus(3)
    >>> one, two, one.plus(4), two[1:], one == (1, 2)
    ((1, 2), (1, 2, 3), (1, 2, 4), (2, 3), True)
    """

    __slots__ = ("_items", "_length")

    def __init__(self, items: Iterable[Something] = ()) -> None:
        self._items = [*items]
        self._length = len(self._items)

    def plus(self, item: Something) -> GrowingTuple[Something]:
        """Return the tuple with one more item."""
        other: GrowingTuple[Something] = object.__new__(GrowingTuple)
        other._items = self._items if len(self._items) == self._length else self._items[: self._length]
        other._items.append(item)
        other._length = self._length + 1
        return other

    def amend(self, item: Something) -> None:
        """Replace the last item of a tuple that nobody else has seen."""
        self._items[self._length - 1] = item

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Something: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Something, ...]: ...
    def __getitem__(self, index: Any) -> Any:
        if self._length < len(self._items) or isinstance(index, slice):
            return tuple(self._items[: self._length])[index]
        return self._items[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple | GrowingTuple) and self[:] == tuple(other)

    def __hash__(self) -> int:
        return hash(self[:])

    def __repr__(self) -> str:
        return repr(self[:])
