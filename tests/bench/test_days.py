"""The benchmark of days, in a short form."""

import importlib.util
import json
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "days.py"
DAILY = 150


@pytest.fixture
def days():
    spec = importlib.util.spec_from_file_location("days_benchmark", BENCHMARK)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore::rarely.ApproximationWarning")
@pytest.mark.parametrize("name", ["linucb", "default"])
def test_two_days_are_played_and_put_on_record(days, tmp_path, name):
    for number in range(2):
        days.one_day(tmp_path, name, number, days=2, daily=DAILY, seed=0)
    found = days.records(tmp_path)
    assert [record["day"] for record in found] == [0, 1]
    for record in found:
        assert 0 < record["p50"] <= record["p99"]
        assert record["file"] > 0
        assert record["clicks"] > 0.8
    # A tenth of the rewards is never told, and those of the evening come on the next day.
    assert 0.6 * DAILY < found[0]["samples"] < 0.9 * DAILY
    assert 1.6 * DAILY < found[1]["samples"] < 1.9 * DAILY
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "day-001.json",
        "day-001.rarely",
        "days.jsonl",
        "pending-001.json",
    ]


def test_a_run_goes_on_after_the_last_day_on_record(days, tmp_path, monkeypatch, capsys):
    played = []

    def run(command, check):
        played.append(command[-6:])
        record = {"day": int(command[-4]), "update": 1.0, "load": 0.0, "clicks": 1.1}
        record |= dict.fromkeys(("p50", "p99", "file", "resident"), 1.0)
        with (Path(command[-6]) / "days.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")

    monkeypatch.setattr(days.subprocess, "run", run)
    for count in (2, 5):
        days.main(["--days", str(count), "--policies", "linucb", "--out", str(tmp_path)])
    assert [int(command[2]) for command in played] == [0, 1, 2, 3, 4]
    assert "| linucb-5000 seed0 | 5 | 1.00 | 1.00 | 1.0, 1.0 | 1.0 | 1 | 1.100 | 1.100 |" in capsys.readouterr().out
    days.main(["--table", "--out", str(tmp_path)])
    assert len(played) == 5


def test_without_vowpal_wabbit_a_sentence_says_so(days, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(days.importlib.util, "find_spec", lambda name: None)
    days.main(["--policies", "vw", "--out", str(tmp_path)])
    assert "Vowpal Wabbit is not installed" in capsys.readouterr().out
