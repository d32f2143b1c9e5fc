"""`rarely doctor`: which loops decide and train here, and what is missing or slow."""

from __future__ import annotations

import json as json_format
import textwrap
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from rarely import build_info
from rarely.cli.console import console, guarded

if TYPE_CHECKING:
    from rarely.doctor import Finding

MARKS = {"ok": "green", "note": "yellow", "problem": "red"}
"""The colours of what `doctor` finds."""


@guarded
def doctor_command(
    json: Annotated[bool, typer.Option("--json", help="Print JSON, with all that rarely.build_info() says.")] = False,
    out: Annotated[Path, typer.Option(help="The folder that results would be written to.")] = Path("out"),
) -> None:
    """Say which loops decide and train here, what is missing or slow, and what to do about it.

    Looks at the compiled loops, BLAS and threads, the load of the machine, the UCI files, SQLite, optional packages and
    the disk. Each line is ok, a note (it works, and could be better) or a problem. Exit code 1 if there is a problem.

    **Examples**

    - `rarely doctor` — a table
    - `rarely doctor --json` — the same for programs, and for bug reports
    - `RARELY_COMPILED=1 rarely doctor` — fail where the compiled loops are missing
    """
    from rarely.doctor import as_json, examine, is_broken

    info, findings = build_info(), []
    for finding in examine(info, out):
        findings.append(finding)
        if not json:
            _say_finding(finding)
    if json:
        typer.echo(json_format.dumps(as_json(findings, info), indent=2))
    else:
        counts = Counter(finding.status for finding in findings)
        console.print(f"problems: {counts['problem']}, notes: {counts['note']}")
    if is_broken(findings):
        raise typer.Exit(1)


def _say_finding(finding: Finding) -> None:
    """A line with its mark; what to do stands below. On a terminal all of it is wrapped beside the mark."""
    colour = MARKS[finding.status]
    head, indent = f"[{colour}]{finding.status:<7}[/{colour}]  {finding.topic:<12}  ", 23 * " "
    width = max(30, console.width - len(indent)) if console.is_terminal else 10_000
    texts = (finding.says, finding.advice)
    first, *others = [line for text in texts for line in textwrap.wrap(text, width, break_on_hyphens=False)]
    console.print(head + escape(first))
    for line in others:
        console.print(indent + escape(line))
