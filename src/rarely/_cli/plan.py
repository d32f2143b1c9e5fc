"""`rarely plan`: how many updates, where, and what it costs to have fewer."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from typer import Option

from rarely._cli import evaluate
from rarely.console import Jobs, Stages, console, guarded_by, import_modules, say_loops, whole_numbers
from rarely.errors import InvalidInput
from rarely.logs import DecisionLog
from rarely.planning import plan_trial
from rarely.planning.planner import MAX_ROUNDS, improving_plan
from rarely.planning.simulate import Maker
from rarely.planning.trial import Trouble
from rarely.runs.files import check_folder
from rarely.runs.machine import cores
from rarely.worlds import World, find_world

NEEDED = ("loky", "matplotlib", "jinja2")
"""What simulates side by side, draws and writes: looked for before the work, not at its end."""
WorldOption = Annotated[str | None, Option(help="A world by its name instead: cosine, digits, wheel-0.95, …")]
NoiseOption = Annotated[float | None, Option(min=0.0, help="Deviation of a reward; else as the log suggests.")]
PolicyOption = Annotated[
    str | None,
    Option(
        help="The policy that you will run: default, LinUCB, LinTS, ensemble, a saved one, or your own as module:name; "
        "with --trial, LinTS, or several to compare, as LinTS,equal,thall-wathen,square-root."
    ),
]
TRIAL_OPTIONS = ("noise", "spending", "level", "comparisons", "effect", "least", "burn_in", "seed", *Trouble._fields)
"""Options of a trial that mean what they mean in `plan_trial`."""
TrialOption = Annotated[
    str | None,
    Option(help="Mean rewards of a trial's arms, the control arm first, as 0.35,0.5: plan patients and looks."),
]


@guarded_by("Interrupted. What is written so far is a plan, if there are files.")
@evaluate.with_columns
def plan_command(
    context: typer.Context,
    columns: dict[str, Any],
    log: Annotated[Path | None, evaluate.LogFile] = None,
    world: WorldOption = None,
    horizon: Annotated[int, Option(min=1, help="Rounds T to plan for.")] = MAX_ROUNDS,
    arms: Annotated[int | None, Option(min=1, help="Arms K, where the log does not tell.")] = None,
    encode: evaluate.Encode = False,
    round_column: evaluate.Round = None,
    noise: NoiseOption = None,
    policy: PolicyOption = None,
    hidden: Annotated[int | None, Option(min=2, help="Its hidden units, if it is to be a network.")] = None,
    steps: Annotated[int | None, Option(min=1, help="Its steps of a training, if it is a network.")] = None,
    ridge: Annotated[float | None, Option(help="Its λ, if that is not to be learned.")] = None,
    schedules: Annotated[str, Option(help="Of paced, fixed, geometric and adaptive those to try.")] = "paced,fixed",
    batches: Annotated[str | None, Option(help="Values of B to simulate, as 4,8,16; else 2, 4, 8, …")] = None,
    runs: Annotated[int | None, Option(min=1, help="Runs of each schedule (20), or trials (200).")] = None,
    max_rounds: Annotated[int, Option(min=1, help="Longer horizons are simulated so long.")] = MAX_ROUNDS,
    trial: TrialOption = None,
    power: Annotated[float | None, Option(help="With --trial: the wanted power (0.8).")] = None,
    width: Annotated[float | None, Option(help="With --trial: the wanted width of the last interval.")] = None,
    patients: Annotated[str | None, Option(help="With --trial: sizes to simulate, as 400,800.")] = None,
    looks: Annotated[str, Option(help="With --trial: numbers of looks, as 2,5.")] = "5",
    spending: Annotated[str, Option(help="With --trial: obrien-fleming or pocock.")] = "obrien-fleming",
    level: Annotated[float, Option(help="With --trial: 1 less the error of all looks.")] = 0.95,
    comparisons: Annotated[str, Option(help="With --trial: holm, ordered or each, for several arms.")] = "holm",
    effect: Annotated[float | None, Option(help="With --trial: a difference that matters; futile arms close.")] = None,
    least: Annotated[float, Option(help="With --trial: the allocation limit after the burn-in.")] = 0.1,
    burn_in: Annotated[float, Option(help="With --trial: the share of patients given any arm alike.")] = 0.2,
    late: Annotated[float, Option(help="With --trial: after how many further patients a reward comes.")] = 0,
    lost: Annotated[float, Option(help="With --trial: the share of rewards that never come.")] = 0.0,
    drift: Annotated[float, Option(help="With --trial: by how much means move from first to last patient.")] = 0.0,
    accrual: Annotated[float | None, Option(help="With --trial: patients in a unit of time, that of --late.")] = None,
    prognosis: Annotated[float, Option(help="With --trial: by how much a covariate of ±1 moves means.")] = 0.0,
    seed: Annotated[int, Option(min=0, help="The same seed gives the same plan.")] = 0,
    jobs: Jobs = None,
    out: Annotated[Path, Option(help="The folder for plan.html, .svg and .json.")] = Path("plan"),
) -> None:
    """Plan, before the first round, how many updates you need, when, and what fewer of them cost.

    Simulates your policy under schedules, on rewards fitted to the log. The files are written soon and get better.

    **Examples**

    - `rarely plan log.csv --arm page --reward minutes --horizon 5000 --out plan` — with rewards
    - `rarely plan log.csv --features age,hour,score --arm page --reward minutes` — some columns
    - `rarely plan log.csv --ignore id,time --arm page --reward minutes` — all columns but some
    - `rarely plan offers.csv --round visit --reward paid` — each arm with its own row
    - `rarely plan decisions.dsjson` — a log of Vowpal Wabbit
    - `rarely plan --world cosine --horizon 1000 --runs 3` — a world of rarely.worlds
    - `rarely plan --trial 0.35,0.5 --power 0.8 --looks 2,5` — patients and looks of a trial, the control arm first
    - `rarely plan --trial 0.3,0.3 --patients 600 --late 40 --lost 0.1 --drift 0.2` — its errors, if nothing works
    """
    if lacking := [name for name in NEEDED if find_spec(name) is None]:
        raise InvalidInput(f"rarely plan needs {', '.join(lacking)}: pip install 'rarely[plan]'.")
    say_loops()
    check_folder(out)
    made, paths = (_plan_updates if trial is None else _plan_trial)(
        columns=columns, **context.params | {"log": log, "out": out}
    )
    console.print(made, markup=False)
    console.print(f"files: {', '.join(escape(str(path)) for path in paths)}")


def _plan_updates(
    columns: dict[str, Any], horizon: int, batches: str | None, out: Path, **options: Any
) -> tuple[str, list[Path]]:
    named = {"hidden": options["hidden"], "training": options["steps"], "ridge": options["ridge"]}
    settings = {name: value for name, value in named.items() if value is not None}
    policy = options["policy"] or "default"
    import_modules([policy.partition(":")[0]] if ":" in policy else [])
    Maker(policy, settings)  # refused now rather than after a long file is read
    most = min(horizon, options["max_rounds"]) - 1
    counts = None if batches is None else whole_numbers("--batches", batches, 2, most)
    columns |= {"round": options["round_column"], "arm_count": options["arms"]}
    coded = options["encode"] or columns["arm"] or columns["reward"] or columns["round"]
    source = _source(options["log"], options["world"], columns | {"encoder": "auto" if coded else None})
    from rarely.planning.report import write_plan

    paths: list[Path] = []
    with Stages("reading") as stages:
        for made in improving_plan(
            source,
            horizon=horizon,
            policy=policy,
            settings=settings,
            batches=counts,
            kinds=options["schedules"].split(","),
            runs=options["runs"] or 20,
            jobs=options["jobs"] or cores(),
            progress=stages,
            **{name: options[name] for name in ("noise", "max_rounds", "seed")},
        ):
            if not paths:
                console.print(f"first answer, of short runs: {made.headline()}", markup=False)
            paths = write_plan(made, out)
    return made.text(), paths


def _plan_trial(trial: str, power: float | None, width: float | None, out: Path, **options: Any) -> Any:
    if options["log"] is not None or options["world"] is not None:
        raise InvalidInput("--trial is simulated from its mean rewards: give no log and no --world with it.")
    try:
        means = [float(mean) for mean in trial.split(",")]
    except ValueError:
        raise InvalidInput(f"--trial must be mean rewards, as 0.35,0.5; got {trial!r}.") from None
    policies: Any = (options["policy"] or "LinTS").split(",")
    with Stages("trials") as stages:
        made = plan_trial(
            means,
            power=0.8 if power is None and width is None else power,
            width=width,
            patients=None if options["patients"] is None else whole_numbers("--patients", options["patients"], 10),
            looks=whole_numbers("--looks", options["looks"]),
            policy=policies,
            runs=options["runs"] or 200,
            progress=stages,
            **{name: options[name] for name in TRIAL_OPTIONS},
        )
    from rarely.planning.report import write_plan

    return str(made), write_plan(made, out)


def _source(log: Path | None, world: str | None, columns: dict[str, Any]) -> DecisionLog | World:
    """Return what to plan from, and print how it was read."""
    if (log is None) == (world is None):
        raise InvalidInput("a plan needs one thing to plan from: a file, rarely plan log.csv, or --world cosine.")
    if log is not None:
        return evaluate.read_log_file(log, columns)
    assert world is not None
    if set(columns.values()) != {None}:
        raise InvalidInput(
            "--arms, --features, --ignore, --arm, --reward, --probability, --round, --id and --time are for a log; a "
            "world has none."
        )
    if "+" in world:
        raise InvalidInput(f"a plan is for a world that stays as it is; name {world.partition('+')[0]} itself.")
    return find_world(world)
