"""The tutorial on campaigns shows what it prints, and so do the docstrings."""

import doctest
import importlib
from pathlib import Path

import pytest

from campaigns import serially
from code_blocks import run, sections
from rarely.cluster import campaign, learning

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "campaign.md"
pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[ray]'")


def test_the_tutorial_shows_what_it_prints(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for module in (campaign, learning):
        monkeypatch.setattr(module, "committing", serially)
    run([block for section in sections(PAGE) for block in section.blocks])


@pytest.mark.parametrize("module", ["campaign", "decider_logs", "files", "fleet", "learning"])
def test_the_docstrings_show_what_they_print(module, monkeypatch):
    for each in (campaign, learning):
        monkeypatch.setattr(each, "committing", serially)
    assert doctest.testmod(importlib.import_module(f"rarely.cluster.{module}")).failed == 0
