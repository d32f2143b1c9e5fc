"""The paper's central claim as a page: do few updates cost regret? Measured over T, with the theory's curves beside it.

ratio      mean regret of a scheme over that of sequential NeuralUCB, of runs of the same seeds
d̃          effective dimension of all contexts of T rounds, of the network's own kernel; B = d̃ log(1 + TK/λ)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from rarely.extend import PresetName
from rarely.pages.figures import COLOURS, DASHES, MARKERS, plain_numbers
from rarely.pages.grid import Grid
from rarely.pages.page import render
from rarely.pages.svg import INK
from rarely.runs.statistics import IntervalEstimate, ratios, ratios_of_means
from rarely.theory import effective_dimension
from rarely.worlds import World
from rarely_lab.reproduce.catalogue import GROWTH, PROBLEMS
from rarely_lab.reproduce.report.claims import ESTIMANDS
from rarely_lab.reproduce.report.figures import WIDTH
from rarely_lab.reproduce.report.results import NEURAL, Comparison, Growth, by_preset, growth
from rarely_lab.reproduce.report.tables import WORDS, short

CONTEXTS = (500, 1000, 2000)  # numbers of contexts, T·K, of which d̃ is computed: its time grows with their cube
Point = tuple[int, dict[str, IntervalEstimate]]


def costs(scheme: Growth, sequential: Growth) -> list[Point]:
    """Return at each T how much more regret a scheme has than NeuralUCB, by both estimands."""
    out = []
    for rounds, series in scheme.series.items():
        other = sequential.series[rounds]
        seeds = sorted(series.runs.keys() & other.runs.keys())
        pair = [[s.runs[seed].regret for seed in seeds] for s in (series, other)]
        out.append((rounds, {"mean": ratios_of_means(*pair).interval(), "typical": ratios(*pair).interval()}))
    return out


@cache
def dimensions(problem: str) -> list[tuple[int, float, float]]:
    """Return T, d̃ and Theorem 2's B for some T of a synthetic problem."""
    source, ridge = PROBLEMS[problem].source, PROBLEMS[problem].ridge
    assert isinstance(source, World)
    out = []
    for count in CONTEXTS:
        rounds = count // source.arms
        contexts = source.rounds(0, rounds).contexts.reshape(-1, source.dim)
        found = effective_dimension(contexts, ridge=ridge, kind="network").value
        out.append((rounds, found, found * math.log1p(count / ridge)))
    return out


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """Return a of y ∝ xᵃ, fitted to points.

    >>> round(exponent([(500, math.log2(500)), (8000, math.log2(8000))]), 3)
    0.133
    """
    x, y = np.log(np.array(points)).T
    return float(np.polyfit(x, y, 1)[0])


def few_updates(comparisons: Sequence[Comparison]) -> dict[PresetName, list[Growth]]:
    """Return the schemes that were played at several lengths in each preset, if NeuralUCB was among them."""
    lasting = [c for c in comparisons if c.problem in GROWTH]
    schemes = {preset: growth(mine) for preset, mine in by_preset(lasting).items()}
    return {preset: of for preset, of in schemes.items() if any(one.kind == NEURAL for one in of)}


def figures_of_few(comparisons: Sequence[Comparison]) -> dict[str, Callable[[], Figure]]:
    """Return the figure of each preset by its name, as a function that draws it."""
    return {f"few-updates-{preset}": partial(draw, of, preset) for preset, of in few_updates(comparisons).items()}


def draw(schemes: Sequence[Growth], preset: PresetName) -> Figure:
    """Draw regret over NeuralUCB's, and versions with √T, log₂ T and Theorem 2's B, against T."""
    figure = Figure(figsize=(WIDTH, 4.2))
    left, right = figure.subplots(1, 2)
    sequential = next(one for one in schemes if one.kind == NEURAL)
    for place, scheme in enumerate(one for one in schemes if one.kind != NEURAL):
        look: dict[str, Any] = {"color": COLOURS[scheme.kind], "marker": MARKERS[scheme.kind], "ms": 3, "lw": 1.2}
        look["linestyle"] = DASHES[place % len(DASHES)]
        rounds, points = zip(*costs(scheme, sequential), strict=True)
        left.plot(rounds, [point["mean"].value for point in points], label=scheme.label, **look)
        right.plot(rounds, [s.updates + 1 for s in scheme.series.values()], **look)
    left.axhline(1, color=INK, lw=0.8)
    lengths = np.array([*sequential.series], float)
    own = dimensions("quadratic")
    plan = own[-1][2] * (lengths / own[-1][0]) ** exponent([(t, b) for t, _, b in own])
    theory = {"T: NeuralUCB": lengths, "√T": np.sqrt(lengths), "log₂ T": np.log2(lengths), "B of Theorem 2": plan}
    at: dict[str, Any] = {"xytext": (-2, 2), "textcoords": "offset points", "ha": "right", "fontsize": 6}
    for (name, values), dash in zip(theory.items(), ("solid", *DASHES), strict=True):
        right.plot(lengths, values, color=INK, lw=0.8, ls=dash, alpha=0.8)
        right.annotate(name, (lengths[-1], values[-1]), **at)
    for axes, title in ((left, "mean regret ÷ NeuralUCB's"), (right, "versions")):
        axes.set(xscale="log", yscale="log", title=title)
        axes.set_xlabel("rounds T", fontsize=8)
        plain_numbers(axes.xaxis, axes.yaxis)
        axes.tick_params(labelsize=7)
        axes.title.set_fontsize(8)
    figure.suptitle(f"quadratic, {preset}", fontsize=9.5)
    figure.legend(loc="outside lower center", ncols=2, fontsize=7, handlelength=3.4)
    return figure


def cost_table(schemes: Sequence[Growth]) -> Grid:
    """Return how much more regret than NeuralUCB each scheme has at each T, both ways, and how its versions grow."""
    sequential, body = next(one for one in schemes if one.kind == NEURAL), []
    for scheme in (one for one in schemes if one.kind != NEURAL):
        points, grows = costs(scheme, sequential), f"{scheme.versions.interval().value:.3f}"
        for estimand in ESTIMANDS:
            cells = [short(each[estimand]) for _, each in points]
            body.append([scheme.label, WORDS[estimand], *cells, grows if estimand == "mean" else ""])
    head = ["scheme", "regret ÷ NeuralUCB's, by", *(f"T = {t}" for t in sequential.series), "exponent of its versions"]
    return Grid(head, body, 2)


def render_few_updates(comparisons: Sequence[Comparison]) -> str:
    """Return the page as Markdown, from the runs at several lengths in each preset."""
    by_preset = few_updates(comparisons)
    theory = {name: dimensions(name) for name in ("cosine", "quadratic")}
    answers = {preset: {one.label: one for one in schemes} for preset, schemes in by_preset.items()}
    return render(
        "rarely_lab.reproduce.report",
        "few-updates.md",
        answers=answers,
        tables={preset: cost_table(schemes) for preset, schemes in by_preset.items()},
        ends=lambda scheme, of: [each[1]["mean"].value for each in costs(scheme, of)],
        theory=theory,
        exponent=exponent,
        log2=math.log2,
    )
