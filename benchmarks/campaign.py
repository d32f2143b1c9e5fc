"""What a campaign costs: rates of deciding and updating from Parquet to Parquet, beside those of this process alone.

python benchmarks/campaign.py --rounds 500000 --jobs 2        # a few minutes, wall-clock time
python benchmarks/campaign.py --rounds 131072 --jobs 0        # without Ray; processor time
python benchmarks/campaign.py --rounds 10000000               # an hour; 8 GB of disk
python benchmarks/campaign.py --decider                       # 100 000 decisions of a decider at K = 50
python benchmarks/campaign.py --sums                          # seconds and bytes of Z for 10⁶ rounds, by p

d = 20, K = 5, the default policy after a pilot of 2000 rounds, with the diagonal Z to which it changes by itself when
an exact one takes too long. Memory is the largest resident set of the driver, or of this process with --jobs 0.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import copy
import resource
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from rarely import BatchNeuralUCB, LinUCB, OnDemand
from rarely._core.native.linalg import cross
from rarely.cluster import Decider, decide, learning, publish, update
from rarely.cluster import campaign as cluster_campaign

DIM, ARMS, FILE = 20, 5, 262_144


class Here(cluster_campaign.Pool):
    """The same work in this process."""

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *error: Any) -> None:
        pass

    def commit(self, folder: Any, task: Any, calls: Any) -> None:
        start = time.process_time()
        for name, args in calls:
            folder.commit(cluster_campaign._call(task, *args), name)
        print(f"  {type(task).__name__}: {time.process_time() - start:.1f} s", flush=True)


def pilot() -> BatchNeuralUCB:
    rng = np.random.default_rng(0)
    policy = BatchNeuralUCB(dim=DIM, schedule=OnDemand(), seed=0, within_batch="frozen", covariance="diagonal")
    for _ in range(2):
        contexts = rng.normal(size=(1000, ARMS, DIM))
        decision = policy.select(contexts)
        policy.observe(decision, paid(contexts[np.arange(1000), decision.arm], rng))
        policy.update()
    return policy


def paid(chosen: Any, rng: np.random.Generator) -> Any:
    return np.cos(chosen[:, 0]) + chosen[:, 1] + rng.normal(size=len(chosen))


def campaign(folder: Path, rounds: int, jobs: int) -> None:
    policy, rng = pilot(), np.random.default_rng(1)
    clock = time.perf_counter if jobs else time.process_time
    if not jobs:
        cluster_campaign.Pool = learning.Pool = Here
    contexts = rng.normal(size=(8192, ARMS, DIM))
    for name, call in {"score": policy.score, "select": copy.deepcopy(policy).select}.items():
        start = time.process_time()
        call(contexts)
        print(f"{name}: {8192 / (time.process_time() - start):,.0f} rounds a second of a core", flush=True)
    (folder / "in").mkdir()
    for first in range(0, rounds, FILE):
        count = min(FILE, rounds - first)
        numbers = pa.FixedSizeListArray.from_arrays(pa.array(rng.normal(size=count * ARMS * DIM)), ARMS * DIM)
        table = pa.table({"id": np.arange(first, first + count), "contexts": numbers})
        parquet.write_table(table, folder / "in" / f"{first:010d}.parquet", row_group_size=65_536)
    start = clock()
    decide(policy, folder / "in", folder / "out", jobs=jobs)
    print(f"decide, {jobs} processes: {rounds / (clock() - start):,.0f} rounds a second", flush=True)
    (folder / "rewards").mkdir()
    for path in sorted((folder / "out").glob("block-*")):
        table = parquet.read_table(path, columns=["id", "context"])
        rewards = paid(np.stack(table.column("context").to_numpy()), rng)
        parquet.write_table(pa.table({"id": table.column("id"), "reward": rewards}), folder / "rewards" / path.name)
    start = clock()
    report = update(policy, folder / "out", folder / "rewards", jobs=jobs)
    print(
        f"update, {jobs} processes: {rounds / (clock() - start):,.0f} rounds a second; {report.joined} rewards joined"
    )
    print(f"largest resident set: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")


def decider(folder: Path, decisions: int) -> None:
    rng = np.random.default_rng(0)
    policy = LinUCB(dim=48, schedule=OnDemand(), seed=0)
    contexts = rng.normal(size=(256, 50, 48))
    policy.observe(policy.select(contexts), rng.normal(size=256))
    policy.update()
    publish(policy, folder / "store")
    with Decider(folder / "store", folder / "log", poll=0.5) as one:
        times = np.empty(decisions)
        for i in range(decisions):
            if i == decisions // 2:
                policy.observe(policy.select(contexts), rng.normal(size=256))
                policy.update()
                publish(policy, folder / "store")
            start = time.thread_time()
            one.decide(str(i), contexts[i % 256])
            times[i] = time.thread_time() - start
        p50, p99, most = np.quantile(times, [0.5, 0.99, 1.0]) * 1e3
        print(f"K = 50: p50 {p50:.3f} ms, p99 {p99:.3f} ms, longest {most:.1f} ms; version {one.version} at the end")


def sums() -> None:
    rng = np.random.default_rng(0)
    for p in (21, 189, 441, 1000, 2000, 4000):
        features = rng.normal(size=(2048, p))
        start = time.process_time()
        features.T @ features
        each = (time.process_time() - start) / 2048
        print(f"p = {p}: {1e6 * each:.1f} s for 10⁶ rounds on a core; one sum is {8e-6 * p * p:.2f} MB", flush=True)
        if p <= 441:
            columns, none = np.ascontiguousarray(features.T), np.empty((p, 0))
            start = time.process_time()
            cross([columns, none], [columns, none])
            print(f"  {(time.process_time() - start) / 2048 / each:.1f} times as long by our own compiled products")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=500_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--decider", nargs="?", type=int, const=100_000)
    parser.add_argument("--sums", action="store_true")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        if asked.decider:
            decider(Path(folder), asked.decider)
        elif asked.sums:
            sums()
        else:
            campaign(Path(folder), asked.rounds, asked.jobs)


if __name__ == "__main__":
    main()
