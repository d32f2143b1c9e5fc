"""The command line: reproduce · report · compare · plan · evaluate · study · serve · keys · fleet · data · doctor.

It is the only package that prints. What takes long to import (Matplotlib) is imported by the command
that needs it, after its first line.
"""

from __future__ import annotations

from typing import Annotated

import typer

from rarely import __version__
from rarely._cli.compare import compare_command
from rarely._cli.console import console
from rarely._cli.data import data_command
from rarely._cli.doctor import doctor_command
from rarely._cli.evaluate import evaluate_command
from rarely._cli.fleet import fleet_app
from rarely._cli.plan import plan_command
from rarely._cli.reproduce import report_command, reproduce_command
from rarely._cli.serve import keys_app, serve_command
from rarely._cli.study import study_app

app = typer.Typer(
    help="Contextual bandits that decide often and retrain rarely.",
    epilog="For example: rarely reproduce cosine --runs 3 --rounds 1000 --preset practical",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
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
app.command("reproduce")(reproduce_command)
app.command("report")(report_command)
app.command("compare")(compare_command)
app.command("plan")(plan_command)
app.command("evaluate")(evaluate_command)
app.add_typer(study_app)
app.command("serve")(serve_command)
app.add_typer(keys_app)
app.add_typer(fleet_app)
app.command("data")(data_command)
app.command("doctor")(doctor_command)
