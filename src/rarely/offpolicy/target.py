"""The policy to be judged: what it would have done in each round of a log."""

from __future__ import annotations

from typing import Any

import numpy as np

from rarely.core.inputs.array_reader import read_array
from rarely.core.policies.base import Policy
from rarely.core.types import Array, IntArray
from rarely.logs.decision_log import DecisionLog
from rarely.logs.log_checks import UNITY
from rarely.offpolicy.errors import InvalidTarget

Target = Any
"""A `Policy` as it stands, (n, K) probabilities, or (n,) arms: one for each round of the log, with reward or not."""


def read_target(target: Target, log: DecisionLog, places: IntArray) -> Array:
    """(m, K): the target's probabilities in the rounds of a log that lie at `places`.

    >>> from rarely import Uniform
    >>> contexts, log = [[0.0], [1.0], [2.0]], DecisionLog()
    >>> log.record(contexts, Uniform(dim=1, seed=0).select(contexts))
    >>> read_target([2], log, np.array([0]))
    array([[0., 0., 1.]])
    """
    present = log.present
    if isinstance(target, Policy):
        return target.probabilities(log.contexts[places], mask=present[places])
    given = _as_array(target, present.shape)
    if given.ndim == 1:
        return _of_arms(given, present.shape)[places]
    chances = given.astype(np.float64)
    wrong = np.flatnonzero(
        ~((chances >= 0) & (present | (chances == 0))).all(axis=1) | ~(np.abs(chances.sum(axis=1) - 1) <= UNITY)
    )
    if len(wrong):
        raise InvalidTarget(
            "a target's probabilities must be at least 0, sum to 1 in each round, and be 0 where no arm is; those of "
            f"round {log.rounds[wrong[0]]} are {chances[wrong[0]].tolist()}."
        )
    return np.asarray(chances[places])


def _as_array(target: Target, shape: tuple[int, ...]) -> Any:
    wanted = (
        f"a target must be a Policy, probabilities of shape {shape}, or whole numbers of shape {shape[:1]}, the arms"
    )
    try:
        given = read_array(target, "a target", InvalidTarget)
    except InvalidTarget as error:
        raise InvalidTarget(f"{wanted}; {error}") from None
    arms = given.shape == shape[:1] and given.dtype.kind in "iu"
    if not arms and not (given.shape == shape and given.dtype.kind in "fiub"):
        raise InvalidTarget(f"{wanted}; got {type(target).__name__} of {given.dtype} and shape {given.shape}.")
    return given


def _of_arms(arms: IntArray, shape: tuple[int, ...]) -> Array:
    outside = np.flatnonzero((arms < 0) | (arms >= shape[1]))
    if len(outside):
        raise InvalidTarget(f"a target's arms must be 0 … {shape[1] - 1}; got {arms[outside[0]]}.")
    return np.eye(shape[1])[arms]
