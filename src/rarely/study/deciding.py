"""Questions to answers: those on record as they were answered, the others decided together."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from rarely.core.errors import RarelyError
from rarely.core.types import Array
from rarely.study.decision_blocks import Block
from rarely.study.decisions import Answer, answer_of
from rarely.study.errors import StudyConflict
from rarely.study.events import Event
from rarely.study.requests import Question
from rarely.study.session import Session
from rarely.study.storage import Tables


def decide(session: Session, tables: Tables, questions: Sequence[Any], fields: dict[str, str]) -> list[Any]:
    """An answer, or an error, for each question; an error that came as a question stays where it is."""
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
    answers |= _decide_new(session, tables, list(fresh.values()), fields, events)
    tables.append(session.row.study, events)
    found = [
        question if isinstance(question, RarelyError) else _checked(question, answers, hashes) for question in questions
    ]
    # An id whose question was refused is still free, also for another question of the same group.
    free = [
        place
        for place, question in enumerate(questions)
        if isinstance(question, Question)
        and isinstance(answers[question.id], RarelyError)
        and hashes[question.id] != question.hash
    ]
    if free:
        for place, answer in zip(free, decide(session, tables, [questions[i] for i in free], fields), strict=True):
            found[place] = answer
    return found


def _checked(question: Question, answers: dict[str, Any], hashes: dict[str, str]) -> Any:
    if hashes[question.id] == question.hash:
        return answers[question.id]
    return StudyConflict(
        f"decision {question.id!r} was asked for with other contexts or other arms before. The same request gets the "
        "same answer; a new request needs a new id."
    )


def _decide_new(
    session: Session, tables: Tables, questions: list[Question], fields: dict[str, str], events: list[Event]
) -> dict[str, Answer | RarelyError]:
    """Add the events of new decisions; their answers, or why the policy refuses them, by their ids."""
    answers: dict[str, Answer | RarelyError] = {}
    for stage, part in session.live.blocks(questions):
        try:
            shadow = _shadow(session, tables, stage, part)
            decision, drew = session.live.decide(stage, part)
        except RarelyError as error:
            if len(questions) == 1:
                return {part[0].id: error}
            # One question that the policy refuses must not spoil the others, nor the rounds at which stages change.
            for question in questions[len(events) :]:
                answers |= _decide_new(session, tables, [question], fields, events)
            return answers
        before, names = session.position, session.settings.arms
        block = Block(
            part,
            decision,
            version=before.version,
            stage=session.settings.stages[stage].name,
            first=before.seq + 1,
            draws=before.draws,
            drew=drew,
            shadow=shadow,
            shadow_of=None if shadow is None else before.shadow,
        )
        made = block.events(session.name, before.last, session.now(), **fields)
        answers |= zip((question.id for question in part), block.answers(made, names), strict=True)
        session.position = before.decided(made[-1], int(decision.rounds[-1]), before.draws + drew * len(part))
        events += made
    return answers


def _shadow(session: Session, tables: Tables, stage: int, questions: list[Question]) -> Array | None:
    """What the shadow version would draw from. Whatever goes wrong with it must not change the answer."""
    if session.position.shadow is not None:
        with suppress(Exception):
            shadow = session.shadow(tables)
            return None if shadow is None else shadow.probabilities(stage, questions)
    return None
