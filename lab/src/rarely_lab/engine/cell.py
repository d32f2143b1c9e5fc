"""Cells, the runs that are played, recorded and resumed; and where they are played.

Whoever uses the engine defines two classes. A `Cell` says what is asked for and how it is played. A `Record`, in
`rarely_lab.engine.record`, says what is kept and which golden families decide its numbers.

An executor plays cells in this process, side by side in processes with one BLAS thread each, or on Ray: it is called
with cells and yields results as they come, in any order. A cluster of Ray needs this package installed on every
machine, and no data: what cells share travels with them, once. A run can be stopped at any moment, by Ctrl-C or by a
kill: the same call of `run_cells` continues with the cells that are missing.
"""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

from rarely.extend.checks import RarelyError
from rarely.runs.files import lock_folder, make_folder
from rarely.runs.machine import RETRIES, Call, connected, ended, side_by_side
from rarely_lab.engine.record import Record, Refusal, Store


class Cell(ABC):
    """One run to play.

    A cell is pickled and played in another process, perhaps on another machine, so it should be a frozen dataclass of
    plain values.
    """

    record_type: ClassVar[type[Record]]  # the record that it leaves
    shared_field: ClassVar[str] = ""
    """A large field that many cells have in common, which a cluster is sent only once; empty where there is none."""

    @property
    @abstractmethod
    def id(self) -> str:
        """The readable name, `a/b/seed3`, which is also its record's path."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return, as JSON, everything but the code that the result depends on."""

    @abstractmethod
    def play(self) -> dict[str, Any]:
        """Play it, and return the content of its record as JSON."""

    def work(self) -> float:
        """Predict how long it takes, relative to other cells."""
        return 1.0

    def portable(self) -> Any:
        """Return its shared field in a form that needs no file of this machine."""
        return getattr(self, self.shared_field) if self.shared_field else None

    def with_shared(self, value: Any) -> Any:
        return replace(cast(Any, self), **{self.shared_field: value}) if self.shared_field else self


@dataclass(frozen=True)
class Result:
    """What came of a cell: its record, or why there is none. It names the cell, and does not carry its data."""

    id: str
    record: Record | None
    error: str = ""


def play_cell(cell: Cell) -> Result:
    """Play one cell in this process; an error becomes part of the result and stops no other cell."""
    try:
        return Result(cell.id, cell.record_type.of(cell.id, cell.describe(), cell.play()))
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        if not isinstance(error, RarelyError):  # which say what to do; others, of a user's policy perhaps, say where
            frame = traceback.extract_tb(error.__traceback__)[-1]
            text += f" ({Path(frame.filename).name}, line {frame.lineno})"
        return Result(cell.id, None, text)


AnyCell = TypeVar("AnyCell", bound=Cell)
Executor = Callable[[Sequence[Cell]], Iterator[Result]]  # plays the cells, and yields a result for each as it ends


@dataclass(frozen=True)
class LocalExecutor:
    """This machine: `jobs` processes with one BLAS thread each, or this one for None, whose BLAS may have many."""

    jobs: int | None

    def __call__(self, cells: Sequence[Cell]) -> Iterator[Result]:
        if self.jobs is None:
            yield from map(play_cell, cells)
            return
        from loky.process_executor import BrokenProcessPool

        left = {cell.id: cell for cell in cells}
        while left:
            try:
                for result in side_by_side(play_cell, list(left.values()), self.jobs):
                    del left[result.id]
                    yield result
            except BrokenProcessPool:
                # A process was killed, for want of memory perhaps. The cells then in play are the first in the
                # queue: alone, each shows whether it was the one.
                for cell in list(left.values())[: self.jobs]:
                    del left[cell.id]
                    try:
                        yield next(side_by_side(play_cell, [cell], 1))
                    except BrokenProcessPool:
                        yield Result(cell.id, None, "the process that played it was killed; is there enough memory?")


@dataclass(frozen=True)
class RayExecutor:
    """Processes of Ray, each with one BLAS thread."""

    jobs: int | None = None  # cells played at a time; None: one for each core that there is
    address: str | None = None
    """A cluster, as `auto`, `host:port` or `ray://host:port`; None: a Ray that starts and ends with the run."""

    def __call__(self, cells: Sequence[Cell]) -> Iterator[Result]:
        if not cells:
            return
        with connected(self.jobs, self.address) as ray:
            play = ray.remote(num_cpus=1, max_retries=RETRIES)(_play)
            sent, calls = dict[int, Any](), list[Call]()
            for cell in cells:
                key = id(getattr(cell, cell.shared_field)) if cell.shared_field else 0
                if key not in sent:
                    try:
                        sent[key] = ray.put(cell.portable())
                    except Exception as error:
                        sent[key] = error
                if isinstance(sent[key], Exception):
                    yield Result(cell.id, None, _say(sent[key]))
                else:
                    calls.append((cell.id, partial(play.remote, cell.with_shared(None), sent[key])))
            for name, ref in ended(ray, calls, self.jobs if self.address else None):
                yield _outcome(ray, ref, name)


def _play(cell: Cell, shared: Any) -> Result:
    return play_cell(cell.with_shared(shared))


def _outcome(ray: Any, ref: Any, name: str) -> Result:
    try:
        result: Result = ray.get(ref)
        return result
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError):
        return Result(name, None, "every process that played it was killed; is there enough memory?")
    except ray.exceptions.RayTaskError as error:
        return Result(name, None, str(error).strip().rpartition("\n")[2])  # the last line of a traceback
    except ray.exceptions.RayError as error:
        return Result(name, None, _say(error))


def _say(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"  # of Ray's pages the first line


def run_cells(
    cells: Sequence[AnyCell],
    store: Store[Any],
    executor: Executor,
    *,
    replace: bool = False,
    started: Callable[[Sequence[AnyCell], Sequence[Refusal]], None] = lambda todo, refused: None,
    finished: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """Play every cell that has no record in the store, and return the results of those that failed.

    `replace` removes records of these cells that other code made or that answer another question; without it, mixed
    records raise MixedRecords before anything is changed. One process at a time may write to a folder: the others get
    FolderBusy. `started` is called with the cells to be played and the files that are not records or were changed,
    `finished` with the result of each.
    """
    failures, folder = list[Result](), store.folder.parent
    make_folder(folder)
    with lock_folder(folder):
        todo, refused = store.missing(cells, replace=replace)
        started(todo, refused)
        for result in executor(todo) if todo else ():
            if result.record is not None and not result.record.fits:
                # A machine of a cluster may have another version installed.
                reason = "it was played by another version of the code; install the same everywhere"
                result = Result(result.id, None, reason)
            if result.record is None:
                failures.append(result)
            else:
                store.write(result.record)
            finished(result)
    return failures
