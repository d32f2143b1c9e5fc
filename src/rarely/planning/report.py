"""A plan on paper: plan.json, plan.svg and plan.md in one folder."""

from __future__ import annotations

import json
import math
from pathlib import Path

from rarely.planning.frontier import CONFIDENCE, Frontier, Point
from rarely.planning.plan import TOLERANCES, Plan
from rarely.planning.plots import draw_plan
from rarely.planning.saved_plan import with_digest
from rarely.simulation.statistics import IntervalEstimate

SHOWN = 12
"""Batch lengths that a table has room for."""


def write_plan(plan: Plan, folder: Path) -> list[Path]:
    """Write all three; returns where they are."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"plan.{suffix}" for suffix in ("json", "svg", "md")]
    text = json.dumps(with_digest(plan.describe()), indent=1, ensure_ascii=False, allow_nan=False)
    paths[0].write_text(text + "\n", encoding="utf-8")
    draw_plan(plan, paths[1])
    paths[2].write_text(render(plan), encoding="utf-8")
    return paths


def render(plan: Plan) -> str:
    """The plan as Markdown, with its picture beside it."""
    frontier = plan.frontier
    advice, _, rests = plan.text().partition("What this rests on:\n")
    head = "| schedule | B | versions used | regret | over sequential | within 10 % | batch lengths |"
    rows = [
        f"# Updates for {plan.horizon} rounds of {plan.arms} arms",
        "\n\n".join(map(_paragraph, advice.splitlines())),
        "![Above, regret against the number of batches, in units of the regret with an update after every round. "
        "Below, the batches of each schedule](plan.svg)",
        f"Regret over {frontier.rounds} simulated rounds, mean of {frontier.runs} runs with 95 % intervals; with an "
        f"update after every round it is {_interval(frontier.sequential)}. Over sequential: the ratio of mean regrets, "
        f"with {100 * CONFIDENCE:.0f} % intervals, so that what is sure of all three kinds is so with 95 %. log q is "
        "the simulated one. Adaptive batches are those of a typical run.",
        "\n".join([head, "|---|---:|---:|---:|---:|---|---|", *(_row(frontier, point) for point in frontier.points)]),
        "## What this rests on",
        rests,
        f"Seed {plan.seed}.",
    ]
    return "\n\n".join(row.rstrip() for row in rows) + "\n"


def _paragraph(line: str) -> str:
    """Code as code: Markdown would take the stars of **settings for bold print."""
    start = "To paste: "
    return f"{start}\n\n```python\n{line.removeprefix(start)}\n```" if line.startswith(start) else line


def _row(frontier: Frontier, point: Point) -> str:
    name = point.kind if point.log_ratio is None else f"{point.kind}, log q = {point.log_ratio:.3g}"
    lengths = ", ".join(map(str, point.pattern[:SHOWN])) + (", …" if len(point.pattern) > SHOWN else "")
    cells = (
        name,
        str(point.batches),
        f"{point.used:.4g}",
        _interval(point.regret),
        _interval(point.ratio, digits=2),
        {"within": "surely", "outside": "surely not", "undecided": "cannot tell"}[
            frontier.verdict(point, TOLERANCES[-1])
        ],
        lengths,
    )
    return "| " + " | ".join(cells) + " |"


def _interval(estimate: IntervalEstimate, digits: int = 1) -> str:
    if not math.isfinite(estimate.high):
        return f"{estimate.value:.{digits}f}"
    return f"{estimate.value:.{digits}f} ({estimate.low:.{digits}f} to {estimate.high:.{digits}f})"
