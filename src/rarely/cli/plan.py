"""`rarely plan`: how many updates, where, and what it costs to have fewer."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from rarely.cli.console import console, guarded_by, say_loops, span, telling
from rarely.core.errors import InvalidInput
from rarely.experiments.problems import find_problem
from rarely.logs.planning_log import Log
from rarely.planning.planner import MAX_ROUNDS, plan
from rarely.planning.saved_plan import read_plan
from rarely.planning.simulate import Maker, PolicyName
from rarely.simulation.provenance import cores
from rarely.simulation.writing import check_folder
from rarely.worlds import World

UNFINISHED = "unfinished.jsonl"
"""Simulated runs of a plan that is not finished."""


@guarded_by(
    "Interrupted. The plan is not finished; the runs that are finished are saved, and the same command resumes."
)
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
            help="The policy that is simulated: neural, a plain network; default, which tunes itself and takes "
            "several times as long; linear."
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
    out: Annotated[Path, typer.Option(help="The folder for plan.html, plan.md, plan.svg and plan.json.")] = Path(
        "plan"
    ),
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
    say_loops()
    check_folder(out)
    given = {"hidden": hidden, "training": steps, "ridge": ridge}
    settings = {name: value for name, value in given.items() if value is not None}
    Maker(policy, settings)  # refused now rather than after a long file is read
    counts = None if batches is None else _whole_numbers("--batches", batches, 2, min(horizon, max_rounds) - 1)
    source = _source(log, world, arms, features, ignore, arm, reward, round_column)
    columns = (SpinnerColumn(), TextColumn("{task.description:<19}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        stages = _Stages(progress)
        with telling(stages.line):
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
                progress=stages,
                resume=out / UNFINISHED,
            )
    from rarely.planning.report import write_plan

    paths = write_plan(made, out)
    console.print(made.text(), markup=False)
    console.print(f"files: {', '.join(escape(str(path)) for path in paths)}")


def _show_plan(path: Path) -> None:
    saved = read_plan(path)
    console.print(saved.text(), markup=False)
    if not saved.has_digest:
        console.print(
            "without digest: version 0.1 wrote this plan; its numbers are plausible, but an edit would not show"
        )


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
    console.print(f"{escape(str(read))}: {escape(', '.join(read.names))}")
    return read


def _whole_numbers(name: str, given: str, least: int, most: int) -> list[int]:
    try:
        numbers = [int(number) for number in given.split(",")]
    except ValueError:
        raise InvalidInput(f"{name} must be whole numbers, as 4,8,16; got {given!r}.") from None
    if min(numbers) < least or max(numbers) > most:
        raise InvalidInput(f"{name} must lie between {least} and {most}, below the rounds simulated; got {given!r}.")
    return numbers


class _Stages:
    """A bar for each stage of a plan on a terminal; elsewhere a line for each that ends, and every ten seconds."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.bars = progress, dict[str, TaskID]()
        self.stage, self.done, self.of, self.start = "reading", 0, 0, time.perf_counter()

    def __call__(self, stage: str, done: int, of: int) -> None:
        if stage not in self.bars:
            self.bars[stage] = self.progress.add_task(stage)
            self.start = time.perf_counter()
        self.stage, self.done, self.of = stage, done, of
        self.progress.update(self.bars[stage], completed=done, total=of)
        if not console.is_terminal and done == of:
            console.print(self.line())

    def line(self) -> str:
        """How far the present stage is."""
        if not self.of:
            return self.stage
        taken = time.perf_counter() - self.start
        left = f", about {span(taken * (self.of - self.done) / self.done)} left" if 0 < self.done < self.of else ""
        return f"{self.stage}: {100 * self.done // self.of} %{left}"
