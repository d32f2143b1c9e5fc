"""Campaigns on a real Ray: workers and drivers are killed in the middle, and not a bit changes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from campaigns import made, write_rewards, written
from rarely import load
from rarely.runs.machine import connected

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[ray]'")
pytest.importorskip("ray", reason="Ray is not installed: pip install '.[ray]'")
pytestmark = pytest.mark.filterwarnings("ignore:unclosed file .*/ray/session_:ResourceWarning")
ROUNDS, BLOCK = 480, 40
WORKERS = (1, 2, 4, 7)
# A driver in a process of its own. A worker that finds a file with the name of its task among the deaths ends there.
DRIVER = """
import functools, os, sys, time
import ray, rarely
from rarely.cluster import campaign, decide, learning, update

DRIVER = os.getpid()

def in_danger(folder, task):
    if os.getpid() == DRIVER:  # which looks at the first contexts too
        return
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"  # whatever the driver has
    time.sleep(0.05)
    try:
        os.unlink(f"{folder}/deaths/{task}")
    except FileNotFoundError:
        return
    os.kill(os.getpid(), 9)

def contexts(folder, batch):
    in_danger(folder, "decide-" + batch.column("id")[0].as_py())
    return campaign.listed_contexts(3, batch)

def sums(work, *args):
    in_danger(os.path.dirname(work.folder.path), f"sums-{args[-2]}")
    return whole(work, *args)

whole = learning._sum_rewards
learning.SUBTREE, learning._sum_rewards = 2, sums
ray.init(sys.argv[2], log_to_driver=False)  # which both calls use
for jobs in (1, 2, 4, 7):
    folder = f"{sys.argv[1]}/{jobs}"
    if not os.path.exists(folder + "/after"):
        policy = rarely.load(folder + "/policy")
        known = functools.partial(contexts, folder)
        decide(policy, folder + "/in", folder + "/out", block=40, contexts=known, jobs=jobs)
        update(policy, folder + "/out", folder + "/r.parquet", jobs=jobs)
        policy.save(folder + "/after")
"""
DEATHS = ["decide-2-0", "decide-2-80", "decide-2-200", "decide-2-400", "sums-2", "sums-8"]
# With how many workers a driver is killed, and after how many files.
STOPS = [(2, "block-*.parquet", 5), (4, "_sums-*", 2)]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A Ray that outlives its drivers, on loopback."""
    with connected(max(WORKERS), None) as ray:
        yield ray.get_runtime_context().gcs_address


def prepared(folder: Path) -> None:
    written(folder / "in", ROUNDS)
    write_rewards(folder / "r.parquet", [f"2-{i}" for i in range(0, ROUNDS, 2)], np.linspace(0, 1, ROUNDS // 2))
    made("neural").save(folder / "policy")
    (folder / "deaths").mkdir()


def started(folder: Path, address: str) -> subprocess.Popen[bytes]:
    command, environment = [sys.executable, "-c", DRIVER, str(folder), address], {"OPENBLAS_NUM_THREADS": "2"}
    return subprocess.Popen(command, stderr=subprocess.DEVNULL, env=os.environ | environment)


def outcome(folder: Path) -> tuple[Any, ...]:
    blocks = sorted((folder / "out").glob("block-*.parquet"))
    return load(folder / "after").fingerprint(), [block.read_bytes() for block in blocks]


def test_workers_and_drivers_may_be_killed(tmp_path: Path, address: str) -> None:
    """Kill 18 workers and two drivers; with one worker nothing fails."""
    assert address.startswith("127.0.0.1:")
    for workers in WORKERS:
        prepared(tmp_path / f"{workers}")
        for death in DEATHS if workers > 1 else ():
            (tmp_path / f"{workers}" / "deaths" / death).touch()
    for workers, stage, files in STOPS:
        with started(tmp_path, address) as driver:
            while driver.poll() is None and len(list((tmp_path / f"{workers}" / "out").glob(stage))) < files:
                time.sleep(0.01)
            assert driver.poll() is None
            os.kill(driver.pid, signal.SIGKILL)
    with started(tmp_path, address) as driver:
        assert driver.wait(timeout=300) == 0
    calm = outcome(tmp_path / "1")
    assert len(calm[1]) == ROUNDS // BLOCK
    for workers in WORKERS[1:]:
        assert not list((tmp_path / f"{workers}" / "deaths").iterdir())
        assert outcome(tmp_path / f"{workers}") == calm
        assert not list((tmp_path / f"{workers}" / "out").glob(".*.part"))


# In a process of its own: in this one another test may hold a Ray.
SEVERAL_CALLS = """
import ray
from rarely.runs.machine import connected

def session():
    return str(ray.get_runtime_context().get_job_id()) + ray.get_runtime_context().gcs_address

with connected(1, None, share=True):
    first = session()
with connected(1, None, share=True):
    assert session() == first
with connected(2, None):  # of a run of its own, which ends with it
    assert session() != first
assert not ray.is_initialized()
try:
    with connected(1, None, share=True):
        raise ZeroDivisionError
except ZeroDivisionError:
    assert not ray.is_initialized()
with connected(1, None) as own, connected(2, None, share=True) as again:
    assert again is own
    assert ray.cluster_resources()["CPU"] == 1
print("served")
"""


def test_one_ray_serves_several_calls() -> None:
    """Two calls on one session of Ray, another for other processes, none after a failure, and the user's own left."""
    environment = os.environ | {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    command = [sys.executable, "-c", SEVERAL_CALLS]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.endswith("served\n"), done.stderr
