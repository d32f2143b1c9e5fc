"""One row about a round, and a context for every arm made of it.

    disjoint   arm k's context holds the row in the k-th of K blocks and 0 elsewhere: nothing is shared
    shared     the row, then a 1 in the k-th of K places: the row's part is shared
    hybrid     the row, then the row in the k-th of K blocks: what arms share is learned once, their differences apart

Arms may have their own features, which follow the shared row, so `disjoint` has no place for them. The part of arm k
comes last and in order, so a context padded with zeros is that of the same arm among more.

Rows and features are standardised, and a constant is appended to the row, *before* they are placed: scaling
afterwards would fill the zero blocks. So `**blocks.settings` makes the policy leave contexts alone.

Content arms are distinguished by their features only: `arms` is None, and their number may change at any time.

    shared     the row and the arm's features
    bilinear   the same with all products of a number of the row and a number of the arm (`Crossed`)

Their contexts are the plain [row, features]. The policy standardises and crosses them itself, as `**blocks.settings`
says, so its history keeps r + a numbers of a round and none of the products:

    x (r,), f (a,)   a row, and an arm's features, standardised
    crossed          [x, f, x₁f, …, x_r f, 1]        r + a + ra + 1 numbers, the constant last

A linear model of [x, f] alone gives every user the same ranking of arms; the products x_i·f_j let users differ. A
training multiplies none of the zeros of these blocks: `rarely._core.training.objective` finds them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from rarely._core import errors
from rarely._core.errors import check_choice, check_whole, is_whole, named_arguments, shown
from rarely._core.growable_array import all_finite
from rarely._core.inputs.contexts import BlockContexts, ContentContexts, check_columns, column_names
from rarely._core.inputs.scaling import MAPS, Affine, ContextMap, Standardising
from rarely._core.inputs.sparse_rows import SparseRows
from rarely._core.parts import READERS
from rarely._core.reading import read_real
from rarely._core.types import Array


@dataclass(frozen=True, eq=False)
class Crossed(Standardising):
    """An affine map of [row, features], and the products of the two.

    >>> Crossed(np.zeros(3), np.ones(3), rows=2)(np.array([[2.0, 3.0, 5.0]]))
    array([[ 2.,  3.,  5., 10., 15.,  1.]])
    """

    rows: int = 0  # r, numbers in the row; the others are the arm's

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_whole(self.rows) or not 0 < self.rows < self.dim:
            raise errors.InvalidInput(f"rows must be a whole number from 1 to {self.dim - 1}; got {shown(self.rows)}.")

    @cached_property
    def scaled_dim(self) -> int:
        """Numbers in a context as a model gets it."""
        return self.dim + self.rows * (self.dim - self.rows) + self.constant

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"rows": int(self.rows)}

    def __call__(self, contexts: Array) -> Array:
        """Scale and cross (n, r + a) contexts to (n, scaled_dim)."""
        d, r = self.dim, self.rows
        out = np.ones((len(contexts), self.scaled_dim))
        plain = out[:, :d]
        np.subtract(contexts, self.center, out=plain)
        plain /= self.spread
        products = out[:, d : d + r * (d - r)].reshape(len(out), r, d - r)
        np.multiply(plain[:, :r, None], plain[:, None, r:], out=products)
        return out


def scale_from(description: dict[str, Any]) -> ContextMap:
    """Return the map that `describe` described, an `Affine`, `Crossed`, `SparseRows` or one of the user's."""
    if "kind" in description:
        return MAPS.made(description)
    if "columns" in description:
        return SparseRows(**description)
    return Crossed(**description) if "rows" in description else Affine(**description)


READERS["ContextMap"] = scale_from


Layout = Literal["disjoint", "shared", "hybrid", "bilinear"]
FITTED = "that the blocks were fitted to"  # which columns a table must have


@named_arguments
@dataclass(frozen=True)
class ArmBlocks:
    """Contexts of K arms from one row.

    Examples
    --------
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

    Content arms, as many as there are features, crossed with the row inside the policy:

    >>> content = ArmBlocks(None, Affine.identity(1, constant=True), "bilinear", features=Affine.identity(1))
    >>> content([3.0], features=[[7.0], [8.0]])
    array([[3., 7.],
           [3., 8.]])
    >>> content.scale(content([3.0], features=[[7.0], [8.0]]))
    array([[ 3.,  7., 21.,  1.],
           [ 3.,  8., 24.,  1.]])
    """

    arms: int | None
    """K; None if arms are distinguished by their features only, and their number may change from round to round."""
    rows: Affine
    """How a row is scaled; `fit` finds it from a sample of rows."""
    layout: Layout = "disjoint"
    features: Affine | None = None
    """How the arms' own features are scaled; None without features."""
    columns: tuple[str, ...] | None = None
    """Names of a row's numbers, if `fit` was given a table with names: later tables must have the same."""
    feature_columns: tuple[str, ...] | None = None
    """Names of the arms' features, likewise."""

    def __post_init__(self) -> None:
        check_choice("layout", self.layout, Layout)
        check_whole("arms", self.arms, 1, besides=(None,))
        if not isinstance(self.rows, Affine):
            raise errors.InvalidInput(f"rows must be an Affine, as ArmBlocks.fit makes it; got {shown(self.rows)}.")
        if self.features is not None and not isinstance(self.features, Affine):
            raise errors.InvalidInput(
                f"features must be the Affine that scales the arms' own features, or None; got {shown(self.features)}. "
                "The features themselves are given with the rows: blocks(rows, features)."
            )
        wrong = ""
        if self.features is not None and self.layout == "disjoint":
            wrong = "features need a part that arms share; 'disjoint' has none: use 'hybrid' or 'shared'."
        elif self.arms is None and self.features is None:
            wrong = "arms must be a number, or features must distinguish them; got neither. Give arms=K, or features="
            wrong += " with layout 'bilinear' or 'shared'."
        elif self.arms is None and self.layout == "hybrid":
            wrong = "layout 'hybrid' has a block for each arm, so arms must be a number; got None."
        elif self.arms is not None and self.layout == "bilinear":
            wrong = f"layout 'bilinear' distinguishes arms by their features: arms must be None; got {self.arms}."
        if wrong:
            raise errors.InvalidInput(wrong)

    @classmethod
    def fit(
        cls,
        rows: Any,
        arms: int | None = None,
        *,
        layout: Layout = "disjoint",
        constant: bool = True,
        features: Any = None,
    ) -> ArmBlocks:
        """Return blocks that standardise rows like this (n, r) sample, and features like an (N, f) sample of arms.

        Raises `InvalidInput` if the layout does not fit `arms` and `features`.

        Parameters
        ----------
        rows
            (n, r), or a table with column names, which later rows must then have too.
        arms
            K; None for content arms, which `features` distinguish.
        layout
            "disjoint", "shared" or "hybrid" for K arms, "shared" or "bilinear" for content arms.
        constant, features
            Whether a constant is appended; (N, f): a sample of arms, such as those of last month.

        Examples
        --------
        >>> users, articles = np.random.default_rng(0).normal(size=(2, 100, 3))
        >>> blocks = ArmBlocks.fit(users, layout="bilinear", features=articles)
        >>> blocks.dim, blocks.scale.scaled_dim
        (6, 16)
        """
        own = None if features is None else Affine.fit(read_rows(features, None, "features"), constant=False)
        named = column_names(rows), None if features is None else column_names(features)
        return cls(arms, Affine.fit(read_rows(rows, None), constant=constant), layout, own, *named)

    @property
    def dim(self) -> int:
        """Numbers in a context that this makes."""
        if self.arms is None:
            assert self.features is not None
            return self.rows.dim + self.features.dim
        return self._shared + self.arms * self._own

    @property
    def scale(self) -> Affine | Crossed:
        """The `context_scale` for a policy: the identity for K blocks, the map of plain contexts for content arms."""
        if self.arms is not None:
            return Affine.identity(self.dim)
        assert self.features is not None
        center = np.concatenate((self.rows.center, self.features.center))
        spread = np.concatenate((self.rows.spread, self.features.spread))
        if self.layout == "bilinear":
            return Crossed(center, spread, self.rows.constant, rows=self.rows.dim)
        return Affine(center, spread, self.rows.constant)

    @property
    def settings(self) -> dict[str, Any]:
        """`dim`, and `context_scale` with K, for a policy. LinUCB needs only `dim` for contexts of K blocks."""
        return self.settings_among(self.arms)

    def settings_among(self, arms: int | None) -> dict[str, Any]:
        """Return the settings for decisions among that many arms, which content arms do not know themselves."""
        return {"dim": self.dim, "context_scale": replace(self.scale, arms=arms)}

    @property
    def _shared(self) -> int:
        """Numbers before the first arm's part."""
        if self.layout == "disjoint":
            return 0
        return self.rows.scaled_dim + (0 if self.features is None else self.features.scaled_dim)

    @property
    def _own(self) -> int:
        """Numbers of each arm's part."""
        return 1 if self.layout == "shared" else self.rows.scaled_dim

    def describe(self) -> dict[str, Any]:
        """Return the blocks as JSON, for `from_description`."""
        own = None if self.features is None else self.features.describe()
        arms = None if self.arms is None else int(self.arms)
        described = {"arms": arms, "rows": self.rows.describe(), "layout": self.layout, "features": own}
        names = {"columns": self.columns, "feature_columns": self.feature_columns}
        return described | {name: list(columns) for name, columns in names.items() if columns is not None}

    @classmethod
    def from_description(cls, description: dict[str, Any]) -> ArmBlocks:
        """Return the blocks that `describe` described."""
        own = description["features"]
        scales = {"rows": Affine(**description["rows"]), "features": None if own is None else Affine(**own)}
        names = {name: tuple(description[name]) for name in ("columns", "feature_columns") if description.get(name)}
        return cls(**(description | scales | names))

    def __call__(self, rows: Any, features: Any = None) -> Array:
        """Return contexts of every arm: (r,) → (K, dim), or (n, r) → (n, K, dim); features are (K, f) or (n, K, f)."""
        check_columns("rows", rows, self.columns, FITTED)
        check_columns("features", features, self.feature_columns, FITTED)
        numbers = read_numbers(rows, "rows")
        read = as_rows(numbers, self.rows.dim, "rows")
        own_features = self._read_features(features, None if numbers.ndim == 1 else len(read))
        out = self._content(read, own_features) if self.arms is None else self._placed(read, own_features)
        return out[0] if numbers.ndim == 1 else out

    def _content(self, rows: Array, features: Array) -> Array:
        """Return [row, features] of every arm, (n, K, dim), not scaled."""
        out = np.empty((len(rows), features.shape[-2], self.dim)).view(ContentContexts)
        out[:, :, : self.rows.dim] = rows[:, None]
        out[:, :, self.rows.dim :] = features
        return out

    def _placed(self, rows: Array, features: Array) -> Array:
        """Return scaled rows and features in the blocks of their arms, (n, K, dim)."""
        assert self.arms is not None
        scaled = self.rows(rows)
        out = np.zeros((len(scaled), self.arms, self.dim)).view(BlockContexts)
        shared, own = self._shared, self._own
        if shared:
            width = scaled.shape[1]
            out[:, :, :width] = scaled[:, None]
            out[:, :, width:shared] = self._scaled(features)
        mark = np.ones((len(scaled), 1)) if self.layout == "shared" else scaled
        for arm in range(self.arms):
            start = shared + arm * own
            out[:, arm, start : start + own] = mark
        return out

    def _scaled(self, features: Array) -> Array:
        """Return features of K arms on their scale; empty without features."""
        if self.features is None:
            return features
        return self.features(features.reshape(-1, self.features.dim)).reshape(*features.shape[:-1], -1)

    def _read_features(self, features: Any, rounds: int | None) -> Array:
        """Return the arms' own features, checked: (K, …) or (n, K, …); empty without features."""
        if self.features is None:
            if features is not None:
                raise errors.InvalidContexts(
                    f"these blocks were made for arms without features; got features of shape {np.shape(features)}. "
                    "Make them with ArmBlocks.fit(rows, arms, layout='hybrid', features=sample)."
                )
            return np.empty((self.arms or 0, 0))
        array = None if features is None else read_numbers(features, "features")
        shape = () if array is None else array.shape
        arms = (max(1, shape[-2]) if len(shape) > 1 else 1) if self.arms is None else self.arms
        alone = (arms, self.features.dim)
        if array is None or shape not in (alone, (rounds, *alone)):
            each = f"({'K' if self.arms is None else self.arms}, {self.features.dim})"
            wanted = each if rounds is None else f"{each} or ({rounds}, {each[1:]}"
            got = "none" if array is None else f"shape {array.shape}"
            raise errors.InvalidContexts(f"features of the arms must have shape {wanted}; got {got}.")
        return array


def read_numbers(values: Any, name: str) -> Array:
    """Return an array of finite numbers, of any shape."""
    array = read_real(values, name, errors.InvalidContexts, "numbers, equally many in each")
    if not all_finite(array):
        raise errors.InvalidContexts(f"{name} must be finite numbers; fill in missing ones first.")
    return array


def read_rows(rows: Any, width: int | None, name: str = "rows") -> Array:
    """Return finite numbers as (n, r), with this width if one is given."""
    return as_rows(read_numbers(rows, name), width, name)


def as_rows(numbers: Array, width: int | None, name: str) -> Array:
    """Return numbers that were read as (n, r), with this width if one is given."""
    array = numbers if numbers.ndim == 2 else np.atleast_2d(numbers)
    if array.ndim != 2 or (width is not None and array.shape[1] != width):
        wanted = "r" if width is None else width
        raise errors.InvalidContexts(f"{name} must have shape ({wanted},) or (n, {wanted}); got {numbers.shape}.")
    return array
