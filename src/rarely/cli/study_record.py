"""`rarely study` on its record: verify, replay, export, backup, and what people decide."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from rarely.cli.console import console, error_console
from rarely.cli.storage import Storage
from rarely.cli.study import Actor, Name, Reason, guarded, opened, say, study_app
from rarely.core.errors import InvalidInput

NewFile = Annotated[Path, typer.Argument(help="A new file.")]


@study_app.command("verify")
@guarded
def verify_command(
    storage: Storage,
    head: Annotated[str | None, typer.Option(help="A last hash that status told earlier.")] = None,
    seq: Annotated[int | None, typer.Option(help="How many events there were then.")] = None,
    registration: Annotated[Path | None, typer.Option(help="A file that register wrote.")] = None,
    name: Name = None,
) -> None:
    """Check the chain of all events, and the rows and snapshots that they name. Exit code 1 if something is wrong.

    **Examples**

    - `rarely study verify sqlite:///trial.db`
    - `rarely study verify sqlite:///trial.db --head 5f2c… --seq 1200` — nothing was cut off since?
    """
    with opened(storage, name, lazy=True) as study:
        if registration is not None:
            study.check_registration(registration)
        found = study.verify(head, seq)
    if not found.whole:
        error_console.print(f"[red]broken:[/red] {escape(found.flaw)}")
        raise typer.Exit(1)
    console.print(f"whole: {found.events} events, last hash {found.head}")


@study_app.command("replay")
@guarded
def replay_command(storage: Storage, name: Name = None) -> None:
    """Train every version again from the record, and decide every round again. Exit code 1 if something differs.

    **Examples**

    - `rarely study replay sqlite:///trial.db`
    """
    with opened(storage, name, lazy=True) as study:
        found = study.replay()
    for training in found.trainings:
        says = "equal" if training.equal else "another policy"
        place = "" if training.same_environment else ", made in another environment"
        console.print(escape(f"event {training.seq} ({training.kind}): {says}{place}"))
    console.print(
        f"{found.decisions} decisions: {len(found.other_arms)} other arms, probabilities differ by at most "
        f"{found.largest_difference:.3g}"
    )
    if not found.equal:
        raise typer.Exit(1)


@study_app.command("export")
@guarded
def export_command(
    storage: Storage,
    out: Annotated[Path, typer.Argument(help="A new file, .csv or .parquet.")],
    name: Name = None,
) -> None:
    """Write decisions, probabilities and rewards as a table for off-policy estimates.

    **Examples**

    - `rarely study export sqlite:///trial.db log.csv` — `rarely.offpolicy.read_csv` reads it
    """
    from rarely.offpolicy import write_csv, write_parquet

    writers = {".csv": write_csv, ".parquet": write_parquet}
    if out.suffix not in writers:
        raise InvalidInput(f"export writes .csv or .parquet; got {out.name}.")
    with opened(storage, name, lazy=True) as study:
        log = study.log()
    writers[out.suffix](log, out)
    console.print(escape(f"{len(log)} decisions, {log.missing} rewards missing: {out}"))


@study_app.command("backup")
@guarded
def backup_command(storage: Storage, out: NewFile, name: Name = None) -> None:
    """Copy the whole database to a new SQLite file, as it stands now; decisions wait until it is done.

    **Examples**

    - `rarely study backup sqlite:///trial.db trial-monday.db`
    """
    with opened(storage, name, lazy=True) as study:
        study.backup(out)
    console.print(escape(f"{out}: use it as sqlite:///{out}"))


@study_app.command("register")
@guarded
def register_command(storage: Storage, out: NewFile, name: Name = None) -> None:
    """Write the pre-registration: settings, schedule, seed and the hash of version 0.

    **Examples**

    - `rarely study register sqlite:///trial.db registration.json` — verify --registration checks it later
    """
    with opened(storage, name, lazy=True) as study:
        digest = study.preregister(out)
    console.print(escape(f"{out}: digest {digest}"))


@study_app.command("approve")
@guarded
def approve_command(storage: Storage, actor: Actor, reason: Reason = "", name: Name = None) -> None:
    """Publish the version that waits for approval."""
    with opened(storage, name) as study:
        number = study.approve(actor=actor, reason=reason)
    console.print(f"version {number} decides from now on")


@study_app.command("dismiss")
@guarded
def dismiss_command(storage: Storage, actor: Actor, reason: Reason = "", name: Name = None) -> None:
    """Drop the version that waits for approval."""
    with opened(storage, name) as study:
        study.dismiss(actor=actor, reason=reason)
    console.print("the candidate was dismissed; the version in use goes on")


@study_app.command("rollback")
@guarded
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


@study_app.command("contrasts")
@guarded
def contrasts_command(
    storage: Storage,
    level: Annotated[float, typer.Option(help="Of each interval.")] = 0.95,
    control: Annotated[str | None, typer.Option(help="The arm to compare with.")] = None,
    name: Name = None,
) -> None:
    """Compare every arm with the control arm, by intervals that hold at all times, as JSON lines."""
    from dataclasses import asdict

    with opened(storage, name, lazy=True) as study:
        for contrast in study.contrasts(level=level, control=control):
            known = asdict(contrast)
            say({key: None if value != value else value for key, value in known.items()})
