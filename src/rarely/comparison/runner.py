"""Play cells side by side and keep each one's record: resumable at any moment."""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from loky.process_executor import BrokenProcessPool

from rarely.comparison.cells import Cell, Comparison
from rarely.comparison.play import play
from rarely.comparison.problems import find_problem
from rarely.comparison.records import Record, make_record
from rarely.comparison.store import missing, write
from rarely.simulation.folder_lock import only_here
from rarely.simulation.parallel import side_by_side
from rarely.simulation.recorded_run import Refusal
from rarely.simulation.writing import make_folder
from rarely.worlds import Rounds


@dataclass(frozen=True)
class Result:
    """What came of a cell: its record, or why there is none."""

    cell: Cell
    record: Record | None
    error: str = ""


def play_cell(cell: Cell) -> Result:
    """Play one cell in this process; what goes wrong is told, and stops no other cell."""
    start = time.perf_counter()
    try:
        problem = cell.found_problem()
        batches = cell.batches or cell.rounds
        rounds = _rounds(cell.path or cell.problem, cell.label, cell.ignore, cell.seed, cell.rounds)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # budgets that end early and the like; the record has the updates
            contestant = cell.found_policy().make(problem.task(cell.rounds, batches, cell.seed))
            played = play(contestant, rounds, batches, problem.delays(cell.seed, cell.rounds))
        return Result(cell, make_record(cell, problem.family, rounds, played, time.perf_counter() - start))
    except Exception as error:
        return Result(cell, None, f"{type(error).__name__}: {error}{_place_of(error) if cell.source else ''}")


def _place_of(error: Exception) -> str:
    """The line that raised it, for those who wrote it."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"


@lru_cache(maxsize=1)
def _rounds(name: str, label: str | None, ignore: tuple[str, ...], seed: int, count: int) -> Rounds:
    """All policies of a run see the same rounds: they are drawn once for several."""
    return find_problem(name, label, ignore).rounds(seed, count)


def _engine(cells: Sequence[Cell], jobs: int) -> Iterator[Result]:
    """Processes on this machine; with one job this process."""
    if jobs == 1:
        yield from map(play_cell, cells)
        return
    left = {cell.id: cell for cell in cells}
    while left:
        try:
            for result in side_by_side(play_cell, list(left.values()), jobs):
                del left[result.cell.id]
                yield result
        except BrokenProcessPool:
            # The cells then in play are the first in the queue; one of them ended its process.
            for cell in list(left.values())[:jobs]:
                del left[cell.id]
                yield Result(
                    cell, None, "the process that played it, or one beside it, was killed; is there enough memory?"
                )


def compare(
    comparison: Comparison,
    out: str | Path,
    *,
    jobs: int = 1,
    replace: bool = False,
    planned: Callable[[Sequence[Cell], Sequence[Cell], Sequence[str], Sequence[Refusal]], None] = lambda *_: None,
    finished: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """Play every cell that has no record in `out` yet.

    Parameters
    ----------
    comparison
        What is asked for.
    out
        The folder for records.
    jobs
        Processes to play in.
    replace
        Whether to play again what other code has played.
    planned, finished
        Called with all cells, those to be played, why some problems or policies are skipped, and the files that are
        refused; and with what came of each cell.

    Returns
    -------
    list of Result
        The cells that failed.

    Examples
    --------
    >>> import tempfile
    >>> asked = Comparison(["needle"], ["linucb"], [5], seeds=1, rounds=30)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     failed = compare(asked, folder)
    >>> failed
    []
    """
    out = Path(out)
    cells, skipped = comparison.plan()
    make_folder(out)
    failures = []
    with only_here(out):
        todo, refused = missing(out, cells, replace=replace)
        planned(cells, todo, skipped, refused)
        for result in _engine(todo, jobs) if todo else ():
            if result.record is not None:
                write(out, result.record)
            else:
                failures.append(result)
            finished(result)
    return failures
