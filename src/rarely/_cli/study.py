"""`rarely study`: ask, tell and update; audits, exports and backups; and what people decide."""

from __future__ import annotations

import json as json_format
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from rarely import InvalidInput, RarelyError
from rarely._cli.console import console, error_console, guarded_by, say_findings, whole_numbers
from rarely._core.saving.files import replacing

if TYPE_CHECKING:
    from rarely.study import Study

study_app = typer.Typer(
    name="study",
    help="Studies: every decision, reward and version is on record before it is answered.",
    epilog="Start with: rarely study create sqlite:///trial.db --name colours --arms red,blue --dim 2 --rounds 1000",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
NewFile = Annotated[Path, typer.Argument(help="A new file.")]
Name = Annotated[str | None, typer.Option("--name", "-n", help="The name of the study, if there are several.")]
Actor = Annotated[str, typer.Option(help="Who does it; recorded.")]
Reason = Annotated[str, typer.Option(help="Why; recorded.")]
Key = Annotated[str | None, typer.Option(help="A key of the service.", envvar="RARELY_KEY")]
guarded = guarded_by("Interrupted. Everything that was answered is on record.")
LINES_PER_COMMIT = 100
"""Lines of standard input that share a commit."""


def storage_string(given: str) -> str:
    """Return a storage string, given one or the path of an SQLite file.

    >>> storage_string("trial.db"), storage_string("postgresql://db/trials")
    ('sqlite:///trial.db', 'postgresql://db/trials')
    """
    return given if "://" in given else f"sqlite:///{given}"


Storage = Annotated[
    str, typer.Argument(help="trial.db, sqlite:///trial.db, postgresql://… or http://….", callback=storage_string)
]


def command(name: str, *examples: str, app: typer.Typer = study_app) -> Callable[[Callable[..., None]], Any]:
    """Add a command to `rarely study`, or to another group; an example has its arguments, and after a dash a remark."""

    def add(function: Callable[..., None]) -> Callable[..., None]:
        lines = [f"{function.__doc__}\n\n**Examples**\n"]
        for example in examples:
            arguments, dash, remark = example.partition(" — ")
            lines.append(f"- `rarely {app.info.name} {name} {arguments}`{dash}{remark}")
        return app.command(name, help="\n".join(lines))(guarded(function))

    return add


def opened(storage: str, name: str | None, *, lazy: bool = False) -> Study:
    """Open the study of a command."""
    from rarely.study import Study

    return Study.open(storage, name, lazy=lazy)


def served(url: str, name: str | None, what: str, key: str | None, path: Path | None = None) -> Any:
    """Return the JSON that a service answers about a study, or write the answer to a new file."""
    import http.client
    import urllib.parse
    import urllib.request

    if name is None or (path is not None and path.exists()):
        raise InvalidInput("a service needs --name, the study's name; and a file must be a new one.")
    place = f"{url.rstrip('/')}/v1/studies/{urllib.parse.quote(name, safe='')}/{what}"
    request = urllib.request.Request(place, headers={"Authorization": f"Bearer {key}"} if key else {})
    try:
        with urllib.request.urlopen(request) as answer:
            if path is None:
                return json_format.load(answer)
            with replacing(path) as file:
                shutil.copyfileobj(answer, file)
                if answer.length:
                    raise OSError(f"the connection was lost, and {answer.length} bytes are missing.")
    except (OSError, ValueError, http.client.HTTPException) as error:  # also an answer other than 200
        said = getattr(error, "read", lambda size: b"")(2000).decode(errors="replace")
        raise InvalidInput(f"{place} failed: {error} {said}") from None


def say(value: Any) -> None:
    """Print one line of JSON."""
    typer.echo(json_format.dumps(value, ensure_ascii=False, allow_nan=False))


@command(
    "create",
    "sqlite:///trial.db --name colours --arms red,blue --dim 2 --rounds 1000",
    "sqlite:///trial.db --name colours --file study.json — with rewards, stages and all settings",
)
def create_command(
    storage: Storage,
    name: Annotated[str, typer.Option("--name", "-n", help="The name of the study.")],
    file: Annotated[Path | None, typer.Option(help="A JSON file that describes the study, instead of options.")] = None,
    arms: Annotated[str | None, typer.Option(help="Names of the arms, separated by commas.")] = None,
    dim: Annotated[int | None, typer.Option(help="The number of features of a context.")] = None,
    rounds: Annotated[int, typer.Option(help="The approximate number of decisions.")] = 10_000,
    batches: Annotated[int, typer.Option(help="The maximal number of versions.")] = 20,
    policy: Annotated[str, typer.Option(help="The policy.")] = "BatchNeuralUCB",
    seed: Annotated[int, typer.Option(help="The seed of all random numbers.")] = 0,
    actor: Actor = "",
    reason: Reason = "",
) -> None:
    """Create a study; repeating the command changes nothing."""
    from rarely.study import Study
    from rarely.study.settings import arguments_of, read_json

    if file is not None:
        description = read_json(file.read_text(encoding="utf-8"), str(file))
    elif arms is None or dim is None:
        raise InvalidInput("create needs --arms and --dim, or --file with a description of the study.")
    else:
        schedule = {"kind": "FixedGrid", "horizon": rounds, "batches": batches}
        settings = {"kind": policy, "dim": dim, "seed": seed, "schedule": schedule}
        description = {"policy": settings, "arms": [arm.strip() for arm in arms.split(",")]}
    with Study.create(storage, name, actor=actor, reason=reason, **arguments_of(description)) as study:
        status = study.status()
    console.print(escape(f"study {status.name!r}: {status.decisions} decisions, at most {status.budget} versions"))


@command(
    "ask",
    "sqlite:///trial.db --id visit-1 --contexts '[[1, 0], [0, 1]]'",
    'sqlite:///trial.db < requests.jsonl — lines such as {"id": "v1", "contexts": [[1, 0], [0, 1]]}',
)
def ask_command(
    storage: Storage,
    contexts: Annotated[str | None, typer.Option(help="JSON: a list of contexts, or one row.")] = None,
    id: Annotated[str | None, typer.Option("--id", help="The id of the decision; by default a new one.")] = None,
    available: Annotated[
        str | None, typer.Option(help="The available arms, separated by commas; by default all.")
    ] = None,
    name: Name = None,
    actor: Actor = "",
) -> None:
    """Decide; the same id gets the same answer. Without --contexts, read requests from standard input."""
    from rarely.study import Request
    from rarely.study.settings import read_json

    with opened(storage, name) as study:
        if contexts is not None:
            there = None if available is None else [arm.strip() for arm in available.split(",")]
            say(study.ask(read_json(contexts, "--contexts"), id, available=there, actor=actor).describe())
            return
        _answer_lines(Request, lambda requests: study.ask_many(requests, actor=actor, errors="return"))


@command(
    "tell",
    "sqlite:///trial.db --id visit-1 --reward 1",
    'sqlite:///trial.db < rewards.jsonl — lines such as {"id": "v1", "reward": 1.0}',
)
def tell_command(
    storage: Storage,
    id: Annotated[str | None, typer.Option("--id", help="The id of the decision.")] = None,
    reward: Annotated[float | None, typer.Option(help="A finite number.")] = None,
    key: Annotated[str | None, typer.Option(help="A key that tells several rewards of the decision apart.")] = None,
    name: Name = None,
    actor: Actor = "",
) -> None:
    """Record a reward; repeating it changes nothing. Without --id, read rewards from standard input."""
    from rarely.study import Tell

    with opened(storage, name) as study:
        if id is not None:
            if reward is None:
                raise InvalidInput("tell needs --reward with --id.")
            say(study.tell(id, reward, key=key, actor=actor).describe())
            return
        _answer_lines(Tell, lambda tells: study.tell_many(tells, actor=actor, errors="return"))


def _answer_lines(kind: Any, answer: Callable[[list[Any]], list[Any]]) -> None:
    """Answer the lines of standard input, many in one commit; exit with code 1 if one was refused."""
    refused = 0
    stdin = (line for line in sys.stdin if line.strip())
    while lines := list(islice(stdin, LINES_PER_COMMIT)):
        for found in answer([_read_line(line, kind) for line in lines]):
            refused += isinstance(found, RarelyError)
            say({"error": str(found)} if isinstance(found, RarelyError) else found.describe())
    if refused:
        error_console.print(f"[red]refused:[/red] {refused} lines; the others are on record")
        raise typer.Exit(1)


def _read_line(line: str, kind: Any) -> Any:
    from rarely.study.settings import read_json

    given, fields = read_json(line, "a line"), kind._fields
    if not isinstance(given, dict) or not set(given) <= set(fields):
        raise InvalidInput(f"a line must be a JSON object with {', '.join(fields)}; got {line.strip()[:80]}.")
    missing = [name for name in fields if name not in given and name not in kind._field_defaults]
    if missing:
        raise InvalidInput(f"a line must have {missing[0]!r}; got {line.strip()[:80]}.")
    return kind(**given)


@command("update", "sqlite:///trial.db --actor nightly")
def update_command(
    storage: Storage,
    force: Annotated[bool, typer.Option(help="Train even if no reward came since the last update.")] = False,
    name: Name = None,
    actor: Actor = "",
    reason: Reason = "",
) -> None:
    """Train the next version on the rewards so far, and publish it."""
    with opened(storage, name) as study:
        outcome = study.update(force=force, actor=actor, reason=reason)
        status = study.status()
    messages = {
        "version": f"version {status.version} decides from now on",
        "candidate": "a candidate awaits approval: rarely study approve, or dismiss",
        "rejected": f"the training was rejected; version {status.version} stays in use",
    }
    console.print(escape(f"study {status.name!r}: {messages[outcome]}"))


@command("status", "sqlite:///trial.db", "http://127.0.0.1:8000 -n colours — while it is served")
def status_command(
    storage: Storage,
    name: Name = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    key: Key = None,
) -> None:
    """Show the state of a study; JSON if a service is asked."""
    if storage.startswith("http"):
        say(served(storage, name, "status", key))
        return
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
    rows |= {"candidate": f"event {status.candidate} awaits approval"} if status.candidate is not None else {}
    rows |= {"trainer": status.trainer} if status.trainer else {}
    console.print(f"[bold]{escape(status.name)}[/bold]")
    for topic, value in rows.items():
        console.print(escape(f"{topic:<10}  {value}"))


@command("doctor", "sqlite:///trial.db")
def doctor_command(storage: Storage, name: Name = None) -> None:
    """Show what is wrong or could be better with a study and its database. Exit with code 1 if there is a problem."""
    with opened(storage, name, lazy=True) as study:
        say_findings(study.diagnose())


@command(
    "verify",
    "sqlite:///trial.db",
    "sqlite:///trial.db --head 5f2c… --seq 1200 — was anything cut off since?",
    "http://127.0.0.1:8000 -n colours — while it is served",
)
def verify_command(
    storage: Storage,
    head: Annotated[str | None, typer.Option(help="A last hash that status printed earlier.")] = None,
    seq: Annotated[int | None, typer.Option(help="The number of events at that time.")] = None,
    heads: Annotated[Path | None, typer.Option(help="A file that heads wrote.")] = None,
    registration: Annotated[Path | None, typer.Option(help="A file that register wrote.")] = None,
    name: Name = None,
    key: Key = None,
) -> None:
    """Check the chain of all events, and the rows and snapshots that they name. Exit with code 1 if one is wrong."""
    if storage.startswith("http"):
        if any(each is not None for each in (head, seq, heads, registration)):
            raise InvalidInput("a service checks the chain alone; for noted hashes make a backup, and verify that.")
        found = served(storage, name, "verify", key)
    else:
        with opened(storage, name, lazy=True) as study:
            if registration is not None:
                study.check_registration(registration)
            found = asdict(study.verify(head, seq, heads=heads))
    if found["flaw"]:
        error_console.print(f"[red]broken:[/red] {escape(found['flaw'])}")
        raise typer.Exit(1)
    console.print(f"whole: {found['events']} events, last hash {found['head']}")


@command("heads", "sqlite:///trial.db /mnt/elsewhere/heads.jsonl — verify --heads compares")
def heads_command(
    storage: Storage,
    out: Annotated[Path, typer.Argument(help="A file, to which a line is added.")],
    name: Name = None,
    key: Key = None,
) -> None:
    """Publish the number and hash of the last event elsewhere, so that a record that was cut off is detected."""
    if storage.startswith("http"):
        from rarely.study.audit import add_head

        status = served(storage, name, "status", key)
        add_head(out, *(status[field] for field in ("name", "events", "head", "time")))
        return
    with opened(storage, name, lazy=True) as study:
        study.publish_head(out)


@command("replay", "sqlite:///trial.db")
def replay_command(storage: Storage, name: Name = None) -> None:
    """Train every version and make every decision again from the record. Exit with code 1 if one differs."""
    with opened(storage, name, lazy=True) as study:
        found = study.replay()
    for training in found.trainings:
        result = "equal" if training.equal else "another policy"
        place = "" if training.same_environment else ", trained in another environment"
        console.print(escape(f"event {training.seq} ({training.kind}): {result}{place}"))
    console.print(
        f"{found.decisions} decisions: {len(found.other_arms)} other arms, probabilities differ by at most "
        f"{found.largest_difference:.3g}"
    )
    if not found.equal:
        raise typer.Exit(1)


@command("export", "sqlite:///trial.db log.csv — `rarely.logs.read_log` reads it")
def export_command(
    storage: Storage,
    out: Annotated[Path, typer.Argument(help="A new file, .csv or .parquet.")],
    name: Name = None,
    key: Key = None,
) -> None:
    """Write decisions with id, time, stage, actor, probabilities and rewards as a table."""
    if out.suffix not in (".csv", ".parquet"):
        raise InvalidInput(f"export writes .csv or .parquet; got {out.name}.")
    if storage.startswith("http"):
        if out.suffix != ".csv":
            raise InvalidInput("a service exports .csv.")
        served(storage, name, "export", key, out)
        return
    with opened(storage, name, lazy=True) as study:
        log = study.export(out)
    console.print(escape(f"{len(log)} decisions, {log.missing} rewards missing: {out}"))


@command("backup", "sqlite:///trial.db trial-monday.db")
def backup_command(storage: Storage, out: NewFile, name: Name = None, key: Key = None) -> None:
    """Copy the whole database to a new SQLite file, while others decide."""
    if storage.startswith("http"):
        served(storage, name, "backup", key, out)
    else:
        with opened(storage, name, lazy=True) as study:
            study.backup(out)
    console.print(escape(f"{out}: use it as sqlite:///{out}"))


@command("restore", "trial-monday.db postgresql://user@host/trials — into an empty database")
def restore_command(
    backup: Annotated[Path, typer.Argument(help="A file that backup wrote.")], storage: Storage
) -> None:
    """Copy all studies of a backup into an empty database, after checking them."""
    from rarely.study import Study

    console.print(escape(f"restored: {', '.join(Study.restore(backup, storage))}"))


@command("repair-clock", 'sqlite:///trial.db --actor ann --reason "the clock was five years ahead on Monday"')
def repair_clock_command(storage: Storage, actor: Actor, reason: Reason = "", name: Name = None) -> None:
    """Let the record's time pass again after a run whose clock was wrong, or confirm the clock after a long pause."""
    with opened(storage, name) as study:
        offset = study.repair_clock(actor=actor, reason=reason)
    console.print(f"times of the record are {offset / 1e6:.0f} s ahead of the clock from now on")


@command("register", "sqlite:///trial.db registration.json — verify --registration checks it later")
def register_command(storage: Storage, out: NewFile, name: Name = None) -> None:
    """Write the preregistration: settings, schedule, seed and the hash of version 0."""
    with opened(storage, name, lazy=True) as study:
        digest = study.preregister(out)
    console.print(escape(f"{out}: digest {digest}"))


@command("approve", 'sqlite:///trial.db --actor ann --reason "checked on Monday"')
def approve_command(storage: Storage, actor: Actor, reason: Reason = "", name: Name = None) -> None:
    """Publish the version that awaits approval."""
    with opened(storage, name) as study:
        number = study.approve(actor=actor, reason=reason)
    console.print(f"version {number} decides from now on")


@command("dismiss", 'sqlite:///trial.db --actor ann --reason "too few rewards"')
def dismiss_command(storage: Storage, actor: Actor, reason: Reason = "", name: Name = None) -> None:
    """Drop the version that awaits approval."""
    with opened(storage, name) as study:
        study.dismiss(actor=actor, reason=reason)
    console.print("the candidate was dismissed; the version in use stays")


@command("rollback", "sqlite:///trial.db 2 --actor ann --pin — and refuse further updates")
def rollback_command(
    storage: Storage,
    version: Annotated[int, typer.Argument(help="The number of an earlier version.")],
    pin: Annotated[bool, typer.Option(help="Refuse updates until unpin.")] = False,
    actor: Actor = "",
    reason: Reason = "",
    name: Name = None,
) -> None:
    """Let an earlier version decide again."""
    with opened(storage, name) as study:
        study.rollback(version, actor=actor, reason=reason)
        if pin:
            study.pin(actor=actor, reason=reason)
    console.print(f"version {version} decides from now on")


@command(
    "analysis",
    "sqlite:///trial.db",
    "sqlite:///trial.db --out analysis.html — or analysis.md, analysis.json",
    "sqlite:///trial.db --looks 240,480,1200 --spending pocock — instead of the registered plan",
)
def analysis_command(
    storage: Storage,
    looks: Annotated[str | None, typer.Option(help="Decisions after which the trial is looked at, as 240,480.")] = None,
    spending: Annotated[str, typer.Option(help="With --looks: obrien-fleming or pocock.")] = "obrien-fleming",
    level: Annotated[float, typer.Option(help="With --looks: the level of each interval.")] = 0.95,
    control: Annotated[str | None, typer.Option(help="The arm to compare with.")] = None,
    registration: Annotated[Path | None, typer.Option(help="A file that register wrote, to be compared.")] = None,
    out: Annotated[Path | None, typer.Option(help="A file for the report: .html, .md or .json.")] = None,
    name: Name = None,
) -> None:
    """Analyse a trial: means, contrasts with the control arm, stages, missing rewards, balance and deviations."""
    from rarely.study import AnalysisPlan

    plan = None
    if looks is not None:
        at = whole_numbers("--looks", looks)
        plan = AnalysisPlan(at[-1], at, spending, level)  # type: ignore[arg-type]  # another name is refused there
    with opened(storage, name, lazy=True) as study:
        found = study.analysis(plan=plan, control=control, registration=registration)
    if out is not None:
        found.save(out)
    typer.echo(str(out) if out is not None else str(found))
