"""A plan on paper: plan.json, plan.svg, plan.md and plan.html in one folder."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

from rarely.planning import gain
from rarely.planning.frontier import CONFIDENCE, Frontier, Point
from rarely.planning.plan import TOLERANCES, Plan
from rarely.planning.plots import draw_plan
from rarely.planning.saved_plan import with_digest
from rarely.simulation.inline_svg import inline
from rarely.simulation.page import document, grid
from rarely.simulation.statistics import IntervalEstimate
from rarely.simulation.writing import make_folder, write_text, writing

PASTE = "To paste: "
HEAD = ["schedule", "B", "versions used", "regret", "over the reference", "within 10 %", "batch lengths"]
SHOWN = 12
"""Batch lengths that a table has room for."""


def write_plan(plan: Plan, folder: Path) -> list[Path]:
    """Write all four; returns where they are."""
    make_folder(folder)
    paths = [folder / f"plan.{suffix}" for suffix in ("json", "svg", "md", "html")]
    text = json.dumps(with_digest(plan.describe()), indent=1, ensure_ascii=False, allow_nan=False)
    write_text(paths[0], text + "\n")
    with writing(paths[1]):
        draw_plan(plan, paths[1])
    write_text(paths[2], render(plan))
    write_text(paths[3], render_page(plan, paths[1].read_text(encoding="utf-8")))
    return paths


def render(plan: Plan) -> str:
    """The plan as Markdown, with its picture beside it."""
    frontier = plan.frontier
    advice, _, rests = plan.advice().partition("What this rests on:\n")
    rows = [
        _title(plan, "# "),
        *_gain(plan),
        "\n\n".join(map(_paragraph, advice.splitlines())),
        "![Above, regret against the number of batches, in units of the regret with an update after every round. "
        "Below, the batches of each schedule](plan.svg)",
        _about(frontier),
        "\n".join(
            [_line(HEAD), "|---|---:|---:|---:|---:|---|---|", *(_line(_row(frontier, p)) for p in frontier.points)]
        ),
        "## What this rests on",
        rests,
        f"Seed {plan.seed}.",
    ]
    return "\n\n".join(row.rstrip() for row in rows) + "\n"


def _paragraph(line: str) -> str:
    """Code as code: Markdown would take the stars of **settings for bold print."""
    return f"{PASTE}\n\n```python\n{line.removeprefix(PASTE)}\n```" if line.startswith(PASTE) else line


def render_page(plan: Plan, picture: str) -> str:
    """The plan as one HTML file, the picture inside."""
    advice, _, rests = plan.advice().partition("What this rests on:\n")
    parts = [f"<h1>{escape(_title(plan))}</h1>"]
    if plan.present is not None and (rows := plan.shares):
        above, *_, price = gain.text(rows, plan.frontier, plan.present)
        parts += [f"<p>{escape(above)}</p>", grid(gain.head(plan.present), gain.body(rows), 0)]
        parts.append(f'<p class="headline"><strong>{escape(price)}</strong></p>')
    for line in advice.splitlines():
        code = line.startswith(PASTE)
        parts.append(f"<pre>{escape(line.removeprefix(PASTE))}</pre>" if code else f"<p>{escape(line)}</p>")
    label = "Regret against the number of batches, and the batches of each schedule"
    parts.append(f"<figure>{inline(picture, label, 'p')}<figcaption>{label}.</figcaption></figure>")
    parts.append(f"<p class='faint'>{escape(_about(plan.frontier))}</p>")
    parts.append(grid(HEAD, [_row(plan.frontier, point) for point in plan.frontier.points], 1))
    notes = "".join(f"<li>{escape(line.removeprefix('- '))}</li>" for line in rests.splitlines())
    parts.append(f"<h2>What this rests on</h2><ul>{notes}</ul><p class='faint'>Seed {plan.seed}.</p>")
    return document(_title(plan), "\n".join(parts))


def _title(plan: Plan, before: str = "") -> str:
    return f"{before}Updates for {plan.horizon} rounds of {plan.arms} arms"


def _about(frontier: Frontier) -> str:
    return (
        f"Regret over {frontier.rounds} simulated rounds, mean of {frontier.runs} runs with 95 % intervals; with "
        f"{frontier.often} it is {_interval(frontier.sequential)}. Over that: the ratio of mean regrets, "
        f"with {100 * CONFIDENCE:.0f} % intervals, so that what is sure of all three kinds is so with 95 %. log q is "
        "the simulated one. Adaptive batches are those of a typical run."
    )


def _gain(plan: Plan) -> list[str]:
    """What updates are worth, as a table in Markdown."""
    if plan.present is None or not plan.shares:
        return []
    above, *_, price = gain.text(plan.shares, plan.frontier, plan.present)
    head = gain.head(plan.present)
    lines = [_line(head), "|" + "---:|" * len(head), *map(_line, gain.body(plan.shares))]
    return [above, "\n".join(lines), price]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _row(frontier: Frontier, point: Point) -> list[str]:
    name = point.kind if point.log_ratio is None else f"{point.kind}, log q = {point.log_ratio:.3g}"
    lengths = ", ".join(map(str, point.pattern[:SHOWN])) + (", …" if len(point.pattern) > SHOWN else "")
    return [
        name,
        str(point.batches),
        f"{point.used:.4g}",
        _interval(point.regret),
        _interval(point.ratio, digits=2),
        {"within": "surely", "outside": "surely not", "undecided": "cannot tell"}[
            frontier.verdict(point, TOLERANCES[-1])
        ],
        lengths,
    ]


def _interval(estimate: IntervalEstimate, digits: int = 1) -> str:
    if not math.isfinite(estimate.high):
        return f"{estimate.value:.{digits}f}"
    return f"{estimate.value:.{digits}f} ({estimate.low:.{digits}f} to {estimate.high:.{digits}f})"
