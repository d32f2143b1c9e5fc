"""The leaderboard as files: everything that can be said from the records of a comparison.

DIR/leaderboard.html  DIR/leaderboard.json
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rarely._core.errors import RarelyError
from rarely._pages.figures import DASHES, drawn, plain_numbers, plain_text
from rarely._pages.page import render
from rarely._pages.svg import INK, PALETTE, inline
from rarely._runs.record import Refusal
from rarely._runs.sealed_json import plain_json
from rarely._runs.statistics import IntervalEstimate
from rarely._runs.writing import write_text
from rarely.compare import tables
from rarely.compare.records import Record, read_records
from rarely.compare.scores import Leaderboard, Results, leaderboard

LINE_COLOURS = (*PALETTE.values(), INK)
LINE_MARKERS = ("o", "s", "^", "D", "v")
PANEL = (3.7, 2.8)
"""Width and height of a figure that stands beside others, in inches."""
DODGE = 0.06
"""How far apart the points of one budget are drawn, in all, as a share of the axis."""
MAX_STRETCH = 2.0
"""The factor by which an axis may be longer than the means need, so that it shows the ends of intervals."""


class NothingToCompare(RarelyError):
    """There are no records, or none with a finite budget."""


class Written(NamedTuple):
    """A written leaderboard."""

    path: Path
    """The HTML file."""
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
    """Write the page, the JSON and perhaps Markdown from the records in `out`."""
    found = read_records(out)
    board = leaderboard(found.records)
    if not board.rows:
        raise NothingToCompare(_why_nothing(board.results, out))
    warnings = found.warnings(out, "page")
    write_text(out / "leaderboard.json", json.dumps(describe(board), indent=1, ensure_ascii=False, allow_nan=False))
    write_text(out / "leaderboard.html", render_page(found.records, board, warnings))
    if markdown_path is not None:
        write_text(markdown_path, render_markdown(found.records, board, warnings))
    return Written(out / "leaderboard.html", board, found.refused)


def _why_nothing(results: Results, out: Path) -> str:
    if not results.problems:
        return f"{out / 'records'} holds no records to compare; rarely compare --out {out} makes some."
    if not results.finite():
        return f"{out / 'records'} holds only runs with B = T; play finite budgets too, such as --budgets 5,20,T."
    if not results.scaled:
        largest = {problem: scale.batches or "T" for problem, scale in results.scales.items()}
        each = ", ".join(f"{problem} with B = {batches}" for problem, batches in largest.items())
        return (
            f"only uniform play is on record, or nothing that beats it ({each}), so regrets cannot be put on a "
            "scale. Play more rounds, or a policy that learns beside yours, such as --policy linucb."
        )
    return (
        f"no policy was played with every budget on record ({', '.join(map(str, results.finite()))}) on any problem; "
        "the same command plays what is missing."
    )


def describe(board: Leaderboard) -> dict[str, Any]:
    """Return the leaderboard as JSON."""
    rows = [asdict(row) for row in board.rows]
    for row in rows:
        row["scores"] = {str(batches or "T"): score for batches, score in row["scores"].items()}
    scales = {problem: asdict(scale) for problem, scale in board.results.scales.items()}
    described: dict[str, Any] = plain_json({"rows": rows, "scales": scales, "left_out": board.unscaled})
    return described


def render_page(records: Sequence[Record], board: Leaderboard, warnings: Sequence[str] = ()) -> str:
    """Return the leaderboard as one HTML file; `warnings` are about the records."""
    problems = board.results.problems
    learning = [row for row in board.rows if row.policy != "uniform"]
    legend = inline(drawn(draw_legend, [row.policy for row in learning]), "Legend")
    return render(
        "rarely.compare",
        "leaderboard.html",
        board=board,
        seeds=len({record.seed for record in records}),
        warnings=warnings,
        legend=legend,
        frontiers=[(inline(drawn(draw_frontier, board, problem), problem), problem) for problem in problems],
        profiles=[(row.policy, tables.profile(board, row)) for row in learning],
        tables=tables,
        records=records,
    )


def render_markdown(records: Sequence[Record], board: Leaderboard, warnings: Sequence[str] = ()) -> str:
    """Return leaderboard, explanation, and a table for each problem."""
    return render("rarely.compare", "leaderboard.md", board=board, warnings=warnings, tables=tables, records=records)


def draw_legend(policies: Sequence[str]) -> Figure:
    """Draw the line of every policy with its name."""
    handles = [Line2D([], [], label=plain_text(name), ms=4, **line_style(i)) for i, name in enumerate(policies)]
    figure = Figure(figsize=(PANEL[0], 0.2 + 0.2 * -(-len(handles) // 2)))
    figure.set_layout_engine("none")
    figure.legend(handles=handles, loc="upper left", ncols=2, fontsize=8)
    return figure


def draw_frontier(board: Leaderboard, problem: str) -> Figure:
    """Draw regret against the budget for every policy, on logarithmic axes, with what is 0 and what is 1."""
    results, last = board.results, board.results.rounds[problem]
    figure = Figure(figsize=PANEL)
    figure.set_layout_engine("none")  # a constrained layout would take twice as long
    axes = figure.add_axes((0.14, 0.15, 0.84, 0.75))
    budgets = results.budgets(problem)
    curves = []
    for place, row in enumerate(row for row in board.rows if row.policy != "uniform"):
        known = [b for b in budgets if results.runs(problem, row.policy, b)]
        if known:
            curves.append((line_style(place), known, [results.regret(problem, row.policy, b) for b in known]))
    scale = results.scales[problem]
    low, high = _span([one for _, _, estimates in curves for one in estimates], scale.zero, scale.one)
    places = [math.log(batches or last) for batches in budgets]
    width = (max(places) - min(places)) or 1.0
    for number, (style, known, estimates) in enumerate(curves):
        # Beside each other, so that intervals do not hide one another.
        shift = DODGE * width * (number - (len(curves) - 1) / 2) / max(len(curves) - 1, 1)
        _draw_curve(axes, style, np.exp([math.log(b or last) + shift for b in known]), estimates, (low, high))
    zero = "best sequential" if scale.batches is None else f"best with B = {scale.batches}"
    for value, name, align, side in ((scale.one, "uniform", "right", 1.0), (scale.zero, zero, "left", 0.0)):
        if low <= value <= high:
            axes.axhline(value, color=INK, lw=0.8, ls=(0, (4, 3)), alpha=0.7)
            axes.text(side, value, name, transform=axes.get_yaxis_transform(), ha=align, va="bottom", fontsize=7)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    plain_numbers(axes.yaxis)
    axes.set_xticks([b or last for b in budgets], ["T" if b is None or b == last else str(b) for b in budgets])
    axes.minorticks_off()
    axes.tick_params(labelsize=8)
    axes.set_xlabel("versions B", fontsize=8)
    axes.set_title(plain_text(problem), fontsize=9, loc="left")
    return figure


def _span(estimates: Sequence[IntervalEstimate], zero: float, one: float) -> tuple[float, float]:
    """Return an axis that shows all means, and the ends of intervals where they are not far."""
    values = [value for value in (*(each.value for each in estimates), zero, one) if value > 0]
    least, most = min(values, default=1.0), max(values, default=1.0)
    ends = [end for each in estimates for end in (each.low, each.high)]
    ends = [end for end in ends if least / MAX_STRETCH <= end <= most * MAX_STRETCH]
    low = min([least / 1.25, *(end / 1.1 for end in ends)])
    return low, max(most, low * 2, *ends) * 1.15


def _draw_curve(
    axes: Axes, style: dict[str, Any], at: Any, estimates: Sequence[IntervalEstimate], ends: tuple[float, float]
) -> None:
    means = [max(one.value, ends[0]) for one in estimates]
    axes.plot(at, means, lw=1.2, ms=3.5, **style)
    for x, one in zip(at, estimates, strict=True):
        if math.isfinite(one.low) and math.isfinite(one.high):
            low, high = max(one.low, ends[0]), min(one.high, ends[1])
            axes.plot([x, x], [low, high], color=style["color"], lw=0.8, alpha=0.5)
            # An arrow where an interval continues beyond the axis.
            for end, marker in ((high, "^"), (low, "v")):
                if end in ends:
                    axes.plot([x], [end], marker, color=style["color"], ms=3, alpha=0.5, clip_on=False)
