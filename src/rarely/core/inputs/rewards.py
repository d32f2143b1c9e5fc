"""Rewards and logged samples as a caller gives them, checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from rarely.core.errors import ConflictingReward, InvalidContexts, InvalidReward
from rarely.core.inputs.array_reader import read_real
from rarely.core.types import Array, BoolArray, IntArray


def read_log(contexts: Any, rewards: Any) -> tuple[Array, Array]:
    """Check logged samples: (n, d) contexts of the arms that were chosen, and their rewards."""
    rows = read_real(contexts, "logged contexts", InvalidContexts, "numbers of shape (n, d)")
    if rows.ndim != 2 or not rows.size:
        raise InvalidContexts(
            f"logged contexts must have shape (n, d), n ≥ 1, one row for the arm that was chosen; got {rows.shape}."
        )
    if not np.isfinite(rows).all():
        raise InvalidContexts("logged contexts must be finite; drop or fill in the rows that are not.")
    return rows, read_rewards(rewards, len(rows))


def read_rewards(rewards: Any, count: int) -> Array:
    """Check so many rewards."""
    if rewards is None:
        raise InvalidReward(f"rewards must be one finite number a round: {count} rounds, but no rewards were given.")
    values = np.atleast_1d(read_real(rewards, "rewards", InvalidReward, "numbers, one a round"))
    if values.shape != (count,):
        raise InvalidReward(f"rewards must be one number a round: {count} rounds, but rewards of shape {values.shape}.")
    if not np.isfinite(values).all():
        raise InvalidReward(
            f"rewards must be finite; got {values[~np.isfinite(values)][0]}. A reward that never comes is simply "
            "not observed."
        )
    return values


def newly_told(earlier: Array, rows: IntArray, numbers: IntArray, values: Array) -> BoolArray:
    """Which values tell something new; `earlier` has what is known of each row, NaN for nothing.

    A second, different reward for a round is refused, also within one call.
    """
    if len(rows) > 1:
        order = np.argsort(rows, kind="stable")
        again = rows[order][1:] == rows[order][:-1]
        earlier = earlier.copy()
        earlier[order[1:][again]] = values[order[:-1][again]]
    clash = ~np.isnan(earlier) & (earlier != values)
    if clash.any():
        i = int(np.flatnonzero(clash)[0])
        raise ConflictingReward(
            f"a round has one reward: round {numbers[i]} had {earlier[i]} and now came {values[i]}. "
            "The same value told twice is fine; to correct a value, start from a corrected log."
        )
    return np.isnan(earlier)


def fresh_rewards(known: Array, rows: IntArray, numbers: IntArray, values: Array) -> BoolArray:
    """`newly_told` where the rewards of all rows stand in one array."""
    return newly_told(known[rows], rows, numbers, values)
