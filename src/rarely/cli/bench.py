"""`rarely bench`: measure how fast it is, and compare with a baseline."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from rarely.bench import baseline as baselines
from rarely.bench.measure import Benchmark, Figure, Tell
from rarely.bench.session import Session, begin, measure
from rarely.cli.console import INTERRUPTED, console, error_console, guarded, say_loops, span, telling
from rarely.core.errors import InvalidInput


@guarded
def bench_command(
    names: Annotated[
        list[str] | None, typer.Argument(help="Benchmarks by name or pattern, such as 'training-*'; see --list.")
    ] = None,
    list_them: Annotated[bool, typer.Option("--list", help="Say what there is, and measure nothing.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Leave out what takes a minute or more.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Also what takes an hour.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write figures, machine and versions to this file.")] = None,
    baseline: Annotated[
        Path | None, typer.Option(help="Compare with this file of --save; exit code 1 if a figure is worse.")
    ] = None,
    tolerance: Annotated[
        float, typer.Option(min=0.0, help="How far a figure may move from the baseline, in per cent of it.")
    ] = 100 * baselines.TOLERANCE,
    save: Annotated[Path | None, typer.Option(help="Keep the figures as a baseline for later.")] = None,
) -> None:
    """Measure how fast it is, in ratios to the machine's own matrix products and reads of memory.

    Every figure is made within one run, with its yardstick taken right before and after. Exit code 1 if a benchmark
    fails, or with --baseline if a figure is worse by more than the tolerance; a target that is not reached is shown,
    and is no failure.

    **Examples**

    - `rarely bench --list` — what there is
    - `rarely bench --quick` — a few minutes
    - `rarely bench 'training-*' decision` — some
    - `rarely bench --save before.json` — then change something, and
    - `rarely bench --baseline before.json` — see what became slower
    - `rarely bench million-rounds --json million.json` — the longest, only by its name
    """
    from rarely.bench.catalogue import BENCHMARKS, chosen
    from rarely.bench.table import heading, notes, table

    wanted, left_out = chosen(BENCHMARKS, names or [], quick=quick, everything=everything)
    if list_them:
        for one in (one for one in BENCHMARKS.values() if one in wanted or one.name in left_out):
            console.print(f"[bold]{one.name}[/bold] ({one.when}): {escape(one.says)}")
        return
    for path in (json, save):
        if path is not None and not path.parent.is_dir():
            raise InvalidInput(f"{path} cannot be written: {path.parent} is no folder.")
    before = None if baseline is None else baselines.read(baseline)
    say_loops()
    session = begin()
    session.skipped |= left_out
    console.print(heading(session), markup=False)
    interrupted = _measure(session, wanted)
    changes = baselines.compare(session.figures, before.figures if before else [], tolerance / 100)
    console.print(table(changes, against=before is not None), markup=False)
    for line in notes(session):
        console.print(f"- {line}", markup=False)
    if interrupted:
        error_console.print("stopped; no file is written")
        raise typer.Exit(INTERRUPTED)
    if json is not None:
        baselines.write(json, session, changes if before else ())
    if save is not None:
        baselines.write(save, session)
    worse = _say_changes(session, before, changes, tolerance) if before else 0
    if worse or session.failed:
        raise typer.Exit(1)


def _measure(session: Session, wanted: Sequence[Benchmark]) -> bool:
    """Run the benchmarks, shown in one line on a terminal and in plain lines elsewhere; whether Ctrl-C ended it."""
    from rarely.bench.table import valued

    # The line moves only when it is told to: a bar that refreshes itself would be measured too.
    state, since, terminal = "", time.perf_counter(), console.is_terminal
    with (
        Live(console=console, auto_refresh=False, transient=True) if terminal else nullcontext() as live,
        nullcontext() if terminal else telling(lambda: f"{state}, {span(time.perf_counter() - since)} so far"),
    ):

        def show(text: str) -> None:
            nonlocal state
            state = text
            if live is not None:
                live.update(Text(text), refresh=True)

        def started(benchmark: Benchmark) -> Tell:
            nonlocal since
            head, since = f"{wanted.index(benchmark) + 1} of {len(wanted)}: {benchmark.name}", time.perf_counter()
            show(head)
            if live is None:
                console.print(head, markup=False)
            return lambda text: show(f"{head}: {text}")

        def finished(benchmark: Benchmark, figures: Sequence[Figure]) -> None:
            for figure in figures:
                console.print(f"{figure.name}: [bold]{escape(valued(figure))}[/bold]")
            if benchmark.name in session.skipped:
                console.print(f"{benchmark.name} is skipped: {escape(session.skipped[benchmark.name])}")
            if benchmark.name in session.failed:
                error_console.print(f"[red]failed:[/red] {benchmark.name}: {escape(session.failed[benchmark.name])}")

        try:
            measure(session, wanted, started=started, finished=finished)
        except KeyboardInterrupt:
            return True
    return False


def _say_changes(session: Session, before: Session, changes: Sequence[baselines.Change], tolerance: float) -> int:
    """What a comparison comes to; how many figures are worse."""
    for line in baselines.differences(session, before):
        console.print(escape(line))
    unmeasured = [change.name for change in changes if change.verdict == "not measured"]
    if unmeasured:
        console.print(f"in the baseline and not measured now: {', '.join(unmeasured)}")
    worse = [change.name for change in changes if change.verdict == "worse"]
    if worse:
        error_console.print(f"[red]worse[/red] than the baseline by more than {tolerance:g} %: {', '.join(worse)}")
    else:
        console.print(f"nothing is worse than the baseline by more than {tolerance:g} %")
    return len(worse)
