"""The command line: reproduce · report · compare · plan · study · serve · keys · data · bench · doctor.

It is the only package that prints. What takes long to import (Matplotlib, the benchmarks) is imported by the command
that needs it, after its first line.
"""

from __future__ import annotations

from typing import Annotated

import typer

from rarely import __version__
from rarely.cli.bench import bench_command
from rarely.cli.compare import compare_command
from rarely.cli.console import console
from rarely.cli.data import data_command
from rarely.cli.doctor import doctor_command
from rarely.cli.plan import plan_command
from rarely.cli.report import report_command
from rarely.cli.reproduce import reproduce_command
from rarely.cli.serve import keys_app, serve_command
from rarely.cli.study import study_app
from rarely.cli.study_dashboard import dashboard_command as dashboard_command
from rarely.cli.study_record import verify_command as verify_command

app = typer.Typer(
    help="Contextual bandits that decide often and retrain rarely: the paper's experiments, from one command.",
    epilog="Start with: rarely reproduce cosine --runs 3 --rounds 1000 --preset practical",
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
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which.")] = False,
) -> None:
    """Contextual bandits that decide often and retrain rarely."""


# In the order of the help.
app.command("reproduce")(reproduce_command)
app.command("report")(report_command)
app.command("compare")(compare_command)
app.command("plan")(plan_command)
app.add_typer(study_app, name="study")
app.command("serve")(serve_command)
app.add_typer(keys_app, name="keys")
app.command("data")(data_command)
app.command("bench")(bench_command)
app.command("doctor")(doctor_command)
