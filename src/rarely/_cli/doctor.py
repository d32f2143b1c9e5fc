"""`rarely doctor`: what is missing, slow or broken about this installation."""

from __future__ import annotations

import json as json_format
from typing import Annotated

import typer

from rarely import build_info
from rarely._cli.console import guarded, say_findings


@guarded
def doctor_command(
    json: Annotated[bool, typer.Option("--json", help="Print JSON, including rarely.build_info().")] = False,
) -> None:
    """Check this installation: what is missing, slow or broken, and what to do about it.

    Checks the compiled loops, BLAS and threads. Each line is ok, a note (it works, and could be better) or a
    problem. The exit code is 1 if there is a problem.

    **Examples**

    - `rarely doctor` — print a table
    - `rarely doctor --json` — print the same for programs and bug reports
    - `RARELY_COMPILED=1 rarely doctor` — fail if the compiled loops are missing
    """
    from rarely._doctor import examine

    info = build_info()
    if not json:
        say_findings(examine(info))
        return
    findings = [finding._asdict() for finding in examine(info)]
    fine = all(finding["status"] != "problem" for finding in findings)
    typer.echo(json_format.dumps({"ok": fine, "findings": findings, "build": info.describe()}, indent=2))
    if not fine:
        raise typer.Exit(1)
