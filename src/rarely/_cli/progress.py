"""How far a command is, by cells or by stages: bars on a terminal, lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from rarely._cli.console import console, error_console, say_refused, span, telling
from rarely._runs.cell import Cell, Result
from rarely._runs.record import Refusal


class ShownProgress:
    """What a run of cells tells; its methods are the callbacks of `run_cells`.

    The time left is the predicted work that is left, at the pace of the cells that are done on this machine.
    """

    def __init__(self, bars: Progress, what: str) -> None:
        self._bars, self._bar, self._what = bars, bars.add_task("", total=0.0, done=0, all=0), what
        self._works = dict[str, float]()
        self._work = self._worked = self._seen = 0.0
        self._start = time.perf_counter()
        self.all = self.done = 0

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self._start

    def started(self, todo: Sequence[Cell], kept: int, refused: Sequence[Refusal] = ()) -> None:
        if refused:
            say_refused(refused, "cells asked for are played again, and their old files renamed")
        self._works = {cell.id: cell.work() for cell in todo}
        self._work, self._start, self.all = sum(self._works.values()), time.perf_counter(), len(todo)
        recorded = f", {kept} on record already" if kept else ""
        console.print(f"{len(todo)} cells to play (a cell is {self._what}){recorded}")
        self._bars.update(self._bar, total=self._work, all=self.all)

    def finished(self, result: Result) -> None:
        self.done += 1
        if result.record is None:  # a failure tells nothing
            self._work -= self._works[result.id]
        else:
            self._worked, self._seen = self._worked + self._works[result.id], self.elapsed
        left = self.left()
        self._bars.update(self._bar, total=self._work, completed=self._worked, done=self.done, description=left)

    def left(self) -> str:
        if not self._worked:
            return "the time left is known when the first are done"
        return f"about {span(max(0.0, self._seen * self._work / self._worked - self.elapsed))} left"

    def say_failures(self, failures: Sequence[Result]) -> None:
        """Name the cells that failed, if any, and say that the same command tries them again."""
        for failure in failures:
            error_console.print(f"[red]failed:[/red] {escape(f'{failure.id}: {failure.error}')}")
        if failures:
            error_console.print(f"{len(failures)} of {self.all} cells failed; the same command tries them again.")

    def line(self) -> str:
        """Return how far it is; nothing before the cells are counted."""
        return f"{self.done} of {self.all} cells after {span(self.elapsed)}; {self.left()}" if self.all else ""


@contextmanager
def show_progress(what: str) -> Iterator[ShownProgress]:
    """Show a bar, or print a line every ten seconds where there is no terminal, while the block lasts."""
    cells = TextColumn("{task.fields[done]} of {task.fields[all]} cells")
    columns = (SpinnerColumn(), cells, BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        shown = ShownProgress(bars, what)
        try:
            with telling(shown.line):
                yield shown
        finally:
            if shown.done and not console.is_terminal:
                console.print(f"{shown.done} of {shown.all} cells in {span(shown.elapsed)}")


class Stages:
    """A bar for each stage on a terminal; elsewhere a line for each that ends, and every ten seconds."""

    def __init__(self, bars: Progress, stage: str) -> None:
        self._bars, self._tasks = bars, dict[str, TaskID]()
        self.stage, self.done, self.of, self.start = stage, 0, 0, time.perf_counter()

    def __call__(self, stage: str, done: int, of: int) -> None:
        if stage not in self._tasks:
            self._tasks[stage] = self._bars.add_task(stage)
            self.start = time.perf_counter()
        self.stage, self.done, self.of = stage, done, of
        self._bars.update(self._tasks[stage], completed=done, total=of)
        if not console.is_terminal and done == of:
            console.print(self.line())

    def line(self) -> str:
        if not self.of:
            return self.stage
        taken = time.perf_counter() - self.start
        left = f", about {span(taken * (self.of - self.done) / self.done)} left" if 0 < self.done < self.of else ""
        return f"{self.stage}: {100 * self.done // self.of} %{left}"


@contextmanager
def show_stages(first: str) -> Iterator[Stages]:
    """Show how far the stages of a command are while the block lasts; `first` is what it does before them."""
    columns = (SpinnerColumn(), TextColumn("{task.description:<19}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        stages = Stages(bars, first)
        with telling(stages.line):
            yield stages
