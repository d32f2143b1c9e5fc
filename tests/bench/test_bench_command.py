"""`rarely bench` from the command line."""

import io
import json
import re
import threading
from functools import partial

import pytest
from rich.console import Console
from typer.testing import CliRunner

from rarely.bench import catalogue, deciding, linear
from rarely.bench.catalogue import BENCHMARKS
from rarely.bench.measure import Benchmark, BenchmarkFailed, Figure
from rarely.bench.session import begin
from rarely.cli import app
from rarely.cli import bench as command


def call(*arguments):
    result = CliRunner().invoke(app, ["bench", *map(str, arguments)], env={"COLUMNS": "300"})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    return result


def told(result):
    return " ".join(re.sub(r"\x1b\[[0-9;]*m", "", result.output).split())


@pytest.fixture
def speed(monkeypatch):
    """A benchmark whose value is the test's to set, beside two real ones that are tiny."""
    value = {"now": 10.0}

    def measure(tell):
        tell("half [way]")
        if value["now"] is None:
            raise BenchmarkFailed("it rained")
        return [Figure("speed", "How fast it is.", value["now"], "% of [x]", "higher", 0.1, 8.0)]

    benchmarks = [
        Benchmark("speed", "How fast.", measure),
        Benchmark("decision", "One.", partial(deciding.decision, rounds=30, hidden=8, count=20)),
        Benchmark("update-linucb", "Bare.", partial(linear.update_linucb, rounds=20, repeats=1), "full"),
        Benchmark("million", "Long.", measure, "named"),
    ]
    monkeypatch.setattr(catalogue, "BENCHMARKS", {b.name: b for b in benchmarks})
    monkeypatch.setattr(command, "begin", partial(begin, size=8, numbers=100))
    return value


def test_the_list_has_every_benchmark_and_measures_nothing():
    result = call("--list")
    assert result.exit_code == 0
    assert [line.split(" (")[0] for line in result.output.splitlines()] == list(BENCHMARKS)
    assert (
        told(call("--list", "dec*")) == told(result)[told(result).index("decision") : told(result).index(" blocks-64")]
    )


def test_a_name_that_is_none_is_refused_with_the_list(speed):
    result = call("sped")
    assert result.exit_code == 1
    assert "no benchmark is called 'sped'; there are speed, decision, update-linucb, million." in told(result)


def test_quick_leaves_out_what_is_long_and_says_so(speed, tmp_path):
    result = call("--quick", "--json", tmp_path / "out.json")
    assert result.exit_code == 0
    assert "1 of 2: speed" in told(result)
    assert "half [way]" not in told(result)  # which a terminal shows, and a pipe every ten seconds
    assert "| speed | 10 % of [x] | ≥ 8 | yes |" in told(result)
    assert "update-linucb: skipped: it takes a minute or more" in told(result)
    document = json.loads((tmp_path / "out.json").read_text())
    assert [figure["name"] for figure in document["figures"]] == ["speed", "decision", "decision-all-cores"]
    assert set(document["skipped"]) == {"update-linucb", "million"}
    assert {"machine", "python", "numpy", "rarely", "passes", "code", "threads", "date"} <= set(document["made"])
    assert set(document["rates"]) == {"float32", "float64", "read"}
    assert "changes" not in document


def test_a_terminal_gets_one_changing_line_and_no_thread_that_would_be_measured(speed, monkeypatch):
    screen, threads = io.StringIO(), threading.active_count()
    monkeypatch.setattr(command, "console", Console(file=screen, force_terminal=True, width=100, highlight=False))
    counted = Benchmark("decision", "One.", lambda tell: tell(f"{threading.active_count() - threads} more") or [])
    monkeypatch.setitem(catalogue.BENCHMARKS, "decision", counted)
    assert call("speed", "decision").exit_code == 0
    assert "1 of 2: speed: half [way]" in screen.getvalue()
    assert "2 of 2: decision: 0 more" in screen.getvalue()


def test_the_longest_runs_by_name_or_with_all(speed):
    assert "million: skipped: it is very long" in told(call())
    assert "skipped" not in told(call("million"))
    assert "4 of 4: million" in told(call("--all"))


def test_a_regression_has_exit_code_1(speed, tmp_path):
    kept = tmp_path / "base.json"
    assert call("speed", "--save", kept).exit_code == 0
    same = call("speed", "--baseline", kept)
    assert same.exit_code == 0
    assert "+0 %, same" in told(same)
    assert "nothing is worse than the baseline by more than 25 %" in told(same)
    speed["now"] = 7.0
    worse = call("speed", "--baseline", kept, "--json", tmp_path / "now.json")
    assert worse.exit_code == 1
    assert "-30 %, worse" in told(worse)
    assert "worse than the baseline by more than 25 %: speed" in told(worse)
    assert json.loads((tmp_path / "now.json").read_text())["changes"][0]["verdict"] == "worse"
    assert call("speed", "--baseline", kept, "--tolerance", "50").exit_code == 0
    speed["now"] = 20.0
    assert "+100 %, better" in told(call("speed", "--baseline", kept))


def test_a_target_not_reached_is_shown_and_is_no_failure(speed):
    speed["now"] = 7.0
    result = call("speed")
    assert result.exit_code == 0
    assert "| ≥ 8 | no |" in told(result)


def test_a_baseline_may_replace_itself(speed, tmp_path):
    kept = tmp_path / "base.json"
    call("speed", "--save", kept)
    speed["now"] = 11.0
    assert call("speed", "--baseline", kept, "--save", kept).exit_code == 0
    assert json.loads(kept.read_text())["figures"][0]["value"] == 11.0


def test_another_machine_and_missing_figures_are_named(speed, tmp_path):
    kept = tmp_path / "base.json"
    call("speed", "decision", "--save", kept)
    document = json.loads(kept.read_text())
    document["made"] |= {"machine": "An abacus, 1 core", "numpy": "0.9"}
    kept.write_text(json.dumps(document))
    result = told(call("speed", "--baseline", kept))
    assert "the baseline is of another machine: An abacus, 1 core there" in result
    assert "the baseline is of another NumPy: 0.9 there" in result
    assert "in the baseline and not measured now: decision" in result


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["speed", "--baseline", "nowhere.json"], "nowhere.json"),
        (["speed", "--baseline", "broken.json"], "broken.json is no baseline that can be read"),
        (["speed", "--json", "nowhere/out.json"], "nowhere is no folder"),
        (["speed", "--save", "nowhere/out.json"], "nowhere is no folder"),
    ],
)
def test_files_are_looked_at_before_anything_is_measured(speed, arguments, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.json").write_text("{")
    result = call(*arguments)
    assert result.exit_code == 1
    assert says in told(result)
    assert "1 of 1" not in told(result)


def test_a_benchmark_that_fails_is_told_and_the_others_go_on(speed, tmp_path):
    speed["now"] = None
    result = call("speed", "decision", "--json", tmp_path / "out.json")
    assert result.exit_code == 1
    assert "failed: speed: it rained" in told(result)
    assert "decision:" in told(result)
    assert json.loads((tmp_path / "out.json").read_text())["failed"] == {"speed": "it rained"}


def test_ctrl_c_shows_what_there_is_and_writes_nothing(speed, tmp_path, monkeypatch):
    def interrupted(tell):
        raise KeyboardInterrupt

    monkeypatch.setitem(catalogue.BENCHMARKS, "decision", Benchmark("decision", "One.", interrupted))
    result = call("--save", tmp_path / "out.json")
    assert result.exit_code == 130
    assert "| speed | 10 % of [x]" in told(result)
    assert "stopped; no file is written" in told(result)
    assert not list(tmp_path.iterdir())
