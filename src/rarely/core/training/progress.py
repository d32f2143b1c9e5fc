"""How far an update is: told to a callback, from wherever the time is spent.

Loops call `step()`. Without a callback that is next to nothing; with one, the callback gets a fraction that never
falls, and may raise, which ends the update and changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Progress = Callable[[float, str], object]
"""Called with a fraction from 0 to 1 and a phase: "training", "covariance" or "done"."""
TRAINED = 0.9
"""The fraction at which training has ended."""
USUAL = 20
"""Steps of a usual training: nobody knows beforehand how many descents a tuned one takes."""


class Watch:
    """Turns steps into fractions."""

    def __init__(self, callback: Progress) -> None:
        self._callback, self._steps = callback, 0

    def step(self) -> None:
        """A part of the training is done."""
        self._steps += 1
        self._callback(TRAINED * -math.expm1(-self._steps / USUAL), "training")

    def begin(self, fraction: float, phase: str) -> None:
        """A phase begins."""
        self._callback(fraction, phase)


_WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watching(callback: Progress | None) -> Iterator[Callable[[float, str], None]]:
    """Tell the callback about the steps inside; gives a function that announces a phase."""
    if callback is None:
        yield lambda fraction, phase: None
        return
    watch = Watch(callback)
    token = _WATCH.set(watch)
    try:
        yield watch.begin
    finally:
        _WATCH.reset(token)


def watched() -> bool:
    """Whether anybody asks how far it is."""
    return _WATCH.get() is not None


def step() -> None:
    """Note that a part of the training is done."""
    watch = _WATCH.get()
    if watch is not None:
        watch.step()
