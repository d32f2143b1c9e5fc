"""What a campaign costs: rates of deciding and updating from Parquet to Parquet, beside those of this process alone.

python benchmarks/campaign.py --rounds 1000000                # some minutes
python benchmarks/campaign.py --rounds 10000000               # six minutes and more; 12 GB of disk
python benchmarks/campaign.py --decider                       # 100 000 decisions of a decider at K = 50
python benchmarks/campaign.py --join 10000000                 # the join alone, of as many rewards to as many rounds
python benchmarks/campaign.py --sums                          # seconds and bytes of Z for 10⁶ rounds, by p

d = 20, K = 5, the default policy after a pilot of 2000 rounds, with the diagonal Z to which it changes by itself when
an exact one takes too long. Rates are rounds a second of processor time, of all processes together, so that other
programs on the machine count little; those of the clock are beside them. Engine overhead is the processor time of Ray's
processes over that of the same blocks in this process. The largest resident set is that of the driver or of a worker;
contexts and rewards are made in another process.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # on loopback

import argparse
import copy
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from rarely import BatchNeuralUCB, LinUCB, OnDemand
from rarely._core.native.linalg import cross
from rarely._core.policies.replay import state_of
from rarely.cluster import Decider, decide, learning, publish, update
from rarely.cluster import campaign as cluster_campaign
from rarely.cluster.files import Folder, Rows

DIM, ARMS, FILE, BLOCK = 20, 5, 262_144, cluster_campaign.BLOCK


@contextmanager
def here(jobs: int | None, address: str | None) -> Iterator[Any]:
    """Do the same work in this process."""

    def commit(folder: Any, task: Any, calls: Any) -> None:
        start = time.process_time()
        for name, args in calls:
            folder.commit(task(*args), name)
        name = getattr(task, "func", type(task)).__name__
        print(f"  {name}: {time.process_time() - start:.2f} s", flush=True)

    yield commit


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


def write_contexts(folder: Path, rounds: int) -> None:
    folder.mkdir()
    for first in range(0, rounds, FILE):
        count, rng = min(FILE, rounds - first), np.random.default_rng(first)
        numbers = pa.FixedSizeListArray.from_arrays(pa.array(rng.normal(size=count * ARMS * DIM)), ARMS * DIM)
        table = pa.table({"id": np.arange(first, first + count), "contexts": numbers})
        parquet.write_table(table, folder / f"{first:010d}.parquet", row_group_size=BLOCK)


def write_rewards(decisions: Path, folder: Path) -> None:
    folder.mkdir()
    for i, path in enumerate(sorted(decisions.glob("block-*"))):
        table = parquet.read_table(path, columns=["id", "context"])
        rewards = paid(np.stack(table.column("context").to_numpy()), np.random.default_rng(i))
        parquet.write_table(pa.table({"id": table.column("id"), "reward": rewards}), folder / path.name)


def elsewhere(call: Callable[..., Any], *args: Any) -> Any:
    """Make a call in a process that ends then, so that its memory is not this one's, and return what it returns."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(call, *args).result()


def processes() -> dict[int, tuple[float, float, str]]:
    """Return processor seconds, the largest resident set in GiB and the name of this process and those below it."""
    found, parents = {}, {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            _, _, rest = (path / "stat").read_text().rpartition(")")
            status = dict(line.split(":", 1) for line in (path / "status").read_text().splitlines())
        except (FileNotFoundError, ProcessLookupError):
            continue
        fields, pid = rest.split(), int(path.name)
        seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        most = int(status.get("VmHWM", "0 kB").split()[0]) / 2**20
        found[pid], parents[pid] = (seconds, most, status["Name"].strip()), int(fields[1])
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return {pid: found[pid] for pid in ours if pid in found}


def timed(name: str, rounds: int, call: Callable[[], Any]) -> float:
    """Make a call, print what it took, and return its processor seconds."""
    before, start = processes(), time.perf_counter()
    call()
    after, wall = processes(), time.perf_counter() - start
    seconds = sum(now[0] - before.get(pid, (0.0,))[0] for pid, now in after.items())
    print(f"{name}: {rounds / seconds:,.0f} rounds a second of a core, {rounds / wall:,.0f} by the clock", flush=True)
    return seconds


def bare_update(policy: Any, decisions: Path, rewards: Path) -> float:
    """Return the processor seconds of the reads and products of an update, and of nothing else."""
    start, learner = time.process_time(), state_of(policy).current.learner
    covariance, folder = state_of(policy).current.covariance, Folder.at(decisions)
    rows = Rows.at(rewards, ("id", "reward"))
    for _ in rows.batches(0, len(rows)):
        pass
    for b in range(len(folder.names("block-"))):
        contexts = cluster_campaign.contexts_of(cluster_campaign.read_block(folder, b))
        scaled = learner.scale(contexts)
        scaled.T @ scaled
        for first in range(0, len(contexts), covariance.block()):
            covariance.contribution(learner.features(contexts[first : first + covariance.block()]))
    return time.process_time() - start


def in_one_process(folder: Path, rounds: int) -> tuple[float, float]:
    """Return the processor seconds of a round by `select`, and by `decide` without Ray."""
    warnings.simplefilter("ignore")
    policy, contexts = pilot(), np.random.default_rng(1).normal(size=(BLOCK, ARMS, DIM))
    alone = timed("select, in one call", BLOCK, lambda: copy.deepcopy(policy).select(contexts)) / BLOCK
    timed("score, the same without a record", BLOCK, lambda: policy.score(contexts))
    cluster_campaign.committing = learning.committing = here
    write_contexts(folder / "sample", rounds)
    decided = timed("decide, in this process", rounds, lambda: decide(policy, folder / "sample", folder / "some"))
    write_rewards(folder / "some", folder / "some-rewards")
    bare = bare_update(policy, folder / "some", folder / "some-rewards")
    timed("update, in this process", rounds, lambda: update(policy, folder / "some", folder / "some-rewards"))
    print(f"  reads and products alone: {bare:.2f} s", flush=True)
    return alone, decided / rounds


def campaign(folder: Path, rounds: int, jobs: int) -> None:
    import ray

    alone, bare = elsewhere(in_one_process, folder, min(rounds, 4 * BLOCK))
    elsewhere(write_contexts, folder / "in", rounds)
    policy, many = pilot(), f"{jobs} processes of Ray"
    ray.init("local", num_cpus=jobs, include_dashboard=False, log_to_driver=False)
    spent = timed(f"decide, {many}", rounds, lambda: decide(policy, folder / "in", folder / "out", jobs=jobs)) / rounds
    print(f"  {alone / spent:.2f} times the rate of select; engine overhead {spent / bare - 1:.1%}")
    elsewhere(write_rewards, folder / "out", folder / "rewards")
    timed(f"update, {many}", rounds, lambda: update(policy, folder / "out", folder / "rewards", jobs=jobs))
    for seconds, _, name in sorted(processes().values())[-jobs - 3 :]:
        print(f"  {name}: {seconds:.1f} s of a core in all")
    most = sorted((most, name) for _, most, name in processes().values())[-jobs - 1 :]
    print("largest resident sets:", ", ".join(f"{name} {gib:.2f} GiB" for gib, name in most))


def join(folder: Path, rounds: int) -> None:
    """Join as many rewards, in another order, in this process."""
    (folder / "out").mkdir()
    (folder / "rewards").mkdir()
    order = np.random.default_rng(0).permutation(rounds)
    for b, start in enumerate(range(0, rounds, BLOCK)):
        ids = np.arange(start, min(start + BLOCK, rounds))
        block = pa.table({"id": ids}).replace_schema_metadata({"rarely": "", "crc": "00000000"})
        parquet.write_table(block, folder / "out" / f"block-{b:08d}.parquet")
        rewards = pa.table({"id": order[ids], "reward": order[ids] / rounds})
        parquet.write_table(rewards, folder / "rewards" / f"{b:08d}.parquet")
    decided = cluster_campaign.Campaign(0, rounds, BLOCK, DIM, ())
    night, came = (
        learning.Night(Folder.at(folder / "out"), decided, 0, ()),
        Rows.at(folder / "rewards", ("id", "reward")),
    )
    work = learning.Work(night.folder, "000001", -(-rounds // learning.BUCKET))
    with here(None, None) as commit:
        columns = ("id", "reward")
        timed(
            f"join, {work.buckets} buckets",
            rounds,
            lambda: learning.join_rewards(commit, [night], work, came, columns, 0),
        )
    print(f"largest resident set: {processes()[os.getpid()][1]:.2f} GiB")


def decider(folder: Path, decisions: int) -> None:
    rng = np.random.default_rng(0)
    policy = LinUCB(dim=48, schedule=OnDemand(), seed=0)
    contexts = rng.normal(size=(256, 50, 48))
    policy.observe(policy.select(contexts), rng.normal(size=256))
    policy.update()
    publish(policy, folder / "store")
    with Decider(folder / "store", folder / "log", poll=0.5) as one:
        times = np.empty((2, decisions))
        switch = decisions
        for i in range(decisions):
            if i == decisions // 2:
                policy.observe(policy.select(contexts), rng.normal(size=256))
                policy.update()
                publish(policy, folder / "store")
            start, clock, version = time.thread_time(), time.perf_counter(), one.version
            one.decide(str(i), contexts[i % 256])
            times[:, i] = time.thread_time() - start, time.perf_counter() - clock
            switch = i if one.version != version else switch
        p50, p99, most = np.quantile(times[0], [0.5, 0.99, 1.0]) * 1e3
        print(f"K = 50: p50 {p50:.3f} ms, p99 {p99:.3f} ms, longest {most:.1f} ms; version {one.version} at the end")
        p50, p99 = np.quantile(times[1], [0.5, 0.99]) * 1e3
        pause = times[:, max(0, switch - 20) : switch + 20].max(axis=1) * 1e3
        print(f"  by the clock p50 {p50:.3f} ms, p99 {p99:.3f} ms")
        print(f"  longest of 40 around the switch: {pause[0]:.1f} ms, by the clock {pause[1]:.1f} ms")
    print(f"  log: {(folder / 'log').stat().st_size / decisions / 1000:.1f} kB a decision")


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
    parser.add_argument("--rounds", type=int, default=1_000_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--decider", nargs="?", type=int, const=100_000)
    parser.add_argument("--join", type=int)
    parser.add_argument("--sums", action="store_true")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        if asked.decider:
            decider(Path(folder), asked.decider)
        elif asked.join:
            join(Path(folder), asked.join)
        elif asked.sums:
            sums()
        else:
            campaign(Path(folder), asked.rounds, asked.jobs)


if __name__ == "__main__":
    main()
