"""The leaderboard as files: its tables, its figures, and how to read them, from the records of a comparison.

DIR/leaderboard.html
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rarely.pages.figures import DASHES, drawn, plain_numbers, plain_text
from rarely.pages.grid import Grid
from rarely.pages.page import render
from rarely.pages.svg import INK, PALETTE, inline
from rarely.runs.files import write_file
from rarely.runs.statistics import IntervalEstimate
from rarely_lab.compare.policies import card_of
from rarely_lab.compare.runs import Record, read_records
from rarely_lab.compare.scores import HINDSIGHT, Leaderboard, leaderboard, tuned_on
from rarely_lab.engine.record import NothingOnRecord, Refusal, describe_records, outdated

LINE_COLOURS = (*PALETTE.values(), INK)
LINE_MARKERS = ("o", "s", "^", "D", "v")
PANEL = (3.7, 2.8)  # width and height of a figure that stands beside others, in inches
DODGE = 1.03  # the factor between the places of two policies with one budget, so that intervals do not hide one another
BEYOND = 1.5  # the factor by which an axis is longer than the means need. Intervals may continue beyond it.
FEWEST_BASES = 8  # base worlds whose mean gets an interval
NONE = "—"


class Written(NamedTuple):
    """A written leaderboard: its HTML file, what it shows, and files that it leaves out."""

    path: Path
    board: Leaderboard
    refused: list[Refusal]


def line_style(place: int) -> dict[str, Any]:
    """Return how the policy with this place in the leaderboard is drawn everywhere.

    >>> line_style(0) != line_style(8)
    True
    """
    turn, colour = divmod(place, len(LINE_COLOURS))
    dash, marker = DASHES[turn % len(DASHES)], LINE_MARKERS[place % len(LINE_MARKERS)]
    return {"color": LINE_COLOURS[colour], "linestyle": dash, "marker": marker}


def write_leaderboard(out: Path, markdown_path: Path | None = None) -> Written:
    """Write the page and perhaps Markdown from the records in `out`."""
    stored = read_records(out)
    board = leaderboard(stored.records)
    if not board.rows:
        raise NothingOnRecord(_why_nothing(board, out))
    warnings = [*outdated(stored.records), *stored.warnings(out, "page")]
    write_file(out / "leaderboard.html", render_page(stored.records, board, warnings))
    if markdown_path is not None:
        write_file(markdown_path, render_markdown(stored.records, board, warnings))
    return Written(out / "leaderboard.html", board, stored.refused)


def _why_nothing(board: Leaderboard, out: Path) -> str:
    if not board.problems:
        return f"{out / 'records'} holds no records to compare; rarely compare --out {out} makes some."
    if not board.finite():
        return f"{out / 'records'} holds only runs with B = T; play finite budgets too, such as --budgets 5,20,T."
    if not board.scaled:
        return (
            "only uniform play is on record, or nothing that beats it, so regrets cannot be put on a scale. Play more "
            "rounds, or a policy that learns beside yours, such as --policy linucb."
        )
    return (
        f"no policy was played with every budget on record ({', '.join(map(str, board.finite()))}) on any problem; "
        "the same command plays what is missing."
    )


def render_page(records: Sequence[Record], board: Leaderboard, warnings: Sequence[str] = ()) -> str:
    """Return the leaderboard as one HTML file; `warnings` are about the records."""
    learning = [row.policy for row in board.rows if row.policy != "uniform"]
    return render(
        "rarely_lab.compare",
        "leaderboard.html",
        legend=inline(drawn(draw_legend, learning), "Legend"),
        frontiers=[(inline(drawn(draw_frontier, board, one), one), one) for one in board.problems],
        **_shown(records, board, warnings),
    )


def render_markdown(records: Sequence[Record], board: Leaderboard, warnings: Sequence[str] = ()) -> str:
    """Return leaderboard, explanation, and a table for each problem."""
    return render("rarely_lab.compare", "leaderboard.md", **_shown(records, board, warnings))


def _shown(records: Sequence[Record], board: Leaderboard, warnings: Sequence[str]) -> dict[str, Any]:
    """Return what both forms show."""
    first = {(record.policy, record.code): record for record in records}.values()
    return {
        "board": board,
        "warnings": warnings,
        "ranking": ranking(board, {record.policy: made_by for record in first if (made_by := record.made_by)}),
        "scales": scales(board),
        "each": {problem: of_problem(board, problem) for problem in board.problems},
        "cards": {row.policy: card for row in board.rows if (card := card_of(row.policy))},
        "provenance": describe_records(records, "one policy on one run with one budget each"),
    }


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


def ranking(board: Leaderboard, made_by: Mapping[str, str] = MappingProxyType({})) -> Grid:
    """Return the leaderboard; `made_by` names the release of policies whose numbers are no longer those on record."""
    budgets = board.budgets()
    untuned = ["untuned"] if any(row.untuned is not None for row in board.rows) else []
    head = [
        "policy",
        "area [95 %]",
        *untuned,
        *map(budget, budgets),
        "won / tied / lost",
        "s / 1000 rounds",
        "problems",
    ]
    body = []
    for place, row in enumerate(board.rows, 1):
        scores = [_signed(score.value, 2) if (score := row.scores.get(b)) else NONE for b in budgets]
        won = [f"{row.wins} / {row.ties} / {row.losses}", f"{row.seconds:.2g}"]
        half = row.untuned.value if row.untuned and row.untuned.runs < FEWEST_BASES else None
        areas = [interval(row.area), *(interval(row.untuned) if half is None else _signed(half, 2) for _ in untuned)]
        release = made_by.get("linucb" if row.policy == HINDSIGHT else row.policy)
        name = f"{row.policy} (made by {release})" if release else row.policy
        body.append([f"{place}. {name}" if board.ranked else name, *areas, *scores, *won, str(row.problems)])
    return Grid(head, body, 1)


def of_problem(board: Leaderboard, problem: str) -> Grid:
    """Return the mean regret of every policy on one problem, with intervals over seeds."""
    body, budgets = [], board.budgets(problem)
    for row in board.rows:
        if any(board.runs(problem, row.policy, batches) for batches in budgets):
            body.append([row.policy, *(_regret(board, problem, row.policy, batches) for batches in budgets)])
    return Grid(["policy", *map(budget, budgets)], body, 1)


def _regret(board: Leaderboard, problem: str, policy: str, batches: int | None) -> str:
    """Return the mean regret with its interval, cut at 0: no regret is below, whatever Student's interval says."""
    if not board.runs(problem, policy, batches):
        return NONE
    estimate = board.regret(problem, policy, batches)
    return interval(replace(estimate, low=max(0.0, estimate.low)) if math.isfinite(estimate.low) else estimate, 1)


def scales(board: Leaderboard) -> Grid:
    """Return what is 0 and 1 on each problem."""
    body = []
    for problem in board.problems:
        scale = board.scales[problem]
        who = scale.best if scale.on_record else f"{scale.best}, {budget(scale.batches)}"
        tuned = {True: "yes", False: "no", None: NONE}[tuned_on(problem, board.family[problem])]
        numbers = [f"{scale.zero:.1f}", who, f"{scale.one:.1f}", tuned]
        body.append([problem, str(board.rounds[problem]), board.seeds(problem), *numbers])
    head = ["problem", "T", "seeds", "regret that is 0", "of", "regret that is 1", "a default was tuned on it"]
    return Grid(head, body, 1)


def draw_legend(policies: Sequence[str]) -> Figure:
    """Draw the line of every policy with its name."""
    handles = [Line2D([], [], label=plain_text(name), ms=4, **line_style(i)) for i, name in enumerate(policies)]
    figure = Figure(figsize=(PANEL[0], 0.2 + 0.2 * -(-len(handles) // 2)))
    figure.set_layout_engine("none")
    figure.legend(handles=handles, loc="upper left", ncols=2, fontsize=8)
    return figure


def draw_frontier(board: Leaderboard, problem: str) -> Figure:
    """Draw regret against the budget for every policy, on logarithmic axes, with what is 0 and what is 1."""
    last, budgets, scale = board.rounds[problem], board.budgets(problem), board.scales[problem]
    figure = Figure(figsize=PANEL)
    figure.set_layout_engine("none")  # a constrained layout would take twice as long
    axes = figure.add_axes((0.14, 0.15, 0.84, 0.75))
    rows = [row for row in board.rows if row.policy != "uniform"]
    shown = [scale.zero, scale.one]
    for place, row in enumerate(rows):
        played = [b for b in budgets if board.runs(problem, row.policy, b)]
        estimates = [board.regret(problem, row.policy, b) for b in played]
        means = np.array([one.value for one in estimates])
        ends = np.abs(np.array([(one.low, one.high) for one in estimates]).reshape(-1, 2).T - means)
        at = [(b or last) * DODGE ** (place - (len(rows) - 1) / 2) for b in played]
        ends[~np.isfinite(ends)] = np.nan  # of a single run
        axes.errorbar(at, means, ends, lw=1.2, ms=3.5, elinewidth=0.8, **line_style(place))
        shown.extend(means)
    positive = [value for value in shown if value > 0] or [1.0]
    sequential = scale.best if scale.on_record else "best sequential"
    zero = f"best with B = {scale.batches}" if scale.batches else sequential
    for value, name, align, side in ((scale.one, "uniform", "right", 1.0), (scale.zero, zero, "left", 0.0)):
        axes.axhline(value, color=INK, lw=0.8, ls=(0, (4, 3)), alpha=0.7)
        axes.text(side, value, name, transform=axes.get_yaxis_transform(), ha=align, va="bottom", fontsize=7)
    axes.set(xscale="log", yscale="log", ylim=(min(positive) / BEYOND, max(positive) * BEYOND))
    plain_numbers(axes.yaxis)
    axes.set_xticks([b or last for b in budgets], ["T" if b is None or b == last else str(b) for b in budgets])
    axes.minorticks_off()
    axes.tick_params(labelsize=8)
    axes.set_xlabel("versions B", fontsize=8)
    axes.set_title(plain_text(problem), fontsize=9, loc="left")
    return figure
