"""The analysis of a trial as text and HTML: the same tables in both."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rarely._core.errors import InvalidInput
from rarely._pages.grid import Grid

if TYPE_CHECKING:
    from rarely.study.analysis import Analysis, Effect

EFFECTS = ["", "estimate at the last look", "interval of the look", "estimate now", "anytime"]
EFFECTS += ["rewards", "missing", "bound for missing"]
PROTOCOL = "Protocol"


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
    heads: dict[str, tuple[Any, Any, int]] = {
        "Contrasts": (EFFECTS, [_row(effect) for effect in analysis.contrasts], 1),
        "Arm means": (EFFECTS, [_row(effect) for effect in analysis.means], 1),
        f"Looks ({plan.spending}, {len(plan.at)} planned)": (
            ("", "after decision", "rewards", "estimate", f"{level} interval", "boundary", "excludes 0"),
            looks,
            1,
        ),
        PROTOCOL: (("registered", "before the first decision"), [*analysis.protocol.items()], 2),
    }
    return {title: Grid(*parts) for title, parts in heads.items() if parts[1]}


def _row(effect: Effect) -> list[str]:
    look = effect.looks[-1] if effect.looks else None
    last = ["–", "–"] if look is None else [_number(look.estimate), _range(look.low, look.high)]
    now = [_number(effect.estimate), _range(effect.low, effect.high)]
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
    return _rendered("analysis.html", analysis, study=study, refused=refused, live=live)


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
