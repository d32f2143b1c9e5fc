"""Checkpoints: the policy as of an event, beside the record, so that a study opens without repeating every decision.

    base      the snapshot that the policy continues from; its history has n₀ rows
    history   rows of chosen contexts, arms, versions, propensities, means and bonuses since the previous checkpoint
    state     everything else that the policy knows, and the `Position`; the latest checkpoint of a base has it
    sha256    of the checkpoint before (of the snapshot, for the first one) and of `history`

The rows of all checkpoints of a base are joined, so a checkpoint costs what has happened since the last one, and a
million decisions are read back as one array. A checkpoint is not part of the record, and nothing depends on it: it is
used only if every hash fits and the record still has its event, `Study.replay` compares it with what follows from
the record, and without it the decisions are repeated.
"""

from __future__ import annotations

import io
import warnings
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from rarely import Policy, SnapshotError
from rarely._core.policies.replay import content_at
from rarely._core.policies.saving import restore
from rarely._core.policies.state import PolicyState
from rarely._core.saving import archive
from rarely._core.types import Array, Arrays
from rarely.study.errors import BrokenStudy, CheckpointWarning, StudyBusy, StudyError
from rarely.study.events import Position, digest, packed

if TYPE_CHECKING:
    from rarely.study.session import LivePolicy, Session

_COLUMNS = ("arms", "versions", "propensities", "means", "bonuses")
_PREFIX = "history."


def write(session: Session, live: LivePolicy, state: PolicyState, position: Position) -> None:
    """Write a checkpoint of a policy, unless there is a later one of its snapshot."""
    study, base = session.row.study, live.base
    with session.reading() as tables:
        event = tables.event(study, base)
    assert event is not None
    header, arrays = content_at(live.policy, state)
    rows = {name.removeprefix(_PREFIX): arrays.pop(name) for name in list(arrays) if name.startswith(_PREFIX)}
    with session.storage.checkpoints() as tables:
        last = tables.last_checkpoint(study, base)
        if last is not None and last[2] >= position.seq:
            return
        width = rows["contexts"].shape[1] + len(_COLUMNS)
        start = live.rows if last is None else last[0] + last[1] // (8 * width)
        columns = [rows["contexts"][start:], *(rows[name][start:] for name in _COLUMNS)]
        history = packed(np.column_stack(columns))
        sha256 = _chained(event.content["sha256"] if last is None else last[3], history)
        header["checkpoint"] = {"position": asdict(position), "sha256": sha256}
        tables.add_checkpoint(study, base, start, position.seq, sha256, history, archive.to_bytes(header, arrays))


def read(session: Session, base: int) -> tuple[Policy, Position, int] | None:
    """Return policy and position of the latest checkpoint of a snapshot, and the rows of the snapshot's history.

    Returns None if there is none, and also, with a warning, if it is unusable.
    """
    try:
        with session.storage.checkpoints() as tables:
            found = tables.checkpoints(session.row.study, base)
    except (StudyError, TypeError) as error:  # of a damaged file beside the database
        problem: Exception = error
    else:
        if not found:
            return None
        try:
            return _read(session, base, found)
        except StudyError:  # of the record itself
            raise
        except (SnapshotError, KeyError, TypeError, ValueError) as error:
            problem = error
    if not isinstance(problem, StudyBusy):
        with suppress(StudyError), session.storage.checkpoints() as tables:
            tables.drop_checkpoints(session.row.study, base)
    said = f"a checkpoint of study {session.name!r} cannot be used ({problem}): decisions are repeated from the record."
    warnings.warn(said, CheckpointWarning, stacklevel=2)
    return None


def _read(session: Session, base: int, found: list[tuple[int, int, str, bytes, bytes]]) -> tuple[Policy, Position, int]:
    with session.reading() as tables:
        event = tables.event(session.row.study, base)
        if event is None:
            raise BrokenStudy(f"event {base} is missing")
        snapshot = archive.parse(io.BytesIO(session.snapshot(tables, event)), "the snapshot")
    rows = {name: array for name, array in snapshot.arrays.items() if name.startswith(_PREFIX)}
    sha256 = event.content["sha256"]
    for _, _, known, history, _ in found:
        sha256 = _chained(sha256, history)
        if sha256 != known:
            raise ValueError("its rows were altered or damaged")
    saved = archive.parse(io.BytesIO(found[-1][4]), "its state")
    mark = saved.header.pop("checkpoint")
    position = Position(**mark["position"] | {"quarantine": tuple(map(tuple, mark["position"]["quarantine"]))})
    with session.reading() as tables:
        last = tables.event(session.row.study, position.seq)
    if mark["sha256"] != sha256 or found[-1][1] != position.seq or last is None or last.hash != position.head:
        raise ValueError("it belongs to another record")
    joined = _joined(rows, np.frombuffer(b"".join(history for *_, history, _ in found), "<f8"))
    policy = restore(saved._replace(arrays=saved.arrays | joined), "its state")
    return policy, position, found[0][0]


def _chained(sha256: str, history: bytes) -> str:
    return digest(sha256, history) if history else sha256  # a checkpoint without rows is replaced by the next one


def _joined(rows: Arrays, added: Array) -> Arrays:
    """Return the arrays of a history, given those of the snapshot and the rows since."""
    dim = rows[f"{_PREFIX}contexts"].shape[1]
    added = added.reshape(-1, dim + len(_COLUMNS))
    columns: dict[str, Any] = {name: added[:, dim + i] for i, name in enumerate(_COLUMNS)}
    columns |= {"contexts": added[:, :dim], "rewards": np.full(len(added), np.nan)}
    new = {f"{_PREFIX}{name}": values for name, values in columns.items()}
    return rows | {name: np.concatenate([rows[name], values.astype(rows[name].dtype)]) for name, values in new.items()}
