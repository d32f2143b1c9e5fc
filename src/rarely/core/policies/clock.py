"""Where a policy stands in its schedule: which version decides, since when, and whether its batch has ended."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rarely.core.saving.fields import CLOSE, Fields
from rarely.core.schedules import FAR, Budget, Schedule
from rarely.core.types import Array


@dataclass(frozen=True, slots=True)
class BatchClock:
    """The version in use and its batch: a value, of which every round and update makes the next."""

    budget: Budget
    version: int = 0
    due: bool = False
    """Whether the batch has ended; stays so until the next update."""
    base_round: int = 0
    """Rounds decided before the batch."""
    base_log_det: float = 0.0
    """log det Z − log det λI when the batch began."""
    rescues: bool = False
    """Whether a trigger whose log det saturates ends the first batch anyway."""

    @property
    def spent(self) -> bool:
        """Whether no version may follow the one in use."""
        return self.budget.spent(self.version)

    @property
    def versions_left(self) -> int | None:
        """Versions that may follow the one in use; None where there is no limit."""
        batches = self.budget.batches
        return None if batches is None else max(0, batches - 1 - self.version)

    def extended(self, extra: int) -> BatchClock:
        """The clock with so many versions added to the budget in all."""
        return replace(self, budget=self.budget.extended(extra))

    @property
    def _batch(self) -> Schedule:
        """The schedule of the batch under way."""
        batch = self.budget.in_batch(self.version, self.base_round, self.base_log_det)
        return batch.rescued() if self.rescues and not self.version else batch

    def first_due(self, round: int, log_dets: Array) -> int | None:
        """The index of the first of the next rounds with which the batch ends, if any."""
        return None if self.spent else self._batch.first_due(round, log_dets - self.base_log_det)

    def lookahead(self, round: int, log_det: float) -> int:
        """How many more rounds the batch is expected to last, at least 1."""
        if self.spent:
            return FAR
        return self._batch.lookahead(round, log_det - self.base_log_det, round - self.base_round)

    def explain(self, round: int, log_det: float) -> str:
        """Why the batch has ended; "" where it has not."""
        return self._batch.explain(round, log_det - self.base_log_det) if self.due else ""

    @property
    def plan(self) -> str:
        """How many updates may follow, and when the next is planned."""
        if self.spent:
            return "this was the last update"
        left = "" if self.versions_left is None else f"{self.versions_left} updates are left"
        return ", ".join(filter(None, (left, self._batch.ahead(self.base_round)))) or "updates have no limit"

    def ended(self) -> BatchClock:
        """The clock after the batch's last round."""
        return BatchClock(self.budget, self.version, True, self.base_round, self.base_log_det, self.rescues)

    def restarted(self, round: int, log_det: float, version: int) -> BatchClock:
        """The clock at the start of a batch of the given version."""
        return BatchClock(self.budget, version, False, round, log_det, self.rescues)

    def rebased(self, shift: float) -> BatchClock:
        """The clock whose log dets are those of another form of Z, which differ by so much at the batch's start."""
        return replace(self, base_log_det=self.base_log_det + shift)

    def replayed(self, round: int, log_det: float) -> BatchClock:
        """The clock of a batch that began at its base and stands at this round and log det by now."""
        rounds = round - self.base_round
        if not rounds:
            return self
        # log det grows from round to round, and schedules ask for no less of it later: the last one tells.
        log_dets = np.full(rounds, self.base_log_det)
        log_dets[-1] = log_det
        return self if self.first_due(self.base_round, log_dets) is None else self.ended()

    def rounds_ahead(self, round: int, version: int) -> int:
        """Rounds that a version's batch is known, or on a budget expected, to last at least; 0 if unknown."""
        horizon, batches = self.budget.horizon, self.budget.batches
        left = FAR if horizon is None else max(0, horizon - round)
        even = 0 if horizon is None or batches is None else horizon // batches
        if self.budget.spent(version):
            expected = left
        elif self.budget.on_demand:
            expected = min(left, even)
        else:
            batch = self.budget.in_batch(version, round, 0.0)
            expected = min(left, max(batch.lookahead(round, 0.0, 0), even))
        # No end in sight is not an endless batch: a trial of 300 rounds may be over with its last update.
        return 0 if expected >= FAR // 2 else expected

    def restored(self, saved: Fields, rounds: int, extra: int) -> BatchClock:
        """The saved clock of a policy that has decided so many rounds; this one has not started."""
        budget = self.budget.extended(extra) if extra else self.budget
        batches = budget.batches
        return BatchClock(
            budget,
            saved.whole("version", most=None if batches is None else batches - 1),
            saved.flag("due"),
            saved.whole("base_round", most=rounds),
            saved.number("base_log_det"),
            self.rescues,
        )

    def due_bounds(self, round: int, log_det: float, highest: float) -> tuple[bool, bool]:
        """Whether the batch must, and whether it may, have ended by this round, from log det now and at its highest."""
        rounds, slack = round - self.base_round, CLOSE * (1 + abs(log_det))
        late, early = np.full(rounds, self.base_log_det), np.full(rounds, highest + slack)
        late[-1:] = log_det - slack
        # A trigger fires when log det has grown much, and in its first batch also when it has not grown at all.
        ended = [self.first_due(self.base_round, log_dets) is not None for log_dets in (late, early)]
        return all(ended), any(ended)
