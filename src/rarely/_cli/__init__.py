"""The command line: advise · plan · evaluate · study · serve · keys · fleet · data · doctor, and others' commands.

A package adds a command by an entry point of the group `rarely.commands`: its name, and the function or `typer.Typer`
behind it, which is imported when the command is called. reproduce, report and compare come from rarely-lab.

It is the only package that prints. Each command is imported when it is called, and what takes long to import
(Matplotlib) after its first line.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any

import typer
from rich.markup import escape
from typer import Option
from typer.core import TyperGroup

from rarely import __version__
from rarely.console import console, error_console

ENTRY_POINTS = "rarely.commands"
OWN = {
    "advise": "rarely._cli.advise:advise_command",
    "plan": "rarely._cli.plan:plan_command",
    "evaluate": "rarely._cli.evaluate:evaluate_command",
    "study": "rarely._cli.study:study_app",
    "serve": "rarely._cli.serve:serve_command",
    "keys": "rarely._cli.serve:keys_app",
    "fleet": "rarely._cli.fleet:fleet_app",
    "data": "rarely._cli.data:data_command",
    "doctor": "rarely._cli.doctor:doctor_command",
}
"""The library's commands, in the order of the help."""
LAB = {
    "reproduce": "Play the paper's experiments and report on every claim.",
    "report": "Draw figures, judge claims and write the report again, from the records alone.",
    "compare": "Compare policies under budgets of updates, and write a leaderboard.",
}
"""The commands of rarely-lab, which exist without it too, to say what to install."""
INSTALL_LAB = "it is part of rarely-lab: pip install rarely-lab, or pip install ./lab in a checkout."
WRONG_USAGE = 2  # the exit code of a command that cannot be called as it was
STYLE: dict[str, Any] = {"rich_markup_mode": "markdown", "pretty_exceptions_enable": False}


class Commands(TyperGroup):
    """The library's own commands and, by their entry points, those of other packages; the laboratory's come first."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return all names in the order of the help."""
        return [*dict.fromkeys([*LAB, *OWN, *sorted(_others())])]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, which is imported here."""
        if cmd_name in OWN:
            return _command(cmd_name, EntryPoint(cmd_name, OWN[cmd_name], ENTRY_POINTS).load())
        if (entry := _others().get(cmd_name)) is None:
            return _unavailable(cmd_name, INSTALL_LAB) if cmd_name in LAB else None
        try:
            return _command(cmd_name, entry.load())
        except Exception as error:  # of another package: it must not spoil the other commands
            reason = f"{entry.value} cannot be imported, {type(error).__name__}: {error}."
            return _unavailable(cmd_name, reason)


def _others() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}


def _unavailable(name: str, reason: str) -> Any:
    """Return a command that says why it cannot be called, whatever its arguments are."""

    def stop() -> None:
        error_console.print(f"[red]error:[/red] rarely {name}: {escape(reason)}")
        raise typer.Exit(WRONG_USAGE)

    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    says = LAB.get(name, "A command of another package.")
    return _command(name, stop, help=f"{says} Not available: {reason}", context_settings=anything)


def _command(name: str, function: typer.Typer | Callable[..., None], **options: Any) -> Any:
    if not isinstance(function, typer.Typer):
        alone = typer.Typer(add_completion=False, **STYLE)
        alone.command(name, **options)(function)
        function = alone
    return typer.main.get_command(function)


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
    version: Annotated[bool, Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """Contextual bandits that decide often and retrain rarely."""
