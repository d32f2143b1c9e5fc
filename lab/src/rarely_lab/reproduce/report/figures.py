"""The figures, drawn from results alone.

All are narrow enough for a phone, where they are as wide as the screen, and stand side by side elsewhere.

box        total regret of every configuration: solid line median, dashed line mean, whiskers from the least to the
           most (log for cosine); the runs themselves where there are few
scatter    regret against processor time, 5 runs picked at random
curves     mean regret against rounds, 95 % bands, a tick under the axis at every update of one run
frontier   regret against the number of updates, a figure for each preset with all problems
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rarely.pages.figures import COLOURS, DASHES, MARKERS, NAMES, plain_numbers, plain_text
from rarely.pages.svg import INK
from rarely.runs.statistics import mean
from rarely_lab.reproduce.catalogue import GROWTH
from rarely_lab.reproduce.config import Kind
from rarely_lab.reproduce.report.results import Comparison, Series, by_preset

WIDTH = 5.2
MIN_RUNS_FOR_BOX = 5  # fewer runs are shown one by one: quartiles and intervals of so few say little
MAX_TICKS = 400  # ticks that can still be distinguished; more updates are drawn as one line


def figures(comparisons: Sequence[Comparison]) -> dict[str, Callable[[], Figure]]:
    """Return the figures by name, each as a function that draws it."""
    plain = [c for c in comparisons if c.problem not in GROWTH]
    out: dict[str, Callable[[], Figure]] = {}
    for c in plain:
        for name, draw in (("box", box), ("scatter", scatter), ("curves", curves)):
            if name != "scatter" or c.has_times:
                out[f"{c.problem}-{c.preset}-{name}"] = partial(draw, c)
    return out | {f"frontier-{preset}": partial(frontier, mine) for preset, mine in by_preset(plain).items()}


def box(comparison: Comparison) -> Figure:
    """Draw the paper's box plot; of few runs, the runs themselves with their mean."""
    series = list(comparison.series.values())
    figure = Figure(figsize=(WIDTH, 1.0 + 0.21 * len(series)))
    axes = figure.add_subplot()
    few = max(len(s.runs) for s in series) < MIN_RUNS_FOR_BOX
    if few:
        for row, s in enumerate(series, 1):
            axes.plot(s.regrets, [row] * len(s.runs), MARKERS[s.kind], color=COLOURS[s.kind], ms=4, alpha=0.75, mew=0)
            axes.plot([s.regret.value] * 2, [row - 0.35, row + 0.35], color=INK, lw=1.1, ls=(0, (2.5, 1.5)))
    else:
        parts = axes.boxplot(
            [s.regrets for s in series], orientation="horizontal", whis=(0, 100), widths=0.62, patch_artist=True,
            medianprops={"color": INK, "linewidth": 1.4}, showmeans=True, meanline=True,
            meanprops={"color": INK, "linewidth": 1.1, "linestyle": (0, (2.5, 1.5))},
        )  # fmt: skip
        for patch, s in zip(parts["boxes"], series, strict=True):
            patch.set(facecolor=COLOURS[s.kind], alpha=0.3 if s.kind == "neuralucb" else 0.55)
    axes.set_yticks(range(1, len(series) + 1), [f"{s.label}  ({len(s.runs)})" for s in series], fontsize=7.5)
    axes.set_ylim(len(series) + 0.6, 0.4)
    if comparison.base == "cosine" and min(min(s.regrets) for s in series) > 0:
        axes.set_xscale("log")
        plain_numbers(axes.xaxis)
    lines = "a dot a run, dashed line mean" if few else "solid line median, dashed line mean"
    figure.supxlabel(f"total regret (number of runs in brackets; {lines})", fontsize=8)
    axes.set_title(_title(comparison))
    return figure


def scatter(comparison: Comparison) -> Figure:
    """Draw the paper's scatter plot: 5 runs picked at random, or all if there are fewer; B and log q at the side."""
    clocks = [clock.runs for clock in map(comparison.timed, comparison.series.values())]
    seeds = np.random.default_rng(5).permutation(sorted({seed for runs in clocks for seed in runs})).tolist()
    figure = Figure(figsize=(WIDTH, 4.6))
    axes = figure.add_subplot()
    named: dict[tuple[float, float], Series] = {}
    for series, clock in zip(comparison.series.values(), clocks, strict=True):
        runs = [clock[seed] for seed in seeds if seed in clock][:5]
        points = np.array([(run.seconds, run.regret) for run in runs]).reshape(-1, 2)
        label = NAMES[series.kind] if runs and all(one.kind != series.kind for one in named.values()) else None
        style: dict[str, Any] = {"marker": MARKERS[series.kind], "color": COLOURS[series.kind], "alpha": 0.75}
        axes.scatter(points[:, 0], points[:, 1], s=18, lw=0, label=label, **style)
        if runs:
            x, y = np.exp(np.log(np.maximum(points, 1e-9)).mean(axis=0)).tolist()
            named[y, x] = series
    axes.set(xscale="log", yscale="log", xlabel="processor time of the run, s", ylabel="total regret")
    # In the order of the regrets, each with a line to the middle of its runs.
    for place, (y, x) in enumerate(sorted(named)):
        c, colour = named[y, x].configuration, COLOURS[named[y, x].kind]
        ratio = "" if c.log_ratio is None else f", log q {c.log_ratio:g}"
        kind = "default " if c.kind == "default" else ""
        name, at = f"{kind}B {c.batches}{ratio}" if c.batches else named[y, x].label, (place + 0.5) / len(named)
        line = {"arrowstyle": "-", "lw": 0.35, "color": colour, "shrinkA": 0, "shrinkB": 0}
        where: dict[str, Any] = {"xytext": (1.02, at), "textcoords": "axes fraction", "va": "center"}
        axes.annotate(name, (x, y), fontsize=6.5, color=colour, arrowprops=line, **where)
    plain_numbers(axes.xaxis, axes.yaxis)
    figure.legend(loc="outside lower center", ncols=3, fontsize=7.5)
    some = ": at most 5 runs of each configuration" if max(map(len, clocks), default=0) > 5 else ""
    axes.set_title(_title(comparison) + some, fontsize=9)
    return figure


def curves(comparison: Comparison) -> Figure:
    """Draw mean regret against rounds with 95 % bands, and below when each configuration updated."""
    shown = _representative(comparison)
    figure = Figure(figsize=(WIDTH, 3.9 + 0.16 * len(shown)))
    axes, rug = figure.subplots(2, 1, sharex=True, height_ratios=[3.4, 0.3 + 0.16 * len(shown)])
    for series, dash in shown:
        rounds, every = series.curves()
        centre = every.mean(axis=0)
        style: dict[str, Any] = {"color": COLOURS[series.kind], "linestyle": dash}
        axes.plot(rounds, centre, label=series.label, lw=1.4, **style)
        if len(every) > 2:  # the band of two runs would fill the page
            ends = np.array([(e.low, e.high) for e in map(mean, every.T)]).T
            band = np.where(np.isfinite(ends), ends, centre)  # equal runs have no band
            axes.fill_between(rounds, *band, color=COLOURS[series.kind], alpha=0.08, lw=0)
    axes.set_yscale("symlog", linthresh=max(1.0, 0.02 * axes.get_ylim()[1]))
    axes.set(ylim=(0, None), ylabel="mean regret so far, 95 % band", title=_title(comparison))
    plain_numbers(axes.yaxis)
    draw_updates(rug, [series for series, _ in shown], fontsize=6.5)
    rug.set_xlabel("round (a tick: an update, first run)")
    figure.legend(loc="outside lower center", ncols=2, fontsize=7)
    return figure


def draw_updates(rug: Axes, series: Sequence[Series], fontsize: float) -> None:
    """Draw a row for each series, with a tick at every update of its first run."""
    for row, each in enumerate(series):
        updates, colour = next(iter(each.runs.values())).updates, COLOURS[each.kind]
        if len(updates) > MAX_TICKS:
            rug.plot([updates[0], updates[-1]], [row, row], color=colour, lw=4, solid_capstyle="butt", alpha=0.6)
        else:
            # One path with gaps: a marker for each tick would make the file ten times larger.
            at, ends = np.repeat(np.array(updates, float), 3), np.tile([row - 0.35, row + 0.35, np.nan], len(updates))
            at[2::3] = np.nan
            rug.plot(at, ends, color=colour, lw=0.5)
    rug.set_yticks(range(len(series)), [each.label for each in series], fontsize=fontsize)
    rug.set_ylim(len(series) - 0.5, -0.5)
    rug.grid(visible=False)


def frontier(comparisons: Sequence[Comparison]) -> Figure:
    """Draw regret against the number of versions in one preset, a panel for each problem."""
    columns = min(2, len(comparisons))
    rows = -(-len(comparisons) // columns)
    figure = Figure(figsize=(WIDTH, 0.8 + 2.2 * rows))
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(comparisons) :]:
        axes.set_visible(False)
    for axes, comparison in zip(grid.flat, comparisons, strict=False):
        _panel(axes, comparison)
    for axes in grid[:, 0]:
        axes.set_ylabel("mean total regret", fontsize=8)
    present = {series.kind for c in comparisons for series in c.series.values()}
    looks = [(COLOURS[kind], MARKERS[kind], NAMES[kind]) for kind in NAMES if kind in present]
    handles = [Line2D([], [], color=colour, marker=marker, lw=0, label=name) for colour, marker, name in looks]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=7.5, columnspacing=1.0)
    return figure


def _panel(axes: Axes, comparison: Comparison) -> None:
    series = list(comparison.series.values())
    low, high = _room(series)
    for s in series:
        mark: dict[str, Any] = {"color": COLOURS[s.kind], "marker": MARKERS[s.kind], "alpha": 0.8}
        estimate, at = s.regret, s.updates + 1
        if len(s.runs) >= MIN_RUNS_FOR_BOX:
            # A whisker that reaches below 0 must leave the panel, not end inside it.
            bars = [[estimate.value - max(estimate.low, low / 10)], [estimate.high - estimate.value]]
            axes.errorbar([at], [estimate.value], yerr=bars, ms=4, lw=0.8, **mark)
        else:
            axes.plot([at], [estimate.value], ms=4.5, lw=0, **mark)
            axes.plot([at] * len(s.runs), s.regrets, ".", ms=2.5, color=COLOURS[s.kind], alpha=0.6, mew=0)
    axes.set(xscale="log", yscale="log", ylim=(low, high))
    plain_numbers(axes.xaxis, axes.yaxis)
    axes.tick_params(labelsize=7)
    axes.set_xlabel("versions (updates + 1)", fontsize=8)
    axes.set_title(_title(comparison), fontsize=9)


def _room(series: Sequence[Series]) -> tuple[float, float]:
    """Return an axis that shows the means, single runs where they are few, and the whiskers above 0."""
    ends = [r for s in series if len(s.runs) < MIN_RUNS_FOR_BOX for r in s.regrets] + [s.regret.value for s in series]
    ends += [end for s in series if len(s.runs) >= MIN_RUNS_FOR_BOX for end in (s.regret.low, s.regret.high)]
    seen = [end for end in ends if end > 0] or [1.0]
    return 0.85 * max(min(seen), 0.1 * min(s.regret.value or 1.0 for s in series)), 1.15 * max(seen)


def _representative(comparison: Comparison) -> list[tuple[Series, Any]]:
    """Choose few enough lines to distinguish, with their dashes: the best LinUCB, the middle log q."""
    ratios = sorted({s.configuration.log_ratio or 0.0 for s in comparison.of_kind("adaptive")})
    middle = ratios[len(ratios) // 2] if ratios else None
    dashes: dict[Kind, Iterator[Any]] = defaultdict(partial(cycle, DASHES))
    return [
        (series, next(dashes[series.kind]))
        for series in comparison.series.values()
        if not series.name.endswith("-fair")
        if series.kind != "adaptive" or series.configuration.log_ratio == middle
    ]


def _title(comparison: Comparison) -> str:
    return f"{plain_text(comparison.problem)}, {comparison.preset}"
