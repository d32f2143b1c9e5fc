"""Rows crossed with the features of arms: a model that is linear in the products knows who likes what.

    x   (r,)   a row, standardised: what is known about the user
    f   (a,)   an arm's features, standardised: what is known about the article

    crossed    [x, f, x₁f, …, x_r f, 1]        r + a + ra + 1 numbers, the constant last

A linear model of [x, f] alone says the same ranking of arms to every user. The products x_i·f_j are what lets users
differ, and they are made from r + a numbers whenever they are needed: a history keeps those and not the products.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rarely.core.errors import InvalidInput
from rarely.core.inputs.scaling import Affine
from rarely.core.types import Array


@dataclass(frozen=True, eq=False)
class Crossed(Affine):
    """An affine map of [row, features], and the products of the two.

    >>> Crossed(np.zeros(3), np.ones(3), rows=2)(np.array([[2.0, 3.0, 5.0]]))
    array([[ 2.,  3.,  5., 10., 15.,  1.]])
    """

    rows: int = 0
    """r, numbers in the row; the others are the arm's own."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.rows, int | np.integer) or not 0 < self.rows < self.dim:
            raise InvalidInput(
                f"rows must be a whole number from 1 to {self.dim - 1}, so that of {self.dim} numbers some are the "
                f"row's and some the arm's; got {self.rows!r}."
            )

    @property
    def scaled_dim(self) -> int:
        """Numbers in a context as a model gets it."""
        return self.dim + self.rows * (self.dim - self.rows) + self.constant

    def describe(self) -> dict[str, Any]:
        """The map as JSON, for `scale_from`."""
        return super().describe() | {"rows": int(self.rows)}

    def plain(self, contexts: Array) -> Array:
        """Scale (n, r + a) contexts without crossing them."""
        out = contexts - self.center
        out /= self.spread
        return out

    def __call__(self, contexts: Array) -> Array:
        """Scale and cross (n, r + a) contexts to (n, scaled_dim)."""
        d, r = self.dim, self.rows
        out = np.ones((len(contexts), self.scaled_dim))
        plain = out[:, :d]
        plain[:] = self.plain(contexts)
        products = out[:, d : d + r * (d - r)].reshape(len(out), r, d - r)
        np.multiply(plain[:, :r, None], plain[:, None, r:], out=products)
        return out


def scale_from(description: dict[str, Any]) -> Affine:
    """The inverse of `describe`, of either map.

    >>> type(scale_from({"center": [0.0, 0.0], "spread": [1.0, 1.0], "constant": True, "rows": 1})).__name__
    'Crossed'
    """
    return Crossed(**description) if "rows" in description else Affine(**description)
