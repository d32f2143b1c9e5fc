"""How long the cells that are left will take: their predicted work, at the pace of the cells that are done."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from rarely._runs.cell import Cell, Result


class Pace:
    """The time that is left for some cells, from the time that the finished ones took on this machine."""

    def __init__(
        self, cells: Iterable[Cell], jobs: int | None = None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """`jobs` cells are played side by side; None where that is not known."""
        self._lock = threading.Lock()  # one thread plays, another one prints
        self._left = {cell.id: cell.work() for cell in cells}
        self._jobs, self._clock = jobs, clock
        self._predicted = self._taken = 0.0
        self._start = self._seen = clock()
        self.all, self.done = len(self._left), 0

    @property
    def elapsed(self) -> float:
        return self._clock() - self._start

    def finished(self, result: Result) -> None:
        """Note a cell that is done, or that failed."""
        with self._lock:
            work = self._left.pop(result.id)
            self.done += 1
            self._seen = self._clock()
            if result.record is not None:
                self._predicted += work
                self._taken += result.seconds

    def seconds_left(self) -> float | None:
        """Return how long the rest will take; None before the first cell is done."""
        with self._lock:
            if not self._predicted:
                return None
            jobs = self._jobs or max(1, round(self._taken / max(self.elapsed, 1e-9)))
            expected = sum(self._left.values()) * self._taken / self._predicted
            since = self._clock() - self._seen
            return max(0.0, expected / max(1, min(jobs, len(self._left))) - since)
