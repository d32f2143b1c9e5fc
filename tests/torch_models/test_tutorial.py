"""The tutorial's code runs and prints what the page shows."""

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: make test-torch")

from code_blocks import run, sections

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "torch.md"


def test_the_tutorial_runs():
    run([block for section in sections(PAGE) for block in section.blocks])
