"""`rarely study`: create and update; audits, exports and backups; and what people decide."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from typer import Argument, Option

from rarely import load
from rarely.console import IMPORTED, Command, Group, console, error_console, given
from rarely.errors import InvalidInput
from rarely.frames.tables import plain_rows
from rarely.logs.tables import columns_of, open_table
from rarely.study import Study
from rarely.study.flags import weights_by_leaf
from rarely.study.settings import arguments_of, parse_json
from rarely.study.versions import UNLIMITED

STOPPED = "Interrupted. Everything that was answered is on record."
study_app = Group(
    "study",
    "Studies: every decision, reward and version is on record before it is answered.",
    STOPPED,
    epilog="Start with: rarely study create sqlite:///trial.db --name colours --file study.json",
    imports=True,
)
NewFile = Annotated[Path, Argument(help="A new file.")]
Named = Annotated[str, Option("--name", "-n", help="The name of the study.")]
Name = Annotated[str | None, Option("--name", "-n", help="The name of the study, if there are several.")]
Actor = Annotated[str, Option(help="Who does it; recorded.")]
Reason = Annotated[str, Option(help="Why; recorded.")]


def storage_string(text: str) -> str:
    """Return a storage string, given one or the path of an SQLite file.

    >>> storage_string("trial.db"), storage_string("postgresql://db/trials")
    ('sqlite:///trial.db', 'postgresql://db/trials')
    """
    return text if "://" in text else f"sqlite:///{text}"


Storage = Annotated[str, Argument(help="trial.db, sqlite:///trial.db or postgresql://….", callback=storage_string)]


def on_study(name: str, *examples: str, lazy: bool = False) -> Callable[[Command], Command]:
    """Add a command that is given an open study, and that takes its storage and its name."""

    def opened(storage: Storage, name: Name = None) -> Study:
        return Study.open(storage, name, lazy=lazy, model=IMPORTED)

    def decorate(function: Command) -> Command:
        @wraps(function)
        def command(study: Study, **options: object) -> object:
            with study:
                return function(study, **options)

        study_app.add(name, *examples)(given(study=opened)(command))
        return function

    return decorate


@study_app.add(
    "create",
    "sqlite:///trial.db --name colours --file study.json",
    "sqlite:///shop.db --name shop --policy policy.rarely — what policy.save wrote, a FramePolicy with its tables, say",
)
def create_command(
    storage: Storage,
    name: Named,
    file: Annotated[Path | None, Option(help="A JSON file that describes policy, arms, rewards and stages.")] = None,
    policy: Annotated[Path | None, Option(help="A file of policy.save, in place of the description's policy.")] = None,
    actor: Actor = "",
    reason: Reason = "",
) -> str:
    """Create a study; repeating the command changes nothing, if its policy names a seed."""
    if file is None and policy is None:
        raise InvalidInput("give --file, a description with the policy, or --policy, a file of policy.save, or both.")
    try:
        description = {} if file is None else parse_json(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InvalidInput(f"{file} must be JSON: {error}.") from None
    arguments = arguments_of(description, None if policy is None else load(policy, model=IMPORTED))
    with Study.create(storage, name, actor=actor, reason=reason, **arguments) as study:
        status = study.status()
    versions = "any number of" if status.budget >= UNLIMITED else f"at most {status.budget}"
    return f"study {status.name!r}: {status.decisions} decisions, {versions} versions"


@on_study("update", "sqlite:///trial.db --actor nightly")
def update_command(
    study: Study,
    force: Annotated[bool, Option(help="Train even if no reward came since the last update.")] = False,
    actor: Actor = "",
    reason: Reason = "",
) -> str:
    """Train the next version on the rewards so far, and publish it."""
    outcome = study.update(force=force, actor=actor, reason=reason)
    status = study.status()
    messages = {
        "version": f"version {status.version} decides from now on",
        "candidate": "a candidate awaits approval: rarely study approve, or dismiss",
        "rejected": f"the training was rejected; version {status.version} stays in use",
    }
    return f"study {status.name!r}: {messages[outcome]}"


@on_study("status", "sqlite:///trial.db", "sqlite:///trial.db >> heads.jsonl — verify --heads compares")
def status_command(study: Study) -> None:
    """Show the state of a study as JSON, in a pipe as one line."""
    status = study.status().describe()
    typer.echo(json.dumps(status, ensure_ascii=False, allow_nan=False, indent=2 if console.is_terminal else None))


@on_study(
    "verify",
    "sqlite:///trial.db",
    "sqlite:///trial.db --head 5f2c… --seq 1200 — was anything cut off since?",
    "sqlite:///trial.db --heads heads.jsonl — the same for all lines that status wrote there",
    lazy=True,
)
def verify_command(
    study: Study,
    head: Annotated[str | None, Option(help="A last hash that status printed earlier.")] = None,
    seq: Annotated[int | None, Option(help="The number of events at that time.")] = None,
    heads: Annotated[Path | None, Option(help="A file of lines that status printed.")] = None,
) -> str:
    """Check the chain of all events, and the rows and snapshots that they name. Exit with code 1 if one is wrong."""
    checked = study.verify(head, seq, heads=heads)
    if checked.flaw:
        error_console.print(f"[red]broken:[/red] {escape(checked.flaw)}")
        raise typer.Exit(1)
    return "\n".join((f"whole: {checked.events} events, last hash {checked.head}", *checked.gone))


@on_study("replay", "sqlite:///trial.db", lazy=True)
def replay_command(study: Study) -> None:
    """Train every version and make every decision again from the record. Exit with code 1 if one differs."""
    replay = study.replay()
    for training in replay.trainings:
        result = "equal" if training.equal else "another policy"
        place = f", trained with other {' and '.join(training.differs)}" if training.differs else ""
        console.print(escape(f"event {training.seq} ({training.kind}): {result}{place}"))
    console.print(
        f"{replay.decisions} decisions: {len(replay.other_arms)} other arms, probabilities differ by at most "
        f"{replay.largest_difference:.3g}"
    )
    if replay.since > 1:
        console.print(f"from event {replay.since} on: what was before rests on what was erased or pruned")
    if not replay.equal:
        raise typer.Exit(1)


@on_study("export", "sqlite:///trial.db log.csv — `rarely.logs.read_log` reads it", lazy=True)
def export_command(study: Study, out: Annotated[Path, Argument(help="A new file, .csv or .parquet.")]) -> str:
    """Write decisions with id, time, stage, actor, probabilities and rewards as a table."""
    written = study.export(out)
    return f"{written.decisions} decisions, {written.missing} rewards missing: {out}"


@on_study("flags", "sqlite:///shop.db weights.json --leaves segments.csv — for a feature-flag tool")
def flags_command(
    study: Study,
    out: Annotated[Path, Argument(help="A new file of JSON.")],
    leaves: Annotated[Path | None, Option(help="A table of the users' columns, a row each; all values.")] = None,
    version: Annotated[int | None, Option(help="The version; that in use.")] = None,
) -> str:
    """Write the weights of all arms for each leaf of users, so that a flag tool can serve what was learned."""
    rows = None
    if leaves is not None:
        table = open_table(leaves)
        rows = plain_rows(columns_of(table.header, [line for _, line in table.lines]), str(leaves))
    weights = weights_by_leaf(study, rows, version)
    with out.open("x", encoding="utf-8") as file:
        file.write(json.dumps(weights, indent=1, ensure_ascii=False) + "\n")
    return f"{len(weights['leaves'])} leaves of version {weights['version']}: {out}"


@on_study("backup", "sqlite:///trial.db trial-monday.db", lazy=True)
def backup_command(study: Study, out: NewFile) -> str:
    """Copy the whole database to a new SQLite file, while others decide."""
    study.backup(out)
    return f"{out}: use it as sqlite:///{out}"


@study_app.add("restore", "trial-monday.db postgresql://user@host/trials — into an empty database")
def restore_command(backup: Annotated[Path, Argument(help="A file that backup wrote.")], storage: Storage) -> str:
    """Copy all studies of a backup into an empty database, after checking them."""
    return f"restored: {', '.join(Study.restore(backup, storage))}"


@on_study("erase", 'sqlite:///trial.db 4711 --by patient --actor ann --reason "asked on Monday"')
def erase_command(
    study: Study,
    ids: Annotated[list[str], Argument(help="Ids of the persons.")],
    actor: Actor,
    by: Annotated[str, Option(help="id (of decisions), user, or a column of the user's table.")] = "id",
    reason: Reason = "",
) -> str:
    """Erase contexts and ids of persons; hashes, arms and rewards stay, and what may still hold them is said."""
    done = study.erase(ids, by=by, actor=actor, reason=reason)
    for said in done.remains:
        error_console.print(f"[yellow]remains:[/yellow] {escape(said)}")
    return f"erased: {done.decisions} decisions and {done.rewards} rewards"


@on_study("prune", 'sqlite:///trial.db 2025-11-18 --actor ann --reason "kept for a year" --dry-run')
def prune_command(
    study: Study,
    before: Annotated[str, Argument(help="A day or a moment (UTC), or the number of an event.")],
    actor: Actor,
    reason: Reason = "",
    dry_run: Annotated[bool, Option("--dry-run", help="Only say what would go.")] = False,
) -> str:
    """Drop old decisions and rewards, but not those that the version in use needs; their last hash stays."""
    done = study.prune(before, actor=actor, reason=reason, dry_run=dry_run)
    if done.limit:
        error_console.print(escape(done.limit))
    what = f"{done.events} decisions and rewards up to event {done.last}, about {done.bytes / 1e6:.1f} MB"
    return f"{'would go' if dry_run else 'gone'}: {what}"


@study_app.add("delete", 'sqlite:///trial.db --name colours --actor ann --reason "the trial is over"')
def delete_command(storage: Storage, name: Named, actor: Actor, reason: Reason = "") -> str:
    """Delete a study for good; that it was there, who deleted it and why stays on record."""
    events = Study.delete(storage, name, actor=actor, reason=reason)
    return f"study {name!r} was deleted, with {events} events"


@study_app.add("upgrade", "sqlite:///trial.db — what would be done", "sqlite:///trial.db before-upgrade.db")
def upgrade_command(
    storage: Storage, backup: Annotated[Path | None, Argument(help="A new file for a backup first.")] = None
) -> str:
    """Bring a database of an earlier version to this one; without a file for the backup, say what it takes."""
    steps = [f"{'done' if backup else 'to do'}: {step}" for step in Study.upgrade(storage, backup)]
    return "\n".join(steps or ["nothing to do"])


@on_study("repair-clock", 'sqlite:///trial.db --actor ann --reason "the clock was five years ahead on Monday"')
def repair_clock_command(study: Study, actor: Actor, reason: Reason = "") -> str:
    """Let the record's time pass again after a run whose clock was wrong, or confirm the clock after a long pause."""
    offset = study.repair_clock(actor=actor, reason=reason)
    return f"times of the record are {offset / 1e6:.0f} s ahead of the clock from now on"


@on_study("approve", 'sqlite:///trial.db --actor ann --reason "checked on Monday"')
def approve_command(study: Study, actor: Actor, reason: Reason = "") -> str:
    """Publish the version that awaits approval."""
    return f"version {study.approve(actor=actor, reason=reason)} decides from now on"


@on_study("dismiss", 'sqlite:///trial.db --actor ann --reason "too few rewards"')
def dismiss_command(study: Study, actor: Actor, reason: Reason = "") -> str:
    """Drop the version that awaits approval."""
    study.dismiss(actor=actor, reason=reason)
    return "the candidate was dismissed; the version in use stays"


@on_study("rollback", "sqlite:///trial.db 2 --actor ann --pin — and refuse further updates")
def rollback_command(
    study: Study,
    version: Annotated[int, Argument(help="The number of an earlier version.")],
    pin: Annotated[bool, Option(help="Refuse updates until unpin.")] = False,
    actor: Actor = "",
    reason: Reason = "",
) -> str:
    """Let an earlier version decide again."""
    study.rollback(version, actor=actor, reason=reason)
    if pin:
        study.pin(actor=actor, reason=reason)
    return f"version {version} decides from now on"


@on_study("retire", 'sqlite:///shop.db coupon --actor ann --reason "sold out"')
def retire_command(
    study: Study,
    arm: Annotated[str, Argument(help="The name of an arm.")],
    actor: Actor,
    again: Annotated[bool, Option("--activate", help="Give it decisions again.")] = False,
    reason: Reason = "",
) -> str:
    """Give an arm no decisions until it is activated again."""
    (study.activate_arm if again else study.retire_arm)(arm, actor=actor, reason=reason)
    return f"{'activated' if again else 'retired'}: {arm}"


@on_study("add", "sqlite:///shop.db cake --actor ann")
def add_command(
    study: Study, arm: Annotated[str, Argument(help="The name of a new arm.")], actor: Actor, reason: Reason = ""
) -> str:
    """Give a new arm decisions, in the place of a spare one that was retired before the first."""
    study.add_arm(arm, actor=actor, reason=reason)
    return f"added: {arm}"


@on_study("look", 'sqlite:///trial.db --actor ann --reason "for the board of 18 November"')
def look_command(study: Study, actor: Actor, reason: Reason = "") -> None:
    """Take the next planned look of a trial with what is known now, and record it."""
    typer.echo(str(study.look(actor=actor, reason=reason)))


@on_study(
    "close",
    'sqlite:///trial.db --arm text --actor ann --approved-by bob --reason "futility at look 2"',
    'sqlite:///trial.db --enrolment --actor ann --approved-by bob --reason "efficacy" — no further patients at all',
)
def close_command(
    study: Study,
    actor: Actor,
    approved_by: Annotated[str, Option(help="A second person, who approves it; recorded.")],
    arm: Annotated[str | None, Option(help="The arm that gets no further patients.")] = None,
    enrolment: Annotated[bool, Option("--enrolment", help="No arm gets further patients.")] = False,
    reason: Reason = "",
) -> str:
    """Close an arm of a trial, or its enrolment: no further patients."""
    if (arm is None) != enrolment:  # so that a forgotten --arm ends no trial
        raise InvalidInput("say what to close: --arm NAME, or --enrolment for all arms.")
    signed = {"actor": actor, "approved_by": approved_by, "reason": reason}
    study.close_enrolment(**signed) if arm is None else study.close_arm(arm, **signed)
    return f"closed: {arm or 'enrolment'}"


@on_study(
    "analysis",
    "sqlite:///trial.db",
    "sqlite:///trial.db --out analysis.html — or analysis.md, analysis.json",
    "sqlite:///trial.db --as-of 2026-11-18 — as it was then",
    lazy=True,
)
def analysis_command(
    study: Study,
    out: Annotated[Path | None, Option(help="A file for the report: .html, .md or .json.")] = None,
    as_of: Annotated[str | None, Option(help="As it was on a day, 2026-11-18, or at a moment (UTC).")] = None,
    blinded: Annotated[bool, Option(help="Only what may be seen without knowing arms.")] = False,
    plan: Annotated[Path | None, Option(help="A file for the plan itself: .html or .md.")] = None,
) -> None:
    """Analyse a trial: means, contrasts with the control arm, missing rewards, balance and deviations."""
    analysis = study.analysis(as_of=as_of)
    if blinded and out is not None:
        raise InvalidInput("--blinded prints a few lines; give no --out with it.")
    if plan is not None:
        analysis.save_plan(plan)
    if out is not None:
        analysis.save(out)
    typer.echo(analysis.blinded() if blinded else str(out) if out is not None else str(analysis))
