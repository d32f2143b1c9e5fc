"""The machine that results were made on, and work side by side on it: in processes, or with Ray.

Ray starts and ends with a run on this machine, or is a cluster, which needs the package installed on every machine.
"""

from __future__ import annotations

import logging
import os
import platform
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import as_completed
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from rarely.extend import __version__
from rarely.extend.checks import RarelyError
from rarely.extend.provisional import native

Item = TypeVar("Item")
Done = TypeVar("Done")
ONE_THREAD = {name: "1" for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")}
"""A process for each core, a thread for each process: BLAS threads that wait for each other slow down all of them."""
TASKS_PER_CORE = 3  #: Tasks for Ray for each core: none waits for the next, and thousands do not flood the scheduler.
SECONDS_TO_ANSWER = 10.0  # how long a cluster may take to answer
RETRIES = 3  # how often a task is run again after its process was killed
ON_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_kept: tuple[Any, ...] = ()  # what the Ray that an earlier call has left to later ones was asked for, and its session
Call = tuple[Any, Callable[[], Any]]  # a key, and what starts a task and returns its reference
OPTIONS = {"log_to_driver": False, "logging_level": logging.ERROR, "runtime_env": {"env_vars": ONE_THREAD}}


# --- what a result was made on


def source() -> str:
    """Return a hash of the source files of rarely, and of rarely-lab where it is in use: what made a result."""
    from rarely.golden.family import source_digest  # which imports every policy

    return source_digest(*(name for name in ("rarely", "rarely_lab") if name in sys.modules))


@cache
def machine() -> str:
    """Return the processor, and how many of its cores can be used."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text(encoding="utf-8").splitlines()
        cpu = next((line.split(":")[1].strip() for line in lines if "model name" in line), cpu)
    return f"{cpu}, {cores()} cores"


def cores() -> int:
    """Return the number of cores that this process may use; in a container at most its quota."""
    return native._cores()


def describe() -> dict[str, str]:
    """Return the machine and the versions that matter."""
    return {
        "machine": machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "rarely": __version__,
        "source": source(),
        "passes": "compiled" if native.available() else "numpy",
        "form": native.form(),
        "engine": "cpu",
    }


def reset_peak_memory() -> None:
    """Start a new peak where the system allows it, on Linux."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_memory() -> int:
    """Return the most bytes that this process held since the reset, or else its start; 0 on Windows."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    if sys.platform == "win32":
        return 0
    import resource  # not there on Windows

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


# --- processes


def side_by_side(work: Callable[[Item], Done], items: Sequence[Item], jobs: int) -> Iterator[Done]:
    """Yield the work on each item as it ends, each in a process with one BLAS thread. Needs loky."""
    yield from in_pools(work, [(items, jobs)])


def in_pools(work: Callable[[Item], Done], pools: Sequence[tuple[Sequence[Item], int]]) -> Iterator[Done]:
    """Yield the same where some items have processes of their own: each pool has its items and its number of those."""
    from loky import ProcessPoolExecutor

    executors, futures = [], []
    try:
        for items, jobs in pools:
            most, settings = min(jobs, len(items)), {"env": ONE_THREAD, "initializer": end_with}
            executors.append(ProcessPoolExecutor(max_workers=most, initargs=(os.getpid(),), **settings))
            futures += [executors[-1].submit(work, item) for item in items]
        for future in as_completed(futures):
            yield future.result()
    finally:
        for executor in executors:
            executor.shutdown(kill_workers=True)


def end_with(parent: int) -> None:
    """End this process when its parent is gone, and leave Ctrl-C to the parent: a killed run must not go on."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.name != "posix" or os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


# --- Ray


def ended(ray: Any, calls: Iterable[Call], at_once: int | None) -> Iterator[tuple[Any, Any]]:
    """Start calls in order, few at a time, and yield the key of each and its reference when it has ended."""
    waiting = dict[Any, Any]()

    def room() -> int:
        # Asked for again each time: a cluster may grow.
        return at_once or TASKS_PER_CORE * max(1, int(ray.cluster_resources().get("CPU", 1)))

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
    """Yield Ray, ready to work, and let it go however the run ends.

    With `share` one in use may be used; and one that was started for it stays for the next such call, until the process
    ends, another kind is asked for, or the work fails.
    """
    global _kept
    if address is None:
        # Ray's own switch for machines that form no cluster, which it reads when it is first imported: nodes and
        # drivers then stay on loopback.
        os.environ[ON_LOOPBACK] = "0"
    try:
        ray: Any = import_module("ray")
    except ModuleNotFoundError as error:
        raise RarelyError("the ray engine needs Ray: pip install 'rarely[ray]'.") from error
    asked = (jobs or cores(), address)
    if ray.is_initialized() and _kept[1:] == (_session(ray),) and not (share and _kept[0] == asked):
        ray.shutdown()
    elif ray.is_initialized() and share and (address is None or _kept == (asked, _session(ray))):
        with _ended_by_failure(ray if _kept[1:] == (_session(ray),) else None):
            yield ray
        return
    if ray.is_initialized():
        raise RarelyError("Ray is in use in this process already; call ray.shutdown() first.")
    # By itself Ray runs a task that was killed for want of memory again for ever.
    os.environ.setdefault("RAY_task_oom_retries", str(RETRIES))
    with _ended_by_failure(ray):
        if address is None:
            _start(ray, jobs or cores())
        else:
            _join(ray, address)
        _kept = (asked, _session(ray)) if share else ()
        yield ray
    if not share:
        ray.shutdown()


@contextmanager
def _ended_by_failure(ray: Any) -> Iterator[None]:
    """Let Ray go, with the tasks that it still has, if the work fails; None is one that somebody else started."""
    try:
        yield
    except BaseException:
        if ray is not None:
            ray.shutdown()
        raise


def _session(ray: Any) -> str:
    context = ray.get_runtime_context()
    return f"{context.gcs_address} {context.get_job_id()}"


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
