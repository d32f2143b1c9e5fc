"""Arrays that grow at the end, in amortised constant time per row; copies and tests fast enough for every decision."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Something = TypeVar("Something")


def all_true(flags: NDArray[np.bool_]) -> bool:
    """Return whether every flag is set; `flags.all()` in a fraction of its time on few of them."""
    return bool(np.count_nonzero(flags) == flags.size)


def all_finite(array: NDArray[Any]) -> bool:
    """Return whether every number is finite."""
    return all_true(np.isfinite(array))


def shallow(original: Something) -> Something:
    """Return another object with the same attributes, as `copy.copy` does, but fast enough for every decision."""
    other = object.__new__(type(original))
    other.__dict__.update(original.__dict__)
    return other


def changed(original: Something, **attributes: Any) -> Something:
    """Return a frozen value with other attributes, as `dataclasses.replace` does, but faster."""
    other = shallow(original)
    other.__dict__.update(attributes)
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


def appended(buffer: NDArray[Any], length: int, rows: NDArray[Any], *, copy: bool = False) -> NDArray[Any]:
    """Return the buffer with rows written behind its first `length`: itself, or a larger copy if they do not fit.

    Rows with fewer columns are filled with 0. What stood behind the first `length` rows is overwritten, unless a `copy`
    is asked for.
    """
    needed = length + len(rows)
    if copy or needed > len(buffer):
        grown = np.empty((max(needed, length + length // 2, 16), *buffer.shape[1:]), buffer.dtype)
        grown[:length] = buffer[:length]
        buffer = grown
    if rows.shape[1:] == buffer.shape[1:]:
        buffer[length:needed] = rows
    else:
        buffer[length:needed, : rows.shape[1]], buffer[length:needed, rows.shape[1] :] = rows, 0
    return buffer


class GrowableArray:
    """A growing array; `view` shows the rows so far without a copy.

    `fork` shares the rows so far; the first of both to grow keeps the buffer, and the other one copies it.

    >>> rows = GrowableArray(width=2)
    >>> rows.append(np.ones((3, 2)))
    >>> rows.view.shape
    (3, 2)
    """

    def __init__(self, width: int | None, dtype: Any = np.float64) -> None:
        self._buffer: NDArray[Any] = np.empty((0,) if width is None else (0, width), dtype)
        self._length, self._tail = 0, Tail()

    def __len__(self) -> int:
        return self._length

    def __getstate__(self) -> dict[str, Any]:
        """Return the rows so far without the room behind them, for `pickle` and `copy`."""
        return {"_buffer": self.view.copy(), "_length": self._length, "_tail": Tail(self._length)}

    @property
    def view(self) -> NDArray[Any]:
        """The rows so far."""
        return self._buffer[: self._length]

    def append(self, rows: NDArray[Any]) -> None:
        """Add rows at the end; rows with fewer columns are filled with 0."""
        length = self._length + len(rows)
        mine = self._tail.claim(self._length, length)
        buffer = appended(self._buffer, self._length, rows, copy=not mine)
        if buffer is not self._buffer:
            self._buffer, self._tail = buffer, Tail(length)
        self._length = length

    def fork(self) -> GrowableArray:
        """Return another array that starts with these rows."""
        return shallow(self)
