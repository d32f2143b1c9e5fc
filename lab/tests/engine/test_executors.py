"""Cells played in processes: the same records, whatever happens to a process, to Ctrl-C and to kill -9."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import toy_cells
from rarely_lab.engine.cell import LocalExecutor, run_cells
from rarely_lab.engine.record import read_records
from toy_cells import ToyCell, ToyRecord, store_at, toys


def test_a_killed_process_is_told_the_others_go_on_and_each_has_one_blas_thread(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    good = [*toys(4), ToyCell("fails")]
    bad = ToyCell("deadly", load=str(tmp_path / "deaths"))
    failures = run_cells([*good[:3], bad, *good[3:]], store_at(tmp_path), LocalExecutor(2))
    errors = {failure.id: failure.error for failure in failures}
    assert errors.keys() == {"deadly/seed0", "fails/seed0"}
    assert errors["fails/seed0"].startswith("ValueError: it rained (toy_cells.py, line ")
    assert "killed" in errors["deadly/seed0"]
    records = read_records(tmp_path, ToyRecord).records
    assert [record.data["value"] for record in records] == [0, 1, 2, 3]
    assert {record.data["threads"] for record in records} == {"1"}


@pytest.fixture
def started(tmp_path):
    """A command of its own that has left two records and has many to go."""
    process = subprocess.Popen(
        [sys.executable, toy_cells.__file__, tmp_path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # In a script's background job the signal is ignored, and children inherit that.
        preexec_fn=(lambda: signal.signal(signal.SIGINT, signal.default_int_handler)) if os.name == "posix" else None,
    )
    deadline = time.monotonic() + 300
    while len(list(tmp_path.glob("records/**/*.json.gz"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    yield process
    process.kill()
    process.wait()


def children(pid):
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(status.parent.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to see which processes are left")
def test_kill_9_loses_nothing_and_leaves_nobody_behind(started, tmp_path):
    workers, deadline = children(started.pid), time.monotonic() + 300
    started.kill()
    started.communicate()
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert workers
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
    before = {record.id for record in read_records(tmp_path, ToyRecord).records}
    assert 2 <= len(before) < 40
    todo = []
    run_cells(
        toys(40, "sleeps"),
        store_at(tmp_path),
        lambda cells: iter(()),
        started=lambda cells, refused: todo.extend(cells),
    )
    assert {cell.id for cell in todo} == {cell.id for cell in toys(40, "sleeps")} - before


@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C is a signal on POSIX")
def test_ctrl_c_leaves_a_folder_that_can_be_resumed(started, tmp_path):
    os.killpg(started.pid, signal.SIGINT)
    _, complaint = started.communicate(timeout=300)
    assert started.returncode == 130
    assert "run the same command to resume" in complaint
    assert "Traceback" not in complaint
    assert read_records(tmp_path, ToyRecord).records
    assert not list(tmp_path.rglob("*.part"))
