"""What the figures of the page show: curves of a problem, axes of a policy."""

from __future__ import annotations

import math

import numpy as np

from rarely.comparison import svg
from rarely.comparison.scores import Leaderboard, Row

NOMINAL = 0.95
SHOWN = {
    "paper": "paper",
    "gallery": "gallery",
    "sklearn": "tables",
    "showdown": "showdown",
    "own": "own tables",
    "drift": "drift",
    "delay": "delay",
}
"""Families of problems, as the page calls them."""


def styles(board: Leaderboard) -> dict[str, svg.Style]:
    """How each policy is drawn, by its place."""
    return {row.policy: svg.Style.of(index) for index, row in enumerate(board.rows)}


def frontier(board: Leaderboard, problem: str) -> str:
    """The frontier of every policy on one problem."""
    results, drawn = board.results, styles(board)
    last = results.rounds[problem]
    curves = []
    for row in board.rows:
        if row.policy == "uniform":
            continue
        known = [b for b in results.budgets(problem) if results.runs(problem, row.policy, b)]
        if known:
            estimates = [results.regret(problem, row.policy, batches) for batches in known]
            curves.append(
                svg.Curve(
                    row.policy,
                    drawn[row.policy],
                    [batches or last for batches in known],
                    [one.value for one in estimates],
                    [one.low for one in estimates],
                    [one.high for one in estimates],
                )
            )
    scale = results.scales[problem]
    zero_name = "best sequential" if scale.batches is None else f"best with B = {scale.batches}"
    return svg.frontier(problem, curves, scale.zero, scale.one, zero_name, last)


def axes(board: Leaderboard, row: Row) -> list[tuple[str, float | None]]:
    """What a policy's radar shows, each from 0 to 1: 1 is as good as the best sequential, the fastest, 95 % covered."""
    results = board.results
    shown: list[tuple[str, float | None]] = []
    for family, name in SHOWN.items():
        mine = [problem for problem in results.scaled if results.family[problem] == family]
        areas = [area for problem in mine if (area := results.area(problem, row.policy)) is not None]
        if mine:
            shown.append((name, _goodness(float(np.mean(areas))) if areas else None))
    finite = results.finite()
    for batches in dict.fromkeys((finite[0], finite[-1])):
        score = row.scores.get(batches)
        shown.append((f"B = {batches}", None if score is None else _goodness(score.value)))
    shown.append(("speed", _speed(board, row)))
    if any(one.coverage is not None for one in board.rows):
        shown.append(
            ("calibration", None if row.coverage is None else 1 - min(1.0, abs(row.coverage - NOMINAL) / 0.45))
        )
    return shown


def _goodness(normalised: float) -> float:
    return 1 - min(max(normalised, 0.0), 1.0)


def _speed(board: Leaderboard, row: Row) -> float:
    """1 for the fastest that learns, 0 for the slowest, by the logarithm of seconds."""
    others = [one.seconds for one in board.rows if one.policy != "uniform" and one.seconds > 0]
    if not others or row.seconds <= 0 or max(others) <= min(others):
        return 1.0
    share = math.log(max(others) / row.seconds) / math.log(max(others) / min(others))
    return min(max(share, 0.0), 1.0)
