"""`rarely doctor`: which loops decide and train here, and what is missing or slow."""

from __future__ import annotations

import json as json_format
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from rarely import build_info
from rarely.cli.console import console, guarded, say_finding


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
            say_finding(finding)
    if json:
        typer.echo(json_format.dumps(as_json(findings, info), indent=2))
    else:
        counts = Counter(finding.status for finding in findings)
        console.print(f"problems: {counts['problem']}, notes: {counts['note']}")
    if is_broken(findings):
        raise typer.Exit(1)
