"""Campaigns on a real Ray: workers and drivers are killed in the middle, and not a bit changes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from campaigns import made, write_rewards, written
from rarely import load

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[ray]'")
pytest.importorskip("ray", reason="Ray is not installed: pip install '.[ray]'")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:unclosed file .*/ray/session_:ResourceWarning"),
    pytest.mark.skipif(not Path("/proc").exists(), reason="only Linux lists processes as files"),
]
ROUNDS, BLOCK = 480, 40
# A process of its own, in a group of its own, which can be killed with all that it started.
DRIVER = """
import functools, os, sys, time
import ray, rarely
from rarely.cluster import campaign, decide, update
def slowly(dim, folder, batch):
    time.sleep(0.2)
    if os.path.exists(folder + "/deadly"):  # a worker in the middle of its block, now and then
        try:
            os.unlink(folder + "/deadly")
        except FileNotFoundError:
            pass
        else:
            os.kill(os.getpid(), 9)
    return campaign.listed_contexts(dim, batch)
folder, jobs = sys.argv[1], int(sys.argv[2])
ray.init("local", num_cpus=jobs, include_dashboard=False, log_to_driver=False)  # one for both calls
policy = rarely.load(folder + "/policy")
decide(policy, folder + "/in", folder + "/out", block=40, jobs=jobs, contexts=functools.partial(slowly, 3, folder))
update(policy, folder + "/out", folder + "/r.parquet", jobs=jobs)
policy.save(folder + "/after")
"""


def prepared(folder: Path) -> None:
    written(folder / "in", ROUNDS)
    write_rewards(folder / "r.parquet", [f"2-{i}" for i in range(0, ROUNDS, 2)], np.linspace(0, 1, ROUNDS // 2))
    made("neural").save(folder / "policy")


def started(folder: Path, jobs: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", DRIVER, str(folder), str(jobs)]
    return subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)


def outcome(folder: Path) -> tuple[Any, ...]:
    blocks = sorted((folder / "out").glob("block-*.parquet"))
    return load(folder / "after").fingerprint(), [block.read_bytes() for block in blocks]


def test_workers_and_drivers_may_be_killed(tmp_path: Path) -> None:
    calm, stormy = tmp_path / "calm", tmp_path / "stormy"
    for folder in (calm, stormy):
        folder.mkdir()
        prepared(folder)
    with started(calm, 1) as driver:
        assert driver.wait(timeout=240) == 0
    with started(stormy, 2) as driver:
        (stormy / "deadly").touch()
        while driver.poll() is None and len(list((stormy / "out").glob("block-*.parquet"))) < 4:
            time.sleep(0.02)
        assert driver.poll() is None
        os.killpg(driver.pid, signal.SIGKILL)  # with all that it started, but for some processes of Ray
    assert not (stormy / "deadly").exists()
    before = len(list((stormy / "out").glob("block-*.parquet")))
    assert before < ROUNDS // BLOCK
    (stormy / "deadly").touch()
    with started(stormy, 2) as driver:
        assert driver.wait(timeout=240) == 0
    assert not (stormy / "deadly").exists()
    assert outcome(stormy) == outcome(calm)
    assert len(outcome(calm)[1]) == ROUNDS // BLOCK
    assert not list((stormy / "out").glob(".*"))
