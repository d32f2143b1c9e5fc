"""`rarely report`: figures, claims and the page, from the records alone."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from rarely._cli.console import console, guarded, say_refused
from rarely._cli.progress import show_stages
from rarely._core.errors import InvalidInput
from rarely._reproduce.report.claims import PRINTED_ROUNDS
from rarely._reproduce.report.tables import tally
from rarely._runs.store import SUFFIX
from rarely._runs.writing import check_folder

if TYPE_CHECKING:
    from rarely._reproduce.report.page import Report


@guarded
def report_command(
    folder: Annotated[
        Path, typer.Argument(help="A folder that reproduce wrote, or published records, .json.gz.")
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
    published = folder if folder.name.endswith(SUFFIX) else None
    if published is None and out is not None:
        raise InvalidInput("--out is for a file of published records; the report of a folder is written into it.")
    if published is not None:
        folder = out or published.with_name(published.name.removesuffix(SUFFIX))
        check_folder(folder)
    written = make_report(folder, published, publish, markdown)
    if publish is not None:
        console.print(f"records: {escape(str(publish))}, {publish.stat().st_size / 1e6:.2f} MB")
    if written.refused:
        raise typer.Exit(1)


def make_report(
    out: Path, published: Path | None = None, publish_to: Path | None = None, markdown: Path | None = None
) -> Report:
    """Write the report of a folder, or of published records into one, and say what it has found."""
    console.print(f"making the report of {escape(str(published or out))}")
    from rarely._reproduce.report.page import write_report

    with show_stages("reading records") as stages:
        written = write_report(out, partial(stages, "drawing figures"), published, publish_to, markdown)
    path, judged = written.path, written.judged
    if written.refused:
        say_refused(written.refused, "the report leaves them out and says so")
    lengths = sorted({j.rounds for j in judged if not j.of_paper_length})
    if lengths:
        console.print(f"T = {', '.join(map(str, lengths))} here; the paper's claims are about T = {PRINTED_ROUNDS}")
    for preset in dict.fromkeys(j.preset for j in judged):
        console.print(f"{preset}: {tally([j for j in judged if j.preset == preset])}")
    console.print(f"report: [bold]{escape(str(path))}[/bold]")
    return written


def make_quick_page(out: Path) -> None:
    """Write the page of the quick runs and print their numbers; they judge nothing."""
    from rarely._reproduce.report.quick_page import write_quick_page

    path, rows = write_quick_page(out)
    for row in rows:
        regret = f"regret {row.regret.value:.1f} ± {row.deviation:.1f}"
        console.print(f"{row.label}: {regret}, {row.updates:.0f} updates, {row.seconds:.1f} s", markup=False)
    console.print("This short form judges nothing: the paper's claims are about T = 2000, see make reproduce.")
    console.print(f"page: [bold]{escape(str(path))}[/bold]")
