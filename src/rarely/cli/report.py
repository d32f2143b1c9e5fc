"""`rarely report`: figures, claims and the page, from the records alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
)

from rarely.cli.console import console, guarded, say_refused
from rarely.experiments.report.claims import PRINTED_ROUNDS
from rarely.experiments.report.tables import tally

if TYPE_CHECKING:
    from rarely.experiments.report.writer import Report


@guarded
def report_command(
    folder: Annotated[Path, typer.Argument(help="A folder that reproduce wrote.")] = Path("out"),
    markdown: Annotated[Path | None, typer.Option(help="Also write claims and tables to this file.")] = None,
) -> None:
    """Draw figures, judge claims and write the report again, from the records alone.

    A record that was changed or damaged is left out and named. Exit code 1 if there is one.

    **Examples**

    - `rarely report out`
    - `rarely report out --markdown results.md` — the claims and tables as Markdown too
    """
    written = make_report(folder)
    if markdown is not None:
        from rarely.experiments.report.writer import write_markdown

        write_markdown(folder, markdown)
    if written.refused:
        raise typer.Exit(1)


def make_report(out: Path) -> Report:
    """Write the report of a folder, and say what it has found."""
    console.print(f"making the report of {escape(str(out))}")
    from rarely.experiments.report.writer import write_report

    columns = (TextColumn("figures     "), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("figures")

        def drawn(done: int, of: int) -> None:
            if done == 1 and not console.is_terminal:
                console.print(f"drawing {of} figures")
            progress.update(bar, completed=done, total=of)

        written = write_report(out, drawn)
    path, judged = written.path, written.judged
    if written.refused:
        say_refused(written.refused, "the report leaves them out and says so")
    if written.without_digest:
        console.print(
            f"without digest: {written.without_digest} of {written.records} records, written by version 0.1; their "
            "numbers are plausible, but an edit would not show"
        )
    lengths = sorted({j.rounds for j in judged} - {PRINTED_ROUNDS})
    if lengths:
        console.print(f"T = {', '.join(map(str, lengths))} here; the paper's claims are about T = {PRINTED_ROUNDS}")
    for preset in dict.fromkeys(j.preset for j in judged):
        console.print(f"{preset}: {tally([j for j in judged if j.preset == preset])}")
    console.print(f"report: [bold]{escape(str(path))}[/bold]")
    return written
