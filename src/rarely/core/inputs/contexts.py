"""What `select` was given, checked at the door and brought to one form.

(K, d)            one round                 a list of (K_i, d)   rounds with different arms
(n, K, d)         n rounds                  mask (K,) or (n, K)  which arms are there

The contexts of a `Roster` without a capacity hold the open arms alone, as many as are True in their mask.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rarely.core.errors import ContextsWarning, InvalidContexts
from rarely.core.inputs.array_reader import read_array, read_real
from rarely.core.saving.fields import Fields
from rarely.core.types import Array, BoolArray, IntArray


@dataclass(frozen=True, slots=True)
class Part:
    """Some consecutive rounds, checked: `rows` holds the contexts of the arms that are there, in order."""

    rows: Array
    """(N, d) with N = present.sum()."""
    present: BoolArray
    """(n, K)."""
    complete: bool
    """Whether every arm is there; a decision among all arms then does without their bookkeeping."""

    def __len__(self) -> int:
        return len(self.present)

    def rows_until(self, rounds: int) -> Array:
        """The rows of the first so many rounds."""
        return self.rows if rounds == len(self) else self.rows[: int(self.present[:rounds].sum())]

    def row_of(self, arms: IntArray) -> IntArray:
        """(n,): which of `rows` belongs to the given arm of each round."""
        if self.complete:
            return np.arange(0, self.present.size, self.present.shape[1]) + arms
        before = np.cumsum(self.present.ravel()).reshape(self.present.shape) - 1
        return np.asarray(before[np.arange(len(arms)), arms], np.int64)

    def disjoint(self, rounds: int) -> bool:
        """Whether no column has numbers other than 0 for two arms of one of the first so many rounds.

        >>> Part(np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 0.0], [1.0, 2.0]]), np.ones((2, 2), bool), True).disjoint(1)
        True
        """
        there = self.rows_until(rounds) != 0
        if self.complete:
            counts = np.add.reduce(there.reshape(rounds, -1, there.shape[1]), axis=1, dtype=np.int64)
        else:
            starts = np.cumsum(self.present[:rounds].sum(axis=1))[:-1]
            counts = np.add.reduceat(there, np.concatenate(([0], starts)), axis=0, dtype=np.int64)
        return int(np.maximum.reduce(counts, axis=None)) <= 1

    def padded(self, values: Array) -> Array:
        """(N,) → (n, K), NaN where no arm is."""
        if self.complete:
            return values.reshape(self.present.shape)
        out = np.full(self.present.shape, np.nan)
        out[self.present] = values
        return out


@dataclass(frozen=True, slots=True)
class RoundContexts:
    """n rounds of at most K arms, of the right shape; their numbers are checked part by part.

    So a stream may be offered whole, again and again, and costs only the rounds that are decided.
    """

    given: NDArray[Any] | list[Array]
    """(n, K, d) of whatever kind of numbers came, or those of the present arms alone, or n arrays (K_i, d)."""
    present: BoolArray
    """(n, K)."""
    single: bool
    """Whether one round came without a leading axis."""
    complete: bool = False
    """Whether every arm is known to be there."""

    def __len__(self) -> int:
        return len(self.present)

    @property
    def arms(self) -> int:
        """Arms of a round, in the mean and rounded up."""
        if isinstance(self.given, list):
            return -(-sum(map(len, self.given)) // len(self))
        return int(self.given.shape[1])

    def parts(self, sizes: Callable[[], int]) -> Iterator[Part]:
        """Consecutive parts of as many rounds as `sizes` says each time, at least one."""
        done = 0
        while done < len(self):
            end = min(len(self), done + max(1, sizes()))
            present = self.present[done:end]
            part = Part(self._rows(done, end), present, self.complete)
            _check(part, done)
            yield part
            done = end

    def _rows(self, done: int, end: int) -> Array:
        if isinstance(self.given, list):
            return np.concatenate(self.given[done:end])
        part = self.given[done:end]
        alone = self.complete or part.shape[1] != self.present.shape[1]
        chosen = part.reshape(-1, part.shape[2]) if alone else part[self.present[done:end]]
        return np.asarray(chosen, np.float64)


class BlockContexts(np.ndarray[Any, np.dtype[np.float64]]):
    """Contexts that `ArmBlocks` made, which are scaled already; an array in every other respect."""

    def __repr__(self) -> str:
        return repr(np.asarray(self))


class ContentContexts(np.ndarray[Any, np.dtype[np.float64]]):
    """Contexts of content arms, [row, features] as they came; an array in every other respect."""

    def __repr__(self) -> str:
        return repr(np.asarray(self))


class OpenContexts(ContentContexts):
    """Contexts of the open arms of a `Roster` without a capacity; the mask that comes with them has every arm."""


SEVERAL = -1
"""For `ContextReader.arms`: the number of arms varies."""


@dataclass(frozen=True, slots=True)
class ContextReader:
    """Reads contexts and remembers what they looked like, to notice calls that are right in shape and wrong."""

    dim: int
    fits_scale: bool
    """Whether the policy scales contexts itself, which would fill the zeros of blocks."""
    columns: tuple[str, ...] | None = None
    """Names of the numbers in a context, from the first table with names."""
    arms: int | None = None
    """K of the single rounds so far; None before the first."""

    def read(self, contexts: Any, mask: Any) -> RoundContexts:
        """The rounds that came, checked."""
        if self.fits_scale and isinstance(contexts, BlockContexts):
            raise InvalidContexts(
                "contexts of ArmBlocks are scaled already, but this policy was made without their settings and would "
                "scale them again, which fills the zero blocks. Make the policy with **blocks.settings."
            )
        if self.fits_scale and isinstance(contexts, ContentContexts):
            raise InvalidContexts(
                "contexts of content arms are scaled and crossed by the policy, but this one was made without the "
                "settings of their ArmBlocks. Make the policy with **blocks.settings."
            )
        if mask is None and isinstance(contexts, OpenContexts):
            raise InvalidContexts(
                "contexts of a Roster must come with its mask, which says whose they are. Give both to the policy: "
                "policy.select(*roster(rows))."
            )
        if self.columns is not None:
            for names in filter(None, map(column_names, _tables(contexts))):
                if names != self.columns:
                    raise InvalidContexts(
                        "the columns of contexts must be those of the first call, in its order: "
                        f"{_listed(self.columns)}; got {_listed(names)}. Select them by name: "
                        f"contexts[{list(self.columns)!r}]."
                    )
        return read_rounds(contexts, mask, self.dim)

    def after(self, contexts: Any, rounds: RoundContexts) -> ContextReader:
        """The reader after `select` was given these contexts."""
        reader, arms = self.after_log(contexts), self.arms
        if rounds.single and rounds.complete:
            arms = rounds.arms
            if self.arms not in (None, SEVERAL, arms):
                warnings.warn(
                    f"contexts of shape ({arms}, {self.dim}) are one round of {arms} arms, and earlier rounds had "
                    f"{self.arms}. Give n rounds as (n, K, {self.dim}). If the number of arms varies, nothing is "
                    "wrong, and this is said only once.",
                    ContextsWarning,
                    stacklevel=4,
                )
                arms = SEVERAL
            elif self.arms == SEVERAL:
                arms = SEVERAL
        return reader if arms == reader.arms else replace(reader, arms=arms)

    def after_log(self, contexts: Any) -> ContextReader:
        """The reader that knows the names of the columns, if these contexts have some."""
        if self.columns is not None:
            return self
        names = next(filter(None, map(column_names, _tables(contexts))), None)
        return self if names is None else replace(self, columns=names)

    def describe(self) -> dict[str, Any]:
        """What was remembered, as JSON."""
        return {"columns": None if self.columns is None else list(self.columns), "arms": self.arms}

    @classmethod
    def restored(cls, dim: int, fits_scale: bool, saved: Fields) -> ContextReader:
        """The saved reader."""
        with saved:
            arms = None if saved.is_null("arms") else saved.whole("arms", least=SEVERAL)
            saved.require(arms != 0, f"arms must be null, {SEVERAL} or at least 1")
            if saved.is_null("columns"):
                return cls(dim, fits_scale, None, arms)
            columns = saved.listed("columns")
            named = len(columns) == dim and all(isinstance(name, str) for name in columns)
            saved.require(named, f"columns must be the names of {dim} columns")
            return cls(dim, fits_scale, tuple(columns), arms)


def column_names(table: Any) -> tuple[str, ...] | None:
    """The names of a table's columns, of pandas, Polars or the like, or of a row of one; None for what has none."""
    names = getattr(table, "columns", None)
    if names is not None and not callable(names):
        return tuple(map(str, names))
    labels = getattr(table, "index", None)
    if labels is None or callable(labels) or getattr(table, "ndim", None) != 1:
        return None
    return tuple(labels) if all(isinstance(label, str) for label in labels) else None


def _tables(contexts: Any) -> Sequence[Any]:
    return contexts if isinstance(contexts, list | tuple) else (contexts,)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (", …" if len(names) > 8 else "")


def read_rounds(contexts: Any, mask: Any, dim: int) -> RoundContexts:
    """Bring contexts and mask, whatever their form, to one.

    >>> read_rounds([[0.0, 1.0], [1.0, 0.0]], None, dim=2).present
    array([[ True,  True]])
    """
    if mask is None and _is_ragged(contexts):
        return _from_list(contexts, dim)
    array: NDArray[Any]
    if type(contexts) is np.ndarray and contexts.dtype.kind in "fiub":
        array = contexts  # a stream may be offered whole, and is converted part by part
    else:
        wanted = (
            f"numbers of shape (K, {dim}) or (n, K, {dim}); rounds with different numbers of arms go in a list of "
            "(K_i, d) arrays, without a mask"
        )
        array = read_real(contexts, "contexts", InvalidContexts, wanted)
    if array.ndim not in (2, 3) or array.shape[-1] != dim:
        raise InvalidContexts(
            f"contexts must have shape (K, {dim}) or (n, K, {dim}), because the policy was made with "
            f"dim={dim}; got {array.shape}."
        )
    present = _read_mask(mask, array.shape[:-1], rows_alone=isinstance(contexts, OpenContexts))
    single = array.ndim == 2
    if single:
        array, present = array[None], present[None]
    return _not_empty(RoundContexts(array, present, single, complete=mask is None))


def _is_ragged(contexts: Any) -> bool:
    """A list of rounds: its items are arrays or lists of K contexts, not contexts or numbers."""
    return isinstance(contexts, list | tuple) and len(contexts) > 0 and _depth(contexts[0]) == 2


def _depth(item: Any) -> int:
    depth = 0
    while isinstance(item, list | tuple):
        depth, item = depth + 1, (item[0] if len(item) else None)
    return depth + (len(item.shape) if hasattr(item, "shape") else 0)


def _from_list(contexts: Sequence[Any], dim: int) -> RoundContexts:
    arrays = []
    for i, item in enumerate(contexts):
        array = read_real(item, f"round {i} of the list", InvalidContexts, f"numbers of shape (K_i, {dim})")
        if array.ndim != 2 or array.shape[1] != dim:
            raise InvalidContexts(f"round {i} of the list must have shape (K_i, {dim}); got {array.shape}.")
        arrays.append(array)
    counts = np.array([len(a) for a in arrays])
    present = np.arange(counts.max()) < counts[:, None]
    return _not_empty(RoundContexts(arrays, present, False))


def _read_mask(mask: Any, shape: tuple[int, ...], *, rows_alone: bool = False) -> BoolArray:
    if mask is None:
        # A stream of rounds may be offered whole for the few of them that are decided.
        return np.ones(shape, np.bool_) if len(shape) == 1 else np.broadcast_to(np.True_, shape)
    array = read_array(mask, "mask", InvalidContexts, f"boolean of shape {shape}")
    if rows_alone and array.dtype == np.bool_ and array.ndim == len(shape) and array.shape[:-1] == shape[:-1]:
        if (array.sum(axis=-1) != shape[-1]).any():
            raise InvalidContexts(
                f"a mask of a Roster must be True for each of the {shape[-1]} arms whose contexts came; got "
                f"{int(array.sum(axis=-1).flat[0])}. Use the mask that came with the contexts."
            )
        return array
    if array.dtype != np.bool_ or array.shape != shape:
        raise InvalidContexts(
            f"mask must be boolean of shape {shape}, True where an arm is there; "
            f"got {array.dtype} of shape {array.shape}."
        )
    return array


def _not_empty(rounds: RoundContexts) -> RoundContexts:
    if not rounds.present.size:
        raise InvalidContexts(
            f"contexts must hold at least one round with at least one arm; got {len(rounds)} rounds of {rounds.arms}."
        )
    return rounds


def _check(part: Part, offset: int) -> None:
    if not part.complete and not part.present.any(axis=1).all():
        empty = np.flatnonzero(~part.present.any(axis=1))
        raise InvalidContexts(
            f"every round must have at least one arm; round {offset + int(empty[0])} of the call has none."
        )
    if not np.isfinite(part.rows).all():
        bad = int(np.flatnonzero(~np.isfinite(part.rows).all(axis=1))[0])
        owner, arm = (int(axis[bad]) for axis in np.nonzero(part.present))
        number = int(np.flatnonzero(~np.isfinite(part.rows[bad]))[0])
        raise InvalidContexts(
            f"contexts must be finite; arm {arm} of round {offset + owner} of the call has {part.rows[bad, number]} in "
            f"column {number}. Leave an absent arm out with mask, and fill in missing numbers before the "
            "policy sees them."
        )
