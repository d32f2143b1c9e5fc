"""The tables of the page and of its Markdown form, as text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from rarely.comparison.records import Record
from rarely.comparison.scores import Leaderboard
from rarely.simulation.statistics import IntervalEstimate

NONE = "—"


class Grid(NamedTuple):
    """A table; columns from `numbers` on hold numbers."""

    head: list[str]
    body: list[list[str]]
    numbers: int


def budget(batches: int | None) -> str:
    """`B = 20`, or `B = T`."""
    return f"B = {batches or 'T'}"


def interval(estimate: IntervalEstimate | None, digits: int = 2) -> str:
    """A value with its interval, where there is one.

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
    """The leaderboard."""
    budgets = board.results.budgets()
    head = ["", "policy", "area [95 %]", *map(budget, budgets), "beats others [95 %]", "won / tied / lost"]
    head += ["s / 1000 rounds", "covered", "problems"]
    body = []
    for place, row in enumerate(board.rows, 1):
        beats = row.beats
        shown = IntervalEstimate(100 * beats.value, max(0.0, 100 * beats.low), min(100.0, 100 * beats.high), beats.runs)
        body.append(
            [
                str(place),
                row.policy,
                interval(row.area),
                *(_value(row.scores.get(batches)) for batches in budgets),
                interval(shown, 0) if not math.isnan(beats.value) else NONE,
                f"{row.wins} / {row.ties} / {row.losses}",
                f"{row.seconds:.2g}",
                NONE if row.coverage is None else f"{100 * row.coverage:.0f} %",
                str(row.problems),
            ]
        )
    return Grid(head, body, 2)


def _value(estimate: IntervalEstimate | None) -> str:
    return NONE if estimate is None else _signed(estimate.value, 2)


def of_problem(board: Leaderboard, problem: str) -> Grid:
    """Mean regret of every policy on one problem, with intervals over seeds."""
    results = board.results
    budgets = results.budgets(problem)
    body = []
    for row in board.rows:
        runs = [results.runs(problem, row.policy, batches) for batches in budgets]
        if any(runs):
            cells = [
                interval(_not_negative(results.regret(problem, row.policy, b)), 1) if r else NONE
                for b, r in zip(budgets, runs, strict=True)
            ]
            body.append([row.policy, *cells])
    return Grid(["policy", *map(budget, budgets)], body, 1)


def _not_negative(estimate: IntervalEstimate) -> IntervalEstimate:
    """No regret is below 0, whatever Student's interval says."""
    return replace(estimate, low=max(0.0, estimate.low)) if math.isfinite(estimate.low) else estimate


def scales(board: Leaderboard) -> Grid:
    """What is 0 and 1 on each problem."""
    results = board.results
    body = []
    for problem in results.problems:
        scale = results.scales[problem]
        seeds = len(
            {
                seed
                for policy in results.policies
                for b in results.budgets()
                for seed in results.runs(problem, policy, b)
            }
        )
        who = f"{scale.best}, {budget(scale.batches)}"
        body.append([problem, str(results.rounds[problem]), str(seeds), f"{scale.zero:.1f}", who, f"{scale.one:.1f}"])
    return Grid(["problem", "T", "seeds", "regret that is 0", "of", "regret that is 1"], body, 1)


def explanation(board: Leaderboard) -> list[str]:
    """How to read the numbers, in sentences."""
    sequential = all(scale.batches is None for scale in board.results.scales.values())
    zero = (
        "the best policy with an update after every round"
        if sequential
        else "the best policy with the largest budget on record"
    )
    said = [
        f"Normalised regret: 0 is {zero}, 1 is uniform play, on each problem. Less is better; below 0 is better "
        "than that policy.",
        "Area: the mean of the normalised regret over log B, for the finite budgets. Intervals are over problems.",
        "Beats others: how often a policy has less regret than another on the same run with the same budget, in per "
        "cent. Won, tied, lost: comparisons (problem, budget, other policy) whose paired 95 % interval over seeds lies "
        "below, around or above 0; they are not corrected for their number.",
        "Covered: the share of rewards within the policy's own 95 % intervals.",
    ]
    if board.unscaled:
        said.append(f"Left out, because no policy beats uniform play there: {', '.join(board.unscaled)}.")
    if len({row.problems for row in board.rows}) > 1:
        said.append("Policies that were not played on every problem with every budget are last.")
    return said


def provenance(records: Sequence[Record]) -> str:
    """How much was played, where and by which versions."""
    machines = Counter(record.machine for record in records)
    versions = sorted(
        {f"rarely {_env(r, 'rarely')}, Python {_env(r, 'python')}, NumPy {_env(r, 'numpy')}" for r in records}
    )
    hours = sum(record.seconds for record in records) / 3600
    many = "" if len(machines) == 1 else " Seconds of different machines do not compare."
    where = "; ".join(f"{name} ({count})" for name, count in machines.items())
    return (
        f"{len(records)} records (one policy on one run with one budget each), {hours:.2g} hours of processor time of "
        f"the policies, on {where}. {'; '.join(versions)}. "
        f"Code {', '.join(sorted({record.code[0] for record in records}))}.{many}"
    )


def _env(record: Record, name: str) -> str:
    return str(record.data["environment"][name])
