"""What a log is given: decisions, contexts and probabilities, checked before anything is stored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from rarely.core.errors import InvalidContexts, InvalidInput, UnknownRound
from rarely.core.inputs.array_reader import read_array, read_real, read_whole
from rarely.core.inputs.contexts import OpenContexts, read_rounds
from rarely.core.types import Array, BoolArray, Decision, IntArray
from rarely.logs.errors import InvalidLog

UNITY = 1e-6
"""How far the probabilities of a round may sum from 1: what rounding and a file of few digits may do."""


def read_numbers(decision: Any, rounds: Any) -> IntArray:
    """The round numbers that rewards are told for, of a decision or as such."""
    if decision is not None and not isinstance(decision, Decision):
        raise InvalidInput(
            f"observe needs the decision that select gave; got {type(decision).__name__}. Round numbers, which are not "
            "arms, need a keyword: observe(rounds=[…], rewards=[…])."
        )
    if (decision is None) == (rounds is None):
        raise InvalidInput("observe needs either a decision, as its first argument, or rounds=, not both and not none.")
    return read_whole(rounds if decision is None else decision.round, "rounds", UnknownRound)


def read_decision(decision: Any) -> Decision:
    """A decision with a leading axis everywhere, of the right kinds and shapes."""
    if not isinstance(decision, Decision):
        raise InvalidInput(f"record needs the decision that select gave; got {type(decision).__name__}.")
    means, chances = (
        read_real(getattr(decision, name), f"{name} of a decision", InvalidLog) for name in ("means", "probabilities")
    )
    arms, versions, rounds = (
        read_whole(getattr(decision, name), f"{name} of a decision", InvalidLog) for name in ("arm", "version", "round")
    )
    if means.ndim == 1:
        means, chances = means[None], chances[None]
    if means.ndim != 2 or means.shape != chances.shape or {(len(means),)} != {arms.shape, versions.shape, rounds.shape}:
        raise InvalidLog(
            "a decision must have one arm, version and round for each of its rounds, and one mean and probability for "
            f"each arm; got shapes {arms.shape}, {versions.shape}, {rounds.shape}, {means.shape} and {chances.shape}."
        )
    return replace(decision, arm=arms, means=means, version=versions, round=rounds, probabilities=chances)


def read_arms(arms: Any, count: int) -> IntArray:
    """The chosen arms, one whole number for each round."""
    array = read_array(arms, "arms", InvalidLog)
    if array.shape != (count,) or array.dtype.kind not in "iu":
        raise InvalidLog(
            f"arms must be one whole number from 0 on for each of {count} rounds; got {array.dtype} of shape "
            f"{array.shape}. Names of arms become numbers by numpy.unique(names, return_inverse=True)."
        )
    return array.astype(np.int64)


def spread_rest(propensities: Array, arms: IntArray, present: BoolArray) -> Array:
    """(n, K): the chosen arms' probabilities, and the rest alike among the other arms that are there."""
    if propensities.shape != arms.shape or not ((propensities > 0) & (propensities <= 1)).all():
        raise InvalidLog("propensities must be one number above 0 and at most 1 for each round.")
    outside = np.flatnonzero((arms < 0) | (arms >= present.shape[1]))
    if len(outside):
        raise InvalidLog(f"arms must be 0 … {present.shape[1] - 1}; round {outside[0] + 1} has {arms[outside[0]]}.")
    chosen = np.arange(present.shape[1]) == arms[:, None]
    others = (present & ~chosen).sum(axis=1)
    rest = (1 - propensities) / np.maximum(others, 1)  # where there are no others, none gets it
    return np.where(chosen, propensities[:, None], np.where(present, rest[:, None], 0.0))


def read_contexts(contexts: Any, present: BoolArray, dim: int | None) -> Array:
    """(N, d): the contexts of the arms that were there; the decision knows which these are."""
    if isinstance(contexts, OpenContexts):
        rounds = read_rounds(contexts, present[0] if contexts.ndim == 2 else present, dim or contexts.shape[-1])
        (part,) = rounds.parts(lambda: len(present))
        return part.rows
    rounds = read_rounds(contexts, None, last_axis(contexts) if dim is None else dim)
    there = rounds.present
    if isinstance(rounds.given, list) and there.shape[1] < present.shape[1]:
        # A slice of ragged rounds may have lost the widest of them.
        there = np.pad(there, ((0, 0), (0, present.shape[1] - there.shape[1])))
    if there.shape != present.shape:
        raise InvalidLog(
            f"contexts must be those of the decision, {len(present)} rounds of {present.shape[1]} arms; got "
            f"{len(there)} rounds of {there.shape[1]}. After until_due record contexts[:len(decision)]."
        )
    if not np.array_equal(there, present):
        rounds = read_rounds(contexts, present[0] if rounds.single else present, rounds.given[0].shape[-1])
    (part,) = rounds.parts(lambda: len(present))
    return part.rows


def last_axis(contexts: Any) -> int:
    """How many numbers a context has."""
    try:
        return int(np.shape(contexts[0])[-1])
    except (IndexError, TypeError, ValueError):
        raise InvalidContexts(
            "contexts must be what select was given, (K, d), (n, K, d) or a list of (K_i, d) arrays."
        ) from None


def check_probabilities(decision: Decision, present: BoolArray) -> None:
    """Refuse probabilities that no arm can have been drawn from."""
    chances, arms = decision.probabilities, decision.arms
    if not ((chances >= 0) & (present | (chances == 0))).all():
        raise InvalidLog("probabilities must be one number of at least 0 for each arm, and 0 where no arm is.")
    sums = chances.sum(axis=1)
    off = np.flatnonzero(~(np.abs(sums - 1) <= UNITY))
    if len(off):
        raise InvalidLog(
            f"probabilities of a round must sum to 1; those of round {decision.rounds[off[0]]} sum to {sums[off[0]]}."
        )
    never = np.flatnonzero(chances_of_chosen(decision) == 0)
    if len(never):
        raise InvalidLog(
            f"a chosen arm must have had a positive probability; arm {arms[never[0]]} of round "
            f"{decision.rounds[never[0]]} had none. A log needs the probabilities that the arm was drawn from."
        )


def chances_of_chosen(decision: Decision) -> Array:
    """(n,): the probability of each chosen arm, 0 for an arm that does not exist."""
    arms, chances = decision.arms, decision.probabilities
    within = (arms >= 0) & (arms < chances.shape[1])
    return np.where(within, chances[np.arange(len(arms)), np.where(within, arms, 0)], 0.0)
