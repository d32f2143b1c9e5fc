"""Consoles, error handling and the messages that several commands share."""

from __future__ import annotations

import math
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Annotated, ParamSpec

import typer
from rich.console import Console
from rich.markup import escape

from rarely import build_info
from rarely._core import native
from rarely._core.errors import InvalidInput, RarelyError

INTERRUPTED = 130
"""The exit code of a program that Ctrl-C ended."""
SECONDS_TO_FIRST_LINE, SECONDS_BETWEEN_LINES = 3.0, 10.0
"""How often progress is printed where there is no terminal for a bar."""
NAMED_FILES = 20
"""Refused files named on the terminal; the report names all."""

# A terminal breaks lines anywhere, so rich breaks them between words; in a pipe a line stays a line.
console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
error_console = Console(stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty())

Parameters = ParamSpec("Parameters")
Jobs = Annotated[int | None, typer.Option(min=1, help="Processes; by default one for each core.")]


def guarded_by(stopped: str) -> Callable[[Callable[Parameters, None]], Callable[Parameters, None]]:
    """Turn errors into one sentence and exit code 1; after Ctrl-C print `stopped` and exit with 130."""

    def guard(command: Callable[Parameters, None]) -> Callable[Parameters, None]:
        @wraps(command)
        def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
            try:
                command(*args, **kwargs)
            except (RarelyError, OSError) as error:
                file = error.filename if isinstance(error, OSError) else None
                said = str(error) if file is None else f"{file}: {getattr(error, 'strerror', '')}."
                error_console.print(f"[red]error:[/red] {escape(said)}")
                raise typer.Exit(1) from None
            except KeyboardInterrupt:
                error_console.print(stopped)
                raise typer.Exit(INTERRUPTED) from None

        return run

    return guard


class Group(typer.Typer):
    """The commands behind one word, as `rarely study`; after Ctrl-C each of them prints `stopped`."""

    def __init__(self, name: str, help: str, stopped: str, epilog: str | None = None) -> None:
        super().__init__(name=name, help=help, epilog=epilog, no_args_is_help=True, rich_markup_mode="markdown")
        self._guard = guarded_by(stopped)

    def add(self, name: str, *examples: str) -> Callable[[Callable[Parameters, None]], Callable[Parameters, None]]:
        """Add a command; an example has its arguments, and after a dash a remark."""

        def decorate(function: Callable[Parameters, None]) -> Callable[Parameters, None]:
            lines = [f"{function.__doc__}\n\n**Examples**\n"]
            for example in examples:
                arguments, dash, remark = example.partition(" — ")
                lines.append(f"- `rarely {self.info.name} {name} {arguments}`{dash}{remark}")
            return self.command(name, help="\n".join(lines))(self._guard(function))

        return decorate


guarded = guarded_by("Interrupted. Finished runs are saved; run the same command to resume.")


@contextmanager
def telling(line: Callable[[], str], seconds: float = SECONDS_BETWEEN_LINES) -> Iterator[None]:
    """Print `line()` soon and then every ten seconds while the block runs, unless a terminal shows a bar.

    Empty lines are not printed.
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
    """Print how many files are refused, which, and why."""
    files = "1 file" if len(refused) == 1 else f"{len(refused)} files"
    error_console.print(f"[red]refused:[/red] {files} in records; {consequence}")
    for file in refused[:NAMED_FILES]:
        error_console.print(escape(f"  {file}"))
    if len(refused) > NAMED_FILES:
        error_console.print(f"  and {len(refused) - NAMED_FILES} more")


def span(seconds: float) -> str:
    """Return a duration in seconds, minutes or hours, whichever fits."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def whole_numbers(name: str, given: str, least: int = 1, most: float = math.inf) -> list[int]:
    """Return the whole numbers of an option, as 4,8,16."""
    try:
        numbers = [int(number) for number in given.split(",")]
    except ValueError:
        raise InvalidInput(f"{name} must be whole numbers, as 4,8,16; got {given!r}.") from None
    if min(numbers) < least or max(numbers) > most:
        raise InvalidInput(f"{name} must lie between {least} and {most:g}; got {given!r}.")
    return numbers
