"""A budget of seconds for the training of one update.

Descents ask between stretches of steps whether the time is over. What comes before the first stretch, such as the
curvature, and the first stretch itself take place in any case. The trials by which a policy tunes itself may take
`TRIALS` of the budget, and the training of the version the rest. Without a budget nothing is asked, and with one that
is not used up every number is the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from rarely.core.errors import check_positive

TRIALS = 0.5
"""The part of a budget after which no trial goes on."""
STRETCH = 10
"""Steps of a descent between two looks at the clock."""
clock: Callable[[], float] = time.monotonic
"""Seconds; tests put another one here."""


class Deadline:
    """Seconds that a training may take, and what it left undone for them."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self._start = seconds, clock()
        self.undone: list[str] = []

    def over(self, share: float) -> bool:
        """Whether so much of it is used up."""
        return clock() - self._start >= share * self.seconds

    def describe(self) -> str:
        """What was left undone, in one sentence; "" where nothing was."""
        return f"seconds = {self.seconds:g} were over: {'; '.join(self.undone)}" if self.undone else ""


_DEADLINE: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


@contextmanager
def limited(seconds: float | None) -> Iterator[Deadline | None]:
    """Limit the training inside."""
    if seconds is None:
        yield None
        return
    check_positive("seconds", seconds, "the time that a training may take, or None")
    deadline = Deadline(float(seconds))
    token = _DEADLINE.set(deadline)
    try:
        yield deadline
    finally:
        _DEADLINE.reset(token)


def stretches(steps: int) -> list[int]:
    """Steps in parts between which the clock is asked: one part without a deadline.

    >>> stretches(25)
    [25]
    >>> with limited(1.0):
    ...     stretches(25), stretches(0)
    ([10, 10, 5], [0])
    """
    if _DEADLINE.get() is None or steps <= STRETCH:
        return [steps]
    return [min(STRETCH, steps - done) for done in range(0, steps, STRETCH)]


def over(share: float = 1.0) -> bool:
    """Whether so much of the seconds is used up; never without a deadline."""
    deadline = _DEADLINE.get()
    return deadline is not None and deadline.over(share)


def leave_undone(what: str) -> None:
    """Put on record what is left out because the time is over."""
    deadline = _DEADLINE.get()
    assert deadline is not None
    deadline.undone.append(what)
