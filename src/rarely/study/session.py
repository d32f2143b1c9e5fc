"""One open study: the policy in memory is kept in step with the record.

A call runs in one transaction. First the policy catches up with what other processes have recorded; then it decides,
the events are written and committed, and only then is anything answered. If the call fails, policy and position go back
to what they were. If it is not known whether the commit took place, the policy is dropped and built again from
the record by the next call.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

from rarely.core.policies.state import PolicyState
from rarely.study.deliveries import Accounts, accounts_of, used_by
from rarely.study.errors import BrokenStudy, StudyClosed, StudyFailed, UnknownStudy
from rarely.study.events import SETTERS, Event, Kind, flaw_of, next_event
from rarely.study.live import LivePolicy
from rarely.study.position import Position
from rarely.study.settings import StudySettings
from rarely.study.snapshots import from_bytes, sha256_of
from rarely.study.storage import CHUNK, Storage, StudyRow, Tables

Clock = Callable[[], float]


class MustFollow(Exception):
    """The running Z must be brought up to date before anything is decided; nothing was done."""


class Session:
    """The record of a study, and its policy in memory; for any number of threads, one at a time."""

    def __init__(self, storage: Storage, name: str, clock: Clock = time.time) -> None:
        self.storage, self.name, self._clock = storage, name, clock
        self._lock, self._recording = threading.RLock(), threading.RLock()
        self._closed = self._failed = ""
        self._live: LivePolicy | None = None
        self._shadow: tuple[int, LivePolicy] | None = None
        self._used: tuple[int, int] | None = None
        """Rewards that were used up to a cut; they are counted once for each cut."""
        self.position = Position()
        with storage.reading() as tables:
            row = tables.study(name)
            if row is None:
                known = ", ".join(repr(each.name) for each in tables.studies()) or "none"
                raise UnknownStudy(f"{storage.url} has no study called {name!r}; it has: {known}.")
            first = tables.event(row.study, 1)
            if first is None or flaw_of(name, first, 1, Position().head):
                raise BrokenStudy(f"the first event of study {name!r} is missing or was altered. Use a backup.")
        self.row: StudyRow = row
        self.settings = StudySettings.from_description(first.content["study"])
        self.dim = int(first.content["dim"])

    @property
    def live(self) -> LivePolicy:
        """The policy in use; only inside of `writing`."""
        assert self._live is not None
        return self._live

    @property
    def due(self) -> bool:
        """Whether the schedule has ended the batch, as far as the policy in memory knows; needs no transaction."""
        live = self._live
        return live is not None and live.policy.due

    def wall_clock(self) -> int:
        """The time in microseconds, as this machine has it."""
        return round(self._clock() * 1e6)

    def now(self) -> int:
        """The time in microseconds; never less than that of the last event."""
        return max(self.wall_clock(), self.position.time)

    def close(self) -> None:
        """Give the database back."""
        with self._lock:
            if not self._closed:
                self._closed, self._live, self._shadow = "it was closed", None, None
                self.storage.close()

    @property
    def failure(self) -> str:
        """Why no more work is done; "" while all is well."""
        return self._failed or self._closed

    def check(self) -> None:
        """Refuse work after a failure, or after `close`."""
        if self._failed:
            raise StudyFailed(f"{self._failed} Open the study again: Study.open.")
        if self._closed:
            raise StudyClosed(f"study {self.name!r} was closed. Open it again: Study.open.")

    @contextmanager
    def reading(self) -> Iterator[Tables]:
        """A transaction that only reads."""
        self.check()
        with self.storage.reading() as tables:
            yield tables

    def events(self, first: int, last: int) -> Iterator[Event]:
        """Events after `first`, up to and including `last`, read in parts, so that others may write meanwhile."""
        while first < last:
            with self.reading() as tables:
                events = tables.after(self.row.study, first, min(CHUNK, last - first))
            if not events:
                return
            yield from events
            first = events[-1].seq

    @contextmanager
    def writing(self, *, waiting_arms: int | None = None) -> Iterator[Tables]:
        """A transaction in which the policy stands at the end of the record.

        With a number of arms, the running Z may stay behind for decisions of at most so many, until `record_backlog` or
        the next transaction without it; `MustFollow` if it may not.
        """
        # Always in this order: whoever records the backlog takes the session's lock for a moment.
        with self._recording if waiting_arms is None else nullcontext(), self._lock:
            self.check()
            if waiting_arms is None and self._live is not None:
                # Before it follows others, whose rounds may change the form of Z; and before others wait for the lock.
                self._live.settle()
            before: tuple[LivePolicy, PolicyState, Position] | None = None
            done = False
            try:
                with self.storage.writing(self.name) as tables:
                    if waiting_arms is None:
                        self._catch_up(tables)
                    else:
                        self._defer(tables, waiting_arms)
                    before = (self.live, self.live.state, self.position)
                    yield tables
                    done = True
            except MustFollow:
                raise
            except BaseException as error:
                if isinstance(error, StudyFailed):
                    self._failed = str(error)
                if before is None or done:
                    self._live = None
                else:
                    self._live, state, self.position = before
                    self._live.put_back(state)
                raise

    def may_wait(self, arms: int) -> bool:
        """Whether decisions of at most so many arms may be recorded later, as far as is known without a transaction."""
        live = self._live
        return live is not None and live.may_wait(arms)

    def _defer(self, tables: Tables, arms: int) -> None:
        """Let rounds wait; only where there is nothing to catch up with, because that could change the form of Z."""
        live = self._live
        if live is None or tables.last_seq(self.row.study) != self.position.seq or not live.defer(arms):
            raise MustFollow

    @property
    def backlog(self) -> int:
        """Rounds that are on record and not in the running Z yet."""
        live = self._live
        backlog = None if live is None else live.backlog
        return 0 if backlog is None else backlog.rounds

    def record_backlog(self) -> None:
        """Add the rounds that wait to the running Z, while other threads go on deciding."""
        with self._recording:
            with self._lock:
                live = self._live
                backlog = None if live is None else live.backlog
            if live is None or backlog is None or not backlog.rounds:
                return
            done, due = backlog.recorded()
            with self._lock:
                if self._live is live:
                    live.record(backlog, done, due)

    def append(self, tables: Tables, kind: Kind, content: dict[str, Any], **fields: Any) -> Event:
        """Write the next event."""
        event = self.following(kind, content, **fields)
        tables.append(self.row.study, [event])
        return event

    def following(self, kind: Kind, content: dict[str, Any], **fields: Any) -> Event:
        """The next event, which the caller must write; the position of this session moves to it."""
        event = next_event(self.name, self.position.last, kind, self.now(), content, **fields)
        self.position = self.position.after(event, content)
        return event

    def install(self, live: LivePolicy) -> None:
        """Let another policy decide from now on; it must stand at the end of the record."""
        self._live = live

    # --- from the record to the policy

    def _catch_up(self, tables: Tables) -> None:
        if self._live is None:
            self._rebuild(tables)
            return
        last = tables.last_seq(self.row.study)
        if last == self.position.seq:
            return
        if last < self.position.seq:
            raise BrokenStudy(f"the record of study {self.name!r} has lost events; it was altered. Use a backup.")
        if any(event.kind in SETTERS for event in tables.specials(self.row.study, self.position.seq)):
            self._rebuild(tables)
            return
        self._live.follow(self._checked(tables, last))

    def _checked(self, tables: Tables, last: int) -> Iterator[Event]:
        """The events up to `last`, each checked against the chain; the position follows."""
        for event in tables.between(self.row.study, self.position.seq, last):
            flaw = flaw_of(self.name, event, self.position.seq + 1, self.position.head)
            if flaw:
                raise BrokenStudy(f"the record of study {self.name!r} is damaged: {flaw}. Use a backup.")
            self.position = self.position.after(event)
            yield event

    def _rebuild(self, tables: Tables) -> None:
        """The policy from the snapshot in use and the decisions since its cut."""
        study, position = self.row.study, Position()
        for event in tables.specials(study):
            position = position.after(event)
        live = LivePolicy(self.load(tables, position.base), self.settings)
        cut, last = tables.event(study, position.cut), tables.last_decision(study)
        if cut is None:
            raise BrokenStudy(f"event {position.cut} of study {self.name!r} is missing. Use a backup.")
        if last is not None:
            position = position.after(last)
        position = position.counting(tables.delivered(study, cut.seq))
        self.position = replace(position, seq=cut.seq, head=cut.hash, time=cut.time)
        live.follow(self._checked(tables, tables.last_seq(study)))
        if live.policy.round != self.position.rounds:
            raise BrokenStudy(
                f"study {self.name!r} has {self.position.rounds} decisions on record, and its policy made "
                f"{live.policy.round}. Use a backup."
            )
        self._live = live

    def load(self, tables: Tables, seq: int) -> Any:
        """The policy whose snapshot an event holds."""
        found, event = tables.snapshot(self.row.study, seq), tables.event(self.row.study, seq)
        if found is None or event is None:
            raise BrokenStudy(f"the snapshot of event {seq} of study {self.name!r} is missing. Use a backup.")
        sha256, data = found
        if not sha256 == sha256_of(data) == event.content["sha256"]:
            raise BrokenStudy(
                f"the snapshot of event {seq} of study {self.name!r} was altered or damaged: its SHA-256 is not that "
                "on record. Use a backup, or roll back to another version."
            )
        return from_bytes(self.name, data)

    def accounts(self, tables: Tables) -> Accounts:
        """Where all rewards are."""
        learned = self.position.learned
        if self._used is None or self._used[0] != learned:
            self._used = (learned, used_by(tables, self.row.study, self.settings.rewards, learned))
        return accounts_of(self.position, self._used[1])

    def shadow(self, tables: Tables) -> LivePolicy | None:
        """The version that is scored beside the one in use, if any."""
        seq = self.position.shadow
        if seq is None:
            return None
        if self._shadow is None or self._shadow[0] != seq:
            self._shadow = (seq, LivePolicy(self.load(tables, seq), self.settings))
        return self._shadow[1]
