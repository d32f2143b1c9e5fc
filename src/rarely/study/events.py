"""Events: the append-only record of a study, each with the hash of the one before it.

    hash = SHA-256(previous hash, study, seq, kind, time, actor, reason, ref, key, why, body, data)

The last hash vouches for everything before it. Who notes it elsewhere can tell later whether the end was cut off.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from rarely.study.canonical import canonical, canonical_text, digest

Kind = Literal[
    "create",
    "decide",
    "reward",
    "late reward",
    "quarantine",
    "cut",
    "rejected",
    "candidate",
    "dismissed",
    "version",
    "rollback",
    "pin",
    "unpin",
    "shadow",
]
GENESIS = "0" * 64
"""The hash before the first event."""
SPECIALS: tuple[Kind, ...] = (
    *("create", "rejected", "candidate", "dismissed", "version", "rollback", "pin", "unpin", "shadow"),
)
"""Kinds of which a study has few: all but decisions, rewards and cuts."""
SETTERS: tuple[Kind, ...] = ("create", "rejected", "version", "rollback")
"""Kinds after which the policy goes on from another snapshot."""


@dataclass(frozen=True, slots=True)
class Event:
    """One row of the record.

    Examples
    --------
    >>> from rarely import LinUCB
    >>> from rarely.study import Study
    >>> study = Study.create("memory://example-event", "colours", policy=LinUCB(dim=1), arms=["red", "blue"])
    >>> _ = study.ask([[1.0], [2.0]], id="visit-1")
    >>> [(event.seq, event.kind, event.ref) for event in study.events()]
    [(1, 'create', None), (2, 'decide', 'visit-1')]
    """

    seq: int
    """1, 2, … without gaps."""
    kind: Kind
    time: int
    """Microseconds since 1970 (UTC); never less than that of the event before it."""
    actor: str
    reason: str
    ref: str | None
    """The decision id that the event is about, if any."""
    key: str | None
    """Which delivery of a reward it is; None for other kinds."""
    why: str
    """Why a reward is in the quarantine; "" for everything else."""
    body: str
    """Canonical JSON."""
    data: bytes
    """Arrays as little-endian float64; `body` says which."""
    previous: str
    hash: str

    @property
    def content(self) -> dict[str, Any]:
        """The body as a dict."""
        content: dict[str, Any] = json.loads(self.body)
        return content


def hash_of(study: str, event: Event) -> str:
    """The hash that the event must have."""
    names = (event.kind, event.actor, event.reason, event.ref, event.key, event.why)
    return digest(event.previous, head_of(study, event.seq, event.time, *names), event.body, event.data)


def head_of(
    study: str, seq: int, time: int, kind: Kind, actor: str, reason: str, ref: str | None, key: str | None, why: str
) -> str:
    """Canonical JSON of [study, seq, kind, time, actor, reason, ref, key, why], formatted without an encoder.

    >>> head_of("trial", 2, 17, "decide", "web", "", "visit-1", None, "")
    '["trial",2,"decide",17,"web","","visit-1",null,""]'
    """
    text = canonical_text
    names = f"{text(actor)},{text(reason)},{text(ref)},{text(key)},{text(why)}"
    return f"[{text(study)},{seq},{text(kind)},{time},{names}]"


def next_event(
    study: str, last: tuple[int, str, int], kind: Kind, time: int, content: dict[str, Any], **fields: Any
) -> Event:
    """The event after `last`, which is given by (seq, hash, time); see `written_event` for the fields."""
    return written_event(study, last, kind, time, canonical(content), **fields)


def written_event(
    study: str,
    last: tuple[int, str, int],
    kind: Kind,
    time: int,
    body: str,
    *,
    actor: str,
    reason: str = "",
    ref: str | None = None,
    key: str | None = None,
    why: str = "",
    data: bytes = b"",
) -> Event:
    """The same for a body that is canonical JSON already."""
    seq, previous, earlier = last[0] + 1, last[1], last[2]
    # A clock may be set back; the record's times do not go back, because waiting windows are measured in them.
    moment = max(time, earlier)
    hash = digest(previous, head_of(study, seq, moment, kind, actor, reason, ref, key, why), body, data)
    return Event(seq, kind, moment, actor, reason, ref, key, why, body, data, previous, hash)


def flaw_of(study: str, event: Event, seq: int, previous: str) -> str:
    """Why the event cannot stand at this place of the record; "" if it can."""
    if event.seq != seq:
        return f"event {seq} is missing; event {event.seq} comes next"
    if event.previous != previous:
        return f"event {seq} does not continue the chain: its previous hash is not that of event {seq - 1}"
    if event.hash != hash_of(study, event):
        return f"event {seq} ({event.kind}) was altered: its content does not have its hash"
    return ""
