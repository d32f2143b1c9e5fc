"""Play cells side by side and keep each one's record: resumable at any moment.

An engine plays cells somewhere and yields what came of each as it ends. The runner asks it for the cells
that have no record yet, and writes records as they come.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from loky.process_executor import BrokenProcessPool

from rarely.experiments.catalogue import policy_of, world_of
from rarely.experiments.config import Cell
from rarely.experiments.pace import measured_first
from rarely.experiments.records import Record, make_record
from rarely.experiments.store import Store
from rarely.simulation.folder_lock import only_here
from rarely.simulation.parallel import side_by_side
from rarely.simulation.play import play
from rarely.simulation.provenance import code_fingerprint, reset_peak_memory
from rarely.simulation.recorded_run import Refusal
from rarely.simulation.writing import make_folder
from rarely.worlds import Rounds, World


@dataclass(frozen=True)
class Result:
    """What came of a cell: its record, or why there is none."""

    id: str
    record: Record | None
    error: str = ""


class Engine(Protocol):
    """Where cells are played."""

    def __call__(self, cells: Sequence[Cell]) -> Iterator[Result]:
        """Results as they come, in any order."""


def play_cell(cell: Cell) -> Result:
    """Play one cell in this process; what goes wrong is told, and stops no other cell."""
    start = time.perf_counter()
    try:
        reset_peak_memory()
        world = world_of(cell)
        played = play(policy_of(cell, world), _rounds(world, cell.seed, cell.rounds))
        return Result(cell.id, make_record(cell, played, time.perf_counter() - start))
    except Exception as error:
        return Result(cell.id, None, f"{type(error).__name__}: {error}")


_LAST: list[tuple[World, int, int, Rounds]] = []


def _rounds(world: World, seed: int, count: int) -> Rounds:
    """All configurations of a run see the same rounds: they are drawn once for several."""
    if not _LAST or _LAST[0][0] is not world or _LAST[0][1:3] != (seed, count):
        _LAST[:] = [(world, seed, count, world.rounds(seed, count))]
    return _LAST[0][3]


@dataclass(frozen=True)
class LocalEngine:
    """Processes on this machine, each with one BLAS thread."""

    jobs: int

    def __call__(self, cells: Sequence[Cell]) -> Iterator[Result]:
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
                    yield _alone(cell)


def _alone(cell: Cell) -> Result:
    try:
        return next(side_by_side(play_cell, [cell], 1))
    except BrokenProcessPool:
        return Result(cell.id, None, "the process that played it was killed; is there enough memory?")


def reproduce(
    cells: Sequence[Cell],
    out: Path,
    engine: Engine,
    *,
    replace: bool = False,
    refused: Callable[[Sequence[Refusal]], None] = lambda files: None,
    started: Callable[[Sequence[Cell]], None] = lambda todo: None,
    finished: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """Play every cell that has no record in `out` yet, or one that is refused; what failed is returned.

    `refused` hears of files that are no record, or a changed one, `started` which cells are to be played, `finished`
    what came of each. One cell of every kind comes first, so that it is soon known how long all of them take.
    """
    make_folder(out)
    store, failures = Store(out), []
    with only_here(out):
        todo = measured_first(store.missing(cells, replace=replace, refused=refused))
        started(todo)
        for result in map(_of_this_code, engine(todo)):
            if result.record is not None:
                store.write(result.record)
            else:
                failures.append(result)
            finished(result)
    return failures


def _of_this_code(result: Result) -> Result:
    """A machine of a cluster may have another version installed: its numbers are not ours."""
    if result.record is None or result.record.data["code"] == code_fingerprint():
        return result
    return Result(result.id, None, "it was played by another version of the code; install the same everywhere")
