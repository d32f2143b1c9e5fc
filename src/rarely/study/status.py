"""Where a study stands, in numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rarely.study.deliveries import Accounts
from rarely.study.session import Session
from rarely.study.trial import stage_at


@dataclass(frozen=True, slots=True)
class Status:
    """What `Study.status` tells.

    Examples
    --------
    >>> from rarely import LinUCB
    >>> from rarely.study import Study
    >>> study = Study.create("memory://example-status", "colours", policy=LinUCB(dim=1), arms=["red", "blue"])
    >>> _ = study.ask([[1.0], [2.0]], id="visit-1")
    >>> status = study.status()
    >>> status.decisions, status.version, status.due
    (1, 0, True)
    """

    name: str
    events: int
    head: str
    """The hash of the last event: note it elsewhere, and `verify` can tell whether the end was cut off."""
    time: int
    """Of the last event, in microseconds since 1970 (UTC)."""
    decisions: int
    version: int
    """The version in use."""
    versions: int
    """How many were published,"""
    budget: int
    """and how many there may be."""
    due: bool
    """Whether the schedule has ended the batch."""
    log_det: float
    stage: str
    pinned: bool
    candidate: int | None
    """The event of a version that waits for approval."""
    shadow: int | None
    trainer: str
    """Who holds the lease for training; "" for nobody."""
    rewards: Accounts

    def describe(self) -> dict[str, Any]:
        """The status as JSON."""
        return asdict(self)


def status_of(session: Session) -> Status:
    """Look at the record and at the policy."""
    with session.writing() as tables:
        position, policy = session.position, session.live.policy
        lease = tables.lease(session.row.study)
        return Status(
            name=session.name,
            events=position.seq,
            head=position.head,
            time=position.time,
            decisions=position.rounds,
            version=position.version,
            versions=position.versions,
            budget=session.row.budget,
            due=policy.due,
            log_det=policy.log_det,
            stage=session.settings.stages[stage_at(session.settings.stages, position.rounds + 1)[0]].name,
            pinned=position.pinned,
            candidate=position.candidate,
            shadow=position.shadow,
            trainer=lease.holder if lease is not None and lease.expires > session.now() else "",
            rewards=session.accounts(tables),
        )
