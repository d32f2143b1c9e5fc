"""The first page that a newcomer sees, made by `make run`: the idea as a picture, with the numbers beside it.

    random choice        any arm, with equal chances
    LinUCB               with an update after every round
    NeuralUCB            with an update after every round
    fixed grid           BatchNeuralUCB with B equal batches
    determinant rule     BatchNeuralUCB with an update whenever det Z has grown by q, at most B − 1 times
    default              BatchNeuralUCB as it comes, under `Paced`

It judges nothing: the paper's claims are about T = 2000 and its own settings, which take hours; `rarely reproduce`
checks them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from rarely.pages.figures import COLOURS, DASHES, MARKERS, drawn, plain_numbers
from rarely.pages.grid import Grid
from rarely.pages.page import render
from rarely.pages.svg import inline
from rarely.runs.files import write_file
from rarely_lab.engine.record import NothingOnRecord, read_records
from rarely_lab.reproduce.catalogue import QUICK, QUICK_CONFIGURATIONS
from rarely_lab.reproduce.records import Record
from rarely_lab.reproduce.report.claims import PRINTED_ROUNDS
from rarely_lab.reproduce.report.figures import draw_updates
from rarely_lab.reproduce.report.results import Series

CAPTIONS = (
    "Regret: the reward missed so far, compared with always choosing the best arm. Below, a tick for every training, "
    "in the first run.",
    "Total regret against the number of updates; small dots are single runs.",
)


def write_quick_page(out: Path) -> tuple[Path, list[Series]]:
    """Write the page of the quick runs in `out`, and return its path and what it shows."""
    rows = summarise(read_records(out, Record).records)
    if not rows:
        raise NothingOnRecord(f"{out / 'records'} holds no quick runs; run: rarely reproduce --quick --out {out}.")
    path = out / "report.html"
    write_file(path, render_quick_page(rows))
    return path, rows


def summarise(records: Iterable[Record]) -> list[Series]:
    """Return the quick runs among the records by policy, in the order of `QUICK_CONFIGURATIONS`."""
    mine = sorted((record for record in records if record.problem == QUICK.name), key=lambda record: record.seed)
    rows = []
    for label, c in QUICK_CONFIGURATIONS.items():
        if runs := {record.seed: record for record in mine if record.configuration == c}:
            rows.append(Series(c.id, label, c.kind, c, runs))
    return rows


def render_quick_page(rows: Sequence[Series]) -> str:
    """Return the page of the quick runs as one HTML file."""
    pictures = [drawn(draw, rows) for draw in (regret_over_rounds, regret_against_updates)]
    return render(
        "rarely_lab.reproduce.report",
        "quick.html",
        figures=[(inline(svg, text), text) for svg, text in zip(pictures, CAPTIONS, strict=True)],
        sentences=sentences(rows),
        linear=any(row.kind == "linucb-intercept" for row in rows),
        numbers=numbers(rows),
        rounds=next(iter(rows[0].runs.values())).rounds,
        runs=max(len(row.runs) for row in rows),
        printed_rounds=PRINTED_ROUNDS,
    )


def sentences(rows: Sequence[Series]) -> list[str]:
    """Return what the runs showed in two sentences: what there was to lose, and what rare trainings cost."""
    told = {row.kind: f"{row.regret.value:.0f}" for row in rows}
    often, rare = ({row.kind: row for row in rows}.get(kind) for kind in ("neuralucb", "default"))
    rounds, out = next(iter(rows[0].runs.values())).rounds, []
    if {"uniform", "linucb-intercept"} <= told.keys():
        out.append(
            f"In {rounds} rounds random choice lost {told['uniform']} of reward, and LinUCB, a linear model updated "
            f"after every round, {told['linucb-intercept']}."
        )
    if often and rare:
        out.append(
            f"NeuralUCB, trained {often.updates:.0f} times, lost {told['neuralucb']} in {often.seconds:.1f} s; the "
            f"default, which learned {rare.updates:.0f} times, lost {told['default']} in {rare.seconds:.1f} s."
        )
    return out


def numbers(rows: Sequence[Series]) -> Grid:
    """Return the table of regrets, updates and seconds."""
    body = []
    for row in rows:
        spread = f" ± {row.deviation:.0f}" if len(row.runs) > 1 else ""
        body.append([row.label, f"{row.regret.value:.0f}{spread}", f"{row.updates:.0f}", f"{row.seconds:.1f}"])
    return Grid(["policy", "regret", "updates", "seconds"], body, numbers=1)


def regret_over_rounds(rows: Sequence[Series]) -> Figure:
    """Draw mean regret against rounds, and below when each policy was trained in the first run."""
    figure = Figure(figsize=(5.4, 3.9))
    axes, rug = figure.subplots(2, 1, sharex=True, height_ratios=[3.2, 1])
    for place, row in enumerate(rows):
        colour, marker, dash = COLOURS[row.kind], MARKERS[row.kind], DASHES[place % len(DASHES)]
        curve = np.mean([record.curve for record in row.runs.values()], axis=0)
        look: Any = {"color": colour, "linestyle": dash, "marker": marker, "markevery": [-1], "ms": 6}
        axes.plot(np.arange(1, len(curve) + 1), curve, label=f"{row.label}: {row.regret.value:.0f}", **look)
    top = _top([row.regret.value for row in rows])
    axes.set(ylabel="regret so far", xlim=(0, 1.02 * len(curve)), ylim=(0, top))
    figure.legend(loc="outside upper center", ncols=3, fontsize=7.5, columnspacing=1.0, handlelength=2.4)
    draw_updates(rug, rows, fontsize=8)
    for label, row in zip(rug.get_yticklabels(), rows, strict=True):
        label.set_color(COLOURS[row.kind])
    rug.set_xlabel("round")
    return figure


def regret_against_updates(rows: Sequence[Series]) -> Figure:
    """Draw total regret against the number of updates of policies that have any: means, and single runs."""
    rows = [row for row in rows if row.updates]
    figure = Figure(figsize=(3.9, 3.9))
    axes = figure.add_subplot()
    for row in rows:
        colour = COLOURS[row.kind]
        at = [max(len(record.updates), 1) for record in row.runs.values()]  # a run may have none
        axes.plot(at, row.regrets, ".", color=colour, ms=3.5, alpha=0.7)
        axes.plot([row.updates], [row.regret.value], MARKERS[row.kind], color=colour, ms=8, label=row.label)
    positive = min(regret for row in rows for regret in row.regrets) > 0
    axes.set(xscale="log", yscale="log" if positive else "linear", xlabel="updates", ylabel="total regret")
    plain_numbers(axes.xaxis, axes.yaxis)
    axes.margins(0.15)
    axes.legend(loc="best", fontsize=8)
    return figure


def _top(regrets: list[float]) -> float:
    """Return where the axis of regrets ends: one policy that is far worse must not make the others too small to see."""
    *others, worst = sorted(regrets)
    return 1.1 * min(worst, 3 * others[-1]) if others and others[-1] > 0 else max(1.0, 1.1 * worst)
