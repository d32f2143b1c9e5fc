"""The command line: plan · evaluate · study · serve · keys · fleet · data · doctor, and commands of other packages.

A package adds a command by an entry point of the group `rarely.commands`: its name, and the function or `typer.Typer`
behind it, which is imported when the command is called. reproduce, report and compare come from rarely-lab.

It is the only package that prints. What takes long to import (Matplotlib) is imported by the command
that needs it, after its first line.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any

import typer
from rich.markup import escape
from typer.core import TyperGroup

from rarely import __version__
from rarely._cli.data import data_command
from rarely._cli.doctor import doctor_command
from rarely._cli.evaluate import evaluate_command
from rarely._cli.fleet import fleet_app
from rarely._cli.plan import plan_command
from rarely._cli.serve import keys_app, serve_command
from rarely._cli.study import study_app
from rarely.console import console, error_console

ENTRY_POINTS = "rarely.commands"
LAB = {
    "reproduce": "Play the paper's experiments and report on every claim.",
    "report": "Draw figures, judge claims and write the report again, from the records alone.",
    "compare": "Compare policies under budgets of updates, and write a leaderboard.",
}
"""The commands of rarely-lab, which exist without it too, to say what to install."""
INSTALL_LAB = "it is part of rarely-lab: pip install rarely-lab, or pip install ./lab in a checkout."
WRONG_USAGE = 2
"""The exit code of a command that cannot be called as it was."""
STYLE: dict[str, Any] = {"rich_markup_mode": "markdown", "pretty_exceptions_enable": False}


class Commands(TyperGroup):
    """The library's own commands and, by their entry points, those of other packages; the laboratory's come first."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return all names in the order of the help."""
        return [*dict.fromkeys([*LAB, *super().list_commands(ctx), *sorted(_others())])]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; one of another package is imported here."""
        if (own := super().get_command(ctx, cmd_name)) is not None:
            return own
        if (entry := _others().get(cmd_name)) is not None:
            return _loaded(entry)
        if cmd_name in LAB:
            return _unavailable(cmd_name, LAB[cmd_name], INSTALL_LAB)
        return None


def _others() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}


def _loaded(entry: EntryPoint) -> Any:
    try:
        function = entry.load()
    except Exception as error:  # of another package: it must not spoil the other commands
        reason = f"{entry.value} cannot be imported, {type(error).__name__}: {error}."
        return _unavailable(entry.name, LAB.get(entry.name, "A command of another package."), reason)
    return typer.main.get_command(function) if isinstance(function, typer.Typer) else _command(entry.name, function)


def _unavailable(name: str, says: str, reason: str) -> Any:
    """Return a command that says why it cannot be called, whatever its arguments are."""

    def stop() -> None:
        error_console.print(f"[red]error:[/red] rarely {name}: {escape(reason)}")
        raise typer.Exit(WRONG_USAGE)

    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    return _command(name, stop, help=f"{says} Not available: {reason}", context_settings=anything)


def _command(name: str, function: Callable[..., None], **options: Any) -> Any:
    alone = typer.Typer(add_completion=False, **STYLE)
    alone.command(name, **options)(function)
    return typer.main.get_command(alone)


app = typer.Typer(
    cls=Commands,
    help="Contextual bandits that decide often and retrain rarely.",
    epilog="For example: rarely plan log.csv --arm page --reward minutes --horizon 5000",
    no_args_is_help=True,
    add_completion=False,
    **STYLE,
)


def _version(wanted: bool) -> None:
    if wanted:
        console.print(__version__)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Contextual bandits that decide often and retrain rarely."""


# In the order of the help.
app.command("plan")(plan_command)
app.command("evaluate")(evaluate_command)
app.add_typer(study_app)
app.command("serve")(serve_command)
app.add_typer(keys_app)
app.add_typer(fleet_app)
app.command("data")(data_command)
app.command("doctor")(doctor_command)
