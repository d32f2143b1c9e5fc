"""Decisions that were made together, as events and answers.

Decisions are nearly all of a record, so their JSON is formatted here field by field, and what a block shares is
formatted once. The bytes are those of `canonical`, and a test compares them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rarely.core.types import Array, Decision
from rarely.study.canonical import canonical, canonical_text, packed
from rarely.study.decisions import Answer
from rarely.study.events import Event, written_event
from rarely.study.requests import Question, is_complete


@dataclass(frozen=True, slots=True)
class Block:
    """Questions of one stage that were decided together, and what they were decided with."""

    questions: Sequence[Question]
    decision: Decision
    version: int
    stage: str
    first: int
    """The place of the first of their events in the record."""
    draws: int
    """Uniform numbers that the policy's generator had given before."""
    drew: bool
    """Whether each decision took one more."""
    shadow: Array | None = None
    """(n, K): probabilities of the shadow version,"""
    shadow_of: int | None = None
    """and the event that holds it."""

    def bodies(self) -> list[str]:
        """Everything but the numbers of each decision, as canonical JSON."""
        stage, shadow = canonical_text(self.stage), canonical(None if self.shadow is None else self.shadow_of)
        arms, rounds, drew = self.decision.arms, self.decision.rounds.tolist(), canonical(self.drew)
        chances = self.decision.probabilities[np.arange(len(arms)), arms].tolist()
        each = zip(self.questions, arms.tolist(), chances, rounds, strict=True)
        return [
            f'{{"arm":{arm},"arms":{len(question.present)},"block":{self.first},"draws":{self.draws + i * self.drew},'
            f'"drew":{drew},"present":{_places(question)},"probability":{chance!r},"request":"{question.hash}",'
            f'"round":{round},"shadow":{shadow},"shape":[{",".join(map(str, question.numbers.shape))}],'
            f'"stage":{stage},"version":{self.version}}}'
            for i, (question, arm, chance, round) in enumerate(each)
        ]

    def data(self) -> list[bytes]:
        """The numbers of each decision: contexts, means, bonuses, probabilities, and those of the shadow version."""
        columns = [self.decision.means, self.decision.bonuses, self.decision.probabilities]
        columns += [] if self.shadow is None else [self.shadow]
        if all(len(question.present) == columns[0].shape[1] and is_complete(question) for question in self.questions):
            rows = np.ascontiguousarray(np.hstack(columns), "<f8")
            return [
                packed(question.numbers) + row.tobytes() for question, row in zip(self.questions, rows, strict=True)
            ]
        places = [np.flatnonzero(question.present) for question in self.questions]
        return [
            packed(question.numbers, *(column[i, here] for column in columns))
            for i, (question, here) in enumerate(zip(self.questions, places, strict=True))
        ]

    def events(self, study: str, last: tuple[int, str, int], now: int, actor: str, reason: str) -> list[Event]:
        """The events after `last`, each signed by the actor of its question, or by `actor`."""
        events: list[Event] = []
        for question, body, data in zip(self.questions, self.bodies(), self.data(), strict=True):
            signed = {"actor": question.actor or actor, "reason": reason}
            event = written_event(study, last, "decide", now, body, ref=question.id, data=data, **signed)
            last = (event.seq, event.hash, event.time)
            events.append(event)
        return events

    def answers(self, events: Sequence[Event], names: Sequence[str] | None) -> list[Answer]:
        """What is answered; `names` are those of the arms."""
        arms, rounds = self.decision.arms, self.decision.rounds.tolist()
        chances = self.decision.probabilities[np.arange(len(arms)), arms].tolist()
        each = zip(self.questions, events, arms.tolist(), chances, rounds, strict=True)
        return [
            Answer(
                question.id,
                arm if names is None else names[arm],
                arm,
                chance,
                self.version,
                round,
                self.stage,
                event.seq,
                event.time,
            )
            for question, event, arm, chance, round in each
        ]


def _places(question: Question) -> str:
    """Which arms were there, as canonical JSON; null for all of them."""
    return "null" if is_complete(question) else canonical(np.flatnonzero(question.present))
