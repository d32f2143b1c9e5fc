"""Watching a long call from outside: a callback, or a bar such as tqdm's, and for a training a budget of seconds.

A loop calls `step()` after each part of the work; the callback gets a fraction that never falls, and may raise, which
ends the update and changes nothing. A descent asks `over()` between stretches of steps. What precedes the first
stretch, such as the curvature, and the first stretch itself take place in any case. A budget that is not used up
changes no number.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from rarely._core.errors import InvalidInput, check_positive, shown

TRAINED = 0.9  # the fraction at which training has ended
USUAL_STEPS = 20  # progress steps of a training; how often one is repeated with a smaller step is not known in advance
STRETCH = 10  # descent steps between two looks at the clock
clock: Callable[[], float] = time.monotonic  # seconds; tests replace it
Progress = Any  # a function; a class of bars, of which each stage makes one; a bar, which the stages share; or None


class Bar:
    """A function of a stage, what is done of it and all of it, which moves a bar."""

    def __init__(self, given: Any) -> None:
        self._given, self._bar, self._stage, self._done = given, given, "", 0

    def __call__(self, stage: str, done: int, of: int) -> None:
        if stage != self._stage:
            self._stage, self._done = stage, 0
            if callable(self._given):
                self._bar = self._given(total=of, desc=stage)  # the bar before is closed when it is forgotten
            else:
                self._bar.reset(total=of)
        self._bar.update(done - self._done)
        self._done = done

    def fraction(self, fraction: float, phase: str) -> None:
        """Show the fraction of an update that is done, in per cent."""
        self("update", round(100 * fraction), 100)


def read_progress(progress: Progress, takes: str) -> Any:
    """Return the caller's function of what it `takes`, or a `Bar`; for None a function that does nothing."""
    kind = progress.func if isinstance(progress, partial) else progress
    if hasattr(kind, "update") and hasattr(kind, "close") and (isinstance(kind, type) or not callable(kind)):
        return Bar(progress)
    if progress is not None and not callable(progress):
        raise InvalidInput(f"progress must be a function of {takes}, a bar as tqdm's or None; got {shown(progress)}.")
    return progress or (lambda *so_far: None)


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
        """Return the steps in parts between which the clock is read: one part without a budget."""
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
