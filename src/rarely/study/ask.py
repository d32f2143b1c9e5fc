"""From questions to answers: recorded ones are answered as before, new ones are decided together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rarely import Decision, RarelyError
from rarely.study.decisions import Answer, Question, answer_of
from rarely.study.errors import StudyConflict
from rarely.study.events import Event, next_event, packed
from rarely.study.session import Session
from rarely.study.storage import Tables


def block_events(
    study: str,
    last: tuple[int, str, int],
    now: int,
    questions: Sequence[Question],
    decision: Decision,
    decided: dict[str, Any],
    signed: dict[str, str],
) -> list[Event]:
    """Return the events, after `last`, of questions that were decided together.

    `decided` has what their contents share, stage and version, and `signed` actor and reason; a question's own actor
    comes first.
    """
    events: list[Event] = []
    columns, first = (decision.means, decision.bonuses, decision.probabilities), last[0] + 1
    for i, question in enumerate(questions):
        here, arm = np.flatnonzero(question.present), int(decision.arms[i])
        content = decided | {
            "arm": arm,
            "arms": len(question.present),
            "block": first,
            "held_out": None if decision.held_out is None else bool(np.atleast_1d(decision.held_out)[i]),
            "present": None if len(here) == len(question.present) else here.tolist(),
            "probability": float(decision.probabilities[i, arm]),
            "request": question.hash,
            "round": int(decision.rounds[i]),
            "shape": list(question.numbers.shape),
        }
        data = packed(question.numbers, *(column[i, here] for column in columns))
        by = signed | ({"actor": question.actor} if question.actor else {})
        event = next_event(study, last, "decide", now, content, ref=question.id, data=data, **by)
        last = (event.seq, event.hash, event.time)
        events.append(event)
    return events


def decide(session: Session, tables: Tables, questions: Sequence[Any], fields: dict[str, str]) -> list[Any]:
    """Return an answer or an error for each question; an error given as a question keeps its place."""
    arms = session.settings.arms
    answers: dict[str, Answer | RarelyError] = {}
    hashes: dict[str, str] = {}
    fresh: dict[str, Question] = {}
    ids = dict.fromkeys(question.id for question in questions if isinstance(question, Question))
    known = tables.decisions(session.row.study, list(ids))
    for question in questions:
        if isinstance(question, RarelyError) or question.id in hashes:
            continue
        event = known.get(question.id)
        if event is None:
            fresh[question.id], hashes[question.id] = question, question.hash
        else:
            content = event.content
            answers[question.id], hashes[question.id] = answer_of(event, arms, content), content["request"]
    events: list[Event] = []
    answers |= _decide_new(session, list(fresh.values()), fields, events)
    tables.append(session.row.study, events)
    found: list[Any] = []
    free: list[int] = []
    for place, question in enumerate(questions):
        if isinstance(question, RarelyError):
            found.append(question)
        elif hashes[question.id] == question.hash:
            found.append(answers[question.id])
        else:
            found.append(
                StudyConflict(
                    f"decision {question.id!r} was requested before with other contexts or other arms. The same "
                    "request gets the same answer; a new request needs a new id."
                )
            )
            # An id whose question was refused is still free, also for another question of the same group.
            free += [place] if isinstance(answers[question.id], RarelyError) else []
    if free:
        for place, answer in zip(free, decide(session, tables, [questions[i] for i in free], fields), strict=True):
            found[place] = answer
    return found


def _decide_new(
    session: Session, questions: list[Question], fields: dict[str, str], events: list[Event]
) -> dict[str, Answer | RarelyError]:
    """Add the events of new decisions to `events`; return answers, or why the policy refuses, by id."""
    answers: dict[str, Answer | RarelyError] = {}
    for stage, part in session.live.blocks(questions):
        try:
            decision = session.live.decide(stage, part)
        except RarelyError as error:
            if len(questions) == 1:
                return {part[0].id: error}
            # A question that the policy refuses must not affect the others, nor the rounds at which stages change.
            for question in questions[len(events) :]:
                answers |= _decide_new(session, [question], fields, events)
            return answers
        before, names = session.position, session.settings.arms
        decided = {"stage": session.settings.stages[stage].name, "version": before.version}
        made = block_events(session.name, before.last, session.stamp(), part, decision, decided, fields)
        answers |= {question.id: answer_of(event, names) for question, event in zip(part, made, strict=True)}
        session.position = before.after_block(made[-1], int(decision.rounds[-1]))
        events += made
    return answers
