"""What a board fixes, and how its records are scored."""

import runpy
from pathlib import Path

import pytest
from typer.testing import CliRunner

from comparison_records import record
from rarely._cli import app
from rarely._core.errors import InvalidInput
from rarely.worlds import EVERYDAY
from rarely_lab.commands import compare
from rarely_lab.compare import leaderboard
from rarely_lab.compare.page import ranking, render_markdown
from rarely_lab.compare.policies import POLICIES
from rarely_lab.compare.problems import find_problem
from rarely_lab.compare.runs import Store
from rarely_lab.compare.scores import BOARDS, Leaderboard, over_bases, tuned_on

V1, V2 = BOARDS["v1"], BOARDS["v2"]
SCRIPT = Path(__file__).parents[3] / "benchmarks" / "board.py"


@pytest.fixture
def no_scales(monkeypatch):
    """Let no board be released yet."""
    for board in (V1, V2):
        monkeypatch.setitem(board, "scales", {})


def test_v1_is_what_was_released():
    assert (V1["rounds"], V1["seeds"], V1["budgets"]) == (2000, 20, "5,10,20,40,100,T")
    assert 2 * len(V1["untuned"]) >= len(V1["untuned"]) + len(V1["tuned"])
    assert not set(V1["tuned"]) & set(V1["untuned"])
    assert set(V1["policies"]) <= set(POLICIES)
    for name in ("cosine", "quadratic", "needle", "wheel", "two-sided", "heavy-tails"):
        assert find_problem(name).length(V1["rounds"]) == 2000


def test_v2_has_ten_base_worlds_of_which_nothing_is_known():
    bases = {name.partition("+")[0] for name in V2["untuned"]}
    assert bases == set(EVERYDAY)
    assert len(bases) >= 8
    assert set(V2["tuned"]) <= set(V1["tuned"])
    assert not bases & {name.partition("+")[0] for name in (*V1["untuned"], *V1["tuned"])}
    assert set(V2["policies"]) <= set(POLICIES)
    assert {*range(V2["first_seed"], V2["first_seed"] + V2["seeds"])}.isdisjoint(range(V1["first_seed"] + 1000))
    assert all(find_problem(name).length(V2["rounds"]) == 2000 for name in V2["untuned"])


def test_a_retired_board_is_called_so(monkeypatch):
    monkeypatch.setitem(V1, "scales", {"needle": [20.0, 200.0]})
    monkeypatch.setitem(V2, "scales", {"needle": [10.0, 200.0]})
    records = played("needle", {5: 30, None: 10})
    assert Leaderboard(records).scales["needle"].best == "board v2"  # the newest, of seeds that no board has
    assert "retired" not in render_markdown(records, leaderboard(records))
    mine = [record("needle", "a", 5, V1["first_seed"] + s, 30.0, rounds=2000) for s in (0, 1)]
    assert Leaderboard(mine).scales["needle"].best == "board v1"
    assert "Board v1 is retired" in render_markdown(mine, leaderboard(mine))
    assert "board v1, retired: budgets" in CliRunner().invoke(app, ["compare", "--list"]).output


def test_a_variant_counts_with_its_base():
    areas = over_bases({"a": 0.1, "a+drift": 0.3, "a+delay": 0.2, "b": 0.4})
    assert (areas.value, areas.runs) == (pytest.approx(0.3), 2)
    assert over_bases({}) is None


def test_eight_base_worlds_get_an_interval_and_fewer_none(no_scales):
    def shown(count):
        records = [one for name in V2["untuned"][:count] for one in played(name, {5: 30 + len(name), None: 10})]
        grid = ranking(leaderboard(records))
        return dict(zip(grid.head, grid.body[0], strict=True))["untuned"]

    assert "[" not in shown(7)
    assert "[" in shown(8)


def test_a_board_asks_for_all_of_it_and_for_a_policy_of_ones_own():
    asked = compare._board("v1", ["linucb"])
    assert (asked.problems, asked.policies) == (V1["tuned"] + V1["untuned"], ["linucb"])
    assert asked.budgets == [5, 10, 20, 40, 100]
    assert compare._board("v1", ["linucb"], "20,T").budgets == [20, None]
    assert (asked.rounds, asked.seeds, asked.first_seed) == (2000, 20, V1["first_seed"])
    assert "default" in compare._board("v1", None).policies
    with pytest.raises(InvalidInput, match="no board is called 'v0'"):
        compare._board("v0", None)
    with pytest.raises(InvalidInput, match="has the budgets 5,10,20,40,100,T; choose among them, got 7"):
        compare._board("v1", None, "7")


@pytest.mark.parametrize("more", [["needle"], ["--rounds", "99"], ["--seeds", "3"], ["--quick"]])
def test_what_a_board_fixes_cannot_be_given(more, tmp_path):
    result = CliRunner().invoke(app, ["compare", "--board", "v2", *more, "--out", str(tmp_path / "x")])
    assert result.exit_code == 1
    assert "--board fixes problems, seeds and T" in result.output
    assert not (tmp_path / "x").exists()


def played(problem, regrets, rounds=2000, uniform=100.0):
    return [
        record(problem, "a", b, s, r + s, rounds=rounds, uniform=uniform) for b, r in regrets.items() for s in (0, 1)
    ]


def test_the_zero_is_the_one_on_record_whoever_enters(monkeypatch):
    monkeypatch.setitem(V1, "scales", {"needle": [20.0, 200.0]})
    results = Leaderboard(played("needle", {5: 30, None: 10}))
    assert (results.scales["needle"].zero, results.scales["needle"].best) == (20.0, "board v1")
    assert results.normalised("needle", "a", None) < 0  # it beats what was known, and the zero stays
    assert Leaderboard(played("needle", {5: 30, None: 10}, rounds=300)).scales["needle"].zero == 10.5
    board = leaderboard(played("needle", {5: 30, None: 10}))
    said = render_markdown(played("needle", {5: 30, None: 10}), board)
    assert "which the board has on record" in said
    records = [*played("needle", {5: 30, None: 10}), *played("iris", {5: 30, None: 10})]
    assert "or what a board has on record" in render_markdown(records, leaderboard(records))
    assert "| needle | 2000 | 2 | 20.0 | board v1 | 200.0 | yes |" in said


def test_a_file_with_the_name_of_a_problem_has_neither_its_zero_nor_its_part(monkeypatch):
    monkeypatch.setitem(V1, "scales", {"wheel": [20.0, 90.0], "shuttle+drift": [20.0, 90.0]})
    files = [record(name, "a", 5, 0, 30.0, rounds=2000, family="own") for name in ("wheel", "shuttle+drift")]
    board = leaderboard(files)
    assert [board.scales[name].zero for name in board.problems] == [30.0, 30.0]
    said = render_markdown(files, board)
    assert "| wheel | 2000 | 1 | 30.0 | a, B = 5 | 100.0 | — |" in said
    assert "| shuttle+drift | 2000 | 1 | 30.0 | a, B = 5 | 100.0 | — |" in said


@pytest.mark.parametrize(
    ("problem", "tuned"),
    [
        ("cosine", True),
        ("cosine+delay", True),
        ("cosine+drift", True),
        ("shuttle+drift", False),
        ("iris", None),
    ],
)
def test_a_variant_is_tuned_on_where_its_base_was(problem, tuned):
    assert tuned_on(problem, "any set") is tuned


def test_the_area_over_problems_without_tuning_has_a_column_of_its_own(no_scales):
    records = [*played("needle", {5: 30, None: 10}), *played("two-sided", {5: 50, None: 10})]
    row = leaderboard(records).rows[0]
    assert row.untuned.value == pytest.approx((50.5 - 10.5) / 89.5)
    assert row.area.value == pytest.approx((40.5 - 10.5) / 89.5)
    assert "| untuned |" in render_markdown(records, leaderboard(records))
    assert "untuned" not in render_markdown(records[:4], leaderboard(records[:4]))


def test_a_problem_with_little_room_is_shown_but_not_averaged(no_scales):
    records = [*played("needle", {5: 30, None: 10}), *played("two-sided", {5: 95, None: 90.4})]
    board = leaderboard(records)
    assert board.unscaled == ["two-sided"]
    assert board.rows[0].area.value == pytest.approx((30.5 - 10.5) / 89.5)
    said = render_markdown(records, board)
    assert "Shown but not averaged" in said
    assert "### two-sided" in said


def test_what_is_1_does_not_depend_on_who_played_more_seeds():
    """Uniform play loses what it loses on the rounds, so each seed counts once."""
    seeds = [record("p", "a", 5, seed, 30.0, uniform=uniform) for seed, uniform in enumerate((100.0, 200.0))]
    assert Leaderboard([*seeds, record("p", "b", 5, 1, 30.0, uniform=200.0)]).scales["p"].one == 150.0


def test_different_numbers_of_seeds_are_said():
    records = [*played("needle", {5: 30, None: 10}), record("needle", "once", 5, 0, 20.0, rounds=2000)]
    assert "Not all have the same runs: 1 to 2 seeds" in render_markdown(records, leaderboard(records))
    assert "Not all have" not in render_markdown(records[:-1], leaderboard(records[:-1]))


def test_seconds_are_of_the_machine_with_the_most_records():
    records = played("needle", {5: 30})
    elsewhere = record("needle", "a", 5, 9, 30.0, rounds=2000, seconds=1e6, machine="an abacus")
    assert leaderboard([*records, elsewhere]).rows[0].seconds == leaderboard(records).rows[0].seconds


def test_different_lengths_are_said():
    records = [*played("needle", {5: 30, None: 10}), *played("wheel", {5: 30, None: 10}, rounds=300)]
    assert "T differs between these problems" in render_markdown(records, leaderboard(records))
    assert "T differs" not in render_markdown(records[:4], leaderboard(records[:4]))


def test_the_zeros_are_the_best_means_with_all_seeds():
    scales = runpy.run_path(str(SCRIPT))["scales"]
    lucky = record("needle", "lucky", 5, 0, 1.0, rounds=2000)
    found = scales(
        Leaderboard([*played("needle", {5: 8, None: 10}), lucky, *played("wheel", {5: 9}, rounds=300)]), V1, 2
    )
    assert found == {"needle": [8.5, 100.0]}


def test_problems_that_are_not_complete_are_named_and_the_exit_code_is_1(tmp_path, monkeypatch, capsys):
    for one in [*played("needle", {5: 8}), *played("wheel", {5: 9}, rounds=300)]:
        Store(tmp_path).write(one)
    monkeypatch.setattr("sys.argv", ["board.py", str(tmp_path), "--seeds", "2", "--board", "v1"])
    with pytest.raises(SystemExit) as exit:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    assert str(exit.value.code).startswith(
        "not complete, and left out: cosine, quadratic, mushroom, magic, wheel, adult"
    )
    assert capsys.readouterr().out == '[v1.scales]\n"needle" = [8.5, 100.0]\n'


def test_problems_of_the_board_that_are_missing_are_said_where_the_place_is(tmp_path, capsys):
    for one in played("needle", {5: 30, None: 10}):
        Store(tmp_path).write(one)
    compare._show(tmp_path, None, None, whole=14)
    assert "over 1 problem of the board's 14: not a whole entry" in " ".join("".join(capsys.readouterr()).split())
    compare._show(tmp_path, None, None, whole=1)
    assert "whole entry" not in "".join(capsys.readouterr())
