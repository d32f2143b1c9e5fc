"""How far a run of cells is, and what files were refused, as the commands of the laboratory tell it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

from rarely.console import Shown, console, error_console, span
from rarely.runs.machine import cores
from rarely_lab.engine.cell import AnyCell, Cell, Executor, LocalExecutor, RayExecutor, Result, run_cells
from rarely_lab.engine.record import Record, Refusal, Store, group_of

Names = list[str] | None
File = Path | None
Replace = Annotated[bool, typer.Option("--replace", help="Remove records that do not fit, and play again.")]
NAMED_FILES = 20  # refused files named on the terminal; the report names all
PACE_SHARE, PACE_TIME = 0.1, 3.0
"""When the pace is known: after this share of the work, or this many times as long as until the first cell was done,
which is mostly the start of processes."""
Tell = Callable[[Record], str]
Predict = Callable[[Cell], float]


def say_refused(refused: Sequence[object], consequence: str) -> None:
    """Print how many records are refused, which, and why."""
    records = "1 record" if len(refused) == 1 else f"{len(refused)} records"
    error_console.print(f"[red]refused:[/red] {records}; {consequence}")
    for file in refused[:NAMED_FILES]:
        error_console.print(escape(f"  {file}"))
    if len(refused) > NAMED_FILES:
        error_console.print(f"  and {len(refused) - NAMED_FILES} more")


def executor_of(engine: str, jobs: int | None, address: str | None = None) -> Executor:
    """Return what plays cells, by the name of the engine."""
    if engine == "ray":
        return RayExecutor(jobs, address)
    if engine == "gpu":
        from rarely_lab.gpu.executor import GpuExecutor

        return GpuExecutor(jobs or cores(), say=console.print)
    return LocalExecutor(jobs or cores())


def play_cells(
    cells: Sequence[AnyCell], store: Store[Any], executor: Executor, what: str, replace: bool, tell: Tell | None = None
) -> list[Result]:
    """Play cells, show how far they are, and return the results of those that failed.

    `what` says what a cell is, and `tell`, where few are played, what came of one.
    """
    predict, at_once = getattr(executor, "work", None), getattr(executor, "at_once", 0)
    with ShownProgress(what, len(cells), tell, predict, at_once) as shown:
        failures = run_cells(cells, store, executor, replace=replace, started=shown.started, finished=shown.finished)
    for first, *others in shown.failed.values():
        if others:
            error_console.print(f"{len(others)} more failed as {first} did, the last of them {others[-1]}")
    if failures:
        error_console.print(f"{len(failures)} of {shown.all} cells failed; the same command tries them again.")
    return failures


class ShownProgress(Shown):
    """What a run of so many cells tells; its methods are the callbacks of `run_cells`. See `play_cells`.

    The time left is the work that is left, at the pace of the cells that are done. What a cell takes is what others of
    its policy, problem and number of rounds took here; where none of them is done yet, it is predicted, by `work`. An
    engine whose processes each play many cells at once, `at_once` processes, says what it will take in seconds: until
    those cells end together they show no pace.
    """

    def __init__(
        self, what: str, cells: int, tell: Tell | None = None, work: Predict | None = None, at_once: int = 0
    ) -> None:
        counts = TextColumn("{task.fields[done]} of {task.fields[all]} cells")
        super().__init__(counts, BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
        self._bar, self._what, self._tell_record = self._bars.add_task("", total=0.0, done=0, all=0), what, tell
        self._predict, self._at_once = work or (lambda cell: cell.work()), at_once
        self._works, self.failed = dict[str, float](), defaultdict[str, list[str]](list)
        """Predicted work by cell, and which cells failed by their errors."""
        self._left, self._predicted, self._measured = (defaultdict[str, float](float) for _ in range(3))
        """Predicted work that is left, and of what is done the prediction and the measured seconds, by kind."""
        self._work = self._seen = self._first = 0.0
        self.planned, self.all, self.done = cells, 0, 0

    def started(self, todo: Sequence[Cell], refused: Sequence[Refusal] = ()) -> None:
        if refused:
            say_refused(refused, "cells asked for are played again, and their old files renamed")
        self._works = {cell.id: self._predict(cell) for cell in todo}
        for name, work in self._works.items():
            self._left[group_of(name)] += work
        self._work, self._start, self.all = sum(self._works.values()), time.perf_counter(), len(todo)
        kept = f", {self.planned - len(todo)} on record already" if self.planned > len(todo) else ""
        console.print(f"{len(todo)} cells to play (a cell is {self._what}){kept}")
        self._bars.update(self._bar, total=self._work, all=self.all)

    def finished(self, result: Result) -> None:
        self.done += 1
        kind, work = group_of(result.id), self._works[result.id]
        self._left[kind] -= work
        if result.record is None:  # a failure tells nothing about the time
            self._work -= work
            if result.error not in self.failed:
                error_console.print(f"[red]failed:[/red] {escape(f'{result.id}: {result.error}')}")
            self.failed[result.error].append(result.id)
        else:
            if self._tell_record:
                console.print(self._tell_record(result.record), markup=False)
            self._seen = self.elapsed
            self._predicted[kind] += work
            self._measured[kind] += sum(result.record.data.get("seconds", {"": work}).values())
            self._first = self._first or self._seen
        worked, left = sum(self._predicted.values()), self.left()
        self._bars.update(self._bar, total=self._work, completed=worked, done=self.done, description=left)

    def left(self) -> str:
        worked, spent = sum(self._predicted.values()), sum(self._measured.values())
        of_all = spent / worked if worked and not self._at_once else 1.0  # the pace where none of a kind is done
        paces = {kind: self._measured[kind] / work for kind, work in self._predicted.items() if work}
        rest = sum(work * paces.get(kind, of_all) for kind, work in self._left.items())
        if self._at_once:
            seconds = (spent + rest) / self._at_once - self.elapsed
            return f"about {span(seconds)} left" if seconds > 0 else "it takes longer than foreseen"
        early = self._seen < PACE_TIME * self._first and worked < PACE_SHARE * self._work
        if early or not worked or not spent:
            return "the time left is not known yet"
        return f"about {span(max(0.0, self._seen * (spent + rest) / spent - self.elapsed))} left"

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        if self.done and not console.is_terminal:
            console.print(f"{self.done} of {self.all} cells in {span(self.elapsed)}")

    def line(self) -> str:
        if not self.all:
            return "reading records"
        return f"{self.done} of {self.all} cells after {span(self.elapsed)}; {self.left()}"
