"""What was chosen, under which version, and the rewards that came back.

A history is a value: `with_rounds` and `with_rewards` return the next one and leave this one as it is, also
when they fail half-way. Decisions and arrivals are only ever appended, behind the length that this value knows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np

from rarely.core.errors import DroppedRound, UnknownRound, WrongDecision
from rarely.core.inputs.array_reader import read_whole
from rarely.core.inputs.decision_ids import LOST, check_decision, parts_of
from rarely.core.inputs.kept_rows import KeptRows
from rarely.core.inputs.recorded_rows import RecordedRows, read_only
from rarely.core.inputs.rewards import newly_told, read_rewards
from rarely.core.inputs.saved_history import read_arrivals, read_known, read_lives
from rarely.core.saving.fields import Fields
from rarely.core.types import Array, Arrays, BoolArray, Decision, IntArray

LOGGED = -1
"""The version, and the arm, of a row that came from a log."""
Late = Literal["raise", "count"]
"""What becomes of a reward whose round was dropped."""

_DECIDED = ("_contexts", "_arms", "_versions", "_known", "_place")
"""Rows that grow with decisions,"""
_TOLD = ("_arrivals", "_values")
"""and with rewards. What a reward writes into `_place` is without meaning until it has arrived."""


class History(RecordedRows):
    """Contexts of the chosen arms as they came, and their rewards; a reward that is not in is NaN."""

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
            other._lives = (*self._lives, (self.total, life))
        other._append(contexts, arms, np.full(len(arms), version), known)
        return other

    def with_rewards(self, rounds: Any, rewards: Any, *, late: Late = "raise") -> History:
        """The history with the rewards of the given rounds: all of them, or none if one is wrong."""
        numbers = read_whole(rounds, "rounds", UnknownRound)
        return self._with_rewards(numbers, *self._found(numbers), rewards, late)

    def with_rewards_of(self, decision: Decision, rewards: Any, *, late: Late = "raise") -> History:
        """The same for a decision, which must be one of this history."""
        numbers = read_whole(decision.round, "rounds", UnknownRound)
        places, found = self._found(numbers, decision.life)
        here = places[found]
        made = self._arms.view[here], self._versions.view[here], self._known.view[here, 1]
        check_decision(decision, numbers, found, *made)
        return self._with_rewards(numbers, places, found, rewards, late)

    def with_rewards_by_id(self, ids: Any, rewards: Any, *, late: Late = "raise") -> History:
        """The same for decision ids, whose lives and rounds must be those of this history."""
        parts = parts_of(ids)
        numbers = np.array([number for _, number in parts], np.int64)
        places, found = np.empty(len(parts), np.int64), np.empty(len(parts), np.bool_)
        for life in dict.fromkeys(life for life, _ in parts):
            here = np.array([own == life for own, _ in parts])
            places[here], found[here] = self._found(numbers[here], life)
        return self._with_rewards(numbers, places, found, rewards, late)

    def _found(self, numbers: IntArray, life: str = "") -> tuple[IntArray, BoolArray]:
        """Where rounds stand that the given life of the policy decided, and which are kept; "" is not checked."""
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
        return self._kept.positions(rows)

    def find(self, rounds: IntArray) -> tuple[IntArray, BoolArray]:
        """Where decided rounds stand in the columns, and which of them are kept."""
        return self._kept.positions(rounds + (self.logged - 1))

    def _with_rewards(self, numbers: IntArray, places: IntArray, found: BoolArray, rewards: Any, late: Late) -> History:
        values = read_rewards(rewards, len(numbers))
        if not found.all():
            if late == "raise":
                raise DroppedRound(
                    f"a reward must belong to a round that is still kept, but round {numbers[~found][0]} was dropped: "
                    "it is older than anything that the policy learns from. Leave its reward out, or use late='count'."
                )
            numbers, places, values = numbers[found], places[found], values[found]
        fresh = newly_told(self._known_rewards(places), places, numbers, values)
        gone = int(np.count_nonzero(~found))
        if not fresh.any() and not gone:
            return self
        other = self._fork(_TOLD)
        if gone:
            other._kept = replace(self._kept, late=self._kept.late + gone)
        other._tell(places[fresh], values[fresh])
        return other

    def _known_rewards(self, rows: IntArray) -> Array:
        """(n,): the rewards of these rows, NaN where none is in."""
        if not len(self._arrivals):
            return np.full(len(rows), np.nan)
        place = np.clip(self._place.view[rows], 0, len(self._arrivals) - 1)
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

    # --- dropping

    def without(self, gone: BoolArray) -> History:
        """The history without the rows at these positions; what they come to is counted."""
        if not gone.any():
            return self
        kept, rewards, rows = ~gone, self._rewards(), self.rows
        other = History(self._contexts.view.shape[1], self.forgetting)
        other.logged, other._lives = self.logged, self._lives
        other._append(
            self._contexts.view[kept], self._arms.view[kept], self._versions.view[kept], self._known.view[kept]
        )
        stays = kept[self._arrivals.view]
        moved = np.cumsum(kept) - 1
        other._tell(moved[self._arrivals.view[stays]], self._values.view[stays])
        start = max(self._kept.start, int(rows[gone][-1]) + 1)
        dropped, before = rewards[gone], self._kept
        told = dropped[~np.isnan(dropped)]
        last = np.flatnonzero(~stays)
        other._kept = KeptRows(
            start,
            rows[kept & (rows < start)],
            before.rewards.also(told),
            before.abandoned + len(dropped) - len(told),
            max(before.settled, int(last[-1]) + 1 + before.rewards.count if len(last) else 0),
            before.late,
        )
        return other

    # --- saving

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Numbers and arrays, for `restored`."""
        arrays = {"contexts": self.contexts, "rewards": self.rewards, "arms": self.arms, "versions": self.versions}
        arrays |= {"arrivals": read_only(self._arrivals.view), "propensities": self.propensities}
        arrays |= {"means": self.means, "bonuses": self.bonuses}
        arrays |= {"kept.old": self._kept.old}
        numbers = {"logged": self.logged, "lives": [list(life) for life in self._lives]}
        return numbers | {"kept": self._kept.describe()}, arrays

    def restored(self, saved: Fields) -> History:
        """The saved history; this one is empty."""
        with saved:
            rewards = saved.array("rewards", (None,), missing=True)
            rows = len(rewards)
            contexts = saved.array("contexts", (rows, self._contexts.view.shape[1]))
            other = self._fork(_DECIDED + _TOLD)
            other._kept = kept = KeptRows.restored(saved)
            saved.require(len(kept.old) <= rows, "kept.old must be among the rows")
            other.logged = saved.whole("logged", most=rows + kept.dropped)
            logged = int(np.count_nonzero(kept.rows(rows) < other.logged))
            arms = saved.array("arms", (rows,), "int", least=LOGGED)
            versions = saved.array("versions", (rows,), "int", least=LOGGED)
            for name, column in (("arms", arms), ("versions", versions)):
                alone = bool((column[:logged] == LOGGED).all() and (column[logged:] != LOGGED).all())
                saved.require(alone, f"{name} must be {LOGGED} in the {logged} logged rows, and only there")
            other._append(contexts, arms, versions, read_known(saved, rows, logged))
            arrivals = read_arrivals(saved, rewards, logged, in_order=not kept.start)
            other._tell(arrivals, rewards[arrivals])
            most = other.arrived
            saved.require(kept.settled <= most, f"kept.settled must be at most {most}, the rewards so far")
            other._lives = read_lives(saved, other.logged, rows + kept.dropped)
        return other
