"""What was chosen, under which version, and the rewards that came back.

Row i is a logged sample for i < logged, and round i − logged + 1 from there on: rounds count from 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rarely.core.errors import ConflictingReward, InvalidContexts, InvalidReward, UnknownRound
from rarely.core.forgetting import Forgetting
from rarely.core.rows import Rows
from rarely.core.types import Array, Arrays, BoolArray, IntArray

LOGGED = -1
"""The version, and the arm, of a row that came from a log."""


class Samples(NamedTuple):
    """What an update learns from."""

    rows: IntArray
    """(n,): where they stand in the history."""
    contexts: Array
    rewards: Array
    weights: Array | None
    """(n,), or None where nothing is forgotten."""


class History:
    """Contexts of the chosen arms as they came, and their rewards; a reward that is not in is NaN."""

    def __init__(self, dim: int, forgetting: Forgetting | None = None) -> None:
        self.forgetting = forgetting
        self._contexts, self._rewards = Rows(dim), Rows(None)
        self._arms, self._versions = Rows(None, np.int64), Rows(None, np.int64)
        self._known = Rows(3)
        """Propensity, mean and bonus of the chosen arm."""
        self._arrivals = Rows(None, np.int64)
        """Rows in the order in which their rewards came."""
        self.logged = 0

    def __len__(self) -> int:
        return len(self._rewards)

    @property
    def contexts(self) -> Array:
        """(rows, d)."""
        return _read_only(self._contexts)

    @property
    def rewards(self) -> Array:
        """(rows,), NaN where none is in."""
        return _read_only(self._rewards)

    @property
    def arms(self) -> IntArray:
        """(rows,), −1 for logged samples."""
        return _read_only(self._arms)

    @property
    def versions(self) -> IntArray:
        """(rows,), −1 for logged samples."""
        return _read_only(self._versions)

    @property
    def propensities(self) -> Array:
        """(rows,): the probability with which the arm was chosen, NaN for logged samples."""
        return _read_only(self._known)[:, 0]

    @property
    def means(self) -> Array:
        """(rows,): the reward that was predicted, NaN for logged samples."""
        return _read_only(self._known)[:, 1]

    @property
    def bonuses(self) -> Array:
        """(rows,): the bonus of the chosen arm, NaN for logged samples."""
        return _read_only(self._known)[:, 2]

    @property
    def rounds(self) -> int:
        """How many decisions are on record."""
        return len(self) - self.logged

    @property
    def missing(self) -> int:
        """How many rounds have no reward yet."""
        return len(self) - len(self._arrivals)

    def observed(self) -> tuple[Array, Array]:
        """Contexts and rewards of the rows that count and whose rewards are in."""
        samples = self.samples()
        return samples.contexts, samples.rewards

    def samples(self) -> Samples:
        """The same with all that training wants to know."""
        rewards, weights = self._rewards.view, self._weights()
        if not self.missing and weights is None:
            return Samples(np.arange(len(self)), self._contexts.view, rewards, None)
        inside = ~np.isnan(rewards)
        if weights is not None:
            inside &= weights > 0
            weights = weights[inside]
        return Samples(np.flatnonzero(inside), self._contexts.view[inside], rewards[inside], weights)

    def remembered(self) -> tuple[Array, Array | None]:
        """Contexts and weights of all rows that count, whether their rewards are in or not."""
        weights = self._weights()
        if weights is None:
            return self._contexts.view, None
        return self._contexts.view[weights > 0], weights[weights > 0]

    def _weights(self) -> Array | None:
        if self.forgetting is None:
            return None
        return self.forgetting.weights(np.arange(len(self) - 1.0, -1.0, -1.0))

    def arrived(self, since: int) -> tuple[Array, Array]:
        """The same of those alone whose rewards came after the first `since` that came."""
        rows = np.sort(self._arrivals.view[since:])
        return self._contexts.view[rows], self._rewards.view[rows]

    def add_log(self, contexts: Array, rewards: Array) -> None:
        """Put logged samples before the first round."""
        none, unknown = np.full(len(rewards), LOGGED), np.full((len(rewards), 3), np.nan)
        self._append(contexts, rewards, none, none, unknown)
        self._arrivals.append(np.arange(len(rewards)))
        self.logged = len(rewards)

    def add_rounds(self, contexts: Array, arms: IntArray, version: int, known: Array) -> None:
        """Record decisions, whose rewards are to come; `known` is (n, 3): propensity, mean and bonus of each."""
        self._append(contexts, np.full(len(arms), np.nan), arms, np.full(len(arms), version), known)

    def _append(self, contexts: Array, rewards: Array, arms: IntArray, versions: IntArray, known: Array) -> None:
        self._known.append(known)
        self._contexts.append(contexts)
        self._rewards.append(rewards)
        self._arms.append(arms)
        self._versions.append(versions)

    def observe(self, rounds: Any, rewards: Any) -> None:
        """Take in the rewards of the given rounds: all of them, or none if one is wrong."""
        numbers = read_round_numbers(rounds)
        values = read_rewards(rewards, len(numbers))
        outside = (numbers < 1) | (numbers > self.rounds)
        if outside.any():
            raise UnknownRound(
                f"a reward must belong to a decided round, 1 … {self.rounds}; got round {numbers[outside][0]}."
            )
        rows = numbers + (self.logged - 1)
        self._arrivals.append(rows[fresh_rewards(self._rewards.view, rows, numbers, values)])
        self._rewards.view[rows] = values

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Numbers and arrays, for `restore`."""
        arrays = {"contexts": self.contexts, "rewards": self.rewards, "arms": self.arms, "versions": self.versions}
        arrays |= {"arrivals": _read_only(self._arrivals), "propensities": self.propensities}
        arrays |= {"means": self.means, "bonuses": self.bonuses}
        return {"logged": self.logged}, arrays

    def restore(self, numbers: dict[str, Any], arrays: Arrays) -> None:
        """Take over a saved state."""
        rewards = arrays["rewards"]
        # Files of version 0.1 know neither these three nor the order; no learner of theirs depends on them.
        unknown = np.full(len(rewards), np.nan)
        known = np.stack([arrays.get(name, unknown) for name in ("propensities", "means", "bonuses")], axis=1)
        self._append(arrays["contexts"], rewards, arrays["arms"], arrays["versions"], known)
        self._arrivals.append(arrays.get("arrivals", np.flatnonzero(~np.isnan(rewards))))
        self.logged = numbers["logged"]


def read_log(contexts: Any, rewards: Any) -> tuple[Array, Array]:
    """Check logged samples: (n, d) contexts of the arms that were chosen, and their rewards."""
    try:
        rows = np.asarray(contexts, np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidContexts(f"logged contexts must be numbers of shape (n, d); {error}.") from None
    if rows.ndim != 2 or not rows.size:
        raise InvalidContexts(
            f"logged contexts must have shape (n, d), n ≥ 1, one row for the arm that was chosen; got {rows.shape}."
        )
    if not np.isfinite(rows).all():
        raise InvalidContexts("logged contexts must be finite; drop or fill in the rows that are not.")
    return rows, read_rewards(rewards, len(rows))


def read_round_numbers(rounds: Any) -> IntArray:
    """Check the numbers of rounds that rewards are told for."""
    try:
        numbers = np.atleast_1d(np.asarray(rounds))
    except ValueError as error:
        raise UnknownRound(f"observe needs decisions, or their rounds in one dimension; {error}.") from None
    if numbers.size == 0:
        return np.empty(0, np.int64)
    if numbers.dtype.kind not in "iu" or numbers.ndim != 1:
        raise UnknownRound(
            f"observe needs decisions, or their rounds as whole numbers in one dimension; got {numbers.dtype} "
            f"of shape {numbers.shape}."
        )
    return numbers.astype(np.int64)


def read_rewards(rewards: Any, count: int) -> Array:
    """Check so many rewards."""
    try:
        values = np.atleast_1d(np.asarray(rewards, np.float64))
    except (TypeError, ValueError) as error:
        raise InvalidReward(f"rewards must be numbers, one a round; {error}.") from None
    if values.shape != (count,):
        raise InvalidReward(f"rewards must be one number a round: {count} rounds, but rewards of shape {values.shape}.")
    if not np.isfinite(values).all():
        raise InvalidReward(
            f"rewards must be finite; got {values[~np.isfinite(values)][0]}. A reward that never comes is simply "
            "not observed."
        )
    return values


def fresh_rewards(known: Array, rows: IntArray, numbers: IntArray, values: Array) -> BoolArray:
    """Which of the values tell a row of `known` that is NaN; a second, different one for a round is refused."""
    order = np.argsort(rows, kind="stable")
    again = rows[order][1:] == rows[order][:-1]
    earlier = known[rows]
    earlier[order[1:][again]] = values[order[:-1][again]]
    clash = ~np.isnan(earlier) & (earlier != values)
    if clash.any():
        i = int(np.flatnonzero(clash)[0])
        raise ConflictingReward(
            f"a round has one reward: round {numbers[i]} had {earlier[i]} and now came {values[i]}. "
            "The same value told twice is fine; to correct a value, start from a corrected log."
        )
    return np.isnan(earlier)


def _read_only(rows: Rows) -> NDArray[Any]:
    view = rows.view[:]
    view.flags.writeable = False
    return view
