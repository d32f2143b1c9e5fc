"""Decisions with their contexts, as they were made, and the rewards that came back.

    n   rounds    K   arms, the most of any decision    d   numbers in a context    r   numbers in a row

Stored are the arms that were there: N contexts and N probabilities, not n·K.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rarely.core.blocks import read_numbers
from rarely.core.contexts import read_rounds
from rarely.core.errors import InvalidContexts, InvalidInput, InvalidReward, UnknownRound
from rarely.core.history import LOGGED, fresh_rewards, read_rewards, read_round_numbers
from rarely.core.rows import Rows
from rarely.core.types import Array, BoolArray, Decision, IntArray
from rarely.offpolicy.errors import InvalidLog

UNITY = 1e-6
"""How far the probabilities of a round may sum from 1: what rounding and a file of few digits may do."""


class DecisionLog:
    """What a policy decided, with which probabilities, on what, and what came of it.

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
        self._rounds, self._versions, self._arms = (Rows(None, np.int64) for _ in range(3))
        self._rewards = Rows(None)
        self._place: dict[int, int] = {}
        """Where a round lies."""
        self._owners, self._columns = Rows(None, np.int64), Rows(None, np.int64)
        """Which round, and which arm of it, the N contexts and probabilities belong to."""
        self._chances = Rows(None)
        self._contexts: Rows | None = None
        self._shared: Rows | None = None
        self._width = 0

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

            contexts        (n, K, d) with a `mask` of the arms that were there, or a list of (K_i, d)
            arms, rewards   (n,) and (n,); a reward that never came is NaN
            probabilities   (n, K): what the arms were drawn from, or
            propensities    (n,): the chosen arms' alone. What is left of 1 goes to the other arms alike. Estimates
                            weigh by the chosen arm's alone; but that the others could have been chosen, which they
                            also check, is then taken on trust, and so is an exported `pi_b`

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
            chances = _spread(read_numbers(propensities, "propensities"), picked, present)
        else:
            chances = read_numbers(probabilities, "probabilities")
        values = read_numbers(rewards, "rewards")
        if values.shape != picked.shape:
            raise InvalidReward(f"rewards must be one number a round, NaN where none came; got shape {values.shape}.")
        log, numbers, blank = cls(), np.arange(1, len(picked) + 1), np.where(present, 0.0, np.nan)
        log.record(contexts, Decision(picked, blank, blank, np.full(len(picked), LOGGED), numbers, chances), rows=rows)
        told = ~np.isnan(values)
        log.observe(numbers[told], values[told])
        return log

    def __len__(self) -> int:
        return len(self._rounds)

    def __repr__(self) -> str:
        return f"<DecisionLog: {len(self)} rounds, {self.missing} rewards missing>"

    # --- writing

    def record(self, contexts: Any, decision: Decision, *, rows: Any = None) -> None:
        """Keep one decision, or n, with the contexts that `select` was given.

        `rows` is (r,) or (n, r): what all arms of a round share, such as the row that `ArmBlocks` made the
        contexts of. A call that raises has kept nothing.
        """
        if not isinstance(decision, Decision):
            raise InvalidInput(f"record needs the decision that select gave; got {type(decision).__name__}.")
        several = _with_axis(decision)
        present = ~np.isnan(several.means)
        given = _read_contexts(contexts, present, None if self._contexts is None else self._contexts.view.shape[1])
        numbers = read_round_numbers(several.round)
        self._check_new(numbers)
        _check_probabilities(several, present)
        shared = self._read_shared(rows, len(numbers))

        if self._contexts is None:
            self._contexts = Rows(given.shape[1])
            self._shared = None if shared is None else Rows(shared.shape[1])
        start = len(self)
        owners, columns = np.nonzero(present)
        self._owners.append(owners + start)
        self._columns.append(columns)
        self._chances.append(several.probabilities[present])
        self._contexts.append(given)
        if self._shared is not None and shared is not None:
            self._shared.append(shared)
        self._rounds.append(numbers)
        self._versions.append(np.asarray(several.version))
        self._arms.append(np.asarray(several.arm))
        self._rewards.append(np.full(len(numbers), np.nan))
        self._place.update(zip(numbers.tolist(), range(start, len(self)), strict=True))
        self._width = max(self._width, present.shape[1])

    def observe(self, decision: Decision | Any, rewards: Any) -> None:
        """Tell rewards, as to a policy: of a decision, or of round numbers; now, later, in any order."""
        numbers = read_round_numbers(decision.round if isinstance(decision, Decision) else decision)
        values = read_rewards(rewards, len(numbers))
        unknown = [number for number in numbers.tolist() if number not in self._place]
        if unknown:
            raise UnknownRound(
                f"a reward must belong to a recorded round; round {unknown[0]} is not in the log. "
                "Call record(contexts, decision) first."
            )
        places = np.array([self._place[number] for number in numbers.tolist()], np.int64)
        fresh_rewards(self._rewards.view, places, numbers, values)
        self._rewards.view[places] = values

    # --- reading

    @property
    def missing(self) -> int:
        """Rounds whose rewards are not in."""
        return int(np.isnan(self._rewards.view).sum())

    @property
    def observed(self) -> IntArray:
        """Where the rounds lie whose rewards are in, in the order of the rounds: what estimates are made of."""
        order = np.argsort(self._rounds.view, kind="stable")
        return np.asarray(order[~np.isnan(self._rewards.view[order])], np.int64)

    @property
    def rounds(self) -> IntArray:
        """(n,): the policy's numbers of the rounds, in the order in which they were recorded."""
        return self._rounds.view.copy()

    @property
    def versions(self) -> IntArray:
        """(n,)."""
        return self._versions.view.copy()

    @property
    def arms(self) -> IntArray:
        """(n,): the chosen arms."""
        return self._arms.view.copy()

    @property
    def rewards(self) -> Array:
        """(n,), NaN where none is in."""
        return self._rewards.view.copy()

    @property
    def propensities(self) -> Array:
        """(n,): the probability of the chosen arm."""
        return np.asarray(self.probabilities[np.arange(len(self)), self._arms.view], np.float64)

    @property
    def probabilities(self) -> Array:
        """(n, K): what the arm was drawn from, 0 where no arm is."""
        return self._padded(self._chances.view, 0.0)

    @property
    def present(self) -> BoolArray:
        """(n, K): which arms were there."""
        return np.asarray(self._padded(np.ones(len(self._owners), np.bool_), False), np.bool_)

    @property
    def contexts(self) -> Array:
        """(n, K, d), NaN where no arm is; with `mask=log.present` any policy takes them."""
        return self._padded(np.empty((0, 0)) if self._contexts is None else self._contexts.view, np.nan)

    @property
    def rows(self) -> Array | None:
        """(n, r): what the arms of a round share, if it was recorded."""
        return None if self._shared is None else self._shared.view.copy()

    def _padded(self, values: NDArray[Any], absent: Any) -> NDArray[Any]:
        out = np.full((len(self), self._width, *values.shape[1:]), absent, values.dtype)
        out[self._owners.view, self._columns.view] = values
        return out

    # --- at the door

    def _check_new(self, numbers: IntArray) -> None:
        seen: set[int] = set()
        for number in numbers.tolist():
            if number in self._place or number in seen:
                raise InvalidLog(
                    f"a round is recorded once, and round {number} came twice. Use one log for each policy."
                )
            seen.add(number)

    def _read_shared(self, rows: Any, count: int) -> Array | None:
        wanted = None if self._shared is None else self._shared.view.shape[1]
        if len(self) and (rows is None) != (wanted is None):
            raise InvalidLog("rows must come with every decision of a log, or with none.")
        if rows is None:
            return None
        array = np.atleast_2d(read_numbers(rows, "rows"))
        if array.ndim != 2 or len(array) != count or (wanted is not None and array.shape[1] != wanted):
            raise InvalidContexts(f"rows must have shape ({count}, {wanted or 'r'}); got {np.shape(rows)}.")
        if not np.isfinite(array).all():
            raise InvalidContexts("rows must be finite; fill in missing numbers first.")
        return array


def _read_arms(arms: Any, count: int) -> IntArray:
    array = np.asarray(arms)
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


def _with_axis(decision: Decision) -> Decision:
    if not decision.single:
        return decision
    arm, version, number = (np.array([value]) for value in (decision.arm, decision.version, decision.round))
    return Decision(
        arm, decision.means[None], decision.bonuses[None], version, number, np.asarray(decision.probabilities)[None]
    )


def _read_contexts(contexts: Any, present: BoolArray, dim: int | None) -> Array:
    """(N, d): the contexts of the arms that were there; the decision knows which these are."""
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
    if chances.shape != present.shape or not ((chances >= 0) & (present | (chances == 0))).all():
        raise InvalidLog("probabilities must be one number of at least 0 for each arm, and 0 where no arm is.")
    sums = chances.sum(axis=1)
    off = np.flatnonzero(~(np.abs(sums - 1) <= UNITY))
    if len(off):
        raise InvalidLog(
            f"probabilities of a round must sum to 1; those of round {decision.round[off[0]]} sum to {sums[off[0]]}."
        )
    within = (arms >= 0) & (arms < chances.shape[1])
    taken = chances[np.arange(len(arms)), np.where(within, arms, 0)]
    never = np.flatnonzero(~within | (taken == 0))
    if len(never):
        raise InvalidLog(
            f"a chosen arm must have had a positive probability; arm {arms[never[0]]} of round "
            f"{decision.round[never[0]]} had none. A log needs the probabilities that the arm was drawn from."
        )
