"""What becomes of the logs of a fleet: they are joined into waves, rotated, and removed when waves have all of them.

wave     a folder of decisions, as of a campaign, from what is new in all logs
_read    in each wave: how far the logs were read, by their ids, whatever they are called
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from itertools import count, islice
from operator import index
from pathlib import Path
from typing import Any

import numpy as np

from rarely.cluster.campaign import BLOCK, DECIDED, MANIFEST, Campaign, Url, decision_table
from rarely.cluster.decision_lines import (
    MOST,
    ROTATED,
    UNREAD,
    Log,
    LogBusy,
    Logged,
    LostDecisions,
    Mark,
    damaged,
    lines_of,
)
from rarely.cluster.files import Folder, as_parquet
from rarely.errors import InvalidInput
from rarely.extend import Array
from rarely.extend.provisional import ArmStats, OfferedArms
from rarely.logs.tables import pyarrow

READ = "_read.json"
DAY = 86_400


class LostDecisionsWarning(UserWarning):
    """Decisions are lost, and the caller has accepted it; the message says which."""


def lose(loss: LostDecisions, accepted: bool) -> None:
    """Raise the error, or warn of what is lost where that is accepted."""
    if not accepted:
        raise loss
    warnings.warn(str(loss), LostDecisionsWarning, stacklevel=6)


def logs_in(folder: str | os.PathLike[str]) -> dict[str, Path]:
    """Return the logs in a folder and the folders in it, by their ids; of a log and a copy of it, the longer."""
    found = dict[str, Path]()
    for path in sorted(Path(folder).rglob("[!.]*")):
        if not path.is_file():
            continue
        marks = [mark for mark, _ in islice(lines_of(path), 2)]
        log = next((mark.log for mark in marks if mark.log), "")
        if marks and not log:
            raise LostDecisions(f"{path} must be a log of a decider; its first lines are not, or are damaged.")
        if log in found:
            shorter, longer = sorted((found[log], path), key=lambda each: each.stat().st_size)
            if not _begins(longer, shorter):
                raise LostDecisions(f"{longer} and {shorter} claim to be the same log, and differ; remove one of them.")
            path = longer
        if log:
            found[log] = path
    return found


def _begins(longer: Path, shorter: Path) -> bool:
    with open(longer, "rb") as one, open(shorter, "rb") as other:
        return all(one.read(len(part)) == part for part in iter(lambda: other.read(2**20), b""))


def predecessor(path: Path) -> tuple[str, int] | None:
    """Return the log that the same decider wrote before, and how many lines it had."""
    first = next((said for _, said in lines_of(path)), None)
    return (first.get("after") or None) if isinstance(first, dict) else None


def waves_in(place: Folder) -> list[str]:
    """Return the names of the waves that are whole; a crash leaves at most one that is not, the last."""
    names = [name for name in place.folders("wave-") if name[5:].isdigit()]
    while names and MANIFEST not in place.inside(names[-1]).names():
        names.pop()
    return names


def marks_in(place: Folder, waves: list[str]) -> dict[str, Mark]:
    """Return how far each log was read."""
    read = place.inside(waves[-1]).read_json(READ) if waves else {}
    try:
        marks = {log: Mark(log, index(a), index(b), index(c), str(d), str(e)) for log, (a, b, c, d, e) in read.items()}
        if not all(0 <= mark.line <= MOST and 0 <= mark.start <= mark.stop <= MOST for mark in marks.values()):
            raise ValueError
        return marks
    except (AttributeError, TypeError, ValueError):
        raise InvalidInput(f"{place.path}/{waves[-1]}/{READ} is damaged. Put it back from a copy.") from None


def join(logs: str | os.PathLike[str], out: Url, *, accept_losses: bool = False) -> list[str]:
    """Gather what the logs of deciders hold beyond earlier calls into a folder of decisions, for `update`.

    Returns the paths of all folders so far. A call that is repeated after a crash makes the same folder again, and of
    two at once one raises `FolderBusy`. Raises `LostDecisions` if a line of a log is damaged, or if a log that was read
    in part is not there: put it back, or accept the loss.

    Parameters
    ----------
    logs, out
        A local folder of logs, in which they may be renamed and moved; the folder in which each call makes at most one
        more, wave-000001 and so on.
    accept_losses
        Whether to go on without what is damaged or missing. A `LostDecisionsWarning` says which that is.

    Examples
    --------
    >>> import tempfile
    >>> from rarely import LinUCB, OnDemand
    >>> from rarely.cluster import Decider, publish
    >>> store, logs, waves = tempfile.mkdtemp(), tempfile.mkdtemp(), tempfile.mkdtemp()
    >>> _ = publish(LinUCB(dim=1, schedule=OnDemand(), seed=0), store)
    >>> with Decider(store, log=f"{logs}/1.log") as decider:
    ...     _ = decider.decide("visit 7", [[1.0], [2.0]])
    >>> len(join(logs, waves)), len(join(logs, waves))
    (1, 1)
    """
    place, kinds, rounds = Folder.at(out), set[tuple[str, int, int]](), 0
    with place.alone(), local(logs).alone():
        waves = waves_in(place)
        marks = marks_in(place, waves)
        wave = place.inside(f"wave-{int(waves[-1][5:]) + 1 if waves else 1:06d}")
        before, new = dict(marks), _new_decisions(Path(logs), marks, accept_losses)
        for b in count():
            table = _wave_block(islice(new, BLOCK), b, rounds, kinds)
            if table is None:
                break
            wave.commit(wave.started(as_parquet(table)), f"block-{b:08d}.parquet")
            rounds += len(table)
        read = {log: mark[1:] for log, mark in marks.items()}
        if rounds:
            origins, versions, dims = zip(*kinds, strict=True)
            wave.write_json(READ, read)
            campaign = Campaign(max(versions), rounds, BLOCK, dims[0], tuple(sorted(set(origins))))
            wave.write_json(MANIFEST, asdict(campaign))
            waves.append(f"wave-{wave.path[-6:]}")
        elif waves and marks != before:
            place.inside(waves[-1]).write_json(READ, read)
    return [place.inside(name).path for name in waves]


def local(logs: str | os.PathLike[str]) -> Folder:
    """Return a folder of logs, which must be there."""
    if not Path(logs).is_dir():
        raise InvalidInput(f"{os.fspath(logs)} must be a local folder of logs; there is none.")
    return Folder.at(Path(logs))


def _new_decisions(logs: Path, marks: dict[str, Mark], accepted: bool) -> Iterator[Logged]:
    """Yield the decisions of all logs behind their marks, and move these."""
    found = logs_in(logs)
    before = dict(filter(None, map(predecessor, found.values())))
    for log in {**marks, **before}.keys() - found.keys():
        mark = marks.get(log, Mark(log))
        if not mark.end and mark.line < before.get(log, mark.line + 1):
            missing = LostDecisions(
                f"the log {log}, of which {mark.line} lines were read, is not in {logs}, and may have more; put it "
                "back under any name, or give accept_losses=True."
            )
            lose(missing, accepted)
            marks[log] = mark._replace(end="lost")
    for log, path in found.items():
        try:
            for mark, said in lines_of(path, marks.get(log, UNREAD)):
                marks[log] = mark
                if said is None:
                    lose(damaged(path, mark), accepted)
                elif isinstance(said, Logged):
                    yield said
        except FileNotFoundError:
            raise LostDecisions(f"{path} was renamed as it was about to be read; call again.") from None


def _wave_block(decisions: Iterable[Logged], block: int, start: int, kinds: set[tuple[str, int, int]]) -> Any:
    """Return the table of a block of a wave, and add what kinds of policies decided; None where there are none."""
    columns, contexts = {name: list[Any]() for name in ("id", *DECIDED)}, list[Array]()
    offered = OfferedArms.start(None)
    for decision in decisions:
        rows, stats = decision.contexts, ArmStats(*decision.stats)
        kinds.add((decision.origin, decision.version, rows.shape[1]))
        if len({dim for *_, dim in kinds}) > 1:
            raise InvalidInput(
                f"the decisions of a wave must be of one policy; {decision.id!r} has contexts of {rows.shape[1]} "
                "numbers, and others have other contexts. Give each policy a folder of logs of its own."
            )
        for name, values in columns.items():
            values.append(getattr(decision, name))
        offered = offered if contexts else OfferedArms.start(rows.shape[1])
        offered.add(rows, 1, stats.arms, offered.stats.plus(stats))
        contexts.append(rows[decision.row])
    if not contexts:
        return None
    ids, decided = pyarrow().array(columns.pop("id")), {name: np.array(values) for name, values in columns.items()}
    return decision_table(ids, start, block, decided, np.array(contexts), offered)


def rotate(logs: str | os.PathLike[str]) -> list[str]:
    """Give every log with decisions another name, so that its decider begins a new one, and return these names.

    A decider goes on in its new log with its next decision. Tools that rename a log, such as logrotate with `create` or
    `nocreate`, do the same. The names do not matter to `join`, as long as the logs stay in the folder.

    Parameters
    ----------
    logs
        The folder of logs.

    Examples
    --------
    >>> import tempfile
    >>> rotate(tempfile.mkdtemp())  # `prune` shows it with a log
    []
    """
    renamed = []
    with local(logs).alone():
        for log, path in logs_in(logs).items():
            aside = path if path.name.endswith(f".{log}") else path.with_name(f"{path.name}.{log}")
            if aside != path and any(not isinstance(said, dict) for _, said in lines_of(path)):
                path.rename(aside)
                renamed.append(str(aside))
            if aside.exists():
                with suppress(LogBusy):  # its decider will finish it
                    old = Log(aside, mend=True)
                    old.finish()
                    old.close()
                    if aside != path:
                        Log(path, after=(log, old.mark.line)).close()
    return renamed


def prune(logs: str | os.PathLike[str], waves: Url, *, keep: float = 0.0) -> list[str]:
    """Remove the rotated logs whose decisions are all in waves, and return their paths.

    `audit` needs the logs since each decider opened its version. Of the waves, all but the newest may be removed by
    hand once no reward is awaited for them.

    Parameters
    ----------
    logs, waves
        The folder of logs; that of the waves which `join` made of them.
    keep
        Days that a log is kept after its last line.

    Examples
    --------
    >>> import tempfile
    >>> from rarely import LinUCB, OnDemand
    >>> from rarely.cluster import Decider, join, publish, rotate
    >>> store, logs, waves = tempfile.mkdtemp(), tempfile.mkdtemp(), tempfile.mkdtemp()
    >>> _ = publish(LinUCB(dim=1, schedule=OnDemand(), seed=0), store)
    >>> with Decider(store, log=f"{logs}/1.log") as decider:
    ...     _ = decider.decide("visit 7", [[1.0], [2.0]])
    >>> renamed, joined = rotate(logs), join(logs, waves)
    >>> prune(logs, waves) == renamed
    True
    """
    place, removed = Folder.at(waves), []
    with place.alone(), local(logs).alone():
        marks = marks_in(place, waves_in(place))
        for log, path in logs_in(logs).items():
            mark, now = marks.get(log, UNREAD), path.stat()
            if mark.end == ROTATED and mark.stop == now.st_size and time.time() - now.st_mtime >= keep * DAY:
                path.unlink()
                removed.append(str(path))
    return removed
