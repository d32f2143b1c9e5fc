"""How far a command is, by cells or by stages: bars on a terminal, lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from rarely._cli.console import console, error_console, say_refused, span, telling
from rarely._runs.cell import Cell, Result
from rarely._runs.progress import Pace
from rarely._runs.record import Refusal


class ShownProgress:
    """What a run of cells tells; its methods are the callbacks of `run_cells`."""

    def __init__(self, bars: Progress, jobs: int | None, what: str) -> None:
        self._bars, self._bar = bars, bars.add_task("", total=0.0, done=0, all=0)
        self._jobs, self._what = jobs, what
        self._costs: dict[str, float] = {}
        self.pace = Pace(())

    def refused(self, files: Sequence[Refusal]) -> None:
        say_refused(files, "cells asked for are played again, and their old files renamed")

    def started(self, todo: Sequence[Cell], kept: int) -> None:
        self.pace = Pace(todo, self._jobs)
        self._costs = {cell.id: cell.work() for cell in todo}
        recorded = f", {kept} on record already" if kept else ""
        console.print(f"{len(todo)} cells to play (a cell is {self._what}){recorded}")
        self._bars.update(self._bar, total=sum(self._costs.values()), all=len(todo))

    def finished(self, result: Result) -> None:
        self.pace.finished(result)
        self._bars.update(self._bar, advance=self._costs[result.id], done=self.pace.done, description=_left(self.pace))

    def say_failures(self, failures: Sequence[Result]) -> None:
        """Name the cells that failed, if any, and say that the same command tries them again."""
        for failure in failures:
            error_console.print(f"[red]failed:[/red] {escape(f'{failure.id}: {failure.error}')}")
        if failures:
            error_console.print(f"{len(failures)} of {self.pace.all} cells failed; the same command tries them again.")

    def line(self) -> str:
        """Return how far it is; nothing before the cells are counted."""
        pace = self.pace
        return f"{pace.done} of {pace.all} cells after {span(pace.elapsed)}; {_left(pace)}" if pace.all else ""


@contextmanager
def show_progress(jobs: int | None, what: str) -> Iterator[ShownProgress]:
    """Show a bar, or print a line every ten seconds where there is no terminal, while the block lasts."""
    cells = TextColumn("{task.fields[done]} of {task.fields[all]} cells")
    columns = (SpinnerColumn(), cells, BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        shown = ShownProgress(bars, jobs, what)
        try:
            with telling(shown.line):
                yield shown
        finally:
            if shown.pace.done and not console.is_terminal:
                console.print(f"{shown.pace.done} of {shown.pace.all} cells in {span(shown.pace.elapsed)}")


def _left(pace: Pace) -> str:
    seconds = pace.seconds_left()
    return "the time left is known when the first are done" if seconds is None else f"about {span(seconds)} left"


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
