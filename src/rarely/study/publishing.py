"""From a cut to a published version, under a lease.

The lease keeps two trainers from doing the same work. It is not what keeps versions apart: a trainer whose lease
has expired may still be training. Every lease has a higher token than the one before it, and a version is published
only with the highest, by the same transaction that writes its row.
"""

from __future__ import annotations

import copy
import os
import socket
from typing import Any

from rarely.study.canonical import canonical
from rarely.study.deliveries import spans_of
from rarely.study.errors import (
    ApprovalNeeded,
    BrokenStudy,
    StaleTrainer,
    StudyBusy,
    StudyError,
    StudyFull,
    StudyPinned,
)
from rarely.study.live import LivePolicy
from rarely.study.session import Session
from rarely.study.snapshots import from_bytes, sha256_of
from rarely.study.storage import CHUNK, Lease, Tables, VersionRow
from rarely.study.training import Job, Trained
from rarely.study.trial import stage_at

LEASE = 3600.0
"""Seconds that a trainer has before another one may begin."""
FEW = 64
"""Decisions that are followed while others wait; more are followed before."""
TURNS = 20
"""How often a version catches up with what is decided meanwhile, before the others must wait."""


def holder_name() -> str:
    """This process, for the lease."""
    return f"{socket.gethostname()}/{os.getpid()}"


def _has_died(holder: str) -> bool:
    """Whether a holder was a process of this machine that is gone; if in doubt, it was not.

    The lease of one that lives after all may be taken over without harm: its token is no longer the latest.
    """
    host, _, number = holder.rpartition("/")
    if os.name != "posix" or host != socket.gethostname() or not number.isdecimal():
        return False
    try:
        os.kill(int(number), 0)  # signal 0 asks, and does nothing
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False


def begin(session: Session, *, force: bool, lease: float, holder: str, actor: str, reason: str) -> Job:
    """Take the lease, and cut the record here."""
    with session.writing() as tables:
        position = session.position
        _check_open(session)
        token = _take_lease(session, tables, lease, holder)
        cut = session.append(tables, "cut", {"token": token, "holder": holder}, actor=actor, reason=reason).seq
        policy = copy.deepcopy(session.live.bare())
    try:
        found = _settled_in_parts(session, position.cut, cut)
    except BaseException:
        release(session, token)
        raise
    rounds, rewards = zip(*found, strict=True) if found else ((), ())
    return Job(session.name, token, position.version, cut, policy, tuple(rounds), tuple(rewards), force)


def _settled_in_parts(session: Session, start: int, cut: int) -> list[tuple[int, float]]:
    """`settled`, read in parts, so that others may decide meanwhile: what a cut has settled never changes."""
    study, rule = session.row.study, session.settings.rewards
    with session.reading() as tables:
        spans = spans_of(tables, study, rule, start, cut)
    found: list[tuple[int, float]] = []
    for span in spans:
        for first in range(span.first, span.last, CHUNK):
            with session.reading() as tables:
                found += span.read(tables, study, rule, first, min(first + CHUNK, span.last))
    return found


def release(session: Session, token: int) -> None:
    """Give the lease back, if it is still the latest."""
    with session.writing() as tables:
        lease = tables.lease(session.row.study)
        if lease is not None and lease.token == token and lease.expires > session.now():
            tables.add_lease(session.row.study, Lease(token + 1, "", session.now(), session.now()))


def finish(session: Session, trained: Trained, *, actor: str, reason: str) -> str:
    """Record what was trained: "version", "candidate" or "rejected"."""
    try:
        return _finish(session, trained, actor=actor, reason=reason)
    except StaleTrainer:
        release(session, trained.token)  # it can never be finished, and must not keep others from training
        raise


def _finish(session: Session, trained: Trained, *, actor: str, reason: str) -> str:
    try:
        live = LivePolicy(from_bytes(session.name, trained.snapshot), session.settings)
    except BrokenStudy as error:
        raise StudyError(f"the version that was trained cannot be loaded, so it is not published: {error}") from error
    done = _followed(session, live, trained.cut)
    with session.writing() as tables:
        _check_open(session)
        lease = tables.lease(session.row.study)
        if lease is None or lease.token != trained.token:
            raise StaleTrainer(
                f"the lease of this training (token {trained.token}) was taken over by {lease and lease.holder!r} "
                f"(token {lease and lease.token}), so its version is not published. Begin a new update."
            )
        if session.position.version != trained.parent:
            raise StaleTrainer(
                f"version {trained.parent} was trained on, and version {session.position.version} is in use now. Begin "
                "a new update."
            )
        kind: Any = "version" if trained.accepted else "rejected"
        stage = session.settings.stages[stage_at(session.settings.stages, session.position.rounds + 1)[0]]
        if trained.accepted and stage.approval:
            kind = "candidate"
        content: dict[str, Any] = {
            "cut": trained.cut,
            "environment": trained.environment,
            "fingerprint": trained.fingerprint,
            "force": trained.force,
            "parent": trained.parent,
            "record": trained.record,
            "settings": trained.settings,
            "sha256": sha256_of(trained.snapshot),
            "snapshot": session.position.seq + 1,
            "token": trained.token,
        }
        if kind == "version":
            content["number"] = session.position.versions
        last = session.position.seq
        event = session.append(tables, kind, content, actor=actor, reason=reason)
        tables.add_snapshot(session.row.study, event.seq, content["sha256"], trained.snapshot)
        if kind == "version":
            add_version(session, tables, content, event.seq)
        if kind != "candidate":
            live.follow(tables.between(session.row.study, done, last))
            session.install(live)
        now = session.now()
        tables.add_lease(session.row.study, Lease(trained.token + 1, "", now, now))
    return str(kind)


def add_version(session: Session, tables: Tables, content: dict[str, Any], seq: int) -> None:
    """The row of a version that an event publishes; the database refuses one beyond the budget."""
    tables.add_version(session.row, version_row(content, seq, tables.version(session.row.study, content["parent"])))


def version_row(content: dict[str, Any], seq: int, parent: VersionRow | None) -> VersionRow:
    """The row of a version from the body of its event."""
    return VersionRow(
        content["number"],
        content["parent"],
        1 if parent is None else parent.cut + 1,
        content["cut"],
        seq,
        content["snapshot"],
        content["sha256"],
        content["fingerprint"],
        canonical(content["settings"]),
        canonical(content["settings"].get("seed")),
        canonical(content["environment"]),
    )


def _check_open(session: Session) -> None:
    """Refuse an update while none may be published."""
    position, budget = session.position, session.row.budget
    if position.pinned:
        raise StudyPinned(f"version {position.version} of study {session.name!r} is pinned; call unpin first.")
    if position.candidate is not None:
        raise ApprovalNeeded(
            f"the candidate of event {position.candidate} waits for a decision: call approve or dismiss first."
        )
    if position.versions >= budget:
        raise StudyFull(
            f"study {session.name!r} may have {budget} versions, and has them all; it goes on deciding with version "
            f"{position.version}."
        )


def _take_lease(session: Session, tables: Tables, seconds: float, holder: str) -> int:
    lease, now = tables.lease(session.row.study), session.now()
    if lease is not None and lease.expires > now and not _has_died(lease.holder):
        raise StudyBusy(
            f"{lease.holder} is training the next version, and has the lease for {(lease.expires - now) / 1e6:.0f} "
            "more seconds. Wait for it; if that process is gone from another machine, begin again after that time."
        )
    token = 1 if lease is None else lease.token + 1
    tables.add_lease(session.row.study, Lease(token, holder, now, now + round(seconds * 1e6)))
    return token


def _followed(session: Session, live: LivePolicy, cut: int) -> int:
    """Let a new version catch up while the old one decides; the last event that it knows then."""
    done = cut
    for _ in range(TURNS):
        with session.reading() as tables:
            last = tables.last_seq(session.row.study)
        events = list(session.events(done, last))
        live.follow(events)
        done = last
        if len(events) < FEW:
            break
    return done
