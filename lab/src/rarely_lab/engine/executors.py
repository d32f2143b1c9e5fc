"""Where cells are played: in this process, side by side in processes with one BLAS thread each, or on Ray.

An executor is called with cells and yields results as they come, in any order. A cluster of Ray needs this package
installed on every machine, and no data: what cells share travels with them, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rarely.runs.machine import RETRIES, Call, connected, ended, side_by_side
from rarely_lab.engine.cell import Cell, Result, play_cell

Executor = Callable[[Sequence[Cell]], Iterator[Result]]
"""Plays the cells, and yields a result for each as it ends."""


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

    jobs: int | None = None
    """Cells played at a time; None: one for each core that there is."""
    address: str | None = None
    """A cluster, as `auto`, `host:port` or `ray://host:port`; None: a Ray that starts and ends with the run."""

    def __call__(self, cells: Sequence[Cell]) -> Iterator[Result]:
        if not cells:
            return
        with connected(self.jobs, self.address) as ray:
            play = ray.remote(num_cpus=1, max_retries=RETRIES)(_play)
            refused = list[Result]()
            share = self.jobs if self.address else None
            for name, ref in ended(ray, self._calls(ray, play, cells, refused), share):
                yield _outcome(ray, ref, name)
            yield from refused

    def _calls(self, ray: Any, play: Any, cells: Sequence[Cell], refused: list[Result]) -> Iterator[Call]:
        sent = dict[int, Any]()
        for cell in cells:
            key = id(getattr(cell, cell.shared_field)) if cell.shared_field else 0
            if key not in sent:
                try:
                    sent[key] = ray.put(cell.portable())
                except Exception as error:
                    sent[key] = error
            if isinstance(sent[key], Exception):
                refused.append(Result(cell.id, None, _say(sent[key])))
            else:
                yield cell.id, partial(play.remote, cell.with_shared(None), sent[key])


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
