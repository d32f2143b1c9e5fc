"""Consoles, error handling, and the messages and bars that several commands share. Needs typer and rich, of [cli].

Provisional: a package that adds commands to `rarely`, by the entry point group `rarely.commands`, prints and ends as
the library's own commands do, and any version may change how.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Self, TypeVar, cast

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from typer import Option

from rarely import build_info
from rarely.errors import InvalidInput, RarelyError
from rarely.extend.provisional import native

INTERRUPTED = 130  # the exit code of a program that Ctrl-C ended
SECONDS_TO_FIRST_LINE, SECONDS_BETWEEN_LINES = 3.0, 10.0
"""How often progress is printed where there is no terminal for a bar."""

# A terminal breaks lines anywhere, so rich breaks them between words; in a pipe a line stays a line.
console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
error_console = Console(stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty())

IMPORTED: list[Any] = []
"""The models that --import MODULE:NAME of the running command names, as `rarely.load` takes them."""
Command = TypeVar("Command", bound=Callable[..., Any])


def import_modules(names: list[str] | None) -> None:
    """Import modules whose classes files and studies name: from the path, or from the folder of the command.

    MODULE:NAME also names a model that is code, of which `load` needs the object: those are `IMPORTED` then.
    """
    if names and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # unlike `python file.py`, a command has no folder on the path
    models: list[Any] = []
    for name in names or ():
        module, _, model = name.partition(":")
        try:
            imported = import_module(module)
            models += [getattr(imported, model)] if model else []
        except (ImportError, AttributeError) as error:
            raise typer.BadParameter(f"{name} cannot be imported: {error}.") from None
    IMPORTED[:] = models


Imports = Annotated[
    list[str] | None,
    Option(
        "--import",
        envvar="RARELY_IMPORT",
        callback=import_modules,
        help="A module with classes of your own, which is imported first; MODULE:NAME is a model, such as a torch "
        "module, that a file cannot hold. May be repeated.",
    ),
]
Jobs = Annotated[int | None, Option(min=1, help="Processes; by default one for each core.")]


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
        """Add a command, which prints what it returns; an example has its arguments, and after a dash a remark."""

        def decorate(function: Command) -> Command:
            @self._guard
            @wraps(function)
            def command(**options: Any) -> None:
                if (said := function(**options)) is not None:
                    console.print(said, markup=False)

            lines = [f"{function.__doc__}\n\n**Examples**\n"]
            for example in examples:
                arguments, dash, remark = example.partition(" — ")
                lines.append(f"- `rarely {self.info.name} {name} {arguments}`{dash}{remark}")
            self.command(name, help="\n".join(lines))(command)
            return function

        return decorate


def given(**makers: Callable[..., Any]) -> Callable[[Command], Command]:
    """Give a command's parameter what its maker returns; the command has the maker's parameters in its place."""

    def decorate(function: Command) -> Command:
        taken = {name: signature(maker, eval_str=True).parameters for name, maker in makers.items()}

        @wraps(function)
        def command(**options: Any) -> Any:
            made = {name: makers[name](**{each: options.pop(each) for each in taken[name]}) for name in makers}
            return function(**made, **options)

        own = signature(function, eval_str=True).parameters
        parameters = {k: v for name, each in own.items() for k, v in taken.get(name, {name: each}).items()}
        ordered = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in parameters.values()]
        shown: Any = command
        shown.__signature__ = Signature(ordered)
        shown.__annotations__ = {name: each.annotation for name, each in parameters.items()}
        return cast(Command, command)

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
