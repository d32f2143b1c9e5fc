"""A study's decisions and rewards as a table, row by row, for a file or a caller who may leave at any time.

The columns are those of `rarely.logs.write_log` after id, time, stage and actor; a chunk of events is in memory.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np

from rarely.logs.tables import pyarrow
from rarely.study.decision import DecisionRecord, block_of, record_of
from rarely.study.events import Position
from rarely.study.session import Session
from rarely.study.storage import CHUNK
from rarely.study.tell import closed_until, rewards_of_range

WHOLE = ("time", "round", "version", "arm")
TEXT = ("id", "stage", "actor")


class Exported(NamedTuple):
    """What `Study.export` has written.

    Examples
    --------
    >>> Exported(decisions=20, missing=3)
    Exported(decisions=20, missing=3)
    """

    decisions: int
    missing: int
    """Decisions without a reward."""


def chunks(session: Session) -> Iterator[tuple[list[str], list[list[Any]]]]:
    """Yield the header and the rows of the next decisions, None where a cell is empty, as of the last event now."""
    last, position = session.last_seq(), Position()
    with session.reading() as tables:
        closed = closed_until(tables, session.settings.rewards, last)
        width = len(session.settings.arms) if session.settings.arms else tables.most_arms()
    header: list[str] = []
    while position.seq < last or not header:
        first = position.seq
        with session.reading() as tables:
            events = list(session.checked(tables.after(first, min(CHUNK, last - first)), position))
        if not events:
            return
        position = Position(seq=events[-1].seq, head=events[-1].hash)
        records = [record_of(event, session.settings.arms) for event in events if event.kind == "decide"]
        rewards = rewards_of_range(session, first, position.seq, closed)
        rows = [_row(session, record, width, rewards.get(record.answer.round)) for record in records]
        header = header or _header(session, width)
        yield header, rows


def _header(session: Session, width: int) -> list[str]:
    names = ["id", "time", "stage", "actor", "round", "version", "arm", "reward", "propensity"]
    names += [f"probability_{arm}" for arm in range(width)]
    if session.settings.blocks is not None:
        names += [f"row_{j}" for j in range(session.settings.shared)]
    return names + [f"context_{arm}_{j}" for arm in range(width) for j in range(session.dim)]


def _row(session: Session, record: DecisionRecord, width: int, reward: float | None) -> list[Any]:
    answer, present = record.answer, record.question.present
    chances, contexts = np.full(width, np.nan), np.full((width, session.dim), np.nan)
    chances[np.flatnonzero(present)] = record.probabilities
    made, _ = block_of([record.question], session.settings)
    contexts[np.flatnonzero(present)] = np.asarray(made[0])[present]
    shared = [] if session.settings.blocks is None else record.question.numbers.ravel().tolist()
    numbers = [*chances.tolist(), *shared, *contexts.ravel().tolist()]
    head = [answer.id, answer.time, answer.stage, record.actor, answer.round, answer.version, answer.index, reward]
    return [*head, answer.probability, *(None if value != value else value for value in numbers)]


def csv_text(session: Session) -> Iterator[str]:
    """Yield the table as CSV, a chunk at a time."""
    begun = False
    for header, rows in chunks(session):
        text = io.StringIO()
        # repr of a float, which csv writes, has every digit.
        csv.writer(text, lineterminator="\n").writerows([*([] if begun or not header else [header]), *rows])
        begun = True
        yield text.getvalue()


def export(session: Session, path: str | os.PathLike[str]) -> Exported:
    """Write the table to a file, as Parquet if its name ends in .parquet, else as CSV."""
    decisions = missing = 0
    with ExitStack() as opened:
        writer: Any = None
        for header, rows in chunks(session):
            if writer is None:
                writer = opened.enter_context(_Table(os.fspath(path), header))
            writer.write(rows)
            decisions += len(rows)
            missing += sum(row[7] is None for row in rows)
    return Exported(decisions, missing)


class _Table:
    """A file that takes rows."""

    def __init__(self, path: str, header: list[str]) -> None:
        self._header, self._arrow = header, pyarrow() if path.endswith(".parquet") else None
        if self._arrow is None:
            self._file: Any = open(path, "w", newline="", encoding="utf-8")  # noqa: SIM115 — it is the context itself
            csv.writer(self._file, lineterminator="\n").writerow(header)
        else:
            kinds = {name: self._arrow.int64() for name in WHOLE} | {name: self._arrow.string() for name in TEXT}
            self._schema = self._arrow.schema([(name, kinds.get(name, self._arrow.float64())) for name in header])
            self._file = pyarrow("parquet").ParquetWriter(path, self._schema)

    def write(self, rows: list[list[Any]]) -> None:
        if self._arrow is None:
            csv.writer(self._file, lineterminator="\n").writerows(rows)
        elif rows:
            columns = [list(column) for column in zip(*rows, strict=True)]
            named = dict(zip(self._header, columns, strict=True))
            self._file.write_table(self._arrow.table(named, schema=self._schema))

    def __enter__(self) -> _Table:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
