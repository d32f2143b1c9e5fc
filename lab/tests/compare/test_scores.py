import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from comparison_records import record
from rarely.runs.statistics import mean
from rarely_lab.compare import leaderboard
from rarely_lab.compare.page import render_markdown
from rarely_lab.compare.scores import Leaderboard, area_under


def frontier(problem, policy, regrets, *, seeds=2, **others):
    """Records of one policy: a regret for each budget, the same on every seed but for a little."""
    return [
        record(problem, policy, batches, seed, regret + seed, **others)
        for batches, regret in regrets.items()
        for seed in range(seeds)
    ]


SUITE = [
    *frontier("p", "a", {5: 60, 20: 40, None: 20}),
    *frontier("p", "b", {5: 80, 20: 30, None: 10}),
    *frontier("q", "a", {5: 10, 20: 6, None: 2}, uniform=22),
    *frontier("q", "b", {5: 20, 20: 4, None: 3}, uniform=22),
]


def test_zero_is_the_best_sequential_policy_and_one_is_uniform_play():
    results = Leaderboard(SUITE)
    p, q = results.scales["p"], results.scales["q"]
    assert (p.best, p.batches, p.zero, p.one) == ("b", None, 10.5, 100)
    assert (q.best, q.zero, q.one) == ("a", 2.5, 22)
    assert results.normalised("p", "b", None) == 0
    assert results.normalised("p", "a", 5) == pytest.approx((60.5 - 10.5) / (100 - 10.5))
    assert p(100.0) == 1


def test_a_policy_that_beats_the_best_sequential_one_is_below_zero():
    results = Leaderboard([*SUITE, *frontier("p", "c", {5: 1})])
    assert results.normalised("p", "c", 5) < 0


def test_without_sequential_runs_the_largest_budget_is_zero_and_the_page_says_so():
    board = leaderboard([one for one in SUITE if one.batches is not None])
    assert board.scales["p"].batches == 20
    assert board.normalised("p", "b", 20) == 0
    assert "0 is the best policy with the largest budget on record" in render_markdown(SUITE, board)
    assert "0 is the best policy with an update after every round" in render_markdown(SUITE, leaderboard(SUITE))


def test_a_few_runs_are_no_zero_for_those_with_more():
    lucky = record("p", "lucky", None, 0, 1.0)
    assert Leaderboard([*SUITE, lucky]).scales["p"] == Leaderboard(SUITE).scales["p"]
    assert Leaderboard([lucky]).scales["p"].best == "lucky"


def test_uniform_play_is_never_the_zero():
    results = Leaderboard([*frontier("p", "uniform", {5: 1, None: 1}), *frontier("p", "a", {5: 30, None: 20})])
    assert results.scales["p"].best == "a"


def test_the_area_is_the_mean_over_log_b():
    budgets, values = [2, 5, 20, 100], [0.9, 0.5, 0.2, 0.1]
    fine = np.linspace(math.log(2), math.log(100), 400_001)
    plain = np.interp(fine, np.log(budgets), values).mean()
    assert area_under(budgets, values) == pytest.approx(plain, abs=1e-5)
    assert area_under([7], [0.3]) == 0.3


@given(st.lists(st.floats(-2, 3), min_size=2, max_size=6), st.floats(-1, 1))
def test_the_area_of_shifted_values_is_shifted(values, shift):
    budgets = [2 ** (i + 1) for i in range(len(values))]
    moved = area_under(budgets, [value + shift for value in values])
    assert moved == pytest.approx(area_under(budgets, values) + shift, abs=1e-9)


def test_scores_are_means_over_problems_with_their_interval():
    board = leaderboard(SUITE)
    row = next(row for row in board.rows if row.policy == "a")
    values = [board.normalised(problem, "a", 5) for problem in ("p", "q")]
    score = row.scores[5]
    assert score == mean(values)
    assert row.area.value == pytest.approx(np.mean([board.area(problem, "a") for problem in ("p", "q")]))


def test_schedules_of_a_model_share_its_sequential_runs():
    results = Leaderboard([*SUITE, *frontier("p", "a@fixed", {5: 70, 20: 50})])
    assert results.runs("p", "a@fixed", None) == results.runs("p", "a", None)
    assert results.runs("p", "a@fixed", 5) != results.runs("p", "a", 5)


def test_a_win_needs_an_interval_below_zero():
    clear = [
        *(record("p", "a", 5, seed, 10 + seed % 2) for seed in range(5)),
        *(record("p", "b", 5, seed, 20 + seed % 3) for seed in range(5)),
    ]
    rows = {row.policy: row for row in leaderboard([*clear, *frontier("p", "c", {None: 1})]).rows}
    assert (rows["a"].wins, rows["a"].ties, rows["a"].losses) == (1, 0, 0)
    assert (rows["b"].wins, rows["b"].ties, rows["b"].losses) == (0, 0, 1)
    single = [record("p", "a", 5, 0, 1), record("p", "b", 5, 0, 90), *frontier("p", "c", {None: 1})]
    assert {row.ties for row in leaderboard(single).rows} == {1}


def test_rows_are_sorted_by_area_and_incomplete_policies_are_last():
    board = leaderboard([*SUITE, *frontier("p", "c", {5: 11, 20: 11})])
    assert [(row.policy, row.problems) for row in board.rows] == [("a", 2), ("b", 2), ("c", 1)]
    assert board.rows[-1].area.value < board.rows[0].area.value


def test_a_policy_that_lacks_a_budget_has_no_row():
    board = leaderboard([*SUITE, *frontier("p", "c", {5: 11})])
    assert "c" not in {row.policy for row in board.rows}


def test_a_problem_that_nobody_solves_is_left_out_and_named():
    board = leaderboard([*SUITE, *frontier("r", "a", {5: 120, 20: 120, None: 110}), *frontier("r", "b", {None: 130})])
    assert board.unscaled == ["r"]
    assert "the regret of uniform play there: r.\n" in render_markdown(SUITE, board)


def test_seconds_are_those_of_the_finite_budgets():
    runs = [
        record("p", "a", 5, 0, seconds=2.0),
        record("p", "a", 20, 0, seconds=4.0),
        record("p", "a", None, 0, seconds=100.0),
        *frontier("p", "b", {5: 1, 20: 1, None: 1}),
    ]
    rows = {row.policy: row for row in leaderboard(runs).rows}
    assert rows["a"].seconds == pytest.approx(1000 * 3.0 / 50)
