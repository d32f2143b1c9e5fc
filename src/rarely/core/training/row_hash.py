"""Hashes of a history's rows, by which folds and samples are drawn: the same in every process and after every load."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rarely.core.types import IntArray


def split_mix(rows: IntArray) -> NDArray[np.uint64]:
    """The numbers of SplitMix64 at these places: each bit depends on all bits of the row.

    A product alone leaves rows of some periods mostly in one fold, so that the hours of a day decide what is held out.
    """
    state = (rows.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ state >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ state >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return state ^ state >> np.uint64(31)
