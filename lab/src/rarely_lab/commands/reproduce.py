"""`rarely reproduce` and `rarely report`: play the paper's experiments, and report on every claim.

`rarely reproduce --quick` shows the idea in a minute. A report is made from the records alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape

from rarely.console import Jobs, Stages, console, guarded, say_loops
from rarely.errors import InvalidInput
from rarely.extend import PresetName
from rarely.extend.checks import check_choice
from rarely.runs.files import check_folder
from rarely_lab.commands.progress import File, Names, Replace, executor_of, play_cells, say_refused
from rarely_lab.engine.cell import Executor
from rarely_lab.engine.record import copy_records, group_of, is_packed
from rarely_lab.reproduce import catalogue
from rarely_lab.reproduce.catalogue import Cell
from rarely_lab.reproduce.config import PRESETS
from rarely_lab.reproduce.records import Record, Store, check_engines, read_fitting
from rarely_lab.reproduce.report.claims import PRINTED_ROUNDS
from rarely_lab.reproduce.report.tables import WORDS, tally

if TYPE_CHECKING:
    from rarely_lab.reproduce.report.page import Report

PROBLEMS_HELP = (
    "cosine, quadratic, mushroom, magic (all four where none is named); second readings cosine-sd, quadratic-sd, "
    "magic-m400; growth, two problems at six lengths; timed, the four for their processor times, beside runs of a GPU; "
    "all of these."
)
PRESETS_HELP = (
    "A reading of the paper: paper, practical or code; may be repeated. Those that are published where none is named."
)


@guarded
def reproduce_command(
    problems: Annotated[Names, typer.Argument(help=PROBLEMS_HELP)] = None,
    runs: Annotated[
        int | None, typer.Option(min=1, help="Runs of each configuration; as many as are published if not given.")
    ] = None,
    preset: Annotated[Names, typer.Option(help=PRESETS_HELP)] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds T of a run.")] = 2000,
    only: Annotated[Names, typer.Option(help="Configurations by name, such as 'fixed-*'; may be repeated.")] = None,
    jobs: Jobs = None,
    engine: Annotated[
        Literal["local", "ray", "gpu"],
        typer.Option(help="Where runs are played; gpu plays hundreds at once, preset code on processors."),
    ] = "local",
    address: Annotated[str | None, typer.Option(help="A Ray cluster; without it a local Ray is started.")] = None,
    sources: Annotated[
        list[Path] | None,
        typer.Option(
            "--from", help="Published records, of which what this code would play alike is kept; may be repeated."
        ),
    ] = None,
    replace: Replace = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Six policies on quadratic, 1000 rounds, 3 runs: a minute.")
    ] = False,
    listed: Annotated[bool, typer.Option("--list", help="Say what has no record yet, and play nothing.")] = False,
    out: Annotated[Path, typer.Option(help="The folder for records, figures and the report.")] = Path("out"),
) -> None:
    """Play the paper's experiments and report on every claim.

    Records are kept one by one: stop it at any moment, and the same command continues where it was.

    **Examples**

    - `rarely reproduce --quick` — the idea in a minute: regret and updates of six policies
    - `rarely reproduce --runs 10` — four problems, all presets; hours
    - `rarely reproduce cosine --runs 3 --rounds 1000 --preset practical` — a quick look
    - `rarely reproduce magic --only 'adaptive-*' --only neuralucb --out magic` — some configurations
    - `rarely reproduce all --from records.json.gz --list` — what is missing of all that is published
    - `rarely reproduce all --from records.json.gz --engine gpu` — play it
    - `rarely reproduce --engine ray --address auto` — on a Ray cluster
    - `rarely reproduce --engine gpu --runs 100 --preset paper --preset practical` — a hundred runs in minutes
    """
    if address is not None and engine != "ray":
        raise InvalidInput("--address is for --engine ray; the local engine has none.")
    if quick and (problems or preset or only or sources):
        raise InvalidInput("--quick plays a fixed selection; leave out problems, --preset, --only and --from.")
    check_folder(out)
    executor = executor_of(engine, jobs, address)
    cells = catalogue.quick_cells() if quick else _cells(problems, preset, runs, rounds, only)
    say_loops()
    if listed:
        read = (read_fitting(source)[0] for source in sources or ())
        _say_missing(cells, [*Store(out).find().records, *itertools.chain(*read)], executor)
        return
    asked = {group_of(cell.id) for cell in cells}  # with all of their runs: the report is the better
    for source in sources or ():
        _unpack(source, out, asked)
    if not quick:
        with Stages("reading records"):
            _check_engine(cells, out, gpu=engine == "gpu")
    tell = _told if quick else None
    failures = play_cells(cells, Store(out), executor, "one configuration on one run", replace, tell)
    (make_quick_page if quick else make_report)(out)
    if failures:
        raise typer.Exit(1)


def _told(record: Any) -> str:
    """Return what came of one quick run."""
    label = next(label for label, one in catalogue.QUICK_CONFIGURATIONS.items() if one == record.configuration)
    return f"{label}, run {record.seed + 1}: lost {record.regret:.0f} of reward with {len(record.updates)} updates"


def _unpack(source: Path, out: Path, asked: set[str]) -> None:
    """Copy what fits of the configurations asked for into a folder, and say what is left out."""
    with Stages("reading published records") as stages:
        records, left_out = read_fitting(source)
        mine = [record for record in records if group_of(record.id) in asked]
        new = copy_records(mine, Store(out), partial(stages, "unpacking records"))
    console.print(f"{new} records of {escape(str(source))} are new in {escape(str(out))}")
    for family, count in left_out.items():
        console.print(f"{count} of {family} are left out: this version gives other numbers, and plays them anew")


def _say_missing(cells: Sequence[Cell], records: Sequence[Record], executor: Executor) -> None:
    """Print how many cells have no record that fits, by problem, reading and kind, and how long a process takes."""
    asked = {cell.id: cell.describe() for cell in cells}
    done = {record.id for record in records if record.id in asked and record.answers(asked[record.id])}
    missing = [cell for cell in cells if cell.id not in done]
    work, lines = getattr(executor, "work", Cell.work), dict[str, dict[str, int]]()
    for cell in missing:
        kinds = lines.setdefault(f"{cell.problem.name}/{cell.reading}", {})
        kinds[cell.configuration.kind] = kinds.get(cell.configuration.kind, 0) + 1
    for name, kinds in lines.items():
        console.print(f"{name}: {', '.join(f'{kind} {count}' for kind, count in kinds.items())}", markup=False)
    hours = sum(map(work, missing)) / 3600
    console.print(f"{len(missing)} of {len(cells)} cells are to be played, about {hours:.3g} hours of one process")


def _cells(names: Names, preset: Names, runs: int | None, rounds: int, only: Names) -> list[Cell]:
    groups = catalogue.GROUPS
    asked = [name for group in names or catalogue.PAPER for name in groups.get(group, (group,))]
    if unknown := [name for name in asked if name not in catalogue.PROBLEMS]:
        there = ", ".join([*catalogue.PROBLEMS, *groups])
        raise InvalidInput(
            f"no problem is called {unknown[0]!r}; there are {there}. A table of your own is played by rarely compare."
        )
    for name in preset or ():
        check_choice("--preset", name, PresetName)
    wanted = [catalogue.PROBLEMS[name] for name in dict.fromkeys(asked)]
    chosen = [name for name in PRESETS if name in preset] if preset else None
    cells = catalogue.plan_cells(wanted, chosen, runs, rounds, only or ["*"])
    if not cells:
        presets = chosen or wanted[0].presets
        fitting = [c for c in catalogue.configurations(wanted[0]) if not c.linear and any(map(c.part_of, presets))]
        raise InvalidInput(
            f"no configuration of preset {' or '.join(presets)} is called {' or '.join(only or [])}; there are "
            f"{', '.join(c.id for c in fitting)}, and linucb-rλ-bβ and "
            "linucb-intercept-rλ-bβ with λ and β of 0.001, 0.01, 0.1, 1."
        )
    return cells


def _check_engine(cells: Sequence[Cell], out: Path, *, gpu: bool) -> None:
    """Raise MixedRecords before anything is played if an engine would continue what another began."""
    networks = [cell for cell in cells if not cell.configuration.same_everywhere]
    planned = {(f"{c.problem.name}/{c.reading}", "gpu" if gpu and c.together[0] else "cpu") for c in networks}
    records = Store(out).find().records if networks else []
    on_record = [(r.series, r.engine) for r in records if not r.configuration.same_everywhere]
    check_engines([*on_record, *sorted(planned)])


@guarded
def report_command(
    folder: Annotated[
        Path, typer.Argument(help="A folder of reproduce, published records, .gz or .xz, or a folder of such files.")
    ] = Path("out"),
    markdown: Annotated[File, typer.Option(help="Also write claims and tables to this file.")] = None,
    publish: Annotated[
        File, typer.Option(help="Also write the records, in a compact form, to this file; .xz is the smallest.")
    ] = None,
    csv: Annotated[File, typer.Option(help="Also write runs.csv and checks.csv into this folder.")] = None,
    few_updates: Annotated[File, typer.Option(help="Also write a page on what few updates cost to this file.")] = None,
    out: Annotated[File, typer.Option(help="The folder for the report of a file; by default FILE-report.")] = None,
) -> None:
    """Draw figures, judge claims and write the report again, from the records alone.

    A record that was changed or damaged is left out and named. Exit code 1 if there is one.

    **Examples**

    - `rarely report out`
    - `rarely report out --markdown results.md` — the claims and tables as Markdown too
    - `rarely report out --publish records.json.gz` — all records in one file of a few MB
    - `rarely report docs/records --out published` — the report from published files
    - `rarely report records.json.gz --csv tables` — all runs and all checks as flat tables, too
    """
    published = folder if is_packed(folder) else None
    if published is None and out is not None:
        raise InvalidInput("--out is for a file of published records; the report of a folder is written into it.")
    if published is not None:
        place = published if published.name.strip(".") else published.resolve()  # "." and ".." are no names
        folder = out or place.with_name(f"{place.name.partition('.json')[0]}-report")
        check_folder(folder)
    written = make_report(folder, published, publish, markdown, csv, few_updates)
    if publish is not None:
        console.print(f"records: {escape(str(publish))}, {publish.stat().st_size / 1e6:.2f} MB")
    if written.refused:
        raise typer.Exit(1)


def make_report(out: Path, published: Path | None = None, *files: Path | None) -> Report:
    """Write the report of a folder, or of published records into one, and say what it has found.

    `files` are further ones to write, as `write_report` takes them.
    """
    console.print(f"making the report of {escape(str(published or out))}")
    from rarely_lab.reproduce.report.page import write_report

    with Stages("reading records") as stages:
        written = write_report(out, partial(stages, "drawing figures"), published, *files)
    path, judged = written.path, written.judged
    if written.refused:
        say_refused(written.refused, "the report leaves them out and says so")
    lengths = sorted({j.rounds for j in judged if not j.of_paper_length})
    if lengths:
        console.print(f"T = {', '.join(map(str, lengths))} here; the paper's claims are about T = {PRINTED_ROUNDS}")
    for preset in dict.fromkeys(j.preset for j in judged):
        for estimand, words in WORDS.items():
            own = [j for j in judged if (j.preset, j.estimand) == (preset, estimand) and not j.second_reading]
            console.print(f"{preset}, by {words}: {tally(own)}")
    console.print(f"report: [bold]{escape(str(path))}[/bold]")
    return written


def make_quick_page(out: Path) -> None:
    """Write the page of the quick runs and print their numbers; they judge nothing."""
    from rarely_lab.reproduce.report.quick_page import sentences, write_quick_page

    path, rows = write_quick_page(out)
    for row in rows:
        regret = f"regret {row.regret.value:.1f} ± {row.deviation:.1f}"
        console.print(f"{row.label}: {regret}, {row.updates:.0f} updates, {row.seconds:.1f} s", markup=False)
    console.print(" ".join(sentences(rows)), markup=False)
    console.print("This short form judges nothing: the paper's claims are about T = 2000, see make reproduce.")
    console.print(f"page: [bold]{escape(str(path))}[/bold]")
