"""How far `rarely reproduce` is: bars on a terminal, lines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from rarely.cli.console import console, say_refused, span, telling
from rarely.experiments.config import Cell
from rarely.experiments.pace import Pace, cost
from rarely.experiments.runner import Engine, Result, reproduce


def play(cells: Sequence[Cell], out: Path, engine: Engine, jobs: int | None, replace: bool) -> list[Result]:
    """Play the cells, and show how far it is."""
    live = console.is_terminal
    left = _TimeLeft()
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description:<12}"),
        BarColumn(),
        TextColumn("{task.fields[done]:>5} of {task.fields[all]} cells"),
        TimeElapsedColumn(),
        left,
    )
    with Progress(*columns, console=console, disable=not live) as progress:
        shown = _Shown(progress, cells, jobs, left)
        try:
            with telling(shown.line):
                return reproduce(
                    cells,
                    out,
                    engine,
                    replace=replace,
                    refused=lambda files: say_refused(
                        files, "cells asked for are played again, and their old files renamed"
                    ),
                    started=shown.started,
                    finished=shown.finished,
                )
        finally:
            if shown.count and not live:
                console.print(f"{shown.count} of {shown.all} cells in {span(shown.pace.elapsed)}")


class _TimeLeft(ProgressColumn):
    """The time that all problems together still take: their cells are played in turns, so they end together."""

    pace: Pace | None = None

    def render(self, task: Task) -> Text:
        return Text("" if self.pace is None or task.finished else _left(self.pace))


class _Shown:
    """A bar for each problem on a terminal; elsewhere a line."""

    def __init__(self, progress: Progress, cells: Sequence[Cell], jobs: int | None, left: _TimeLeft) -> None:
        self.progress, self.jobs, self.left = progress, jobs, left
        self.cells = {cell.id: cell for cell in cells}
        self.bars: dict[str, TaskID] = {}
        self.pace = Pace(())
        self.count = self.all = 0

    def started(self, todo: Sequence[Cell]) -> None:
        self.all = len(todo)
        self.left.pace = self.pace = Pace(todo, self.jobs)
        kept = len(self.cells) - len(todo)
        console.print(
            f"{len(todo)} cells to play (a cell is one configuration on one run)"
            + (f", {kept} on record already" if kept else "")
            + ("; the first of each kind show how long this machine takes" if todo else "")
        )
        for problem in dict.fromkeys(cell.problem.name for cell in todo):
            mine = [cell for cell in todo if cell.problem.name == problem]
            self.bars[problem] = self.progress.add_task(problem, total=sum(map(cost, mine)), done=0, all=len(mine))

    def finished(self, result: Result) -> None:
        cell = self.cells[result.id]
        bar = self.bars[cell.problem.name]
        self.count += 1
        self.pace.finished(cell, None if result.record is None else result.record.data["wall"])
        done = self.progress.tasks[self.progress.task_ids.index(bar)].fields["done"] + 1
        self.progress.update(bar, advance=cost(cell), done=done)

    def line(self) -> str:
        """How far it is; empty before the cells are counted."""
        if not self.all:
            return ""
        return f"{self.count} of {self.all} cells after {span(self.pace.elapsed)}; {_left(self.pace)}"


def _left(pace: Pace) -> str:
    """The time left in words; an estimate from some kinds of cells is rougher than one from all."""
    seconds = pace.seconds_left()
    if seconds is None:
        return "the time left is known when the first are done"
    return f"{'about' if pace.known else 'roughly'} {span(seconds)} left"
