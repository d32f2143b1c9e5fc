"""`rarely reproduce`: play the paper's experiments and report on every claim."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape

from rarely.cli.console import console, error_console, guarded, say_loops
from rarely.cli.progress import play
from rarely.cli.report import make_report
from rarely.core.errors import InvalidInput, check_choice
from rarely.core.policies.presets import PresetName
from rarely.experiments.catalogue import GROWTH, PAPER, configurations
from rarely.experiments.config import PRESETS, Problem
from rarely.experiments.problems import doubts_about, find_problem
from rarely.experiments.queue import plan_cells
from rarely.experiments.runner import Engine, LocalEngine
from rarely.simulation.provenance import cores
from rarely.simulation.writing import check_folder
from rarely.worlds import Table
from rarely.worlds.datasets import Dataset, located


@guarded
def reproduce_command(
    problems: Annotated[
        list[str] | None,
        typer.Argument(
            help="cosine, quadratic, mushroom, magic (all four where none is named); second readings cosine-sd, "
            "quadratic-sd, magic-m400; growth, one problem at five lengths; a table of your own as file.csv, or "
            "sklearn:digits."
        ),
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="Runs of each configuration.")] = 10,
    preset: Annotated[
        list[str] | None,
        typer.Option(
            help="A reading of the paper: paper, practical or code; may be repeated. All where none is named."
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds T of a run.")] = 2000,
    only: Annotated[
        list[str] | None, typer.Option(help="Configurations by name, such as 'fixed-*'; may be repeated.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; by default one for each core.")] = None,
    engine: Annotated[Literal["local", "ray"], typer.Option(help="Where runs are played.")] = "local",
    address: Annotated[str | None, typer.Option(help="A Ray cluster; without it a local Ray is started.")] = None,
    label: Annotated[str | None, typer.Option(help="The class's column of a CSV, by name or number.")] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(help="A column of a CSV to leave out, by name or number; may be repeated.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="The folder that holds the UCI files.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Remove records that do not fit, and play again.")] = False,
    out: Annotated[Path, typer.Option(help="The folder for records, figures and the report.")] = Path("out"),
) -> None:
    """Play the paper's experiments and report on every claim.

    Records are kept one by one: stop it at any moment, and the same command goes on where it was.

    **Examples**

    - `rarely reproduce` — everything: four problems, 10 runs, all presets; hours
    - `rarely reproduce cosine --runs 3 --rounds 1000 --preset practical` — a quick look
    - `rarely reproduce magic --only 'adaptive-*' --only neuralucb --out magic` — some configurations
    - `rarely reproduce patients.csv --label outcome --ignore id --rounds 500` — a table of your own, as a bandit
    - `rarely reproduce --engine ray --address auto` — on a Ray cluster
    """
    if address is not None and engine != "ray":
        raise InvalidInput("--address is for --engine ray; the local engine has none.")
    for option, given in (("--label", label), ("--ignore", ignore)):
        if given is not None and not any(name.endswith(".csv") for name in problems or ()):
            raise InvalidInput(f"{option} is for a table of your own; name a file.csv.")
    check_folder(out)
    asked = [name for given in problems or PAPER for name in (GROWTH if given == "growth" else (given,))]
    wanted = [find_problem(name, label, tuple(ignore or ())) for name in dict.fromkeys(asked)]
    if data is not None:
        for problem in wanted:
            if isinstance(problem.source, Dataset):
                located(problem.source, data)  # given by hand, it must be there
        os.environ["RARELY_DATA"] = str(data)  # processes that play cells inherit it
    for name in preset or ():
        check_choice("--preset", name, PresetName)
    presets = [name for name in PRESETS if name in (preset or PRESETS)]
    cells = plan_cells(wanted, presets, runs, rounds, only or ["*"])
    if not cells:
        fitting = [c for c in configurations(wanted[0]) if not c.linear and any(map(c.part_of, presets))]
        raise InvalidInput(
            f"no configuration of preset {' or '.join(presets)} is called {' or '.join(only or [])}; there are "
            f"{', '.join(c.id for c in fitting)}, and linucb-rλ-bβ and "
            "linucb-intercept-rλ-bβ with λ and β of 0.001, 0.01, 0.1, 1."
        )
    say_loops()
    for problem in wanted:
        _introduce(problem, rounds)
    count = jobs if engine == "ray" else jobs or cores()
    failures = play(cells, out, _engine(engine, count, address), count, replace)
    make_report(out)
    for failure in failures:
        error_console.print(f"[red]failed:[/red] {escape(f'{failure.id}: {failure.error}')}")
    if failures:
        error_console.print(f"{len(failures)} of {len(cells)} cells failed; the same command tries them again.")
        raise typer.Exit(1)


def _introduce(problem: Problem, rounds: int) -> None:
    """How a table of one's own was read."""
    if isinstance(problem.source, Table):
        rows, columns = problem.source.rows.shape
        classes = ", ".join(problem.source.classes)
        played = min(rounds, rows)
        fewer = f"; {played} rounds, because each row is played once" if played < rounds else ""
        console.print(
            f"{problem.name}: {rows} rows of {columns} columns (text coded as numbers in sorted order), "
            f"{len(problem.source.classes)} classes to choose between: {escape(classes)}{fewer}"
        )
        for doubt in doubts_about(problem.source):
            error_console.print(f"[yellow]warning:[/yellow] {escape(f'{problem.name}: {doubt}')}")


def _engine(name: str, jobs: int | None, address: str | None) -> Engine:
    if name == "ray":
        from rarely.experiments.ray_engine import RayEngine

        return RayEngine(jobs, address)
    assert jobs is not None
    return LocalEngine(jobs)
