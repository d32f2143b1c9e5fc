"""One open study: the record in a database, and the policy in memory that follows from it.

A call runs in one transaction. First the policy catches up with what other processes have recorded; then it decides,
the events are written and committed, and only then is anything answered. If the call fails, policy and position are
restored. If it is unknown whether the commit succeeded, the policy is dropped, and the next call rebuilds it from the
record.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np

from rarely import Decision, Policy, SnapshotError, load
from rarely._core.policies.replay import follow, put_back, rule_of, set_life, set_rule, state_of
from rarely._core.types import Array
from rarely.study.decisions import Question, Record, block_of, record_of
from rarely.study.errors import BrokenStudy, StudyClosed, StudyFailed, UnknownStudy
from rarely.study.events import SETTERS, Event, Kind, Position, digest, flaw_of, next_event
from rarely.study.settings import StudySettings
from rarely.study.storage import CHUNK, Storage, StudyRow, Tables
from rarely.study.trial import rule_of_stage, stage_at

Clock = Callable[[], float]


# --- policies as bytes


def to_bytes(policy: Policy) -> bytes:
    """Return the bytes that `policy.save` writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "policy")
        policy.save(path)
        with open(path, "rb") as file:
            return file.read()


def from_bytes(study: str, data: bytes) -> Policy:
    """Return the policy that `to_bytes` was given; all processes of a study give decisions the same life."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "policy")
        with open(path, "wb") as file:
            file.write(data)
        try:
            policy: Policy = load(path)
        except SnapshotError as error:
            raise BrokenStudy(f"a snapshot of study {study!r} is damaged: {error}") from error
    set_life(policy, digest("life", study)[:16])
    return policy


def sha256_of(data: bytes) -> str:
    """Return the hash of a snapshot's bytes."""
    return hashlib.sha256(data).hexdigest()


class LivePolicy:
    """A policy under the rules of a study's stages: decides new rounds, and repeats recorded ones."""

    def __init__(self, policy: Policy, settings: StudySettings) -> None:
        self.policy, self._settings = policy, settings
        self._own = rule_of(policy)

    @property
    def state(self) -> Any:
        return state_of(self.policy)

    def put_back(self, state: Any) -> None:
        put_back(self.policy, state)

    def bare(self) -> Policy:
        """Return the policy with its own rule, as it is trained and saved."""
        set_rule(self.policy, self._own)
        return self.policy

    def blocks(self, questions: Sequence[Question]) -> Iterator[tuple[int, list[Question]]]:
        """Yield the questions in parts that belong to one stage each, with the index of the stage."""
        rest, round = list(questions), self.policy.round + 1
        while rest:
            stage, left = stage_at(self._settings.stages, round)
            part = rest if left is None else rest[:left]
            yield stage, part
            rest, round = rest[len(part) :], round + len(part)

    def decide(self, stage: int, questions: Sequence[Question]) -> tuple[Decision, bool]:
        """Decide rounds of one stage, and return whether each drew a uniform number."""
        drew = self._enter(stage)
        return self.policy.select(*block_of(questions, self._settings)), drew

    def probabilities(self, stage: int, questions: Sequence[Question]) -> Array:
        """Return the (n, K) probabilities that this policy would draw from, without deciding."""
        self._enter(stage)
        return np.atleast_2d(self.policy.probabilities(*block_of(questions, self._settings)))

    def follow(self, events: Iterable[Event]) -> None:
        """Repeat the recorded decisions among these events."""
        self.follow_records(record_of(event, self._settings.arms) for event in events if event.kind == "decide")

    def follow_records(self, records: Iterable[Record]) -> None:
        for _, group in groupby(records, lambda record: record.block):
            block = list(group)
            first = block[0].answer
            if first.round != self.policy.round + 1:
                raise BrokenStudy(
                    f"event {first.seq} is round {first.round}, but the policy has made {self.policy.round} rounds: "
                    "the snapshot does not belong to this record. Use a backup."
                )
            self._enter(stage_at(self._settings.stages, first.round)[0])
            contexts, mask = block_of([record.question for record in block], self._settings)
            arms = np.array([record.answer.index for record in block], np.int64)
            chances = np.array([record.answer.probability for record in block])
            follow(self.policy, contexts, mask, arms, chances)

    def _enter(self, stage: int) -> bool:
        """Set the rule of a stage, and return whether it draws."""
        rule = rule_of_stage(self._settings.stages[stage], self._own, self._settings.arms)
        if rule_of(self.policy) != rule:
            set_rule(self.policy, rule)
        return rule.draws


class Session:
    """The record of a study and its policy in memory; any number of threads may call, one at a time."""

    def __init__(self, storage: Storage, name: str, clock: Clock = time.time) -> None:
        self.storage, self.name, self._clock = storage, name, clock
        self._lock = threading.RLock()
        self._closed, self._failed = False, ""
        self._live: LivePolicy | None = None
        self._shadow: tuple[int, LivePolicy] | None = None
        self.used: tuple[int, int] | None = None
        """A cut and the number of rewards used up to it, which never changes; see `tell.accounts_of`."""
        self.position = Position()
        with storage.reading() as tables:
            row = tables.study(name)
            if row is None:
                known = ", ".join(repr(each.name) for each in tables.studies()) or "none"
                raise UnknownStudy(f"{storage.url} has no study called {name!r}; its studies are: {known}.")
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
        """Whether the schedule has ended the batch, according to the policy in memory, without a transaction."""
        live = self._live
        return live is not None and live.policy.due

    @property
    def failure(self) -> str:
        """Why the session does no more work; "" if it works."""
        return self._failed or ("it was closed" if self._closed else "")

    def wall_clock(self) -> int:
        return round(self._clock() * 1e6)

    def now(self) -> int:
        """Return the time in microseconds, but never less than that of the last event."""
        return max(self.wall_clock(), self.position.time)

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed, self._live, self._shadow = True, None, None
                self.storage.close()

    def check(self) -> None:
        if self._failed:
            raise StudyFailed(f"{self._failed} Open the study again: Study.open.")
        if self._closed:
            raise StudyClosed(f"study {self.name!r} was closed. Open it again: Study.open.")

    @contextmanager
    def reading(self) -> Iterator[Tables]:
        self.check()
        with self.storage.reading() as tables:
            yield tables

    def last_seq(self) -> int:
        with self.reading() as tables:
            return tables.last_seq(self.row.study)

    def events(self, first: int, last: int) -> Iterator[Event]:
        """Yield the events after `first` up to and including `last`, in short reads between which others may write."""
        while first < last:
            with self.reading() as tables:
                events = tables.after(self.row.study, first, min(CHUNK, last - first))
            if not events:
                return
            yield from events
            first = events[-1].seq

    @contextmanager
    def writing(self) -> Iterator[Tables]:
        """Open a transaction in which the policy is up to date with the record; restore the policy if it fails."""
        with self._lock:
            self.check()
            before: tuple[LivePolicy, Any, Position] | None = None
            done = False
            try:
                with self.storage.writing(self.name) as tables:
                    self._catch_up(tables)
                    before = (self.live, self.live.state, self.position)
                    yield tables
                    done = True
            except BaseException as error:
                if isinstance(error, StudyFailed):
                    self._failed = str(error)
                if before is None or done:
                    # The commit may have succeeded: let the next call rebuild the policy from the record.
                    self._live = None
                else:
                    self._live, state, self.position = before
                    self._live.put_back(state)
                raise

    def append(self, tables: Tables, kind: Kind, content: dict[str, Any], **fields: Any) -> Event:
        event = self.next_event(kind, content, **fields)
        tables.append(self.row.study, [event])
        return event

    def next_event(self, kind: Kind, content: dict[str, Any], **fields: Any) -> Event:
        """Return the next event, which the caller must write, and move the position to it."""
        event = next_event(self.name, self.position.last, kind, self.now(), content, **fields)
        self.position = self.position.after(event, content)
        return event

    def install(self, live: LivePolicy) -> None:
        """Let another policy decide from now on; it must be up to date with the record."""
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
        """Yield the events up to `last`, each checked against the chain, and move the position along."""
        for event in tables.between(self.row.study, self.position.seq, last):
            flaw = flaw_of(self.name, event, self.position.seq + 1, self.position.head)
            if flaw:
                raise BrokenStudy(f"the record of study {self.name!r} is damaged: {flaw}. Use a backup.")
            self.position = self.position.after(event)
            yield event

    def _rebuild(self, tables: Tables) -> None:
        """Build the policy from the snapshot in use and the decisions since its cut."""
        study, position = self.row.study, Position()
        for event in tables.specials(study):
            position = position.after(event)
        live = LivePolicy(self.load(tables, position.base), self.settings)
        cut, last = tables.event(study, position.cut), tables.last_decision(study)
        if cut is None:
            raise BrokenStudy(f"event {position.cut} of study {self.name!r} is missing. Use a backup.")
        if last is not None:
            position = position.after(last)
        position = position.with_deliveries(tables.delivered(study, cut.seq))
        self.position = replace(position, seq=cut.seq, head=cut.hash, time=cut.time)
        live.follow(self._checked(tables, tables.last_seq(study)))
        if live.policy.round != self.position.rounds:
            raise BrokenStudy(
                f"study {self.name!r} has {self.position.rounds} decisions on record, but its policy has made "
                f"{live.policy.round}. Use a backup."
            )
        self._live = live

    def load(self, tables: Tables, seq: int) -> Policy:
        """Return the policy whose snapshot an event holds."""
        event = tables.event(self.row.study, seq)
        if event is None:
            raise BrokenStudy(f"event {seq} of study {self.name!r} is missing. Use a backup.")
        return from_bytes(self.name, self.snapshot(tables, event))

    def snapshot(self, tables: Tables, event: Event) -> bytes:
        """Return the snapshot that an event names, if it is the one on record."""
        content = event.content
        found = tables.snapshot(self.row.study, content["snapshot"])
        what = f"the snapshot of event {event.seq} ({event.kind}) of study {self.name!r}"
        if found is None:
            raise BrokenStudy(f"{what} is missing. Use a backup.")
        sha256, data = found
        if not sha256 == sha256_of(data) == content["sha256"]:
            raise BrokenStudy(
                f"{what} was altered or damaged: its SHA-256 is not the one on record. Use a backup, or roll back to "
                "another version."
            )
        return data

    def shadow(self, tables: Tables) -> LivePolicy | None:
        seq = self.position.shadow
        if seq is None:
            return None
        if self._shadow is None or self._shadow[0] != seq:
            self._shadow = (seq, LivePolicy(self.load(tables, seq), self.settings))
        return self._shadow[1]
