"""`rarely study`: the four verbs, and what keeps a study honest."""

from __future__ import annotations

import json as json_format
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from rarely.cli.console import console, error_console, guarded_by, say_finding
from rarely.cli.storage import Storage
from rarely.core.errors import InvalidInput, RarelyError

if TYPE_CHECKING:
    from rarely.study import Study

study_app = typer.Typer(
    help="Decisions that last: every decision, reward and version is on record before it is answered.",
    epilog="Start with: rarely study create sqlite:///trial.db colours --arms red,blue --dim 2 --rounds 1000",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
Name = Annotated[str | None, typer.Option("--name", "-n", help="Which study, where there are several.")]
Actor = Annotated[str, typer.Option(help="Who does it; on record.")]
Reason = Annotated[str, typer.Option(help="Why; on record.")]
guarded = guarded_by("stopped; what was answered is on record")
TOGETHER = 100
"""Lines of standard input that share a commit."""


def opened(storage: str, name: str | None, *, lazy: bool = False) -> Study:
    """The study of a command."""
    from rarely.study import Study

    return Study.open(storage, name, lazy=lazy)


def say(value: Any) -> None:
    """One line of JSON."""
    typer.echo(json_format.dumps(value, ensure_ascii=False, allow_nan=False))


@study_app.command("create")
@guarded
def create_command(
    storage: Storage,
    name: Annotated[str, typer.Argument(help="What the study is called.")],
    file: Annotated[Path | None, typer.Option(help="A JSON file that describes the study, instead of options.")] = None,
    arms: Annotated[str | None, typer.Option(help="Names of the arms, with commas.")] = None,
    dim: Annotated[int | None, typer.Option(help="Numbers in a context.")] = None,
    rounds: Annotated[int, typer.Option(help="About how many decisions there will be.")] = 10_000,
    batches: Annotated[int, typer.Option(help="At most so many versions.")] = 20,
    policy: Annotated[str, typer.Option(help="The policy.")] = "BatchNeuralUCB",
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.")] = 0,
    actor: Actor = "",
    reason: Reason = "",
) -> None:
    """Make a study; the same command again changes nothing.

    **Examples**

    - `rarely study create sqlite:///trial.db colours --arms red,blue --dim 2 --rounds 1000`
    - `rarely study create sqlite:///trial.db colours --file study.json` — with rewards, stages and all settings
    """
    from rarely.study import Study
    from rarely.study.descriptions import arguments_of, read_description

    if file is not None:
        description = read_description(file)
    elif arms is None or dim is None:
        raise InvalidInput("create needs --arms and --dim, or --file with a description of the study.")
    else:
        schedule = {"kind": "FixedGrid", "horizon": rounds, "batches": batches}
        settings = {"kind": policy, "dim": dim, "seed": seed, "schedule": schedule}
        description = {"policy": settings, "arms": [arm.strip() for arm in arms.split(",")]}
    with Study.create(storage, name, actor=actor, reason=reason, **arguments_of(description)) as study:
        status = study.status()
    console.print(escape(f"study {status.name!r}: {status.decisions} decisions, at most {status.budget} versions"))


@study_app.command("ask")
@guarded
def ask_command(
    storage: Storage,
    contexts: Annotated[str | None, typer.Option(help="JSON: a list of contexts, or one row.")] = None,
    id: Annotated[
        str | None, typer.Option("--id", help="Of the decision; a new one is made where none is given.")
    ] = None,
    available: Annotated[str | None, typer.Option(help="The arms that are there, with commas; all by default.")] = None,
    name: Name = None,
    actor: Actor = "",
) -> None:
    """Decide; the same id gets the same answer. Without --contexts, requests are read from standard input.

    **Examples**

    - `rarely study ask sqlite:///trial.db --id visit-1 --contexts '[[1, 0], [0, 1]]'`
    - `rarely study ask sqlite:///trial.db < requests.jsonl` — lines such as {"id": "v1", "contexts": [[1, 0], [0, 1]]}
    """
    from rarely.study import Request
    from rarely.study.descriptions import read_json

    with opened(storage, name) as study:
        if contexts is not None:
            there = None if available is None else [arm.strip() for arm in available.split(",")]
            say(study.ask(read_json(contexts, "--contexts"), id, available=there, actor=actor).describe())
            return
        _answer_lines(
            lambda lines: [_request(line, Request._fields, Request) for line in lines],
            lambda requests: study.ask_many(requests, actor=actor, errors="return"),
        )


@study_app.command("tell")
@guarded
def tell_command(
    storage: Storage,
    id: Annotated[str | None, typer.Option("--id", help="Of the decision.")] = None,
    reward: Annotated[float | None, typer.Option(help="A finite number.")] = None,
    key: Annotated[str | None, typer.Option(help="Which of several rewards of the decision it is.")] = None,
    name: Name = None,
    actor: Actor = "",
) -> None:
    """Tell a reward; again changes nothing. Without --id, rewards are read from standard input.

    **Examples**

    - `rarely study tell sqlite:///trial.db --id visit-1 --reward 1`
    - `rarely study tell sqlite:///trial.db < rewards.jsonl` — lines such as {"id": "v1", "reward": 1.0}
    """
    from rarely.study import Tell

    with opened(storage, name) as study:
        if id is not None:
            if reward is None:
                raise InvalidInput("tell needs --reward beside --id.")
            say(study.tell(id, reward, key=key, actor=actor).describe())
            return
        _answer_lines(
            lambda lines: [_request(line, Tell._fields, Tell) for line in lines],
            lambda tells: study.tell_many(tells, actor=actor, errors="return"),
        )


def _answer_lines(read: Any, answer: Any) -> None:
    """Answer the lines of standard input, many in one commit; exit code 1 if one was refused."""
    refused = 0
    for lines in _parts(sys.stdin):
        for found in answer(read(lines)):
            refused += isinstance(found, RarelyError)
            say({"error": str(found)} if isinstance(found, RarelyError) else found.describe())
    if refused:
        error_console.print(f"[red]refused:[/red] {refused} of the lines; the others are on record")
        raise typer.Exit(1)


def _request(line: str, fields: tuple[str, ...], kind: Any) -> Any:
    from rarely.study.descriptions import read_json

    given = read_json(line, "a line")
    if not isinstance(given, dict) or not set(given) <= set(fields):
        raise InvalidInput(f"a line must be a JSON object with {', '.join(fields)}; got {line.strip()[:80]}.")
    missing = [name for name in fields if name not in given and name not in kind._field_defaults]
    if missing:
        raise InvalidInput(f"a line must have {missing[0]!r}; got {line.strip()[:80]}.")
    return kind(**given)


def _parts(lines: Any) -> Iterator[list[str]]:
    part: list[str] = []
    for line in lines:
        if line.strip():
            part.append(line)
        if len(part) == TOGETHER:
            yield part
            part = []
    if part:
        yield part


@study_app.command("update")
@guarded
def update_command(
    storage: Storage,
    force: Annotated[bool, typer.Option(help="Train although no reward came since the last update.")] = False,
    name: Name = None,
    actor: Actor = "",
    reason: Reason = "",
) -> None:
    """Train the next version on the rewards that are in, and publish it.

    **Examples**

    - `rarely study update sqlite:///trial.db --actor nightly`
    """
    with opened(storage, name) as study:
        outcome = study.update(force=force, actor=actor, reason=reason)
        status = study.status()
    told = {
        "version": f"version {status.version} decides from now on",
        "candidate": "a candidate waits: rarely study approve, or dismiss",
        "rejected": f"the training was rejected; version {status.version} goes on",
    }
    console.print(escape(f"study {status.name!r}: {told[outcome]}"))


@study_app.command("status")
@guarded
def status_command(
    storage: Storage,
    name: Name = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say where a study stands.

    **Examples**

    - `rarely study status sqlite:///trial.db`
    """
    with opened(storage, name) as study:
        status = study.status()
    if json:
        say(status.describe())
        return
    rewards = status.rewards
    rows = {
        "decisions": status.decisions,
        "version": f"{status.version} ({status.versions} of at most {status.budget})",
        "stage": status.stage,
        "update": "due" if status.due else "not due",
        "rewards": f"{rewards.received} received = {rewards.used} used + {rewards.pending} pending + "
        f"{rewards.late} late + {rewards.quarantined} in quarantine",
        "quarantine": ", ".join(f"{count} {reason}" for reason, count in rewards.quarantine.items()) or "empty",
        "events": f"{status.events}, last hash {status.head}",
    }
    rows |= {"pinned": "yes"} if status.pinned else {}
    rows |= {"candidate": f"event {status.candidate} waits for approval"} if status.candidate is not None else {}
    rows |= {"trainer": status.trainer} if status.trainer else {}
    console.print(f"[bold]{escape(status.name)}[/bold]")
    for topic, value in rows.items():
        console.print(escape(f"{topic:<10}  {value}"))


@study_app.command("doctor")
@guarded
def doctor_command(storage: Storage, name: Name = None) -> None:
    """Say what is wrong, or could be better, with a study and its database. Exit code 1 if there is a problem.

    **Examples**

    - `rarely study doctor sqlite:///trial.db`
    """
    from rarely.doctor import Finding, is_broken

    with opened(storage, name, lazy=True) as study:
        findings = [Finding(*row) for row in study.diagnose()]
    for finding in findings:
        say_finding(finding)
    counts = Counter(finding.status for finding in findings)
    console.print(f"problems: {counts['problem']}, notes: {counts['note']}")
    if is_broken(findings):
        raise typer.Exit(1)
