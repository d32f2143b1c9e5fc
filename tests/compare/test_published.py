"""The published leaderboard is what its packed records give, and they are all seeds of board v1."""

import runpy
from collections import defaultdict
from itertools import product
from pathlib import Path

import pytest

from rarely.compare import leaderboard, read_records
from rarely.compare.cells import Cell
from rarely.compare.page import render_markdown
from rarely.compare.scores import BOARDS, Results
from rarely.runs.cell import play_cell

ROOT = Path(__file__).parents[2]
DOCS, SCRIPT = ROOT / "docs", ROOT / "benchmarks" / "board.py"
V1 = BOARDS["v1"]


@pytest.fixture(scope="module")
def published():
    found = read_records(DOCS / "leaderboard.jsonl.gz")
    assert not found.refused
    return found.records


def test_the_page_is_made_from_the_records(published):
    page = (DOCS / "leaderboard.md").read_text(encoding="utf-8")
    assert render_markdown(published, leaderboard(published)) in page


def test_they_are_all_seeds_of_the_board(published):
    seeds = defaultdict(set)
    for one in published:
        seeds[one.problem, one.policy, one.batches].add(one.seed)
    first = V1["first_seed"]
    assert all(found == set(range(first, first + V1["seeds"])) for found in seeds.values())
    budgets = [int(batches) for batches in V1["budgets"].split(",") if batches != "T"]
    assert set(seeds) == set(product([*V1["tuned"], *V1["untuned"]], V1["policies"], budgets))


def test_the_scales_of_the_board_are_those_of_its_records(published):
    scales = runpy.run_path(str(SCRIPT))["scales"]
    assert scales(Results(published), V1, V1["seeds"]) == V1["scales"]


def test_uniform_play_is_the_same_today(published):
    """The rounds of a seed have not changed, so new records compare with the published ones."""
    first = [one for one in published if one.policy == "uniform" and one.seed == V1["first_seed"] and one.batches == 5]
    drawn = [one for one in first if one.problem in ("cosine", "needle", "wheel", "two-sided+drift")]
    assert len(drawn) == 4
    for one in drawn:
        again = play_cell(Cell(one.problem, one.policy, one.batches, one.seed, one.rounds)).record
        assert again.data["rounds_digest"] == one.data["rounds_digest"]
        assert again.regret == pytest.approx(one.regret)


def test_published_cells_are_the_same_today(published):
    """A change of numbers makes this the leaderboard of code that no longer exists: play it again."""
    names = ["cosine/linucb/B20/seed120003", "needle/lints/B5/seed120004"]
    for name in [*names, "two-sided/neuralucb/B5/seed120006", "two-sided/neuralucb/B5/seed120019"]:
        one = next(record for record in published if record.id == name)
        again = play_cell(Cell(one.problem, one.policy, one.batches, one.seed, one.rounds)).record
        # Elsewhere sums are rounded otherwise.
        same = again.data["environment"] == one.data["environment"]
        assert again.regret == (one.regret if same else pytest.approx(one.regret, rel=1e-6))
        assert len(again.data["updates"]) == len(one.data["updates"])
