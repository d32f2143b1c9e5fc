"""Which decision a reward is for: its id, its life, and the mean by which a decision is recognised."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from rarely.core.errors import WrongDecision
from rarely.core.inputs.array_reader import read_real
from rarely.core.saving.fields import shortened
from rarely.core.types import Array, Decision, IntArray

LIFE = "[0-9a-f]{16}"
"""What `secrets.token_hex(8)` gives."""
_ID = re.compile(f"({LIFE})-([0-9]{{1,18}})")
LOST = (
    "It was made by another policy, by a copy or another process of this one, or after the last save before a "
    "restart: then it is lost, and its round number has passed to a later decision. Do not tell its reward."
)


def means_of(decision: Decision, arms: IntArray) -> Array:
    """(n,): the mean of each round's chosen arm, NaN for an arm that the decision does not have."""
    means = np.atleast_2d(read_real(decision.means, "means of a decision", WrongDecision))
    if means.ndim != 2 or len(means) != len(arms):
        return np.empty(0)
    if len(arms) and not 0 <= arms.min() <= arms.max() < means.shape[1]:
        there = (arms >= 0) & (arms < means.shape[1])
        return np.where(there, means[np.arange(len(arms)), np.where(there, arms, 0)], np.nan)
    return np.asarray(means[np.arange(len(arms)), arms])


def parts_of(ids: Any) -> list[tuple[str, int]]:
    """Life and round of each decision id."""
    if not isinstance(ids, Iterable):
        raise WrongDecision(f"ids must be one that decision.id gave, or a list of them; got {shortened(ids)}.")
    parts = []
    for one in [ids] if isinstance(ids, str) else ids:
        found = _ID.fullmatch(one) if isinstance(one, str) else None
        if found is None:
            raise WrongDecision(f"an id must be one that decision.id gave, as '1f0c…-17'; got {shortened(one)}.")
        parts.append((found[1], int(found[2])))
    return parts
