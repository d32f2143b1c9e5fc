"""What `select` was given, checked at the door and brought to one form.

(K, d)            one round                 a list of (K_i, d)   rounds with different arms
(n, K, d)         n rounds                  mask (K,) or (n, K)  which arms are there
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rarely.core.errors import InvalidContexts
from rarely.core.types import Array, BoolArray, IntArray


@dataclass(frozen=True, slots=True)
class Rounds:
    """n rounds of at most K arms: `rows` holds the contexts of the arms that are there, in order."""

    rows: Array
    """(N, d) with N = present.sum()."""
    present: BoolArray
    """(n, K)."""
    single: bool
    """Whether one round came without a leading axis."""

    def __len__(self) -> int:
        return len(self.present)

    def parts(self, sizes: Callable[[], int]) -> Iterator[Rounds]:
        """Consecutive parts of as many rounds as `sizes` says each time, at least one."""
        starts = np.concatenate(([0], np.cumsum(self.present.sum(axis=1))))
        done = 0
        while done < len(self):
            end = min(len(self), done + max(1, sizes()))
            yield Rounds(self.rows[starts[done] : starts[end]], self.present[done:end], self.single)
            done = end

    def row_of(self, arms: IntArray) -> IntArray:
        """(n,): which of `rows` belongs to the given arm of each round."""
        before = np.cumsum(self.present.ravel()).reshape(self.present.shape) - 1
        return np.asarray(before[np.arange(len(arms)), arms], np.int64)

    def spread(self, values: Array) -> Array:
        """(N,) → (n, K), NaN where no arm is."""
        out = np.full(self.present.shape, np.nan)
        out[self.present] = values
        return out


def read_rounds(contexts: Any, mask: Any, dim: int) -> Rounds:
    """Check contexts and mask, whatever their form.

    >>> read_rounds([[0.0, 1.0], [1.0, 0.0]], None, dim=2).present
    array([[ True,  True]])
    """
    if _is_ragged(contexts):
        return _from_list(contexts, mask, dim)
    try:
        array = np.asarray(contexts, np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidContexts(
            f"contexts must be numbers of shape (K, {dim}) or (n, K, {dim}); {error}. "
            "Rounds with different numbers of arms go in a list of (K_i, d) arrays."
        ) from None
    if array.ndim not in (2, 3) or array.shape[-1] != dim:
        raise InvalidContexts(
            f"contexts must have shape (K, {dim}) or (n, K, {dim}), because the policy was made with "
            f"dim={dim}; got {array.shape}."
        )
    present = _read_mask(mask, array.shape[:-1])
    single = array.ndim == 2
    block, present = (array[None], present[None]) if single else (array, present)
    return _checked(block[present], present, single)


def _is_ragged(contexts: Any) -> bool:
    """A list of rounds: its items are arrays or lists of K contexts, not contexts or numbers."""
    return isinstance(contexts, list | tuple) and len(contexts) > 0 and _depth(contexts[0]) == 2


def _depth(item: Any) -> int:
    if isinstance(item, np.ndarray):
        return item.ndim
    depth = 0
    while isinstance(item, list | tuple | np.ndarray):
        if isinstance(item, np.ndarray):
            return depth + item.ndim
        depth, item = depth + 1, (item[0] if len(item) else None)
    return depth


def _from_list(contexts: Sequence[Any], mask: Any, dim: int) -> Rounds:
    if mask is not None:
        raise InvalidContexts(
            "mask goes with contexts of shape (K, d) or (n, K, d); in a list of rounds leave the absent arms out."
        )
    arrays = []
    for i, item in enumerate(contexts):
        try:
            array = np.asarray(item, np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidContexts(f"round {i} of the list must be numbers of shape (K_i, {dim}); {error}.") from None
        if array.ndim != 2 or array.shape[1] != dim:
            raise InvalidContexts(f"round {i} of the list must have shape (K_i, {dim}); got {array.shape}.")
        arrays.append(array)
    counts = np.array([len(a) for a in arrays])
    present = np.arange(counts.max()) < counts[:, None]
    return _checked(np.concatenate(arrays), present, single=False)


def _read_mask(mask: Any, shape: tuple[int, ...]) -> BoolArray:
    if mask is None:
        return np.ones(shape, np.bool_)
    array = np.asarray(mask)
    if array.dtype != np.bool_ or array.shape != shape:
        raise InvalidContexts(
            f"mask must be boolean of shape {shape}, True where an arm is there; "
            f"got {array.dtype} of shape {array.shape}."
        )
    return array


def _checked(rows: Array, present: BoolArray, single: bool) -> Rounds:
    if not len(present):
        raise InvalidContexts("contexts must hold at least one round; got none.")
    empty = np.flatnonzero(~present.any(axis=1))
    if len(empty):
        raise InvalidContexts(f"every round must have at least one arm; round {int(empty[0])} of the call has none.")
    if not np.isfinite(rows).all():
        bad = int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0])
        owner, arm = (int(axis[bad]) for axis in np.nonzero(present))
        raise InvalidContexts(
            f"contexts must be finite; arm {arm} of round {owner} of the call holds {rows[bad].tolist()}. "
            "Leave an absent arm out with mask, and fill in missing numbers before the policy sees them."
        )
    return Rounds(rows, present, single)
