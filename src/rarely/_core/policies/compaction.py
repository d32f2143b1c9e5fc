"""Rows of a history that nothing needs any more, and the state without them.

    training   the learner says what it will learn from again (`Learner.needs`)
    Z          is rebuilt from the rows that a `Window` or a `Discount` remembers, or from all of them
    tuning     judges by the rows that counted at the last update
    rewards    may still come for open rounds

Rounds since the last update, and rewards that no update has learned from, always stay.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from rarely._core.covariance import in_bytes
from rarely._core.errors import ForgettingWarning
from rarely._core.growable_array import changed
from rarely._core.policies.state import PolicyState, UpdateRecord
from rarely._core.types import BoolArray

WORTH_DROPPING = 1000  # rows of a history below which an update drops none by itself


class Compacted(NamedTuple):
    """A state after rows were dropped, and how many."""

    state: PolicyState
    spare: int  # rows dropped that nothing needed
    learned: int  # rows dropped with rewards that training would have used again
    abandoned: int  # rounds dropped that still waited for a reward

    @property
    def dropped(self) -> int:
        """All rows dropped."""
        return self.spare + self.learned + self.abandoned

    def __str__(self) -> str:
        parts = [f"{self.dropped} rounds dropped"]
        if self.learned:
            parts.append(f"{self.learned} of them would have been learned from again")
        if self.abandoned:
            parts.append(f"{self.abandoned} of them were still without a reward")
        return ", ".join(parts)


def compacted(state: PolicyState, *, limit: int | None = None, open_for: int | None = None) -> Compacted:
    """Return the state without the rows that nothing needs; with a limit, without the oldest of the others too.

    `limit` is in bytes. With `open_for`, rounds that have waited longer for a reward are dropped too.
    """
    history = state.history
    if state.current.learner.follows:  # Z is rebuilt with every round
        return Compacted(state, 0, 0, 0)
    rows, open_, fixed = history.rows, np.isnan(history.rewards), _fixed(state)
    gone = spare = _spare(state) & ~fixed
    if open_for is not None:
        gone = gone | (open_ & ~fixed & (rows < history.total - open_for))
    if limit is not None:
        gone = gone | _beyond(gone, fixed, open_, limit // history.row_bytes)
    after = history.without(gone)
    if after is history:
        return Compacted(state, 0, 0, 0)
    learner = state.current.learner.without_rows(rows[gone])
    state = replace(state, history=after, current=changed(state.current, learner=learner))
    lost = gone & ~spare
    counts = spare & gone, lost & ~open_, lost & open_
    return Compacted(state, *(int(np.count_nonzero(each)) for each in counts))


def compacted_after_update(
    before: PolicyState, after: PolicyState, record: UpdateRecord, limit: int | None
) -> tuple[PolicyState, UpdateRecord]:
    """Return state and record of an update without some rows, if a limit is reached or many are forgotten."""
    history = after.history
    over = limit is not None and len(history) * history.row_bytes > limit
    forgets = history.forgetting is not None and len(history) > WORTH_DROPPING
    if not over and not (forgets and np.count_nonzero(_spare(after)) >= len(history) / 4):
        return after, record
    done = compacted(after, limit=limit)
    if not done.dropped:
        return after, record
    state, record = done.state, replace(record, dropped=done.dropped)
    state.updates.amend(record)
    if limit is None or not done.learned + done.abandoned:
        return state, record
    sentence = f"limits.history = {in_bytes(limit)} is reached: {done}"
    if all(event.kind != "limit" for event in before.events):
        warnings.warn(
            f"{sentence}. From now on the oldest rounds are dropped at every update, and records count them. Raise "
            "limits.history, or use forgetting=Window(…) to choose what is forgotten.",
            ForgettingWarning,
            stacklevel=4,
        )
        state = state.with_event("limit", sentence)
    return state, record


def _fixed(state: PolicyState) -> BoolArray:
    """Return rows that stay whatever happens: those of the batch, and rewards that no update has learned from."""
    history, clock = state.history, state.clock
    fixed = (history.rows >= history.logged + clock.base_round) | history.came_after(state.learned)
    if state.current.learner.noise is not None:  # the next record's coverage asks for them
        fixed |= history.versions == clock.version
    return fixed


def _spare(state: PolicyState) -> BoolArray:
    """Return rows that neither training nor Z needs, and whose rewards are in or would not count."""
    history = state.history
    if history.forgetting is not None and not state.current.learner.chooses_memory:
        rounds = max((record.round for record in state.updates if record.accepted), default=0)
        ages = history.logged + rounds - 1 - history.rows
        return np.asarray((ages >= 0) & (history.forgetting.weights(np.maximum(ages, 0.0)) == 0))
    needs = state.current.learner.needs(history)
    return np.zeros(len(history), np.bool_) if needs is None else ~needs & ~np.isnan(history.rewards)


def _beyond(gone: BoolArray, fixed: BoolArray, open_: BoolArray, rows: int) -> BoolArray:
    """Return rows that must go for `rows` to be left: the oldest, open ones before those that are learned from.

    A reward that has not arrived by the update after its round mostly never does.
    """
    free = ~gone & ~fixed
    free = np.concatenate([np.flatnonzero(free & open_), np.flatnonzero(free & ~open_)])
    excess = int(np.count_nonzero(~gone)) - rows
    beyond = np.zeros(len(gone), np.bool_)
    beyond[free[: max(0, excess)]] = True
    return beyond
