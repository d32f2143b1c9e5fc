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

from rarely.cli.compare import make_leaderboard
from rarely.cli.console import console, guarded, say_refused, telling
from rarely.core.errors import InvalidInput
from rarely.experiments.report.claims import PRINTED_ROUNDS
from rarely.experiments.report.tables import tally
from rarely.experiments.store import SUFFIX
from rarely.simulation.writing import check_folder

if TYPE_CHECKING:
    from rarely.experiments.report.writer import Report


PACKED = ".jsonl.gz"


@guarded
def report_command(
    folder: Annotated[
        Path, typer.Argument(help="A folder that reproduce or compare wrote, or published records, .json.gz.")
    ] = Path("out"),
    markdown: Annotated[Path | None, typer.Option(help="Also write claims and tables to this file.")] = None,
    publish: Annotated[
        Path | None, typer.Option(help="Also write the records to this file, in a compact form with digests.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder for the report of a file of records; by default one beside it.")
    ] = None,
) -> None:
    """Draw figures, judge claims and write the report again, from the records alone.

    A record that was changed or damaged is left out and named. Exit code 1 if there is one.

    **Examples**

    - `rarely report out`
    - `rarely report out --markdown results.md` — the claims and tables as Markdown too
    - `rarely report out --publish records.json.gz` — all records in one file of a few MB
    - `rarely report records.json.gz --out published` — the report from that file
    """
    from rarely.comparison.store import is_comparison

    if folder.name.endswith(PACKED):
        raise InvalidInput(
            f"{folder} is of rarely compare, and rarely compare --merge {folder} --out DIR makes its page."
        )
    if is_comparison(folder):
        if publish is not None or out is not None:
            raise InvalidInput(
                f"--publish and --out are for records of reproduce, and {folder} is of rarely compare, whose page is "
                f"written into it; rarely compare --merge {folder} --out DIR --pack FILE packs its records."
            )
        if make_leaderboard(folder, markdown):
            raise typer.Exit(1)
        return
    published = folder if folder.name.endswith(SUFFIX) else None
    if published is None and out is not None:
        raise InvalidInput("--out is for a file of published records; the report of a folder is written into it.")
    if published is not None:
        folder = out or published.with_name(published.name.removesuffix(SUFFIX))
        check_folder(folder)
    written = make_report(folder, published, publish)
    if markdown is not None:
        from rarely.experiments.report.writer import write_markdown

        write_markdown(folder, markdown, published)
    if publish is not None:
        console.print(f"records: {escape(str(publish))}, {publish.stat().st_size / 1e6:.2f} MB")
    if written.refused:
        raise typer.Exit(1)


def make_report(out: Path, published: Path | None = None, publish_to: Path | None = None) -> Report:
    """Write the report of a folder, or of published records into one, and say what it has found."""
    console.print(f"making the report of {escape(str(published or out))}")
    from rarely.experiments.report.writer import write_report

    columns = (TextColumn("figures     "), BarColumn(), MofNCompleteColumn())
    state = "reading records"
    with (
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress,
        telling(lambda: state),
    ):
        bar = progress.add_task("figures")

        def drawn(done: int, of: int) -> None:
            nonlocal state
            state = f"{done} of {of} figures"
            if done == 1 and not console.is_terminal:
                console.print(f"drawing {of} figures")
            progress.update(bar, completed=done, total=of)

        written = write_report(out, drawn, published, publish_to)
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
