"""Which samples train a network where there are more than an update may use.

    n   known   samples whose rewards are in        N   most   samples that an update trains on

The latest N/2 are used, and N/2 of the others: those with the smallest hashes of their rows, which is a uniform
sample (bottom-k; Cohen and Kaplan, 2007). A row that falls out of it never comes back, since later rows only lower the
bar, so a history may drop it.
"""

from __future__ import annotations

import numpy as np

from rarely.core.training.row_hash import split_mix
from rarely.core.types import IntArray

SALT = 0x5DEECE66D
"""So that the sample is independent of the folds, which hash rows too."""


def training_rows(rows: IntArray, most: int | None) -> IntArray:
    """Where the rows to train on stand among these rising rows of a history: all, or `most` of them.

    >>> training_rows(np.arange(3), most=4)
    array([0, 1, 2])
    >>> training_rows(np.arange(10), most=4)
    array([3, 7, 8, 9])
    """
    count = len(rows)
    if most is None or count <= most:
        return np.arange(count)
    recent = count - (most - most // 2)
    hashes = split_mix(rows[:recent] ^ SALT)
    older = np.argpartition(hashes, most // 2)[: most // 2]
    return np.concatenate((np.sort(older), np.arange(recent, count)))
