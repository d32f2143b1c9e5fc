"""What was chosen, under which version, and the rewards that came back.

Row i is a logged sample for i < logged, and round i − logged + 1 from there on: rounds count from 1.

A history is a value: `with_rounds` and `with_rewards` return the next one and leave this one as it is, also
when they fail half-way. Decisions and arrivals are only ever appended, behind the length that this value knows.

    arrivals   (m,)  rows in the order in which their rewards came
    values     (m,)  those rewards
    place      (n,)  where a row stands in `arrivals`. It is meaningless for a row without a reward, so a row has one
                     only if arrivals[place[row]] == row (the sparse set of Briggs and Torczon, 1993): what a failed
                     call wrote there cannot be mistaken for a reward
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rarely.core.errors import UnknownRound, WrongDecision
from rarely.core.growable_array import GrowableArray, shallow
from rarely.core.inputs.array_reader import read_whole
from rarely.core.inputs.decision_ids import LOST, means_of, parts_of
from rarely.core.inputs.forgetting import Forgetting
from rarely.core.inputs.rewards import newly_told, read_rewards
from rarely.core.inputs.saved_history import read_arrivals, read_known, read_lives
from rarely.core.saving.fields import Fields
from rarely.core.types import Array, Arrays, Decision, IntArray

LOGGED = -1
"""The version, and the arm, of a row that came from a log."""
SAME_MEAN = 1e-6
"""Relative difference up to which two means are one: a decision may have been stored with fewer digits."""


_DECIDED = ("_contexts", "_arms", "_versions", "_known", "_place")
"""Rows that grow with decisions,"""
_TOLD = ("_arrivals", "_values")
"""and with rewards. What a reward writes into `_place` is without meaning until it has arrived."""


class Samples(NamedTuple):
    """What an update learns from."""

    rows: IntArray
    """(n,): their places in the history."""
    contexts: Array
    rewards: Array
    weights: Array | None
    """(n,), or None where nothing is forgotten."""


class History:
    """Contexts of the chosen arms as they came, and their rewards; a reward that is not in is NaN."""

    def __init__(self, dim: int, forgetting: Forgetting | None = None) -> None:
        self.forgetting = forgetting
        self._contexts = GrowableArray(dim)
        self._arms, self._versions = GrowableArray(None, np.int64), GrowableArray(None, np.int64)
        self._known = GrowableArray(3)
        """Propensity, mean and bonus of the chosen arm."""
        self._place = GrowableArray(None, np.int64)
        self._arrivals, self._values = GrowableArray(None, np.int64), GrowableArray(None)
        self._lives: tuple[tuple[int, str], ...] = ()
        """(row, life): from which row on a life of the policy decided; see `Decision.life`."""
        self.logged = 0

    def __len__(self) -> int:
        return len(self._place)

    @property
    def contexts(self) -> Array:
        """(rows, d)."""
        return _read_only(self._contexts.view)

    @property
    def rewards(self) -> Array:
        """(rows,), NaN where none is in."""
        return _read_only(self._rewards())

    @property
    def arms(self) -> IntArray:
        """(rows,), −1 for logged samples."""
        return _read_only(self._arms.view)

    @property
    def versions(self) -> IntArray:
        """(rows,), −1 for logged samples."""
        return _read_only(self._versions.view)

    @property
    def propensities(self) -> Array:
        """(rows,): the probability with which the arm was chosen, NaN for logged samples."""
        return _read_only(self._known.view)[:, 0]

    @property
    def means(self) -> Array:
        """(rows,): the reward that was predicted, NaN for logged samples."""
        return _read_only(self._known.view)[:, 1]

    @property
    def bonuses(self) -> Array:
        """(rows,): the bonus of the chosen arm, NaN for logged samples."""
        return _read_only(self._known.view)[:, 2]

    @property
    def rounds(self) -> int:
        """How many decisions are on record."""
        return len(self) - self.logged

    @property
    def arrived(self) -> int:
        """How many rewards are in, logged ones included."""
        return len(self._arrivals)

    @property
    def missing(self) -> int:
        """How many rounds have no reward yet."""
        return len(self) - self.arrived

    @property
    def counted(self) -> int:
        """How many samples an update learns from."""
        return self.arrived if self.forgetting is None else len(self.samples().rows)

    def observed(self) -> tuple[Array, Array]:
        """Contexts and rewards of the rows that count and whose rewards are in."""
        samples = self.samples()
        return samples.contexts, samples.rewards

    def samples(self) -> Samples:
        """The same with all that training wants to know."""
        rewards, weights = self._rewards(), self._weights()
        if not self.missing and weights is None:
            return Samples(np.arange(len(self)), self._contexts.view, rewards, None)
        inside = ~np.isnan(rewards)
        if weights is not None:
            inside &= weights > 0
            weights = weights[inside]
        return Samples(np.flatnonzero(inside), self._contexts.view[inside], rewards[inside], weights)

    def remembered(self) -> tuple[Array, Array | None]:
        """Contexts and weights of all rows that count, whether their rewards are in or not."""
        weights = self._weights()
        if weights is None:
            return self._contexts.view, None
        return self._contexts.view[weights > 0], weights[weights > 0]

    def arrived_since(self, count: int) -> tuple[Array, Array]:
        """Contexts and rewards of the rows whose rewards came after the first `count` rewards."""
        rows = self._arrivals.view[count:]
        order = np.argsort(rows)
        return self._contexts.view[rows[order]], self._values.view[count:][order]

    def contexts_since(self, round: int) -> Array:
        """(n, d): contexts of the rounds after this one."""
        return self._contexts.view[self.logged + round :]

    def arrivals_between(self, start: int, end: int) -> tuple[IntArray, Array]:
        """Rows and values of the rewards that came after the first `start` and among the first `end`."""
        return self._arrivals.view[start:end], self._values.view[start:end]

    def lives_before(self, row: int) -> tuple[tuple[int, str], ...]:
        """The lives that decided rows before this one, each with its first row."""
        return tuple(life for life in self._lives if life[0] < row)

    def for_learning(self) -> History:
        """Contexts and rewards alone, for a learner: arms, versions, means and bonuses are left out."""
        other = shallow(self)
        other._arms, other._versions = GrowableArray(None, np.int64), GrowableArray(None, np.int64)
        other._known, other._lives = GrowableArray(3), ()
        return other

    def _rewards(self) -> Array:
        rewards = np.full(len(self), np.nan)
        rewards[self._arrivals.view] = self._values.view
        return rewards

    def _weights(self) -> Array | None:
        if self.forgetting is None:
            return None
        return self.forgetting.weights(np.arange(len(self) - 1.0, -1.0, -1.0))

    def _fork(self, rows: tuple[str, ...]) -> History:
        """A copy in which these rows may grow."""
        other = shallow(self)
        for name in rows:
            setattr(other, name, getattr(self, name).fork())
        return other

    # --- growing

    def with_log(self, contexts: Array, rewards: Array) -> History:
        """The history that starts with these logged samples."""
        none, unknown = np.full(len(rewards), LOGGED), np.full((len(rewards), 3), np.nan)
        other = self._fork(_DECIDED + _TOLD)
        other._append(contexts, none, none, unknown)
        other._tell(np.arange(len(rewards)), rewards)
        other.logged = len(rewards)
        return other

    def with_rounds(self, contexts: Array, arms: IntArray, version: int, known: Array, life: str) -> History:
        """The history with decisions whose rewards are to come; `known` is (n, 3): propensity, mean, bonus."""
        other = self._fork(_DECIDED)
        if not self._lives or self._lives[-1][1] != life:
            other._lives = (*self._lives, (len(self), life))
        other._append(contexts, arms, np.full(len(arms), version), known)
        return other

    def with_rewards(self, rounds: Any, rewards: Any) -> History:
        """The history with the rewards of the given rounds: all of them, or none if one is wrong."""
        rows = self._rows_of(read_whole(rounds, "rounds", UnknownRound))
        return self._with_rewards(rows, rewards)

    def with_rewards_of(self, decision: Decision, rewards: Any) -> History:
        """The same for a decision, which must be one of this history."""
        rows = self._rows_of(read_whole(decision.round, "rounds", UnknownRound), decision.life)
        arms = read_whole(decision.arm, "arm of a decision", WrongDecision)
        versions = read_whole(decision.version, "version of a decision", WrongDecision)
        means = means_of(decision, arms)
        if not len(rows) == len(arms) == len(versions) == len(means):
            raise WrongDecision(
                "a decision must have one arm, one version and the means of all arms for each of its rounds; got "
                f"{len(rows)} rounds, {len(arms)} arms, {len(versions)} versions and means of shape "
                f"{np.shape(decision.means)}."
            )
        made = self._known.view[rows, 1]
        # A file of version 0.1 may lack the means.
        same = np.isnan(made) | (np.abs(means - made) <= SAME_MEAN * np.maximum(np.abs(made), np.abs(means)))
        same &= (arms == self._arms.view[rows]) & (versions == self._versions.view[rows])
        if not same.all():
            i = int(np.flatnonzero(~same)[0])
            number = int(rows[i]) - self.logged + 1
            raise WrongDecision(
                f"a reward must belong to a decision of this policy: its round {number} chose arm "
                f"{self._arms.view[rows[i]]} under version {self._versions.view[rows[i]]} with mean {made[i]:.6g}, and "
                f"the given decision chose arm {arms[i]} under version {versions[i]} with mean {means[i]:.6g}. Give "
                "the decision to the policy that made it."
            )
        return self._with_rewards(rows, rewards)

    def with_rewards_by_id(self, ids: Any, rewards: Any) -> History:
        """The same for decision ids, whose lives and rounds must be those of this history."""
        parts = parts_of(ids)
        numbers, rows = np.array([number for _, number in parts], np.int64), np.empty(len(parts), np.int64)
        for life in dict.fromkeys(life for life, _ in parts):
            here = np.array([own == life for own, _ in parts])
            rows[here] = self._rows_of(numbers[here], life)
        return self._with_rewards(rows, rewards)

    def _rows_of(self, numbers: IntArray, life: str = "") -> IntArray:
        """The rows of round numbers, which the given life of the policy must have decided; "" is not checked."""
        outside = (numbers < 1) | (numbers > self.rounds)
        if outside.any():
            lost = f" {LOST}" if life else ""  # a decision of this very life would be on record
            raise UnknownRound(
                f"a reward must belong to a decided round, 1 … {self.rounds}; got round {numbers[outside][0]}.{lost}"
            )
        rows = numbers + (self.logged - 1)
        if life:
            # Rows before the first known life came from a file of version 0.1, whose decisions have none.
            starts = [row for row, _ in self._lives]
            foreign = np.array([True, *(known != life for _, known in self._lives)])
            wrong = foreign[np.searchsorted(starts, rows, side="right")]
            if wrong.any():
                raise WrongDecision(
                    "a reward must belong to a decision that this policy has on record; the one given for round "
                    f"{numbers[wrong][0]} is another. {LOST}"
                )
        return rows

    def _with_rewards(self, rows: IntArray, rewards: Any) -> History:
        values = read_rewards(rewards, len(rows))
        fresh = newly_told(self._known_rewards(rows), rows, rows - self.logged + 1, values)
        if not fresh.any():
            return self
        other = self._fork(_TOLD)
        other._tell(rows[fresh], values[fresh])
        return other

    def _known_rewards(self, rows: IntArray) -> Array:
        """(n,): the rewards of these rows, NaN where none is in."""
        if not self.arrived:
            return np.full(len(rows), np.nan)
        place = np.clip(self._place.view[rows], 0, self.arrived - 1)
        return np.where(self._arrivals.view[place] == rows, self._values.view[place], np.nan)

    def _append(self, contexts: Array, arms: IntArray, versions: IntArray, known: Array) -> None:
        self._known.append(known)
        self._contexts.append(contexts)
        self._arms.append(arms)
        self._versions.append(versions)
        self._place.append(np.zeros(len(arms), np.int64))

    def _tell(self, rows: IntArray, values: Array) -> None:
        self._place.view[rows] = np.arange(len(self._arrivals), len(self._arrivals) + len(rows))
        self._arrivals.append(rows)
        self._values.append(values)

    # --- saving

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Numbers and arrays, for `restored`."""
        arrays = {"contexts": self.contexts, "rewards": self.rewards, "arms": self.arms, "versions": self.versions}
        arrays |= {"arrivals": _read_only(self._arrivals.view), "propensities": self.propensities}
        arrays |= {"means": self.means, "bonuses": self.bonuses}
        return {"logged": self.logged, "lives": [list(life) for life in self._lives]}, arrays

    def restored(self, saved: Fields) -> History:
        """The saved history; this one is empty."""
        with saved:
            rewards = saved.array("rewards", (None,), missing=True)
            rows = len(rewards)
            contexts = saved.array("contexts", (rows, self._contexts.view.shape[1]))
            other = self._fork(_DECIDED + _TOLD)
            other.logged = saved.whole("logged", most=rows)
            arms = saved.array("arms", (rows,), "int", least=LOGGED)
            versions = saved.array("versions", (rows,), "int", least=LOGGED)
            for name, column in (("arms", arms), ("versions", versions)):
                alone = bool((column[: other.logged] == LOGGED).all() and (column[other.logged :] != LOGGED).all())
                saved.require(alone, f"{name} must be {LOGGED} in the {other.logged} logged rows, and only there")
            other._append(contexts, arms, versions, read_known(saved, rows, other.logged))
            arrivals = read_arrivals(saved, rewards, other.logged)
            other._tell(arrivals, rewards[arrivals])
            other._lives = read_lives(saved, other.logged, rows)
        return other


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = array[:]
    view.flags.writeable = False
    return view
