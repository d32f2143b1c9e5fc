"""The figures, drawn from results alone; the only module that draws them.

All are narrow enough for a telephone, where they are as wide as the screen, and stand side by side elsewhere.

box        total regret of every configuration: solid line median, dashed line mean, whiskers from the least to the
           most (log for cosine); the runs themselves where there are few
scatter    regret against processor time, 5 runs picked at random
curves     mean regret against rounds, 95 % bands, a tick under the axis at every update of one run
logdet     growth of log det Z in one run, a dot at every batch's end
frontier   regret against the number of updates, a figure for each preset with all problems
growth     the B that each scheme needs against T
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rarely.experiments.config import Kind
from rarely.experiments.report.growth import growth_problem, needed
from rarely.experiments.report.results import Comparison, Series
from rarely.simulation.plot_style import COLOURS, DASHES, MARKERS, NAMES, STYLE, plain_numbers
from rarely.simulation.statistics import mean, t_quantile
from rarely.simulation.writing import make_folder, writing

WIDTH = 5.2
FEW = 5
"""Fewer runs than this are shown one by one: of so few, quartiles and intervals say little."""
RARE = 400
"""Ticks that can be told apart; more updates are drawn as one line."""
DOTS = 60
"""Ends of batches shown of a run; of more, every second, third and so on."""


def draw_all(comparisons: Sequence[Comparison], folder: Path) -> Iterator[Path]:
    """Draw every figure as PNG and SVG; yields the path of each SVG when it is there."""
    make_folder(folder)
    with matplotlib.rc_context(STYLE):
        for name, draw in _figures(comparisons):
            yield _save(draw(), folder / f"{name}.svg")


def count(comparisons: Iterable[Comparison]) -> int:
    """How many figures `draw_all` draws."""
    return len(list(_figures(list(comparisons))))


def _figures(comparisons: Sequence[Comparison]) -> Iterator[tuple[str, Callable[[], Figure]]]:
    plain = [c for c in comparisons if not growth_problem(c.problem)]
    for c in plain:
        for name, draw in (("box", box), ("scatter", scatter), ("curves", curves), ("logdet", log_det)):
            yield f"{c.problem}-{c.preset}-{name}", partial(draw, c)
    for preset in dict.fromkeys(c.preset for c in plain):
        mine = [c for c in plain if c.preset == preset]
        yield f"frontier-{preset}", partial(frontier, mine)
    for preset in dict.fromkeys(c.preset for c in comparisons if growth_problem(c.problem)):
        mine = [c for c in comparisons if c.preset == preset and growth_problem(c.problem)]
        yield f"growth-{preset}", partial(growth, mine)


def box(comparison: Comparison) -> Figure:
    """The paper's box plot; of few runs the runs themselves, with their mean."""
    series = list(comparison.series.values())
    figure = Figure(figsize=(WIDTH, 1.0 + 0.21 * len(series)))
    axes = figure.add_subplot()
    few = max(len(s.runs) for s in series) < FEW
    (_points if few else _boxes)(axes, series)
    axes.set_yticks(range(1, len(series) + 1), [f"{s.label}  ({len(s.runs)})" for s in series], fontsize=7.5)
    axes.set_ylim(len(series) + 0.6, 0.4)
    if comparison.base == "cosine" and min(min(s.regrets) for s in series) > 0:
        axes.set_xscale("log")
        plain_numbers(axes.xaxis)
    lines = "a dot a run, dashed line mean" if few else "solid line median, dashed line mean"
    figure.supxlabel(f"total regret (runs in brackets; {lines})", fontsize=8)
    axes.set_title(_title(comparison))
    return figure


def _boxes(axes: Axes, series: Sequence[Series]) -> None:
    parts = axes.boxplot(
        [s.regrets for s in series],
        orientation="horizontal",
        whis=(0, 100),
        showmeans=True,
        meanline=True,
        widths=0.62,
        patch_artist=True,
        medianprops={"color": "black", "linewidth": 1.4},
        meanprops={"color": "black", "linewidth": 1.1, "linestyle": (0, (2.5, 1.5))},
    )
    for patch, s in zip(parts["boxes"], series, strict=True):
        patch.set(facecolor=COLOURS[s.kind] if s.kind != "neuralucb" else "#bbbbbb", alpha=0.55)


def _points(axes: Axes, series: Sequence[Series]) -> None:
    for row, s in enumerate(series, 1):
        axes.plot(s.regrets, [row] * len(s.runs), MARKERS[s.kind], color=COLOURS[s.kind], ms=4, alpha=0.75, mew=0)
        centre = s.regret.value
        axes.plot([centre, centre], [row - 0.35, row + 0.35], color="black", lw=1.1, ls=(0, (2.5, 1.5)))


def scatter(comparison: Comparison) -> Figure:
    """The paper's scatter plot: 5 runs picked at random, or all where there are fewer."""
    seeds = comparison.seeds
    chosen = set(np.random.default_rng(5).permutation(seeds)[:5].tolist())
    figure = Figure(figsize=(WIDTH, 3.9))
    axes = figure.add_subplot()
    kinds: tuple[Kind, ...] = get_args(Kind)
    for kind in kinds:
        points = [
            (record.seconds, record.regret)
            for series in comparison.of_kind(kind)
            for seed, record in series.runs.items()
            if seed in chosen
        ]
        if points:
            x, y = zip(*points, strict=True)
            axes.scatter(x, y, s=22, marker=MARKERS[kind], color=COLOURS[kind], alpha=0.75, label=NAMES[kind], lw=0)
    axes.set_xscale("log")
    axes.set_yscale("log")
    plain_numbers(axes.xaxis, axes.yaxis)
    axes.set_xlabel("processor time of the run, s")
    axes.set_ylabel("total regret")
    figure.legend(loc="outside lower center", ncols=3, fontsize=7.5)
    some = f": {len(chosen)} of {len(seeds)} runs, picked at random" if len(chosen) < len(seeds) else ""
    axes.set_title(_title(comparison) + some, fontsize=9)
    return figure


def curves(comparison: Comparison) -> Figure:
    """Mean regret against rounds with 95 % bands; below, when each configuration updated."""
    shown = _representative(comparison)
    figure = Figure(figsize=(WIDTH, 3.9 + 0.16 * len(shown)))
    axes, rug = figure.subplots(2, 1, sharex=True, height_ratios=[3.4, 0.3 + 0.16 * len(shown)])
    for row, (series, dash) in enumerate(shown):
        rounds, every = series.curves()
        centre = every.mean(axis=0)
        style: dict[str, Any] = {"color": COLOURS[series.kind], "linestyle": dash}
        axes.plot(rounds, centre, label=series.label, lw=1.4, **style)
        if len(every) > 2:  # of two runs a band would fill the page
            half = t_quantile(len(every) - 1) * every.std(axis=0, ddof=1) / np.sqrt(len(every))
            axes.fill_between(rounds, centre - half, centre + half, color=COLOURS[series.kind], alpha=0.08, lw=0)
        _ticks(rug, next(iter(series.runs.values())).updates, row, COLOURS[series.kind])
    axes.set_yscale("symlog", linthresh=max(1.0, 0.02 * axes.get_ylim()[1]))
    axes.set_ylim(bottom=0)
    plain_numbers(axes.yaxis)
    axes.set_ylabel("mean regret so far, 95 % band")
    rug.set_yticks(range(len(shown)), [s.label for s, _ in shown], fontsize=6.5)
    rug.set_ylim(len(shown) - 0.5, -0.5)
    rug.grid(visible=False)
    rug.set_xlabel("round (a tick: an update, first run)")
    axes.set_title(_title(comparison))
    figure.legend(loc="outside lower center", ncols=2, fontsize=7)
    return figure


def _ticks(rug: Axes, updates: Sequence[int], row: int, colour: str) -> None:
    if len(updates) > RARE:
        rug.plot([updates[0], updates[-1]], [row, row], color=colour, lw=4, solid_capstyle="butt", alpha=0.6)
    else:
        # One path with gaps: a marker for each tick would take ten times the room.
        at, ends = np.repeat(np.array(updates, float), 3), np.tile([row - 0.35, row + 0.35, np.nan], len(updates))
        at[2::3] = np.nan
        rug.plot(at, ends, color=colour, lw=0.5)


def log_det(comparison: Comparison) -> Figure:
    """log det Z of one run with a dot at every batch's end, and by how much each batch let it grow."""
    figure = Figure(figsize=(WIDTH, 4.0))
    whole, each = figure.subplots(1, 2)
    for series, dash in _representative(comparison):
        if series.kind in ("linucb", "linucb-intercept"):
            continue
        record = next(iter(series.runs.values()))
        colour = COLOURS[series.kind]
        whole.plot(*record.log_det_points.T, lw=1.0, color=colour, linestyle=dash)
        ends = np.array([[0, 0.0], *zip(record.updates, record.data["updates"]["log_det"], strict=True)])
        label = f"{series.label}: {len(record.updates)} updates"
        grown = np.stack([ends[1:, 0], np.diff(ends[:, 1])])[:, :: max(1, len(ends) // DOTS)]
        each.plot(*grown, lw=0.8, color=colour, linestyle=dash, label=label)
        if series.kind != "neuralucb":
            whole.plot(*ends[1 :: max(1, len(ends) // DOTS)].T, ".", color=colour, ms=3.5)
    for axes in (whole, each):
        axes.set_xlabel("round", fontsize=8)
        axes.tick_params(labelsize=7)
    each.set_yscale("log")
    plain_numbers(each.yaxis)
    whole.set_title("log det Z − log det λI", fontsize=8)
    each.set_title("its growth in each batch, first run", fontsize=8)
    figure.suptitle(_title(comparison), fontsize=9.5)
    if each.lines:
        figure.legend(loc="outside lower center", ncols=2, fontsize=7)
    return figure


def frontier(comparisons: Sequence[Comparison]) -> Figure:
    """Regret against the number of versions in one preset, a panel for each problem."""
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
    handles = [
        Line2D([], [], color=COLOURS[kind], marker=MARKERS[kind], lw=0, label=NAMES[kind])
        for kind in NAMES
        if kind in present
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=7.5, columnspacing=1.0)
    return figure


def _panel(axes: Axes, comparison: Comparison) -> None:
    series = list(comparison.series.values())
    low, high = _room(series)
    for s in series:
        mark: dict[str, Any] = {"color": COLOURS[s.kind], "marker": MARKERS[s.kind], "alpha": 0.8}
        estimate, at = s.regret, s.updates + 1
        if len(s.runs) >= FEW:
            # Beyond the axis a whisker goes on: it is cut where the panel ends, never where the interval does not.
            below = estimate.value - max(estimate.low, low / 10)
            axes.errorbar(
                [at], [estimate.value], yerr=[[below], [estimate.high - estimate.value]], ms=4, lw=0.8, **mark
            )
        else:
            axes.plot([at], [estimate.value], ms=4.5, lw=0, **mark)
            axes.plot([at] * len(s.runs), s.regrets, ".", ms=2.5, color=COLOURS[s.kind], alpha=0.6, mew=0)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    plain_numbers(axes.xaxis, axes.yaxis)
    axes.tick_params(labelsize=7)
    axes.set_xlabel("versions (updates + 1)", fontsize=8)
    axes.set_title(_title(comparison), fontsize=9)


def _room(series: Sequence[Series]) -> tuple[float, float]:
    """The span of the means, of the runs where they are few, and of the whiskers that end above 0."""
    ends = [r for s in series if len(s.runs) < FEW for r in s.regrets] + [s.regret.value for s in series]
    ends += [end for s in series if len(s.runs) >= FEW for end in (s.regret.low, s.regret.high)]
    seen = [end for end in ends if end > 0] or [1.0]
    return 0.85 * max(min(seen), 0.1 * min(s.regret.value or 1.0 for s in series)), 1.15 * max(seen)


def growth(comparisons: Sequence[Comparison]) -> Figure:
    """The B that each scheme needs at every length: runs as dots, geometric means as lines."""
    figure = Figure(figsize=(WIDTH, 3.6))
    axes = figure.add_subplot()
    lengths = [found for c in comparisons if (found := needed(c))]
    kinds: tuple[Kind, ...] = ("fixed", "adaptive")
    for kind in kinds:
        every = [(found.rounds, list(getattr(found, kind).values())) for found in lengths]
        for rounds, batches in every:
            axes.plot([rounds] * len(batches), batches, MARKERS[kind], color=COLOURS[kind], ms=3, alpha=0.35, mew=0)
        centres = [np.exp(mean(np.log(batches).tolist()).value) for _, batches in every]
        axes.plot([rounds for rounds, _ in every], centres, color=COLOURS[kind], lw=1.4, label=NAMES[kind])
    if lengths:
        first = lengths[0].rounds
        t = np.array([found.rounds for found in lengths])
        start = float(np.exp(np.mean(np.log(list(lengths[0].fixed.values())))))
        axes.plot(t, start * np.sqrt(t / first), color="black", lw=0.8, ls=":", label="order √T")
        axes.plot(t, start * np.log(t) / np.log(first), color="black", lw=0.8, ls="--", label="order log T")
    axes.set_xscale("log")
    axes.set_yscale("log")
    plain_numbers(axes.xaxis, axes.yaxis)
    axes.set_xlabel("rounds T")
    axes.set_ylabel("batches that a scheme needs")
    axes.set_title(f"quadratic, {comparisons[0].preset}")
    figure.legend(loc="outside lower center", ncols=4, fontsize=7.5)
    return figure


def _representative(comparison: Comparison) -> list[tuple[Series, Any]]:
    """Few enough lines to tell apart: of LinUCB the best, of adaptive ones the middle log q; and their dashes."""
    ratios = sorted({s.configuration.log_ratio or 0.0 for s in comparison.of_kind("adaptive")})
    middle = ratios[len(ratios) // 2] if ratios else None
    seen: dict[Kind, int] = {}
    out = []
    for series in comparison.series.values():
        fair = series.name.endswith("-fair")
        if fair or (series.kind == "adaptive" and series.configuration.log_ratio != middle):
            continue
        place = seen.setdefault(series.kind, 0)
        seen[series.kind] += 1
        out.append((series, DASHES[place % len(DASHES)]))
    return out


def _title(comparison: Comparison) -> str:
    problem = comparison.problem.replace("$", r"\$")  # between two of them a formula would stand
    return f"{problem}, {comparison.preset}"


def _save(figure: Figure, path: Path) -> Path:
    with writing(path):
        figure.savefig(path, metadata={"Date": None})
        figure.set_layout_engine("none")  # which has done its work, and takes as long as drawing
        figure.savefig(path.with_suffix(".png"), dpi=160)
    return path
