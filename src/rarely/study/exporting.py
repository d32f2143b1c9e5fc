"""From the record to the log of `rarely.offpolicy`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rarely.core.types import Array, Decision
from rarely.offpolicy import DecisionLog
from rarely.study.decisions import Record, record_of
from rarely.study.deliveries import settled
from rarely.study.requests import block_of
from rarely.study.session import Session


def records(session: Session, last: int | None = None) -> Iterator[Record]:
    """All decisions on record, in order."""
    with session.reading() as tables:
        end = tables.last_seq(session.row.study) if last is None else last
    for event in session.events(0, end):
        if event.kind == "decide":
            yield record_of(event, session.settings.arms)


def rewards_now(session: Session, last: int) -> dict[int, float]:
    """Round → reward, as a training that is cut here would learn them."""
    with session.reading() as tables:
        return dict(settled(tables, session.row.study, session.settings.rewards, 0, last))


def decision_log(session: Session) -> DecisionLog:
    """Contexts, arms, probabilities, versions and rewards of all decisions."""
    with session.reading() as tables:
        last = tables.last_seq(session.row.study)
    log = DecisionLog()
    for record in records(session, last):
        contexts, _ = block_of([record.question], session.settings)
        shared = None if session.settings.blocks is None else record.question.numbers
        log.record(np.asarray(contexts[0]), _decision_of(record), rows=shared)
    told = rewards_now(session, last)
    if told:
        log.observe(rounds=list(told), rewards=list(told.values()))
    return log


def _decision_of(record: Record) -> Decision:
    """The decision among all arms, NaN for the mean of those that were not there."""
    answer, absent = record.answer, np.nan
    means, bonuses = record.padded(record.means, absent), record.padded(record.bonuses, absent)
    chances = record.padded(record.probabilities, 0.0)
    return Decision(answer.index, means, bonuses, answer.version, answer.round, chances)


def shadow_probabilities(session: Session, seq: int) -> tuple[list[int], list[Array]]:
    """Rounds that a version was scored beside, and what it would have drawn from."""
    found = [(r.answer.round, r.shadow) for r in records(session) if r.shadow is not None and r.shadow_of == seq]
    return [round for round, _ in found], [chances for _, chances in found if chances is not None]
