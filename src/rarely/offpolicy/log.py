"""Decisions with their contexts, as they were made, and the rewards that came back.

    n   rounds    K   arms, the most of any decision    d   numbers in a context    r   numbers in a row

Stored are the arms that were there: N contexts and N probabilities, not n·K.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rarely.core.errors import InvalidContexts, InvalidInput, InvalidReward, UnknownRound, WrongDecision
from rarely.core.inputs.array_reader import read_array, read_real, read_whole
from rarely.core.inputs.contexts import OpenContexts, read_rounds
from rarely.core.inputs.history import LOGGED
from rarely.core.inputs.rewards import fresh_rewards, read_rewards
from rarely.core.types import Array, BoolArray, Decision, IntArray
from rarely.offpolicy.errors import InvalidLog
from rarely.offpolicy.state import UNKNOWN, LogState

UNITY = 1e-6
"""How far the probabilities of a round may sum from 1: what rounding and a file of few digits may do."""


class DecisionLog:
    """What a policy decided, with which probabilities, on what, and what came of it.

    A call that raises or is interrupted has changed nothing. A log is used from one thread at a time.

    >>> from rarely import Uniform
    >>> policy, log = Uniform(dim=1, seed=0), DecisionLog()
    >>> contexts = [[[0.0], [1.0]], [[2.0], [3.0]]]
    >>> decision = policy.select(contexts)
    >>> log.record(contexts, decision)
    >>> log.observe(decision[1], 5.0)
    >>> log, log.arms, log.propensities, log.rewards
    (<DecisionLog: 2 rounds, 1 rewards missing>, array([1, 0]), array([0.5, 0.5]), array([nan,  5.]))
    """

    def __init__(self) -> None:
        self._state = LogState.empty()

    def __copy__(self) -> DecisionLog:
        # Of two logs on the same growing arrays only one could grow on.
        return copy.deepcopy(self)

    @classmethod
    def from_arrays(
        cls,
        contexts: Any,
        arms: Any,
        rewards: Any,
        *,
        probabilities: Any = None,
        propensities: Any = None,
        rows: Any = None,
        mask: Any = None,
    ) -> DecisionLog:
        """A log of decisions that something else made: rounds 1 … n in the order of time, all of version −1.

        Parameters
        ----------
        contexts
            (n, K, d) with a `mask` of the arms that were there, or a list of (K_i, d).
        arms, rewards
            (n,) each; a reward that never came is NaN.
        probabilities
            (n, K): what the arms were drawn from. Give these or `propensities`.
        propensities
            (n,): the probabilities of the chosen arms alone. The other arms share the rest of 1 equally, which is a
            guess. Estimates weigh by the chosen arm's probability alone, but their check that the other arms could
            have been chosen then relies on the guess, as do an exported `pi_b` and the log's own `probabilities`
            as a target of `dr`.

        Examples
        --------
        >>> contexts = [[[0.0], [1.0]], [[2.0], [3.0]]]
        >>> log = DecisionLog.from_arrays(contexts, arms=[1, 0], rewards=[5.0, np.nan], propensities=[0.75, 0.5])
        >>> log, log.probabilities
        (<DecisionLog: 2 rounds, 1 rewards missing>, array([[0.25, 0.75],
               [0.5 , 0.5 ]]))
        """
        rounds = read_rounds(contexts, mask, _last_axis(contexts))
        if rounds.single:
            raise InvalidLog(f"contexts must have shape (n, K, d), a round each; got {np.shape(contexts)}.")
        present, picked = rounds.present, _read_arms(arms, len(rounds))
        if (probabilities is None) == (propensities is None):
            raise InvalidLog("give either probabilities, (n, K), or propensities, (n,), of the chosen arms alone.")
        if probabilities is None:
            chances = _spread(read_real(propensities, "propensities", InvalidLog), picked, present)
        else:
            chances = read_real(probabilities, "probabilities", InvalidLog)
        values = read_real(rewards, "rewards", InvalidReward)
        if values.shape != picked.shape:
            raise InvalidReward(f"rewards must be one number a round, NaN where none came; got shape {values.shape}.")
        log, numbers, blank = cls(), np.arange(1, len(picked) + 1), np.where(present, 0.0, np.nan)
        log.record(contexts, Decision(picked, blank, blank, np.full(len(picked), LOGGED), numbers, chances), rows=rows)
        told = ~np.isnan(values)
        log.observe(rounds=numbers[told], rewards=values[told])
        return log

    def __len__(self) -> int:
        return len(self._state)

    def __repr__(self) -> str:
        return f"<DecisionLog: {len(self)} rounds, {self.missing} rewards missing>"

    # --- writing

    def record(self, contexts: Any, decision: Decision, *, rows: Any = None) -> None:
        """Keep one decision, or n, with the contexts that `select` was given.

        `rows` is (r,) or (n, r): what all arms of a round share, such as the row that `ArmBlocks` made the
        contexts of.
        """
        state, several = self._state, _read_decision(decision)
        present = ~np.isnan(several.means)
        given = _read_contexts(contexts, present, None if state.contexts is None else state.contexts.view.shape[1])
        self._check_new(several.round)
        _check_probabilities(several, present)
        shared = self._read_shared(rows, len(present))
        self._state = state.with_rounds(several, present, given, shared)

    def observe(self, decision: Decision | None = None, rewards: Any = None, *, rounds: Any = None) -> None:
        """Take in rewards: of a decision, whole or sliced; now, later, in any order.

        Where the decision no longer exists, `observe(rounds=[…], rewards=[…])` takes the numbers of its rounds. Use it
        with care: of a number alone the log cannot tell whether the reward belongs to what is on record.

        Parameters
        ----------
        decision
            What `select` gave. Its arms, versions and probabilities must be those on record.
        rewards
            One finite number for each round. A value that is in already is ignored; a different one is refused.
        rounds
            Numbers of recorded rounds, instead of a decision.

        Raises
        ------
        WrongDecision
            If the decision is not the one that was recorded under its round numbers.
        UnknownRound
            If a round is not recorded.
        ConflictingReward
            If a round has another reward already.
        """
        numbers = _read_numbers(decision, rounds)
        if rewards is None:
            raise InvalidReward("observe needs rewards, one number for each round; got none.")
        values = read_rewards(read_real(rewards, "rewards", InvalidReward), len(numbers))
        state = self._state
        places = state.places_of(numbers)
        if (places == UNKNOWN).any():
            raise UnknownRound(
                f"a reward must belong to a recorded round; round {numbers[places == UNKNOWN][0]} is not in the log. "
                "Call record(contexts, decision) first."
            )
        if decision is not None:
            self._check_same(_read_decision(decision), places)
        distinct, each = np.unique(places, return_inverse=True)
        fresh = fresh_rewards(state.rewards_at(distinct), each, numbers, values)
        self._state = state.with_rewards(places[fresh], values[fresh])

    # --- reading

    @property
    def missing(self) -> int:
        """Rounds whose rewards are not in."""
        return len(self) - len(self._state.told)

    @property
    def observed(self) -> IntArray:
        """Where the rounds lie whose rewards are in, in the order of the rounds: what estimates are made of."""
        told = np.sort(self._state.told.view)
        return np.asarray(told[np.argsort(self._state.rounds.view[told], kind="stable")], np.int64)

    @property
    def rounds(self) -> IntArray:
        """(n,): the policy's numbers of the rounds, in the order in which they were recorded."""
        return self._state.rounds.view.copy()

    @property
    def versions(self) -> IntArray:
        """(n,)."""
        return self._state.versions.view.copy()

    @property
    def arms(self) -> IntArray:
        """(n,): the chosen arms."""
        return self._state.arms.view.copy()

    @property
    def rewards(self) -> Array:
        """(n,), NaN where none is in."""
        rewards = np.full(len(self), np.nan)
        rewards[self._state.told.view] = self._state.values.view
        return rewards

    @property
    def propensities(self) -> Array:
        """(n,): the probability of the chosen arm."""
        return self._state.propensities.view.copy()

    @property
    def probabilities(self) -> Array:
        """(n, K): what the arm was drawn from, 0 where no arm is."""
        return self._padded(self._state.chances.view, 0.0)

    @property
    def present(self) -> BoolArray:
        """(n, K): which arms were there."""
        return np.asarray(self._padded(np.ones(len(self._state.owners), np.bool_), False), np.bool_)

    @property
    def contexts(self) -> Array:
        """(n, K, d), NaN where no arm is; with `mask=log.present` any policy takes them."""
        rows = self._state.contexts
        return self._padded(np.empty((0, 0)) if rows is None else rows.view, np.nan)

    @property
    def rows(self) -> Array | None:
        """(n, r): what the arms of a round share, if it was recorded."""
        return None if self._state.shared is None else self._state.shared.view.copy()

    def _padded(self, values: NDArray[Any], absent: Any) -> NDArray[Any]:
        state = self._state
        out = np.full((len(self), state.width, *values.shape[1:]), absent, values.dtype)
        out[state.owners.view, state.columns.view] = values
        return out

    # --- at the door

    def _check_new(self, numbers: IntArray) -> None:
        again = numbers[self._state.places_of(numbers) != UNKNOWN]
        if not len(again) and len(set(numbers.tolist())) < len(numbers):
            ordered = np.sort(numbers)
            again = ordered[1:][ordered[1:] == ordered[:-1]]
        if len(again):
            raise InvalidLog(f"a round is recorded once, and round {again[0]} came twice. Use one log for each policy.")

    def _check_same(self, decision: Decision, places: IntArray) -> None:
        """Refuse a decision that differs from what is on record at these places."""
        state = self._state
        facts = [
            ("arm", state.arms.view[places], decision.arm, 0),
            ("version", state.versions.view[places], decision.version, 0),
            ("probability of the arm", state.propensities.view[places], _chances_of_chosen(decision), UNITY),
        ]
        for name, recorded, given, tolerance in facts:
            other = np.flatnonzero(np.abs(recorded - given) > tolerance)
            if len(other):
                i = other[0]
                raise WrongDecision(
                    f"a reward must belong to a decision on record; the {name} on record for round {decision.round[i]} "
                    f"is {recorded[i]}, and this decision has {given[i]}. Either another policy made the decision, or "
                    "the policy was loaded from a file and decided that round again. If the reward does belong to the "
                    "round on record, call observe(rounds=[…], rewards=[…])."
                )

    def _read_shared(self, rows: Any, count: int) -> Array | None:
        shared = self._state.shared
        wanted = None if shared is None else shared.view.shape[1]
        if len(self) and (rows is None) != (wanted is None):
            raise InvalidLog("rows must come with every decision of a log, or with none.")
        if rows is None:
            return None
        array = np.atleast_2d(read_real(rows, "rows", InvalidContexts))
        if array.ndim != 2 or len(array) != count or (wanted is not None and array.shape[1] != wanted):
            raise InvalidContexts(f"rows must have shape ({count}, {wanted or 'r'}); got {np.shape(rows)}.")
        if not np.isfinite(array).all():
            raise InvalidContexts("rows must be finite; fill in missing numbers first.")
        return array


def _read_numbers(decision: Any, rounds: Any) -> IntArray:
    """The round numbers that rewards are told for, of a decision or as such."""
    if decision is not None and not isinstance(decision, Decision):
        raise InvalidInput(
            f"observe needs the decision that select gave; got {type(decision).__name__}. Round numbers, which are not "
            "arms, need a keyword: observe(rounds=[…], rewards=[…])."
        )
    if (decision is None) == (rounds is None):
        raise InvalidInput("observe needs either a decision, as its first argument, or rounds=, not both and not none.")
    return read_whole(rounds if decision is None else decision.round, "rounds", UnknownRound)


def _read_decision(decision: Any) -> Decision:
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


def _read_arms(arms: Any, count: int) -> IntArray:
    array = read_array(arms, "arms", InvalidLog)
    if array.shape != (count,) or array.dtype.kind not in "iu":
        raise InvalidLog(
            f"arms must be one whole number from 0 on for each of {count} rounds; got {array.dtype} of shape "
            f"{array.shape}. Names of arms become numbers by numpy.unique(names, return_inverse=True)."
        )
    return array.astype(np.int64)


def _spread(propensities: Array, arms: IntArray, present: BoolArray) -> Array:
    """(n, K): the chosen arms' probabilities, and the rest alike among the other arms that are there."""
    if propensities.shape != arms.shape or not ((propensities > 0) & (propensities <= 1)).all():
        raise InvalidLog("propensities must be one number above 0 and at most 1 for each round.")
    outside = np.flatnonzero((arms < 0) | (arms >= present.shape[1]))
    if len(outside):
        raise InvalidLog(f"arms must be 0 … {present.shape[1] - 1}; round {outside[0] + 1} has {arms[outside[0]]}.")
    chosen = np.arange(present.shape[1]) == arms[:, None]
    others = (present & ~chosen).sum(axis=1)
    rest = np.where(others == 0, 0.0, (1 - propensities) / np.maximum(others, 1))
    return np.where(chosen, propensities[:, None], np.where(present, rest[:, None], 0.0))


def _read_contexts(contexts: Any, present: BoolArray, dim: int | None) -> Array:
    """(N, d): the contexts of the arms that were there; the decision knows which these are."""
    if isinstance(contexts, OpenContexts):
        rounds = read_rounds(contexts, present[0] if contexts.ndim == 2 else present, dim or contexts.shape[-1])
        (part,) = rounds.parts(lambda: len(present))
        return part.rows
    rounds = read_rounds(contexts, None, _last_axis(contexts) if dim is None else dim)
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


def _last_axis(contexts: Any) -> int:
    try:
        return int(np.shape(contexts[0])[-1])
    except (IndexError, TypeError, ValueError):
        raise InvalidContexts(
            "contexts must be what select was given, (K, d), (n, K, d) or a list of (K_i, d) arrays."
        ) from None


def _check_probabilities(decision: Decision, present: BoolArray) -> None:
    chances, arms = decision.probabilities, decision.arm
    if not ((chances >= 0) & (present | (chances == 0))).all():
        raise InvalidLog("probabilities must be one number of at least 0 for each arm, and 0 where no arm is.")
    sums = chances.sum(axis=1)
    off = np.flatnonzero(~(np.abs(sums - 1) <= UNITY))
    if len(off):
        raise InvalidLog(
            f"probabilities of a round must sum to 1; those of round {decision.round[off[0]]} sum to {sums[off[0]]}."
        )
    never = np.flatnonzero(_chances_of_chosen(decision) == 0)
    if len(never):
        raise InvalidLog(
            f"a chosen arm must have had a positive probability; arm {arms[never[0]]} of round "
            f"{decision.round[never[0]]} had none. A log needs the probabilities that the arm was drawn from."
        )


def _chances_of_chosen(decision: Decision) -> Array:
    """(n,): the probability of each chosen arm, 0 for an arm that does not exist."""
    arms, chances = decision.arm, decision.probabilities
    within = (arms >= 0) & (arms < chances.shape[1])
    return np.where(within, chances[np.arange(len(arms)), np.where(within, arms, 0)], 0.0)
