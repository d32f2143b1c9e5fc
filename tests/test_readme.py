"""What README, the examples and the maps show runs, and exists."""

import importlib.util
import re
from pathlib import Path

import pytest

from code_blocks import run, sections
from rarely.testing import COVARIANCE_PROMISES, LEARNER_PROMISES, POLICY_PROMISES, SCHEDULE_PROMISES

README = Path(__file__).parents[1] / "README.md"


def test_the_example_runs_and_keeps_its_budget():
    section = sections(README)[0]
    policy = run(section.blocks)["policy"]
    assert policy.round == 1000
    assert 2 <= policy.version + 1 <= 20


def test_the_recommender_from_two_frames_runs():
    pytest.importorskip("pandas", reason="README shows frames of pandas")
    _, section = sections(README)
    names = run(section.blocks)
    assert names["policy"].version == 6
    assert section.blocks[0].code.count("\n") <= 15 + 4  # of the user's own, besides imports


def example(name):
    spec = importlib.util.spec_from_file_location(name, README.parent / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_world_of_ones_own_goes_through_the_laboratory(tmp_path, monkeypatch):
    """In this process and with empty figures: playing in others and drawing have tests of their own."""
    own_world = example("own_world")
    monkeypatch.setattr(own_world, "cores", lambda: None)
    monkeypatch.setattr("rarely_lab.reproduce.report.page.drawn", lambda draw: '<svg viewBox="0 0 9 9"></svg>')
    own_world.main(tmp_path / "out", 40, 1)
    assert "waves" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert len(list((tmp_path / "out" / "records").glob("waves/*/*/seed0.json.gz"))) == 1 + 1 + 2 + 4


def test_the_nightly_example_runs(monkeypatch, capsys):
    nightly = example("nightly")
    monkeypatch.setattr(nightly, "DAYS", 4)
    monkeypatch.setattr(nightly, "VISITORS", 100)
    nightly.main()
    printed = capsys.readouterr().out
    assert "<BatchNeuralUCB: version 2, round 400" in printed


def test_tests_named_in_the_documents_exist():
    root = README.parent
    files = (*(root / "tests").rglob("*.py"), *(root / "lab" / "tests").rglob("*.py"))
    written = "\n".join(path.read_text(encoding="utf-8") for path in files)
    for document in (*(root / "docs").rglob("*.md"), root / "CONTRIBUTING.md"):
        for name in set(re.findall(r"`(test_\w+)`", document.read_text(encoding="utf-8"))):
            assert f"def {name}(" in written, (document.name, name)


def test_promises_named_in_the_documents_exist():
    promises = {*COVARIANCE_PROMISES, *LEARNER_PROMISES, *POLICY_PROMISES, *SCHEDULE_PROMISES}
    text = (README.parent / "docs" / "paper-map.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`promise:(\w+)`", text)) <= promises
