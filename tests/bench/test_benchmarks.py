"""Every benchmark at a tiny size: it runs, and its figures have names, units and directions. No time is judged."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import suite
from bench import BENCHMARKS, chosen
from rarely import LinUCB
from rarely.worlds import Cosine
from rarely_lab.engine.play import play_policy
from suite import deciding, long_runs, machine, runs, training
from suite.figures import Benchmark, BenchmarkFailed, NotMeasured
from suite.machine import alone
from suite.session import begin, measure

SMALL = {"hidden": 8, "steps": 3}
STREAM = {"batches": 5, "dim": 3, "arms": 2, **SMALL}
TINY = {
    "training": partial(training.training, name="training", samples=40, dim=3, turns=1, **SMALL),
    "disjoint-training": partial(training.blocks, samples=40, arms=3, width=2, turns=1, **SMALL),
    "decision": partial(deciding.decision, rounds=30, hidden=8, count=20),
    "blocks-64": partial(deciding.block, rounds=30, hidden=8, together=4, turns=1),
    "large-k": partial(deciding.large_k, sizes=(2, 3, 20), dim=3, hidden=4, count=4),
    "thompson-1000": partial(deciding.thompson, arms=20, dim=3, rounds=10, count=10),
    "update-linucb": partial(deciding.update_linucb, rounds=20, repeats=1),
    "fixed-200": partial(runs.fixed, rounds=25, batches=5, hidden=8),
    "sequential": partial(runs.sequential, rounds=12, hidden=8),
    "one-file": partial(runs.one_file, rounds=30, hidden=8),
    "blocks": partial(runs.blocks, rounds=40, hidden=8),
    "import": partial(runs.imports, repeats=1, package="decimal", yardstick="json"),
    "runner": partial(runs.runner, rounds=20, runs=1, patterns=("fixed-B40",)),
    "ntk": partial(runs.ntk, count=60, dim=3, turns=1),
    "million-parameters": partial(long_runs.million_parameters, rounds=20, batches=4, **SMALL),
    "long-run": partial(long_runs.long_run, rounds=400, batches=5),
    "million-rounds": partial(long_runs.million_rounds, rounds=600, settings=STREAM),
}


@pytest.fixture
def fast_yardsticks(monkeypatch):
    """Products and streams without large matrices and processes."""
    for module in (training, deciding, runs, long_runs):
        monkeypatch.setattr(module, "product_rate", lambda dtype: 1e9)
    monkeypatch.setattr(long_runs, "alone", lambda work, tell, **arguments: work(tell, **arguments))


@pytest.mark.parametrize("name", TINY)
def test_every_benchmark_gives_figures_of_its_name(name, fast_yardsticks):
    told = []
    figures = TINY[name](told.append)
    assert figures
    assert all(figure.name.startswith(name) for figure in figures)
    assert all(figure.value > 0 and figure.seconds > 0 and figure.says.endswith(".") for figure in figures)
    assert all(isinstance(line, str) for line in told)


def test_a_reference_that_is_no_folder_of_sources_is_refused(tmp_path):
    command = [sys.executable, Path(suite.__file__).parent.parent / "evidence.py", "--reference", tmp_path]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (said.returncode, "--reference must be a folder with src/rarely" in said.stderr) == (2, True)


def test_the_tiny_ones_are_all_there_are():
    assert {"training" if name.startswith("training-") else name for name in BENCHMARKS} == set(TINY)
    assert all(name == benchmark.name for name, benchmark in BENCHMARKS.items())


def test_a_training_that_needs_a_second_attempt_is_no_measurement(fast_yardsticks, monkeypatch):
    plan = training.TrainingPlan
    monkeypatch.setattr(
        training, "TrainingPlan", lambda ridge, steps, step=None, **k: plan(ridge, steps, step and 1e6 * step, **k)
    )
    with pytest.raises(BenchmarkFailed, match="one attempt was to do"):
        TINY["training"](print)


def test_the_bare_linucb_chooses_the_librarys_arms():
    world = Cosine().rounds(seed=3, count=120)
    policy = LinUCB(10, seed=0)
    play_policy(policy, world)
    assert deciding.bare_linucb(world) == policy.history.arms.tolist()


def test_without_the_example_its_figure_is_skipped_aloud(tmp_path):
    with pytest.raises(NotMeasured, match="from a checkout"):
        runs.one_file(print, path=tmp_path / "one_file.py")


def test_a_run_in_parts_is_the_run(fast_yardsticks):
    """The telling every tenth changes nothing: the same updates as in one piece."""
    policy = runs.BatchNeuralUCB(10, runs.FixedGrid(25, 5), seed=0, **runs.PRINTED | {"hidden": 8, "training": 3})
    play_policy(policy, Cosine().rounds(seed=0, count=25))
    other = runs.BatchNeuralUCB(10, runs.FixedGrid(25, 5), seed=0, **runs.PRINTED | {"hidden": 8, "training": 3})
    runs._over_training("fixed-200", "", other, 25, lambda text: None, runs._play_singly)
    assert [u.describe() for u in other.updates] == [u.describe() for u in policy.updates]
    np.testing.assert_array_equal(other.history.arms, policy.history.arms)


def test_a_stream_has_all_its_rounds_and_is_bounded_in_memory():
    parts = list(long_runs.chunks(2 * long_runs.CHUNK + 5, arms=2, dim=3))
    assert [len(contexts) for contexts, _ in parts] == [long_runs.CHUNK, long_runs.CHUNK, 5]
    again = list(long_runs.chunks(long_runs.CHUNK, arms=2, dim=3))
    np.testing.assert_array_equal(parts[0][0], again[0][0])
    assert not np.array_equal(parts[0][0][:5], parts[1][0][:5])


def test_streams_keep_their_schedule(fast_yardsticks):
    (fixed,) = long_runs.stream(print, rounds=500, times=[1], log_ratio=None, **STREAM)
    assert fixed["versions"] == 5
    assert fixed["parameters"] == 8 * 3 + 8
    (rule,) = long_runs.stream(print, rounds=500, times=[1], log_ratio=2.0, **STREAM | {"batches": 50})
    assert 5 < rule["versions"] <= 50


def test_log_q_is_chosen_from_a_short_run(fast_yardsticks):
    settings = {"dim": 3, "arms": 2, **SMALL}
    log_ratio = long_runs.fitting_log_ratio(6000, 20, probe=600, **settings)
    (out,) = long_runs.stream(lambda text: None, rounds=6000, times=[1], batches=60, log_ratio=log_ratio, **settings)
    assert 15 <= out["versions"] <= 25


def test_a_process_of_its_own_tells_and_answers():
    told = []
    out = alone(long_runs.wide, told.append, rounds=12, hidden=8, depth=3, batches=3, steps=2)
    assert out["versions"] == 3
    assert out["parameters"] == 8 * 20 + 64 + 8
    assert out["peak"] > 0
    assert told == ["p = 232"]


def test_a_process_that_fails_says_why():
    with pytest.raises(BenchmarkFailed, match=r"long_runs:wide ended with code 1: .*hidden must be even"):
        alone(long_runs.wide, print, rounds=12, hidden=7, depth=3, batches=3, steps=2)


def test_the_answers_of_a_process_are_its_lines(capsys):
    machine.answer("suite.long_runs:wide", '{"rounds": 8, "hidden": 4, "depth": 2, "batches": 2, "steps": 1}')
    answer = machine._read(capsys.readouterr().out.splitlines()[-1])
    assert answer["result"]["versions"] == 2
    assert machine._read("a warning") is None
    assert machine._read("3") is None
    assert machine._read('{"other": 1}') is None


def test_yardstick_and_work_take_turns_and_the_best_of_each_counts(monkeypatch):
    order, times = [], iter([5.0, 1.0, 4.0, 2.0])

    def rate():
        order.append("rate")
        return float(len(order))

    monkeypatch.setattr(machine, "best_of", lambda repeats, work: (work(), next(times))[1])
    found = machine.in_turns(rate, lambda: order.append("a"), lambda: order.append("b"), turns=2)
    assert order == ["rate", "a", "b", "rate", "a", "b"]
    assert found == (4.0, [4.0, 1.0])


def test_yardsticks_are_positive():
    assert machine.product_rate(np.float32, size=8, repeats=1) > 0
    assert machine.reader(3000)() == 3000
    assert "NumPy" in machine.describe()


def test_names_and_patterns_choose():
    names = ["fixed-200", "one-*", "million-*"]
    wanted, left_out = chosen(BENCHMARKS, names, quick=False, everything=False)
    assert [b.name for b in wanted] == ["fixed-200", "one-file", "million-parameters"]
    assert list(left_out) == ["million-rounds"]
    assert [b.name for b in chosen(BENCHMARKS, ["million-rounds"], quick=False, everything=False)[0]] == [
        "million-rounds"
    ]
    assert "million-rounds" in [b.name for b in chosen(BENCHMARKS, [], quick=False, everything=True)[0]]
    wanted, left_out = chosen(BENCHMARKS, names, quick=True, everything=True)
    assert [b.name for b in wanted] == ["fixed-200"]
    assert "--quick" in left_out["one-file"]


def test_one_failure_stops_no_other():
    def fails(tell):
        raise BenchmarkFailed("it rained")

    def absent(tell):
        raise NotMeasured("no file")

    def starved(tell):
        raise MemoryError

    makers = {"a": fails, "b": absent, "c": starved, "import": TINY["import"]}
    session, ended = begin(size=8, numbers=100), []
    measure(
        session,
        [Benchmark(name, "Something.", maker) for name, maker in makers.items()],
        started=lambda benchmark: lambda text: None,
        finished=lambda benchmark, figures: ended.append((benchmark.name, len(figures))),
    )
    assert ended == [("a", 0), ("b", 0), ("c", 0), ("import", 1)]
    assert session.failed == {"a": "it rained", "c": "MemoryError"}
    assert session.skipped == {"b": "no file"}
    assert [figure.name for figure in session.figures] == ["import"]
