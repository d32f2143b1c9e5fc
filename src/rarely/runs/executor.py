"""Where cells are played: in this process, or side by side in processes with one BLAS thread each.

An executor is called with cells and yields results as they come, in any order. `RayExecutor`, in
`rarely.runs.ray_executor`, is the third.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from typing import TypeVar

from rarely.runs.cell import Cell, Result, play_cell

Item = TypeVar("Item")
Done = TypeVar("Done")
Executor = Callable[[Sequence[Cell]], Iterator[Result]]
"""Plays the cells, and yields a result for each as it ends."""
ONE_THREAD = {name: "1" for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")}
"""A process for each core, a thread for each process: BLAS threads that wait for each other slow down all of them."""


@dataclass(frozen=True)
class SerialExecutor:
    """This process, one cell after the other."""

    def __call__(self, cells: Sequence[Cell]) -> Iterator[Result]:
        return map(play_cell, cells)


@dataclass(frozen=True)
class LokyExecutor:
    """Processes on this machine, each with one BLAS thread. Needs loky, of the extra [lab]."""

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


def side_by_side(work: Callable[[Item], Done], items: Sequence[Item], jobs: int) -> Iterator[Done]:
    """Yield the work on each item as it ends, each in a process with one BLAS thread."""
    from loky import ProcessPoolExecutor

    executor = ProcessPoolExecutor(
        max_workers=min(jobs, len(items)), env=ONE_THREAD, initializer=_end_with, initargs=(os.getpid(),)
    )
    try:
        for future in as_completed([executor.submit(work, item) for item in items]):
            yield future.result()
    finally:
        executor.shutdown(kill_workers=True)


def _play_alone(cell: Cell) -> Result:
    from loky.process_executor import BrokenProcessPool

    try:
        return next(side_by_side(play_cell, [cell], 1))
    except BrokenProcessPool:
        return Result(cell.id, None, "the process that played it was killed; is there enough memory?")


def _end_with(parent: int) -> None:
    """End this process when its parent is gone, and leave Ctrl-C to the parent: a killed run must not go on."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
