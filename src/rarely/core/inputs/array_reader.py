"""Arrays as a caller gives them, checked before anything is computed from them.

NumPy converts quietly what is no real number: it drops the imaginary part of a complex array and the mask of a masked
one, and parses text. All of that is refused here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rarely.core.errors import InvalidInput
from rarely.core.types import Array, IntArray

LARGEST = np.iinfo(np.int64).max


def read_real(values: Any, name: str, error: type[InvalidInput], wanted: str = "real numbers") -> Array:
    """Real numbers as float64; `wanted` says what they must be.

    >>> read_real([1, True], "rewards", InvalidInput)
    array([1., 1.])
    """
    if type(values) is float:
        return np.array(values)
    array = read_array(values, name, error, wanted)
    if array.dtype.kind not in "fiubO":
        raise error(f"{name} must be {wanted}; got an array of {array.dtype}.")
    if array.dtype.kind == "O" and any(isinstance(item, str | bytes) for item in array.flat):
        raise error(f"{name} must be {wanted}; got text among them. Convert it to numbers first.")
    try:
        return np.asarray(array, np.float64)
    except (TypeError, ValueError, OverflowError) as reason:
        raise error(f"{name} must be {wanted}; {reason}.") from None


def read_whole(values: Any, name: str, error: type[InvalidInput]) -> IntArray:
    """Whole numbers in one dimension as int64; a single one gets an axis.

    >>> read_whole(3, "rounds", InvalidInput)
    array([3])
    """
    if type(values) is int and abs(values) <= LARGEST:  # one decision, whose rewards are told one by one
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
    """Any array that NumPy makes of the values, unless that would drop a mask."""
    if type(values) is np.ndarray:
        return values
    if _has_masked(values):
        raise error(
            f"{name} must not be masked: the numbers under a mask would count. Leave them out, or give "
            "values.filled(number)."
        )
    try:
        return np.asarray(values)
    except (TypeError, ValueError) as reason:
        raise error(f"{name} must be {wanted}; {reason}.") from None


def _has_masked(values: Any) -> bool:
    """Whether anything is masked, also in an array inside lists."""
    if isinstance(values, list | tuple):
        return any(_has_masked(item) for item in values if isinstance(item, list | tuple | np.ma.MaskedArray))
    return isinstance(values, np.ma.MaskedArray) and bool(np.ma.getmaskarray(values).any())
