"""Cells in, records out: play what has no record yet, and keep each record as it comes.

A run can be stopped at any moment, by Ctrl-C or by a kill: the same call continues with the cells that are missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from rarely._runs.cell import Result
from rarely._runs.executor import Executor
from rarely._runs.record import Refusal
from rarely._runs.store import AnyCell, Store
from rarely._runs.writing import lock_folder, make_folder

WRITERS = 4
"""Records that are written at a time: a GPU plays hundreds of cells at once."""


def run_cells(
    cells: Sequence[AnyCell],
    store: Store[Any],
    executor: Executor,
    *,
    replace: bool = False,
    refused: Callable[[Sequence[Refusal]], None] = lambda files: None,
    started: Callable[[Sequence[AnyCell]], None] = lambda todo: None,
    finished: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """Play every cell that has no record in the store, and return the results of those that failed.

    `replace` removes records of these cells that other code made or that answer another question; without it, mixed
    records raise MixedRecords before anything is changed. One process at a time may write to a folder: the others get
    FolderBusy. `refused` is called with files that are not records or were changed, `started` with the cells to be
    played, `finished` with the result of each.
    """
    failures, folder = list[Result](), store.folder.parent
    make_folder(folder)
    with lock_folder(folder):
        todo = store.missing(cells, replace=replace, refused=refused)
        started(todo)
        for result in _kept(todo, store, executor):
            if result.record is None:
                failures.append(result)
            finished(result)
    return failures


def _kept(todo: Sequence[AnyCell], store: Store[Any], executor: Executor) -> Iterator[Result]:
    """Yield results once their records are on disk; of an executor that plays many at once, some side by side."""
    with ThreadPoolExecutor(WRITERS) as writers:
        most = 2 * WRITERS if getattr(executor, "many_at_once", False) else 0
        writing = deque[tuple[Result, Future[None] | None]]()
        for result in executor(todo) if todo else ():
            if result.record is not None and result.record.code != result.record.fingerprint():
                # A machine of a cluster may have another version installed.
                reason = "it was played by another version of the code; install the same everywhere"
                result = Result(result.id, None, reason)
            record = result.record
            writing.append((result, None if record is None else writers.submit(store.write, record)))
            while len(writing) > most:
                yield _settled(*writing.popleft())
        while writing:
            yield _settled(*writing.popleft())


def _settled(result: Result, write: Future[None] | None) -> Result:
    if write is not None:
        write.result()
    return result
