"""`rarely evaluate`: what other policies would have earned in the rounds of a log."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from rarely import ArmBlocks, load
from rarely._cli.console import console, guarded_by
from rarely._cli.log_file import Arm, Encode, Features, Id, Ignore, LogFile, Probability, Reward, Time, read_log_file
from rarely._core.errors import InvalidInput
from rarely.logs import DecisionLog
from rarely.offpolicy import evaluate
from rarely.offpolicy.estimates import Estimator

Blocks = Annotated[Path | None, typer.Option(help="JSON of the ArmBlocks that make the policy's contexts of a row.")]
Range = Annotated[tuple[float, float] | None, typer.Option(help="Where rewards lie, as 0 5; for rare rewards.")]


@guarded_by("Interrupted. Nothing was written.")
def evaluate_command(
    log: Annotated[Path, LogFile],
    arm: Arm = None,
    reward: Reward = None,
    probability: Probability = None,
    features: Features = None,
    ignore: Ignore = None,
    encode: Encode = False,
    id_column: Id = None,
    time_column: Time = None,
    arms: Annotated[int | None, typer.Option(min=2, help="Arms K, if more than the log names.")] = None,
    policy: Annotated[Path | None, typer.Option(help="A saved policy to judge as well.")] = None,
    blocks: Blocks = None,
    estimator: Annotated[Estimator | None, typer.Option(help="By default all three.")] = None,
    level: Annotated[float, typer.Option(help="How often an interval is to hold the truth.")] = 0.95,
    reward_range: Range = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
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
    columns: dict[str, Any] = {"arm": arm, "reward": reward, "probability": probability, "context": features}
    columns |= {"ignore": ignore, "id": id_column, "time": time_column, "arm_count": arms}
    columns |= {"encoder": "auto" if encode else None}
    read = past = read_log_file(log, columns, quiet=as_json)
    if blocks is not None:
        try:
            described = json.loads(blocks.read_text(encoding="utf-8"))
            make = replace(ArmBlocks.from_description(described.get("blocks", described)), columns=None)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise InvalidInput(f"{blocks} must be JSON of ArmBlocks, as describe() gives it; {error!r}.") from None
        known: dict[str, Any] = {"propensities": past.propensities, "arm_names": past.arm_names, "rows": past.rows}
        past = DecisionLog.from_arrays(make(past.rows), past.arms, past.rewards, **known)
    elif policy is not None and not past.contexts.shape[2]:
        raise InvalidInput("all arms of this log share a row; give --blocks, which make the policy's contexts of it.")
    targets = {} if policy is None else {policy.name: load(policy)}
    estimators = get_args(Estimator) if estimator is None else (estimator,)
    made = evaluate(past, targets, estimators=estimators, level=level, reward_range=reward_range)
    if as_json:
        remarks = [asdict(remark) for remark in read.remarks]
        typer.echo(json.dumps({"rounds": len(past), "remarks": remarks, "estimates": made.describe()}))
    else:
        console.print(str(made), markup=False)
