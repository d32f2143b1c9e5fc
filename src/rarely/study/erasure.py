"""Erasing what the record knows of persons, and pruning what is old; `events` says what that leaves.

Both are one transaction, in which the triggers are lifted that refuse changes, and an event of the record.

An erasure is a rollback to the version in use: every process makes the rounds since its cut again, with zeros for the
contexts that are gone. Versions that may have learned from them cannot be rolled back to, and their snapshots go; that
in use stays until another version replaces it, and the next one is trained without the rounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rarely.extend import Described
from rarely.extend.checks import is_whole, shown
from rarely.study.decision import slate_ids
from rarely.study.errors import InvalidId, InvalidStudy, StudyBusy
from rarely.study.events import Event, Position, blanked, gone_of, hash_of, kept_hash, read_moment, summed
from rarely.study.session import FEW_EVENTS, MAX_CATCH_UPS, LivePolicy, Session, segments
from rarely.study.storage import Tables
from rarely.study.tell import closed_until, used_until
from rarely.study.versions import OUTCOMES

BY = ("id", "user")  # what names a person besides a column: ids of decisions, or of users
COLUMN = "user."  # what may stand before the name of a column of the user's table; it must where that is "id" or "user"
BYTES = bytes | bytearray | memoryview  # what Python takes apart into numbers, or reads as one


@dataclass(frozen=True, slots=True)
class Erasure(Described):
    """What `Study.erase` has done.

    Examples
    --------
    >>> Erasure(decisions=3, rewards=2, remains=()).decisions
    3
    """

    decisions: int
    rewards: int
    remains: tuple[str, ...]
    """What may still hold the contexts, and what ends that, in sentences; backups and exports are not listed."""


@dataclass(frozen=True, slots=True)
class Pruning(Described):
    """What `Study.prune` has done, or would do.

    Examples
    --------
    >>> Pruning(events=1200, bytes=480_000, last=1400, limit="").last
    1400
    """

    events: int  #: Decisions and rewards.
    bytes: int  #: About how many they take.
    last: int  #: The last event that goes; 0 for none.
    limit: str  #: Why no more of them go; "" if all do.


# --- erasing


def erase(session: Session, ids: Any, by: str, signed: dict[str, str]) -> Erasure:
    """Erase contexts and ids of persons; see `Study.erase`."""
    persons = _read_persons(session, ids, by)
    live, found, last = _follow_without(session, persons)
    decisions = rewards = 0
    if live is not None:
        with session.writing() as tables:
            decisions, rewards = _erase(session, tables, persons, (live, found, last), signed)
    with session.writing() as tables:
        gone, position, history = gone_of(tables.specials()), session.position, session.live.policy.history
    remains = [said for said in (persons.other, _cleaned(session)) if said]
    if position.base in gone.snapshots:
        ends = "goes when another version replaces it, which is trained without them."
        if position.versions >= session.row.budget:
            ends = "stays, because the study has published all versions of its budget: begin another, and delete this."
        known = f"version {position.version}, which is in use, may have learned from erased contexts"
        remains.append(f"{known}: its snapshot {ends}")
    if gone.last and len(history) and history.rows[0] < history.logged + gone.pruned["round"]:
        remains.append(
            f"version {position.version}, which is in use, keeps contexts of decisions up to event {gone.last}, of "
            "which nobody can say whose they were, because they were pruned: erase persons before pruning."
        )
    return Erasure(decisions, rewards, tuple(remains))


def _cleaned(session: Session) -> str:
    """Drop checkpoints that know what is gone, and overwrite what was deleted; return what is left, "" for nothing."""
    with session.reading() as record:
        gone, there = gone_of(record.specials()), record.snapshots()
    try:
        with session.checkpoints() as tables:
            tables.drop_checkpoints_of(gone.erased, gone.snapshots - there)
    except StudyBusy as error:  # the erasure is on record, and repeating it comes here again
        return f"checkpoints have what was erased, because others use them: repeat this ({error})"
    return session.storage.shred()


class _Persons(NamedTuple):
    """Who is to be erased."""

    ids: frozenset[str]
    by: str
    column: str  # the column that `by` names, if it names one
    other: str = ""  # what `by` may have been meant for as well, in a sentence

    def made(self, event: Event) -> bool:
        """Return whether an event is a decision about one of them that was not erased already."""
        if event.kind != "decide" or "erased" in event.content:
            return False
        content = event.content
        if self.by == "id":
            return not self.ids.isdisjoint([str(event.ref), *slate_ids(content)])
        if self.by == "user":
            return content.get("user") in self.ids
        return _text(content.get("sent", {}).get("user", {}).get(self.column)) in self.ids

    def rewards(self, tables: Tables, decided: Iterable[str] = ()) -> list[Event]:
        """Return the rewards of these decisions, and those told by ids of theirs that were never decided."""
        # What cannot be printed is no id, and no text of every database.
        named = filter(str.isprintable, self.ids if self.by == "id" else ())
        told = tables.deliveries([*{*decided, *named}])
        return [event for events in told.values() for event in events]


def _read_persons(session: Session, ids: Any, by: str) -> _Persons:
    """Return who is to be erased, by ids as text: 17, 17.0 and "17" are the same."""
    ids = ids.tolist() if isinstance(ids, np.ndarray) else ids
    several = isinstance(ids, Iterable) and not isinstance(ids, str | dict | BYTES)
    texts = [_text(each) for each in (ids if several else [ids])]
    if not texts or None in texts:
        raise InvalidId(f"ids must be a text or a number, or a list of them, that name persons; got {shown(ids)}.")
    tables = session.settings.tables
    users = None if tables is None else tables.users
    columns = () if users is None else (*(column.name for column in users.columns), *users.ignore)
    column = by.removeprefix(COLUMN) if isinstance(by, str) and by not in columns else by
    if by not in BY and column not in columns:
        raise InvalidStudy(
            f"by must be what the ids are: 'id', of decisions; 'user'; or a column of the user's table "
            f"({', '.join(columns) or 'this study has none'}); got {shown(by)}."
        )
    other = (
        f"the column {by!r} was not looked at: give by={COLUMN + by!r} for it." if by in BY and by in columns else ""
    )
    return _Persons(frozenset(text for text in texts if text is not None), by, column, other)


def _text(value: Any) -> str | None:
    """Return what an id is compared by; None for what is none."""
    if isinstance(value, str):
        return value or None
    if is_whole(value):  # of any size, also beyond the floats
        return str(int(value))
    try:
        number = None if isinstance(value, bool | np.bool_ | BYTES) else float(value)
    except (TypeError, ValueError):
        return None
    if number is None or not math.isfinite(number):
        return None
    return str(int(value)) if number.is_integer() else repr(number)


def _follow_without(session: Session, persons: _Persons) -> tuple[LivePolicy | None, dict[int, Event], int]:
    """Return the policy in use as if these persons had brought zeros, their decisions, and the last event looked at.

    Others decide meanwhile. Without anything to erase there is no policy.
    """
    with session.writing():
        position = session.position
    with session.reading() as tables:
        told = persons.rewards(tables)
    found: dict[int, Event] = {}
    live: LivePolicy | None = None
    at = session.gone().begin
    for _ in range(MAX_CATCH_UPS):
        before, last = at.seq, session.last_seq()
        for event in session.checked(session.events(at.seq, last), at):
            if persons.made(event):
                found[event.seq] = event
            at = Position(seq=event.seq, head=event.hash)
        if not (found or told):
            return None, {}, last
        live = live or session.at_cut(position.base, position.cut, session.specials())
        part = (blanked(e) if e.seq in found else e for e in session.events(live.position.seq, last))
        for _ in live.following(part, segments(position.base, session.specials()), whole=True):
            pass
        if last - before <= FEW_EVENTS:
            break
    return live, found, last


def _erase(
    session: Session,
    tables: Tables,
    persons: _Persons,
    followed: tuple[LivePolicy, dict[int, Event], int],
    signed: dict[str, str],
) -> tuple[int, int]:
    """Blank the rows, and write the event; return how many were decisions and rewards."""
    (live, found, last), position, specials = followed, session.position, tables.specials()
    if position.base != live.base:
        raise StudyBusy(f"the version of study {session.name!r} changed meanwhile. Repeat the erasure.")
    session.check_fresh(gone_of(specials), live.began)
    found = found | {e.seq: e for e in tables.after(last, position.seq - last) if persons.made(e)}
    decided = {str(event.ref): event.seq for event in found.values()}
    rewards = persons.rewards(tables, decided)
    rows = [blanked(event) for event in found.values()]
    rows += [blanked(event, decided.get(str(event.ref), event.seq)) for event in rewards]
    first = min(found, default=position.seq + 1)
    content = {"snapshot": position.base, "cut": position.cut, "number": position.version, "by": persons.by}
    content |= {"digests": {str(event.seq): hash_of(session.name, event) for event in rows}}
    content |= {"rounds": [event.content["round"] for event in found.values()]}
    content |= {"snapshots": [seq for seq, cut in _cuts(specials).items() if cut >= first]}
    with session.storage.altering("rarely_events"):
        for event in rows:
            tables.rewrite(event)
    live.began = session.append(tables, "erase", content, **signed).seq
    session.install(tables, live)
    return len(found), len(rewards)


def _cuts(specials: Sequence[Event]) -> dict[int, int]:
    """Return the last event that each snapshot knows."""
    made = [event for event in specials if event.kind in ("create", *OUTCOMES)]
    return {event.seq: event.content["cut"] for event in made if event.content["snapshot"] == event.seq}


# --- pruning


def prune(session: Session, before: Any, signed: dict[str, str], *, dry_run: bool) -> Pruning:
    """Drop decisions and rewards before a moment; see `Study.prune`."""
    with session.writing() as tables:
        position, specials = session.position, tables.specials()
        moment, rule = read_moment(before, "before"), session.settings.rewards
        if isinstance(moment, int):
            wanted = min(moment - 1, position.seq)
        else:
            wanted = tables.last_until(round(moment.timestamp() * 1e6) - 1, position.seq)
        # Neither what the version in use continues from goes, nor decisions to which a reward may come.
        last, limit = min(wanted, position.cut - 1), ""
        if rule.window is not None:
            last = min(last, closed_until(tables, rule, position.cut))
        if last < wanted:
            limit = (
                f"of the events up to {wanted} only those up to {last} go: version {position.version}, which is in "
                f"use, continues from event {position.cut}, and rewards may still belong to the others."
            )
        events, size = tables.size(last)
        if dry_run or not events:
            return Pruning(events, size, last if events else 0, limit)
        content = _pruned(session, tables, specials, last) | {"events": events, "bytes": size}
        used = used_until(session, tables)
        with session.storage.altering("rarely_snapshots", "rarely_events"):
            tables.drop_snapshots(content["snapshots"])
            tables.prune(last)
        content["lost"] = gone_of(specials).pruned.get("lost", 0) + used - used_until(session, tables)
        session.append(tables, "prune", content, **signed)
        session.used = None
    _cleaned(session)
    return Pruning(events, size, last, limit)


def _pruned(session: Session, tables: Tables, specials: Sequence[Event], last: int) -> dict[str, Any]:
    """Return what stays of the events up to `last`: hashes and counts."""
    before, decision = gone_of(specials).pruned, tables.last_decision(last)
    known = before if decision is None else decision.content
    return {
        "last": last,
        "head": session.event(tables, last).hash,
        "kept": kept_hash(specials, last),
        "snapshots": [seq for seq, cut in _cuts(specials).items() if cut <= last],
        "deliveries": summed(tables.delivered(last), before.get("deliveries", ())),
        "round": known.get("round", 0),
        "unseen": known.get("unseen", {}),
    }
