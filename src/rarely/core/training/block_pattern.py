"""Columns that are 0 in most samples, found in the contexts themselves.

`ArmBlocks` gives every arm columns of its own, so with K arms a context is 0 in all of them but one K-th. The samples
then fall into groups, one for each arm, and a group needs the columns that all share and its own alone:

    shared    c_0 columns, nonzero anywhere                       group g   n_g samples
    own       c_g columns, nonzero in the samples of group g alone          Σ n_g = n, and c_0 + Σ c_g ≤ d

Nothing is said about how the contexts were made. Two samples are in one group if a column that is not shared is nonzero
in both of them, or a chain of such samples joins them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from rarely.core.types import BoolArray, Floats, IntArray

MOST = 0.75
"""The part of nonzero numbers up to which it is worth looking."""
SHARED = 0.5
"""A column that is nonzero in a greater part of the samples may be shared."""
ROUNDS = 64
"""Of the search for groups: a longer chain of samples is no block."""


class Pattern(NamedTuple):
    """Groups of samples and of columns."""

    samples: IntArray
    """(n,): group by group."""
    columns: IntArray
    """(d,): the shared ones, those of each group, those that are 0 in all samples."""
    shared: int
    group_samples: IntArray
    """(G,): n_g."""
    group_columns: IntArray
    """(G,): c_g."""

    @property
    def products(self) -> int:
        """Σ n_g (c_0 + c_g), in the place of n·d."""
        return int(self.group_samples @ (self.shared + self.group_columns))

    def parts(self) -> Iterator[tuple[IntArray, IntArray]]:
        """Samples and columns of each group."""
        shared, own = self.columns[: self.shared], self.shared + np.cumsum(self.group_columns)
        ends = np.cumsum(self.group_samples)
        for end, samples, last, columns in zip(ends, self.group_samples, own, self.group_columns, strict=True):
            yield self.samples[end - samples : end], np.concatenate((shared, self.columns[last - columns : last]))


def pattern_of(contexts: Floats) -> Pattern | None:
    """The pattern with the fewest products, or None where there is none with fewer than n·d.

    >>> pattern = pattern_of(np.array([[1.0, 2.0, 0.0], [1.0, 0.0, 3.0], [1.0, 4.0, 0.0], [1.0, 0.0, 5.0]]))
    >>> pattern.shared, pattern.samples, pattern.group_columns
    (1, array([0, 2, 1, 3]), array([1, 1]))
    """
    there = contexts != 0
    if np.count_nonzero(there) > MOST * there.size:
        return None
    often = there.sum(axis=0) > SHARED * len(there)
    found = [_pattern(there, shared) for shared in ((often & False, often) if often.any() else (often,))]
    best = min(filter(None, found), key=lambda pattern: pattern.products, default=None)
    return best if best is not None and best.products < there.size else None


def _pattern(there: BoolArray, shared: BoolArray) -> Pattern | None:
    rows, columns = np.nonzero(there & ~shared)
    column_labels = np.arange(there.shape[1])
    row_labels = np.full(len(there), there.shape[1])
    # The lowest column that can be reached is the name of the group.
    for _ in range(ROUNDS):
        np.minimum.at(row_labels, rows, column_labels[columns])
        before = column_labels.copy()
        np.minimum.at(column_labels, columns, row_labels[rows])
        if np.array_equal(column_labels, before):
            break
        column_labels = column_labels[column_labels]
    else:
        return None
    names, group_samples = np.unique(row_labels, return_counts=True)
    used = there.any(axis=0) & ~shared
    group_columns = np.array([np.count_nonzero(used & (column_labels == name)) for name in names], np.int64)
    # Shared columns first, unused ones last, the others by group.
    place = np.where(shared, -1, np.where(used, column_labels, there.shape[1] + 1))
    return Pattern(
        samples=np.argsort(row_labels, kind="stable"),
        columns=np.argsort(place, kind="stable"),
        shared=int(shared.sum()),
        group_samples=group_samples.astype(np.int64),
        group_columns=group_columns,
    )
