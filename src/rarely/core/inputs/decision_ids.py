"""Which decision a reward is for: its id, its life, and the mean by which a decision is recognised."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from rarely.core.errors import WrongDecision
from rarely.core.inputs.array_reader import read_real, read_whole
from rarely.core.saving.fields import shortened
from rarely.core.types import Array, BoolArray, Decision, IntArray

LIFE = "[0-9a-f]{16}"
"""What `secrets.token_hex(8)` gives."""
_ID = re.compile(f"({LIFE})-([0-9]{{1,18}})")
SAME_MEAN = 1e-6
"""Relative difference up to which two means are one: a decision may have been stored with fewer digits."""
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


def check_decision(
    decision: Decision, numbers: IntArray, found: BoolArray, arms: IntArray, versions: IntArray, means: Array
) -> None:
    """Refuse a decision that differs from what is on record of its rounds: arms, versions, means of those found."""
    theirs = read_whole(decision.arm, "arm of a decision", WrongDecision)
    under = read_whole(decision.version, "version of a decision", WrongDecision)
    expected = means_of(decision, theirs)
    if not len(numbers) == len(theirs) == len(under) == len(expected):
        raise WrongDecision(
            "a decision must have one arm, one version and the means of all arms for each of its rounds; got "
            f"{len(numbers)} rounds, {len(theirs)} arms, {len(under)} versions and means of shape "
            f"{np.shape(decision.means)}."
        )
    numbers, theirs, under, expected = numbers[found], theirs[found], under[found], expected[found]
    # A file of version 0.1 may lack the means.
    near = np.abs(expected - means) <= SAME_MEAN * np.maximum(np.abs(means), np.abs(expected))
    same = (np.isnan(means) | near) & (theirs == arms) & (under == versions)
    if not same.all():
        i = int(np.flatnonzero(~same)[0])
        raise WrongDecision(
            f"a reward must belong to a decision of this policy: its round {numbers[i]} chose arm {arms[i]} under "
            f"version {versions[i]} with mean {means[i]:.6g}, and the given decision chose arm {theirs[i]} under "
            f"version {under[i]} with mean {expected[i]:.6g}. Give the decision to the policy that made it."
        )


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
