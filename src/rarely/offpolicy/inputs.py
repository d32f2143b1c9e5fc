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


def read_real(values: Any, name: str, error: type[InvalidInput]) -> Array:
    """Real numbers as float64.

    >>> read_real([1, True], "rewards", InvalidInput)
    array([1., 1.])
    """
    array = read_array(values, name, error)
    if array.dtype.kind not in "fiub":
        raise error(
            f"{name} must be real numbers; got an array of dtype {array.dtype}. Convert it first, for example by "
            "numpy.asarray(values, float), and check what that does to missing values."
        )
    return array.astype(np.float64)


def read_whole(values: Any, name: str, error: type[InvalidInput]) -> IntArray:
    """Whole numbers in one dimension as int64; a single one gets an axis.

    >>> read_whole(3, "rounds", InvalidInput)
    array([3])
    """
    array = np.atleast_1d(read_array(values, name, error))
    if not array.size:
        return np.empty(0, np.int64)
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise error(f"{name} must be whole numbers in one dimension; got {array.dtype} of shape {array.shape}.")
    if array.dtype == np.uint64 and (array > LARGEST).any():
        raise error(f"{name} must be whole numbers in one dimension, at most {LARGEST}; got {array.max()}.")
    return array.astype(np.int64)


def read_array(values: Any, name: str, error: type[InvalidInput]) -> NDArray[Any]:
    """Any array that NumPy makes of the values, unless that would drop a mask."""
    if type(values) is np.ndarray:
        return values
    items = values if isinstance(values, list | tuple) else [values]
    if any(isinstance(item, np.ma.MaskedArray) for item in items):
        raise error(
            f"{name} must not be masked: the numbers under a mask would count. Leave those rounds out, or give "
            "values.filled(number)."
        )
    try:
        return np.asarray(values)
    except (TypeError, ValueError) as failure:
        raise error(f"{name} must be numbers, equally many in each row; {failure}.") from None
