"""Contexts and other arrays as a caller gives them, checked at the door and brought to one form.

(K, d)            one round                 a list of (K_i, d)   rounds with different arms
(n, K, d)         n rounds                  mask (K,) or (n, K)  which arms are available

The contexts of a `Roster` without a capacity hold the open arms only, as many as are True in their mask.

NumPy silently converts what is not a real number: it drops the imaginary part of a complex array and the mask of a
masked one, and parses text. All of that is refused here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rarely._core.errors import ContextsWarning, InvalidContexts
from rarely._core.growable_array import all_finite
from rarely._core.reading import read_array, read_real
from rarely._core.saving.fields import Fields
from rarely._core.types import Array, BoolArray, IntArray

SEVERAL = -1  # for `ContextReader.arms`: the number of arms varies


# --- rounds


@dataclass(slots=True, eq=False)
class Part:
    """Some consecutive rounds, checked: `rows` holds the contexts of the available arms, in order."""

    rows: Array  # (N, d) with N = present.sum()
    present: BoolArray  # (n, K): which arms are available
    complete: bool  # whether every arm is available; a decision among all arms then needs no bookkeeping of them
    worth: Any = None  # the `Worth` of these rounds, (n, K); None where outcomes are worth what they are

    def __len__(self) -> int:
        return len(self.present)

    def rows_until(self, rounds: int) -> Array:
        """Return the rows of the first `rounds` rounds."""
        return self.rows if rounds == len(self.present) else self.rows[: int(self.present[:rounds].sum())]

    def row_of(self, arms: IntArray) -> IntArray:
        """Return which of `rows` belongs to the given arm of each of the first rounds, one of each."""
        if self.complete:
            arms_each = self.present.shape[1]
            return np.arange(0, len(arms) * arms_each, arms_each) + arms
        before = np.cumsum(self.present.ravel()).reshape(self.present.shape) - 1
        return np.asarray(before[np.arange(len(arms)), arms], np.int64)

    def disjoint(self, rounds: int, *, packed: bool = False) -> bool:
        """Return whether no column is nonzero for two arms of one of the first `rounds` rounds; see `SparseRows`.

        >>> part = Part(np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 0.0], [1.0, 2.0]]), np.ones((2, 2), bool), True)
        >>> part.disjoint(1), part.disjoint(2), part.disjoint(2, packed=True)
        (True, False, True)
        """
        rows = self.rows_until(rounds)
        if packed:
            columns, numbers = np.split(rows, 2, axis=1)
            owners = np.repeat(np.arange(rounds), self.present[:rounds].sum(axis=1))
            used = (owners[:, None] * (columns.max(initial=0.0) + 1) + columns)[numbers != 0]
            return len(np.unique(used)) == len(used)
        if np.count_nonzero(rows) > rounds * rows.shape[1]:
            return False  # more numbers than columns
        nonzero = rows != 0
        if self.complete:
            counts = np.add.reduce(nonzero.reshape(rounds, -1, nonzero.shape[1]), axis=1, dtype=np.int64)
        else:
            starts = np.cumsum(self.present[:rounds].sum(axis=1))[:-1]
            counts = np.add.reduceat(nonzero, np.concatenate(([0], starts)), axis=0, dtype=np.int64)
        return int(np.maximum.reduce(counts, axis=None)) <= 1

    def padded(self, values: Array) -> Array:
        """Return (N,) values as (n, K), NaN for absent arms."""
        if self.complete:
            return values.reshape(self.present.shape)
        out = np.full(self.present.shape, np.nan)
        out[self.present] = values
        return out

    def check(self, offset: int, *, missing: bool) -> None:
        """Raise InvalidContexts unless every round has an arm and all numbers are finite, or NaN if `missing`."""
        if not self.complete and not (some := self.present.any(axis=1)).all():
            raise InvalidContexts(f"every round must have at least one arm; round {offset + some.argmin()} has none.")
        if not all_finite(self.rows) and (wrong := np.isinf(self.rows) if missing else ~np.isfinite(self.rows)).any():
            bad = int(np.flatnonzero(wrong.any(axis=1))[0])
            owner, arm = (int(axis[bad]) for axis in np.nonzero(self.present))
            number = int(np.flatnonzero(wrong[bad])[0])
            raise InvalidContexts(
                f"contexts must be finite; arm {arm} of round {offset + owner} of the call has "
                f"{self.rows[bad, number]} in column {number}. Leave an absent arm out with mask, and fill in missing "
                "numbers before the policy sees them."
            )


@dataclass(slots=True, eq=False)
class RoundContexts:
    """n rounds of at most K arms, of the right shape; their numbers are checked part by part.

    So a stream may be passed whole, again and again, and costs only the rounds that are decided.
    """

    given: NDArray[Any] | list[Array]
    """(n, K, d) of whatever kind of numbers came, or those of the available arms only, or n arrays (K_i, d)."""
    present: BoolArray  # (n, K): which arms are available
    arms: int  # arms of a round, on average and rounded up
    single: bool  # whether one round came without a leading axis
    complete: bool = False  # whether every arm is known to be available
    missing: bool = False  # whether NaN stands for a missing number
    worth: Any = None  # the `Worth` of the arms, (n, K); None where outcomes are worth what they are

    def __post_init__(self) -> None:
        if not self.present.size:
            raise InvalidContexts(
                f"contexts must hold a round and an arm at least; got {len(self)} rounds of {self.arms}."
            )

    def __len__(self) -> int:
        return len(self.present)

    def part(self, done: int, most: Callable[[], int]) -> Part:
        """Return the next rounds after the first `done`: `most()` of them, at least one."""
        count = len(self.present)
        end = count if count - done == 1 else min(count, done + max(1, most()))
        worth = None if self.worth is None else self.worth[done:end]
        part = Part(self.rows(done, end), self.present[done:end], self.complete, worth)
        part.check(done, missing=self.missing)
        return part

    def parts(self, most: Callable[[], int]) -> Iterator[Part]:
        """Yield all rounds in consecutive parts."""
        done = 0
        while done < len(self.present):
            yield (part := self.part(done, most))
            done += len(part)

    @property
    def whole(self) -> bool:
        """Whether an array came with every arm of every round in it."""
        return self.complete and not isinstance(self.given, list) and self.given.shape[1] == self.present.shape[1]

    def worth_of(self, rounds: int) -> Any:
        """Return the worth of the first rounds, (n, K), or (K,) of one that came without a leading axis."""
        return None if self.worth is None else self.worth[0 if self.single else slice(rounds)]

    def alone(self, i: int) -> RoundContexts:
        """Return one of the rounds, as one that came without a leading axis."""
        worth = None if self.worth is None else self.worth[i : i + 1]
        there = self.present[i : i + 1]
        return RoundContexts(self.given[i : i + 1], there, self.arms, True, self.complete, self.missing, worth)

    def rows(self, done: int, end: int) -> Array:
        """Return the contexts of the available arms of some rounds, in order, −0 as 0."""
        if isinstance(self.given, list):
            return np.concatenate(self.given[done:end]) + 0.0
        part = self.given[done:end]
        alone = self.complete or part.shape[1] != self.present.shape[1]
        chosen = part.reshape(-1, part.shape[2]) if alone else part[self.present[done:end]]
        return np.asarray(np.add(chosen, 0.0, dtype=np.float64))  # −0 becomes 0: equal contexts are the same bytes


def read_rounds(contexts: Any, mask: Any, dim: int) -> RoundContexts:
    """Return contexts and mask, whatever their form, as rounds."""
    array: NDArray[Any]
    if type(contexts) is np.ndarray and contexts.dtype.kind in "fiub":
        array = contexts  # a stream may be passed whole, and is converted part by part
    elif mask is None and isinstance(contexts, list | tuple) and contexts and _depth(contexts[0]) == 2:
        return _from_list(contexts, dim)
    else:
        wanted = (
            f"numbers of shape (K, {dim}) or (n, K, {dim}); rounds with different numbers of arms go in a list of "
            "(K_i, d) arrays, without a mask"
        )
        array = read_real(contexts, "contexts", InvalidContexts, wanted)
    if array.ndim not in (2, 3) or array.shape[-1] != dim:
        raise InvalidContexts(f"contexts must have shape (K, {dim}) or (n, K, {dim}), as dim={dim}; got {array.shape}.")
    if mask is None:
        # A stream of rounds may be passed whole for the few of them that are decided, so nothing of its size is made.
        present = np.broadcast_to(np.True_, array.shape[:-1]) if array.ndim > 2 else _all_present(len(array))
    else:
        present = _read_mask(mask, array.shape[:-1], rows_alone=isinstance(contexts, OpenContexts))
    single = array.ndim == 2
    if single:
        array, present = array[None], present[None]
    return RoundContexts(array, present, array.shape[1], single, mask is None)


@lru_cache(maxsize=64)
def _all_present(arms: int) -> BoolArray:
    present = np.ones(arms, np.bool_)
    present.flags.writeable = False
    return present


def _depth(item: Any) -> int:
    """Return the number of axes of an array or of nested lists."""
    depth = 0
    while isinstance(item, list | tuple):
        depth, item = depth + 1, (item[0] if len(item) else None)
    return depth + (len(item.shape) if hasattr(item, "shape") else 0)


def _from_list(contexts: Sequence[Any], dim: int) -> RoundContexts:
    """Return rounds with different arms."""
    arrays = []
    for i, item in enumerate(contexts):
        array = read_real(item, f"round {i} of the list", InvalidContexts, f"numbers of shape (K_i, {dim})")
        if array.ndim != 2 or array.shape[1] != dim:
            raise InvalidContexts(f"round {i} of the list must have shape (K_i, {dim}); got {array.shape}.")
        arrays.append(array)
    counts = np.array([len(a) for a in arrays])
    present = np.arange(counts.max()) < counts[:, None]
    return RoundContexts(arrays, present, -(-int(counts.sum()) // len(arrays)), single=False)


def _read_mask(mask: Any, shape: tuple[int, ...], *, rows_alone: bool) -> BoolArray:
    array = read_array(mask, "mask", InvalidContexts, f"boolean of shape {shape}")
    wanted = (*shape[:-1], *array.shape[-1:]) if rows_alone else shape
    if array.dtype != np.bool_ or array.shape != wanted:
        raise InvalidContexts(
            f"mask must be boolean of shape {shape}, True where an arm is available; "
            f"got {array.dtype} of shape {array.shape}."
        )
    if rows_alone and (array.sum(axis=-1) != shape[-1]).any():
        raise InvalidContexts(
            f"a mask of a Roster must be True for each of the {shape[-1]} arms whose contexts came; got "
            f"{int(array.sum(axis=-1).flat[0])}. Use the mask that came with the contexts."
        )
    return array


# --- contexts with a kind


class MarkedContexts(np.ndarray[Any, np.dtype[np.float64]]):
    """Contexts whose class says who made them; an array in every other respect."""

    def __repr__(self) -> str:
        return repr(np.asarray(self))


class BlockContexts(MarkedContexts):
    """Contexts that `ArmBlocks` made, which are scaled already."""


class ContentContexts(MarkedContexts):
    """Contexts of content arms, [row, features] as they came."""


class OpenContexts(ContentContexts):
    """Contexts of the open arms of a `Roster` without a capacity; the mask that comes with them has every arm."""


@dataclass(frozen=True, slots=True)
class ContextReader:
    """Reads contexts and remembers their form, to notice calls that are right in shape and wrong."""

    dim: int
    fits_scale: bool  # whether the policy scales contexts itself, which would fill the zeros of blocks
    columns: tuple[str, ...] | None = None  # names of the numbers in a context, from the first table with names
    arms: int | None = None  # K of the single rounds so far; None before the first
    missing: bool = False  # whether NaN is accepted, because the policy's model takes it

    def read(self, contexts: Any, mask: Any) -> RoundContexts:
        """Return the rounds that came, checked."""
        if type(contexts) is not np.ndarray:
            self._check_kind(contexts, mask)
        rounds = read_rounds(contexts, mask, self.dim)
        rounds.missing = self.missing
        return rounds

    def _check_kind(self, contexts: Any, mask: Any) -> None:
        """Raise InvalidContexts for contexts of another policy's blocks or roster, or with other columns."""
        if self.fits_scale and isinstance(contexts, BlockContexts | ContentContexts):
            raise InvalidContexts(
                "contexts of ArmBlocks need a policy made with **blocks.settings: this one would scale them by itself, "
                "which fills the zeros of blocks, and cross nothing. Make the policy with **blocks.settings."
            )
        if mask is None and isinstance(contexts, OpenContexts):
            raise InvalidContexts("contexts of a Roster must come with its mask: policy.select(*roster(rows)).")
        for table in _tables(contexts):
            check_columns("contexts", table, self.columns, "of the first call")

    def after(self, contexts: Any, rounds: RoundContexts) -> ContextReader:
        """Return the reader after `select` was given these contexts."""
        reader, arms = self.after_log(contexts), rounds.arms
        if not (rounds.single and rounds.complete) or self.arms in (SEVERAL, arms):
            return reader
        if self.arms is not None:
            warnings.warn(
                f"contexts of shape ({arms}, {self.dim}) are one round of {arms} arms, and earlier rounds had "
                f"{self.arms}. Give n rounds as (n, K, {self.dim}). If the number of arms varies, nothing is "
                "wrong, and this warning does not come again.",
                ContextsWarning,
                stacklevel=4,
            )
        return replace(reader, arms=arms if self.arms is None else SEVERAL)

    def after_log(self, contexts: Any) -> ContextReader:
        """Return the reader that knows the names of the columns, if these contexts have names."""
        if self.columns is not None or type(contexts) is np.ndarray:
            return self
        names = next(filter(None, map(column_names, _tables(contexts))), None)
        return self if names is None else replace(self, columns=names)

    def describe(self) -> dict[str, Any]:
        """Return what is remembered as JSON, for `restored`."""
        return {"columns": None if self.columns is None else list(self.columns), "arms": self.arms}

    def restored(self, saved: Fields) -> ContextReader:
        """Return the saved reader; this one has read nothing."""
        with saved:
            arms = None if saved.is_null("arms") else saved.whole("arms", SEVERAL)
            return replace(self, columns=saved.of("columns", tuple[str, ...] | None), arms=arms)


def column_names(table: Any) -> tuple[str, ...] | None:
    """Return the names of a table's columns, of pandas, Polars or the like, or of a row of one; None without names."""
    names = getattr(table, "columns", None)
    if names is not None and not callable(names):
        return tuple(map(str, names))
    labels = getattr(table, "index", None)
    if labels is None or callable(labels) or getattr(table, "ndim", None) != 1:
        return None
    return tuple(labels) if all(isinstance(label, str) for label in labels) else None


def check_columns(name: str, table: Any, wanted: tuple[str, ...] | None, those: str) -> None:
    """Raise InvalidContexts for a table with other columns than those that are wanted."""
    names = None if wanted is None else column_names(table)
    if wanted is not None and names is not None and names != wanted:
        listed, came = (", ".join(each[:8]) + (", …" if len(each) > 8 else "") for each in (wanted, names))
        raise InvalidContexts(
            f"the columns of {name} must be those {those}, in the same order: {listed}; got {came}. Select them by "
            f"name: table[{list(wanted)!r}]."
        )


def _tables(contexts: Any) -> Sequence[Any]:
    return contexts if isinstance(contexts, list | tuple) else (contexts,)
