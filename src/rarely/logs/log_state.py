"""All that a log holds, in arrays that only grow.

    n   rounds    N   arms that were there, over all rounds    m   rewards that are in

A call makes the next state on forks and assigns it in its last line, so a call that fails or is interrupted has
changed nothing (docs/decisions/0006-forks.md). Two indices are shared by all states and written in place:

    places   round number → place of the round, 0 … n−1
    slots    place → where its reward stands among the m, in the order in which they came

An entry counts only if what it points to points back. What an unfinished call wrote there points beyond the state's
rounds or rewards, or to those of another round, and is ignored.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from rarely.core.growable_array import GrowableArray
from rarely.core.types import Array, BoolArray, Decision, IntArray

UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class LogState:
    """Rounds as they were recorded, and rewards as they came."""

    rounds: GrowableArray
    versions: GrowableArray
    arms: GrowableArray
    propensities: GrowableArray
    """(n,): the probability of the chosen arm."""
    owners: GrowableArray
    """(N,): the place of the round that an arm belongs to."""
    columns: GrowableArray
    """(N,): the number of that arm in its round."""
    chances: GrowableArray
    """(N,): the probability of that arm."""
    contexts: GrowableArray | None
    """(N, d); None before the first round."""
    shared: GrowableArray | None
    """(n, r); None if no rows are recorded."""
    width: int
    """The most arms of any round."""
    told: GrowableArray
    """(m,): places whose rewards are in, in the order in which they came."""
    values: GrowableArray
    """(m,): those rewards."""
    slots: GrowableArray
    places: dict[int, int]

    @classmethod
    def empty(cls) -> LogState:
        """Without any round."""
        rounds, versions, arms, owners, columns, told, slots = (GrowableArray(None, np.int64) for _ in range(7))
        propensities, chances, values = (GrowableArray(None) for _ in range(3))
        return cls(
            rounds, versions, arms, propensities, owners, columns, chances, None, None, 0, told, values, slots, {}
        )

    def __len__(self) -> int:
        return len(self.rounds)

    def with_rounds(self, decision: Decision, present: BoolArray, contexts: Array, shared: Array | None) -> LogState:
        """The state that also holds n decisions, which are checked already."""
        start, count = len(self), len(present)
        state = self._fork(contexts.shape[1], None if shared is None else shared.shape[1], present.shape[1])
        owners, columns = np.nonzero(present)
        state.owners.append(owners + start)
        state.columns.append(columns)
        state.chances.append(decision.probabilities[present])
        if state.contexts is not None:
            state.contexts.append(contexts)
        if state.shared is not None and shared is not None:
            state.shared.append(shared)
        state.rounds.append(decision.rounds)
        state.versions.append(decision.versions)
        state.arms.append(decision.arms)
        state.propensities.append(np.atleast_1d(decision.propensity))
        state.slots.append(np.zeros(count, np.int64))
        state.places.update(zip(decision.rounds.tolist(), range(start, start + count), strict=True))
        return state

    def with_rewards(self, places: IntArray, rewards: Array) -> LogState:
        """The state that also holds these rewards, at places that have none yet, each once."""
        told, values = self.told.fork(), self.values.fork()
        self.slots.view[places] = np.arange(len(told), len(told) + len(places))
        told.append(places)
        values.append(rewards)
        return replace(self, told=told, values=values)

    def places_of(self, numbers: IntArray) -> IntArray:
        """Where rounds lie, by their numbers; UNKNOWN where the log has none of that number."""
        places = np.array([self.places.get(number, UNKNOWN) for number in numbers.tolist()], np.int64)
        places[places >= len(self)] = UNKNOWN
        there = np.flatnonzero(places != UNKNOWN)
        places[there[self.rounds.view[places[there]] != numbers[there]]] = UNKNOWN
        return places

    def rewards_at(self, places: IntArray) -> Array:
        """Rewards of the rounds at these places, NaN where none is in."""
        rewards, slots = np.full(len(places), np.nan), self.slots.view[places]
        inside = np.flatnonzero(slots < len(self.told))
        known = inside[self.told.view[slots[inside]] == places[inside]]
        rewards[known] = self.values.view[slots[known]]
        return rewards

    def _fork(self, dim: int, row: int | None, arms: int) -> LogState:
        """A state that grows on by itself, with room for contexts and rows from the first round on."""
        mine = {field.name: getattr(self, field.name) for field in fields(self)}
        forks: dict[str, Any] = {name: value.fork() for name, value in mine.items() if isinstance(value, GrowableArray)}
        state = replace(self, **forks, width=max(self.width, arms))
        if self.contexts is not None:
            return state
        return replace(state, contexts=GrowableArray(dim), shared=None if row is None else GrowableArray(row))
