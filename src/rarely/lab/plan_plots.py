"""The picture of a plan: what fewer batches cost, and below it how each schedule cuts the rounds into batches."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rarely.lab.advice import TOLERANCES, Plan
from rarely.lab.frontier import KINDS, Kind, Point
from rarely.lab.plots import COLOURS, MARKERS, NAMES, STYLE, plain_numbers

COLOUR: dict[Kind, str] = {"fixed": COLOURS["fixed"], "geometric": "#009E73", "adaptive": COLOURS["adaptive"]}
MARKER: dict[Kind, str] = {"fixed": MARKERS["fixed"], "geometric": "s", "adaptive": MARKERS["adaptive"]}
NAME: dict[Kind, str] = {"fixed": NAMES["fixed"], "geometric": "geometric grid", "adaptive": NAMES["adaptive"]}
MOST_BATCHES = 64
"""Batches that can still be seen in a strip."""


def draw_plan(plan: Plan, path: str | Path) -> None:
    """Draw it as SVG, or whatever the path's suffix says."""
    with matplotlib.rc_context(STYLE):
        strips = [point for point in plan.frontier.points if point.batches <= MOST_BATCHES]
        figure = Figure(figsize=(7, 3.6 + 0.16 * len(strips)))
        above, below = figure.subplots(2, 1, height_ratios=[3.2, 0.3 + 0.16 * len(strips)])
        _frontier(above, plan)
        _strips(below, plan, strips)
        figure.savefig(path, metadata={"Date": None} if Path(path).suffix == ".svg" else None)


def _frontier(axes: Axes, plan: Plan) -> None:
    frontier = plan.frontier
    counts = sorted({point.batches for point in frontier.points})
    for tolerance, grey in zip(sorted(TOLERANCES, reverse=True), ("#eeeeee", "#dddddd"), strict=True):
        axes.axhspan(1e-9, 1 + tolerance, color=grey, zorder=0, lw=0, label=f"within {100 * tolerance:.0f} %")
    axes.axhline(1.0, color="black", lw=0.8)
    lowest, highest = 0.9, 1.2
    for aside, kind in zip((0.96, 1.0, 1.04), KINDS, strict=True):
        points = frontier.of_kind(kind)
        at = np.array([point.batches for point in points]) * aside
        values = np.array([point.ratio.value for point in points])
        if not np.isfinite(values).all():
            continue
        axes.plot(at, [point.smooth for point in points], color=COLOUR[kind], lw=1.2)
        bars = None
        if frontier.runs > 1:
            bars = [values - [p.ratio.low for p in points], [p.ratio.high for p in points] - values]
        look: Any = {"color": COLOUR[kind], "marker": MARKER[kind], "ms": 4, "lw": 0, "elinewidth": 0.9}
        axes.errorbar(at, values, bars, label=NAME[kind], **look)
        highest = max(highest, float(values.max()))
        lowest = min(lowest, float(values.min()))
    axes.set_xscale("log")
    axes.set_yscale("log")
    # Intervals of few runs reach anywhere, and would make the rest too small to see.
    axes.set_ylim(0.85 * lowest, 1.35 * highest)
    plain_numbers(axes.yaxis)
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.minorticks_off()
    axes.set_xlabel("B, batches")
    axes.set_ylabel("regret, in units of sequential's\n(dots: runs, 95 %; lines: smoothed)")
    shorter = f" of {plan.horizon}" if frontier.rounds < plan.horizon else ""
    axes.set_title(f"{frontier.rounds} simulated rounds{shorter}, {frontier.runs} runs, rewards {_ORIGIN[plan.origin]}")
    axes.legend(loc="upper right")


_ORIGIN = {
    "world": "of the world",
    "fitted": "fitted to the log",
    "imagined": "imagined",
    "simulated": "of the simulator",
}


def _strips(axes: Axes, plan: Plan, points: list[Point]) -> None:
    chosen = plan.frontier.enough(TOLERANCES[-1])
    for row, point in enumerate(points):
        starts = [0, *accumulate(point.pattern)][:-1]
        for shade, first in ((0.85, 0), (0.35, 1)):
            spans = list(zip(starts, point.pattern, strict=True))[first::2]
            axes.broken_barh(spans, (row - 0.36, 0.72), facecolor=COLOUR[point.kind], alpha=shade, lw=0)
    axes.set_yticks(range(len(points)), [f"{point.kind} {point.batches}" for point in points], fontsize=6.5)
    for label, point in zip(axes.get_yticklabels(), points, strict=True):
        label.set_fontweight("bold" if point is chosen else "normal")
    axes.set_xlim(0, plan.frontier.rounds)
    axes.set_ylim(len(points) - 0.4, -0.6)
    axes.grid(visible=False)
    axes.set_xlabel("round (each shade a batch; in bold the fewest within 10 %)")
