"""The rows that a study reads and writes in one transaction, by table:

    rarely_schema      the schema version, and the version of rarely that wrote it
    rarely_studies     one row per study: its name and B, the maximal number of versions
    rarely_events      the append-only record
    rarely_snapshots   serialized policies, each created by one event
    rarely_erasures    which studies were deleted, when, by whom and why
    rarely_leases      who may publish the next version: the latest row with the highest token

Rows are only ever added, but for what `erasure` takes from them: triggers refuse UPDATE and DELETE on every table.
`rarely_checkpoints` is not part of the record and lies beside it, in PostgreSQL in the same schema and with SQLite in a
file of its own.

SQL of transactions is such that both databases understand it.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from operator import attrgetter
from types import UnionType
from typing import Any, TypeVar, get_type_hints

from rarely.study.errors import BrokenStudy
from rarely.study.events import SPECIALS, Event, EventKind, day, read_body

Run = Callable[..., list[tuple[Any, ...]]]
"""Runs one statement, with ? for each parameter that follows in a sequence, and returns its rows."""

_EVENT = "seq, kind, time, actor, reason, ref, key, why, body, data, previous, hash"
_SPECIAL = f"IN ({', '.join('?' * len(SPECIALS))})"
_FIELDS = attrgetter(*_EVENT.split(", "))
_REWARDED = (
    "FROM rarely_events d JOIN rarely_events r ON r.study = d.study AND r.ref = d.ref AND r.key IS NOT NULL "
    "AND r.kind = 'reward' WHERE d.study = ? AND d.kind = 'decide'"
)
"""Joins decisions d with their accepted rewards r."""
_DECIDED = "FROM rarely_events d WHERE d.study = ? AND d.kind = 'decide' AND d.seq > ? AND d.seq <= ?"
CHUNK = 1000  # events that are read at a time, so that a long read does not keep writers waiting
IDS_PER_STATEMENT = 256  # ids that one statement looks up; every version of SQLite accepts that many parameters


@dataclass(frozen=True, slots=True)
class StudyRow:
    """The row of a study."""

    study: int
    name: str
    budget: int


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to publish the next version; times are in microseconds."""

    token: int
    holder: str
    taken: int
    expires: int


Row = TypeVar("Row", StudyRow, Lease, Event)


def _kinds(kind: type[Any]) -> tuple[Any, ...]:
    hints = get_type_hints(kind)
    read = [hints[each.name] for each in fields(kind) if each.init]
    return tuple(hint if isinstance(hint, type | UnionType) else str for hint in read)  # one of some names is text


_KINDS: dict[Any, tuple[Any, ...]] = {kind: _kinds(kind) for kind in (StudyRow, Lease, Event)}


def _made(kind: type[Row], row: tuple[Any, ...]) -> Row:
    """Return a row, whose values must be what they were when it was written."""
    if not all(map(isinstance, row, _KINDS[kind])):
        raise BrokenStudy(f"{kind.__name__} {row[0]!r} of the record has a value of another kind. Use a backup.")
    return kind(*row)


class Tables:
    """The rows of one study within one transaction, and of all studies where a method says so."""

    def __init__(self, run: Run, insert: Callable[[str, list[Any]], None], study: int = 0) -> None:
        self.run, self._insert, self._study = run, insert, study

    def of(self, row: StudyRow) -> Tables:
        """Return the rows of a study."""
        return Tables(self.run, self._insert, row.study)

    def _rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Run a statement whose first parameter is the study."""
        return self.run(sql, (self._study, *parameters))

    def _events(self, where: str, *parameters: Any) -> list[Event]:
        """Return the events that fulfil a condition."""
        rows = self._rows(f"SELECT {_EVENT} FROM rarely_events WHERE study = ? {where}", *parameters)
        return [_made(Event, row) for row in rows]

    # --- all studies

    def studies(self) -> list[StudyRow]:
        rows = self.run("SELECT study, name, budget FROM rarely_studies ORDER BY study")
        return [_made(StudyRow, row) for row in rows]

    def study(self, name: str) -> StudyRow | None:
        return next((row for row in self.studies() if row.name == name), None)

    def add_study(self, name: str, budget: int) -> StudyRow:
        numbers = [row.study for row in self.studies()]
        # A number is not used again: a process that has a deleted study open must not read another one.
        erased = int(self.run("SELECT count(*) FROM rarely_erasures")[0][0])
        row = StudyRow(max([len(numbers) + erased, *numbers]) + 1, name, budget)
        self.run("INSERT INTO rarely_studies VALUES (?, ?, ?)", astuple(row))
        return row

    def erased(self, name: str) -> str:
        """Return who deleted a study of this name, when and why, in a sentence; "" if nobody has."""
        sql = "SELECT time, actor, reason, events FROM rarely_erasures WHERE name = ? ORDER BY number DESC LIMIT 1"
        for when, actor, reason, events in self.run(sql, (name,)):
            why = reason or "no reason given"
            return f" {name!r} was deleted on {day(when)} by {actor!r}, with {events} events: {why}."
        return ""

    # --- events

    def append(self, *events: Event) -> None:
        sql = f"INSERT INTO rarely_events (study, {_EVENT}) VALUES ({', '.join('?' * 13)})"
        self._insert(sql, [(self._study, *_FIELDS(event)) for event in events])

    def last_seq(self) -> int:
        """Return the seq of the last event; 0 for an empty record."""
        last = self._rows("SELECT max(seq) FROM rarely_events WHERE study = ?")[0][0] or 0
        if not isinstance(last, int):
            raise BrokenStudy(f"the last event must have a number; it has {last!r}. Use a backup.")
        return last

    def event(self, seq: int) -> Event | None:
        return next(iter(self._events("AND seq = ?", seq)), None)

    def after(self, seq: int, limit: int) -> list[Event]:
        return self._events("AND seq > ? ORDER BY seq LIMIT ?", seq, limit)

    def of_kind(self, kind: EventKind, first: int, last: int) -> list[Event]:
        """Return the events of one kind, other than decisions, after `first` up to and including `last`."""
        where = "AND kind <> 'decide' AND kind = ? AND seq > ? AND seq <= ? ORDER BY seq"
        return self._events(where, kind, first, last)

    def latest(self, kind: EventKind, most: int) -> list[Event]:
        """Return the latest events of one kind, other than decisions, the last one first."""
        return self._events("AND kind <> 'decide' AND kind = ? ORDER BY seq DESC LIMIT ?", kind, most)

    def specials(self, first: int = 0) -> list[Event]:
        """Return the events after `first` except decisions, rewards and cuts: versions, approvals, pins and so on."""
        # Sorted here: with ORDER BY seq, SQLite would scan the whole record instead of using the index of kinds.
        events = self._events(f"AND kind <> 'decide' AND kind {_SPECIAL} AND seq > ?", *SPECIALS, first)
        return sorted(events, key=attrgetter("seq"))

    def most_arms(self) -> int:
        """Return the largest number of arms of a decision; 0 if there is none."""
        arms = "CAST(json(body) ->> 'arms' AS BIGINT)"
        return int(self._rows(f"SELECT max({arms}) FROM rarely_events WHERE study = ? AND kind = 'decide'")[0][0] or 0)

    def has_decisions_with(self, name: str) -> bool:
        """Return whether the body of a decision has a field of this name."""
        which = f"kind = 'decide' AND json(body) ->> '{name}' IS NOT NULL"
        return bool(self._rows(f"SELECT 1 FROM rarely_events WHERE study = ? AND {which} LIMIT 1"))

    def last_decision(self, last: int) -> Event | None:
        """Return the last decision up to and including event `last`."""
        where = "AND kind = 'decide' AND seq <= ? ORDER BY seq DESC LIMIT 1"
        return next(iter(self._events(where, last)), None)

    def decisions(self, ids: Sequence[str]) -> dict[str, Event]:
        """Return the recorded decisions among these ids, by id."""
        return {str(event.ref): event for event in self._of_ids("kind = 'decide'", ids)}

    def deliveries(self, ids: Sequence[str]) -> dict[str, list[Event]]:
        """Return all rewards received for these ids, in order, by id."""
        by_id: dict[str, list[Event]] = {id: [] for id in ids}
        # Sorted here: with ORDER BY seq, SQLite would scan the whole record instead of using the index of deliveries.
        for event in sorted(self._of_ids("key IS NOT NULL", ids), key=attrgetter("seq")):
            by_id[str(event.ref)].append(event)
        return by_id

    def _of_ids(self, what: str, ids: Sequence[str]) -> list[Event]:
        """Return the events about these ids that fulfil a condition, with few statements."""
        events: list[Event] = []
        for first in range(0, len(ids), IDS_PER_STATEMENT):
            part = ids[first : first + IDS_PER_STATEMENT]
            # Padded to a power of 2, so that a connection has few different statements to prepare.
            part = [*part, *[part[-1]] * ((1 << (len(part) - 1).bit_length()) - len(part))]
            events += self._events(f"AND {what} AND ref IN ({', '.join('?' * len(part))})", *part)
        return events

    def last_until(self, time: int, seq: int) -> int:
        """Return the seq of the last event up to `seq` whose time is at most `time`; 0 if there is none."""

        def time_of(seq: int) -> int:  # of a pruned event, that of the event before it
            sql = "SELECT time FROM rarely_events WHERE study = ? AND seq <= ? ORDER BY seq DESC LIMIT 1"
            rows = self._rows(sql, seq)
            return int(rows[0][0]) if rows else time + 1

        return bisect(range(1, seq + 1), time, key=time_of)  # times never fall with seq: no index on them is needed

    # --- what is taken from the record, while `Database.altering` lifts the triggers

    def rewrite(self, event: Event) -> None:
        """Put what an erasure leaves of an event in its place; its hash stays."""
        sql = "UPDATE rarely_events SET actor = ?, reason = ?, ref = ?, key = ?, body = ?, data = ?"
        values = (event.actor, event.reason, event.ref, event.key, event.body, event.data)
        self.run(f"{sql} WHERE study = ? AND seq = ?", (*values, self._study, event.seq))

    def size(self, last: int) -> tuple[int, int]:
        """Return how many events up to `last` are not special, and about how many bytes they take."""
        sizes = " + ".join(f"length({name})" for name in ("body", "data", "previous", "hash", "actor", "reason"))
        sql = f"SELECT count(*), coalesce(sum({sizes}), 0) FROM rarely_events WHERE study = ? AND seq <= ?"
        events, size = self._rows(f"{sql} AND kind NOT {_SPECIAL}", last, *SPECIALS)[0]
        return int(events), int(size)

    def prune(self, last: int) -> None:
        """Delete the events up to `last` that are not special."""
        self._rows(f"DELETE FROM rarely_events WHERE study = ? AND seq <= ? AND kind NOT {_SPECIAL}", last, *SPECIALS)

    def snapshots(self) -> set[int]:
        """Return the events whose snapshots are there."""
        return {int(seq) for (seq,) in self._rows("SELECT seq FROM rarely_snapshots WHERE study = ?")}

    def drop_snapshots(self, seqs: Iterable[int]) -> None:
        for seq in seqs:
            self._rows("DELETE FROM rarely_snapshots WHERE study = ? AND seq = ?", seq)

    # --- rewards

    def delivered(self, last: int) -> tuple[tuple[str, str, int], ...]:
        """Count the deliveries up to and including `last` by kind and cause, in order."""
        where = "WHERE study = ? AND key IS NOT NULL AND seq <= ? GROUP BY kind, why"
        rows = self._rows(f"SELECT kind, why, count(*) FROM rarely_events {where}", last)
        return tuple(sorted((str(kind), str(why), int(count)) for kind, why, count in rows))

    def rewards_until(self, last: int, *, decided: bool) -> int:
        """Count the accepted rewards up to and including event `last`, or those of decisions up to there."""
        came = "FROM rarely_events WHERE study = ? AND kind <> 'decide' AND kind = 'reward' AND seq <= ?"
        return int(self._rows(f"SELECT count(*) {f'{_REWARDED} AND d.seq <= ?' if decided else came}", last)[0][0])

    def rewards_of(self, first: int, last: int) -> list[tuple[int, list[float]]]:
        """Return the round and accepted rewards of each decision after `first` up to and including `last`, in order."""
        sql = f"SELECT d.seq, r.seq, r.body {_REWARDED} AND d.seq > ? AND d.seq <= ?"
        by_decision: dict[int, tuple[int, list[float]]] = {}
        # Sorted here: with ORDER BY r.seq, SQLite would scan the whole record for each decision.
        for seq, _, body in sorted(self._rows(sql, first, last)):
            content = read_body(body)
            by_decision.setdefault(seq, (content["round"], []))[1].append(content["reward"])
        return list(by_decision.values())

    def unrewarded(self, first: int, last: int) -> list[int]:
        """Return the rounds of decisions after `first` up to and including `last` without a reward or an override."""
        sql = (
            f"SELECT d.body {_DECIDED} AND NOT EXISTS (SELECT 1 FROM rarely_events r WHERE r.study = d.study "
            "AND r.ref = d.ref AND r.key IS NOT NULL AND (r.kind = 'reward' OR r.why = 'override')) ORDER BY d.seq"
        )
        return [int(read_body(body)["round"]) for (body,) in self._rows(sql, first, last)]

    def earned(
        self, decided: tuple[int, int], told: tuple[int, int], width: int, rule: str
    ) -> list[tuple[int | float, ...]]:
        """Return what each span of `width` microseconds, version and arm has of decisions and rewards.

        Rows are the span, version and arm, how many decisions came after the first event of `decided` up to the second,
        how many rewards, their sum and sum of squares, how many are neither 0 nor 1, and what they are worth. By the
        rule "first" they are the rewards that came in the part `told` of the record, else those of the decisions in it.
        """
        field = "CAST(json({0}.body) ->> '{1}' AS {2})".format
        cell = f"d.time / {width} AS span, {field('d', 'version', 'BIGINT')} AS v, {field('d', 'arm', 'BIGINT')} AS a"
        cells = f"(SELECT {cell} {_DECIDED}) AS decided GROUP BY span, v, a"
        rows = self._rows(f"SELECT span, v, a, count(*), 0, 0.0, 0.0, 0, 0.0 FROM {cells}", *decided)
        part = "r.seq > ? AND r.seq <= ?" if rule == "first" else "d.seq > ? AND d.seq <= ?"
        if rule == "last":
            part += (
                " AND NOT EXISTS (SELECT 1 FROM rarely_events s WHERE s.study = r.study AND s.ref = r.ref "
                "AND s.key IS NOT NULL AND s.kind = 'reward' AND s.seq + 0 > r.seq)"  # + 0: not by the index of seq
            )
        reward, gain, cost = (
            field(of, name, "DOUBLE PRECISION") for of, name in (("r", "reward"), ("d", "gain"), ("d", "cost"))
        )
        worth = f"max(coalesce({gain}, 1.0)) * sum({reward}) - max(coalesce({cost}, 0.0))"
        summed = f"sum({reward}) AS x, {worth} AS y"
        sql = f"SELECT {cell}, {summed} {_REWARDED} AND {part} GROUP BY d.seq, span, v, a"
        sums = "count(*), sum(x), sum(x * x), sum(CASE WHEN x IN (0, 1) THEN 0 ELSE 1 END), sum(y)"
        sql = f"SELECT span, v, a, 0, {sums} FROM ({sql}) AS told GROUP BY span, v, a"
        return [*rows, *self._rows(sql, *told)]

    # --- snapshots

    def add_snapshot(self, seq: int, sha256: str, policy: bytes) -> None:
        self._rows("INSERT INTO rarely_snapshots VALUES (?, ?, ?, ?)", seq, sha256, policy)

    def snapshot(self, seq: int) -> tuple[str, bytes] | None:
        rows = self._rows("SELECT sha256, policy FROM rarely_snapshots WHERE study = ? AND seq = ?", seq)
        if rows and not isinstance(rows[0][1], bytes):
            raise BrokenStudy(f"the snapshot of event {seq} must be bytes. Use a backup.")
        return (str(rows[0][0]), rows[0][1]) if rows else None

    # --- leases

    def lease(self) -> Lease | None:
        sql = "SELECT token, holder, taken, expires FROM rarely_leases WHERE study = ? "
        rows = self._rows(sql + "ORDER BY token DESC, expires DESC LIMIT 1")
        return _made(Lease, rows[0]) if rows else None

    def add_lease(self, lease: Lease) -> None:
        self._rows("INSERT INTO rarely_leases VALUES (?, ?, ?, ?, ?)", *astuple(lease))

    # --- checkpoints, in a transaction of `Storage.checkpoints`

    def checkpoints(self, base: int) -> list[tuple[int, int, str, bytes, bytes]]:
        """Return start, seq, hash, rows of the history and state of a snapshot's checkpoints, in order."""
        sql = "SELECT start, seq, sha256, history, state FROM rarely_checkpoints WHERE study = ? AND base = ? "
        return [
            (int(start), int(seq), str(sha256), bytes(history), bytes(state))
            for start, seq, sha256, history, state in self._rows(sql + "ORDER BY start", base)
        ]

    def last_checkpoint(self, base: int) -> tuple[int, int, int, str] | None:
        """Return start, length of the history, seq and hash of the latest checkpoint of a snapshot."""
        sql = "SELECT start, length(history), seq, sha256 FROM rarely_checkpoints WHERE study = ? AND base = ? "
        rows = self._rows(sql + "ORDER BY start DESC LIMIT 1", base)
        return rows[0] if rows else None

    def add_checkpoint(self, base: int, start: int, *values: Any) -> None:
        """Add seq, hash, rows and state of a checkpoint; only the latest one of a snapshot keeps its state."""
        which, empty = "WHERE study = ? AND base = ? AND start", b""
        self.run(
            f"UPDATE rarely_checkpoints SET state = ? {which} < ? AND state <> ?",
            (empty, self._study, base, start, empty),
        )
        self._rows(f"DELETE FROM rarely_checkpoints {which} = ? AND history = ?", base, start, empty)
        self._rows("INSERT INTO rarely_checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", base, start, *values)

    def drop_checkpoints_of(self, seq: int, bases: Collection[int]) -> None:
        """Drop what may know what is gone: checkpoints from before an event, and those of snapshots that went."""
        self._rows("DELETE FROM rarely_checkpoints WHERE study = ? AND seq < ?", seq)
        for base in bases:
            self.drop_checkpoints(base)

    def drop_checkpoints(self, *bases: int, which: str = "IN") -> None:
        """Drop the checkpoints of these snapshots, or, if they are "NOT IN" them, of the others."""
        marks = ", ".join("?" * len(bases))
        self._rows(f"DELETE FROM rarely_checkpoints WHERE study = ? AND base {which} ({marks})", *bases)
