"""The tutorial on LightGBM shows what it prints."""

from pathlib import Path

import pytest

from code_blocks import run, sections

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "lightgbm.md"


def test_the_tutorial_on_lightgbm_shows_what_it_prints(tmp_path, monkeypatch):
    pytest.importorskip("lightgbm", reason="the tutorial needs lightgbm: pip install lightgbm")
    monkeypatch.chdir(tmp_path)
    blocks = [block for section in sections(PAGE) for block in section.blocks]
    assert len(blocks) == 4
    assert run(blocks)["again"].version == 8
