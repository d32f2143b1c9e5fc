import gzip
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import cloudpickle
import numpy as np
import pytest

from rarely import InvalidInput
from rarely.core import native
from rarely.experiments import records as records_module
from rarely.experiments import store as store_module
from rarely.experiments.catalogue import PROBLEMS, policy_of, world_of
from rarely.experiments.config import PRESETS, Cell, Configuration, Problem, identity
from rarely.experiments.queue import plan_cells
from rarely.experiments.records import BrokenRecord, MixedRecords
from rarely.experiments.runner import LocalEngine, Result, play_cell, reproduce
from rarely.experiments.store import Store
from rarely.simulation import folder_lock
from rarely.simulation.folder_lock import FolderBusy, only_here
from rarely.simulation.play import play
from rarely.worlds import Table, World

SMALL = replace(PROBLEMS["cosine"], hidden=8, steps=5, batches=(3,), log_ratios=(2.0,))


def cells(runs=2, rounds=25, patterns=("linucb-r1-*", "fixed-*", "adaptive-*", "neuralucb")):
    return plan_cells([SMALL], ["code"], runs, rounds, patterns)


def here(given):
    """An engine in this very process."""
    for cell in given:
        yield play_cell(cell)


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.glob("records/**/*.json.gz"))}


def test_a_record_says_all_that_is_asked_of_it(tmp_path):
    cell = next(c for c in cells() if c.configuration.kind == "adaptive")
    assert reproduce([cell], tmp_path, here) == []
    path = tmp_path / "records" / "cosine" / "code" / "adaptive-B3-logq2" / "seed0.json.gz"
    data = json.loads(gzip.decompress(path.read_bytes()))
    assert data["asked"]["configuration"]["log_ratio"] == 2.0
    assert data["asked"]["seed"] == 0
    assert len(data["curve"]) == 25
    assert data["curve"][-1] == pytest.approx(data["regret"], abs=1e-3)
    assert data["updates"]["cause"] == "determinant"
    assert len(data["updates"]["rounds"]) == len(data["updates"]["log_det"]) == 2
    assert data["log_det"][-1][0] == 25
    assert data["seconds"].keys() == {"selecting", "training"}
    assert data["peak_memory"] > 2**20
    assert data["environment"].keys() >= {"machine", "python", "numpy", "rarely"}
    assert data["environment"]["form"] == native.form()


def test_the_regret_on_record_is_the_worlds():
    cell = next(c for c in cells() if c.configuration.kind == "fixed")
    record = play_cell(cell).record
    rounds = SMALL.source.rounds(0, 25)
    policy, total = policy_of(cell, world_of(cell)), 0.0
    for t in range(25):  # the plain loop of the README
        decision = policy.select(rounds.contexts[t])
        policy.observe(decision, rounds.rewards[t, decision.arm])
        total += rounds.means[t].max() - rounds.means[t, decision.arm]
        if policy.due and t < 24:
            policy.update()
    assert record.regret == pytest.approx(total)
    assert record.updates == [u.round for u in policy.updates]


def test_all_policies_of_a_run_see_the_same_world():
    seen = []

    class Watched:
        def __init__(self, policy):
            self.policy = policy

        def __getattr__(self, name):
            return getattr(self.policy, name)

        def select(self, contexts, **how):
            seen[-1].append(contexts)
            return self.policy.select(contexts, **how)

    for cell in cells(runs=1):
        seen.append([])
        world = world_of(cell)
        play(Watched(policy_of(cell, world)), world.rounds(cell.seed, cell.rounds))
    assert all(np.array_equal(stream, seen[0]) for stream in seen)


def test_a_second_run_plays_nothing_and_changes_nothing(tmp_path):
    reproduce(cells(), tmp_path, here)
    before, started = contents(tmp_path), []
    reproduce(cells(), tmp_path, here, started=started.append)
    assert started == [[]]
    assert contents(tmp_path) == before


def test_what_is_missing_is_played_and_nothing_else(tmp_path):
    reproduce(cells(runs=1), tmp_path, here)
    before, played = contents(tmp_path), []
    reproduce(cells(runs=2), tmp_path, here, finished=lambda result: played.append(result.id))
    assert len(played) == len(before) == len(contents(tmp_path)) / 2
    assert all(name.endswith("seed1") for name in played)
    assert before.items() <= contents(tmp_path).items()


def test_processes_give_the_records_of_one_process(tmp_path):
    reproduce(cells(runs=1), tmp_path / "one", here)
    reproduce(cells(runs=1), tmp_path / "many", LocalEngine(2))

    def told(folder):
        return [(r.id, r.regret, r.updates, r.data["identity"], r.data["code"]) for r in Store(folder).read()]

    assert told(tmp_path / "one") == told(tmp_path / "many")


def test_records_can_be_read_by_others(tmp_path):
    reproduce(cells(runs=1), tmp_path, here)
    path = next(iter(contents(tmp_path)))
    plain = tmp_path / "plain"
    plain.write_text("")
    assert path.stat().st_mode == plain.stat().st_mode


def test_what_a_killed_run_left_half_written_is_removed(tmp_path):
    reproduce(cells(runs=1), tmp_path, here)
    path = next(iter(contents(tmp_path)))
    half = path.with_name(path.name + ".part")
    half.write_bytes(b"half")
    reproduce(cells(runs=1), tmp_path, here)
    assert not half.exists()


def test_all_views_of_a_table_are_one_problem(tmp_path):
    rows = np.random.default_rng(0).normal(size=(20, 3))
    table = Problem("own", Table.of(rows, np.arange(20) % 2), hidden=8, steps=2, batches=(3,), log_ratios=(2.0,))
    every = plan_cells([table], PRESETS, 1, 20, ["linucb-r1-b1", "linucb-intercept-r1-b1", "fixed-*"])
    assert reproduce(every, tmp_path, here) == []
    assert Store(tmp_path).missing(every) == []
    assert len(Store(tmp_path).read()) == 3 * 3


def test_two_problems_of_one_name_are_never_mixed(tmp_path):
    reproduce(cells(runs=1, patterns=["fixed-*"]), tmp_path, here)
    other = plan_cells([replace(SMALL, hidden=10)], ["code"], 1, 25, ["adaptive-*"])
    played = []
    with pytest.raises(MixedRecords, match="two problems called cosine"):
        reproduce(other, tmp_path, here, finished=played.append)
    assert not played
    with pytest.raises(InvalidInput, match="two problems are called cosine"):
        plan_cells([SMALL, replace(SMALL, hidden=10)], ["code"], 1, 25)


def test_runs_of_other_lengths_are_refused_before_anything_is_played(tmp_path):
    reproduce(cells(runs=1, patterns=["fixed-*"]), tmp_path, here)
    played = []
    with pytest.raises(MixedRecords, match="T = 25 and 26"):
        reproduce(cells(runs=1, rounds=26, patterns=["adaptive-*"]), tmp_path, here, finished=played.append)
    assert not played


def test_replace_never_touches_records_of_other_cells(tmp_path, monkeypatch):
    reproduce(cells(runs=2), tmp_path, here)
    before = contents(tmp_path)
    monkeypatch.setattr(store_module, "code_fingerprint", lambda: "another")
    with pytest.raises(MixedRecords, match="records of other cells"):
        reproduce(cells(runs=1), tmp_path, here, replace=True)
    assert contents(tmp_path) == before


def test_lengths_are_not_mixed_in_a_report_either(tmp_path):
    reproduce(cells(runs=1, patterns=["fixed-*"]), tmp_path, here)
    record = Store(tmp_path).read()[0]
    asked = record.data["asked"] | {"seed": 1, "rounds": 26}
    other = record.data | {"asked": asked, "id": record.id.replace("seed0", "seed1"), "identity": identity(asked)}
    other |= {
        "curve": [*record.data["curve"], record.data["curve"][-1]],
        "log_det": [*record.data["log_det"], [26, 99.0]],
    }
    Store(tmp_path).write(records_module.Record(other))
    with pytest.raises(MixedRecords, match="T = 25 and 26"):
        Store(tmp_path).read()


def test_other_settings_are_refused_and_replaced_when_asked(tmp_path):
    reproduce(cells(runs=1), tmp_path, here)
    before = contents(tmp_path)
    with pytest.raises(MixedRecords, match="other settings"):
        reproduce(cells(runs=1, rounds=26), tmp_path, here)
    assert contents(tmp_path) == before
    reproduce(cells(runs=1, rounds=26), tmp_path, here, replace=True)
    assert {record.rounds for record in Store(tmp_path).read()} == {26}


def test_other_code_is_refused(tmp_path, monkeypatch):
    reproduce(cells(runs=1), tmp_path, here)
    monkeypatch.setattr(store_module, "code_fingerprint", lambda: "another")
    with pytest.raises(MixedRecords, match="other code"):
        reproduce(cells(runs=2), tmp_path, here)


def test_a_record_of_other_code_is_not_kept(tmp_path):
    def elsewhere(given):
        for result in here(given):
            yield replace(result, record=records_module.Record(result.record.data | {"code": "another"}))

    failures = reproduce(cells(runs=1), tmp_path, elsewhere)
    assert len(failures) == len(cells(runs=1))
    assert "another version of the code" in failures[0].error
    assert contents(tmp_path) == {}


def test_a_report_never_mixes_codes(tmp_path, monkeypatch):
    reproduce(cells(runs=1), tmp_path, here)
    store, record = Store(tmp_path), Store(tmp_path).read()[0]
    store.write(records_module.Record(record.data | {"code": "another"}))
    with pytest.raises(MixedRecords, match="2 versions of the code"):
        store.read()


def test_a_broken_record_is_named_and_its_cell_alone_is_played_again(tmp_path):
    reproduce(cells(runs=1), tmp_path, here)
    before = contents(tmp_path)
    path = next(iter(before))
    path.write_bytes(before[path][:-20])
    with pytest.raises(BrokenRecord, match=path.name):
        Store(tmp_path).read()
    named, played = [], []
    reproduce(cells(runs=1), tmp_path, here, refused=named.extend, finished=lambda result: played.append(result.id))
    assert [file.path for file in named] == [path]
    assert [Store(tmp_path).path(name) for name in played] == [path]
    assert contents(tmp_path).keys() == before.keys()
    assert Store(tmp_path).examine().refused == []
    assert path.with_name(path.name + ".refused").read_bytes() == before[path][:-20]


def test_a_folder_where_a_record_should_be_costs_its_cell_alone(tmp_path):
    reproduce(cells(runs=1), tmp_path, here)
    for _ in range(2):  # the second time the name for what is put aside is taken
        path = next(iter(contents(tmp_path)))
        path.unlink()
        (path / "inside").mkdir(parents=True)
        assert reproduce(cells(runs=1), tmp_path, here) == []
        assert path.is_file()
    assert len(Store(tmp_path).read()) == len(cells(runs=1))


def test_a_broken_record_of_another_cell_is_named_and_not_touched(tmp_path):
    reproduce(cells(runs=2), tmp_path, here)
    path = Store(tmp_path).path(next(cell.id for cell in cells(runs=2) if cell.seed == 1))
    path.write_bytes(b"")
    named, started = [], []
    reproduce(cells(runs=1), tmp_path, here, refused=named.extend, started=started.append)
    assert ([file.path for file in named], started) == ([path], [[]])
    assert path.read_bytes() == b""


def test_a_refused_mixture_has_put_nothing_aside(tmp_path, monkeypatch):
    reproduce(cells(runs=1), tmp_path, here)
    path = next(iter(contents(tmp_path)))
    path.write_bytes(b"")
    before = contents(tmp_path)
    monkeypatch.setattr(store_module, "code_fingerprint", lambda: "another")
    with pytest.raises(MixedRecords, match="other code"):
        reproduce(cells(runs=1), tmp_path, here)
    assert contents(tmp_path) == before


def test_numbers_that_no_report_could_use_fail_their_cell(tmp_path):
    cell = Cell(Problem("own", Plain(float("nan"))), "raw", Configuration("linucb", ridge=1.0, beta=1.0), 0, 9)
    (failure,) = reproduce([cell], tmp_path, here)
    assert "regret" in failure.error or "reward" in failure.error
    assert contents(tmp_path) == {}


def test_half_a_record_is_never_seen(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reproduce(cells(runs=1), tmp_path, here)
    assert contents(tmp_path) == {}
    assert Store(tmp_path).read() == []


@pytest.mark.skipif(folder_lock.fcntl is None, reason="Windows has no locks that end with their process")
def test_a_folder_has_one_writer(tmp_path):
    with only_here(tmp_path), pytest.raises(FolderBusy, match="another run"):
        reproduce(cells(runs=1), tmp_path, here)


@dataclass
class Plain(World):
    """An ordinary dataclass, which cannot be hashed."""

    slope: float = 1.0
    arms: int = 2
    dim: int = 1

    def secret(self, generator):
        return None

    def round(self, t, secret, generator):
        contexts = generator.random((2, 1))
        return contexts, self.slope * contexts[:, 0], 0.0


def test_a_world_of_ones_own_is_played_and_told_apart_by_its_knobs(tmp_path):
    def asked(slope):
        return Cell(Problem("own", Plain(slope)), "raw", Configuration("linucb", ridge=1.0, beta=1.0), 0, 9)

    assert reproduce([asked(1.0)], tmp_path, here) == []
    with pytest.raises(MixedRecords):
        reproduce([asked(2.0)], tmp_path, here)


@dataclass(frozen=True)
class Threads(World):
    """Tells how many BLAS threads the process that plays it may use."""

    arms: int = 2
    dim: int = 1

    def secret(self, generator):
        raise ValueError(f"threads: {os.environ.get('OPENBLAS_NUM_THREADS')}")

    def round(self, t, secret, generator):
        return None


def test_every_process_has_one_blas_thread(tmp_path, monkeypatch):
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    cell = Cell(Problem("threads", Threads()), "raw", Configuration("linucb", ridge=1.0, beta=1.0), 0, 5)
    (failure,) = reproduce([cell], tmp_path, LocalEngine(1))
    assert failure.error == "ValueError: threads: 1"


class Broken(World):
    arms, dim = 2, 1

    def secret(self, generator):
        return None

    def round(self, t, secret, generator):
        raise ValueError("the world ends")


def test_a_cell_that_fails_is_told_and_the_others_go_on(tmp_path):
    bad = Cell(Problem("bad", Broken()), "raw", Configuration("linucb", ridge=1.0, beta=1.0), 0, 5)
    failures = reproduce([bad, *cells(runs=1)], tmp_path, here)
    assert [(f.id, f.error) for f in failures] == [(bad.id, "ValueError: the world ends")]
    assert len(contents(tmp_path)) == len(cells(runs=1))


@dataclass(frozen=True)
class Deadly(World):
    """Kills the process that asks for its secret, as the system does when memory runs out."""

    arms: int = 2
    dim: int = 1

    def secret(self, generator):
        os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))  # Windows ends it at once by either

    def round(self, t, secret, generator):
        return None


def test_a_killed_process_is_told_and_the_others_go_on(tmp_path):
    # By value: the processes that play cells cannot import this file.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    bad = Cell(Problem("bad", Deadly()), "raw", Configuration("linucb", ridge=1.0, beta=1.0), 0, 5)
    good = cells(runs=1)
    failures = reproduce([*good[:3], bad, *good[3:]], tmp_path, LocalEngine(2))
    assert [f.id for f in failures] == [bad.id]
    assert "killed" in failures[0].error
    assert len(contents(tmp_path)) == len(good)


COMMAND = [sys.executable, "-m", "rarely", "reproduce", "cosine", "--preset", "code", "--rounds", "60", "--jobs", "2"]
COMMAND += ["--runs", "4", "--only", "linucb-r1-*", "--only", "fixed-B40"]


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
def test_kill_9_loses_nothing_and_leaves_nobody_behind(tmp_path):
    process = subprocess.Popen([*COMMAND, "--out", tmp_path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(contents(tmp_path)) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    workers = children(process.pid)
    process.kill()
    process.wait()
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
    before = contents(tmp_path)
    assert 3 <= len(before) < 20
    again = subprocess.run([*COMMAND, "--out", tmp_path], capture_output=True, text=True, check=True)
    assert f"{20 - len(before)} cells to play" in again.stdout
    assert f"{len(before)} on record already" in again.stdout
    assert before.items() <= contents(tmp_path).items()
    assert len(contents(tmp_path)) == 20
    assert (tmp_path / "report.html").exists()


@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C is a signal on POSIX")
def test_ctrl_c_leaves_a_folder_that_can_be_resumed(tmp_path):
    process = subprocess.Popen(
        [*COMMAND, "--out", tmp_path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # In a script's background job the signal is ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    deadline = time.monotonic() + 120
    while len(contents(tmp_path)) < 1 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    try:
        _, complaint = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "run the same command to resume" in complaint
    assert "Traceback" not in complaint
    assert Store(tmp_path).read()
    assert not list(tmp_path.glob("records/**/*.part"))


def test_results_name_the_cell_and_not_its_data():
    """A table of megabytes must not travel back with every record."""
    assert set(Result.__dataclass_fields__) == {"id", "record", "error"}
