"""The picture of a plan: what fewer batches cost, and below it how each schedule cuts the rounds into batches."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rarely.planning.frontier import CONFIDENCE, Point
from rarely.planning.plan import TOLERANCES, Plan
from rarely.planning.simulate import KINDS, Kind
from rarely.simulation.plot_style import COLOURS, MARKERS, NAMES, STYLE, plain_numbers

COLOUR: dict[Kind, str] = {"fixed": COLOURS["fixed"], "geometric": "#009E73", "adaptive": COLOURS["adaptive"]}
MARKER: dict[Kind, str] = {"fixed": MARKERS["fixed"], "geometric": "s", "adaptive": MARKERS["adaptive"]}
NAME: dict[Kind, str] = {"fixed": NAMES["fixed"], "geometric": "geometric grid", "adaptive": NAMES["adaptive"]}
MOST_BATCHES = 64
"""Batches that can still be seen in a strip."""


def draw_plan(plan: Plan, path: str | Path) -> None:
    """Draw it as SVG, or whatever the path's suffix says."""
    with matplotlib.rc_context(STYLE):
        strips = [point for point in plan.frontier.points if point.batches <= MOST_BATCHES]
        figure = Figure(figsize=(8, 3.6 + 0.16 * len(strips)))
        above, below = figure.subplots(2, 1, height_ratios=[3.2, 0.3 + 0.16 * len(strips)])
        _frontier(above, plan)
        _strips(below, plan, strips)
        figure.savefig(path, metadata={"Date": None} if Path(path).suffix == ".svg" else None)


def _frontier(axes: Axes, plan: Plan) -> None:
    frontier = plan.frontier
    counts = sorted({point.batches for point in frontier.points})
    for tolerance, grey in zip(sorted(TOLERANCES, reverse=True), ("#eeeeee", "#dddddd"), strict=True):
        axes.axhspan(1e-2, 1 + tolerance, color=grey, zorder=0, lw=0, label=f"within {100 * tolerance:.0f} %")
    axes.axhline(1.0, color="black", lw=0.8)
    lowest, highest = 0.9, 1.2
    drawn: dict[Kind, tuple[Any, Any, tuple[Point, ...]]] = {}
    for aside, kind in zip((0.96, 1.0, 1.04), KINDS, strict=True):
        points = frontier.of_kind(kind)
        at = np.array([point.batches for point in points]) * aside
        values = np.array([point.ratio.value for point in points])
        if not np.isfinite(values).all():
            continue
        highest, lowest = max(highest, float(values.max())), min(lowest, float(values.min()))
        drawn[kind] = (at, values, points)
    axes.set_xscale("log")
    axes.set_yscale("log")
    # Intervals of few runs reach anywhere, and would make the rest too small to see: arrows say that they go on.
    bottom, top = 0.8 * lowest, 1.35 * highest
    axes.set_ylim(bottom, top)
    for kind, (at, values, points) in drawn.items():
        axes.plot(at, values, color=COLOUR[kind], lw=0.8, alpha=0.5)
        low = np.array([point.ratio.low for point in points]).clip(bottom)
        high = np.array([point.ratio.high for point in points]).clip(max=top)
        bars = [values - low, high - values] if frontier.runs >= 3 else None
        look: Any = {"color": COLOUR[kind], "marker": MARKER[kind], "ms": 4, "lw": 0, "elinewidth": 0.9}
        axes.errorbar(at, values, bars, label=NAME[kind], **look)
        if bars is not None:
            arrow: Any = {"color": COLOUR[kind], "s": 22, "lw": 0}
            axes.scatter(at[high >= top], 0.96 * high[high >= top], marker="^", **arrow)
            axes.scatter(at[low <= bottom], 1.04 * low[low <= bottom], marker="v", **arrow)
    plain_numbers(axes.yaxis)
    steps = (0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.5, 2, 3, 5, 7, 10, 20, 50, 100)
    axes.set_yticks([step for step in steps if bottom <= step <= top])
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.minorticks_off()
    axes.set_xlabel("B, batches")
    axes.set_ylabel(f"regret, in units of sequential's\n({100 * CONFIDENCE:.0f} % intervals)")
    shorter = f" of {plan.horizon}" if frontier.rounds < plan.horizon else ""
    axes.set_title(f"{frontier.rounds} simulated rounds{shorter}, {frontier.runs} runs, rewards {_ORIGIN[plan.origin]}")
    # Beside the axes: inside, it would lie over some bar.
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))


_ORIGIN = {
    "world": "of the world",
    "fitted": "fitted to the log",
    "imagined": "imagined",
    "simulated": "of the simulator",
}


def _strips(axes: Axes, plan: Plan, points: list[Point]) -> None:
    most = TOLERANCES[-1]
    chosen = None if plan.withheld else plan.frontier.enough(most, surely=True) or plan.frontier.enough(most)
    bold = ""
    if chosen is not None:
        sure = "surely" if plan.frontier.verdict(chosen, most) == "within" else "perhaps"
        bold = f"; in bold the fewest {sure} within {100 * most:.0f} %"
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
    axes.set_xlabel(f"round (each shade a batch{bold})")
