"""Arrays of numbers from what a caller gives, or an error that says what must hold."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rarely._core.errors import InvalidContexts, InvalidInput
from rarely._core.types import Array, IntArray

LARGEST = np.iinfo(np.int64).max


def read_real(values: Any, name: str, error: type[InvalidInput], wanted: str = "real numbers") -> Array:
    """Return real numbers as float64; `wanted` says what they must be."""
    if type(values) is float:
        return np.array(values)
    array = read_array(values, name, error, wanted)
    if array.dtype.kind in "USO" and any(isinstance(item, str | bytes) for item in array.flat):
        advice = ", or take a FramePolicy, for tables with text" if issubclass(error, InvalidContexts) else ""
        raise error(f"{name} must be {wanted}; got text among them. Convert it to numbers first{advice}.")
    if array.dtype.kind not in "fiubO":
        raise error(f"{name} must be {wanted}; got an array of {array.dtype}.")
    if array.dtype == np.float64:
        return np.asarray(array)
    try:
        with np.errstate(over="ignore"):  # a long double may be infinite as a float64
            return np.asarray(array, np.float64)
    except (TypeError, ValueError, OverflowError) as reason:
        raise error(f"{name} must be {wanted}; {reason}.") from None


def read_whole(values: Any, name: str, error: type[InvalidInput]) -> IntArray:
    """Return whole numbers in one dimension as int64; a single one gets an axis."""
    if type(values) is int and abs(values) <= LARGEST:
        return np.array([values])
    wanted = "whole numbers in one dimension"
    array = np.atleast_1d(read_array(values, name, error, wanted))
    if not array.size:
        return np.empty(0, np.int64)
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise error(f"{name} must be {wanted}; got {array.dtype} of shape {array.shape}.")
    if array.dtype == np.uint64 and (array > LARGEST).any():
        raise error(f"{name} must be {wanted}, at most {LARGEST}; got {array.max()}.")
    return array.astype(np.int64)


def read_array(values: Any, name: str, error: type[InvalidInput], wanted: str = "numbers") -> NDArray[Any]:
    """Return the array that NumPy makes of the values; raise `error` if that would drop a mask."""
    if type(values) is np.ndarray:
        return values
    if _has_masked(values):
        raise error(f"{name} must not be masked: numbers under a mask would count. Give values.filled(number).")
    if _is_sparse(values):
        raise error(
            f"{name} must be dense; got a sparse matrix. Give matrix.toarray(), a part at a time if it is large, or "
            "make the policy with the settings of SparseRows, and give rows.pack(matrix)."
        )
    try:
        return np.asarray(values)
    except Exception as reason:  # a foreign object may raise anything
        raise error(f"{name} must be {wanted}; {reason}.") from None


def _is_sparse(values: Any) -> bool:
    """Return whether the values are a sparse matrix, as SciPy has them, or a list that begins with one."""
    while isinstance(values, list | tuple) and values:
        values = values[0]
    return hasattr(values, "toarray") and hasattr(values, "nnz")


def _has_masked(values: Any) -> bool:
    """Return whether anything is masked, also in an array inside lists."""
    if isinstance(values, list | tuple):
        return any(_has_masked(item) for item in values if isinstance(item, list | tuple | np.ma.MaskedArray))
    return isinstance(values, np.ma.MaskedArray) and bool(np.ma.getmaskarray(values).any())
