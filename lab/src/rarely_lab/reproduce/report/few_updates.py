"""The paper's central claim as a page: do few updates cost regret? Measured over T, with the theory's curves beside it.

ratio      mean regret of a scheme over that of sequential NeuralUCB, of runs of the same seeds
d̃          effective dimension of all contexts of T rounds, of the network's own kernel; B = d̃ log(1 + TK/λ)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from rarely.extend import PresetName
from rarely.pages.figures import COLOURS, DASHES, MARKERS, plain_numbers
from rarely.pages.grid import Grid
from rarely.pages.page import render
from rarely.pages.svg import INK
from rarely.runs.statistics import IntervalEstimate
from rarely.theory import effective_dimension
from rarely.worlds import World
from rarely_lab.reproduce.catalogue import PROBLEMS
from rarely_lab.reproduce.report.claims import RATIOS, Estimand
from rarely_lab.reproduce.report.figures import WIDTH
from rarely_lab.reproduce.report.results import Comparison, Growth, growth, lengthened
from rarely_lab.reproduce.report.tables import WORDS, short

SEQUENTIAL, ROOT, RULE = "NeuralUCB", "fixed, B = √T", "adaptive, log q = 20"
"""The schemes that the page's first sentence is about, by their labels."""
CONTEXTS = (500, 1000, 2000)  # numbers of contexts, T·K, of which d̃ is computed: its time grows with their cube
Schemes = dict[str, Growth]


def costs(schemes: Schemes) -> dict[str, dict[int, dict[Estimand, IntervalEstimate]]]:
    """Return by scheme and T how much more regret it has than NeuralUCB, by both estimands."""
    out: dict[str, dict[int, dict[Estimand, IntervalEstimate]]] = {}
    sequential = schemes[SEQUENTIAL].series
    for label, scheme in schemes.items():
        for rounds in sorted(scheme.series.keys() & sequential.keys()) if label != SEQUENTIAL else ():
            runs = scheme.series[rounds].runs, sequential[rounds].runs
            seeds = sorted(runs[0].keys() & runs[1].keys())
            pair = [[of[seed].regret for seed in seeds] for of in runs]
            each = {estimand: ratio(*pair).interval() for estimand, ratio in RATIOS.items()}
            out.setdefault(label, {})[rounds] = each
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


def few_updates(comparisons: Sequence[Comparison]) -> dict[tuple[str, PresetName], Schemes]:
    """Return the schemes that were played at several lengths by problem and preset, if NeuralUCB was among them."""
    every = {one: growth(mine) for one, mine in lengthened(comparisons).items()}
    return {one: schemes for one, schemes in every.items() if SEQUENTIAL in schemes}


def figures_of_few(comparisons: Sequence[Comparison]) -> dict[str, Callable[[], Figure]]:
    """Return the figure of each problem and preset by its name, as a function that draws it."""
    return {f"few-updates-{'-'.join(one)}": partial(draw, of, *one) for one, of in few_updates(comparisons).items()}


def draw(schemes: Schemes, problem: str, preset: PresetName) -> Figure:
    """Draw regret over NeuralUCB's, and versions with √T, log₂ T and Theorem 2's B, against T."""
    figure = Figure(figsize=(WIDTH, 4.2))
    left, right = figure.subplots(1, 2)
    for (label, points), dash in zip(costs(schemes).items(), cycle(DASHES), strict=False):
        kind, series = schemes[label].kind, schemes[label].series
        look: dict[str, Any] = {"color": COLOURS[kind], "marker": MARKERS[kind], "ms": 3, "lw": 1.2, "ls": dash}
        left.plot([*points], [both["mean"].value for both in points.values()], label=label, **look)
        right.plot([*series], [s.updates + 1 for s in series.values()], **look)
    left.axhline(1, color=INK, lw=0.8)
    lengths = np.array(sorted({t for one in schemes.values() for t in one.series}), float)
    own = dimensions(problem)
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
    figure.suptitle(f"{problem}, {preset}", fontsize=9.5)
    figure.legend(loc="outside lower center", ncols=2, fontsize=7, handlelength=3.4)
    return figure


def cost_table(schemes: Schemes) -> Grid:
    """Return how much more regret than NeuralUCB each scheme has at each T, both ways, and how its versions grow."""
    body, every = [], costs(schemes)
    times = sorted({rounds for points in every.values() for rounds in points})
    for label, points in every.items():
        for estimand, words in WORDS.items():
            cells = [short(points[t][estimand]) if t in points else "—" for t in times]
            grows = f"{schemes[label].versions.interval().value:.3f}" if estimand == "mean" else ""
            body.append([label, words, *cells, grows])
    head = ["scheme", "regret ÷ NeuralUCB's, by", *(f"T = {t}" for t in times), "exponent of its versions"]
    return Grid(head, body, 2)


def answers(comparisons: Sequence[Comparison]) -> list[tuple[str, dict[str, Any]]]:
    """Return what the page says of each problem and preset, in numbers; those that were played in full."""
    told = []
    for (problem, preset), schemes in few_updates(comparisons).items():
        if {ROOT, RULE} <= schemes.keys():
            points, rule = costs(schemes), schemes[RULE]
            root, own = ([both["mean"].value for both in points[label].values()] for label in (ROOT, RULE))
            versions = [one.updates + 1 for one in rule.series.values()]
            numbers = {"root": root, "rule": own, "versions": versions, "of_rule": rule.versions}
            numbers |= {"lengths": [*points[RULE]], "all": [*rule.series]}
            told.append((f"{problem}, preset {preset}", numbers))
    return told


def render_few_updates(comparisons: Sequence[Comparison]) -> str:
    """Return the page as Markdown, from the runs at several lengths of each problem in each preset."""
    return render(
        "rarely_lab.reproduce.report",
        "few-updates.md",
        answers=answers(comparisons),
        tables={one: cost_table(schemes) for one, schemes in few_updates(comparisons).items()},
        theory={name: dimensions(name) for name in ("cosine", "quadratic")},
        exponent=exponent,
        log2=math.log2,
    )
