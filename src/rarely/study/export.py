"""A study's decisions and rewards as a table, in parts, for a file or a caller who may leave at any time.

The columns are those of `rarely.logs.write_log` after id, time, stage and actor; a chunk of events is in memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from rarely.logs.files import NOTES, TableFile, columns_of, csv_of, names_of
from rarely.study.audit import recorded
from rarely.study.decision import record_of
from rarely.study.events import Position
from rarely.study.session import Session
from rarely.study.storage import CHUNK
from rarely.study.tell import closed_until, rewards_of_range


class Exported(NamedTuple):
    """What `Study.export` has written.

    Examples
    --------
    >>> Exported(decisions=20, missing=3)
    Exported(decisions=20, missing=3)
    """

    decisions: int
    missing: int  # decisions without a reward


def parts(session: Session) -> Iterator[tuple[dict[str, Any], Exported]]:
    """Yield columns of the next decisions, as of the last event now, and how many they are; at least one part."""
    last, position, settings, written = session.last_seq(), Position(), session.settings, 0
    with session.reading() as tables:
        closed = closed_until(tables, settings.rewards, last)
        width = len(settings.arms) if settings.arms else tables.most_arms()
    while position.seq < last:
        first = position.seq
        with session.reading() as tables:
            events = list(session.checked(tables.after(first, min(CHUNK, last - first)), position))
        if not events:
            break
        position = Position(seq=events[-1].seq, head=events[-1].hash)
        records = [record_of(event, settings.arms) for event in events if event.kind == "decide"]
        if not records:
            continue
        log, rewards = recorded(records, settings, width), rewards_of_range(session, first, position.seq, closed)
        if rewards:
            log.observe(rounds=list(rewards), rewards=list(rewards.values()))
        answers = [record.answer for record in records]
        notes: dict[str, Any] = {name: [getattr(answer, name) for answer in answers] for name in NOTES[:3]}
        written += len(records)
        yield notes | {"actor": [record.actor for record in records]} | columns_of(log), Exported(len(log), log.missing)
    if not written:
        names = names_of(width, 0 if settings.blocks is None else settings.shared, session.dim)
        yield {name: [] for name in (*NOTES, *names)}, Exported(0, 0)


def csv_text(session: Session) -> Iterator[str]:
    """Yield the table as CSV, a part at a time."""
    for number, (columns, _) in enumerate(parts(session)):
        yield csv_of(columns, head=not number)


def export(session: Session, path: str | os.PathLike[str]) -> Exported:
    """Write the table to a file, as Parquet if its name ends in .parquet, else as CSV."""
    done, file = Exported(0, 0), TableFile(path)
    with file:
        for columns, some in parts(session):
            file.write(columns)
            done = Exported(done.decisions + some.decisions, done.missing + some.missing)
    return done
