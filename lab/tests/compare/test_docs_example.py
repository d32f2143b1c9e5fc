"""The page about comparisons: the policy that it shows plays with the command that it shows."""

import re
import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rarely._cli import app

PAGE = (Path(__file__).parents[3] / "docs" / "compare.md").read_text(encoding="utf-8")


def test_the_policy_of_the_page_plays(tmp_path, monkeypatch, serial):
    pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    code = re.search(r"^```\{code-block\} python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[1]
    (tmp_path / "my_policy.py").write_text(code, encoding="utf-8")
    command = shlex.split(re.search(r"^rarely (compare .*my_policy:Trees.*)$", PAGE, re.MULTILINE)[1])
    command[command.index("5,20,100")] = "5"
    result = CliRunner().invoke(app, [*command, "--rounds", "40", "--seeds", "1", "--jobs", "1"])
    assert result.exit_code == 0, result.output
    assert "trees: area" in result.output
    assert (tmp_path / "mine.jsonl.gz").exists()
