"""Asking: questions that are on record are answered as before, and new ones are decided together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rarely import RarelyError
from rarely.study.decision import Answer, Question, answer_of, block_events
from rarely.study.errors import StudyConflict
from rarely.study.events import Event
from rarely.study.session import Session
from rarely.study.storage import Tables


def decide(session: Session, tables: Tables, questions: Sequence[Any], signature: dict[str, str]) -> list[Any]:
    """Return an answer or an error for each question; an error given as a question keeps its place."""
    asked = [question for question in questions if isinstance(question, Question)]
    recorded = tables.decisions(list(dict.fromkeys(question.id for question in asked)))
    new: dict[str, Question] = {}
    for question in asked:
        if question.id not in recorded:
            new.setdefault(question.id, question)
    hashes = {id: event.content["request"] for id, event in recorded.items()}
    hashes |= {id: question.hash for id, question in new.items()}
    answers: dict[str, Answer | RarelyError]
    answers = {id: answer_of(event, session.settings.arms) for id, event in recorded.items()}
    events: list[Event] = []
    answers |= _decide_new(session, list(new.values()), signature, events)
    tables.append(*events)
    results: list[Any] = []
    for question in questions:
        if isinstance(question, RarelyError):
            results.append(question)
        elif hashes[question.id] == question.hash:
            results.append(answers[question.id])
        elif isinstance(answers[question.id], RarelyError):
            # An id whose question was refused is still free, also for another question of the same group.
            results += decide(session, tables, [question], signature)
        else:
            results.append(
                StudyConflict(
                    f"decision {question.id!r} was requested before with other contexts or other arms. The same "
                    "request gets the same answer; a new request needs a new id."
                )
            )
    return results


def _decide_new(
    session: Session, questions: list[Question], signature: dict[str, str], events: list[Event]
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
                answers |= _decide_new(session, [question], signature, events)
            return answers
        shared = {"stage": session.settings.stages[stage].name, "version": session.position.version}
        last, now = session.position.last, session.stamp()
        made = block_events(session.name, last, now, part, decision, shared, signature)
        answers |= {str(event.ref): answer_of(event, session.settings.arms) for event in made}
        session.live.position = session.position.after(made[-1])
        events += made
    return answers
