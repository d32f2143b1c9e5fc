"""How far a long call is: a function of the caller's, or a bar such as tqdm's, which need not be installed."""

from __future__ import annotations

from functools import partial
from typing import Any

from rarely._core.errors import InvalidInput, shown

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
