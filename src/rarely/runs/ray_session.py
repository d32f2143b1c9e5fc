"""Ray: one that starts and ends with a run on this machine, or a cluster.

A cluster needs the package installed on every machine.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from rarely.extend.checks import RarelyError
from rarely.runs.processes import ONE_THREAD
from rarely.runs.provenance import cores

TASKS_PER_CORE = 3
"""Tasks handed to Ray for each core: none waits for the next, and thousands do not flood the scheduler."""
SECONDS_TO_ANSWER = 10.0
"""How long a cluster may take to answer."""
RETRIES = 3
"""How often a task is run again after its process was killed."""
ON_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_kept: tuple[Any, ...] = ()
"""What the Ray that an earlier call has left to later ones was asked for, and its session."""
Call = tuple[Any, Callable[[], Any]]
"""A key, and what starts a task and returns its reference."""
OPTIONS = {"log_to_driver": False, "logging_level": logging.ERROR, "runtime_env": {"env_vars": ONE_THREAD}}


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
