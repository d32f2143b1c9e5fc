"""How long the cells that are left will take: what such cells took here, or a formula until that is known."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from rarely.comparison.cells import Cell

Kind = tuple[str, str, int | None]
SELECTING, TRAINING = 1.5e-3, 4e-5
"""Seconds a round, and seconds an update and a round, of a neural policy on some machine: only ratios matter."""


def expected(cell: Cell) -> float:
    """About what a cell takes, in seconds of no machine in particular."""
    if cell.policy.startswith(("uniform", "lin")):
        return SELECTING * cell.rounds / 2
    return SELECTING * cell.rounds + TRAINING * cell.rounds * (cell.batches or cell.rounds)


def kind(cell: Cell) -> Kind:
    """Cells of one kind differ in their seed alone, and take about as long."""
    return cell.problem, cell.policy, cell.batches


class Pace:
    """What is left of some cells, from what the finished ones took."""

    def __init__(self, cells: Iterable[Cell], jobs: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self._lock = threading.Lock()  # one thread plays, another tells
        self._left = {cell.id: cell for cell in cells}
        self._jobs, self._clock, self._start = jobs, clock, clock()
        self._taken: dict[Kind, list[float]] = {}
        self._seconds = self._expected = 0.0

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._start

    def finished(self, cell: Cell, wall: float | None) -> None:
        """Note a cell that is done, with its seconds by the clock; None where it failed."""
        with self._lock:
            del self._left[cell.id]
            if wall is not None:
                self._taken.setdefault(kind(cell), []).append(wall)
                self._seconds += wall
                self._expected += expected(cell)

    def seconds_left(self) -> float | None:
        """How long the rest will take; None before the first cell is done."""
        with self._lock:
            if not self._taken:
                return None
            return sum(map(self._cell, self._left.values())) / max(1, min(self._jobs, len(self._left)))

    def _cell(self, cell: Cell) -> float:
        if taken := self._taken.get(kind(cell)):
            return sum(taken) / len(taken)
        return expected(cell) * self._seconds / self._expected
