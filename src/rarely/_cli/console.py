"""Consoles, error handling, and the messages and bars that several commands share."""

from __future__ import annotations

import math
import os
import sys
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, Self, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from rarely import InvalidInput, RarelyError, build_info
from rarely.extend.provisional import native
from rarely.runs.cell import Cell, Result
from rarely.runs.record import Refusal

INTERRUPTED = 130
"""The exit code of a program that Ctrl-C ended."""
SECONDS_TO_FIRST_LINE, SECONDS_BETWEEN_LINES = 3.0, 10.0
"""How often progress is printed where there is no terminal for a bar."""
NAMED_FILES = 20
"""Refused files named on the terminal; the report names all."""
PACE_SHARE, PACE_TIME = 0.1, 3.0
"""When the pace is known: after this share of the work, or this many times as long as until the first cell was done,
which is mostly the start of processes."""

# A terminal breaks lines anywhere, so rich breaks them between words; in a pipe a line stays a line.
console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
error_console = Console(stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty())

Command = TypeVar("Command", bound=Callable[..., None])


def import_modules(names: list[str] | None) -> None:
    """Import modules whose classes files and studies name: from the path, or from the folder of the command."""
    if names and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # unlike `python file.py`, a command has no folder on the path
    for name in names or ():
        try:
            import_module(name)
        except ImportError as error:
            raise typer.BadParameter(f"{name} cannot be imported: {error}.") from None


Imports = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        envvar="RARELY_IMPORT",
        callback=import_modules,
        help="A module with classes of your own, which is imported first; may be repeated.",
    ),
]
Jobs = Annotated[int | None, typer.Option(min=1, help="Processes; by default one for each core.")]


@contextmanager
def guarded_by(stopped: str) -> Iterator[None]:
    """Turn errors of a command into one sentence and exit code 1; after Ctrl-C print `stopped` and exit with 130."""
    try:
        yield
    except (RarelyError, OSError) as error:
        file = error.filename if isinstance(error, OSError) else None
        said = str(error) if file is None else f"{file}: {getattr(error, 'strerror', '')}."
        error_console.print(f"[red]error:[/red] {escape(said)}")
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        error_console.print(stopped)
        raise typer.Exit(INTERRUPTED) from None


class Group(typer.Typer):
    """The commands behind one word, as `rarely study`; after Ctrl-C each of them prints `stopped`.

    With `imports` the word itself takes the option --import.
    """

    def __init__(self, name: str, help: str, stopped: str, epilog: str | None = None, *, imports: bool = False) -> None:
        super().__init__(name=name, help=help, epilog=epilog, no_args_is_help=True, rich_markup_mode="markdown")
        self._guard = guarded_by(stopped)
        if imports:

            @self.callback()
            def take_imports(imports: Imports = None) -> None:
                pass

    def add(self, name: str, *examples: str) -> Callable[[Command], Command]:
        """Add a command; an example has its arguments, and after a dash a remark."""

        def decorate(function: Command) -> Command:
            lines = [f"{function.__doc__}\n\n**Examples**\n"]
            for example in examples:
                arguments, dash, remark = example.partition(" — ")
                lines.append(f"- `rarely {self.info.name} {name} {arguments}`{dash}{remark}")
            return self.command(name, help="\n".join(lines))(self._guard(function))

        return decorate


guarded = guarded_by("Interrupted. Finished runs are saved; run the same command to resume.")


def say_loops() -> None:
    """Print which loops are in use, as the first line of a long command, and what to do if they are NumPy's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the line printed below says the same
        native.in_use()  # raises if RARELY_COMPILED=1 and there are no compiled loops
    info = build_info()
    if info.form == "numpy":
        console.print(
            f"rarely {info.rarely} with NumPy's loops, several times slower than compiled ones. "
            f"{escape(info.missing)} Run rarely doctor for details."
        )
    else:
        console.print(f"rarely {info.rarely} with compiled loops ({info.form}). {escape(info.missing)}".strip())


def say_refused(refused: Sequence[object], consequence: str) -> None:
    """Print how many records are refused, which, and why."""
    records = "1 record" if len(refused) == 1 else f"{len(refused)} records"
    error_console.print(f"[red]refused:[/red] {records}; {consequence}")
    for file in refused[:NAMED_FILES]:
        error_console.print(escape(f"  {file}"))
    if len(refused) > NAMED_FILES:
        error_console.print(f"  and {len(refused) - NAMED_FILES} more")


def span(seconds: float) -> str:
    """Return a duration in seconds, minutes or hours, whichever fits."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def whole_numbers(name: str, text: str, least: int = 1, most: float = math.inf) -> list[int]:
    """Return the whole numbers of an option, as 4,8,16."""
    try:
        numbers = [int(number) for number in text.split(",")]
    except ValueError:
        raise InvalidInput(f"{name} must be whole numbers, as 4,8,16; got {text!r}.") from None
    if min(numbers) < least or max(numbers) > most:
        raise InvalidInput(f"{name} must lie between {least} and {most:g}; got {text!r}.")
    return numbers


# --- how far a command is


class Shown(ABC):
    """How far a command is, while its `with` block lasts: bars on a terminal; elsewhere lines, soon and then rarer."""

    def __init__(self, *columns: ProgressColumn) -> None:
        self._bars = Progress(SpinnerColumn(), *columns, console=console, disable=not console.is_terminal)
        self._over, self._teller = threading.Event(), threading.Thread(target=self._tell, daemon=True)
        self._start = time.perf_counter()

    def __enter__(self) -> Self:
        self._bars.start()
        if not console.is_terminal:
            self._teller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._teller.is_alive():
            self._teller.join()
        self._bars.stop()

    def _tell(self) -> None:
        wait = min(SECONDS_BETWEEN_LINES, SECONDS_TO_FIRST_LINE)
        while not self._over.wait(wait):
            if text := self.line():
                console.print(text, markup=False)
                wait = min(2 * wait, SECONDS_BETWEEN_LINES)

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self._start

    @abstractmethod
    def line(self) -> str:
        """Return how far it is; nothing before that is known."""


class ShownProgress(Shown):
    """What a run of cells tells; its methods are the callbacks of `run_cells`. `what` says what a cell is.

    The time left is the predicted work that is left, at the pace of the cells that are done on this machine.
    """

    def __init__(self, what: str) -> None:
        cells = TextColumn("{task.fields[done]} of {task.fields[all]} cells")
        super().__init__(cells, BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
        self._bar, self._what = self._bars.add_task("", total=0.0, done=0, all=0), what
        self._works, self._failed = dict[str, float](), dict[str, list[str]]()
        self._work = self._worked = self._seen = self._first = 0.0
        self.all = self.done = 0

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
        if result.record is None:  # a failure tells nothing about the time
            self._work -= self._works[result.id]
            alike = self._failed.setdefault(result.error, [])
            alike.append(result.id)
            if len(alike) == 1:
                error_console.print(f"[red]failed:[/red] {escape(f'{result.id}: {result.error}')}")
        else:
            self._worked, self._seen = self._worked + self._works[result.id], self.elapsed
            self._first = self._first or self._seen
        left = self.left()
        self._bars.update(self._bar, total=self._work, completed=self._worked, done=self.done, description=left)

    def left(self) -> str:
        early = self._seen < PACE_TIME * self._first and self._worked < PACE_SHARE * self._work
        if early or not self._worked:
            return "the time left is not known yet"
        return f"about {span(max(0.0, self._seen * self._work / self._worked - self.elapsed))} left"

    def say_failures(self, failures: Sequence[Result]) -> None:
        """Say how many cells failed, if any; the first of each kind was named at once."""
        for first, *others in self._failed.values():
            if others:
                error_console.print(f"{len(others)} more failed as {first} did, the last of them {others[-1]}")
        if failures:
            error_console.print(f"{len(failures)} of {self.all} cells failed; the same command tries them again.")

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        if self.done and not console.is_terminal:
            console.print(f"{self.done} of {self.all} cells in {span(self.elapsed)}")

    def line(self) -> str:
        if not self.all:
            return "reading records"
        return f"{self.done} of {self.all} cells after {span(self.elapsed)}; {self.left()}"


class Stages(Shown):
    """A bar for each stage on a terminal; elsewhere a line for each that ends. `stage` is what comes before them."""

    def __init__(self, stage: str) -> None:
        super().__init__(TextColumn("{task.description:<19}"), BarColumn(), TimeElapsedColumn())
        self._tasks, self._first = dict[str, TaskID](), self._bars.add_task(stage, total=None)
        self.stage, self.done, self.of = stage, 0, 0

    def __call__(self, stage: str, done: int, of: int) -> None:
        if stage not in self._tasks:
            self._tasks[stage] = self._bars.add_task(stage)
            self._bars.update(self._first, visible=False)
            self._start = time.perf_counter()
        self.stage, self.done, self.of = stage, done, of
        self._bars.update(self._tasks[stage], completed=done, total=of)
        if not console.is_terminal and done == of:
            console.print(self.line())

    def line(self) -> str:
        if not self.of:
            return self.stage
        left = self.elapsed * (self.of - self.done) / self.done if self.done else 0.0
        return f"{self.stage}: {100 * self.done // self.of} %" + (f", about {span(left)} left" if left else "")
