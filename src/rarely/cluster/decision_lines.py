"""A log of decisions in a file, whose identity is in its lines, whatever the file is called.

    line       the CRC-32 of the rest, a space, JSON that names the log; then, in a decision, a tab and its contexts
    first      {"log": …, "after": …}: the log that its decider wrote before, and how many lines that has
    last       {"log": …, "end": "rotated"}, where nothing will follow

A line is in the file when `append` returns, also after kill -9. A write that was cut short leaves bytes behind the last
end of a line, which are removed when the log is opened again. Nothing else is ever removed: any other line that is not
whole is damage, and an error that names it.
"""

from __future__ import annotations

import json
import os
import secrets
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rarely.errors import RarelyError
from rarely.extend import Array
from rarely.extend.provisional import ArmStats, lock

ESCAPES = ((b"\x1b", b"\x1be"), (b"\n", b"\x1bn"))
"""What stands for bytes that would end a line, in binary numbers."""
ROTATED = "rotated"
MOST = 2**53
"""No decider counts further."""


class LogBusy(RarelyError):
    """Another decider has the log open."""


class LostDecisions(RarelyError):
    """Logs of a fleet lack decisions: a line is damaged, or a log is missing; the message says which."""


@dataclass(frozen=True)
class Logged:
    """A decision as its line has it."""

    id: str
    version: int
    policy: str
    """Of the published file: 16 digits of its SHA-256."""
    origin: str
    """The policy's `lineage` after its first update."""
    before: int
    """Decisions since its decider opened the version."""
    arm: int
    arms: int
    absent: tuple[int, ...]
    """Arms that were not available."""
    probability: float
    mean: float
    bonus: float
    stats: tuple[Any, ...]
    """How well the arms were known: the fields of `ArmStats`."""
    contexts: Array
    """(k, d): of the arms that were available."""
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
    stop: int = 0
    """Its number from 1, and its bytes in the file."""
    begins: str = ""
    """Its first bytes, by which it is known again."""
    end: str = ""
    """What it says of the end of the log, "" where it is a decision."""


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
        self,
        path: str | os.PathLike[str],
        *,
        sync: bool = False,
        after: tuple[str, int] | None = None,
        mend: bool = False,
    ) -> None:
        self._path, self._sync, self._owner, self._mend = os.fspath(path), sync, os.getpid(), mend
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._open(after)

    def _open(self, after: tuple[str, int] | None) -> None:
        """Go on with the log in the file, or begin one."""
        file, mark = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644), Mark()
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
