"""How long cells take: their size by a formula, and the seconds to each unit of it by the cells that are done.

The formula knows how cells of one group compare, and nothing of the machine. So one cell of every group is played
first, and what is left is worked out from what those took here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from rarely.experiments.config import Cell
from rarely.worlds import World


class Work(NamedTuple):
    """Deciding and training, in seconds; as the formula has them, in those of no machine in particular."""

    deciding: float
    training: float

    def plus(self, other: Work) -> Work:
        """Both together."""
        return Work(self.deciding + other.deciding, self.training + other.training)


NOTHING = Work(0.0, 0.0)
Group = tuple[str, str, str]
"""A problem, a reading of it, and a kind of policy: within a group the formula is off by about the same factor."""


def work(cell: Cell) -> Work:
    """About what a cell comes to. An adaptive schedule is taken to use all of its budget, so that it may be less."""
    rounds, problem, configuration = cell.rounds, cell.problem, cell.configuration
    deciding = 0.5e-3 * rounds
    if configuration.linear:
        return Work(deciding, 0.0)
    updates = min(configuration.batches or rounds, rounds)
    if configuration.log_ratio is not None and updates == rounds:
        # Without a budget log q decides: log det Z grows by about 2000 in such runs.
        updates = min(rounds, round(2000 / configuration.log_ratio))
    if cell.reading == "code":
        return Work(2 * deciding, updates * problem.steps * 6e-5)
    width = 10 if isinstance(problem.source, World) else 40
    return Work(2 * deciding, 2 * updates * rounds * problem.hidden * width * problem.steps / 25e9)


def cost(cell: Cell) -> float:
    """Its work in one number, for its place in the queue and its share of a progress bar."""
    return sum(work(cell))


def group(cell: Cell) -> Group:
    """What a cell's time is compared within."""
    configuration = cell.configuration
    own = configuration.kind in ("adaptive", "default")
    kind = "linear" if configuration.linear else configuration.kind if own else "trained"
    return cell.problem.name, cell.reading, kind


def measured_first(cells: Sequence[Cell]) -> list[Cell]:
    """The cells in their order, but first the cheapest of each group: it tells how long the others take."""
    cheapest: dict[Group, Cell] = {}
    for cell in cells:
        known = cheapest.setdefault(group(cell), cell)
        if cost(cell) < cost(known):
            cheapest[group(cell)] = cell
    first = sorted(cheapest.values(), key=cost)
    ids = {cell.id for cell in first}
    return [*first, *(cell for cell in cells if cell.id not in ids)]


class Pace:
    """What is left of some cells, from the time that the finished ones took."""

    def __init__(
        self, cells: Iterable[Cell], jobs: int | None = None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """`jobs` cells are played side by side; None where that is not known."""
        self._lock = threading.Lock()  # one thread plays, another tells
        self._left = {cell.id: cell for cell in cells}
        self._jobs, self._clock = jobs, clock
        self._predicted: dict[Group, Work] = {}
        self._taken: dict[Group, Work] = {}
        self._played = self._busy = 0.0
        self._start = self._seen = clock()

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._start

    @property
    def known(self) -> bool:
        """Whether a cell of every group that is left has been measured."""
        with self._lock:
            return all(group(cell) in self._taken for cell in self._left.values())

    def finished(self, cell: Cell, wall: Mapping[str, float] | None) -> None:
        """Note a cell that is done, with a record's times by the clock; None where it failed."""
        with self._lock:
            self._note(cell, wall)

    def _note(self, cell: Cell, wall: Mapping[str, float] | None) -> None:
        self._busy += self._busy_since()
        self._seen = self._clock()
        del self._left[cell.id]
        if wall is None:
            return
        own, predicted = group(cell), work(cell)
        # Without what a process does once, such as drawing the rounds of a run: the first cells have most of that.
        taken = Work(wall["selecting"], wall["training"])
        if not predicted.training:
            taken = Work(sum(taken), 0.0)
        self._played += wall["cell"]
        self._predicted[own] = self._predicted.get(own, NOTHING).plus(predicted)
        self._taken[own] = self._taken.get(own, NOTHING).plus(taken)

    def seconds_left(self) -> float | None:
        """How long the rest will take; None before the first cell is done."""
        with self._lock:
            return self._expected() if self._taken else None

    def _expected(self) -> float:
        expected = sorted(map(self._seconds, self._left.values()), reverse=True)
        at_once = self._at_once()
        # Of the cells under way some seconds are over, at most all that they are expected to take.
        under_way = min(max(0.0, self._busy + self._busy_since() - self._played), sum(expected[:at_once]))
        return (sum(expected) - under_way) / max(at_once, 1)

    def _at_once(self) -> int:
        jobs = self._jobs or max(1, round(self._played / max(self.elapsed, 1e-9)))
        return min(jobs, len(self._left))

    def _busy_since(self) -> float:
        """Seconds that cells were played side by side since the last one was done."""
        return (self._clock() - self._seen) * self._at_once()

    def _seconds(self, cell: Cell) -> float:
        """What a cell is expected to take: its group's pace, or before it is known that of all."""
        own, predicted = group(cell), work(cell)
        if own not in self._taken:
            taken, known = (sum(map(sum, works.values())) for works in (self._taken, self._predicted))
            return cost(cell) * taken / known
        taken_here, known_here = self._taken[own], self._predicted[own]
        seconds = predicted.deciding * taken_here.deciding / known_here.deciding
        if known_here.training:
            seconds += predicted.training * taken_here.training / known_here.training
        return seconds
