"""What every schedule promises."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rarely import Budget, Schedule
from rarely.extend import Array, schedule_from
from rarely.testing.promises import check_all, ensure, ensure_equal, names_of

MANY_ROUNDS = 150
"""Rounds over which a schedule is followed."""


def check_schedule(make: Callable[[], Schedule], *, seed: int = 0, examples: int = 5, only: str | None = None) -> None:
    """Check that a schedule keeps its promises; raise `AssertionError` for a broken one.

    Parameters
    ----------
    make
        Returns the schedule, the same at every call.
    seed, examples, only
        From which the rounds are drawn, how often, and one of `SCHEDULE_PROMISES`; None checks all of them.

    Examples
    --------
    >>> from rarely import Paced
    >>> from rarely.testing import check_schedule
    >>> check_schedule(lambda: Paced(horizon=100, batches=7))
    """
    for example in range(seed, seed + examples):
        check_all(_Promises(make, example), repr(make()), only, f" (seed={example})")


@dataclass(frozen=True)
class _Promises:
    """A way to make a schedule, and rounds that are drawn for it."""

    make: Callable[[], Schedule]
    seed: int

    def _generator(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)

    def _blocks(self) -> list[tuple[int, Array]]:
        """Return rounds before a block, and growth inside it."""
        rng = self._generator()
        return [
            (int(rng.integers(0, 120)), np.cumsum(rng.uniform(0, scale, int(rng.integers(1, 31)))))
            for scale in (0.0, 0.01, 0.1, 0.5, 2.0)
        ]

    def is_a_value(self) -> None:
        """A schedule is a value: what it is asked changes nothing, and equal schedules give equal answers."""
        one, other = self.make(), self.make()
        ensure(isinstance(one, Schedule), f"make() must return a Schedule; got {one!r}")
        ensure_equal(one, other, "a second make()")
        for round, growth in self._blocks():
            answers = [(each.first_due(round, growth), each.lookahead(round, 0.5, 3)) for each in (one, one, other)]
            ensure(answers[0] == answers[1] == answers[2], f"round {round}: three answers differ, {answers}")
        ensure_equal(one, other, "the schedule after it was asked")

    def batches_and_horizon_are_counts(self) -> None:
        """`batches` and `horizon` are positive whole numbers, or None."""
        schedule = self.make()
        for name in ("batches", "horizon"):
            count = getattr(schedule, name)
            ensure(count is None or (isinstance(count, int) and count >= 1), f"{name} is {count!r}")

    def describe_rebuilds_it(self) -> None:
        """`describe` gives JSON from which an equal schedule can be made."""
        schedule = self.make()
        described = json.loads(json.dumps(schedule.describe()))
        ensure_equal(schedule_from(described), schedule, "the schedule made of describe()")

    def no_rounds_end_no_batch(self) -> None:
        """`first_due` of no rounds is None."""
        for round, _ in self._blocks():
            ensure_equal(self.make().first_due(round, np.empty(0)), None, f"first_due({round}, no rounds)")

    def first_due_is_one_of_the_rounds(self) -> None:
        """`first_due` is the index of one of the rounds it was asked about, or None, and leaves their growth alone."""
        for round, growth in self._blocks():
            before = growth.copy()
            end = self.make().first_due(round, growth)
            inside = end is None or (isinstance(end, int) and 0 <= end < len(growth))
            ensure(inside, f"first_due({round}, {len(growth)} rounds) is {end!r}")
            ensure_equal(growth, before, "the growth that was given")

    def blocks_are_cut_where_single_rounds_are(self) -> None:
        """A block of rounds ends a batch with the same round as one round after another does."""
        schedule = self.make()
        for round, growth in self._blocks():
            singly = [schedule.first_due(round + i, growth[i : i + 1]) is not None for i in range(len(growth))]
            expected = singly.index(True) if any(singly) else None
            ensure_equal(schedule.first_due(round, growth), expected, f"first_due({round}, {growth.round(3).tolist()})")

    def looks_at_least_one_round_ahead(self) -> None:
        """`lookahead` is a whole number of at least 1."""
        rng = self._generator()
        for _ in range(20):
            asked = int(rng.integers(0, 151)), float(rng.uniform(0, 3)), int(rng.integers(0, 51))
            ahead = self.make().lookahead(*asked)
            ensure(isinstance(ahead, int) and ahead >= 1, f"lookahead{asked} is {ahead!r}")

    def lookahead_is_exact_where_growth_does_not_matter(self) -> None:
        """Where a batch ends with a round that is known beforehand, `lookahead` leads to that round."""
        schedule, asked = self.make(), range(0, 121, 7)
        growths = [np.full(MANY_ROUNDS, growth) for growth in (*range(0, 60, 4), 1e300)]
        ends = {round: {schedule.first_due(round, growth) for growth in growths} for round in asked}
        if any(len(rounds) > 1 for rounds in ends.values()):
            return  # growth matters
        for round, (end,) in ends.items():
            if end is not None:
                ensure_equal(schedule.lookahead(round, 0.0, 1), end + 1, f"lookahead({round}, 0.0, 1)")

    def a_batch_played_by_lookahead_ends_with_the_same_round(self) -> None:
        """Rounds that are asked about in pieces of `lookahead` end the batch with the same round as all at once."""
        log_dets = np.cumsum(self._generator().exponential(0.3, MANY_ROUNDS))
        schedule = self.make().in_batch(0, 0, 0.0)
        whole, start, end = schedule.first_due(0, log_dets), 0, None
        while start < MANY_ROUNDS and end is None:
            ahead = schedule.lookahead(start, float(log_dets[start - 1]) if start else 0.0, start)
            piece = schedule.first_due(start, log_dets[start : start + ahead])
            end, start = (None if piece is None else start + piece), start + ahead
        ensure_equal(end, whole, "the end of the first batch")

    def the_budget_is_kept(self) -> None:
        """A policy that makes every update at once never has more than `batches` versions."""
        budget, rng = Budget.around(self.make()), self._generator()
        for scale in (0.0, 0.05, 1.0, 20.0):
            log_dets = np.cumsum(rng.exponential(scale, MANY_ROUNDS)) if scale else np.zeros(MANY_ROUNDS)
            version, base, began = 0, 0.0, 0
            for round in range(MANY_ROUNDS):
                batch = budget.in_batch(version, began, base)
                growth = log_dets[round : round + 1] - base
                if not budget.spent(version) and batch.first_due(round, growth) is not None:
                    version, base, began = version + 1, float(log_dets[round]), round + 1
            most = budget.batches
            ensure(most is None or version < most, f"{version + 1} versions with a budget of {most}")

    def explains_itself_in_words(self) -> None:
        """`explain` and `ahead` give text, and `in_batch` and `rescued` give schedules."""
        schedule = self.make()
        ensure(isinstance(schedule.explain(5, 1.0), str) and schedule.explain(5, 1.0), "explain(5, 1.0) says nothing")
        ensure(isinstance(schedule.ahead(5), str), f"ahead(5) is {schedule.ahead(5)!r}")
        for batch in (schedule.in_batch(1, 5, 2.0), schedule.rescued()):
            ensure(isinstance(batch, Schedule), f"a batch's schedule is {batch!r}")


SCHEDULE_PROMISES = names_of(_Promises)
"""The names of the promises that `check_schedule` checks."""
