"""`rarely advise`: which policy suits a log of decisions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from rich.markup import escape
from typer import Option

from rarely._cli import evaluate
from rarely.console import Stages, console, guarded_by, import_modules, say_loops
from rarely.errors import InvalidInput
from rarely.planning.advice import MAX_HORIZON, Advice, improving
from rarely.planning.simulate import CANDIDATES, NAMED
from rarely.runs.files import check_folder, make_folder, write_file

POLICIES = (
    f"{', '.join(NAMED)}, a saved policy, or your own as module:name; may be repeated. By default the first "
    f"{len(CANDIDATES)}."
)


@guarded_by("Interrupted. What is written so far is an answer, if there are files.")
@evaluate.with_columns
def advise_command(
    log: Annotated[Path, evaluate.LogFile],
    columns: dict[str, Any],
    round_column: evaluate.Round = None,
    arms: evaluate.Arms = None,
    policy: Annotated[list[str] | None, Option(help=POLICIES)] = None,
    horizon: Annotated[int | None, Option(min=1, help="Decisions to come; else as many as the log has.")] = None,
    batches: Annotated[int, Option(min=2, help="Versions of a policy, the first included.")] = 20,
    runs: Annotated[int, Option(min=3, help="Simulated runs.")] = 10,
    seconds: Annotated[float | None, Option(help="Begin no other run after so many.")] = None,
    seed: Annotated[int, Option(min=0, help="Of everything that is drawn.")] = 0,
    out: Annotated[Path, Option(help="The folder for advice.txt and .json, written anew with every run.")] = Path(
        "advice"
    ),
) -> None:
    """Say which policy suits a log of decisions: by replay, by simulation, and at what cost; or that it cannot tell.

    Columns may be text, dates and numbers with gaps. The probability of the chosen arm makes the answer surer.

    **Examples**

    - `rarely advise log.csv --arm offer --reward bought --probability p` — the default, LinUCB and LinTS
    - `rarely advise log.csv --arm page --reward minutes --ignore id,time --horizon 1000 --seconds 60`
    - `rarely advise log.csv --arm page --reward read --policy default --policy mine:Policy` — and one of your own
    """
    say_loops()
    check_folder(out)
    import_modules([name.partition(":")[0] for name in policy or () if ":" in name])
    encoder = "auto" if columns["arm"] or columns["reward"] or round_column else None
    past = evaluate.read_log_file(log, columns | {"round": round_column, "arm_count": arms, "encoder": encoder})
    if horizon is not None and horizon > MAX_HORIZON:
        console.print(f"simulated at {MAX_HORIZON} of {horizon} rounds")
    made: Advice | None = None
    with Stages("reading") as stages:
        settings: dict[str, Any] = {"runs": runs, "seconds": seconds, "seed": seed}
        for answer in improving(past, policy, horizon=horizon, batches=batches, progress=stages, **settings):
            if made is None:
                make_folder(out)
                console.print(f"first answer, of short runs: {answer.sentence}", markup=False)
            made = answer
            write_file(out / "advice.json", json.dumps(made.describe(), indent=1, ensure_ascii=False) + "\n")
            write_file(out / "advice.txt", f"{made}\n")
    if made is None:
        raise InvalidInput("no run was played; ask for more --seconds.")
    console.print(str(made), markup=False)
    console.print(f"files: {escape(str(out / 'advice.txt'))}, {escape(str(out / 'advice.json'))}")
