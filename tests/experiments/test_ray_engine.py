"""Cells played by Ray: the same records, whatever happens to its processes, and nothing listens beyond loopback."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rarely.core.errors import RarelyError
from rarely.experiments import ray_engine
from rarely.experiments.catalogue import PROBLEMS, world_of
from rarely.experiments.config import Cell, Configuration, Problem, identity
from rarely.experiments.ray_engine import AHEAD, RETRIES, RayEngine
from rarely.experiments.runner import LocalEngine, Result, reproduce
from rarely.experiments.store import Store
from rarely.worlds import Cosine, Dataset

# Ray 2.30 leaves its own log files to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed file .*/ray/session_:ResourceWarning")

ROUNDS = 40
LINUCB, FIXED = Configuration("linucb", ridge=0.1, beta=0.1), Configuration("fixed", batches=4)
HEALTHY = [
    *(Cell(PROBLEMS["cosine"], "raw", LINUCB, seed, ROUNDS) for seed in range(2)),
    *(Cell(PROBLEMS["cosine"], "practical", FIXED, seed, ROUNDS) for seed in range(2)),
]
LOOPBACK = {
    "0100007F",  # 127.0.0.1 as /proc/net/tcp writes it, and in /proc/net/tcp6 ::ffff:127.0.0.1 and ::1
    "0000000000000000FFFF00000100007F",
    "00000000000000000000000001000000",
}


@dataclass(frozen=True)
class Deadly(Cosine):
    """Kills the process that plays it, some times."""

    times: int = 1
    deaths: str = ""
    """A file that has a byte for each time it was played."""

    def secret(self, generator: np.random.Generator) -> Any:
        with open(self.deaths, "a") as file:
            file.write("x")
        if Path(self.deaths).stat().st_size <= self.times:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().secret(generator)


class Wrong(Cosine):
    def secret(self, generator: np.random.Generator) -> Any:
        raise ValueError(f"no secret, and {os.environ['OPENBLAS_NUM_THREADS']} thread")


class Broken(Cosine):
    """Can be sent, and not received."""

    def __reduce__(self) -> Any:
        return unpacked, ()


def unpacked() -> Any:
    raise ModuleNotFoundError("No module named 'mine'")


class Unsendable(Cosine):
    def __reduce__(self) -> Any:
        raise TypeError("a lock cannot be packed")


class AtHome(Dataset):
    """A dataset that cannot be sent, as its file cannot."""

    def __reduce__(self) -> Any:
        raise TypeError("the file stays here")


def small_dataset(folder: Path) -> Dataset:
    rows = np.random.default_rng(0).random((ROUNDS, 3))
    content = "".join(f"{x:.3f},{y:.3f},{z:.3f},{'ab'[int(x > y)]}\n" for x, y, z in rows).encode()
    (folder / "small.data").write_bytes(content)
    labels = [line[-1:] for line in content.decode().split()]
    counts = (("a", labels.count("a")), ("b", labels.count("b")))
    return AtHome("small", "small.data", len(content), hashlib.sha256(content).hexdigest(), 3, counts, (), "")


@dataclass
class Run:
    """A run on a Ray of the engine's own, and what was seen of it."""

    out: Path
    cells: dict[str, Cell]
    failed: dict[str, str] = field(default_factory=dict)
    finished: list[str] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    listening: dict[str, str] = field(default_factory=dict)


@pytest.fixture(scope="module")
def ray() -> Any:
    module = pytest.importorskip("ray", reason="Ray is not installed: pip install 'rarely[ray]'")
    module.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # no process of Ray could import this file
    return module


@pytest.fixture(scope="module")
def run(ray: Any, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("ray")
    sources = {
        "unlucky": Deadly(times=1, deaths=str(folder / "unlucky")),
        "deadly": Deadly(times=99, deaths=str(folder / "deadly")),
        "wrong": Wrong(),
        "broken": Broken(),
        "unsendable": Unsendable(),
        "small": small_dataset(folder),
    }
    cells = [*(Cell(Problem(name, source), "raw", LINUCB, 0, ROUNDS) for name, source in sources.items()), *HEALTHY]
    run, before = Run(folder, {cell.id: cell for cell in cells}), processes()

    def finished(result: Result) -> None:
        run.finished.append(result.id)
        if result.record is not None:  # some processes of Ray are there only when a cell was played
            run.seen |= processes() - before
            run.listening |= listening(run.seen | {os.getpid()})

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RARELY_DATA", str(folder))
        patch.setenv("RARELY_CACHE", str(folder))
        patch.setenv("OPENBLAS_NUM_THREADS", "7")
        patch.setenv("RAY_ADDRESS", "192.0.2.1:6379")  # leads nowhere, and must not be followed
        run.failed = {result.id: result.error for result in reproduce(cells, folder, RayEngine(2), finished=finished)}
    return run


def test_records_are_those_of_the_local_engine(run: Run, tmp_path: Path) -> None:
    assert reproduce(HEALTHY, tmp_path, LocalEngine(1)) == []
    theirs = {record.id: record for record in Store(run.out).read()}
    for ours in Store(tmp_path).read():
        for part in ("asked", "identity", "code", "regret", "curve", "reward", "updates", "log_det"):
            assert theirs[ours.id].data[part] == ours.data[part], part


def test_every_cell_is_told_of_once(run: Run) -> None:
    assert sorted(run.finished) == sorted(run.cells)
    assert sorted([record.id for record in Store(run.out).read()] + list(run.failed)) == sorted(run.cells)


def test_a_killed_process_is_survived(run: Run) -> None:
    name = f"unlucky/raw/{LINUCB.id}/seed0"
    assert name not in run.failed
    assert Store(run.out).path(name).exists()
    assert (run.out / "unlucky").stat().st_size == 2


def test_a_cell_that_kills_every_process_is_reported(run: Run) -> None:
    assert "killed" in run.failed[f"deadly/raw/{LINUCB.id}/seed0"]
    assert (run.out / "deadly").stat().st_size == 1 + RETRIES


def test_an_error_inside_a_cell_is_told_and_a_process_has_one_thread(run: Run) -> None:
    assert run.failed[f"wrong/raw/{LINUCB.id}/seed0"] == "ValueError: no secret, and 1 thread"


def test_a_problem_that_cannot_travel_is_told_in_one_line(run: Run) -> None:
    assert run.failed[f"broken/raw/{LINUCB.id}/seed0"] == "ModuleNotFoundError: No module named 'mine'"
    assert run.failed[f"unsendable/raw/{LINUCB.id}/seed0"].startswith("TypeError: Could not serialize")
    assert not any("\n" in error for error in run.failed.values())


def test_data_that_cannot_be_had_are_told_before_anything_is_played(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("RARELY_CACHE", str(tmp_path))
    gone = Problem("gone", Dataset("gone", "gone.data", 1, "", 0, (("a", 1), ("b", 1)), (), ""))
    with pytest.raises(RarelyError, match=r"gone\.data could not be fetched"):
        reproduce([Cell(gone, "raw", LINUCB, 0, ROUNDS)], tmp_path, RayEngine())
    sent = ray_engine._send(SimpleNamespace(put=lambda problem: problem), gone, Dataset.table)
    assert "gone.data could not be fetched" in str(sent)


def test_a_table_travels_and_the_record_is_the_same(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RARELY_DATA", str(run.out))
    cell = run.cells[f"small/raw/{LINUCB.id}/seed0"]
    (record,) = (record for record in Store(run.out).read() if record.id == cell.id)
    assert record.data["identity"] == identity(cell.describe(world_of(cell)))


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="only Linux tells who listens")
def test_nothing_listens_beyond_loopback(run: Run) -> None:
    assert len(run.listening) >= 4  # the driver, the store, the scheduler, a worker
    assert {where: who for where, who in run.listening.items() if where.split(":")[0] not in LOOPBACK} == {}


@pytest.mark.skipif(not Path("/proc").exists(), reason="only Linux lists processes as files")
def test_ray_ends_with_the_run(run: Run, ray: Any) -> None:
    assert not ray.is_initialized()
    assert len(run.seen) >= 4
    assert gone_within(10.0, run.seen)


@pytest.mark.skipif(not Path("/proc").exists(), reason="only Linux lists processes as files")
def test_ctrl_c_ends_ray(ray: Any, tmp_path: Path) -> None:
    before = processes()
    code = (
        "from rarely.experiments.ray_engine import RayEngine; from rarely.experiments.queue import plan_cells\n"
        "from rarely.experiments.problems import find_problem\n"
        "cells = plan_cells([find_problem('cosine')], ['practical'], rounds=2000, patterns=['neuralucb'])\n"
        "print('playing', flush=True); list(RayEngine(1)(cells))"
    )
    # In a script's background job the signal is ignored, and children inherit that.
    heard = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], **pipes, **heard) as process:
        seen = set[int]()
        while process.poll() is None and not any("ray::_play" in command(pid) for pid in seen):
            time.sleep(0.2)
            seen = processes() - before
        process.send_signal(signal.SIGINT)
        try:
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert said.strip().endswith(b"KeyboardInterrupt")
    assert gone_within(10.0, seen)


@pytest.fixture
def cluster(ray: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a Ray that another process started, on loopback."""
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    # Ray takes 127.0.0.1 for this machine's own address, where this cluster does not listen.
    monkeypatch.setattr("ray._private.ray_constants.ENABLE_RAY_CLUSTER", False)
    code = (
        "import ray, sys; ray.init('local', num_cpus=2, include_dashboard=False, log_to_driver=False)\n"
        "print(ray.get_runtime_context().gcs_address, flush=True); sys.stdin.read()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-c", code], text=True, **pipes) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        assert process.poll() is None  # a run leaves the cluster as it was


def test_a_run_on_a_cluster_goes_on_where_another_stopped(
    run: Run, ray: Any, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, played = Store(run.out), list[str]()
    store.path(HEALTHY[1].id).unlink()
    engine = RayEngine(address=cluster)
    assert reproduce(HEALTHY, run.out, engine, finished=lambda result: played.append(result.id)) == []
    assert played == [HEALTHY[1].id]
    assert not ray.is_initialized()

    results = engine(HEALTHY)  # an engine is used again, and let go early
    assert next(results).record is not None
    with pytest.raises(RarelyError, match="in use"):
        next(engine(HEALTHY))
    assert ray.is_initialized()
    results.close()
    assert not ray.is_initialized()


@pytest.mark.parametrize(("jobs", "most"), [(None, 2 * AHEAD), (3, 3)])
def test_cells_are_sent_in_order_and_few_at_a_time(
    jobs: int | None, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = [
        Cell(problem, "raw", LINUCB, seed, ROUNDS) for seed in range(10) for problem in list(PROBLEMS.values())[:2]
    ]
    sent, waiting, put, widest = list[str](), list[Result](), list[Problem](), 0

    def send(problem: Problem, *rest: Any) -> Result:
        nonlocal widest
        waiting.append(Result(Cell(problem, *rest).id, None))
        sent.append(waiting[-1].id)
        widest = max(widest, len(waiting))
        return waiting[-1]

    fake = SimpleNamespace(
        init=lambda *args, **options: None,
        is_initialized=lambda: False,
        shutdown=lambda: None,
        cluster_resources=lambda: {"CPU": 2.0},
        remote=lambda **options: lambda function: SimpleNamespace(remote=send),
        put=lambda problem: put.append(problem) or problem,
        wait=lambda refs: ([waiting.pop(-1)], []),
        get=lambda ref: ref,
    )
    monkeypatch.setitem(sys.modules, "ray", fake)
    results = list(RayEngine(jobs, address="fake")(cells))
    assert sent == [cell.id for cell in cells]
    assert sorted(result.id for result in results) == sorted(sent)
    assert widest == most
    assert put == list(PROBLEMS.values())[:2]


def test_no_cells_need_no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert list(RayEngine()([])) == []


def test_a_missing_ray_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RarelyError, match=r"the ray engine needs Ray: pip install 'rarely\[ray\]'"):
        next(RayEngine()(HEALTHY))


def test_a_ray_beyond_loopback_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    util = SimpleNamespace(get_node_ip_address=lambda: "192.0.2.2")
    fake = SimpleNamespace(init=lambda *args, **options: None, util=util, __version__="9")
    constants = SimpleNamespace(ENABLE_RAY_CLUSTER=True)
    monkeypatch.setattr(ray_engine, "import_module", lambda name: constants)
    with pytest.raises(RarelyError, match="loopback"):
        ray_engine._start(fake, 1)
    assert constants.ENABLE_RAY_CLUSTER


def processes() -> set[int]:
    """All processes that descend from this one."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {os.getpid()}


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def gone_within(seconds: float, pids: set[int]) -> bool:
    end = time.monotonic() + seconds
    while any(command(pid) for pid in pids):  # a process that ended and was not waited for has no command
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def listening(pids: set[int]) -> dict[str, str]:
    """`address:port` in hexadecimal on which these processes take connections, and whose each is."""
    owners = {}
    for pid in pids:
        try:
            owners |= {os.readlink(path): command(pid) for path in Path(f"/proc/{pid}/fd").iterdir()}
        except OSError:
            continue
    found = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:] if Path(table).exists() else []:
            words = line.split()
            where, state, inode = words[1], words[3], f"socket:[{words[9]}]"
            if state == "0A" and inode in owners:
                found[where] = owners[inode]
    return found
