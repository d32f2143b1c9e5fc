"""The logs of deciders: whole lines, also after kill -9, and what becomes of them.

    line       the CRC-32 of the rest, a space, JSON that names the log; then, in a decision, a tab and its contexts
    first      {"log": …, "after": …}: the log that its decider wrote before, and how many lines that has
    last       {"log": …, "end": "rotated"}, where nothing will follow
    wave       a folder of decisions, as of a campaign, from what is new in all logs
    _read      in each wave: how far the logs were read, by their ids, whatever they are called

A line is in the file when `append` returns. A write that was cut short leaves bytes behind the last end of a line,
which are removed when the log is opened again. Nothing else is ever removed: any other line that is not whole is
damage, and an error that names it. Logs are joined into waves, rotated, and removed when waves have all of them.
"""

from __future__ import annotations

import json
import os
import secrets
import time
import warnings
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import count, islice
from operator import index
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rarely.cluster.campaign import BLOCK, DECIDED, MANIFEST, Campaign, Url, decision_table
from rarely.cluster.files import Folder, as_parquet, readable
from rarely.errors import InvalidInput, RarelyError
from rarely.extend import Array
from rarely.extend.provisional import ArmStats, OfferedArms, lock
from rarely.logs.tables import pyarrow

ESCAPES = ((b"\x1b", b"\x1be"), (b"\n", b"\x1bn"))  # what stands for bytes that would end a line, in binary numbers
ROTATED = "rotated"
MOST = 2**53  # no decider counts further
READ = "_read.json"
DAY = 86_400


class LogBusy(RarelyError):
    """Another decider has the log open."""


class LostDecisions(RarelyError):
    """Logs of a fleet lack decisions: a line is damaged, or a log is missing; the message says which."""


@dataclass(frozen=True)
class Logged:
    """A decision as its line has it."""

    id: str
    version: int
    policy: str  # of the published file: 16 digits of its SHA-256
    origin: str  # the policy's `lineage` after its first update
    before: int  # decisions since its decider opened the version
    arm: int
    arms: int
    absent: tuple[int, ...]  # arms that were not available
    probability: float
    mean: float
    bonus: float
    stats: tuple[Any, ...]  # how well the arms were known: the fields of `ArmStats`
    contexts: Array  # (k, d): of the arms that were available
    worth: tuple[tuple[float, ...], ...] = ()
    """Gain and cost of the arms that were available; () where outcomes are worth what they are."""

    @property
    def row(self) -> int:
        """Which of `contexts` was chosen."""
        return self.arm - sum(arm < self.arm for arm in self.absent)

    def fields(self) -> dict[str, Any]:
        """Return all but the contexts, as JSON."""
        return {name: value for name, value in vars(self).items() if name != "contexts"}

    def line(self, log: str) -> bytes:
        """Return its line in a log."""
        packed = np.ascontiguousarray(self.contexts, "<f8").tobytes()
        for plain, escaped in ESCAPES:
            packed = packed.replace(plain, escaped)
        return sealed({"log": log, **self.fields()}, b"\t" + packed)

    @classmethod
    def of(cls, fields: dict[str, Any], packed: bytes) -> Logged:
        """Return the decision of a line; raises TypeError or ValueError for what `line` does not write."""
        for plain, escaped in reversed(ESCAPES):
            packed = packed.replace(escaped, plain)
        absent, stats = tuple(fields.pop("absent")), tuple(fields.pop("stats"))
        thoughts: dict[str, Any] = {name: float(fields.pop(name)) for name in ("probability", "mean", "bonus")}
        contexts = np.frombuffer(packed, "<f8").reshape(max(fields["arms"] - len(absent), 1), -1)
        worth = tuple(tuple(map(float, column)) for column in fields.pop("worth", ()))
        decision = cls(**fields, **thoughts, absent=absent, stats=stats, contexts=contexts, worth=worth)
        names, counts = (decision.id, decision.policy, decision.origin), (decision.version, decision.before)
        right = all(isinstance(name, str) for name in names) and all(0 <= index(one) <= MOST for one in counts)
        arms = {index(arm) for arm in (decision.arm, *absent)}
        right = right and [*map(len, worth)] in ([], [len(contexts)] * 2)
        right = right and len(list(map(float, stats))) == len(ArmStats.__slots__) and contexts.size > 0
        if not right or len(arms) <= len(absent) or not 0 <= min(arms) <= max(arms) < decision.arms:
            raise ValueError
        return decision


class Mark(NamedTuple):
    """How far a log was read: its last line."""

    log: str = ""
    line: int = 0
    start: int = 0
    stop: int = 0  #: Its number from 1, and its bytes in the file.
    begins: str = ""  # its first bytes, by which it is known again
    end: str = ""  # what it says of the end of the log, "" where it is a decision


UNREAD = Mark()


def sealed(fields: dict[str, Any], packed: bytes = b"") -> bytes:
    """Return a line."""
    text = json.dumps(fields, separators=(",", ":")).encode() + packed
    return b"%08x %s\n" % (zlib.crc32(text), text)


def whole(line: bytes) -> bool:
    """Return whether a line is as it was written."""
    return line[-1:] == b"\n" and line[:8] == b"%08x" % zlib.crc32(line[9:-1])


def lines_of(path: str | os.PathLike[str], mark: Mark = UNREAD) -> Iterator[tuple[Mark, Any]]:
    """Yield the lines of a log behind a mark: decisions, JSON of a first or last line, and None for a damaged line."""
    with open(path, "rb") as file:
        file.seek(mark.start)
        if mark.line and (line := file.readline())[:8].hex() != mark.begins:
            if len(line) != mark.stop - mark.start:
                raise LostDecisions(
                    f"{os.fspath(path)} has no line {mark.line} where it was read before; put the file back as it was."
                )
            yield mark, None
        for line in file:
            # What a crash has cut short is no line yet; but one whose end alone was damaged is.
            if line[-1:] != b"\n" and not whole(line[:-1] + b"\n"):
                return
            said = _said(line)
            log = mark.log or (said or {"log": ""})["log"]
            if said is not None and said["log"] != log:
                said = None  # a line of another log
            end = "" if said is None else said.get("end", "")
            mark = Mark(log, mark.line + 1, mark.stop, mark.stop + len(line), line[:8].hex(), end)
            yield mark, None if said is None else said.get("decision", said)


def _said(line: bytes) -> dict[str, Any] | None:
    """Return the JSON of a line, with its decision if it has one; None for what no decider wrote."""
    text, tab, packed = line[9:-1].partition(b"\t")
    try:
        if not whole(line):
            return None
        said: dict[str, Any] = json.loads(text)
        if tab:
            return {"log": str(said.pop("log")), "decision": Logged.of(said, packed)}
        if said.get("after"):
            said["after"] = str(said["after"][0]), int(said["after"][1])
        return said if isinstance(said["log"], str) and ("after" in said or said["end"] == ROTATED) else None
    except (TypeError, ValueError, LookupError, ArithmeticError, RecursionError):
        return None


def damaged(path: str | os.PathLike[str], mark: Mark) -> LostDecisions:
    """Return the error that names a damaged line."""
    return LostDecisions(
        f"{os.fspath(path)}, line {mark.line} (from byte {mark.start}) is damaged: its CRC-32 or content is not what a "
        "decider wrote. All other lines are kept. Put the file back from a copy; or let a decider go on with a new log "
        "after rarely.cluster.rotate, and give join and audit accept_losses=True."
    )


class Log:
    """Lines that are in the file when `append` returns, whatever happens to the process then.

    The file is locked until it is closed or the process ends, however it ends. Once it is renamed, `append` begins
    another under its name. With `mend` a damaged log is opened too.
    """

    def __init__(
        self, path: Url, *, sync: bool = False, after: tuple[str, int] | None = None, mend: bool = False
    ) -> None:
        self._path, self._sync, self._owner, self._mend = os.fspath(path), sync, os.getpid(), mend
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._open(after)

    def _open(self, after: tuple[str, int] | None) -> None:
        """Go on with the log in the file, or begin one."""
        file, mark = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), Mark()
        try:
            if not lock(file):
                raise self._busy()
            for mark, said in lines_of(self._path):
                if said is None and not self._mend:
                    raise damaged(self._path, mark)
            os.ftruncate(file, mark.stop)
        except BaseException:
            os.close(file)
            raise
        self._file, self.mark = file, mark
        if not mark.line:
            self._begin(after)

    def _begin(self, after: tuple[str, int] | None) -> None:
        self.mark = Mark(secrets.token_hex(6))
        self._write(sealed({"log": self.mark.log, "after": after}))

    def _busy(self) -> LogBusy:
        return LogBusy(f"another decider writes to {self._path}; close it, or give each a log of its own.")

    def append(self, decision: Logged) -> None:
        """Write a decision in one call of the operating system; with `sync` it is on the disk too."""
        if os.getpid() != self._owner:  # a fork has the same file and the same lock
            raise self._busy()
        self._look()
        self._write(decision.line(self.mark.log))

    def _look(self) -> None:
        """Begin another log where the file was renamed or emptied."""
        here, last = os.fstat(self._file), (self.mark.log, self.mark.line)
        try:
            named = os.path.samestat(here, os.stat(self._path))
        except FileNotFoundError:
            named = False
        if not named:
            file = self._file
            self._open(last)
            os.write(file, sealed({"log": last[0], "end": ROTATED}))
            os.close(file)
        elif here.st_size == 0:
            self._begin(last)
        elif here.st_size != self.mark.stop:
            raise LostDecisions(f"{self._path} was changed by another program than its decider; rotate the logs.")

    def _write(self, line: bytes) -> None:
        try:
            if (written := os.write(self._file, line)) < len(line):
                raise OSError(f"the log took {written} of {len(line)} bytes; is its disk full? Nothing was decided.")
            if self._sync:
                os.fsync(self._file)
        except BaseException:  # an interrupt too comes after the line is written, perhaps
            os.ftruncate(self._file, self.mark.stop)
            raise
        self.mark = self.mark._replace(line=self.mark.line + 1, stop=self.mark.stop + len(line))

    def finish(self) -> None:
        """Write that nothing will follow."""
        if self.mark.end != ROTATED:
            self._write(sealed({"log": self.mark.log, "end": ROTATED}))

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


# --- waves


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
    if not waves:
        return {}
    wave = place.inside(waves[-1])
    read = wave.read_json(READ)
    with readable(f"{wave.path}/{READ}", "how far logs were read"):
        marks = {log: Mark(log, index(a), index(b), index(c), str(d), str(e)) for log, (a, b, c, d, e) in read.items()}
        if not all(0 <= mark.line <= MOST and 0 <= mark.start <= mark.stop <= MOST for mark in marks.values()):
            raise ValueError
        return marks


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
