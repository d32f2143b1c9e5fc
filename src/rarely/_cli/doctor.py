"""`rarely doctor`: what is missing, slow or broken about this installation.

ok        nothing to do
note      it works, and could be better
problem   something that was asked for does not work

The facts come from `rarely.build_info()`, and are judged here. `rarely data` looks for the UCI files, and
`rarely study status` and `verify` examine a study.
"""

from __future__ import annotations

import json as json_format
import platform
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal, NamedTuple

import typer
from rich.markup import escape
from typer import Option

from rarely import BuildInfo, build_info
from rarely.console import console, guarded
from rarely.runs.machine import machine

MARKS = {"ok": "green", "note": "yellow", "problem": "red"}


class Finding(NamedTuple):
    """What an examination found about a topic; `advice` says what to do, where something can be done."""

    topic: str
    status: Literal["ok", "note", "problem"]
    says: str
    advice: str = ""


@guarded
def doctor_command(
    json: Annotated[bool, Option("--json", help="Print JSON, including rarely.build_info().")] = False,
) -> None:
    """Check this installation: what is missing, slow or broken, and what to do about it.

    Checks the compiled loops, BLAS and threads. Each line is ok, a note (it works, and could be better) or a
    problem. The exit code is 1 if there is a problem.

    **Examples**

    - `rarely doctor` — print a table
    - `rarely doctor --json` — print the same for programs and bug reports
    - `RARELY_COMPILED=1 rarely doctor` — fail if the compiled loops are missing
    """
    info = build_info()
    findings = [*examine(info)]
    counts = Counter(finding.status for finding in findings)
    if json:
        told = {"ok": not counts["problem"], "findings": [finding._asdict() for finding in findings]}
        typer.echo(json_format.dumps(told | {"build": info.describe()}, indent=2))
    else:
        say_findings(findings)
        console.print(f"problems: {counts['problem']}, notes: {counts['note']}")
    if counts["problem"]:
        raise typer.Exit(1)


def say_findings(findings: Iterable[Finding]) -> None:
    """Print findings one by one, with their advice."""
    indent = 23 * " "
    width = max(30, console.width - len(indent)) if console.is_terminal else 10_000
    for finding in findings:
        texts, colour = (finding.says, finding.advice), MARKS[finding.status]
        first, *others = [line for text in texts for line in textwrap.wrap(text, width, break_on_hyphens=False)]
        console.print(f"[{colour}]{finding.status:<7}[/{colour}]  {finding.topic:<12}  {escape(first)}")
        for line in others:
            console.print(indent + escape(line))


def examine(info: BuildInfo) -> Iterator[Finding]:
    """Examine this installation, topic by topic."""
    yield Finding("rarely", "ok", f"{info.rarely}, Python {info.python}, NumPy {info.numpy}")
    yield Finding("machine", "ok", f"{machine()}, {info.machine}, {platform.system()}")
    yield _loops(info)
    yield from _threads(info)


def _loops(info: BuildInfo) -> Finding:
    """Judge the loops that decide and train by what RARELY_COMPILED asks for."""
    wish = info.variables.get("RARELY_COMPILED", "")
    if wish not in ("", "0", "1"):
        return Finding("loops", "problem", f"RARELY_COMPILED is {wish!r}", "Set it to 0 or 1, or unset it.")
    if info.form != "numpy":
        compiler = info.build["compiler"] or "an unknown compiler"
        says = f"compiled loops ({info.form}), built by {compiler}"
        return Finding("loops", "note" if info.missing else "ok", says, info.missing)
    if wish == "1":
        return Finding("loops", "problem", "RARELY_COMPILED=1, but there are no compiled loops", info.missing)
    return Finding("loops", "note", "NumPy, several times slower than compiled loops", info.missing)


def _threads(info: BuildInfo) -> Iterator[Finding]:
    """Compare the threads of BLAS and of the compiled loops with the number of cores."""
    blas = info.blas
    kernel = f", {blas.kernel} kernels" if blas.kernel else ""
    yield Finding("BLAS", "ok", f"{blas.name} {blas.version}{kernel}")
    set_to = ", ".join(f"{name}={value}" for name, value in info.variables.items() if name.endswith("THREADS"))
    threads = "unknown" if blas.threads is None else str(blas.threads)
    compiled = info.threads if info.form != "numpy" else 0
    loops = f", compiled loops {compiled}" if compiled else ""
    says = f"BLAS {threads}{loops}, cores {info.cores}" + (f" ({set_to})" if set_to else "")
    if max(compiled, blas.threads or 1) > info.cores:
        advice = f"Threads that wait for each other are slow: set OPENBLAS_NUM_THREADS={info.cores}, or 1."
        yield Finding("threads", "note", says, advice)
    else:
        yield Finding("threads", "ok", says)
