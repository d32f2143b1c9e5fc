"""Whether the record is whole: the chain of its events, and the rows and snapshots that they name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rarely.study.events import GENESIS, Event, flaw_of
from rarely.study.publishing import version_row
from rarely.study.session import Session
from rarely.study.snapshots import sha256_of
from rarely.study.storage import Tables, VersionRow


@dataclass(frozen=True, slots=True)
class Verification:
    """What `Study.verify` found.

    Examples
    --------
    >>> from rarely import LinUCB
    >>> from rarely.study import Study
    >>> study = Study.create("memory://example-verification", "colours", policy=LinUCB(dim=1), arms=["red", "blue"])
    >>> verification = study.verify()
    >>> verification.whole, verification.events, verification.flaw
    (True, 1, '')
    """

    events: int
    """Events that were checked, from the first on."""
    head: str
    """The hash of the last of them."""
    bad: int | None
    """The first event that is wrong; None if the record is whole."""
    flaw: str
    """What is wrong with it; "" if nothing is."""

    @property
    def whole(self) -> bool:
        """Whether nothing is wrong."""
        return not self.flaw


def verify(session: Session, head: str | None = None, seq: int | None = None) -> Verification:
    """Check every row; with `head`, also that the event that had this hash, at `seq`, is still there."""
    study = session.row.study
    with session.reading() as tables:
        last, rows = tables.last_seq(study), tables.versions(study)
    previous, checked, noted = GENESIS, 0, ""
    published: list[tuple[int, dict[str, Any]]] = []
    for event in session.events(0, last):
        flaw = flaw_of(session.name, event, checked + 1, previous) or _misplaced(event)
        if not flaw and event.kind in ("create", "version", "candidate", "rejected"):
            with session.reading() as tables:
                flaw = _snapshot_flaw(tables, study, event)
        if flaw:
            return Verification(checked, previous, checked + 1, flaw)
        if event.kind in ("create", "version"):
            published.append((event.seq, event.content))
        previous, checked = event.hash, event.seq
        noted = event.hash if seq in (None, event.seq) else noted
    if checked < last or not checked:
        return Verification(checked, previous, checked + 1, f"event {checked + 1} is missing")
    flaw = _version_flaw([row for row in rows if row.seq <= last], published)
    if not flaw and head not in (None, noted):
        flaw = "the hash that was noted is not on record any more: the end of the record was cut off or rewritten"
    return Verification(checked, previous, checked + 1 if flaw else None, flaw)


def _misplaced(event: Event) -> str:
    if (event.seq == 1) != (event.kind == "create"):
        return f"event {event.seq} is a {event.kind!r}, and only the first is a 'create'"
    return ""


def _snapshot_flaw(tables: Tables, study: int, event: Event) -> str:
    content = event.content
    found = tables.snapshot(study, content["snapshot"])
    if found is None:
        return f"the snapshot of event {event.seq} ({event.kind}) is missing"
    if not found[0] == sha256_of(found[1]) == content["sha256"]:
        return f"the snapshot of event {event.seq} ({event.kind}) was altered: its SHA-256 is not the one on record"
    return ""


def _version_flaw(rows: list[VersionRow], published: list[tuple[int, dict[str, Any]]]) -> str:
    """Whether the table of versions says what the events say."""
    expected: list[VersionRow] = []
    for seq, content in published:
        parent = None if content["parent"] is None else expected[content["parent"]]
        expected.append(version_row(content, seq, parent))
    for known, right in zip(rows, expected, strict=False):
        if known != right:
            return f"version {right.number} has another row than event {right.seq} published"
    if len(rows) != len(expected):
        return f"there are {len(rows)} versions, and the events published {len(expected)}"
    return ""
