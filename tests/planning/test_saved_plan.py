"""Plans that are read back: as they were written, or refused in a sentence."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from mutations import mutations
from rarely import FixedGrid, InvalidInput
from rarely.cli import app
from rarely.planning import BrokenPlan, Log, NothingClose, plan, read_plan
from rarely.planning.report import write_plan
from rarely.planning.saved_plan import with_digest
from rarely.simulation.sealed_json import digest_of, sealed
from rarely.worlds import Cosine

MUSEUM = Path(__file__).parents[1] / "museum" / "0.1.0" / "laboratory" / "plan.json"


def some_log(rounds=80, rewards=True):
    generator = np.random.default_rng(0)
    rows, arms = generator.normal(size=(rounds, 2)), generator.integers(2, size=rounds)
    noisy = rows[:, 0] * (2 * arms - 1) + 2 * generator.normal(size=rounds)
    return Log.of(rows, 2, arms, noisy if rewards else None)


def plain():
    """A plan as version 0.1 wrote it, the same on every machine."""
    return json.loads(MUSEUM.read_text(encoding="utf-8"))


@pytest.fixture
def path(tmp_path):
    """The same, as it is written now."""
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(with_digest(plain())))
    return path


def shown(path):
    result = CliRunner().invoke(app, ["plan", "--show", str(path)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    assert "Traceback" not in result.output
    return result


def schedule_of(plan, *which):
    try:
        return plan.schedule(*which)
    except NothingClose:
        return None


def test_a_plan_is_read_back_as_it_was_written(tmp_path):
    made = plan(some_log(), horizon=120, max_rounds=60, policy="linear", batches=[2, 8, 50], runs=3)
    path = write_plan(made, tmp_path)[0]
    saved = read_plan(path)
    assert saved.has_digest
    assert saved.data["digest"] == digest_of(saved.data)
    assert (saved.horizon, saved.settings, saved.text()) == (made.horizon, made.settings, made.text())
    for kind in ("fixed", "geometric", "adaptive"):
        for tolerance in (0.05, 0.10):
            assert schedule_of(saved, tolerance, kind) == schedule_of(made, tolerance, kind)
    result = shown(path)
    assert result.exit_code == 0
    assert made.headline() in result.output.replace("\n", " ")
    assert "digest" not in result.output


@pytest.mark.parametrize(
    "settings",
    [
        {"source": some_log(rewards=False), "horizon": 50, "policy": "linear", "runs": 1, "batches": [2]},
        {"source": Cosine(), "horizon": 30, "policy": "linear", "runs": 2, "batches": [2, 20]},
        {"source": some_log(), "horizon": 10**6, "policy": "linear", "runs": 1, "batches": [3], "max_rounds": 20},
        {"source": some_log(), "horizon": 40, "settings": {"hidden": 4, "training": 2}, "runs": 1, "batches": [2]},
    ],
    ids=["imagined", "world", "far", "neural"],
)
def test_plans_of_every_kind_pass_their_own_checks(settings, tmp_path):
    made = plan(settings.pop("source"), **settings)
    assert read_plan(write_plan(made, tmp_path)[0]).text() == made.text()


def test_a_plan_of_version_0_1_is_read_and_marked():
    saved = read_plan(MUSEUM)
    assert not saved.has_digest
    assert saved.horizon == 40
    assert saved.schedule(0.05, "geometric").batches == saved.schedule().batches == 2
    assert saved.schedule(0.10, "fixed") == FixedGrid(40, 4)
    result = shown(MUSEUM)
    assert result.exit_code == 0
    assert "without digest: version 0.1 wrote this plan" in result.output


@pytest.mark.parametrize("edit", [{"horizon": 41}, {"advice": "2 batches are enough"}, {"digest": None}, {"seed": 1}])
def test_a_changed_plan_is_refused(path, edit):
    data = json.loads(path.read_text())
    path.write_text(json.dumps(data | edit))
    with pytest.raises(BrokenPlan, match=r"plan.json is refused: its content differs from its digest.*Plan again"):
        read_plan(path)
    result = shown(path)
    assert result.exit_code == 1
    assert "its content differs from its digest" in " ".join(result.output.split())


def test_a_digest_cannot_be_left_out_of_a_plan_that_has_a_format(path):
    data = json.loads(path.read_text())
    del data["digest"]
    path.write_text(json.dumps(data))
    with pytest.raises(BrokenPlan, match="it has no digest"):
        read_plan(path)


IMPOSSIBLE = [
    (("horizon",), 0),
    (("horizon",), 10**30),
    (("arms",), "2"),
    (("blocks",), 1),
    (("origin",), "dreamt"),
    (("policy",), None),
    (("settings",), []),
    (("advice",), 3),
    (("advice",), "\ud800"),
    (("notes",), [3]),
    (("growth", "lower"), 1e9),
    (("growth", "upper"), math.nan),
    (("theory", "fixed"), -1),
    (("theory", "adaptive_lower"), None),
    (("fit", "r_squared"), 1.5),
    (("fit", "noise"), -1.0),
    (("frontier", "rounds"), 10**6),
    (("frontier", "runs"), 0),
    (("frontier", "sequential", "low"), 1e9),
    (("frontier", "sequential", "runs"), 99),
    (("frontier", "points", 0), None),
    (("frontier", "points", 0, "kind"), "weekly"),
    (("frontier", "points", 0, "batches"), 10**9),
    (("frontier", "points", 0, "used"), 3.0),
    (("frontier", "points", 0, "pattern"), [1, 1]),
    (("frontier", "points", 0, "ratio", "value"), -1e9),
    (("enough", "10 %", "fixed", "batches"), None),
    (("enough", "10 %", "fixed", "schedule"), None),
    (("enough", "10 %", "fixed", "schedule"), {"kind": "AtRounds", "rounds": [3]}),
    (("enough", "10 %", "fixed", "schedule", "horizon"), 10**12),
    (("enough", "10 %", "fixed", "schedule", "batches"), 10**12),
    (("enough", "10 %", "adaptive", "schedule", "log_ratio"), -1.0),
    (("enough", "10 %", "adaptive", "schedule", "more"), 1),
    (("enough", "10 %", "fixed", "verdicts"), {"2": "surely"}),
    (("enough", "5 %"), None),
]


@pytest.mark.parametrize(("place", "value"), IMPOSSIBLE, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize("kind", ["0.1", "sealed"])
def test_numbers_that_no_plan_can_have_are_refused_with_and_without_digest(tmp_path, kind, place, value):
    data = inner = plain()
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(sealed(data | {"format": 2}) if kind == "sealed" else data))
    with pytest.raises(BrokenPlan, match="is refused: "):
        read_plan(path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"3", b"\xff", b"[" * 100_000, b'{"format": 9}', None])
def test_a_file_that_is_no_plan_is_refused_in_a_sentence(tmp_path, content):
    path = tmp_path / "plan.json"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    for place in (path, tmp_path / "nowhere.json"):
        result = shown(place)
        assert result.exit_code == 1
        assert f"{place} is refused" in result.output.replace("\n", "")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), kind=st.sampled_from(["0.1", "sealed", "edited"]))
def test_no_change_of_a_plan_ends_in_a_traceback(path, data, kind):
    whole = json.loads(path.read_text())
    content = data.draw(mutations(whole if kind == "edited" else plain()))
    changed = path.with_name("changed.json")
    changed.write_text(json.dumps(sealed(content | {"format": 2}) if kind == "sealed" else content))
    result = shown(changed)
    assert result.exit_code in (0, 1)
    if kind == "edited" and ("format" in content or "digest" in content):
        assert result.exit_code == (0 if content == whole else 1)
    if result.exit_code == 0:
        saved = read_plan(changed)
        for which in itertools.product((0.05, 0.10), (None, "fixed", "geometric", "adaptive")):
            schedule = schedule_of(saved, *which)
            assert schedule is None or schedule.horizon == saved.horizon


def test_a_tolerance_that_is_not_on_file_is_refused(path):
    saved = read_plan(path)
    with pytest.raises(InvalidInput, match="tolerance must be one of"):
        saved.schedule(0.2)
    with pytest.raises(InvalidInput, match="kind must be one of"):
        saved.schedule(0.1, "weekly")


def test_nothing_close_is_said(tmp_path):
    data = plain()
    for kind in data["enough"]["5 %"]:
        data["enough"]["5 %"][kind] |= {"batches": None, "surely": None, "schedule": None}
    (tmp_path / "plan.json").write_text(json.dumps(data))
    with pytest.raises(NothingClose, match="within 5 %"):
        read_plan(tmp_path / "plan.json").schedule(0.05)
