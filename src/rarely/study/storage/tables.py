"""The rows that a study reads and writes inside one transaction, in SQL that both databases understand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import islice
from operator import attrgetter
from typing import Any, Protocol

from rarely.study.events import SPECIALS, Event, Kind

_EVENT = "seq, kind, time, actor, reason, ref, key, why, body, data, previous, hash"
_FIELDS = attrgetter(*_EVENT.split(", "))
_VERSION = "number, parent, first, cut, seq, snapshot, sha256, fingerprint, settings, seed, environment"
_REWARDED = (
    "FROM rarely_events d JOIN rarely_events r ON r.study = d.study AND r.ref = d.ref AND r.key IS NOT NULL "
    "AND r.kind = 'reward' WHERE d.study = ? AND d.kind = 'decide'"
)
"""Joins decisions d with their accepted rewards r."""
CHUNK = 1000
"""Events that are read at a time, so that a long read does not keep writers waiting."""
IDS_PER_STATEMENT = 256
"""Ids that one statement looks up; every version of SQLite accepts that many parameters."""


class Connection(Protocol):
    """A database connection inside a transaction; the SQL has ? for each parameter."""

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""

    def insert(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run one statement for each row."""


@dataclass(frozen=True, slots=True)
class StudyRow:
    """The row of a study."""

    study: int
    name: str
    budget: int


@dataclass(frozen=True, slots=True)
class VersionRow:
    """The row of a published version; `settings`, `seed` and `environment` are JSON.

    Examples
    --------
    >>> from rarely import LinUCB
    >>> from rarely.study import Study
    >>> study = Study.create("memory://example-versions", "colours", policy=LinUCB(dim=1), arms=["red", "blue"])
    >>> version = study.versions()[0]
    >>> version.number, version.parent, version.seq
    (0, None, 1)
    """

    number: int
    parent: int | None
    first: int
    """The first event after the parent's cut."""
    cut: int
    """The last event that it learned from: the end of its log range."""
    seq: int
    """The event that published it."""
    snapshot: int
    """The event that holds its snapshot."""
    sha256: str
    """The hash of the snapshot's bytes."""
    fingerprint: str
    """The fingerprint of the policy: equal for equal policies, whatever file holds them."""
    settings: str
    seed: str
    environment: str


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to publish the next version; times are in microseconds."""

    token: int
    holder: str
    taken: int
    expires: int


class Tables:
    """The rows of a database, within one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._run = connection, connection.execute

    def take(self, stream: Callable[[str], Iterable[tuple[Any, ...]]], tables: Mapping[str, str]) -> None:
        """Add all rows of another database of the same schema, given by a function from SQL to rows.

        `tables` are the tables, each with the columns that order its rows.
        """
        for table, order in tables.items():
            rows = iter(stream(f"SELECT * FROM {table} ORDER BY {order}"))
            while part := list(islice(rows, CHUNK)):
                self._connection.insert(f"INSERT INTO {table} VALUES ({', '.join('?' * len(part[0]))})", part)

    def _events(self, where: str, *parameters: Any) -> list[Event]:
        """Return the events of a study that fulfil a condition; the first parameter is the study."""
        sql = f"SELECT {_EVENT} FROM rarely_events WHERE study = ? {where}"
        return [Event(*row) for row in self._run(sql, parameters)]

    # --- studies

    def studies(self) -> list[StudyRow]:
        rows = self._run("SELECT study, name, budget FROM rarely_studies ORDER BY study")
        return [StudyRow(*row) for row in rows]

    def study(self, name: str) -> StudyRow | None:
        rows = self._run("SELECT study, name, budget FROM rarely_studies WHERE name = ?", (name,))
        return StudyRow(*rows[0]) if rows else None

    def add_study(self, name: str, budget: int) -> StudyRow:
        row = StudyRow(len(self.studies()) + 1, name, budget)
        self._run("INSERT INTO rarely_studies VALUES (?, ?, ?)", astuple(row))
        return row

    # --- events

    def append(self, study: int, events: Iterable[Event]) -> None:
        sql = f"INSERT INTO rarely_events (study, {_EVENT}) VALUES ({', '.join('?' * 13)})"
        self._connection.insert(sql, [(study, *_FIELDS(event)) for event in events])

    def last_seq(self, study: int) -> int:
        """Return the seq of the last event; 0 for an empty record."""
        found = self._run("SELECT max(seq) FROM rarely_events WHERE study = ?", (study,))[0][0]
        return 0 if found is None else int(found)

    def event(self, study: int, seq: int) -> Event | None:
        return next(iter(self._events("AND seq = ?", study, seq)), None)

    def after(self, study: int, seq: int, limit: int) -> list[Event]:
        return self._events("AND seq > ? ORDER BY seq LIMIT ?", study, seq, limit)

    def of_kind(self, study: int, kind: Kind, first: int, last: int) -> list[Event]:
        """Return the events of one kind, other than decisions, after `first` up to and including `last`."""
        where = "AND kind <> 'decide' AND kind = ? AND seq > ? AND seq <= ? ORDER BY seq"
        return self._events(where, study, kind, first, last)

    def specials(self, study: int, first: int = 0) -> list[Event]:
        """Return the events after `first` except decisions, rewards and cuts: versions, approvals, pins and so on."""
        marks = ", ".join("?" * len(SPECIALS))
        where = f"AND kind <> 'decide' AND kind IN ({marks}) AND seq > ?"
        # Sorted here: with ORDER BY seq, SQLite would scan the whole record instead of using the index of kinds.
        return sorted(self._events(where, study, *SPECIALS, first), key=attrgetter("seq"))

    def last_decision(self, study: int, last: int) -> Event | None:
        """Return the last decision up to and including event `last`."""
        where = "AND kind = 'decide' AND seq <= ? ORDER BY seq DESC LIMIT 1"
        return next(iter(self._events(where, study, last)), None)

    def decisions(self, study: int, refs: Sequence[str]) -> dict[str, Event]:
        """Return the recorded decisions among these ids, by id."""
        found = self._of_ids("kind = 'decide'", study, refs)
        return {event.ref: event for event in found if event.ref is not None}

    def deliveries(self, study: int, refs: Sequence[str]) -> dict[str, list[Event]]:
        """Return all rewards received for these ids, in order, by id."""
        found: dict[str, list[Event]] = {ref: [] for ref in refs}
        # Sorted here: with ORDER BY seq, SQLite would scan the whole record instead of using the index of deliveries.
        for event in sorted(self._of_ids("key IS NOT NULL", study, refs), key=attrgetter("seq")):
            assert event.ref is not None
            found[event.ref].append(event)
        return found

    def _of_ids(self, what: str, study: int, refs: Sequence[str]) -> list[Event]:
        """Return the events about these ids that fulfil a condition, with few statements."""
        found: list[Event] = []
        for first in range(0, len(refs), IDS_PER_STATEMENT):
            part = refs[first : first + IDS_PER_STATEMENT]
            # Padded to a power of 2, so that a connection has few different statements to prepare.
            part = [*part, *[part[-1]] * ((1 << (len(part) - 1).bit_length()) - len(part))]
            found += self._events(f"AND {what} AND ref IN ({', '.join('?' * len(part))})", study, *part)
        return found

    def last_until(self, study: int, time: int, seq: int) -> int:
        """Return the seq of the last event up to `seq` whose time is at most `time`; 0 if there is none."""
        low, high = 0, seq
        while low < high:  # times never fall with seq, so no index on them is needed
            middle = (low + high + 1) // 2
            found = self._run("SELECT time FROM rarely_events WHERE study = ? AND seq = ?", (study, middle))
            low, high = (middle, high) if found and found[0][0] <= time else (low, middle - 1)
        return low

    # --- rewards

    def delivered(self, study: int, last: int) -> list[tuple[str, str, int]]:
        """Count the deliveries up to and including `last` by kind and cause."""
        where = "WHERE study = ? AND key IS NOT NULL AND seq <= ? GROUP BY kind, why"
        found = self._run(f"SELECT kind, why, count(*) FROM rarely_events {where}", (study, last))
        return sorted((str(kind), str(why), int(count)) for kind, why, count in found)

    def rewards_until(self, study: int, last: int) -> int:
        sql = "SELECT count(*) FROM rarely_events WHERE study = ? AND kind <> 'decide' AND kind = 'reward' AND seq <= ?"
        return int(self._run(sql, (study, last))[0][0])

    def rewards_decided_until(self, study: int, last: int) -> int:
        """Count the accepted rewards of decisions up to and including event `last`."""
        sql = f"SELECT count(*) {_REWARDED} AND d.seq <= ?"
        return int(self._run(sql, (study, last))[0][0])

    def rewards_of(self, study: int, first: int, last: int) -> list[tuple[int, list[float]]]:
        """Return the round and accepted rewards of each decision after `first` up to and including `last`, in order."""
        sql = f"SELECT d.seq, r.body {_REWARDED} AND d.seq > ? AND d.seq <= ? ORDER BY d.seq, r.seq"
        found: dict[int, tuple[int, list[float]]] = {}
        for seq, body in self._run(sql, (study, first, last)):
            content = json.loads(body)
            found.setdefault(seq, (content["round"], []))[1].append(content["reward"])
        return list(found.values())

    def unrewarded(self, study: int, first: int, last: int) -> list[int]:
        """Return the rounds of decisions after `first` up to and including `last` without a reward or an override."""
        sql = (
            "SELECT d.body FROM rarely_events d WHERE d.study = ? AND d.kind = 'decide' AND d.seq > ? AND d.seq <= ? "
            "AND NOT EXISTS (SELECT 1 FROM rarely_events r WHERE r.study = d.study AND r.ref = d.ref "
            "AND r.key IS NOT NULL AND (r.kind = 'reward' OR r.why = 'override')) ORDER BY d.seq"
        )
        return [int(json.loads(body)["round"]) for (body,) in self._run(sql, (study, first, last))]

    # --- snapshots and versions

    def add_snapshot(self, study: int, seq: int, sha256: str, policy: bytes) -> None:
        self._run("INSERT INTO rarely_snapshots VALUES (?, ?, ?, ?)", (study, seq, sha256, policy))

    def snapshot(self, study: int, seq: int) -> tuple[str, bytes] | None:
        rows = self._run("SELECT sha256, policy FROM rarely_snapshots WHERE study = ? AND seq = ?", (study, seq))
        return (str(rows[0][0]), bytes(rows[0][1])) if rows else None

    def add_version(self, row: StudyRow, version: VersionRow) -> None:
        sql = f"INSERT INTO rarely_versions (study, budget, {_VERSION}) VALUES ({', '.join('?' * 13)})"
        self._run(sql, (row.study, row.budget, *astuple(version)))

    def versions(self, study: int) -> list[VersionRow]:
        sql = f"SELECT {_VERSION} FROM rarely_versions WHERE study = ? ORDER BY number"
        return [VersionRow(*row) for row in self._run(sql, (study,))]

    def version(self, study: int, number: int) -> VersionRow | None:
        sql = f"SELECT {_VERSION} FROM rarely_versions WHERE study = ? AND number = ?"
        rows = self._run(sql, (study, number))
        return VersionRow(*rows[0]) if rows else None

    # --- leases

    def lease(self, study: int) -> Lease | None:
        sql = "SELECT token, holder, taken, expires FROM rarely_leases WHERE study = ? "
        sql += "ORDER BY token DESC, expires DESC LIMIT 1"
        rows = self._run(sql, (study,))
        return Lease(*rows[0]) if rows else None

    def add_lease(self, study: int, lease: Lease) -> None:
        self._run("INSERT INTO rarely_leases VALUES (?, ?, ?, ?, ?)", (study, *astuple(lease)))

    # --- checkpoints, in a transaction of `Storage.checkpoints`

    def checkpoints(self, study: int, base: int) -> list[tuple[int, int, str, bytes, bytes]]:
        """Return start, seq, hash, rows of the history and state of a snapshot's checkpoints, in order."""
        sql = "SELECT start, seq, sha256, history, state FROM rarely_checkpoints WHERE study = ? AND base = ? "
        return [
            (int(start), int(seq), str(sha256), bytes(history), bytes(state))
            for start, seq, sha256, history, state in self._run(sql + "ORDER BY start", (study, base))
        ]

    def last_checkpoint(self, study: int, base: int) -> tuple[int, int, int, str] | None:
        """Return start, length of the history, seq and hash of the latest checkpoint of a snapshot."""
        sql = "SELECT start, length(history), seq, sha256 FROM rarely_checkpoints WHERE study = ? AND base = ? "
        rows = self._run(sql + "ORDER BY start DESC LIMIT 1", (study, base))
        return rows[0] if rows else None

    def add_checkpoint(self, study: int, base: int, start: int, *values: Any) -> None:
        """Add seq, hash, rows and state of a checkpoint; only the latest one of a snapshot keeps its state."""
        which, empty = "WHERE study = ? AND base = ? AND start", b""
        here = (study, base, start)
        self._run(f"UPDATE rarely_checkpoints SET state = ? {which} < ? AND state <> ?", (empty, *here, empty))
        self._run(f"DELETE FROM rarely_checkpoints {which} = ? AND history = ?", (*here, empty))
        self._run("INSERT INTO rarely_checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", (*here, *values))

    def drop_checkpoints(self, study: int, *bases: int, which: str = "IN") -> None:
        """Drop the checkpoints of these snapshots, or, if they are "NOT IN" them, of the others."""
        marks = ", ".join("?" * len(bases))
        sql = f"DELETE FROM rarely_checkpoints WHERE study = ? AND base {which} ({marks})"
        self._run(sql, (study, *bases))
