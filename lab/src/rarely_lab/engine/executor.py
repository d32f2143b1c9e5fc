"""Where cells are played: in this process, or side by side in processes with one BLAS thread each.

An executor is called with cells and yields results as they come, in any order. `RayExecutor`, in
`rarely_lab.engine.ray_executor`, is the third.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rarely.runs.processes import side_by_side
from rarely_lab.engine.cell import Cell, Result, play_cell

Executor = Callable[[Sequence[Cell]], Iterator[Result]]
"""Plays the cells, and yields a result for each as it ends."""


@dataclass(frozen=True)
class SerialExecutor:
    """This process, one cell after the other."""

    def __call__(self, cells: Sequence[Cell]) -> Iterator[Result]:
        return map(play_cell, cells)


@dataclass(frozen=True)
class LokyExecutor:
    """Processes on this machine, each with one BLAS thread."""

    jobs: int

    def __call__(self, cells: Sequence[Cell]) -> Iterator[Result]:
        from loky.process_executor import BrokenProcessPool

        left = {cell.id: cell for cell in cells}
        while left:
            try:
                for result in side_by_side(play_cell, list(left.values()), self.jobs):
                    del left[result.id]
                    yield result
            except BrokenProcessPool:
                # A process was killed, for want of memory perhaps. The cells then in play are the first in the
                # queue: alone, each shows whether it was the one.
                for cell in list(left.values())[: self.jobs]:
                    del left[cell.id]
                    yield _play_alone(cell)


def executor_of(jobs: int | None) -> Executor:
    """Return processes, or this one for None: its BLAS may have many threads."""
    return SerialExecutor() if jobs is None else LokyExecutor(jobs)


def _play_alone(cell: Cell) -> Result:
    from loky.process_executor import BrokenProcessPool

    try:
        return next(side_by_side(play_cell, [cell], 1))
    except BrokenProcessPool:
        return Result(cell.id, None, "the process that played it was killed; is there enough memory?")
