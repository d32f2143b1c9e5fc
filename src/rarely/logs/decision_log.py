"""Decisions with their contexts, as they were made, and the rewards that came back.

    n   rounds    K   arms, the most of any decision    d   numbers in a context    r   numbers in a row

Stored are the arms that were there: N contexts and N probabilities, not n·K.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rarely.core.errors import InvalidContexts, InvalidReward, UnknownRound, WrongDecision
from rarely.core.inputs.array_reader import read_real
from rarely.core.inputs.contexts import read_rounds
from rarely.core.inputs.history import LOGGED
from rarely.core.inputs.rewards import fresh_rewards, read_rewards
from rarely.core.types import Array, BoolArray, Decision, IntArray
from rarely.logs.errors import InvalidLog
from rarely.logs.log_checks import (
    UNITY,
    chances_of_chosen,
    check_probabilities,
    last_axis,
    read_arms,
    read_contexts,
    read_decision,
    read_numbers,
    spread_rest,
)
from rarely.logs.log_state import UNKNOWN, LogState


class DecisionLog:
    """What a policy decided, with which probabilities, on what, and what came of it.

    A call that raises or is interrupted has changed nothing. A log is used from one thread at a time.

    Examples
    --------
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
        rounds = read_rounds(contexts, mask, last_axis(contexts))
        if rounds.single:
            raise InvalidLog(f"contexts must have shape (n, K, d), a round each; got {np.shape(contexts)}.")
        present, picked = rounds.present, read_arms(arms, len(rounds))
        if (probabilities is None) == (propensities is None):
            raise InvalidLog("give either probabilities, (n, K), or propensities, (n,), of the chosen arms alone.")
        if probabilities is None:
            chances = spread_rest(read_real(propensities, "propensities", InvalidLog), picked, present)
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
        state, several = self._state, read_decision(decision)
        present = ~np.isnan(several.means)
        given = read_contexts(contexts, present, None if state.contexts is None else state.contexts.view.shape[1])
        self._check_new(several.rounds)
        check_probabilities(several, present)
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
        numbers = read_numbers(decision, rounds)
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
            self._check_same(read_decision(decision), places)
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
            ("arm", state.arms.view[places], decision.arms, 0),
            ("version", state.versions.view[places], decision.versions, 0),
            ("probability of the arm", state.propensities.view[places], chances_of_chosen(decision), UNITY),
        ]
        for name, recorded, given, tolerance in facts:
            other = np.flatnonzero(np.abs(recorded - given) > tolerance)
            if len(other):
                i = other[0]
                raise WrongDecision(
                    f"a reward must belong to a decision on record; the {name} on record for round "
                    f"{decision.rounds[i]} is {recorded[i]}, and this decision has {given[i]}. Either another policy "
                    "made the decision, or the policy was loaded from a file and decided that round again. If the "
                    "reward does belong to the round on record, call observe(rounds=[…], rewards=[…])."
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
