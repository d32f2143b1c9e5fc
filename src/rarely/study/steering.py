"""What people do to a study: approve and dismiss candidates, pin, roll back, let a version run in the shadow.

Each is an event with its actor and its reason.
"""

from __future__ import annotations

from typing import Any

from rarely.study.errors import ApprovalNeeded, InvalidStudy, StudyFull, StudyPinned
from rarely.study.live import LivePolicy
from rarely.study.publishing import add_version
from rarely.study.session import Session
from rarely.study.storage import Tables


def approve(session: Session, *, actor: str, reason: str) -> int:
    """Publish the candidate; the number of its version."""
    with session.writing() as tables:
        seq, event = _candidate(session, tables)
        if session.position.pinned:
            raise StudyPinned(
                f"version {session.position.version} of study {session.name!r} is pinned; unpin it first."
            )
        if session.position.versions >= session.row.budget:
            raise StudyFull(f"study {session.name!r} has all of its {session.row.budget} versions.")
        known = event.content
        names = ("cut", "environment", "fingerprint", "force", "parent", "record", "settings", "sha256", "token")
        content = {name: known[name] for name in names} | {"number": session.position.versions, "snapshot": seq}
        live = _followed(session, tables, seq, known["cut"])
        published = session.append(tables, "version", content, actor=_named(actor), reason=reason)
        add_version(session, tables, content, published.seq)
        session.install(live)
        return int(content["number"])


def dismiss(session: Session, *, actor: str, reason: str) -> None:
    """Drop the candidate; the version in use goes on."""
    with session.writing() as tables:
        seq, _ = _candidate(session, tables)
        session.append(tables, "dismissed", {"candidate": seq}, actor=_named(actor), reason=reason)


def roll_back(session: Session, number: int, *, actor: str, reason: str) -> None:
    """Let an earlier version decide again; it keeps its number, and no version is spent."""
    with session.writing() as tables:
        row = tables.version(session.row.study, number) if type(number) is int else None
        if row is None:
            raise InvalidStudy(f"version must be one of 0 … {session.position.versions - 1}; got {number!r}.")
        live = _followed(session, tables, row.snapshot, row.cut)
        content = {"cut": row.cut, "from": session.position.version, "number": number, "snapshot": row.snapshot}
        session.append(tables, "rollback", content, actor=actor, reason=reason)
        session.install(live)


def pin(session: Session, pinned: bool, *, actor: str, reason: str) -> None:
    """Keep the version in use, or let updates go on."""
    with session.writing() as tables:
        if session.position.pinned != pinned:
            content = {"version": session.position.version}
            session.append(tables, "pin" if pinned else "unpin", content, actor=actor, reason=reason)


def set_shadow(session: Session, version: int | str | None, *, actor: str, reason: str) -> None:
    """Score the candidate, or a version, beside the one in use; None ends it."""
    with session.writing() as tables:
        seq: int | None = None
        if version == "candidate":
            seq, _ = _candidate(session, tables)
        elif version is not None:
            row = tables.version(session.row.study, version) if type(version) is int else None
            if row is None:
                raise InvalidStudy(f"shadow must be 'candidate', the number of a version or None; got {version!r}.")
            seq = row.snapshot
        if seq is not None:
            session.load(tables, seq)  # a damaged snapshot is refused now
        session.append(tables, "shadow", {"snapshot": seq}, actor=actor, reason=reason)


def _candidate(session: Session, tables: Tables) -> tuple[int, Any]:
    seq = session.position.candidate
    event = None if seq is None else tables.event(session.row.study, seq)
    if seq is None or event is None:
        raise ApprovalNeeded(f"study {session.name!r} has no candidate that waits for approval; call update first.")
    return seq, event


def _followed(session: Session, tables: Tables, seq: int, cut: int) -> LivePolicy:
    """The policy of a snapshot, after all decisions since its cut."""
    live = LivePolicy(session.load(tables, seq), session.settings)
    live.follow(tables.between(session.row.study, cut, session.position.seq))
    return live


def _named(actor: str) -> str:
    if not actor:
        raise InvalidStudy("an approval must name who gives it: actor='name'.")
    return actor
