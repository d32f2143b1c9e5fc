"""`rarely fleet`: campaigns and fleets of deciders, from contexts or logs to the next version."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from rarely import cluster, load
from rarely.cluster.files import Folder
from rarely.console import IMPORTED, Group, Jobs, console
from rarely.errors import InvalidInput
from rarely.pages.grid import Grid

fleet_app = Group(
    "fleet",
    "Campaigns and fleets on Ray: decide from Parquet, publish versions, join logs, update, report, audit.",
    "Interrupted. What is done is kept; run the same command to resume.",
    imports=True,
)
SavedPolicy = Annotated[Path, Argument(help="A saved policy.")]
Store = Annotated[str, Argument(help="The store: a folder or a URL such as s3://bucket/store.")]
Logs = Annotated[Path, Argument(help="The folder of the deciders' logs.")]
Waves = Annotated[str, Argument(help="The folder in which each wave of decisions gets its own.")]
Decisions = Annotated[list[str], Argument(help="Folders of decisions, in the order in which they were decided.")]
Address = Annotated[str | None, Option(help="Of a Ray cluster, as ray://head:10001; by default a Ray here.")]
AcceptLosses = Annotated[bool, Option(help="Go on behind damaged lines and without missing logs, and say which.")]
BOTH_SIDES = 1.96


@fleet_app.add(
    "decide",
    "policy.rarely people/ night1/",
    "policy.rarely s3://bucket/people s3://bucket/night1 --address ray://head:10001",
)
def decide(
    policy: SavedPolicy,
    contexts: Annotated[str, Argument(help="Parquet with the columns id and contexts: K·d numbers a row.")],
    out: Annotated[str, Argument(help="The folder of decisions.")],
    jobs: Jobs = None,
    address: Address = None,
) -> str:
    """Decide every row of Parquet files; the same command resumes."""
    done = cluster.decide(load(policy, model=IMPORTED), contexts, out, jobs=jobs, address=address)
    return f"{done.rounds} rounds decided by version {done.version}, in {done.blocks} blocks: {out}"


@fleet_app.add("publish", "policy.rarely store/")
def publish(policy: SavedPolicy, store: Store) -> str:
    """Make a saved policy the version that deciders use."""
    return cluster.publish(load(policy, model=IMPORTED), store)


@fleet_app.add("rollback", "store/")
def rollback(store: Store) -> str:
    """Return to the version that was in use before."""
    return cluster.rollback(store)


@fleet_app.add("join", "logs/ waves/")
def join(logs: Logs, out: Waves, accept_losses: AcceptLosses = False) -> str:
    """Gather what is new in the logs of deciders, for `rarely fleet update`, and print all waves so far."""
    return "\n".join(cluster.join(logs, out, accept_losses=accept_losses)) or "The logs have no decisions."


@fleet_app.add("rotate", "logs/")
def rotate(logs: Logs) -> str:
    """Let deciders begin new logs, and print the new names of the old ones, which stay in the folder."""
    return "\n".join(cluster.rotate(logs)) or "No log has decisions."


@fleet_app.add("prune", "logs/ waves/ --keep 7")
def prune(
    logs: Logs,
    out: Waves,
    keep: Annotated[float, Option(min=0, help="Days that a log is kept after its last line, for audits.")] = 0.0,
) -> str:
    """Remove rotated logs whose decisions are all in waves, and print their names."""
    return "\n".join(cluster.prune(logs, out, keep=keep)) or "No log can be removed."


@fleet_app.add("update", "policy.rarely night1/ night2/ --rewards rewards/ --publish store/")
def update(
    policy: SavedPolicy,
    decisions: Decisions,
    rewards: Annotated[str, Option(help="Parquet with the columns id and reward, a file or a folder.")],
    store: Annotated[str | None, Option("--publish", help="A store to publish the next version to.")] = None,
    jobs: Jobs = None,
    address: Address = None,
) -> str | None:
    """Learn from decisions and rewards, and save the next version in the place of the policy."""
    learned = load(policy, model=IMPORTED)
    cluster.update(learned, decisions, rewards, jobs=jobs, address=address)
    learned.save(policy)
    console.print(report(decisions), markup=False)
    return None if store is None else cluster.publish(learned, store)


@fleet_app.add("audit", "store/ logs/")
def audit(store: Store, logs: Logs, accept_losses: AcceptLosses = False) -> None:
    """Make every logged decision again; name those that differ, and exit with 1, if an arm or a digit does."""
    differences = cluster.audit(store, logs, accept_losses=accept_losses, model=IMPORTED)
    words = {"inf": "another arm", "nan": "cannot be made again"}
    lines = (f"{id}: {words.get(str(by), by)}" for id, by in differences.items())
    console.print("\n".join(lines) or "Every decision is the same.", markup=False)
    raise typer.Exit(bool(differences))


@fleet_app.add("report", "night1/ night2/")
def report(decisions: Decisions) -> str:
    """Show what the updates on these decisions found and did, and whether each version paid more than the last."""
    reports: dict[str, dict[str, Any]] = {}
    for folder in map(Folder.at, decisions):
        reports |= {name: folder.read_json(name)["report"] for name in folder.names("_update-")}
    if not reports:
        raise InvalidInput("these folders must have been part of an update; none was.")
    counts = ("rounds", "joined", "late", "duplicate", "conflicting", "invalid", "unknown", "repeated", "open")
    body, before = [], None
    for _, one in sorted(reports.items()):
        gain = "" if before is None else _interval(one["mean"] - before["mean"], one["error"], before["error"])
        did = "accepted" if one["record"]["accepted"] else f"rejected: {one['record']['reason']}"
        mean = _interval(one["mean"], one["error"])
        body.append([str(one["version"]), *(f"{one[name]:,}" for name in counts), mean, gain, did])
        before = one
    head = ["version", *counts, "mean reward", "more than the version before", "update"]
    return "\n".join(Grid(head, body, 0).lines())


def _interval(value: float, *errors: float) -> str:
    """Return a number and its 95 % interval, as ±."""
    return "" if math.isnan(value) else f"{value:.4g} ± {BOTH_SIDES * math.hypot(*errors):.2g}"
