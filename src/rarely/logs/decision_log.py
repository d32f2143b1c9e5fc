"""Past rounds: what was decided with which probabilities, on what contexts, and the rewards that came back.

    n   rounds    K   arms, the most of any round    d   numbers in a context    r   numbers in a row
    N   arms that were available, over all rounds

One class serves off-policy estimates, which need probabilities, and the planner, which needs contexts and as many
rewards as are known. What a log does not know is −1 (an arm) or NaN (a reward, a probability). Contexts are those of
the arms (N of them are stored, not n·K), or one row a round that all K arms share.

`LogState` holds everything in arrays that only grow: rounds, versions, arms, propensities, rewards, and where they are
recorded shared rows and slates, of n rows; owners (the place of the round that an arm belongs to), numbers (of the arm
in its round), chances, contexts, and worths (gain and cost) of N. `record` makes the next state on forks and assigns it
in its last line; `observe` writes its rewards in one assignment, its last line. So a call that fails or is interrupted
has changed nothing. The index `places`, from a round's number to its place, is shared by all states and written in
place: an entry counts only if the round at that place has that number, so what an unfinished call left there is
ignored.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rarely.extend import Array, BoolArray, Decision, IntArray
from rarely.extend.checks import (
    ContextsWarning,
    InvalidContexts,
    InvalidInput,
    InvalidReward,
    InvalidWorth,
    UnknownRound,
    WrongDecision,
    check_whole,
    read_array,
    read_real,
    read_rewards,
    read_whole,
    shown,
)
from rarely.extend.provisional import (
    LOGGED,
    GrowableArray,
    OpenContexts,
    RoundContexts,
    Worth,
    forwarded,
    new_values,
    read_rounds,
    slot_rewards,
    with_worth,
    worth_from,
)
from rarely.logs.tables import Columns, InvalidLog, Remark, Role, open_table, read_columns

UNKNOWN = -1  # the place of a round that is not in the log, and the arm of a round whose arm is not known
SUM_TOLERANCE = 1e-6  #: How far the probabilities of a round may sum from 1, for rounding and files of few digits.


def _column(name: str, doc: str) -> Any:
    """Return a property of a log: a copy of what it holds by this name; None where nothing is recorded."""
    return property(lambda self: self._state[name].copy() if name in self._state.columns else None, doc=doc)


class DecisionLog:
    """Past rounds: contexts, chosen arms and their probabilities, and the rewards that are known.

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

    names: tuple[str, ...] = ()  #: Names of the columns of `rows` or of a context, where they have names.
    arm_names: tuple[str, ...] = ()  #: Names of arms 0, 1, …, where they have names.
    held_out: frozenset[int] = frozenset()
    """The rounds that a lot decided (`Decision.held_out`); files do not hold it, `overrides` or `outcomes`."""
    ids: tuple[str, ...] = ()  #: The entries of the column `id` of a table that was read, one for each round; else ().
    remarks: tuple[Remark, ...] = ()
    """What looked odd in a table that was read, and what was put right; each with its `kind` and its `rows`."""
    _table: Array | None = None  # (n, K) rewards, where some round has more than one

    def __init__(self) -> None:
        self._state = LogState()
        self.overrides: dict[int, str] = {}
        """The reasons of rounds in which a person gave another arm than the one decided, by round."""
        self.outcomes: dict[int, dict[str, float]] = {}
        """What the reward of a round was combined of, by round, where a study has outcomes."""

    def __copy__(self) -> DecisionLog:
        # Of two logs on the same growing arrays only one could grow on.
        return copy.deepcopy(self)

    @classmethod
    def from_arrays(
        cls,
        contexts: Any = None,
        arms: Any = None,
        rewards: Any = None,
        *,
        probabilities: Any = None,
        propensities: Any = None,
        rows: Any = None,
        mask: Any = None,
        arm_count: int | None = None,
        names: Sequence[str] = (),
        arm_names: Sequence[str] = (),
        slates: Any = None,
    ) -> DecisionLog:
        """Make a log of decisions that something else made: rounds 1 … n in the order of time, all of version −1.

        Only `contexts` or `rows` must be given. An estimate also needs arms, rewards and probabilities; a plan can do
        without them.

        Parameters
        ----------
        contexts
            (n, K, d) with a `mask` of the arms that were available, or a list of (K_i, d).
        arms
            (n,): the chosen arms, 0 … K − 1.
        rewards
            (n,): the rewards of the chosen arms, NaN where none came. Or (n, K), NaN where unknown, if the rewards of
            several arms of a round are known; `arms` is None then.
        probabilities
            (n, K): what the arms were drawn from.
        propensities
            (n,): instead of `probabilities`, those of the chosen arms alone; the others are NaN in `log.probabilities`,
            unless they follow. Estimates need no more, but cannot check that the log could have chosen every arm that
            a target would.
        rows
            (n, r): what all arms of a round share. Without `contexts`, an arm's context is the row in a block that
            belongs to the arm, as `ArmBlocks` makes it, and `arm_count` says how many arms there are.
        mask, arm_count
            (n, K): which arms were available; K, with rows alone.
        names, arm_names
            Of the columns, and of the arms.
        slates
            (n,): rows with the same number are the slots of one slate, in their order.

        Examples
        --------
        >>> contexts = [[[0.0], [1.0]], [[2.0], [3.0]]]
        >>> log = DecisionLog.from_arrays(contexts, arms=[1, 0], rewards=[5.0, np.nan], propensities=[0.75, 0.5])
        >>> log, log.probabilities
        (<DecisionLog: 2 rounds, 1 rewards missing>, array([[0.25, 0.75],
               [0.5 , 0.5 ]]))
        >>> DecisionLog.from_arrays(rows=[[20.0], [35.0]], arms=[0, 2], rewards=[1.0, 0.0], arm_count=3).arm_count
        3
        """
        rows = None if rows is None else read_array(rows, "rows", InvalidContexts)
        names, arm_names = _read_names("names", names), _read_names("arm_names", arm_names)
        if probabilities is not None and propensities is not None:
            raise InvalidLog("give either probabilities, (n, K), or propensities, (n,), of the chosen arms alone.")
        width, present, arm_contexts = _read_offered(contexts, mask, rows, arm_count)
        count = len(rows) if present is None else len(present)
        picked, values, table = _read_outcomes(arms, rewards, count, width)
        if arms is None and not (probabilities is None and propensities is None):
            raise InvalidLog("probabilities need the arms that were drawn from them; give arms, one for each round.")
        if len(arm_names) > width:
            raise InvalidInput(f"{len(arm_names)} arms are named, more than the {width} of the log.")
        if present is None and probabilities is not None:
            present = np.ones((count, width), np.bool_)  # then there is something to store for each of them
        chosen, chances = _read_chances(picked, probabilities, propensities, present, width)
        numbers, log = np.arange(1, count + 1), cls()
        columns: dict[str, Any] = {"rounds": numbers, "arms": picked, "propensities": chosen, "contexts": arm_contexts}
        columns |= {"versions": np.full(count, LOGGED), "shared": None if rows is None else _read_rows(rows, count)}
        if slates is not None:
            _, first, slate = np.unique(
                read_array(slates, "slates", InvalidLog), return_index=True, return_inverse=True
            )
            if slate.shape != (count,):
                raise InvalidLog(f"slates must be one number for each of {count} rounds; got {np.shape(slates)}.")
            columns["slates"] = numbers[first][slate]
        log._state = log._state.with_rounds(width, present, chances, columns)
        log._table, log.names, log.arm_names = table, names, arm_names
        if values is not None and (rewarded := ~np.isnan(values)).any():
            log.observe(rounds=numbers[rewarded], rewards=values[rewarded])
        return log

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        arm: str | None = None,
        reward: str | None = None,
        probability: str | None = None,
        context: Sequence[str] | None = None,
        round: str | None = None,
        id: str | None = None,
        time: str | None = None,
        ignore: Sequence[str] = (),
        encoder: Any = None,
        arm_count: int | None = None,
        drop_unknown: bool = False,
    ) -> DecisionLog:
        """Read a table of anybody's past rounds.

        Parameters
        ----------
        frame
            A frame of pandas, polars or pyarrow, a dict of columns, a list of dicts, or the path of a file: CSV,
            Parquet or JSON lines.
        arm
            The column of the chosen arm. Arms are numbered in the order of their names, or of their numbers where they
            are whole ones; `arm_names` keeps the names.
        reward
            The column of the reward; empty where none is known.
        probability
            The column of the probability with which the chosen arm was drawn; estimates need it.
        context
            The columns that describe the round, all of them numbers. By default all that are not named otherwise.
        round
            Where each arm has its own row: the column that numbers the rounds. Rows with the same entry are the arms of
            one round, and a reward stands in the row of the arm that was chosen.
        id
            A column that names the rounds. A row that repeats an earlier one is dropped; two rows with one id and
            different values are an error.
        time
            The column of the times, numbers or dates: rows are put in their order.
        ignore
            Columns that are not read.
        encoder
            For columns of text, categories, dates or gaps: "auto", which fits a `FrameEncoder` to the context, a fitted
            one, or any object whose `transform(frame)` makes one row of numbers a round. It is given the frame; of a
            file, a dict of its columns. Its `names`, if any, become those of the log.
        arm_count
            How many arms there are, if more than the table names, or if it does not say.
        drop_unknown
            Whether rows without a probability are left out, and counted in `remarks`, instead of refused.

        Warns
        -----
        ContextsWarning
            For each of `remarks` but the missing rewards, with the rows that it is about: columns that look like
            something else than a context, arms in two spellings, repeated rows, rows out of order.

        Examples
        --------
        >>> frame = {"age": [20, 35, 50], "offer": ["tea", "rum", "tea"], "paid": [1.0, None, 3.0]}
        >>> log = DecisionLog.from_frame(frame, arm="offer", reward="paid")
        >>> log, log.arm_names, log.rows[:, 0]
        (<DecisionLog: 3 rounds, 1 rewards missing>, ('rum', 'tea'), array([20., 35., 50.]))
        """
        check_whole("arm_count", arm_count, 1, besides=(None,))
        table = open_table(frame)
        named: dict[Role, str | None] = {"arm": arm, "reward": reward, "probability": probability, "round": round}
        roles = {role: name for role, name in (named | {"id": id, "time": time}).items() if name is not None}
        read = read_columns(table, context, ignore, roles, encoder, frame, drop_unknown=drop_unknown)
        log = cls._of_arm_rows(table.name, read, arm_count) if round else cls._of_rows(table.name, read, arm_count)
        if log.arm_count < 2:
            raise InvalidLog(
                f"{table.name} must name two arms at least; all rows have the same. If there are more to choose among, "
                "say how many: arm_count=K (--arms K)."
            )
        log.names, log.remarks = read.names, read.remarks
        if "id" in read.coded:
            log.ids = tuple(read.coded["id"].values[code] for code in read.coded["id"].codes.tolist())
        for remark in (remark for remark in log.remarks if remark.kind != "gap"):
            warnings.warn(str(remark), ContextsWarning, stacklevel=2)
        return log

    @classmethod
    def _of_rows(cls, name: str, read: Columns, arm_count: int | None) -> DecisionLog:
        """Make a log of a table with one row a round."""
        chosen = read.coded["arm"].sorted() if "arm" in read.coded else None
        if chosen is None and read.numbers:
            raise InvalidLog(f"{name}: a reward or a probability is an arm's; name the arm's column too.")
        if arm_count is None and chosen is None:
            raise InvalidLog(f"{name} does not say how many arms there are; give arm_count (--arms) or its column.")
        names = () if chosen is None else chosen.values
        if arm_count is not None and len(names) > arm_count:
            raise InvalidLog(f"{name}: {len(names)} arms were chosen, more than the {arm_count} given.")
        return cls.from_arrays(
            arms=None if chosen is None else chosen.codes,
            rewards=read.numbers.get("reward"),
            propensities=read.numbers.get("probability"),
            rows=read.context,
            arm_count=arm_count or len(names),
            arm_names=names,
        )

    @classmethod
    def _of_arm_rows(cls, name: str, read: Columns, arm_count: int | None) -> DecisionLog:
        """Make a log of a table in which each arm has a row; rounds are in the order in which they first appear."""
        rounds, rewards, context = read.coded["round"], read.numbers.get("reward"), read.context
        if "probability" in read.numbers:
            raise InvalidLog(f"{name}: a probability is the chosen arm's; it needs one row a round.")
        counts = np.bincount(rounds.codes)
        if (odd := np.flatnonzero(counts != counts[0])).size:
            first, other = f"{rounds.values[0]} has {counts[0]}", f"{rounds.values[odd[0]]} has {counts[odd[0]]}"
            rule = f"{name}: every round must have as many rows, one for each arm"
            raise InvalidLog(f"{rule}; round {first}, round {other}. Keep rounds of one size.")
        order, count = np.argsort(rounds.codes, kind="stable"), int(counts[0])
        if arm_count not in (None, count):
            raise InvalidInput(f"{name}: the rounds have {count} arms; got arm_count={arm_count!r}.")
        table = None if rewards is None else rewards[order].reshape(-1, count)
        return cls.from_arrays(context[order].reshape(-1, count, context.shape[1]), rewards=table)

    def __len__(self) -> int:
        return len(self._state)

    def __repr__(self) -> str:
        return f"<DecisionLog: {len(self)} rounds, {self.missing} rewards missing>"

    # --- writing

    def record(self, contexts: Any, decision: Decision, *, rows: Any = None, unknown: bool = False) -> None:
        """Keep one decision, or n, with the contexts that `select` was given.

        `rows` is (r,) or (n, r): what all arms of a round share, such as the row that `ArmBlocks` made the
        contexts of. With `unknown` the probabilities of arms that were not chosen may be NaN.
        """
        state, several = self._state, read_decision(decision)
        if len(self) and ("contexts" not in state.columns or self._table is not None):
            raise InvalidLog("a log of rows alone, or of every arm's rewards, takes no decision; record it in another.")
        present = ~np.isnan(several.means)
        contexts = _of_slots(contexts, several)
        offered = _read_contexts(contexts, present, state.width_of("contexts"))
        distinct, counts = np.unique(several.rounds, return_counts=True)
        if len(again := distinct[(counts > 1) | (state.places_of(distinct) != UNKNOWN)]):
            raise InvalidLog(f"a round is recorded once, and round {again[0]} came twice. Use one log for each policy.")
        chosen = check_probabilities(several.arms, several.probabilities, several.rounds, present, unknown=unknown)
        columns: dict[str, Any] = {"rounds": several.rounds, "versions": several.versions, "arms": several.arms}
        columns |= {"propensities": chosen, "contexts": offered}
        wanted = state.width_of("shared")
        if len(self) and (rows is None) != (wanted is None):
            raise InvalidLog("rows must come with every decision of a log, or with none.")
        columns["shared"] = None if rows is None else _read_rows(rows, len(present), wanted)
        if several.worth is not None or "worths" in state.columns:
            given = several.worth or Worth()
            each = (np.broadcast_to(np.atleast_2d(column), present.shape) for column in (given.gain, given.cost))
            columns["worths"] = np.column_stack([column[present] for column in each])
        if several.slate is not None or "slates" in state.columns:
            columns["slates"] = several.rounds if several.slate is None else np.atleast_1d(several.slate)
        after = state.with_rounds(present.shape[1], present, several.probabilities, columns)
        lot = () if several.held_out is None else several.rounds[np.atleast_1d(several.held_out)].tolist()
        self._state, self.held_out = after, self.held_out.union(lot)

    def observe(
        self, decision: Decision | None = None, rewards: Any = None, *, rounds: Any = None, seen: int | None = None
    ) -> None:
        """Record rewards: of a decision, whole or sliced; now, later, in any order.

        Raises `WrongDecision` if the decision is not the one on record, `UnknownRound` if a round is not recorded, and
        `ConflictingReward` if it has another reward already.

        Parameters
        ----------
        decision
            What `select` gave. Its arms, versions and probabilities must be those on record.
        rewards
            One finite number for each round. A value that is in already is ignored; a different one is refused.
        rounds
            Numbers of recorded rounds, where the decision no longer exists. From a number alone the log cannot know
            whether the reward belongs to what is on record.
        seen
            As in `Policy.observe`, for slates.
        """
        decision, rewards = slot_rewards(decision, rewards, seen)
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
        if overridden := self.overrides.keys() & set(numbers.tolist()):
            raise InvalidLog(f"a person gave another arm in round {min(overridden)}, which takes no reward.")
        if (lacking := np.flatnonzero(state["arms"][places] == UNKNOWN)).size:
            raise InvalidLog(f"a reward must belong to an arm; the log has no arm for round {numbers[lacking[0]]}.")
        if decision is not None:
            self._check_same(read_decision(decision), places)
        fresh = new_values(state["rewards"][places], places, numbers, values)
        state["rewards"][places[fresh]] = values[fresh]

    def override(self, decision: Decision | None = None, *, rounds: Any = None, reason: str) -> None:
        """Mark rounds in which a person gave another arm than the one decided: they have no reward, and take none.

        Estimates leave them out, and a note says how many; that is right if people overrule for reasons that have
        nothing to do with the arm that was drawn. `decision` and `rounds` are as in `observe`. A reward that is in
        already is removed, because it is another arm's.
        """
        numbers = _read_numbers(decision, rounds)
        places = self._state.places_of(numbers)
        if (places == UNKNOWN).any() or not (isinstance(reason, str) and reason):
            raise InvalidLog(f"an override needs rounds of the log and a reason; got {numbers.tolist()}, {reason!r}.")
        self._state["rewards"][places] = np.nan
        self.overrides = self.overrides | dict.fromkeys(numbers.tolist(), reason)

    # --- reading

    @property
    def missing(self) -> int:
        """How many rounds have no reward."""
        if self._table is not None:
            return int(np.isnan(self._table).all(axis=1).sum())
        return int(np.isnan(self._state["rewards"]).sum())

    @property
    def observed(self) -> IntArray:
        """The places of the rounds whose rewards are in, in the order of the rounds: what estimates are made of."""
        places = np.flatnonzero(~np.isnan(self._state["rewards"]))
        return np.asarray(places[np.argsort(self._state["rounds"][places], kind="stable")], np.int64)

    arm_count: int = forwarded("_state.width", "K, the most arms of any round.")

    rounds: IntArray = _column("rounds", "(n,): the policy's numbers of the rounds, in the order of their recording.")
    versions: IntArray = _column("versions", "(n,): the version that decided; −1 where something else did.")
    arms: IntArray = _column("arms", "(n,): the chosen arms, −1 where unknown.")
    rewards: Array = _column("rewards", "(n,): the rewards of the chosen arms, NaN where none is in.")
    propensities: Array = _column("propensities", "(n,): the probability of the chosen arm, NaN where unknown.")
    rows: Array | None = _column("shared", "(n, r): what the arms of a round share, if it was recorded.")
    slates: IntArray | None = _column(
        "slates", "(n,): the round of the first slot of the slate that each round is a slot of; None without slates."
    )

    @property
    def probabilities(self) -> Array:
        """(n, K): what the arm was drawn from, 0 where no arm is, NaN where unknown."""
        state = self._state
        if state.stores_arms:
            return self._padded(state["chances"], 0.0)
        return implied_chances(state["propensities"], state["arms"], self.present)

    @property
    def present(self) -> BoolArray:
        """(n, K): which arms were available."""
        if not self._state.stores_arms:
            return np.ones((len(self), self._state.width), np.bool_)
        return np.asarray(self._padded(np.ones(len(self._state["owners"]), np.bool_), False), np.bool_)

    @property
    def contexts(self) -> Array:
        """(n, K, d), NaN where no arm is; with `mask=log.present` any policy takes them. d = 0 with rows alone."""
        if "contexts" not in self._state.columns:
            return np.empty((len(self), self._state.width, 0))
        return self._padded(self._state["contexts"], np.nan)

    @property
    def worth(self) -> Worth | None:
        """What outcomes were worth when they were decided, (n, K); None where no decision said so."""
        if "worths" not in self._state.columns:
            return None
        gain, cost = self._state["worths"].T
        return Worth(self._padded(gain, 1.0), self._padded(cost, 0.0))

    def valued(self, worth: Any = None) -> DecisionLog:
        """Return the log with rewards in worth: what each outcome was worth, or is with another `worth` of (n, K).

        Estimates from it are in worth. A `Policy` that is judged decides by the same worth.

        >>> from rarely import LinUCB, Mixture, Worth
        >>> policy, log = LinUCB(dim=1, exploration=Mixture(0.5), seed=0), DecisionLog()
        >>> decision = policy.select([[1.0], [2.0]], worth=Worth([3.0, 9.0], cost=1.0))
        >>> log.record([[1.0], [2.0]], decision)
        >>> log.observe(decision, 1.0)
        >>> int(log.arms[0]), log.valued().rewards, log.valued(Worth(5.0)).rewards
        (1, array([8.]), array([5.]))
        """
        asked = self.worth if worth is None else worth_from(worth)
        if asked is None:
            raise InvalidWorth("no decision of this log has a worth; give one, such as valued(Worth(gain=prices)).")
        if self._table is not None or not self._state.stores_arms:
            raise InvalidLog("a log of rows alone, or of every arm's rewards, has no place for a worth.")
        present, other = self.present, copy.copy(self)
        read = with_worth(RoundContexts(np.empty((*present.shape, 0)), present, 1, single=False), asked).worth
        state, worths = other._state, GrowableArray(2)
        worths.append(np.column_stack([read.gain[present], read.cost[present]]))
        chosen, picked = self.arms != UNKNOWN, np.maximum(self.arms, 0)
        state["rewards"][:] = np.where(chosen, read[np.arange(len(self)), picked].of(self.rewards), np.nan)
        other._state = replace(state, columns=state.columns | {"worths": worths})
        return other

    def known_rewards(self) -> tuple[IntArray, IntArray, Array]:
        """Return the places, the arms and the values of all rewards that are known, in the order of the places."""
        if self._table is not None:
            places, arms = np.nonzero(~np.isnan(self._table))
            return places, arms, self._table[places, arms]
        places = np.flatnonzero(~np.isnan(self._state["rewards"]))
        return places, self._state["arms"][places], self._state["rewards"][places]

    def arm_name(self, arm: int) -> str:
        """Return an arm's name, or its number if it has none."""
        return self.arm_names[arm] if arm < len(self.arm_names) else str(arm)

    def _padded(self, values: NDArray[Any], absent: Any) -> NDArray[Any]:
        out = np.full((len(self), self._state.width, *values.shape[1:]), absent, values.dtype)
        out[self._state["owners"], self._state["numbers"]] = values
        return out

    def _check_same(self, decision: Decision, places: IntArray) -> None:
        """Refuse a decision that differs from what is on record at these places."""
        state, chosen = self._state, chances_of_chosen(decision.arms, decision.probabilities)
        for name, column, decided, tolerance in (
            ("arm", "arms", decision.arms, 0),
            ("version", "versions", decision.versions, 0),
            ("probability of the arm", "propensities", chosen, SUM_TOLERANCE),
        ):
            recorded = state[column][places]
            for i in np.flatnonzero(np.abs(recorded - decided) > tolerance)[:1]:
                raise WrongDecision(
                    f"a reward must belong to a decision on record; the {name} on record for round "
                    f"{decision.rounds[i]} is {recorded[i]}, and this decision has {decided[i]}. Either another policy "
                    "made the decision, or the policy was loaded from a file and decided that round again. If the "
                    "reward does belong to the round on record, call observe(rounds=[…], rewards=[…])."
                )


def probabilities_of(log: DecisionLog, places: IntArray) -> Array:
    """Return the probabilities (m, K) at these places; raise InvalidLog if that of a chosen arm is not known."""
    unknown = places[np.isnan(log.propensities[places])]
    if len(unknown):
        raise InvalidLog(
            f"the probabilities that arms were drawn from must be known; {len(unknown)} of {len(places)} rounds with "
            f"rewards have none, the first is round {log.rounds[unknown[0]]}. Give probabilities or propensities to "
            "from_arrays, or the column probability to from_frame."
        )
    return log.probabilities[places]


# --- what a log holds


def _nothing() -> dict[str, GrowableArray]:
    whole = {name: GrowableArray(None, np.int64) for name in ("rounds", "versions", "arms", "owners", "numbers")}
    return whole | {name: GrowableArray(None) for name in ("propensities", "rewards", "chances")}


@dataclass(frozen=True, slots=True)
class LogState:
    """Rounds as they were recorded, and rewards as they came, by the names above; without any round at first."""

    columns: dict[str, GrowableArray] = field(default_factory=_nothing)
    width: int = 0  # the most arms of any round
    places: dict[int, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.columns["rounds"])

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.columns[name].view

    def width_of(self, name: str) -> int | None:
        """Return how many numbers each row of a column has; None where it is not recorded."""
        return self[name].shape[1] if name in self.columns else None

    @property
    def stores_arms(self) -> bool:
        """Whether the available arms are stored; else all are available in every round."""
        return len(self.columns["owners"]) > 0 or not len(self)

    def with_rounds(
        self, width: int, present: BoolArray | None, chances: Array | None, new: dict[str, Any]
    ) -> LogState:
        """Return the state that also holds n rounds, which are checked already, of up to K = `width` arms.

        `present` and `chances` are (n, K), and `new` the columns by name, None for those that are not recorded.
        Without `present` all K arms are available in every round, and none has a context or a probability to store.
        """
        start, rounds = len(self), new["rounds"]
        new = new | {"rewards": np.full(len(rounds), np.nan)}
        if present is not None and chances is not None:
            owners, numbers = np.nonzero(present)
            new |= {"owners": owners + start, "numbers": numbers, "chances": chances[present]}
        columns = {name: column.fork() for name, column in self.columns.items()}
        for name, values in new.items():
            if values is None:
                continue
            if name not in columns:
                columns[name] = GrowableArray(values.shape[1] if values.ndim > 1 else None, values.dtype)
                if name == "slates":
                    columns[name].append(self["rounds"])
                if name == "worths":
                    columns[name].append(np.tile((1.0, 0.0), (len(self["owners"]), 1)))
            columns[name].append(values)
        self.places.update(zip(rounds.tolist(), range(start, start + len(rounds)), strict=True))
        return LogState(columns, max(self.width, width), self.places)

    def places_of(self, numbers: IntArray) -> IntArray:
        """Return where rounds lie, by their numbers; UNKNOWN where the log has none of that number."""
        places = np.array([self.places.get(number, UNKNOWN) for number in numbers.tolist()], np.int64)
        places[places >= len(self)] = UNKNOWN
        inside = np.flatnonzero(places != UNKNOWN)
        places[inside[self["rounds"][places[inside]] != numbers[inside]]] = UNKNOWN
        return places


# --- arrays of the caller


def _read_offered(
    contexts: Any, mask: Any, rows: Any, arm_count: int | None
) -> tuple[int, BoolArray | None, Array | None]:
    """Return K, which arms were available and their contexts; None for both with rows that all arms share."""
    check_whole("arm_count", arm_count, 1, besides=(None,))
    if contexts is not None:
        rounds = read_rounds(contexts, mask, _last_axis(contexts))
        if rounds.single:
            raise InvalidLog(f"contexts must have shape (n, K, d), a round each; got {np.shape(contexts)}.")
        width = rounds.present.shape[1]
        if arm_count not in (None, width):
            raise InvalidInput(f"the contexts are of {width} arms; got arm_count={arm_count!r}.")
        return width, rounds.present, _rows_of(rounds)
    if rows is None:
        raise InvalidLog("a log needs contexts, (n, K, d), or rows, (n, r), that all arms of a round share.")
    if arm_count is None:
        raise InvalidInput("one row a round does not say how many arms there are; give arm_count.")
    if mask is not None:
        raise InvalidInput("a mask needs contexts: with rows alone all arms are available in every round.")
    if np.ndim(rows) != 2 or not np.size(rows):
        raise InvalidContexts(f"rows must have shape (n, r), one row a round; got {np.shape(rows)}.")
    return int(arm_count), None, None


def _read_names(name: str, names: Any) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise InvalidInput(f"{name} must be a list of texts, () for none; got {shown(names)}.")
    return tuple(names)


def _read_outcomes(arms: Any, rewards: Any, count: int, width: int) -> tuple[IntArray, Array | None, Array | None]:
    """Return the chosen arms, their rewards, and the table of rewards if several arms of a round have one."""
    picked = np.full(count, UNKNOWN)
    if arms is not None:
        given = read_array(arms, "arms", InvalidLog)
        if given.shape != (count,) or given.dtype.kind not in "iu":
            raise InvalidLog(
                f"arms must be one whole number from 0 on for each of {count} rounds; got {given.dtype} of shape "
                f"{given.shape}. Names of arms become numbers by numpy.unique(names, return_inverse=True)."
            )
        picked[:] = given
    if rewards is None:
        return picked, None, None
    values = read_real(rewards, "rewards", InvalidReward)
    if values.ndim and len(infinite := np.argwhere(np.isinf(values))):
        raise InvalidReward(f"rewards must be finite, or NaN where unknown; that of round {infinite[0][0] + 1} is not.")
    if arms is not None:
        if values.shape != picked.shape:
            raise InvalidReward(f"rewards must be one number a round, NaN where none came; got shape {values.shape}.")
        return picked, values, None
    if values.shape != (count, width):
        raise InvalidReward(f"without chosen arms rewards must have shape {(count, width)}; got {values.shape}.")
    rewarded = ~np.isnan(values)
    if (rewarded.sum(axis=1) > 1).any():
        return picked, None, values
    places, chosen = np.nonzero(rewarded)
    picked[places] = chosen
    return picked, np.where(rewarded.any(axis=1), np.nansum(values, axis=1), np.nan), None


def _read_chances(
    arms: IntArray, probabilities: Any, propensities: Any, present: BoolArray | None, width: int
) -> tuple[Array, Array | None]:
    """Return the probabilities (n,) of the chosen arms and (n, K) of all, NaN if neither is given.

    The second are None without `present`: where all arms are available nothing but the first is stored.
    """
    lowest = UNKNOWN if propensities is None else 0
    if (outside := np.flatnonzero((arms < lowest) | (arms >= width))).size:
        raise InvalidLog(f"arms must be 0 … {width - 1}; round {outside[0] + 1} has {arms[outside[0]]}.")
    if probabilities is None and propensities is None:
        chosen = np.flatnonzero(arms != UNKNOWN)
        if present is not None and len(absent := chosen[~present[chosen, arms[chosen]]]):
            raise InvalidLog(f"a chosen arm must be there; arm {arms[absent[0]]} of round {absent[0] + 1} is masked.")
        return np.full(len(arms), np.nan), None if present is None else np.where(present, np.nan, 0.0)
    if probabilities is None:
        numbers = read_real(propensities, "propensities", InvalidLog)
        if numbers.shape != arms.shape:
            raise InvalidLog(f"propensities must be one number for each round, {arms.shape}; got {numbers.shape}.")
        if (bad := np.flatnonzero(~((numbers > 0) & (numbers <= 1)))).size:
            first = f"that of round {bad[0] + 1} (row {bad[0]}) is {numbers[bad[0]]}{_others(bad)}"
            raise InvalidLog(f"propensities must be above 0 and at most 1; {first}.")
        if present is None and width > 1:
            return numbers.astype(np.float64), None
    available = np.ones((len(arms), width), np.bool_) if present is None else present
    if probabilities is None:
        chances = implied_chances(numbers, arms, available)
    else:
        chances = read_real(probabilities, "probabilities", InvalidLog)
    if chances.shape != available.shape:
        raise InvalidLog(f"probabilities must be one for each arm, {available.shape}; got shape {chances.shape}.")
    rounds = np.arange(1, len(arms) + 1)
    return check_probabilities(arms, chances, rounds, available, unknown=probabilities is None), chances


def _read_rows(rows: Any, count: int, wanted: int | None = None) -> Array:
    array = np.atleast_2d(read_real(rows, "rows", InvalidContexts))
    if array.ndim != 2 or len(array) != count or (wanted is not None and array.shape[1] != wanted):
        raise InvalidContexts(f"rows must have shape ({count}, {wanted or 'r'}); got {np.shape(rows)}.")
    if (bad := np.flatnonzero(~np.isfinite(array).all(axis=1))).size:
        raise InvalidContexts(f"rows must be finite, and row {bad[0]} (from 0 on) is not{_others(bad)}.")
    return array


def _read_numbers(decision: Any, rounds: Any) -> IntArray:
    """Return the numbers of the rounds that rewards belong to, of a decision or as such."""
    if decision is not None and not isinstance(decision, Decision):
        raise InvalidInput(
            f"observe needs the decision that select gave; got {type(decision).__name__}. Round numbers, which are not "
            "arms, need a keyword: observe(rounds=[…], rewards=[…])."
        )
    if (decision is None) == (rounds is None):
        raise InvalidInput("observe needs either a decision, as its first argument, or rounds=, not both and not none.")
    return read_whole(rounds if decision is None else decision.round, "rounds", UnknownRound)


def check_log(log: Any) -> None:
    """Raise InvalidLog for what is not a log."""
    if not isinstance(log, DecisionLog):
        raise InvalidLog(f"log must be a DecisionLog; got {shown(log)}. DecisionLog.from_arrays takes arrays.")


def read_decision(decision: Any) -> Decision:
    """Return a decision with a leading axis everywhere, of the right kinds and shapes."""
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


def implied_chances(propensities: Array, arms: IntArray, present: BoolArray) -> Array:
    """Return (n, K): the chosen arms' probabilities, and those of other arms where they follow; NaN elsewhere.

    They follow where the chosen arm's is 1 or one other arm is available.
    """
    chosen = np.arange(present.shape[1]) == arms[:, None]
    others = (present & ~chosen).sum(axis=1)
    rest = np.where((others == 1) | (propensities == 1), 1 - propensities, np.nan)
    return np.where(chosen, propensities[:, None], np.where(present, rest[:, None], 0.0))


def _others(rounds: IntArray) -> str:
    """Return how many more rounds have the same fault as the first of these."""
    return f", and {len(rounds) - 1} more are wrong" if len(rounds) > 1 else ""


def _read_contexts(contexts: Any, present: BoolArray, dim: int | None) -> Array:
    """Return (N, d): the contexts of the arms that were available; the decision knows which these are."""
    if isinstance(contexts, OpenContexts):
        rounds = read_rounds(contexts, present[0] if contexts.ndim == 2 else present, dim or contexts.shape[-1])
        return _rows_of(rounds)
    rounds = read_rounds(contexts, None, _last_axis(contexts) if dim is None else dim)
    available = rounds.present
    if isinstance(rounds.given, list) and available.shape[1] < present.shape[1]:
        # A slice of ragged rounds may have lost the widest of them.
        available = np.pad(available, ((0, 0), (0, present.shape[1] - available.shape[1])))
    if available.shape != present.shape:
        raise InvalidLog(
            f"contexts must be those of the decision, {len(present)} rounds of {present.shape[1]} arms; got "
            f"{len(available)} rounds of {available.shape[1]}. After until_due record contexts[:len(decision)]."
        )
    if not np.array_equal(available, present):
        rounds = read_rounds(contexts, present[0] if rounds.single else present, rounds.given[0].shape[-1])
    return _rows_of(rounds)


def _rows_of(rounds: RoundContexts) -> Array:
    (part,) = rounds.parts(lambda: len(rounds.present))
    return part.rows


def _of_slots(contexts: Any, decision: Decision) -> Any:
    """Return the contexts of a slate's slots, given those of the slate once."""
    slots = 1 if decision.slate is None else int((np.atleast_1d(decision.slate) == decision.rounds[0]).sum())
    if slots == 1 or callable(contexts) or (isinstance(contexts, list) and np.ndim(contexts[0]) == 2):
        return contexts
    array = np.asarray(contexts)
    each = array[None] if array.ndim == 2 else array
    return contexts if len(each) == len(decision.rounds) else np.repeat(each, slots, axis=0)


def _last_axis(contexts: Any) -> int:
    """Return how many numbers a context has."""
    try:
        return int(np.shape(contexts[0])[-1])
    except (IndexError, TypeError, ValueError):
        raise InvalidContexts("contexts must be what select was given: (K, d), (n, K, d) or a list.") from None


def check_probabilities(
    arms: IntArray, chances: Array, rounds: IntArray, present: BoolArray, *, unknown: bool = False
) -> Array:
    """Return (n,): the probabilities of the chosen arms; refuse (n, K) that no arm can have been drawn from.

    If some may be unknown, those of arms that were not chosen may be NaN.
    """
    unstated = np.isnan(chances) & present & unknown
    if (bad := np.flatnonzero(~(unstated | ((chances >= 0) & (present | (chances == 0)))).all(axis=1))).size:
        raise InvalidLog(
            "probabilities must be one number of at least 0 for each arm, and 0 where no arm is; those of round "
            f"{rounds[bad[0]]} are {chances[bad[0]].tolist()}."
        )
    sums = np.where(unstated, 0.0, chances).sum(axis=1)
    off = np.flatnonzero(~((np.abs(sums - 1) <= SUM_TOLERANCE) | (unstated.any(axis=1) & (sums < 1))))
    if len(off):
        raise InvalidLog(f"probabilities must sum to 1; in round {rounds[off[0]]} they sum to {sums[off[0]]}.")
    chosen = chances_of_chosen(arms, chances)
    if len(never := np.flatnonzero(~(chosen > 0))):
        raise InvalidLog(
            f"a chosen arm must have had a positive probability; arm {arms[never[0]]} of round {rounds[never[0]]} had "
            "none. A log needs the probabilities that the arm was drawn from."
        )
    return chosen


def chances_of_chosen(arms: IntArray, chances: Array) -> Array:
    """Return (n,): the probability of each chosen arm, 0 for an arm that does not exist."""
    within = (arms >= 0) & (arms < chances.shape[1])
    return np.where(within, chances[np.arange(len(arms)), np.where(within, arms, 0)], 0.0)
