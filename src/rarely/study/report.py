"""The analysis of a trial as text, Markdown and HTML: the same tables in all three."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rarely._core.errors import InvalidInput
from rarely._core.saving.files import replacing
from rarely._pages.grid import Grid

if TYPE_CHECKING:
    from rarely.study.analysis import Analysis, Effect

SHOWN = 12
"""Covariates in the table of balance."""
EFFECTS = [
    "",
    "estimate at the last look",
    "interval of the look",
    "estimate now",
    "anytime",
    "exact anytime",
    "rewards",
    "missing",
    "bound for missing",
]
PROTOCOL = "Protocol"
CAPTION = "Contrasts with the control arm: intervals of the looks, and the anytime interval last (dashed)."


def tables_of(analysis: Analysis) -> dict[str, Grid]:
    """Return the tables by their titles."""
    plan = analysis.plan
    looks = [
        [
            effect.name,
            str(look.round),
            str(look.rounds),
            _number(look.estimate),
            _range(look.low, look.high),
            f"{look.boundary:.3f}",
            "yes" if not look.low <= 0 <= look.high else "no",
        ]
        for effect in analysis.contrasts
        for look in effect.looks
    ]
    stages = [
        [row.stage, row.name, str(row.rounds), str(row.missing), _number(row.estimate), _range(row.low, row.high)]
        for row in analysis.stages
    ]
    balance = [
        [row.covariate, row.arms, *map(_number, (row.raw, row.weighted, row.chance))]
        for row in analysis.balance[:SHOWN]
    ]
    level = f"{100 * plan.level:g} %"
    found = {
        "Contrasts": Grid(EFFECTS, [_row(effect) for effect in analysis.contrasts], 1),
        "Arm means": Grid(EFFECTS, [_row(effect) for effect in analysis.means], 1),
        f"Looks ({plan.spending}, {len(plan.at)} planned)": Grid(
            ["", "after decision", "rewards", "estimate", f"{level} interval", "boundary", "excludes 0"], looks, 1
        ),
        "Stages": Grid(["stage", "", "rewards", "missing", "estimate", f"{level}, this stage alone"], stages, 2),
        "Covariate balance (standardised differences)": Grid(
            ["covariate", "arms", "as given", "weighted", "by chance up to"], balance, 2
        ),
        PROTOCOL: Grid(["registered", "before the first decision"], [[k, v] for k, v in analysis.protocol.items()], 2),
    }
    return {title: grid for title, grid in found.items() if grid.body}


def _row(effect: Effect) -> list[str]:
    look = effect.looks[-1] if effect.looks else None
    return [
        effect.name + ("" if effect.registered else " (exploratory)"),
        "–" if look is None else _number(look.estimate),
        "–" if look is None else _range(look.low, look.high),
        _number(effect.estimate),
        _range(effect.low, effect.high),
        _range(effect.exact_low, effect.exact_high),
        str(effect.rounds),
        str(effect.missing),
        _range(effect.bound_low, effect.bound_high),
    ]


def _number(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else "–"


def _range(low: float, high: float) -> str:
    return f"{low:.3f} to {high:.3f}" if math.isfinite(low) and math.isfinite(high) else "–"


def text_of(analysis: Analysis) -> str:
    """Return the analysis for a console."""
    lines = [f"{analysis.study}: {analysis.decisions} decisions, {analysis.rewards} rewards"]
    tables = {title: grid.lines() for title, grid in tables_of(analysis).items()}
    tables[PROTOCOL] = [f"{what}: {value}" for what, value in analysis.protocol.items()]
    tables |= {"Deviations": list(analysis.deviations) or ["None."], "Notes": list(analysis.notes)}
    for title, body in tables.items():
        lines += ["", title, *body]
    return "\n".join(lines)


def html_of(analysis: Analysis | None, *, study: str = "", refused: str = "", live: bool = False) -> str:
    """Return the analysis as one HTML page; or, of a study that has none, why it was refused."""
    chart = "" if analysis is None else _chart(analysis)
    return _rendered("analysis.html", analysis, chart=chart, study=study, refused=refused, live=live, caption=CAPTION)


def write(analysis: Analysis, path: str | os.PathLike[str]) -> None:
    """Write the report that the name of the file asks for."""
    suffix = Path(path).suffix
    if suffix == ".json":
        text = json.dumps(analysis.describe(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    elif suffix == ".html":
        text = html_of(analysis)
    elif suffix == ".md":
        text = _rendered("analysis.md", analysis)
    else:
        raise InvalidInput(f"a report is .html, .md or .json; got {os.fspath(path)}.")
    with replacing(path) as file:
        file.write(text.encode())


def _rendered(template: str, analysis: Analysis | None, **context: Any) -> str:
    try:
        from rarely._pages.page import render
    except ImportError:
        raise InvalidInput("a report needs jinja2: pip install '.[lab]' in the checkout.") from None
    tables = [] if analysis is None else list(tables_of(analysis).items())
    titled = [(f"table-{place}", title, grid) for place, (title, grid) in enumerate(tables)]
    contents = [(id, title.partition(" (")[0]) for id, title, _ in titled]
    contents += [("deviations", "Deviations"), ("notes", "Notes")] if analysis is not None else []
    return render("rarely.study", template, contents=contents, analysis=analysis, tables=titled, **context)


def _chart(analysis: Analysis) -> Any:
    """Draw the intervals of all contrasts with the control arm, or of all contrasts if there is none."""
    from rarely._pages.svg import Chart

    effects = [effect for effect in analysis.contrasts if effect.registered] or list(analysis.contrasts)
    ends = [end for effect in effects for look in effect.looks for end in (look.low, look.high)]
    ends += [end for effect in effects for end in (effect.low, effect.high)]
    ends = [end for end in ends if math.isfinite(end)]
    if not ends:
        return ""
    chart = Chart("intervals of contrasts over looks", (-0.6, len(effects) - 0.4), (min(0, *ends), max(0, *ends)))
    chart.ticks = [(place, effect.name) for place, effect in enumerate(effects)]
    chart.level(0.0, "no difference")
    for place, effect in enumerate(effects):
        step = 0.8 / (len(effect.looks) + 1)
        for i, look in enumerate(effect.looks):
            x = place - 0.4 + step * (i + 0.5)
            chart.line([x, x], [look.low, look.high], place)
            chart.point(x, look.estimate, place)
        x = place - 0.4 + step * (len(effect.looks) + 0.5)
        chart.line([x, x], [effect.low, effect.high], place, dashed=True)
        chart.point(x, effect.estimate, place)
    return chart.svg()
