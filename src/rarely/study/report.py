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
EFFECTS = ["", "estimate at the last look", "interval of the look", "estimate now", "anytime", "exact anytime"]
EFFECTS += ["rewards", "missing", "bound for missing"]
PROTOCOL, BALANCE = "Protocol", "Covariate balance (standardised differences)"
CAPTION = (
    "Difference of mean rewards to the control arm: the interval of each look, and the anytime interval last (dashed); "
    "the dotted line is no difference."
)


def tables_of(analysis: Analysis) -> dict[str, Grid]:
    """Return the tables by their titles."""
    plan, level = analysis.plan, f"{100 * analysis.plan.level:g} %"
    looks = [
        [
            *(effect.name, str(look.round), str(look.rounds), _number(look.estimate), _range(look.low, look.high)),
            *(f"{look.boundary:.3f}", "no" if look.low <= 0 <= look.high else "yes"),
        ]
        for effect in analysis.contrasts
        for look in effect.looks
    ]
    stages = [
        [row.stage, row.name, str(row.rounds), str(row.missing), _number(row.estimate), _range(row.low, row.high)]
        for row in analysis.stages
    ]
    balance = [[*row[:2], *map(_number, row[2:])] for row in analysis.balance[:SHOWN]]
    heads: dict[str, tuple[Any, Any, int]] = {
        "Contrasts": (EFFECTS, [_row(effect) for effect in analysis.contrasts], 1),
        "Arm means": (EFFECTS, [_row(effect) for effect in analysis.means], 1),
        f"Looks ({plan.spending}, {len(plan.at)} planned)": (
            ("", "after decision", "rewards", "estimate", f"{level} interval", "boundary", "excludes 0"),
            looks,
            1,
        ),
        "Stages": (("stage", "", "rewards", "missing", "estimate", f"{level}, this stage alone"), stages, 2),
        BALANCE: (("covariate", "arms", "as given", "weighted", "by chance up to"), balance, 2),
        PROTOCOL: (("registered", "before the first decision"), [*analysis.protocol.items()], 2),
    }
    return {title: Grid(*parts) for title, parts in heads.items() if parts[1]}


def _row(effect: Effect) -> list[str]:
    look = effect.looks[-1] if effect.looks else None
    last = ["–", "–"] if look is None else [_number(look.estimate), _range(look.low, look.high)]
    now = [_number(effect.estimate), _range(effect.low, effect.high), _range(effect.exact_low, effect.exact_high)]
    counts = [str(effect.rounds), str(effect.missing), _range(effect.bound_low, effect.bound_high)]
    return [effect.name + ("" if effect.registered else " (exploratory)"), *last, *now, *counts]


def _number(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else "–"


def _range(low: float, high: float) -> str:
    return f"{low:.3f} to {high:.3f}" if math.isfinite(low) and math.isfinite(high) else "–"


def answers_of(analysis: Analysis) -> list[str]:
    """Return which arms were shown to be better than the control arm, by how much and how sure, a sentence each."""
    level = f"{100 * analysis.plan.level:g} %"
    return [_answer(effect, level) for effect in analysis.contrasts if effect.registered]


def _answer(effect: Effect, level: str) -> str:
    low, high, estimate, when = effect.low, effect.high, effect.estimate, "by the anytime interval: no look has come"
    if effect.looks:
        look = effect.looks[-1]
        low, high, estimate, when = look.low, look.high, look.estimate, f"at the look after decision {look.round}"
    if not math.isfinite(estimate):
        return f"{effect.arm} and {effect.against} cannot be compared yet."
    said = f"{_number(estimate)} ({level} interval {_range(low, high)}), {when}."
    if low <= 0 <= high:
        return f"No difference between {effect.arm} and {effect.against} is shown: {said}"
    return f"{effect.arm} is {'better' if low > 0 else 'worse'} than {effect.against}: {said}"


def text_of(analysis: Analysis) -> str:
    """Return the analysis for a console."""
    lines = [f"{analysis.study}: {analysis.decisions} decisions, {analysis.rewards} rewards", *answers_of(analysis)]
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
    answers = [] if analysis is None else answers_of(analysis)
    return render(
        "rarely.study", template, contents=contents, analysis=analysis, answers=answers, tables=titled, **context
    )


def _chart(analysis: Analysis) -> Any:
    """Draw the intervals of all contrasts with the control arm, or of all contrasts if there is none."""
    from rarely._pages.svg import Chart

    effects = [effect for effect in analysis.contrasts if effect.registered] or analysis.contrasts
    bars = [[*(look[2:5] for look in each.looks), (each.estimate, each.low, each.high)] for each in effects]
    ends = [end for each in bars for bar in each for end in bar if math.isfinite(end)]
    if not ends:
        return ""
    chart = Chart("intervals of contrasts over looks", (-0.6, len(effects) - 0.4), (min(0, *ends), max(0, *ends)))
    chart.ticks = [(place, effect.name) for place, effect in enumerate(effects)]
    chart.level(0.0)
    for place, each in enumerate(bars):
        for i, (estimate, low, high) in enumerate(each):
            x = place + 0.8 * ((i + 0.5) / len(each) - 0.5)
            chart.line([x, x], [low, high], place, dashed=i == len(each) - 1)
            chart.point(x, estimate, place)
    return chart.svg()
