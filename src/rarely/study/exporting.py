"""From the record to the log of `rarely.offpolicy`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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
    return _log_of(session, records(session, last), last)


def shadow_log(session: Session, seq: int) -> tuple[DecisionLog, Array]:
    """The decisions beside which a version was scored, and (n, K): what it would have drawn from."""
    with session.reading() as tables:
        last = tables.last_seq(session.row.study)
    found = [record for record in records(session, last) if record.shadow_of == seq and record.shadow is not None]
    chances = np.zeros((len(found), max((len(record.present) for record in found), default=0)))
    for i, record in enumerate(found):
        assert record.shadow is not None
        chances[i, : len(record.present)] = record.padded(record.shadow, 0.0)
    return _log_of(session, found, last), chances


def _log_of(session: Session, found: Iterable[Record], last: int) -> DecisionLog:
    log, rounds = DecisionLog(), set()
    for record in found:
        contexts, _ = block_of([record.question], session.settings)
        shared = None if session.settings.blocks is None else record.question.numbers
        log.record(np.asarray(contexts[0]), _decision_of(record), rows=shared)
        rounds.add(record.answer.round)
    told = {round: reward for round, reward in rewards_now(session, last).items() if round in rounds}
    if told:
        log.observe(rounds=list(told), rewards=list(told.values()))
    return log


def _decision_of(record: Record) -> Decision:
    """The decision among all arms, NaN for the mean of those that were not there."""
    answer, absent = record.answer, np.nan
    means, bonuses = record.padded(record.means, absent), record.padded(record.bonuses, absent)
    chances = record.padded(record.probabilities, 0.0)
    return Decision(answer.index, means, bonuses, answer.version, answer.round, chances)
