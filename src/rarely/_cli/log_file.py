"""Options that say how a log is read from a file, and what is printed about it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from rarely._cli.console import console, error_console
from rarely._core.errors import ContextsWarning
from rarely.logs import DecisionLog, read_log

LogFile = typer.Argument(help="A table (CSV, Parquet, JSON lines), or a log of Vowpal Wabbit or Open Bandit.")
Features = Annotated[str | None, typer.Option(help="Columns of features, as a,b,c; else all not named otherwise.")]
Ignore = Annotated[str | None, typer.Option(help="Columns to leave out, as id,time: unknown before the decision.")]
Arm = Annotated[str | None, typer.Option(help="The column with the chosen arm.")]
Reward = Annotated[str | None, typer.Option(help="The column with the reward, empty where unknown.")]
Probability = Annotated[str | None, typer.Option(help="The column with the chosen arm's probability.")]
Encode = Annotated[bool, typer.Option("--encode", help="Code text, dates and gaps of the features as numbers.")]
Round = Annotated[str | None, typer.Option("--round", help="The column of rounds, if each arm has its own row.")]
Id = Annotated[str | None, typer.Option("--id", help="The column that names rounds; repeated rows are dropped.")]
Time = Annotated[str | None, typer.Option("--time", help="The column of times; rows are put in their order.")]


def read_log_file(path: Path, columns: dict[str, Any], *, quiet: bool = False) -> DecisionLog:
    """Return the log of a file, and print how it was read, unless `quiet`, and what looked odd."""
    for name in ("context", "ignore"):
        if columns.get(name) is not None:
            columns = columns | {name: [each.strip() for each in columns[name].split(",")]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ContextsWarning)  # printed below
        log = read_log(path, **columns)
    if not quiet:
        rewards = len(log.known_rewards()[2])
        console.print(
            f"{escape(str(path))}: {len(log)} rounds, {log.arm_count} arms, {rewards or 'no'} rewards, "
            f"{len(log.names)} features: {escape(', '.join(log.names[:20]))}{', …' if len(log.names) > 20 else ''}"
        )
    for remark in log.remarks:
        error_console.print(f"[yellow]warning:[/yellow] {escape(str(remark))}")
    return log
