"""Which rounds of a log a target may have learned from.

A policy that is judged by the rewards it was trained on looks better than it is. Its history holds the rounds that it
had at its last update. A round of the log is looked up there in three ways:

    by number     if every round of the log up to that update has the arm, version, context and reward that the
                  history has under its number: then the policy made the log
    by content    if the context of the chosen arm and the reward occur once in the log and once in the history
    by order      if the whole log is a stretch of the history, or the whole history a stretch of the log: contexts that
                  repeat themselves cannot be told apart by content

Rewards that arrived after the last update count too if their rounds came before it: the count may be a little high.
"""

from __future__ import annotations

import numpy as np

from rarely.core.policies import Uniform
from rarely.core.policies.base import Policy
from rarely.core.types import Array, BoolArray, IntArray
from rarely.logs.decision_log import DecisionLog

STRETCH = 16
"""Rounds that must agree in a row; fewer may do so by chance."""


def rounds_learned_from(policy: Policy, log: DecisionLog, places: IntArray) -> int:
    """How many of the rounds at these places the policy had with their rewards when it was last updated.

    >>> from rarely import LinUCB
    >>> contexts, log = np.arange(8.0).reshape(4, 2, 1), DecisionLog()
    >>> policy = LinUCB(dim=1)
    >>> decision = policy.select(contexts)
    >>> log.record(contexts, decision)
    >>> for each in (log, policy):
    ...     each.observe(decision, np.arange(4.0))
    >>> before = rounds_learned_from(policy, log, log.observed)
    >>> _ = policy.update()
    >>> before, rounds_learned_from(policy, log, log.observed)
    (0, 4)
    """
    updates = [record.round for record in policy.updates if record.accepted]
    if not updates or isinstance(policy, Uniform):  # Uniform decides the same whatever it has seen.
        return 0
    last, history = max(updates), policy.history
    rows = np.flatnonzero(~np.isnan(history.rewards) & (history.rows < history.logged + last))
    contexts = log.contexts[places, log.arms[places]]
    numbered = _by_number(policy, log, places, contexts, last)
    codes, theirs = _codes(contexts, log.rewards[places], history.contexts[rows], history.rewards[rows])
    return int((numbered | _by_content(codes, theirs) | _by_order(codes, theirs)).sum())


def _by_number(policy: Policy, log: DecisionLog, places: IntArray, contexts: Array, last: int) -> BoolArray:
    history, numbers = policy.history, log.rounds[places]
    shared = (numbers >= 1) & (numbers <= last)
    found = np.zeros(len(places), np.bool_)
    rows, kept = history.find(numbers[shared])
    rows, here = rows[kept], places[shared][kept]
    told = ~np.isnan(history.rewards[rows])
    same = (
        np.array_equal(history.rewards[rows][told], log.rewards[here][told])
        and np.array_equal(history.arms[rows], log.arms[here])
        and np.array_equal(history.versions[rows], log.versions[here])
        and np.array_equal(history.contexts[rows], contexts[shared][kept])
    )
    if same and (kept.any() or not len(kept)):
        # Of a round that was dropped nothing is left to compare; it was learned from if it had a reward.
        learned = np.ones(len(kept), np.bool_)
        learned[kept] = told
        found[shared] = learned
    return found


def _codes(contexts: Array, rewards: Array, their_contexts: Array, their_rewards: Array) -> tuple[IntArray, IntArray]:
    """A number for every different pair of context and reward, of the log's rounds and of the history's."""
    pairs = np.vstack([np.column_stack([contexts, rewards]), np.column_stack([their_contexts, their_rewards])])
    rows = np.ascontiguousarray(pairs + 0.0)  # −0 becomes 0
    keys = rows.view(np.dtype((np.void, rows.strides[0]))).ravel()
    codes = np.unique(keys, return_inverse=True)[1].ravel().astype(np.int64)
    return codes[: len(rewards)], codes[len(rewards) :]


def _by_content(codes: IntArray, theirs: IntArray) -> BoolArray:
    size = int(max(codes.max(initial=0), theirs.max(initial=0))) + 1
    once = (np.bincount(codes, minlength=size) == 1) & (np.bincount(theirs, minlength=size) == 1)
    return np.asarray(once[codes], np.bool_)


def _by_order(codes: IntArray, theirs: IntArray) -> BoolArray:
    found = np.zeros(len(codes), np.bool_)
    if min(len(codes), len(theirs)) < STRETCH:
        return found
    if len(codes) <= len(theirs):
        found[:] = _start_of(codes, theirs) is not None
        return found
    start = _start_of(theirs, codes)
    if start is not None:
        found[start : start + len(theirs)] = True
    return found


def _start_of(piece: IntArray, whole: IntArray) -> int | None:
    """Where the piece begins in the whole, or None."""
    sought, text, size = piece.tobytes(), whole.tobytes(), piece.itemsize
    at = text.find(sought)
    while at >= 0 and at % size:
        at = text.find(sought, at + 1)
    return at // size if at >= 0 else None
