"""What README shows runs as it stands."""

import importlib.util
import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_example_runs_and_keeps_its_budget():
    policy = run_block(0)["policy"]
    assert policy.round == 1000
    assert 2 <= policy.version + 1 <= 20


def test_the_world_of_ones_own_plays(capsys):
    played = run_block(1)["played"]
    assert len(played.regrets) == 200
    assert played.policy.version == 9
    assert f"{list(range(20, 200, 20))}" in capsys.readouterr().out


def run_block(number):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    names = {}
    exec(blocks[number], names)
    return names


def test_commands_of_the_readme_are_commands(tmp_path):
    from typer.testing import CliRunner

    from rarely.cli import app

    lines = re.findall(r"^rarely (\w+)(.*?)(?:#.*)?$", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert {command for command, _ in lines} == {"reproduce", "report", "data"}
    for command, rest in lines:
        help_text = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "300"}).output
        assert all(option in help_text for option in re.findall(r"--[a-z]+", rest)), command


def test_the_picture_of_the_house_is_true():
    text = README.read_text(encoding="utf-8")
    house = text[text.index("src/rarely/\n") :].split("```")[0]
    root = README.parent / "src" / "rarely"
    for module in root.rglob("*.py"):
        if module.name != "__init__.py":
            assert re.search(rf"\b{module.stem}\b", house), module
    assert all((README.parent / link).exists() for link in re.findall(r"\]\(([^):]+)\)", text))


def test_the_nightly_example_runs(monkeypatch, capsys):
    path = README.parent / "examples" / "nightly.py"
    spec = importlib.util.spec_from_file_location("nightly", path)
    nightly = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(nightly)
    monkeypatch.setattr(nightly, "DAYS", 4)
    monkeypatch.setattr(nightly, "VISITORS", 100)
    nightly.main()
    printed = capsys.readouterr().out
    assert "<BatchNeuralUCB: version 3, round 400" in printed
