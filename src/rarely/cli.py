"""The command line: reproduce · report · plan · data · bench · doctor. The only module that prints.

What takes long to import (Matplotlib, the benchmarks) is imported by the command that needs it, after its first line.
"""

from __future__ import annotations

import json as json_format
import os
import textwrap
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, ParamSpec

import typer
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from rarely import __version__, build_info
from rarely.bench import baseline as baselines
from rarely.bench.measure import Benchmark, Figure, Tell
from rarely.bench.session import Session, begin, measure
from rarely.core import native
from rarely.core.errors import InvalidInput, RarelyError, check_choice
from rarely.core.policies.neural import Preset as PresetName
from rarely.lab.catalogue import PAPER, configurations
from rarely.lab.claims import PRINTED_ROUNDS
from rarely.lab.config import PRESETS, Cell, Problem
from rarely.lab.environment import cores
from rarely.lab.logged import Log
from rarely.lab.pace import Pace, cost
from rarely.lab.planner import MAX_ROUNDS, plan
from rarely.lab.problems import find_problem
from rarely.lab.queue import plan_cells
from rarely.lab.records import Refusal
from rarely.lab.runner import Engine, LocalEngine, Result, reproduce
from rarely.lab.saved_plan import read_plan
from rarely.lab.tables import tally
from rarely.lab.trials import Maker, PolicyName
from rarely.worlds import Table, World
from rarely.worlds.datasets import DATASETS, Dataset, fetch, located

if TYPE_CHECKING:
    from rarely.lab.doctor import Finding
    from rarely.lab.report import Report

INTERRUPTED = 130
"""What a shell expects of a program ended by Ctrl-C."""
MOST_NAMED = 20
"""Refused files that a terminal names; the report has all."""
SECONDS_BETWEEN_LINES = 10.0
"""Where there is no terminal for a bar."""
FIRST_LINE, LAST_WAIT = 3.0, 60.0
"""Seconds to the first line about the cells of `reproduce`; then twice as many each time, up to a minute."""
MARKS = {"ok": "green", "note": "yellow", "problem": "red"}
"""The colours of what `doctor` finds."""
app = typer.Typer(
    help="Contextual bandits that decide often and retrain rarely: the paper's experiments, from one command.",
    epilog="Start with: rarely reproduce cosine --runs 3 --rounds 1000 --preset practical",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
told = Console(highlight=False, soft_wrap=True)
complained = Console(stderr=True, highlight=False, soft_wrap=True)

Parameters = ParamSpec("Parameters")


def _guarded(stopped: str) -> Callable[[Callable[Parameters, None]], Callable[Parameters, None]]:
    """What goes wrong is one sentence and an exit code; Ctrl-C says what it leaves."""

    def guard(command: Callable[Parameters, None]) -> Callable[Parameters, None]:
        @wraps(command)
        def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
            try:
                command(*args, **kwargs)
            except (RarelyError, OSError) as error:
                complained.print(f"[red]error:[/red] {escape(str(error))}")
                raise typer.Exit(1) from None
            except KeyboardInterrupt:
                complained.print(stopped)
                raise typer.Exit(INTERRUPTED) from None

        return run

    return guard


guarded = _guarded("stopped; the same command goes on from what is on record")


@app.command("reproduce")
@guarded
def reproduce_command(
    problems: Annotated[
        list[str] | None,
        typer.Argument(
            help="cosine, quadratic, mushroom, magic (all four where none is named); second readings cosine-sd, "
            "quadratic-sd, magic-m400; a table of your own as file.csv, or sklearn:digits."
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
    - `rarely reproduce patients.csv --label outcome --rounds 500` — a table of your own, as a bandit
    - `rarely reproduce --engine ray --address auto` — on a Ray cluster
    """
    if address is not None and engine != "ray":
        raise InvalidInput("--address is for --engine ray; the local engine has none.")
    if label is not None and not any(name.endswith(".csv") for name in problems or ()):
        raise InvalidInput("--label is for a table of your own; name a file.csv.")
    wanted = [find_problem(name, label) for name in dict.fromkeys(problems or PAPER)]
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
        names = ", ".join(c.id for problem in wanted[:1] for c in configurations(problem) if not c.linear)
        raise InvalidInput(
            f"no configuration is called {' or '.join(only or [])}; there are {names}, and linucb-rλ-bβ and "
            "linucb-intercept-rλ-bβ with λ and β of 0.001, 0.01, 0.1, 1."
        )
    _say_loops()
    for problem in wanted:
        _introduce(problem, rounds)
    count = jobs if engine == "ray" else jobs or cores()
    failures = _play(cells, out, _engine(engine, count, address), count, replace)
    _report(out)
    for failure in failures:
        complained.print(f"[red]failed:[/red] {escape(f'{failure.id}: {failure.error}')}")
    if failures:
        complained.print(f"{len(failures)} of {len(cells)} cells failed; the same command tries them again.")
        raise typer.Exit(1)


@app.command()
@guarded
def report(
    folder: Annotated[Path, typer.Argument(help="A folder that reproduce wrote.")] = Path("out"),
    markdown: Annotated[Path | None, typer.Option(help="Also write claims and tables to this file.")] = None,
) -> None:
    """Draw figures, judge claims and write the report again, from the records alone.

    A record that was changed or damaged is left out and named. Exit code 1 if there is one.

    **Examples**

    - `rarely report out`
    - `rarely report out --markdown results.md` — the claims and tables as Markdown too
    """
    written = _report(folder)
    if markdown is not None:
        from rarely.lab.report import write_markdown

        write_markdown(folder, markdown)
    if written.refused:
        raise typer.Exit(1)


@app.command("plan")
@_guarded("stopped; the plan is not finished, and the same command begins again")
def plan_command(
    log: Annotated[
        Path | None, typer.Argument(help="A CSV of past rounds whose first line names the columns; or --world.")
    ] = None,
    world: Annotated[
        str | None, typer.Option(help="A world of the laboratory instead: cosine, magic, sklearn:digits, …")
    ] = None,
    horizon: Annotated[int, typer.Option(min=1, help="Rounds T to plan for.")] = MAX_ROUNDS,
    arms: Annotated[int | None, typer.Option(min=1, help="Arms K, where the log does not tell.")] = None,
    features: Annotated[
        str | None, typer.Option(help="Columns of features, as a,b,c; without it all that are not named otherwise.")
    ] = None,
    ignore: Annotated[
        str | None, typer.Option(help="Columns to leave out, as id,time: what a policy cannot know beforehand.")
    ] = None,
    arm: Annotated[str | None, typer.Option(help="The column with the chosen arm.")] = None,
    reward: Annotated[str | None, typer.Option(help="The column with the reward, empty where unknown.")] = None,
    round_column: Annotated[
        str | None, typer.Option("--round", help="The column that numbers rounds, where each arm has its own row.")
    ] = None,
    noise: Annotated[
        float | None, typer.Option(min=0.0, help="Standard deviation of a reward; by default as the log suggests.")
    ] = None,
    policy: Annotated[
        PolicyName,
        typer.Option(
            help="The policy that is simulated: neural, a plain network; default, which tunes itself and takes longer; "
            "linear."
        ),
    ] = "neural",
    hidden: Annotated[int | None, typer.Option(min=2, help="Its hidden units (neural 64, default 200).")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Its steps of a training, if neural (100).")] = None,
    ridge: Annotated[float | None, typer.Option(help="Its λ (0.01; linear 1).")] = None,
    batches: Annotated[str | None, typer.Option(help="Values of B to simulate, as 4,8,16; else 2, 4, 8, …")] = None,
    runs: Annotated[int, typer.Option(min=1, help="Runs of each schedule; below 5 nothing is sure.")] = 5,
    max_rounds: Annotated[int, typer.Option(min=1, help="Longer horizons are simulated so long.")] = MAX_ROUNDS,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same plan.")] = 0,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; by default one for each core.")] = None,
    out: Annotated[Path, typer.Option(help="The folder for plan.md, plan.svg and plan.json.")] = Path("plan"),
    show: Annotated[
        Path | None, typer.Option(help="Print the advice of a plan.json made before, if nobody changed it.")
    ] = None,
) -> None:
    """Before the first round: how many updates, where, and what it costs to have fewer.

    Measures the effective dimension of the log's contexts, and simulates fixed, geometric and adaptive schedules on
    rewards fitted to the log; on imagined ones where it has none. Says where it extrapolates.

    **Examples**

    - `rarely plan log.csv --arms 4 --horizon 5000` — contexts alone, rewards imagined
    - `rarely plan log.csv --arm page --reward minutes --horizon 5000 --out plan` — with rewards
    - `rarely plan log.csv --features age,hour,score --arm page --reward minutes` — some columns
    - `rarely plan log.csv --ignore id,time --arm page --reward minutes` — all columns but some
    - `rarely plan offers.csv --round visit --reward paid` — each arm with a row of its own
    - `rarely plan --world cosine --horizon 1000 --runs 3` — a world of the laboratory
    - `rarely plan --show plan/plan.json` — what an earlier plan said
    """
    if show is not None:
        _show_plan(show)
        return
    _say_loops()
    _check_folder(out)
    given = {"hidden": hidden, "steps": steps, "ridge": ridge}
    settings = {name: value for name, value in given.items() if value is not None}
    Maker(policy, settings)  # refused now rather than after a long file is read
    counts = None if batches is None else _whole_numbers("--batches", batches, 2, min(horizon, max_rounds) - 1)
    source = _source(log, world, arms, features, ignore, arm, reward, round_column)
    columns = (SpinnerColumn(), TextColumn("{task.description:<19}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=told, disable=not told.is_terminal) as progress:
        made = plan(
            source,
            horizon=horizon,
            noise=noise,
            policy=policy,
            settings=settings,
            batches=counts,
            runs=runs,
            max_rounds=max_rounds,
            seed=seed,
            jobs=jobs or cores(),
            progress=_Stages(progress),
        )
    from rarely.lab.plan_report import write_plan

    paths = write_plan(made, out)
    told.print(made.text(), markup=False)
    told.print(f"files: {', '.join(escape(str(path)) for path in paths)}")


def _show_plan(path: Path) -> None:
    saved = read_plan(path)
    told.print(saved.text(), markup=False)
    if not saved.has_digest:
        told.print("without digest: version 0.1 wrote this plan; its numbers are plausible, but an edit would not show")


def _source(
    log: Path | None,
    world: str | None,
    arms: int | None,
    features: str | None,
    ignore: str | None,
    arm: str | None,
    reward: str | None,
    round_column: str | None,
) -> Log | World:
    """What to plan from, and a line that says how it was read."""
    if (log is None) == (world is None):
        raise InvalidInput("a plan needs one thing to plan from: a file, rarely plan log.csv, or --world cosine.")
    if log is None:
        assert world is not None
        if {arms, features, ignore, arm, reward, round_column} != {None}:
            raise InvalidInput(
                "--arms, --features, --ignore, --arm, --reward and --round are for a log; a world has its own."
            )
        return find_problem(world).world("standard", constant=True)
    names, left_out = (
        None if given is None else [name.strip() for name in given.split(",")] for given in (features, ignore)
    )
    read = Log.from_csv(
        log, arms=arms, features=names, arm=arm, reward=reward, round=round_column, ignore=left_out or ()
    )
    told.print(f"{escape(str(read))}: {escape(', '.join(read.names))}")
    return read


def _whole_numbers(name: str, given: str, least: int, most: int) -> list[int]:
    try:
        numbers = [int(number) for number in given.split(",")]
    except ValueError:
        raise InvalidInput(f"{name} must be whole numbers, as 4,8,16; got {given!r}.") from None
    if min(numbers) < least or max(numbers) > most:
        raise InvalidInput(f"{name} must lie between {least} and {most}, below the rounds simulated; got {given!r}.")
    return numbers


def _check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be written to, before what is to be written there takes its time."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise InvalidInput(f"--out names a folder; {there if there != folder.absolute() else folder} is a file.")
    if not os.access(there, os.W_OK):
        raise InvalidInput(f"--out must name a folder that can be written to; {there} cannot.")


class _Stages:
    """A bar for each stage of a plan on a terminal; elsewhere a line now and then."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.bars = progress, dict[str, TaskID]()
        self.start = self.said = 0.0

    def __call__(self, stage: str, done: int, of: int) -> None:
        if stage not in self.bars:
            self.bars[stage] = self.progress.add_task(stage)
            self.start = self.said = time.perf_counter()
        self.progress.update(self.bars[stage], completed=done, total=of)
        now = time.perf_counter()
        if not told.is_terminal and (done == of or (done > 0 and now - self.said > SECONDS_BETWEEN_LINES)):
            self.said = now
            left = f", about {_span((now - self.start) * (of - done) / done)} left" if done < of else ""
            told.print(f"{stage}: {100 * done // of} %{left}")


@app.command()
@guarded
def data(
    names: Annotated[list[str] | None, typer.Argument(help="mushroom, magic; both where none is named.")] = None,
    fetch_them: Annotated[bool, typer.Option("--fetch", help="Download what is not here.")] = False,
    path: Annotated[Path | None, typer.Option(help="Look here alone: a file, or the folder that holds it.")] = None,
) -> None:
    """List the UCI files, verify them, and fetch those that are missing.

    They are looked for in --path alone where it is given, else in the folder RARELY_DATA and in the cache. Exit code 1
    if one is missing.

    **Examples**

    - `rarely data` — what is here, verified, and where
    - `rarely data --fetch` — download the rest into the cache
    - `rarely data mushroom --path downloads/agaricus-lepiota.data` — is this the original?
    """
    missing = 0
    if path is not None and path.is_file() and not names:
        names = [dataset.name for dataset in DATASETS.values() if dataset.file == path.name]
        if not names:
            raise InvalidInput(f"which of {', '.join(DATASETS)} should {path} be? Name it: rarely data magic --path …")
    given = os.environ.get("RARELY_DATA") if path is None else None
    if given and not Path(given).exists():
        raise InvalidInput(f"RARELY_DATA names {given}, which does not exist.")
    for name in names or DATASETS:
        if name not in DATASETS:
            raise InvalidInput(f"no dataset is called {name!r}; there are {', '.join(DATASETS)}.")
        dataset = DATASETS[name]
        place = located(dataset, path)
        if place is None and fetch_them:
            place = _fetch(dataset)
        counts = ", ".join(f"{count} {label}" for label, count in dataset.counts)
        told.print(f"[bold]{name}[/bold]: {dataset.count} rows ({counts}), {dataset.source}")
        if place is None:
            told.print(f"  not here; rarely data {name} --fetch downloads it from {dataset.urls[0]}")
            missing += 1
        else:
            table = dataset.read(place)
            told.print(f"  verified, {table.rows.shape[1]} features: {escape(str(place))}")
    if missing:
        raise typer.Exit(1)


@app.command()
@guarded
def bench(
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
            told.print(f"[bold]{one.name}[/bold] ({one.when}): {escape(one.says)}")
        return
    for path in (json, save):
        if path is not None and not path.parent.is_dir():
            raise InvalidInput(f"{path} cannot be written: {path.parent} is no folder.")
    before = None if baseline is None else baselines.read(baseline)
    _say_loops()
    session = begin()
    session.skipped |= left_out
    told.print(heading(session), markup=False)
    interrupted = _measure(session, wanted)
    changes = baselines.compare(session.figures, before.figures if before else [], tolerance / 100)
    told.print(table(changes, against=before is not None), markup=False)
    for line in notes(session):
        told.print(f"- {line}", markup=False)
    if interrupted:
        complained.print("stopped; no file is written")
        raise typer.Exit(INTERRUPTED)
    if json is not None:
        baselines.write(json, session, changes if before else ())
    if save is not None:
        baselines.write(save, session)
    worse = _say_changes(session, before, changes, tolerance) if before else 0
    if worse or session.failed:
        raise typer.Exit(1)


@app.command()
@guarded
def doctor(
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
    from rarely.lab.doctor import as_json, examine, is_broken

    info, findings = build_info(), []
    for finding in examine(info, out):
        findings.append(finding)
        if not json:
            _say_finding(finding)
    if json:
        typer.echo(json_format.dumps(as_json(findings, info), indent=2))
    else:
        counts = Counter(finding.status for finding in findings)
        told.print(f"problems: {counts['problem']}, notes: {counts['note']}")
    if is_broken(findings):
        raise typer.Exit(1)


def _say_finding(finding: Finding) -> None:
    """A line with its mark; what to do stands below. On a terminal all of it is wrapped beside the mark."""
    colour = MARKS[finding.status]
    head, indent = f"[{colour}]{finding.status:<7}[/{colour}]  {finding.topic:<12}  ", 23 * " "
    width = max(30, told.width - len(indent)) if told.is_terminal else 10_000
    texts = (finding.says, finding.advice)
    first, *others = [line for text in texts for line in textwrap.wrap(text, width, break_on_hyphens=False)]
    told.print(head + escape(first))
    for line in others:
        told.print(indent + escape(line))


def _measure(session: Session, wanted: Sequence[Benchmark]) -> bool:
    """Run the benchmarks, shown in one line on a terminal and in plain lines elsewhere; whether Ctrl-C ended it."""
    from rarely.bench.table import valued

    # The line moves only when it is told to: a thread that refreshes it would be measured too.
    with Live(console=told, auto_refresh=False, transient=True) if told.is_terminal else nullcontext() as live:

        def show(text: str) -> None:
            if live is None:
                told.print(text, markup=False)
            else:
                live.update(Text(text), refresh=True)

        def started(benchmark: Benchmark) -> Tell:
            head = f"{wanted.index(benchmark) + 1} of {len(wanted)}: {benchmark.name}"
            show(head)
            return lambda text: show(f"{head}: {text}")

        def finished(benchmark: Benchmark, figures: Sequence[Figure]) -> None:
            for figure in figures:
                told.print(f"{figure.name}: [bold]{escape(valued(figure))}[/bold]")
            if benchmark.name in session.skipped:
                told.print(f"{benchmark.name} is skipped: {escape(session.skipped[benchmark.name])}")
            if benchmark.name in session.failed:
                complained.print(f"[red]failed:[/red] {benchmark.name}: {escape(session.failed[benchmark.name])}")

        try:
            measure(session, wanted, started=started, finished=finished)
        except KeyboardInterrupt:
            return True
    return False


def _say_changes(session: Session, before: Session, changes: Sequence[baselines.Change], tolerance: float) -> int:
    """What a comparison comes to; how many figures are worse."""
    for line in baselines.differences(session, before):
        told.print(escape(line))
    unmeasured = [change.name for change in changes if change.verdict == "not measured"]
    if unmeasured:
        told.print(f"in the baseline and not measured now: {', '.join(unmeasured)}")
    worse = [change.name for change in changes if change.verdict == "worse"]
    if worse:
        complained.print(f"[red]worse[/red] than the baseline by more than {tolerance:g} %: {', '.join(worse)}")
    else:
        told.print(f"nothing is worse than the baseline by more than {tolerance:g} %")
    return len(worse)


def _say_loops() -> None:
    """Which loops decide and train, as the first line of a command that takes its time; what to do if it is NumPy."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the line says the same
        native.in_use()  # raises where RARELY_COMPILED=1 and there are none
    info = build_info()
    if info.form == "numpy":
        told.print(
            f"rarely {info.rarely}: NumPy decides and trains, several times slower than compiled loops. "
            f"{escape(info.missing)} rarely doctor says more."
        )
    else:
        told.print(
            f"rarely {info.rarely}: compiled loops ({info.form}) decide and train. {escape(info.missing)}".strip()
        )


def _introduce(problem: Problem, rounds: int) -> None:
    """How a table of one's own was read."""
    if isinstance(problem.source, Table):
        rows, columns = problem.source.rows.shape
        classes = ", ".join(problem.source.classes)
        played = min(rounds, rows)
        fewer = f"; {played} rounds, for each row is played once" if played < rounds else ""
        told.print(
            f"{problem.name}: {rows} rows of {columns} columns (text coded as numbers in sorted order), "
            f"{len(problem.source.classes)} classes to choose between: {escape(classes)}{fewer}"
        )


def _engine(name: str, jobs: int | None, address: str | None) -> Engine:
    if name == "ray":
        from rarely.engines.ray_engine import RayEngine

        return RayEngine(jobs, address)
    assert jobs is not None
    return LocalEngine(jobs)


def _play(cells: Sequence[Cell], out: Path, engine: Engine, jobs: int | None, replace: bool) -> list[Result]:
    live = told.is_terminal
    left = _TimeLeft()
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description:<12}"),
        BarColumn(),
        TextColumn("{task.fields[done]:>5} of {task.fields[all]} cells"),
        TimeElapsedColumn(),
        left,
    )
    with (
        Progress(*columns, console=told, disable=not live) as progress,
        _Shown(progress, cells, jobs, left).telling(live) as shown,
    ):
        return reproduce(
            cells,
            out,
            engine,
            replace=replace,
            refused=lambda files: _complain(files, "cells asked for are played again, and their old files renamed"),
            started=shown.started,
            finished=shown.finished,
        )


class _TimeLeft(ProgressColumn):
    """The time that all problems together still take: their cells are played in turns, so they end together."""

    pace: Pace | None = None

    def render(self, task: Task) -> Text:
        return Text("" if self.pace is None or task.finished else _left(self.pace))


class _Shown:
    """A bar for each problem on a terminal; elsewhere a line, soon and then ever more rarely."""

    def __init__(self, progress: Progress, cells: Sequence[Cell], jobs: int | None, left: _TimeLeft) -> None:
        self.progress, self.jobs, self.left = progress, jobs, left
        self.cells = {cell.id: cell for cell in cells}
        self.bars: dict[str, TaskID] = {}
        self.pace = Pace(())
        self.count = self.all = 0
        self.started_it, self.over = threading.Event(), threading.Event()

    @contextmanager
    def telling(self, live: bool) -> Iterator[_Shown]:
        """Tell how far it is while the block lasts, where there is no terminal."""
        if live:
            yield self
            return
        teller = threading.Thread(target=self._tell, daemon=True)
        teller.start()
        try:
            yield self
        finally:
            self.over.set()
            self.started_it.set()
            teller.join()

    def started(self, todo: Sequence[Cell]) -> None:
        self.all = len(todo)
        self.left.pace = self.pace = Pace(todo, self.jobs)
        kept = len(self.cells) - len(todo)
        told.print(
            f"{len(todo)} cells to play (a cell is one configuration on one run)"
            + (f", {kept} on record already" if kept else "")
            + ("; the first of each kind show how long this machine takes" if todo else "")
        )
        for problem in dict.fromkeys(cell.problem.name for cell in todo):
            mine = [cell for cell in todo if cell.problem.name == problem]
            self.bars[problem] = self.progress.add_task(problem, total=sum(map(cost, mine)), done=0, all=len(mine))
        self.started_it.set()

    def finished(self, result: Result) -> None:
        cell = self.cells[result.id]
        bar = self.bars[cell.problem.name]
        self.count += 1
        self.pace.finished(cell, None if result.record is None else result.record.data["wall"])
        done = self.progress.tasks[self.progress.task_ids.index(bar)].fields["done"] + 1
        self.progress.update(bar, advance=cost(cell), done=done)

    def _tell(self) -> None:
        self.started_it.wait()
        wait = FIRST_LINE
        while not self.over.wait(wait):
            told.print(f"{self.count} of {self.all} cells after {_span(self.pace.elapsed)}; {_left(self.pace)}")
            wait = min(2 * wait, LAST_WAIT)
        if self.count:
            told.print(f"{self.count} of {self.all} cells in {_span(self.pace.elapsed)}")


def _left(pace: Pace) -> str:
    """The time left in words; an estimate from some kinds of cells is rougher than one from all."""
    seconds = pace.seconds_left()
    if seconds is None:
        return "the time left is known when the first are done"
    return f"{'about' if pace.known else 'roughly'} {_span(seconds)} left"


def _complain(refused: Sequence[Refusal], consequence: str) -> None:
    """How many files are refused, which, and why."""
    files = "1 file" if len(refused) == 1 else f"{len(refused)} files"
    complained.print(f"[red]refused:[/red] {files} in records; {consequence}")
    for file in refused[:MOST_NAMED]:
        complained.print(escape(f"  {file}"))
    if len(refused) > MOST_NAMED:
        complained.print(f"  and {len(refused) - MOST_NAMED} more")


def _report(out: Path) -> Report:
    told.print(f"making the report of {escape(str(out))}")
    from rarely.lab.report import write_report

    columns = (TextColumn("figures     "), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=told, transient=True, disable=not told.is_terminal) as progress:
        bar = progress.add_task("figures")

        def drawn(done: int, of: int) -> None:
            if done == 1 and not told.is_terminal:
                told.print(f"drawing {of} figures")
            progress.update(bar, completed=done, total=of)

        written = write_report(out, drawn)
    path, judged = written.path, written.judged
    if written.refused:
        _complain(written.refused, "the report leaves them out and says so")
    if written.without_digest:
        told.print(
            f"without digest: {written.without_digest} of {written.records} records, written by version 0.1; their "
            "numbers are plausible, but an edit would not show"
        )
    lengths = sorted({j.rounds for j in judged} - {PRINTED_ROUNDS})
    if lengths:
        told.print(f"T = {', '.join(map(str, lengths))} here; the paper's claims are about T = {PRINTED_ROUNDS}")
    for preset in dict.fromkeys(j.preset for j in judged):
        told.print(f"{preset}: {tally([j for j in judged if j.preset == preset])}")
    told.print(f"report: [bold]{escape(str(path))}[/bold]")
    return written


def _span(seconds: float) -> str:
    """A time in words of the right size."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _fetch(dataset: Dataset) -> Path:
    with Progress(console=told, transient=True, disable=not told.is_terminal) as progress:
        bar = progress.add_task(f"fetching {dataset.file}", total=dataset.size)
        return fetch(dataset, lambda done, of: progress.update(bar, completed=done, total=of))


def _version(wanted: bool) -> None:
    if wanted:
        told.print(__version__)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which.")] = False,
) -> None:
    """Contextual bandits that decide often and retrain rarely."""
