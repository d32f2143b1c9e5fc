"""The record played again: every version is trained anew, and every decision is made anew.

Within one environment hashes must be equal. In another one the last digits differ, so what must be equal is the
arms, but for ties; a difference in a probability says by how much.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from rarely.core.policies.base import Policy
from rarely.study.decisions import Record, record_of
from rarely.study.deliveries import settled
from rarely.study.environment import describe, same
from rarely.study.events import Event
from rarely.study.live import LivePolicy
from rarely.study.session import Session
from rarely.study.storage import Tables
from rarely.study.training import Job, train


@dataclass(frozen=True, slots=True)
class Training:
    """One version, or one rejected or dismissed attempt, trained again.

    Examples
    --------
    >>> from rarely import LinUCB
    >>> from rarely.study import Study
    >>> study = Study.create("memory://example-training", "colours", policy=LinUCB(dim=1), arms=["red", "blue"])
    >>> _ = study.ask([[1.0], [2.0]], id="visit-1")
    >>> _ = study.tell("visit-1", 1.0)
    >>> _ = study.update()
    >>> [(training.kind, training.equal) for training in study.replay().trainings]
    [('version', True)]
    """

    seq: int
    kind: str
    fingerprint: str
    """Of the policy that the replay made,"""
    recorded: str
    """and of the one on record."""
    same_environment: bool

    @property
    def equal(self) -> bool:
        """Whether the replay made the same policy."""
        return self.fingerprint == self.recorded


@dataclass(frozen=True, slots=True)
class Replay:
    """What `Study.replay` found.

    Examples
    --------
    >>> from rarely import LinUCB
    >>> from rarely.study import Study
    >>> study = Study.create("memory://example-replay", "colours", policy=LinUCB(dim=1), arms=["red", "blue"])
    >>> _ = study.ask([[1.0], [2.0]], id="visit-1")
    >>> replay = study.replay()
    >>> replay.decisions, replay.equal
    (1, True)
    """

    decisions: int
    other_arms: tuple[int, ...]
    """Events of decisions for which the replay chose another arm."""
    largest_difference: float
    """Of a probability, over all decisions."""
    trainings: tuple[Training, ...]

    @property
    def equal(self) -> bool:
        """Whether versions of this environment have equal hashes, and decisions the same arms."""
        hashes = all(training.equal for training in self.trainings if training.same_environment)
        return hashes and not self.other_arms


def replay(session: Session) -> Replay:
    """Play the record again, from version 0 on; nothing is written, and others may write meanwhile."""
    player = _Player(session)
    with session.reading() as tables:
        last = tables.last_seq(session.row.study)
    for block in _blocks(session.events(0, last)):
        player.play(block)
    return Replay(player.decisions, tuple(player.other), player.largest, tuple(player.trainings))


class _Player:
    """What a replay has found so far."""

    def __init__(self, session: Session) -> None:
        self._session, self._here = session, describe()
        with session.reading() as tables:
            self._live = LivePolicy(session.load(tables, 1), session.settings)
            self._cuts = _cuts(tables, session.row.study)
        self._origin = 1
        self._jobs: dict[int, tuple[Policy, int]] = {}
        self.decisions, self.largest = 0, 0.0
        self.other: list[int] = []
        self.trainings: list[Training] = []

    def play(self, block: list[Event]) -> None:
        """One block of decisions, or one event of another kind."""
        first = block[0]
        if first.kind == "decide":
            self._decide([record_of(event, self._session.settings.arms) for event in block])
        elif first.kind == "cut" and first.seq in self._cuts:
            # A training knows the policy as it stood at its cut, and the rewards that were settled by then.
            self._jobs[first.seq] = (copy.deepcopy(self._live.bare()), self._origin)
        elif first.kind in ("version", "rejected", "candidate") and first.content["snapshot"] == first.seq:
            self._train(first)
        if first.kind in ("version", "rejected", "rollback"):
            self._resume(first.content, first.seq)

    def _decide(self, records: list[Record]) -> None:
        """Decide a block anew, compare, and go on with the arms on record."""
        live, state = self._live, self._live.state
        stage, questions = next(live.blocks([record.question for record in records]))
        decision, _ = live.decide(stage, questions)
        live.put_back(state)
        live.follow_records(records)
        for i, record in enumerate(records):
            made = decision.probabilities[i, : len(record.present)][record.present]
            self.largest = max(self.largest, float(np.abs(made - record.probabilities).max()))
            if int(decision.arms[i]) != record.answer.index:
                self.other.append(record.answer.seq)
        self.decisions += len(records)

    def _train(self, event: Event) -> None:
        content, session = event.content, self._session
        policy, start = self._jobs.pop(content["cut"])
        with session.reading() as tables:
            found = settled(tables, session.row.study, session.settings.rewards, start, content["cut"])
        rounds, rewards = tuple(round for round, _ in found), tuple(reward for _, reward in found)
        job = Job(session.name, content["token"], 0, content["cut"], policy, rounds, rewards, content["force"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # whoever trained was warned
            fingerprint = train(job).fingerprint
        same_place = same(self._here, content["environment"])
        self.trainings.append(Training(event.seq, event.kind, fingerprint, content["fingerprint"], same_place))

    def _resume(self, content: dict[str, Any], seq: int) -> None:
        """Go on from the snapshot on record, which was compared with the replay's where it was made."""
        with self._session.reading() as tables:
            self._live = LivePolicy(self._session.load(tables, content["snapshot"]), self._session.settings)
        self._live.follow(self._session.events(content["cut"], seq - 1))
        self._origin = content["cut"]


def _cuts(tables: Tables, study: int) -> set[int]:
    """The cuts that a training on record has."""
    found = (event.content for event in tables.specials(study) if event.kind in ("version", "rejected", "candidate"))
    return {content["cut"] for content in found}


def _blocks(events: Iterable[Event]) -> Iterator[list[Event]]:
    """Decisions that were made together, and every other event alone."""
    keyed = ((event.content["block"] if event.kind == "decide" else -event.seq, event) for event in events)
    for _, group in groupby(keyed, lambda pair: pair[0]):
        yield [event for _, event in group]
