"""One row about a round, and a context for every arm made of it.

    disjoint   arm k's context holds the row in the k-th of K blocks and 0 elsewhere: nothing is shared
    shared     the row, then a 1 in the k-th of K places: the row's part is shared

The row is standardised, and a constant appended to it, *before* it is placed: scaling afterwards would
fill the zero blocks. So the policy itself is told to leave contexts alone: `context_scale=blocks.scale`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rarely.core.errors import InvalidContexts, check_choice, check_whole
from rarely.core.scaling import Affine
from rarely.core.types import Array

Layout = Literal["disjoint", "shared"]


@dataclass(frozen=True)
class ArmBlocks:
    """Contexts of K arms from one row.

    >>> blocks = ArmBlocks(arms=2, rows=Affine.identity(1, constant=True))
    >>> blocks([3.0])
    array([[3., 1., 0., 0.],
           [0., 0., 3., 1.]])
    """

    arms: int
    rows: Affine
    """How a row is scaled; `fit` finds it from a sample of rows."""
    layout: Layout = "disjoint"

    def __post_init__(self) -> None:
        check_whole("arms", self.arms, 1)
        check_choice("layout", self.layout, Layout)

    @classmethod
    def fit(cls, rows: Any, arms: int, *, layout: Layout = "disjoint", constant: bool = True) -> ArmBlocks:
        """Standardise rows as this (n, r) sample suggests."""
        return cls(arms, Affine.fit(_read(rows, None), constant=constant), layout)

    @property
    def dim(self) -> int:
        """Numbers in a context that this makes."""
        width = self.rows.scaled_dim
        return width * self.arms if self.layout == "disjoint" else width + self.arms

    @property
    def scale(self) -> Affine:
        """What to give a policy as `context_scale`: contexts are scaled already."""
        return Affine.identity(self.dim)

    def __call__(self, rows: Any) -> Array:
        """(r,) → (K, dim), or (n, r) → (n, K, dim)."""
        given = np.asarray(rows, np.float64)
        scaled = self.rows(_read(given, self.rows.dim))
        out = np.zeros((len(scaled), self.arms, self.dim))
        width = scaled.shape[1]
        for arm in range(self.arms):
            if self.layout == "disjoint":
                out[:, arm, arm * width : (arm + 1) * width] = scaled
            else:
                out[:, arm, :width] = scaled
                out[:, arm, width + arm] = 1.0
        return out[0] if given.ndim == 1 else out


def _read(rows: Any, width: int | None) -> Array:
    array = np.atleast_2d(np.asarray(rows, np.float64))
    if array.ndim != 2 or (width is not None and array.shape[1] != width):
        wanted = "r" if width is None else width
        raise InvalidContexts(f"rows must have shape ({wanted},) or (n, {wanted}); got {np.shape(rows)}.")
    if not np.isfinite(array).all():
        raise InvalidContexts("rows must be finite; fill in missing numbers first.")
    return array
