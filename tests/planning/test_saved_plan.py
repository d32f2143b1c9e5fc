"""Plans that are read back: as they were written, or refused in a sentence."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from decision_logs import planning_log
from mutations import mutations
from rarely import InvalidInput
from rarely._cli import app
from rarely._runs.sealed_json import digest_of, sealed
from rarely.planning import BrokenPlan, NothingClose, plan, read_plan
from rarely.planning.plan import with_digest
from rarely.planning.report import write_plan
from rarely.worlds import Cosine


def some_log(rounds=80, rewards=True):
    generator = np.random.default_rng(0)
    rows, arms = generator.normal(size=(rounds, 2)), generator.integers(2, size=rounds)
    noisy = rows[:, 0] * (2 * arms - 1) + 2 * generator.normal(size=rounds)
    return planning_log(rows, 2, arms, noisy if rewards else None)


@pytest.fixture(scope="module")
def made():
    """A plan with everything in it, but small."""
    return plan(some_log(), horizon=60, max_rounds=20, policy="linear", batches=[2, 15], runs=3)


@pytest.fixture
def path(made, tmp_path):
    """The same in a file."""
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(with_digest(made.describe())))
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


def test_a_plan_is_read_back_as_it_was_written(made, tmp_path):
    path = write_plan(made, tmp_path)[0]
    saved = read_plan(path)
    assert saved.data["digest"] == digest_of(saved.data)
    assert (saved.horizon, saved.settings, saved.text()) == (made.horizon, made.settings, made.text())
    found = [
        schedule_of(saved, tolerance, kind) == schedule_of(made, tolerance, kind)
        for tolerance, kind in itertools.product((0.05, 0.10), ("fixed", "geometric", "adaptive", None))
    ]
    assert found == [True] * 8
    assert schedule_of(saved) is not None
    result = shown(path)
    assert result.exit_code == 0
    assert made.headline() in result.output.replace("\n", " ")


@pytest.mark.parametrize(
    "settings",
    [
        {"source": some_log(rewards=False), "horizon": 50, "policy": "linear", "runs": 1, "batches": [2]},
        {"source": Cosine(), "horizon": 30, "policy": "linear", "runs": 2, "batches": [2, 20]},
        {"source": some_log(rewards=False), "horizon": 10**6, "policy": "linear", "batches": [3], "max_rounds": 20},
        {"source": some_log(rewards=False), "horizon": 40, "settings": {"hidden": 4, "training": 2}, "batches": [2]},
    ],
    ids=["imagined", "world", "far", "neural"],
)
def test_plans_of_every_kind_are_read_back(settings, tmp_path):
    made = plan(settings.pop("source"), **({"runs": 1} | settings))
    (tmp_path / "plan.json").write_text(json.dumps(with_digest(made.describe()), allow_nan=False))
    assert read_plan(tmp_path / "plan.json").text() == made.text()


@pytest.mark.parametrize("edit", [{"horizon": 61}, {"advice": "2 batches are enough"}, {"digest": None}, {"seed": 1}])
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


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"format": 2}, "its format must be 1; it is 2"),
        ({"format": None}, "its format must be 1; it is None"),
        ({"horizon": None}, "it has no horizon"),
        ({"settings": []}, "it has no settings, or one of another kind"),
        ({"advice": 3}, "it has no advice"),
    ],
)
def test_a_file_of_another_program_or_version_is_refused(made, tmp_path, change, says):
    (tmp_path / "plan.json").write_text(json.dumps(sealed(with_digest(made.describe()) | change)))
    with pytest.raises(BrokenPlan, match=says):
        read_plan(tmp_path / "plan.json")


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


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_a_change_of_a_plan_is_refused_without_a_traceback(path, data):
    whole = json.loads(path.read_text())
    content = data.draw(mutations(whole))
    changed = path.with_name("changed.json")
    changed.write_text(json.dumps(content))
    if content == whole:
        assert read_plan(changed).data == whole
    else:
        with pytest.raises(BrokenPlan, match=r"changed\.json is refused: "):
            read_plan(changed)


def test_a_tolerance_that_is_not_on_file_is_refused(path):
    saved = read_plan(path)
    with pytest.raises(InvalidInput, match="tolerance must be one of"):
        saved.schedule(0.2)
    with pytest.raises(InvalidInput, match="kind must be one of"):
        saved.schedule(0.1, "weekly")


def test_nothing_close_is_said(made, tmp_path):
    data = made.describe()
    for kind in data["enough"]["5 %"]:
        data["enough"]["5 %"][kind] |= {"batches": None, "surely": None, "schedule": None}
    (tmp_path / "plan.json").write_text(json.dumps(with_digest(data)))
    with pytest.raises(NothingClose, match="within 5 %"):
        read_plan(tmp_path / "plan.json").schedule(0.05)
