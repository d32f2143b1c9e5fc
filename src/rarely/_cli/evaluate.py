"""`rarely evaluate`: what other policies would have earned in the rounds of a log; and how a command reads one."""

from __future__ import annotations

import csv
import json
import warnings
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from rich.markup import escape
from typer import Argument, Option

from rarely import ArmBlocks, FramePolicy, Policy, load
from rarely.console import console, error_console, given, guarded_by
from rarely.errors import ContextsWarning, InvalidInput
from rarely.logs import DecisionLog, read_log
from rarely.offpolicy import evaluate
from rarely.offpolicy.estimates import Estimator

LogFile = Argument(help="A table (CSV, Parquet, JSON lines), or a log of Vowpal Wabbit or Open Bandit.")
Encode = Annotated[bool, Option("--encode", help="Code text, dates and gaps of the features as numbers.")]
Round = Annotated[str | None, Option("--round", help="The column of rounds, if each arm has its own row.")]
Arms = Annotated[int | None, Option(min=2, help="Arms K, if more than the log names.")]


def log_columns(
    arm: Annotated[str | None, Option(help="The column with the chosen arm.")] = None,
    reward: Annotated[str | None, Option(help="The column with the reward, empty where unknown.")] = None,
    probability: Annotated[str | None, Option(help="The column with the chosen arm's probability.")] = None,
    features: Annotated[str | None, Option(help='Columns of features, as a,b,"c, d"; else all others.')] = None,
    ignore: Annotated[str | None, Option(help="Columns to leave out, as id,time: unknown before the decision.")] = None,
    id: Annotated[str | None, Option(help="The column that names rounds; repeated rows are dropped.")] = None,
    time: Annotated[str | None, Option(help="The column of times; rows are put in their order.")] = None,
    drop_unknown: Annotated[bool, Option("--drop-unknown", help="Leave out rows of no probability; counted.")] = False,
) -> dict[str, Any]:
    """Return the columns that the options of a command name, as `read_log` takes them."""
    lists = {"context": features, "ignore": ignore}
    columns: dict[str, Any] = {"arm": arm, "reward": reward, "probability": probability, "id": id, "time": time}
    columns |= {name: text if text is None else _named(text) for name, text in lists.items()}
    return columns | {"drop_unknown": drop_unknown or None}


def _named(text: str) -> list[str]:
    """Return columns as CSV has them, in quotes where a name has a comma.

    >>> _named('age, "unit, old"')
    ['age', 'unit, old']
    """
    return [each.strip() for row in csv.reader([text], skipinitialspace=True) for each in row] or [text]


with_columns = given(columns=log_columns)


@guarded_by("Interrupted. Nothing was written.")
@with_columns
def evaluate_command(
    log: Annotated[Path, LogFile],
    columns: dict[str, Any],
    encode: Encode = False,
    arms: Arms = None,
    policy: Annotated[Path | None, Option(help="A saved policy to judge as well.")] = None,
    blocks: Annotated[Path | None, Option(help="JSON of ArmBlocks that make the policy's contexts of a row.")] = None,
    estimator: Annotated[Estimator | None, Option(help="By default all three.")] = None,
    level: Annotated[float, Option(help="How often an interval is to hold the truth.")] = 0.95,
    reward_range: Annotated[tuple[float, float] | None, Option(help="Where rewards lie, as 0 5, if rare.")] = None,
    as_json: Annotated[bool, Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Estimate from a log what each arm, all arms alike, the log's own rule and a saved policy would have earned.

    Rewards are weighed by the probabilities with which the arms were drawn: IPS, SNIPS and doubly robust, each with an
    interval, with the gain over the log's own rule, and with notes on what to know before trusting it.

    **Examples**

    - `rarely evaluate log.csv --arm offer --reward bought --probability p` — all other columns are features
    - `rarely evaluate log.parquet --arm offer --reward paid --probability p --features age,hour --id visit --time date`
    - `rarely evaluate live.csv --policy policy.rarely` — a log of write_log, and a policy for its contexts
    - `rarely evaluate log.csv --arm page --reward read --probability p --policy policy.rarely --blocks arms.json`
    - `rarely evaluate decisions.dsjson` — a log of Vowpal Wabbit; `obd/random/all/all.csv` of Open Bandit
    """
    judged = None if policy is None else load(policy)
    encoder = judged.users if isinstance(judged, FramePolicy) else "auto" if encode else None
    read = past = read_log_file(log, columns | {"arm_count": arms, "encoder": encoder}, quiet=as_json)
    if blocks is not None:
        try:
            described = json.loads(blocks.read_text(encoding="utf-8"))
            make = replace(ArmBlocks.from_description(described.get("blocks", described)), columns=None)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise InvalidInput(f"{blocks} must be JSON of ArmBlocks, as describe() gives it; {error!r}.") from None
        rest: dict[str, Any] = {"propensities": past.propensities, "arm_names": past.arm_names, "rows": past.rows}
        past = DecisionLog.from_arrays(make(past.rows), past.arms, past.rewards, **rest)
    elif isinstance(judged, Policy) and not past.contexts.shape[2]:
        raise InvalidInput("all arms of this log share a row; give --blocks, which make the policy's contexts of it.")
    targets = {} if policy is None else {policy.name: judged}
    estimators = get_args(Estimator) if estimator is None else (estimator,)
    made = evaluate(past, targets, estimators=estimators, level=level, reward_range=reward_range)
    if as_json:
        remarks = [asdict(remark) for remark in read.remarks]
        typer.echo(json.dumps({"rounds": len(past), "remarks": remarks, "estimates": made.describe()}))
    else:
        console.print(str(made), markup=False)


def read_log_file(path: Path, columns: dict[str, Any], *, quiet: bool = False) -> DecisionLog:
    """Return the log of a file, and print how it was read, unless `quiet`, and what looked odd."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ContextsWarning)  # printed below
        log = read_log(path, **columns)
    if not quiet:
        rewards = len(log.known_rewards()[2])
        console.print(
            f"{escape(str(path))}: {len(log)} rounds, {log.arm_count} arms, {rewards or 'no'} rewards, "
            f"{len(log.names)} features: {escape(', '.join(log.names[:20]))}{', …' if len(log.names) > 20 else ''}"
        )
    for remark in log.remarks:
        error_console.print(f"[yellow]warning:[/yellow] {escape(str(remark))}")
    return log
