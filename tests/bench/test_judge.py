"""The error rates of the judge, as docs/judge.md has them."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "judge.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def judge():
    return runpy.run_path(str(ROOT / "benchmarks" / "judge.py"))


def test_the_page_has_what_the_program_prints(judge):
    assert f"| {' | '.join(judge['of_sample']('normal', 10, 20000))} |\n" in PAGE


def test_no_error_rate_of_what_it_is_made_for_is_above_5_percent(judge):
    page = PAGE[: PAGE.index("## Where no test is right")]
    rows = [line.strip("| \n").split(" | ") for line in page.splitlines() if line.startswith("| ") and "/" in line]
    assert len(rows) == len(judge["SAMPLES"]) * len(judge["RUNS"] + judge["FEW"])
    assert max(float(rate) for row in rows for cell in row[2:5] for rate in cell.split(" / ")) <= 5.0


def test_simulated_papers_are_judged(judge):
    found = judge["one"]((0, (10,)))
    assert {key[0] for key in found} == {"random", "edge", "one false", "papers"}
