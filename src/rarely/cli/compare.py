"""`rarely compare`: which policy does best with few updates."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from rarely.cli.console import console, error_console, guarded, say_loops, say_refused, span, telling
from rarely.core.errors import InvalidInput
from rarely.simulation.writing import check_folder

if TYPE_CHECKING:
    from rarely.comparison.cells import Cell, Comparison
    from rarely.comparison.runner import Result
    from rarely.simulation.recorded_run import Refusal

SEVERAL = ("cosine", "quadratic", "magic", "needle", "wheel", "two-sided", "wine", "shuttle")
SEVERAL_POLICIES = ("neuralucb", "neuralts", "neuralepsilon", "linucb", "lints")
QUICK = ("cosine", "needle", "wheel")
QUICK_POLICIES = ("neuralucb", "linucb", "uniform")
QUICK_ROUNDS, QUICK_SEEDS = 200, 3


@guarded
def compare_command(
    problems: Annotated[
        list[str] | None,
        typer.Argument(
            help="cosine, needle, wheel-0.95, shuttle, mine.csv, …; the sets paper, gallery, sklearn, showdown, all; "
            "each with +drift or +delay too. See --list."
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="A policy by name, or your own as NAME=module:factory; may be repeated. `all` is every one."),
    ] = None,
    budgets: Annotated[
        str | None, typer.Option(help="Values of B, separated by commas; T is an update after every round.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each.")] = 10,
    rounds: Annotated[int, typer.Option(min=2, help="Rounds T of a run.")] = 1000,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; by default one for each core.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Three problems, 200 rounds, 3 seeds: a minute.")] = False,
    label: Annotated[str | None, typer.Option(help="The class's column of a CSV, by name or number.")] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(help="A column of a CSV that is no feature, by name or number; may be repeated.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="The folder that holds the data files.")] = None,
    merge: Annotated[
        list[Path] | None,
        typer.Option(
            help="Copy the records of this folder or packed file to --out, and play nothing; may be repeated."
        ),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Play again what other code has played.")] = False,
    markdown: Annotated[Path | None, typer.Option(help="Also write the leaderboard to this file.")] = None,
    pack: Annotated[
        Path | None, typer.Option(help="Also write all records into this one file, to submit them.")
    ] = None,
    list_them: Annotated[bool, typer.Option("--list", help="Name problems and policies, and play nothing.")] = False,
    out: Annotated[Path, typer.Option(help="The folder for records and the page.")] = Path("compare"),
) -> None:
    """Compare policies under budgets of updates, and write a leaderboard.

    Records are kept one by one: stop it at any moment, and the same command goes on where it was.

    **Examples**

    - `rarely compare --quick` — see what comes out
    - `rarely compare paper gallery --budgets 5,20,100 --out board` — some problems and budgets
    - `rarely compare cosine+drift mine.csv --policy neuralucb --policy mine=my_module:make` — a policy of your own
    - `rarely compare --merge theirs --merge ours --out both` — one leaderboard from several folders
    """
    if list_them:
        _list()
        return
    if merge:
        if problems or policy or budgets or quick:
            raise InvalidInput("--merge copies records and plays nothing; leave out problems, policies and budgets.")
        from rarely.comparison.store import merge as merged

        found = merged(merge, out)
        console.print(f"{len(found.records)} records in {escape(str(out))}")
        if found.refused:
            say_refused(found.refused, f"{len(found.records)} records were merged" if found.records else "none is left")
        if make_leaderboard(out, markdown, pack) or found.refused:
            raise typer.Exit(1)
        return
    for option, given in (("--label", label), ("--ignore", ignore)):
        if given is not None and not any(".csv" in name for name in problems or ()):
            raise InvalidInput(f"{option} is for a table of your own; name a file.csv.")
    check_folder(out)
    if data is not None:
        os.environ["RARELY_DATA"] = str(data)  # processes that play cells inherit it
    say_loops()
    from rarely.comparison.cells import Comparison
    from rarely.simulation.provenance import cores

    asked = Comparison(
        problems or list(QUICK if quick else SEVERAL),
        policy or list(QUICK_POLICIES if quick else SEVERAL_POLICIES),
        _budgets(budgets or ("5,20,T" if quick else "5,20,100,T")),
        min(seeds, QUICK_SEEDS) if quick else seeds,
        min(rounds, QUICK_ROUNDS) if quick else rounds,
        label,
        tuple(ignore or ()),
    )
    failures = _play(asked, out, jobs or cores(), replace)
    # Before the page, which there may be nothing for.
    for failure in failures:
        error_console.print(f"[red]failed:[/red] {escape(f'{failure.cell.id}: {failure.error}')}")
    if failures:
        error_console.print(f"{len(failures)} cells failed; the same command tries them again.")
    if make_leaderboard(out, markdown, pack) or failures:
        raise typer.Exit(1)


def make_leaderboard(out: Path, markdown: Path | None = None, pack: Path | None = None) -> bool:
    """Write the page of a folder, and say what it shows; whether files were refused."""
    from rarely.comparison.store import pack as packed
    from rarely.comparison.writer import write_leaderboard

    written = write_leaderboard(out, markdown)
    if pack is not None:
        console.print(f"{packed(out, pack)} records packed: {escape(str(pack))}")
    for place, row in enumerate(written.board.rows, 1):
        console.print(f"{place}. {row.policy}: area {row.area.value:.3f} over {row.problems} problems", markup=False)
    console.print(f"leaderboard: [bold]{escape(str(written.path))}[/bold]")
    if written.refused:
        say_refused(written.refused, "the leaderboard leaves them out and says so")
    return bool(written.refused)


def _budgets(text: str) -> list[int | None]:
    found: list[int | None] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        if part != "T" and not part.isdigit():
            raise InvalidInput(f"--budgets must be whole numbers and T, separated by commas; got {part!r}.")
        found.append(None if part == "T" else int(part))
    return found


def _list() -> None:
    from rarely.comparison.policies import POLICIES
    from rarely.comparison.problems import PROBLEM_SETS

    for name, members in PROBLEM_SETS.items():
        console.print(f"[bold]{name}[/bold]: {', '.join(members)}")
    console.print("each also with +drift and +delay; wheel-δ; any file.csv")
    for entry in POLICIES.values():
        console.print(entry.name + (f" (needs {entry.package})" if entry.package else ""), markup=False)


def _play(asked: Comparison, out: Path, jobs: int, replace: bool) -> list[Result]:
    """Play the comparison, with a bar on a terminal and a line every ten seconds elsewhere."""
    from rarely.comparison.runner import compare

    columns = (SpinnerColumn(), TextColumn("{task.completed:.0f} of {task.total:.0f} cells"), BarColumn())
    live = console.is_terminal
    with Progress(
        *columns, TimeElapsedColumn(), TextColumn("{task.description}"), console=console, disable=not live
    ) as progress:
        shown = _Shown(progress, jobs)
        with telling(shown.line):
            return compare(asked, out, jobs=jobs, replace=replace, planned=shown.planned, finished=shown.finished)


class _Shown:
    """How far it is."""

    def __init__(self, progress: Progress, jobs: int) -> None:
        from rarely.comparison.pace import Pace

        self.progress, self.bar, self.jobs = progress, progress.add_task("", total=0), jobs
        self.pace = Pace((), jobs)
        self.done = self.all = 0

    def planned(
        self, cells: Sequence[Cell], todo: Sequence[Cell], skipped: Sequence[str], refused: Sequence[Refusal]
    ) -> None:
        from rarely.comparison.pace import Pace

        for sentence in skipped:
            console.print(escape(sentence))
        if refused:
            say_refused(refused, "cells asked for are played again, and their old files renamed")
        on_record = len(cells) - len(todo)
        console.print(
            f"{len(todo)} cells to play (a cell is one policy on one run with one budget)"
            + (f", {on_record} on record already" if on_record else "")
        )
        self.pace, self.all = Pace(todo, self.jobs), len(todo)
        self.progress.update(self.bar, total=len(todo))

    def finished(self, result: Result) -> None:
        self.pace.finished(result.cell, None if result.record is None else float(result.record.data["wall"]))
        self.done += 1
        self.progress.update(self.bar, completed=self.done, description=self._left())

    def line(self) -> str:
        """How far it is; empty before the cells are counted."""
        return f"{self.done} of {self.all} cells after {span(self.pace.elapsed)}; {self._left()}" if self.all else ""

    def _left(self) -> str:
        seconds = self.pace.seconds_left()
        return "the time left is known when the first are done" if seconds is None else f"about {span(seconds)} left"
