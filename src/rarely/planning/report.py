"""A plan as files in one folder: plan.json, plan.svg and plan.html.

The figure shows what fewer batches cost; of a trial, power and width over patients.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from rarely.pages.figures import COLOURS, MARKERS, NAMES, drawn
from rarely.pages.grid import Grid
from rarely.pages.page import render
from rarely.pages.svg import INK, inline
from rarely.planning.frontier import Frontier, Point
from rarely.planning.planner import REWARDS, TOLERANCE, Plan, share_of
from rarely.planning.trial import TrialPlan
from rarely.runs.files import make_folder, write_file
from rarely.runs.statistics import IntervalEstimate

HEAD = ["schedule", "B", "versions used", "regret", "share of the gain", "at least 90 %", "batch lengths"]
MAX_LENGTHS = 12  # batch lengths that a table has room for
CAPTION = "Share of the possible gain that each number of batches brings."
TRIAL_CAPTION = (
    "Power, or errors where no arm is better, and width over patients; dashed: what is wanted or planned, dotted: the "
    "power of anytime intervals."
)


def write_plan(plan: Plan | TrialPlan, folder: Path) -> list[Path]:
    """Write all three files, and return their paths."""
    picture = drawn(draw_plan, plan) if isinstance(plan, Plan) else drawn(draw_trial, plan)
    make_folder(folder)
    text = json.dumps(plan.describe(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    files = {"plan.json": text, "plan.svg": picture, "plan.html": render_page(plan, picture)}
    for name, content in files.items():
        write_file(folder / name, content)
    return [folder / name for name in files]


def render_page(plan: Plan | TrialPlan, picture: str) -> str:
    """Return the plan as one HTML file, with the figure inside."""
    if isinstance(plan, TrialPlan):
        shown: dict[str, Any] = {"advice": plan.advice(), "grid": plan.grid(), "caption": TRIAL_CAPTION}
        return render("rarely.planning", "trial.html", plan=plan, picture=inline(picture, TRIAL_CAPTION), **shown)
    schedules = Grid(HEAD, [_row(plan.frontier, point) for point in plan.frontier.points], 1)
    shown = {"sequential": _interval(plan.frontier.sequential), "schedules": schedules, "caption": CAPTION}
    return render("rarely.planning", "plan.html", plan=plan, picture=inline(picture, CAPTION), **shown)


def draw_trial(plan: TrialPlan) -> Figure:
    """Draw power and width over patients, a line for each number of looks; where no arm is better, errors for power."""
    figure = Figure(figsize=(5.4, 4.4))
    above, below = figure.subplots(2, 1, sharex=True)
    null = all(math.isnan(point.power) for point in plan.points)
    for rule, looks in dict.fromkeys((point.policy, point.looks) for point in plan.points):
        points = [point for point in plan.points if (point.policy, point.looks) == (rule, looks)]
        at = [point.patients for point in points]
        share, low, high = np.array(
            [(p.error, p.error_low, p.error_high) if null else (p.power, p.low, p.high) for p in points]
        ).T
        # An interval that ends at 1 may end a rounding error below the power.
        bars = np.maximum([share - low, high - share], 0.0)
        line, *_ = above.errorbar(at, share, bars, marker="o", ms=4, lw=1, label=f"{rule}, looks: {looks}")
        below.plot(at, [point.width for point in points], marker="o", ms=4, lw=1)
        above.plot(at, [p.anytime for p in points], ls=":", lw=1, color=line.get_color())
    for axes, wanted in ((above, 1 - plan.level if null else plan.power), (below, plan.width)):
        if wanted is not None:
            axes.axhline(wanted, color=INK, lw=0.8, ls="--")
    shows = "errors" if null else "power"
    above.set(ylabel=f"{shows} (95 % intervals)", ylim=(0, None if null else 1.03))
    below.set(xlabel="patients", ylabel="width of the last interval", ylim=(0, 1.05 * below.get_ylim()[1]))
    above.legend(fontsize=7.5)
    return figure


def _row(frontier: Frontier, point: Point) -> list[str]:
    name = point.kind if point.log_ratio is None else f"{point.kind}, log q = {point.log_ratio:.3g}"
    lengths = ", ".join(map(str, point.pattern[:MAX_LENGTHS])) + (", …" if len(point.pattern) > MAX_LENGTHS else "")
    words = {"within": "surely", "outside": "surely not", "undecided": "inconclusive"}
    verdict = words[frontier.verdict(point, TOLERANCE)]
    share = share_of(point) if frontier.gains else ""
    return [name, str(point.batches), f"{point.used:.4g}", _interval(point.regret), share, verdict, lengths]


def _interval(estimate: IntervalEstimate) -> str:
    ends = f" ({estimate.low:.1f} to {estimate.high:.1f})" if math.isfinite(estimate.high) else ""
    return f"{estimate.value:.1f}{ends}"


def draw_plan(plan: Plan) -> Figure:
    """Draw the share of the possible gain against the number of batches."""
    figure, frontier = Figure(figsize=(5.4, 3.7)), plan.frontier
    axes = figure.subplots()
    axes.axhline(1.0, color=INK, lw=0.8)
    axes.axhspan(1 - TOLERANCE, 1.0, color=INK, alpha=0.08, zorder=0, lw=0, label=f"within {100 * TOLERANCE:.0f} %")
    axes.set_xscale("log")
    asides = np.linspace(0.96, 1.04, len(frontier.kinds))
    values = [1 - point.lost.value for point in frontier.points if math.isfinite(point.lost.value)]
    bottom = max(-1.0, min([0.0, *values]) - 0.05)
    for aside, kind in zip(asides, frontier.kinds, strict=True):
        points = [point for point in frontier.of_kind(kind) if math.isfinite(point.lost.value)]
        at = np.array([point.batches for point in points]) * aside
        share, low, high = (1 - np.array([getattr(p.lost, end) for p in points]) for end in ("value", "high", "low"))
        axes.plot(at, share, color=COLOURS[kind], lw=0.8, alpha=0.5)
        ends = np.maximum([share - low.clip(bottom), high.clip(max=1.15) - share], 0.0)
        bars = ends if frontier.runs >= 3 else None
        look: Any = {"color": COLOURS[kind], "marker": MARKERS[kind], "ms": 4, "lw": 0, "elinewidth": 0.9}
        axes.errorbar(at, share, bars, label=NAMES[kind], **look)
    counts = sorted({point.batches for point in frontier.points})
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.minorticks_off()
    axes.set(xlabel="B, batches", ylabel="share of the possible gain", ylim=(bottom, 1.15))
    shorter = f" of {plan.horizon}" if frontier.rounds < plan.horizon else ""
    said = "one run" if frontier.runs == 1 else f"{frontier.runs} runs"
    axes.set_title(f"{frontier.rounds} simulated rounds{shorter}, {said}, {REWARDS[plan.origin]}", fontsize=9)
    # Below the axes: inside, it would cover some bar.
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=5, fontsize=7.5, columnspacing=0.8, handletextpad=0.4
    )
    return figure
