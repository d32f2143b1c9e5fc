"""What the rounds of a log say about a target, the policy to be judged, and what the target had seen of them.

    π     target       (n, K)  probabilities of the policy to be judged
    w     weights      (n,)    π/p of the chosen arm

A policy that is judged by the rewards it was trained on looks better than it is. A round of the log is looked up in
what its history held at its last update, in three ways:

    by number     if every round of the log up to that update has the arm, version, context and reward that the
                  history has under its number: then the policy made the log
    by content    if the context of the chosen arm and the reward occur once in the log and once in the history, in more
                  rounds than chance makes meet where contexts repeat themselves
    by order      if the whole log is a stretch of the history, or the whole history a stretch of the log: contexts that
                  repeat themselves look the same by content

Rewards that arrived after the last update count too if their rounds came before it: the count may be a little high.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rarely.extend import Array, BoolArray, IntArray, Policy, Uniform
from rarely.extend.checks import InvalidInput, read_array
from rarely.frames.columns import key_of
from rarely.frames.policy import FramePolicy
from rarely.frames.tables import FrameTables
from rarely.logs.decision_log import SUM_TOLERANCE, DecisionLog, check_log, probabilities_of
from rarely.logs.tables import InvalidLog

Target = Any
"""A `Policy` or `FramePolicy` in its current state, (n, K) probabilities, or (n,) arms: one for each round of the log,
or by its id."""
NEGLIGIBLE = 1e-12  # a target's probability up to which an arm that the log could not choose is left out
SHORTEST_STRETCH = 16  # rounds that must agree in a row; fewer may do so by chance


class InvalidTarget(InvalidInput):
    """A target that is not one probability distribution, or one arm, for each round."""


class NotIdentified(InvalidInput):
    """A target that the log says nothing about: it weighs arms that the log never could, or never did, choose."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Rounds with rewards, in the order of their numbers."""

    places: IntArray
    arms: IntArray
    rewards: Array
    target: Array
    """(n, K): the target's probabilities; NaN where the target is the log's own rule and the log does not know them."""
    weights: Array  # (n,): the target's probability of the chosen arm over the log's
    learned: int  # rounds that the target may have learned from
    variance: float
    """Of the weights, by the probabilities of all arms: the mean of Σπ²/p − 1; NaN where the log does not know them."""

    def __post_init__(self) -> None:
        if not self.weights.any():
            raise NotIdentified(
                f"the target must agree with the log at least once; in none of {len(self.weights)} rounds with rewards "
                "did the log choose an arm that the target would. Log more rounds."
            )

    @classmethod
    def of(cls, log: DecisionLog, target: Target) -> Sample:
        """Return all rounds with a reward; raise NotIdentified if the log could not choose what the target would."""
        check_log(log)
        places = log.observed
        if not len(places):
            raise InvalidLog(f"an estimate needs at least one round with a reward; the log has {len(log)} without.")
        target, theirs = on_its_contexts(target, log)
        arms, chances, logging, weights = compared(log, target, theirs, places)
        with np.errstate(over="ignore"):
            squares = np.divide(np.square(chances), logging, out=np.zeros_like(chances), where=logging != 0).sum(axis=1)
        learned = rounds_learned_from(target, theirs, places) if isinstance(target, Policy) else 0
        return cls(places, arms, log.rewards[places], chances, weights, learned, float(squares.mean()) - 1)

    @property
    def deviations(self) -> float:
        """How many standard errors the mean weight lies from 1, its expectation if the log could choose every arm.

        It is far below if the target wants arms that the log hardly ever chose.
        """
        n = len(self.weights)
        return (float(self.weights.mean()) - 1) / max(float(self.weights.std()) / math.sqrt(n), 1 / n)

    def later(self) -> Sample:
        """Return all rounds but the first."""
        if len(self.places) < 2:
            raise InvalidLog("a model that is to be fitted needs at least two rounds with rewards; the log has one.")
        each = ("places", "arms", "rewards", "target", "weights")
        return replace(self, **{name: getattr(self, name)[1:] for name in each})


# --- the target


def compared(
    log: DecisionLog, target: Target, theirs: DecisionLog, places: IntArray
) -> tuple[IntArray, Array, Array, Array]:
    """Return arms, the target's and the log's probabilities and the weights of rounds; `theirs` is what it decides on.

    Raises NotIdentified if the log could not choose what the target would.
    """
    arms, chances = log.arms[places], read_target(target, theirs, places)
    logging = probabilities_of(log, places)
    advice = "judge a target that stays within its arms"
    check_able(chances, logging != 0, lambda row: f"round {log.rounds[places[row]]}", advice)
    each = np.arange(len(places))
    with np.errstate(over="ignore"):
        weights = chances[each, arms] / logging[each, arms]
        size = len(weights) * float(np.square(weights).sum())
    if not math.isfinite(size):
        i = weights.argmax()
        raise InvalidLog(
            "the probability of a chosen arm must be so large that the square of its weight is a number; that of "
            f"round {log.rounds[places[i]]} is {logging[i, arms[i]]}. Correct it, or leave the round out."
        )
    return arms, chances, logging, weights


def check_able(chances: Array, able: BoolArray, name: Callable[[int], str], advice: str) -> None:
    """Raise NotIdentified if a target chooses an arm that the log was not `able` to choose; `name` is a row's name."""
    for row, arm in np.argwhere((chances > NEGLIGIBLE) & ~able)[:1].tolist():
        raise NotIdentified(
            f"the log must have been able to choose whatever the target would; in {name(row)} the target chooses arm "
            f"{arm} with probability {chances[row, arm]:.4g}, the log with 0 or nobody knows which. Log with an "
            f"exploration, such as Mixture(0.05), or {advice}."
        )


def read_target(target: Target, log: DecisionLog, places: IntArray, present: BoolArray | None = None) -> Array:
    """Return (m, K): the target's probabilities in the rounds of a log that lie at `places`.

    Rounds that are `log.probabilities` are taken as they are, with NaN where the log knows the chosen arm's alone.
    `present` are the arms that a target may have, by default those that were available.
    """
    present, tied = log.present if present is None else present, isinstance(target, Mapping)
    if isinstance(target, Policy):
        worth = log.worth
        worth = None if worth is None else worth[places]
        return target.probabilities(log.contexts[places], mask=present[places], worth=worth)
    array = _as_array(tied_to_rounds(target, log) if tied else target, present.shape)
    if not tied:
        _check_order(array, log)
    if array.ndim == 1:
        outside = np.flatnonzero((array < 0) | (array >= present.shape[1]))
        if len(outside):
            raise InvalidTarget(f"a target's arms must be 0 … {present.shape[1] - 1}; got {array[outside[0]]}.")
        return np.asarray(np.eye(present.shape[1])[array[places]])
    chances, logged = array.astype(np.float64), log.probabilities
    same = ((chances == logged) | (np.isnan(chances) & np.isnan(logged))).all(axis=1)
    fits = ((chances >= 0) & (present | (chances == 0))).all(axis=1)
    fits &= np.abs(chances.sum(axis=1) - 1) <= SUM_TOLERANCE
    wrong = np.flatnonzero(~same & ~fits)
    if len(wrong):
        partial = " The log itself knows the probabilities of chosen arms alone." if np.isnan(logged).any() else ""
        raise InvalidTarget(
            "a target's probabilities must be at least 0, sum to 1 in each round, and be 0 where no arm is; those of "
            f"round {log.rounds[wrong[0]]} are {chances[wrong[0]].tolist()}.{partial}"
        )
    return np.asarray(chances[places])


def on_its_contexts(target: Target, log: DecisionLog) -> tuple[Target, DecisionLog]:
    """Return a target without its tables, and the log with the contexts that it decides on."""
    if not isinstance(target, FramePolicy):
        return target, log
    encoded = log.rows is None and log.contexts.shape[2] == target.dim  # as the log of a `Study` by columns is
    return target.policy, log if encoded else by_tables(target.tables, log)


def by_tables(tables: FrameTables, log: DecisionLog) -> DecisionLog:
    """Return the log with the contexts that a policy of tables makes of its rows."""
    users, rows = tables.users, log.rows
    if users is None or not tables.arms:
        raise InvalidTarget(
            "a FramePolicy judged by a log of rows must decide for users among arms with names, because a log has one "
            "row a round; this one decides among items. Give the log of a Study by columns, or probabilities of shape "
            f"{log.present.shape}."
        )
    if rows is None or tuple(log.names) != users.names:
        raise InvalidTarget(
            "the log must have been read with the encoder of the FramePolicy, as read_log(…, encoder=policy.users) "
            f"does; the policy takes {', '.join(users.names)}, the log has {', '.join(log.names) or 'no names'}."
        )
    if unknown := sorted({*tables.arms} ^ {*log.arm_names}):
        raise InvalidTarget(f"policy and log must have the same arms; {unknown[0]!r} is not an arm of both.")
    contexts = tables.placed(rows, None)[:, [tables.arms.index(name) for name in log.arm_names]]
    return DecisionLog.from_arrays(contexts, log.arms, log.rewards, mask=log.present)


def tied_to_rounds(target: Mapping[Any, Any], log: DecisionLog) -> list[Any]:
    """Return what a target says of each round, in the log's order, by its id or, where the log has none, its number."""
    names: Any = log.ids or log.rounds.tolist()
    said = {key_of(name): each for name, each in target.items()} if log.ids else target
    if odd := sorted(map(str, set(names) ^ said.keys())):
        raise InvalidTarget(
            f"a target by {'id' if log.ids else 'round'} must have each of the log's and no other; {odd[0]} is "
            f"{'missing' if odd[0] in map(str, names) else 'not in the log'}."
        )
    return [said[name] for name in names]


def _check_order(array: NDArray[Any], log: DecisionLog) -> None:
    """Refuse a target by its rows' order alone where the log has another order than the table that it was read from."""
    moved = any(remark.kind in ("order", "duplicate", "unknown") for remark in log.remarks)
    if moved and not (array == array[:1]).all() and not np.array_equal(array, log.probabilities, equal_nan=True):
        how = "{id: …}" if log.ids else "{id: …}, with the column id named in from_frame, or {round: …} of log.rounds"
        raise InvalidTarget(
            "a target must say which rounds it is about, because rows of the table were dropped or put in another "
            f"order when the log was read; give a dictionary {how}, or a Policy."
        )


def _as_array(target: Target, shape: tuple[int, ...]) -> Any:
    wanted = f"a target must be a Policy, probabilities of shape {shape}, or arms, whole numbers of shape {shape[:1]}"
    try:
        array = read_array(target, "a target", InvalidTarget)
    except InvalidTarget as error:
        raise InvalidTarget(f"{wanted}; {error}") from None
    arms = array.shape == shape[:1] and array.dtype.kind in "iu"
    if not arms and not (array.shape == shape and array.dtype.kind in "fiub"):
        raise InvalidTarget(f"{wanted}; got {type(target).__name__} of {array.dtype} and shape {array.shape}.")
    return array


# --- what the target has seen


def rounds_learned_from(policy: Policy, log: DecisionLog, places: IntArray) -> int:
    """Return how many of the rounds at these places the policy had, with their rewards, when it was last updated."""
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
    held = np.zeros(len(places), np.bool_)
    rows, kept = history.find(numbers[shared])
    rows, here = rows[kept], places[shared][kept]
    rewarded = ~np.isnan(history.rewards[rows])
    same = (
        np.array_equal(history.rewards[rows][rewarded], log.rewards[here][rewarded])
        and np.array_equal(history.arms[rows], log.arms[here])
        and np.array_equal(history.versions[rows], log.versions[here])
        and np.array_equal(history.contexts[rows], contexts[shared][kept])
    )
    if same and (kept.any() or not len(kept)):
        # Of a round that was dropped nothing is left to compare; it was learned from if it had a reward.
        learned = np.ones(len(kept), np.bool_)
        learned[kept] = rewarded
        held[shared] = learned
    return held


def _codes(contexts: Array, rewards: Array, their_contexts: Array, their_rewards: Array) -> tuple[IntArray, IntArray]:
    """Return a number for every different pair of context and reward, of the log's rounds and of the history's."""
    pairs = np.vstack([np.column_stack([contexts, rewards]), np.column_stack([their_contexts, their_rewards])])
    rows = np.ascontiguousarray(pairs + 0.0)  # −0 becomes 0
    keys = rows.view(np.dtype((np.void, rows.strides[0]))).ravel()
    codes = np.unique(keys, return_inverse=True)[1].ravel().astype(np.int64)
    return codes[: len(rewards)], codes[len(rewards) :]


def _by_content(codes: IntArray, theirs: IntArray) -> BoolArray:
    size = int(max(codes.max(initial=0), theirs.max(initial=0))) + 1
    mine, others = (np.bincount(each, minlength=size) for each in (codes, theirs))
    same = np.asarray(((mine == 1) & (others == 1))[codes], np.bool_)
    # Contexts of few values meet by chance, between two logs as often as within one.
    chance = float((mine * (mine - 1)).sum()) * len(theirs) / len(codes)
    return np.asarray(same & (same.sum() > chance + 3 * math.sqrt(chance)), np.bool_)


def _by_order(codes: IntArray, theirs: IntArray) -> BoolArray:
    held = np.zeros(len(codes), np.bool_)
    piece, whole = sorted((codes, theirs), key=len)
    if len(piece) < SHORTEST_STRETCH:
        return held
    sought, text, size = piece.tobytes(), whole.tobytes(), piece.itemsize
    at = text.find(sought)
    while at >= 0 and at % size:  # in the middle of a number
        at = text.find(sought, at + 1)
    if at >= 0:
        held[slice(None) if piece is codes else slice(at // size, at // size + len(piece))] = True
    return held
