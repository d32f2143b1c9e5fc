"""The tables of the leaderboard's page and of its Markdown form, as text, and how to read them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from rarely._pages.grid import Grid
from rarely._runs.record import describe_records
from rarely._runs.statistics import IntervalEstimate
from rarely.compare.records import Record
from rarely.compare.scores import BOARDS, Leaderboard, Results

NONE = "—"
PARTS = {"made": "yes", "unseen": "no"}


def budget(batches: int | None) -> str:
    """Return `B = 20`, or `B = T`."""
    return f"B = {batches or 'T'}"


def interval(estimate: IntervalEstimate | None, digits: int = 2) -> str:
    """Return a value with its interval, if it has one.

    >>> interval(IntervalEstimate(0.25, 0.2, 0.3, 5))
    '0.25 [0.20, 0.30]'
    """
    if estimate is None or math.isnan(estimate.value):
        return NONE
    value = f"{_signed(estimate.value, digits)}"
    if not math.isfinite(estimate.low):
        return value
    return f"{value} [{_signed(estimate.low, digits)}, {_signed(estimate.high, digits)}]"


def _signed(value: float, digits: int) -> str:
    text = f"{value:.{digits}f}"
    return text.replace("-", "−") if float(text) else text.replace("-", "")


def ranking(board: Leaderboard) -> Grid:
    """Return the leaderboard."""
    budgets = board.results.budgets()
    head = ["policy", "area [95 %]", *map(budget, budgets), "won / tied / lost", "s / 1000 rounds", "problems"]
    body = []
    for place, row in enumerate(board.rows, 1):
        scores = [_signed(score.value, 2) if (score := row.scores.get(b)) else NONE for b in budgets]
        won = [f"{row.wins} / {row.ties} / {row.losses}", f"{row.seconds:.2g}"]
        body.append([f"{place}. {row.policy}", interval(row.area), *scores, *won, str(row.problems)])
    return Grid(head, body, 1)


def of_problem(board: Leaderboard, problem: str) -> Grid:
    """Return the mean regret of every policy on one problem, with intervals over seeds."""
    results, body = board.results, []
    budgets = results.budgets(problem)
    for row in board.rows:
        if any(results.runs(problem, row.policy, batches) for batches in budgets):
            body.append([row.policy, *(_regret(results, problem, row.policy, batches) for batches in budgets)])
    return Grid(["policy", *map(budget, budgets)], body, 1)


def _regret(results: Results, problem: str, policy: str, batches: int | None) -> str:
    """Return the mean regret with its interval, cut at 0: no regret is below, whatever Student's interval says."""
    if not results.runs(problem, policy, batches):
        return NONE
    estimate = results.regret(problem, policy, batches)
    return interval(replace(estimate, low=max(0.0, estimate.low)) if math.isfinite(estimate.low) else estimate, 1)


def scales(board: Leaderboard) -> Grid:
    """Return what is 0 and 1 on each problem."""
    results = board.results
    body = []
    for problem in results.problems:
        scale = results.scales[problem]
        runs = (results.runs(problem, policy, b) for policy in results.policies for b in results.budgets())
        seeds = str(len({seed for of_policy in runs for seed in of_policy}))
        who = scale.best if scale.best.startswith("board ") else f"{scale.best}, {budget(scale.batches)}"
        part = next((kind for board in BOARDS.values() for kind in PARTS if problem in board[kind]), "")
        numbers = [f"{scale.zero:.1f}", who, f"{scale.one:.1f}", PARTS.get(part, NONE)]
        body.append([problem, str(results.rounds[problem]), seeds, *numbers])
    head = ["problem", "T", "seeds", "regret that is 0", "of", "regret that is 1", "took part in making a default"]
    return Grid(head, body, 1)


def provenance(records: Sequence[Record]) -> str:
    """Say how much was played, where and by which versions."""
    return describe_records(records, "one policy on one run with one budget each")
