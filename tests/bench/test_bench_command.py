"""`python benchmarks/bench.py`: what is measured, compared, written and answered with which exit code."""

import json
from functools import partial

import pytest

import bench
from suite import deciding, session
from suite.figures import Benchmark, BenchmarkFailed, Figure


@pytest.fixture
def speed(monkeypatch):
    """A benchmark whose value is the test's to set, beside a real one that is tiny."""
    value = {"now": 10.0}

    def measure(tell):
        tell("half way")
        if value["now"] is None:
            raise BenchmarkFailed("it rained")
        return [Figure("speed", "How fast it is.", value["now"], "% of x", "higher", 0.1, 8.0)]

    benchmarks = [
        Benchmark("speed", "How fast.", measure),
        Benchmark("linucb", "Bare.", partial(deciding.update_linucb, rounds=5, repeats=1), "full"),
        Benchmark("million", "Long.", measure, "named"),
    ]
    monkeypatch.setattr(bench, "BENCHMARKS", {b.name: b for b in benchmarks})
    monkeypatch.setattr(session, "begin", partial(session.begin, size=8, numbers=100))
    return value


@pytest.fixture
def call(capsys):
    def run(*arguments):
        code = bench.main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return code, " ".join((said.out + said.err).split())

    return run


def test_the_list_has_every_benchmark_and_measures_nothing(capsys):
    assert bench.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" (")[0] for line in lines] == list(bench.BENCHMARKS)
    assert bench.main(["--list", "dec*"]) == 0
    assert [line.split(" (")[0] for line in capsys.readouterr().out.splitlines()] == ["decision"]


def test_an_unknown_name_is_refused_with_the_list(speed, call):
    assert call("sped") == (1, "error: unknown benchmark 'sped'; known are speed, linucb, million.")


def test_quick_leaves_out_what_is_long_and_says_so(speed, call, tmp_path):
    code, said = call("--quick", "--json", tmp_path / "out.json")
    assert code == 0
    assert "1 of 1: speed" in said
    assert "half way" not in said  # which a terminal shows
    assert "| speed | 10 % of x | ≥ 8 | yes |" in said
    assert "linucb: skipped: it takes a minute or more" in said
    document = json.loads((tmp_path / "out.json").read_text())
    assert [figure["name"] for figure in document["figures"]] == ["speed"]
    assert set(document["skipped"]) == {"linucb", "million"}
    assert {"machine", "python", "numpy", "rarely", "passes", "code", "threads", "date"} <= set(document["made"])
    assert set(document["rates"]) == {"float32", "float64", "read"}
    assert "changes" not in document


def test_the_longest_runs_by_name_or_with_all(speed, call):
    assert "million: skipped: it is very long" in call()[1]
    assert "skipped" not in call("million")[1]
    assert "3 of 3: million" in call("--all")[1]


def test_a_regression_has_exit_code_1(speed, call, tmp_path):
    kept = tmp_path / "base.json"
    assert call("speed", "--save", kept)[0] == 0
    code, said = call("speed", "--baseline", kept)
    assert code == 0
    assert "+0 %, same" in said
    assert "worse than the baseline by more than 25 %: nothing" in said
    speed["now"] = 7.0
    code, said = call("speed", "--baseline", kept, "--json", tmp_path / "now.json")
    assert code == 1
    assert "-30 %, worse" in said
    assert "| ≥ 8 | no |" in said
    assert "worse than the baseline by more than 25 %: speed" in said
    assert json.loads((tmp_path / "now.json").read_text())["changes"][0]["verdict"] == "worse"
    assert call("speed", "--baseline", kept, "--tolerance", "50")[0] == 0
    speed["now"] = 20.0
    assert "+100 %, better" in call("speed", "--baseline", kept, "--save", kept)[1]
    assert json.loads(kept.read_text())["figures"][0]["value"] == 20.0


def test_another_machine_and_missing_figures_are_named(speed, call, tmp_path):
    kept = tmp_path / "base.json"
    call("speed", "linucb", "--save", kept)
    document = json.loads(kept.read_text())
    document["made"] |= {"machine": "An abacus, 1 core", "numpy": "0.9"}
    kept.write_text(json.dumps(document))
    said = call("speed", "--baseline", kept)[1]
    assert "the baseline is of another machine: An abacus, 1 core there" in said
    assert "the baseline is of another NumPy: 0.9 there" in said
    assert "in the baseline and not measured now: update-linucb" in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["speed", "--baseline", "nowhere.json"], "nowhere.json"),
        (["speed", "--baseline", "broken.json"], "broken.json is no baseline that can be read"),
        (["speed", "--json", "nowhere/out.json"], "nowhere is not a folder"),
        (["speed", "--save", "nowhere/out.json"], "nowhere is not a folder"),
    ],
)
def test_files_are_looked_at_before_anything_is_measured(speed, call, arguments, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.json").write_text("{")
    code, said = call(*arguments)
    assert code == 1
    assert says in said
    assert "1 of 1" not in said


def test_a_benchmark_that_fails_is_named_and_the_others_run(speed, call, tmp_path):
    speed["now"] = None
    code, said = call("speed", "linucb", "--json", tmp_path / "out.json")
    assert code == 1
    assert "speed: it rained" in said
    assert "update-linucb:" in said
    assert json.loads((tmp_path / "out.json").read_text())["failed"] == {"speed": "it rained"}


def test_ctrl_c_shows_what_was_measured_and_writes_nothing(speed, call, tmp_path, monkeypatch):
    def interrupted(tell):
        raise KeyboardInterrupt

    monkeypatch.setitem(bench.BENCHMARKS, "linucb", Benchmark("linucb", "One.", interrupted))
    code, said = call("--save", tmp_path / "out.json")
    assert code == 130
    assert "| speed | 10 % of x" in said
    assert "interrupted; no file is written" in said
    assert not list(tmp_path.iterdir())


def test_the_published_baseline_can_be_read():
    assert session.read(bench.Path(__file__).parents[2] / "docs" / "baseline.json").figures
