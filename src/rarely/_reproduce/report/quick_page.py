"""The first page that a newcomer sees, made by `make run`: the idea as a picture, with the numbers beside it.

It judges nothing: the paper's claims are about T = 2000, and `rarely reproduce` checks them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rarely._pages.figures import drawn
from rarely._pages.grid import Grid
from rarely._pages.page import render
from rarely._pages.svg import inline
from rarely._reproduce.quick import summarise
from rarely._reproduce.records import Store
from rarely._reproduce.report.claims import PRINTED_ROUNDS
from rarely._reproduce.report.figures import curves, frontier
from rarely._reproduce.report.page import NothingToReport
from rarely._reproduce.report.results import Comparison, Series
from rarely._runs.writing import write_text

CAPTIONS = (
    "Regret: the reward missed so far, compared with always choosing the best arm. Below, a tick for every training, "
    "in the first run.",
    "Total regret against the number of versions, one more than there were trainings; small dots are single runs.",
)


def write_quick_page(out: Path) -> Path:
    """Write the page of the quick runs in `out`, and return its path."""
    rows = summarise(Store(out).examine().records)
    if not rows:
        raise NothingToReport(f"{out / 'records'} holds no quick runs; run: rarely reproduce --quick --out {out}.")
    path = out / "report.html"
    write_text(path, render_quick_page(rows))
    return path


def render_quick_page(rows: Sequence[Series]) -> str:
    rounds = next(iter(rows[0].runs.values())).rounds
    shown = Comparison("cosine", "", "practical", rounds, {row.name: row for row in rows})
    pictures = [drawn(curves, shown), drawn(frontier, [shown])]
    return render(
        "rarely._reproduce.report",
        "quick.html",
        figures=[(inline(svg, text), text) for svg, text in zip(pictures, CAPTIONS, strict=True)],
        policies={row.kind: row for row in rows},
        numbers=numbers(rows),
        rounds=rounds,
        runs=max(len(row.runs) for row in rows),
        printed_rounds=PRINTED_ROUNDS,
    )


def numbers(rows: Sequence[Series]) -> Grid:
    body = []
    for row in rows:
        spread = f" ± {row.deviation:.0f}" if len(row.runs) > 1 else ""
        body.append([row.label, f"{row.regret.value:.0f}{spread}", f"{row.updates:.0f}", f"{row.seconds:.1f}"])
    return Grid(["policy", "regret", "updates", "seconds"], body, numbers=1)
