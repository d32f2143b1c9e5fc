"""Ray, for cells and for `rarely.cluster`: one that starts and ends with the run on this machine, or a cluster.

A cluster needs this package installed on every machine, and no data: what cells share travels with them, once.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from rarely.extend.checks import RarelyError
from rarely.runs.cell import Cell, Result, play_cell
from rarely.runs.executor import ONE_THREAD
from rarely.runs.provenance import cores

CELLS_PER_CORE = 3
"""Cells handed to Ray for each core: none waits for the next, and thousands do not flood the scheduler."""
SECONDS_TO_ANSWER = 10.0
"""How long a cluster may take to answer."""
RETRIES = 3
"""How often a cell is played again after its process was killed."""
ON_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
Call = tuple[Any, Callable[[], Any]]
"""A key, and what starts a task and returns its reference."""
OPTIONS = {"log_to_driver": False, "logging_level": logging.ERROR, "runtime_env": {"env_vars": ONE_THREAD}}


@dataclass(frozen=True)
class RayExecutor:
    """Processes of Ray, each with one BLAS thread."""

    jobs: int | None = None
    """Cells played at a time; None: one for each core that there is."""
    address: str | None = None
    """Of a cluster: `auto`, `host:port` or `ray://host:port`; None: a Ray that starts and ends with the run."""

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
                sent[key] = _send(ray, cell)
            if isinstance(sent[key], Exception):
                refused.append(Result(cell.id, None, _say(sent[key])))
            else:
                yield cell.id, partial(play.remote, cell.with_shared(None), sent[key])


def ended(ray: Any, calls: Iterable[Call], at_once: int | None) -> Iterator[tuple[Any, Any]]:
    """Start calls in order, few at a time, and yield the key of each and its reference when it has ended."""
    waiting = dict[Any, Any]()

    def room() -> int:
        # Asked for again each time: a cluster may grow.
        return at_once or CELLS_PER_CORE * max(1, int(ray.cluster_resources().get("CPU", 1)))

    def one() -> tuple[Any, Any]:
        ref = ray.wait(list(waiting))[0][0]
        return waiting.pop(ref), ref

    for key, start in calls:
        while len(waiting) >= room():
            yield one()
        waiting[start()] = key
    while waiting:
        yield one()


@contextmanager
def connected(jobs: int | None, address: str | None, *, share: bool = False) -> Iterator[Any]:
    """Yield Ray, ready to work, and let it go however the run ends; with `share`, one in use may be used and stays."""
    if address is None:
        # Ray's own switch for machines that form no cluster, which it reads when it is first imported: nodes and
        # drivers then stay on loopback.
        os.environ[ON_LOOPBACK] = "0"
    try:
        ray: Any = import_module("ray")
    except ModuleNotFoundError as error:
        raise RarelyError("the ray engine needs Ray: pip install 'rarely[ray]'.") from error
    if ray.is_initialized() and share and address is None:
        yield ray
        return
    if ray.is_initialized():
        raise RarelyError("Ray is in use in this process already; call ray.shutdown() first.")
    # By itself Ray plays a cell that was killed for want of memory again for ever.
    os.environ.setdefault("RAY_task_oom_retries", str(RETRIES))
    try:
        if address is None:
            _start(ray, jobs or cores())
        else:
            _join(ray, address)
        yield ray
    finally:
        ray.shutdown()


def _start(ray: Any, jobs: int) -> None:
    """Start a Ray that only this machine can reach."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if (node := ray.util.get_node_ip_address()) not in ("127.0.0.1", "::1"):
        raise RarelyError(
            f"Ray {ray.__version__} would listen at {node}, not on loopback alone, because it was imported before "
            f"this call. Set {ON_LOOPBACK}=0 in the environment, call ray.init yourself, or give a cluster's address."
        )
    # "local": RAY_ADDRESS in the environment must not lead elsewhere.
    try:
        ray.init("local", num_cpus=jobs, include_dashboard=False, **OPTIONS)
    except Exception as error:  # Ray gives a start that took too long no type of its own
        raise RarelyError(f"Ray did not start on this machine: {error}") from error


def _join(ray: Any, address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        if host and "/" not in address:  # of a machine that does not answer Ray says nothing for minutes
            socket.create_connection((host, int(port)), timeout=SECONDS_TO_ANSWER).close()
        ray.init(address, **OPTIONS)
    except (OSError, ImportError, ValueError) as error:
        raise RarelyError(f"Ray at {address} cannot be joined: {error}") from error


def _send(ray: Any, cell: Cell) -> Any:
    """Return what a cell shares with others as an object of Ray's store, or the error why it cannot be there."""
    try:
        return ray.put(cell.portable())
    except Exception as error:
        return error


def _play(cell: Cell, shared: Any) -> Result:
    whole: Cell = cell.with_shared(shared)
    return play_cell(whole)


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
