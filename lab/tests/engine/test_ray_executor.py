"""Cells played by Ray: the same records, whatever happens to its processes, and nothing listens beyond loopback."""

from __future__ import annotations

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

import pytest

import toy_cells
from rarely._core.errors import RarelyError
from rarely.runs import machine
from rarely.runs.machine import RETRIES, TASKS_PER_CORE
from rarely_lab.engine.cell import LocalExecutor, RayExecutor, Result, run_cells
from rarely_lab.engine.record import read_records
from toy_cells import ToyCell, ToyRecord, store_at, toys

# Ray 2.30 leaves its own log files to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed file .*/ray/session_:ResourceWarning")

HEALTHY = toys(4)
LOOPBACK = {
    "0100007F",  # 127.0.0.1 as /proc/net/tcp writes it, and in /proc/net/tcp6 ::ffff:127.0.0.1 and ::1
    "0000000000000000FFFF00000100007F",
    "00000000000000000000000001000000",
}


class Broken:
    """Can be sent, and not received."""

    def __reduce__(self) -> Any:
        return unpacked, ()


def unpacked() -> Any:
    raise ModuleNotFoundError("No module named 'mine'")


@dataclass
class Run:
    """A run on a Ray that the executor started, and what was seen of it."""

    out: Path
    cells: dict[str, ToyCell]
    failed: dict[str, str] = field(default_factory=dict)
    finished: list[str] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    listening: dict[str, str] = field(default_factory=dict)


@pytest.fixture(scope="module")
def ray() -> Any:
    module = pytest.importorskip("ray", reason="Ray is not installed: pip install 'rarely[ray]'")
    for here in (toy_cells, sys.modules[__name__]):  # no process of Ray could import these files
        module.cloudpickle.register_pickle_by_value(here)
    return module


@pytest.fixture(scope="module")
def run(ray: Any, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("ray")
    odd = [
        ToyCell("unlucky", load=str(folder / "unlucky")),
        ToyCell("deadly", load=str(folder / "deadly")),
        ToyCell("fails"),
        ToyCell("broken", load=Broken()),
        ToyCell("unsendable", load="lock"),
    ]
    cells = [*odd, *HEALTHY]
    run, before = Run(folder, {cell.id: cell for cell in cells}), processes()

    def finished(result: Result) -> None:
        run.finished.append(result.id)
        if result.record is not None:  # some processes of Ray are there only when a cell was played
            run.seen |= processes() - before
            run.listening |= listening(run.seen | {os.getpid()})

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENBLAS_NUM_THREADS", "7")
        patch.setenv("RAY_ADDRESS", "192.0.2.1:6379")  # leads nowhere, and must not be followed
        failures = run_cells(cells, store_at(folder), RayExecutor(2), finished=finished)
        run.failed = {result.id: result.error for result in failures}
    return run


def test_records_are_those_of_this_process_with_one_thread_each(run: Run, tmp_path: Path) -> None:
    assert run_cells(HEALTHY, store_at(tmp_path), LocalExecutor(None)) == []
    theirs = {record.id: record for record in read_records(run.out, ToyRecord).records}
    for ours in read_records(tmp_path, ToyRecord).records:
        for part in ("asked", "identity", "code", "value"):
            assert theirs[ours.id].data[part] == ours.data[part], part
        assert theirs[ours.id].data["threads"] == "1"


def test_every_cell_is_told_of_once(run: Run) -> None:
    assert sorted(run.finished) == sorted(run.cells)
    assert sorted([record.id for record in read_records(run.out, ToyRecord).records] + list(run.failed)) == sorted(
        run.cells
    )


def test_a_killed_process_is_survived(run: Run) -> None:
    assert "unlucky/seed0" not in run.failed
    assert store_at(run.out).path("unlucky/seed0").exists()
    assert (run.out / "unlucky").stat().st_size == 2


def test_a_cell_that_kills_every_process_is_reported(run: Run) -> None:
    assert "killed" in run.failed["deadly/seed0"]
    assert (run.out / "deadly").stat().st_size == 1 + RETRIES


def test_an_error_inside_a_cell_or_on_its_way_is_told_in_one_line(run: Run) -> None:
    assert run.failed["fails/seed0"].startswith("ValueError: it rained (toy_cells.py, line ")
    assert run.failed["broken/seed0"] == "ModuleNotFoundError: No module named 'mine'"
    assert run.failed["unsendable/seed0"] == "TypeError: a lock cannot be packed"
    assert not any("\n" in error for error in run.failed.values())


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
def test_ctrl_c_ends_ray(ray: Any) -> None:
    before = processes()
    code = (
        "import ray, toy_cells; from rarely_lab.engine.cell import RayExecutor\n"
        "ray.cloudpickle.register_pickle_by_value(toy_cells)\n"
        "print('playing', flush=True); list(RayExecutor(1)(toy_cells.toys(10_000, 'sleeps')))"
    )
    # In a script's background job the signal is ignored, and children inherit that.
    heard = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler)}
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": Path(toy_cells.__file__).parent, **heard}
    with subprocess.Popen([sys.executable, "-c", code], **options) as process:
        seen = set[int]()
        while process.poll() is None and not any("ray::_play" in command(pid) for pid in seen):
            time.sleep(0.2)
            seen = processes() - before
        process.send_signal(signal.SIGINT)
        try:
            _, said = process.communicate(timeout=300)
        finally:
            process.kill()
    assert said.strip().endswith(b"KeyboardInterrupt")
    assert gone_within(300.0, seen)


@pytest.fixture
def cluster(ray: Any) -> Iterator[str]:
    """The address of a Ray that another process started, on loopback."""
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
    store, played = store_at(run.out), list[str]()
    store.path(HEALTHY[1].id).unlink()
    executor = RayExecutor(address=cluster)
    assert run_cells(HEALTHY, store, executor, finished=lambda result: played.append(result.id)) == []
    assert played == [HEALTHY[1].id]
    assert not ray.is_initialized()

    results = executor(HEALTHY)  # an executor is used again, and let go early
    assert next(results).record is not None
    with pytest.raises(RarelyError, match="in use"):
        next(executor(HEALTHY))
    assert ray.is_initialized()
    results.close()
    assert not ray.is_initialized()


@pytest.mark.parametrize(("jobs", "most"), [(None, 2 * TASKS_PER_CORE), (3, 3)])
def test_cells_are_sent_in_order_and_few_at_a_time(
    jobs: int | None, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = ["a", "b"]
    cells = [ToyCell(f"cell{load}", seed, load=load) for seed in range(10) for load in loads]
    sent, waiting, put, widest = list[str](), list[Result](), list[str](), 0

    def send(cell: ToyCell, load: str) -> Result:
        nonlocal widest
        assert cell.load is None
        waiting.append(Result(cell.with_shared(load).id, None))
        sent.append(waiting[-1].id)
        widest = max(widest, len(waiting))
        return waiting[-1]

    fake = SimpleNamespace(
        init=lambda *args, **options: None,
        is_initialized=lambda: False,
        shutdown=lambda: None,
        cluster_resources=lambda: {"CPU": 2.0},
        remote=lambda **options: lambda function: SimpleNamespace(remote=send),
        put=lambda load: put.append(load) or load,
        wait=lambda refs: ([waiting.pop(-1)], []),
        get=lambda ref: ref,
    )
    monkeypatch.setitem(sys.modules, "ray", fake)
    results = list(RayExecutor(jobs, address="fake")(cells))
    assert sent == [cell.id for cell in cells]
    assert sorted(result.id for result in results) == sorted(sent)
    assert widest == most
    assert put == loads


def test_no_cells_need_no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert list(RayExecutor()([])) == []


def test_a_missing_ray_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RarelyError, match=r"the ray engine needs Ray: pip install 'rarely\[ray\]'"):
        next(RayExecutor()(HEALTHY))


def test_a_ray_beyond_loopback_is_refused() -> None:
    started = list[str]()
    util = SimpleNamespace(get_node_ip_address=lambda: "192.0.2.2")
    fake = SimpleNamespace(init=lambda *args, **options: started.append("init"), util=util, __version__="9")
    with pytest.raises(RarelyError, match="loopback"):
        machine._start(fake, 1)
    assert not started


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
