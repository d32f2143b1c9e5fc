"""One row about a round, and a context for every arm made of it.

    disjoint   arm k's context holds the row in the k-th of K blocks and 0 elsewhere: nothing is shared
    shared     the row, then a 1 in the k-th of K places: the row's part is shared
    hybrid     the row, then the row in the k-th of K blocks: what arms share is learned once, what differs apart

Arms may bring features of their own: they stand behind the shared row, so `disjoint` has no place for them.
The part of arm k comes last and in order, so a context padded with zeros is that of the same arm among more.

Rows and features are standardised, and a constant appended to the row, *before* they are placed: scaling
afterwards would fill the zero blocks. So the policy itself is told to leave contexts alone, by `**blocks.settings`.

A training multiplies no zeros of these blocks: `rarely.core.training.block_pattern` finds them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rarely.core.errors import InvalidContexts, InvalidInput, check_choice, check_whole
from rarely.core.inputs.array_reader import read_real
from rarely.core.inputs.contexts import BlockContexts, column_names
from rarely.core.inputs.scaling import Affine
from rarely.core.types import Array

Layout = Literal["disjoint", "shared", "hybrid"]


@dataclass(frozen=True)
class ArmBlocks:
    """Contexts of K arms from one row.

    >>> blocks = ArmBlocks(arms=2, rows=Affine.identity(1, constant=True))
    >>> blocks([3.0])
    array([[3., 1., 0., 0.],
           [0., 0., 3., 1.]])

    A policy takes its `dim`, and that contexts are scaled already, from `settings`:

    >>> from rarely import BatchNeuralUCB, FixedGrid
    >>> policy = BatchNeuralUCB(schedule=FixedGrid(100, 5), seed=0, **blocks.settings)
    >>> policy.select(blocks([3.0])).round
    1

    Arms with a feature each, 7 and 8:

    >>> ArmBlocks(2, Affine.identity(1), "hybrid", features=Affine.identity(1))([3.0], features=[[7.0], [8.0]])
    array([[3., 7., 3., 0.],
           [3., 8., 0., 3.]])
    """

    arms: int
    rows: Affine
    """How a row is scaled; `fit` finds it from a sample of rows."""
    layout: Layout = "disjoint"
    features: Affine | None = None
    """How the arms' own features are scaled; None where they bring none."""
    columns: tuple[str, ...] | None = None
    """Names of a row's numbers, where `fit` was given a table that has names: later tables must have the same."""

    def __post_init__(self) -> None:
        check_whole("arms", self.arms, 1)
        check_choice("layout", self.layout, Layout)
        if self.features is not None and not isinstance(self.features, Affine):
            raise InvalidInput(
                f"features must be the Affine that scales the arms' own features, or None; got {self.features!r}. "
                "The features themselves are given with the rows: blocks(rows, features)."
            )
        if self.features is not None and self.layout == "disjoint":
            raise InvalidInput(
                "features need a part that arms share, and layout 'disjoint' has none; use 'hybrid' or 'shared'."
            )

    @classmethod
    def fit(
        cls, rows: Any, arms: int, *, layout: Layout = "disjoint", constant: bool = True, features: Any = None
    ) -> ArmBlocks:
        """Standardise rows as this (n, r) sample suggests, and features as an (N, f) sample of arms does."""
        own = None if features is None else Affine.fit(_read(features, None, "features"), constant=False)
        return cls(arms, Affine.fit(_read(rows, None), constant=constant), layout, own, column_names(rows))

    @property
    def dim(self) -> int:
        """Numbers in a context that this makes."""
        return self._shared + self.arms * self._own

    @property
    def scale(self) -> Affine:
        """What to give a policy as `context_scale`: contexts are scaled already."""
        return Affine.identity(self.dim)

    @property
    def settings(self) -> dict[str, Any]:
        """`dim` and `context_scale` for a neural policy; LinUCB and Uniform scale nothing and take `dim` alone."""
        return {"dim": self.dim, "context_scale": self.scale}

    @property
    def _shared(self) -> int:
        """Numbers before the first arm's own."""
        if self.layout == "disjoint":
            return 0
        return self.rows.scaled_dim + (0 if self.features is None else self.features.scaled_dim)

    @property
    def _own(self) -> int:
        """Numbers of each arm's own."""
        return 1 if self.layout == "shared" else self.rows.scaled_dim

    def describe(self) -> dict[str, Any]:
        """The blocks as JSON, for `from_description`."""
        own = None if self.features is None else self.features.describe()
        described = {"arms": int(self.arms), "rows": self.rows.describe(), "layout": self.layout, "features": own}
        return described if self.columns is None else described | {"columns": list(self.columns)}

    @classmethod
    def from_description(cls, description: dict[str, Any]) -> ArmBlocks:
        """The inverse of `describe`."""
        own, names = description["features"], description.get("columns")
        scales = {"rows": Affine(**description["rows"]), "features": None if own is None else Affine(**own)}
        return cls(**(description | scales | {"columns": None if names is None else tuple(names)}))

    def __call__(self, rows: Any, features: Any = None) -> Array:
        """(r,) → (K, dim), or (n, r) → (n, K, dim); features are (K, f), or (n, K, f) for n rows."""
        names = column_names(rows)
        if self.columns is not None and names is not None and names != self.columns:
            raise InvalidContexts(
                f"the columns of rows must be those that the blocks were fitted to, in the same order: "
                f"{', '.join(self.columns)}; got {', '.join(names)}. Select them by name."
            )
        given = read_numbers(rows, "rows")
        scaled = self.rows(_read(given, self.rows.dim))
        own_features = self._read_features(features, None if given.ndim == 1 else len(scaled))
        out = np.zeros((len(scaled), self.arms, self.dim)).view(BlockContexts)
        shared, own = self._shared, self._own
        if shared:
            width = scaled.shape[1]
            out[:, :, :width] = scaled[:, None]
            out[:, :, width:shared] = own_features
        mark = np.ones((len(scaled), 1)) if self.layout == "shared" else scaled
        for arm in range(self.arms):
            start = shared + arm * own
            out[:, arm, start : start + own] = mark
        return out[0] if given.ndim == 1 else out

    def _read_features(self, features: Any, rounds: int | None) -> Array:
        """The arms' own features, checked and scaled: (K, …) or (n, K, …), empty where they have none."""
        if self.features is None:
            if features is not None:
                raise InvalidContexts(
                    f"these blocks were made for arms without features; got features of shape {np.shape(features)}. "
                    "Make them with ArmBlocks.fit(rows, arms, layout='hybrid', features=sample)."
                )
            return np.empty((self.arms, 0))
        each = (self.arms, self.features.dim)
        array = None if features is None else read_numbers(features, "features")
        if array is None or array.shape not in ((each,) if rounds is None else (each, (rounds, *each))):
            wanted = f"{each}" if rounds is None else f"{each} or {(rounds, *each)}"
            came = "none" if array is None else f"shape {array.shape}"
            raise InvalidContexts(f"features of the arms must have shape {wanted}; got {came}.")
        _check_finite(array, "features")
        return self.features(array.reshape(-1, each[1])).reshape(*array.shape[:-1], self.features.scaled_dim)


def read_numbers(values: Any, name: str) -> Array:
    """Whatever came as an array of numbers, if it can be one."""
    return read_real(values, name, InvalidContexts, "numbers, as many in each")


def _read(rows: Any, width: int | None, name: str = "rows") -> Array:
    array = np.atleast_2d(read_numbers(rows, name))
    if array.ndim != 2 or (width is not None and array.shape[1] != width):
        wanted = "r" if width is None else width
        raise InvalidContexts(f"{name} must have shape ({wanted},) or (n, {wanted}); got {np.shape(rows)}.")
    _check_finite(array, name)
    return array


def _check_finite(array: Array, name: str) -> None:
    if not np.isfinite(array).all():
        raise InvalidContexts(f"{name} must be finite; fill in missing numbers first.")
