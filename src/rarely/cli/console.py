"""Where the commands print, how an error or Ctrl-C ends them, and what several of them say."""

from __future__ import annotations

import sys
import textwrap
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec

import typer
from rich.console import Console
from rich.markup import escape

from rarely import build_info
from rarely.core import native
from rarely.core.errors import RarelyError

if TYPE_CHECKING:
    from rarely.doctor import Finding

INTERRUPTED = 130
"""What a shell expects of a program ended by Ctrl-C."""
MARKS = {"ok": "green", "note": "yellow", "problem": "red"}
"""The colours of what `doctor` finds."""
SECONDS_TO_FIRST_LINE, SECONDS_BETWEEN_LINES = 3.0, 10.0
"""Where there is no terminal for a bar."""
MOST_NAMED = 20
"""Refused files that a terminal names; the report has all."""

# A terminal would break lines anywhere, so they are broken between words; in a pipe a line stays a line.
console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
error_console = Console(stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty())

Parameters = ParamSpec("Parameters")


def guarded_by(stopped: str) -> Callable[[Callable[Parameters, None]], Callable[Parameters, None]]:
    """What goes wrong is one sentence and an exit code; Ctrl-C says what it leaves."""

    def guard(command: Callable[Parameters, None]) -> Callable[Parameters, None]:
        @wraps(command)
        def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
            try:
                command(*args, **kwargs)
            except (RarelyError, OSError) as error:
                error_console.print(f"[red]error:[/red] {escape(_sentence(error))}")
                raise typer.Exit(1) from None
            except KeyboardInterrupt:
                error_console.print(stopped)
                raise typer.Exit(INTERRUPTED) from None

        return run

    return guard


guarded = guarded_by("Interrupted. Finished runs are saved; run the same command to resume.")


def _sentence(error: Exception) -> str:
    """What went wrong, with the path that the system names."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}."
    return str(error)


@contextmanager
def telling(line: Callable[[], str], seconds: float = SECONDS_BETWEEN_LINES) -> Iterator[None]:
    """Print a line soon and then every ten seconds while the block lasts, where there is no terminal for a bar.

    A line that is empty is not printed.
    """
    over = threading.Event()

    def tell() -> None:
        wait = min(seconds, SECONDS_TO_FIRST_LINE)
        while not over.wait(wait):
            if text := line():
                console.print(text, markup=False)
                wait = min(2 * wait, seconds)

    teller = threading.Thread(target=tell, daemon=True)
    if not console.is_terminal:
        teller.start()
    try:
        yield
    finally:
        over.set()
        if teller.is_alive():
            teller.join()


def say_loops() -> None:
    """Which loops decide and train, as the first line of a command that takes its time; what to do if it is NumPy."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the line says the same
        native.in_use()  # raises where RARELY_COMPILED=1 and there are none
    info = build_info()
    if info.form == "numpy":
        console.print(
            f"rarely {info.rarely}: NumPy decides and trains, several times slower than compiled loops. "
            f"{escape(info.missing)} rarely doctor says more."
        )
    else:
        console.print(
            f"rarely {info.rarely}: compiled loops ({info.form}) decide and train. {escape(info.missing)}".strip()
        )


def say_refused(refused: Sequence[object], consequence: str) -> None:
    """How many files are refused, which, and why."""
    files = "1 file" if len(refused) == 1 else f"{len(refused)} files"
    error_console.print(f"[red]refused:[/red] {files} in records; {consequence}")
    for file in refused[:MOST_NAMED]:
        error_console.print(escape(f"  {file}"))
    if len(refused) > MOST_NAMED:
        error_console.print(f"  and {len(refused) - MOST_NAMED} more")


def span(seconds: float) -> str:
    """A time in words of the right size."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def say_finding(finding: Finding) -> None:
    """A line with its mark; what to do stands below. On a terminal all of it is wrapped beside the mark."""
    colour = MARKS[finding.status]
    head, indent = f"[{colour}]{finding.status:<7}[/{colour}]  {finding.topic:<12}  ", 23 * " "
    width = max(30, console.width - len(indent)) if console.is_terminal else 10_000
    texts = (finding.says, finding.advice)
    first, *others = [line for text in texts for line in textwrap.wrap(text, width, break_on_hyphens=False)]
    console.print(head + escape(first))
    for line in others:
        console.print(indent + escape(line))
