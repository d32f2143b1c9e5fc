"""The figures, drawn from results alone; the only module that draws them.

box        total regret of every configuration: solid line median, dashed line mean (log for cosine)
scatter    regret against processor time, 5 runs picked at random
curves     mean regret against rounds, 95 % bands, a tick under the axis at every update of one run
logdet     growth of log det Z in one run, a dot at every batch's end
frontier   regret against the number of updates, all problems and presets
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rarely.experiments.config import Kind
from rarely.experiments.report.results import Comparison, Series
from rarely.simulation.plot_style import COLOURS, DASHES, MARKERS, NAMES, STYLE, plain_numbers
from rarely.simulation.statistics import t_quantile


def draw_all(comparisons: Sequence[Comparison], folder: Path) -> Iterator[Path]:
    """Draw every figure as PNG and SVG; yields the path of each SVG when it is there."""
    folder.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        for comparison in comparisons:
            for name, draw in (("box", box), ("scatter", scatter), ("curves", curves), ("logdet", log_det)):
                figure = draw(comparison)
                yield _save(figure, folder / f"{comparison.problem}-{comparison.preset}-{name}.svg")
        if comparisons:
            yield _save(frontier(comparisons), folder / "frontier.svg")


def box(comparison: Comparison) -> Figure:
    """The paper's box plot."""
    series = list(comparison.series.values())
    figure = Figure(figsize=(7, 0.9 + 0.27 * len(series)))
    axes = figure.add_subplot()
    parts = axes.boxplot(
        [s.regrets for s in series],
        orientation="horizontal",
        showmeans=True,
        meanline=True,
        widths=0.62,
        patch_artist=True,
        medianprops={"color": "black", "linewidth": 1.4},
        meanprops={"color": "black", "linewidth": 1.1, "linestyle": (0, (2.5, 1.5))},
        flierprops={"marker": ".", "markersize": 4},
    )
    for patch, s in zip(parts["boxes"], series, strict=True):
        patch.set(facecolor=COLOURS[s.kind] if s.kind != "neuralucb" else "#bbbbbb", alpha=0.55)
    axes.set_yticks(range(1, len(series) + 1), [f"{s.label}  ({len(s.runs)})" for s in series])
    axes.invert_yaxis()
    if comparison.base == "cosine" and min(min(s.regrets) for s in series) > 0:
        axes.set_xscale("log")
        plain_numbers(axes.xaxis)
    axes.set_xlabel("total regret (runs in brackets; solid line median, dashed line mean)")
    axes.set_title(_title(comparison))
    return figure


def scatter(comparison: Comparison) -> Figure:
    """The paper's scatter plot: 5 runs picked at random, or all where there are fewer."""
    seeds = comparison.seeds
    chosen = set(np.random.default_rng(5).permutation(seeds)[:5].tolist())
    figure = Figure(figsize=(7, 4.2))
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
            axes.scatter(x, y, s=26, marker=MARKERS[kind], color=COLOURS[kind], alpha=0.75, label=NAMES[kind], lw=0)
    axes.set_xscale("log")
    axes.set_yscale("log")
    plain_numbers(axes.xaxis, axes.yaxis)
    axes.set_xlabel("processor time of the run, s")
    axes.set_ylabel("total regret")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    some = f": {len(chosen)} of {len(seeds)} runs, picked at random" if len(chosen) < len(seeds) else ""
    axes.set_title(_title(comparison) + some)
    return figure


def curves(comparison: Comparison) -> Figure:
    """Mean regret against rounds with 95 % bands; below, when each configuration updated."""
    shown = _representative(comparison)
    figure = Figure(figsize=(7, 4.6 + 0.1 * len(shown)))
    axes, rug = figure.subplots(2, 1, sharex=True, height_ratios=[4, 0.3 + 0.16 * len(shown)])
    for row, (series, dash) in enumerate(shown):
        every = series.curves()
        rounds, centre = np.arange(1, every.shape[1] + 1), every.mean(axis=0)
        few = np.unique(np.linspace(0, len(rounds) - 1, 200).astype(int))
        style: dict[str, Any] = {"color": COLOURS[series.kind], "linestyle": dash}
        axes.plot(rounds[few], centre[few], label=series.label, lw=1.4, **style)
        if len(every) > 2:  # of two runs a band would fill the page
            half = t_quantile(len(every) - 1) * every.std(axis=0, ddof=1) / np.sqrt(len(every))
            low, high = (centre - half)[few], (centre + half)[few]
            axes.fill_between(rounds[few], low, high, color=COLOURS[series.kind], alpha=0.08, lw=0)
        updates = next(iter(series.runs.values())).updates
        rug.plot(updates, np.full(len(updates), row), "|", color=COLOURS[series.kind], markersize=5, mew=0.5)
    axes.set_yscale("symlog", linthresh=max(1.0, 0.02 * axes.get_ylim()[1]))
    axes.set_ylim(bottom=0)
    plain_numbers(axes.yaxis)
    axes.set_ylabel("mean regret so far, 95 % band (log above a start)")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    rug.set_yticks(range(len(shown)), [s.label for s, _ in shown], fontsize=6.5)
    rug.invert_yaxis()
    rug.grid(visible=False)
    rug.set_xlabel("round (a tick: an update, first run)")
    axes.set_title(_title(comparison))
    return figure


def log_det(comparison: Comparison) -> Figure:
    """log det Z of one run with a dot at every batch's end, and by how much each batch let it grow."""
    figure = Figure(figsize=(7.6, 3.6))
    whole, each = figure.subplots(1, 2)
    for series, dash in _representative(comparison):
        if series.kind in ("linucb", "linucb-intercept"):
            continue
        record = next(iter(series.runs.values()))
        colour = COLOURS[series.kind]
        whole.plot(*record.log_dets.T, lw=1.0, color=colour, linestyle=dash)
        ends = np.array([[0, 0.0], *zip(record.updates, record.data["updates"]["log_det"], strict=True)])
        label = f"{series.label}: {len(record.updates)} updates"
        each.plot(
            ends[1:, 0], np.diff(ends[:, 1]), lw=0.8, marker=".", ms=2.5, color=colour, linestyle=dash, label=label
        )
        if series.kind != "neuralucb":
            whole.plot(*ends[1:].T, ".", color=colour, ms=3.5)
    for axes in (whole, each):
        axes.set_xlabel("round")
    each.set_yscale("log")
    plain_numbers(each.yaxis)
    whole.set_title(f"{_title(comparison)}: log det Z − log det λI", fontsize=9)
    each.set_title("its growth in each batch, first run", fontsize=9)
    if each.lines:
        figure.legend(loc="outside lower center", ncols=2, fontsize=7.5)
    return figure


def frontier(comparisons: Sequence[Comparison]) -> Figure:
    """Regret against the number of versions, a panel for each problem and preset."""
    problems = list(dict.fromkeys(c.problem for c in comparisons))
    presets = list(dict.fromkeys(c.preset for c in comparisons))
    figure = Figure(figsize=(max(6.4, 3.0 * len(problems)), 2.7 * len(presets) + 0.5))
    grid = figure.subplots(len(presets), len(problems), squeeze=False)
    for axes in grid.flat:
        axes.set_visible(False)
    for comparison in comparisons:
        row, column = presets.index(comparison.preset), problems.index(comparison.problem)
        axes = grid[row, column]
        axes.set_visible(True)
        for series in comparison.series.values():
            estimate = series.regret
            error = [[0.0], [0.0]]
            if estimate.runs > 1:
                half = min(estimate.high - estimate.value, 0.95 * estimate.value)
                error = [[half], [estimate.high - estimate.value]]
            mark: dict[str, Any] = {"color": COLOURS[series.kind], "marker": MARKERS[series.kind], "ms": 5, "lw": 0.8}
            axes.errorbar([series.updates + 1], [estimate.value], yerr=error, alpha=0.8, **mark)
        axes.set_xscale("log")
        axes.set_yscale("log")
        plain_numbers(axes.xaxis, axes.yaxis)
        axes.set_title(_title(comparison))
        if row == len(presets) - 1 or all(
            c.preset != presets[row + 1] for c in comparisons if c.problem == comparison.problem
        ):
            axes.set_xlabel("versions (updates + 1)")
    for axes in grid[:, 0]:
        axes.set_ylabel("mean total regret, 95 %")
    present = {series.kind for c in comparisons for series in c.series.values()}
    handles = [
        Line2D([], [], color=COLOURS[kind], marker=MARKERS[kind], lw=0, label=NAMES[kind])
        for kind in NAMES
        if kind in present
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8, columnspacing=1.0)
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
    figure.savefig(path, metadata={"Date": None})
    figure.savefig(path.with_suffix(".png"), dpi=160)
    return path


def count(comparisons: Iterable[Comparison]) -> int:
    """How many figures `draw_all` draws."""
    comparisons = list(comparisons)
    return 4 * len(comparisons) + bool(comparisons)
