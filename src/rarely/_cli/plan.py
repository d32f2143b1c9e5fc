"""`rarely plan`: how many updates, where, and what it costs to have fewer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from rarely._cli.console import Jobs, console, guarded_by, say_loops
from rarely._cli.log_file import Arm, Features, Id, Ignore, LogFile, Reward, Round, Time, read_log_file
from rarely._cli.progress import show_stages
from rarely._core.errors import InvalidInput
from rarely._reproduce.catalogue import find_problem
from rarely._runs.provenance import cores
from rarely._runs.writing import check_folder
from rarely.logs import DecisionLog
from rarely.planning import plan, read_plan
from rarely.planning.planner import MAX_ROUNDS
from rarely.planning.simulate import Maker, PolicyName
from rarely.worlds import World

WorldOption = Annotated[
    str | None, typer.Option(help="A world of the laboratory instead: cosine, magic, sklearn:digits, …")
]
NoiseOption = Annotated[
    float | None, typer.Option(min=0.0, help="Standard deviation of a reward; by default as the log suggests.")
]
PolicyOption = Annotated[
    PolicyName,
    typer.Option(
        help="The policy that is simulated: neural, a plain network; default, which tunes itself and takes "
        "several times as long; linear."
    ),
]
ShowOption = Annotated[
    Path | None, typer.Option(help="Print the advice of a plan.json made before, if nobody changed it.")
]


@guarded_by(
    "Interrupted. The plan is not finished; the runs that are finished are saved, and the same command resumes."
)
def plan_command(
    log: Annotated[Path | None, LogFile] = None,
    world: WorldOption = None,
    horizon: Annotated[int, typer.Option(min=1, help="Rounds T to plan for.")] = MAX_ROUNDS,
    arms: Annotated[int | None, typer.Option(min=1, help="Arms K, where the log does not tell.")] = None,
    features: Features = None,
    ignore: Ignore = None,
    arm: Arm = None,
    reward: Reward = None,
    round_column: Round = None,
    id_column: Id = None,
    time_column: Time = None,
    noise: NoiseOption = None,
    policy: PolicyOption = "neural",
    hidden: Annotated[int | None, typer.Option(min=2, help="Its hidden units (neural 64, default 200).")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Its steps of a training, if neural (100).")] = None,
    ridge: Annotated[float | None, typer.Option(help="Its λ (0.01; linear 1).")] = None,
    batches: Annotated[str | None, typer.Option(help="Values of B to simulate, as 4,8,16; else 2, 4, 8, …")] = None,
    runs: Annotated[int, typer.Option(min=1, help="Runs of each schedule; below 5 nothing is sure.")] = 5,
    max_rounds: Annotated[int, typer.Option(min=1, help="Longer horizons are simulated so long.")] = MAX_ROUNDS,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same plan.")] = 0,
    jobs: Jobs = None,
    out: Annotated[Path, typer.Option(help="The folder for plan.html, plan.md, plan.svg and plan.json.")] = Path(
        "plan"
    ),
    show: ShowOption = None,
) -> None:
    """Plan, before the first round, how many updates you need, when, and what fewer of them cost.

    Measures the effective dimension of the log's contexts, and simulates fixed, geometric and adaptive schedules on
    rewards fitted to the log; on imagined ones where it has none. Says where it extrapolates.

    **Examples**

    - `rarely plan log.csv --arms 4 --horizon 5000` — contexts alone, rewards imagined
    - `rarely plan log.csv --arm page --reward minutes --horizon 5000 --out plan` — with rewards
    - `rarely plan log.csv --features age,hour,score --arm page --reward minutes` — some columns
    - `rarely plan log.csv --ignore id,time --arm page --reward minutes` — all columns but some
    - `rarely plan offers.csv --round visit --reward paid` — each arm with its own row
    - `rarely plan decisions.dsjson` — a log of Vowpal Wabbit, or of Open Bandit
    - `rarely plan --world cosine --horizon 1000 --runs 3` — a world of the laboratory
    - `rarely plan --show plan/plan.json` — what an earlier plan said
    """
    if show is not None:
        console.print(read_plan(show).text(), markup=False)
        return
    say_loops()
    check_folder(out)
    given = {"hidden": hidden, "training": steps, "ridge": ridge}
    settings = {name: value for name, value in given.items() if value is not None}
    Maker(policy, settings)  # refused now rather than after a long file is read
    counts = None if batches is None else _whole_numbers("--batches", batches, 2, min(horizon, max_rounds) - 1)
    columns = {"arm_count": arms, "context": features, "ignore": ignore, "arm": arm, "reward": reward}
    source = _source(log, world, columns | {"round": round_column, "id": id_column, "time": time_column})
    with show_stages("reading") as stages:
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
            resume=out / "unfinished",
        )
    from rarely.planning.report import write_plan

    paths = write_plan(made, out)
    console.print(made.text(), markup=False)
    console.print(f"files: {', '.join(escape(str(path)) for path in paths)}")


def _source(log: Path | None, world: str | None, columns: dict[str, Any]) -> DecisionLog | World:
    """Return what to plan from, and print how it was read."""
    if (log is None) == (world is None):
        raise InvalidInput("a plan needs one thing to plan from: a file, rarely plan log.csv, or --world cosine.")
    if log is not None:
        return read_log_file(log, columns)
    assert world is not None
    if set(columns.values()) != {None}:
        raise InvalidInput(
            "--arms, --features, --ignore, --arm, --reward, --round, --id and --time are for a log; a world has none."
        )
    return find_problem(world).world("standard", constant=True)


def _whole_numbers(name: str, given: str, least: int, most: int) -> list[int]:
    try:
        numbers = [int(number) for number in given.split(",")]
    except ValueError:
        raise InvalidInput(f"{name} must be whole numbers, as 4,8,16; got {given!r}.") from None
    if min(numbers) < least or max(numbers) > most:
        raise InvalidInput(f"{name} must lie between {least} and {most}, below the rounds simulated; got {given!r}.")
    return numbers
