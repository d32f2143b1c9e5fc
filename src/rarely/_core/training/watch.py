"""Watching a training from outside: a callback that hears how far it is, and a budget of seconds.

A loop calls `step()` after each part of the work; the callback gets a fraction that never falls, and may raise, which
ends the update and changes nothing. A descent asks `over()` between stretches of steps. What precedes the first
stretch, such as the curvature, and the first stretch itself take place in any case. A budget that is not used up
changes no number.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable

from rarely._core.errors import check_positive
from rarely._core.progress import Bar, Progress, read_progress

TRAINED = 0.9  # the fraction at which training has ended
USUAL_STEPS = 20  # progress steps of a training; how often one is repeated with a smaller step is not known in advance
STRETCH = 10  # descent steps between two looks at the clock
clock: Callable[[], float] = time.monotonic  # seconds; tests replace it


class Watch:
    """A progress callback and a budget of seconds, both optional, for one training.

    >>> heard = []
    >>> watch = Watch(lambda fraction, phase: heard.append((round(fraction, 3), phase)))
    >>> watch.step()
    >>> heard, watch.over(), watch.early
    ([(0.044, 'training')], False, '')
    """

    def __init__(self, progress: Progress = None, seconds: float | None = None) -> None:
        heard = None if progress is None else read_progress(progress, "a fraction and a phase")
        if seconds is not None:
            check_positive("seconds", seconds, "the time that a training may take, or None")
        self._progress = heard.fraction if isinstance(heard, Bar) else heard
        self._seconds, self._start = seconds, clock()
        self._steps = 0
        self._undone: list[str] = []

    @property
    def reports(self) -> bool:
        """Whether somebody listens to the progress."""
        return self._progress is not None

    def announce(self, fraction: float, phase: str) -> None:
        """Tell the callback that a phase begins."""
        if self._progress is not None:
            self._progress(fraction, phase)

    def step(self) -> None:
        """Tell the callback that a part of the training is done."""
        self._steps += 1
        self.announce(TRAINED * -math.expm1(-self._steps / USUAL_STEPS), "training")

    def over(self) -> bool:
        """Return whether the seconds are used up; never without a budget."""
        return self._seconds is not None and clock() - self._start >= self._seconds

    def stretches(self, steps: int) -> Iterable[int]:
        """Return the steps in parts between which the clock is read: one part without a budget.

        >>> [*Watch().stretches(25)], [*Watch(seconds=1.0).stretches(25)], [*Watch(seconds=1.0).stretches(0)]
        ([25], [10, 10, 5], [0])
        """
        if self._seconds is None or steps <= STRETCH:
            return [steps]
        return (min(STRETCH, steps - done) for done in range(0, steps, STRETCH))

    def leave_undone(self, what: str) -> None:
        """Record what is left out because the time is over."""
        self._undone.append(what)

    @property
    def early(self) -> str:
        """What the budget left undone, in one sentence; "" if nothing."""
        return f"seconds = {self._seconds:g} were over: {'; '.join(self._undone)}" if self._undone else ""


UNWATCHED = Watch()  # no callback and no budget
