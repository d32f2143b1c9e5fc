"""The analysis of a trial as text, Markdown and a page: the same tables and sentences in all of them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from rarely.errors import InvalidInput
from rarely.extend.provisional import write_file
from rarely.pages.grid import Grid
from rarely.study.events import day
from rarely.study.plan import read_template

if TYPE_CHECKING:
    from markupsafe import Markup

    from rarely.study.analysis import Analysis, Effect

    Drawing = tuple[Markup, list[tuple[str, str]]]  # a chart, and the colours and names of its legend

FEW = 30  # rounds that a variance must rest on before a normal approximation is trusted without a note
SHOWN = 12  # covariates in the table of balance
EFFECTS = ["", "estimate at the last look", "interval of the look", "estimate now", "anytime", "exact anytime"]
EFFECTS += ["outcomes used", "missing", "bound for missing"]
FLOW = ("arm", "allocated", "outcomes", "without one", "closed after", "plain mean")
LOOKS = ["", "after decision", "outcomes used", "of planned", "estimate", "interval", "Z", "boundary", "excludes 0"]
LOOKS += ["repeated p", "event"]
LATER = ("", "after decision", "outcomes then", "outcomes now", "estimate", "interval")
OUTLOOKS = ("", "after decision", "Z", "futility below", "power by trend", "as planned", "predictive")
FINALS = ("", "median-unbiased", "level", "interval", "p, two-sided", "p, adjusted", "tipping point of missing rewards")
CHECKLIST = "ACE checklist"
CHECKLIST_NOTE = (
    "Items that an adaptive design adds to CONSORT 2010 or changes, in our words, after table 2 of the ACE statement "
    "(Dimairo et al., Trials 21, 528, 2020), and where this report answers them. We read their numbers there, but for "
    "those marked *: we could not read their letters, so they stand under their sections."
)
PROTOCOL, BALANCE = "Protocol", "Covariate balance (standardised differences)"
CAPTION = (
    "Difference of mean rewards to the control arm: the interval of each look, and the anytime interval last (dashed); "
    "the dotted line is no difference."
)


def text_of(analysis: Analysis) -> str:
    """Return the analysis as text for a console."""
    lines = [f"{analysis.study}: {cut_of(analysis)}"]
    lines += [*answers_of(analysis), *advice_of(analysis)]
    tables = {title: grid.lines() for title, grid in tables_of(analysis).items() if title != CHECKLIST}
    tables[PROTOCOL] = [f"{what}: {value}" for what, value in analysis.protocol.items()]
    tables |= {"Deviations": list(analysis.deviations) or ["None."], "Notes": list(analysis.notes)}
    for title, body in tables.items():
        lines += ["", title, *body]
    return "\n".join(lines)


def cut_of(analysis: Analysis) -> str:
    """Return how many patients were analysed, when they came, and which event ends the record of what was known."""
    came = "" if analysis.enrolled is None else f" from {' to '.join(map(day, analysis.enrolled))}"
    said = f"{analysis.decisions} decisions{came}, {analysis.rewards} rewards, as of {analysis.day} (UTC)"
    return f"{said}: event {analysis.event}, hash {analysis.hash}."


def blinded_text_of(analysis: Analysis) -> str:
    """Return counts over all arms, the looks that came, and no arm's name, estimate or share."""
    lines = [f"{analysis.study}: {analysis.decisions} of {analysis.plan.rounds} decisions, {analysis.rewards} rewards"]
    lines.append(f"{analysis.decisions - analysis.rewards} without one; {'ended' if analysis.ended else 'open'}")
    # A closed arm has a smaller share than the look, which would tell that it was closed.
    for looks in zip(*(effect.looks for effect in analysis.means), strict=True):
        share = max(look.fraction for look in looks)
        lines.append(f"look after decision {looks[0].round}, {share:.0%} of the outcomes planned")
    return "\n".join([*lines, f"deviations: {len(analysis.deviations)}", f"plan {analysis.plan.hash}"])


def tables_of(analysis: Analysis) -> dict[str, Grid]:
    """Return the tables by their titles."""
    balance = [[*row[:2], *map(_number, row[2:])] for row in analysis.balance[:SHOWN]]
    stages = [
        [row.stage, row.name, str(row.rounds), str(row.missing), _number(row.estimate), _range(row.low, row.high)]
        for row in analysis.stages
    ]
    parts = dict.fromkeys(row.stage for row in analysis.stages if "(subgroup)" not in row.stage)
    means = [[name, *map(_number, each)] for name, each in analysis.patients[:SHOWN]]
    allocation = [[str(until), *(f"{chance:.2f}" for chance in chances)] for until, chances in analysis.allocation]
    flow = [[*map(str, row[:4]), str(row[4] or "–"), _number(row[5])] for row in analysis.flow]
    ace = [line.split("|") for line in read_template("ace_checklist.txt").splitlines()]
    alone = f"{100 * analysis.plan.level:g} %, this stage alone"
    heads: dict[str, tuple[Any, Any, int]] = {
        **_tables_of_looks(analysis),
        "Contrasts": (EFFECTS, [_row(effect) for effect in analysis.contrasts], 1),
        "Flow of patients": (FLOW, flow, 1),
        "Acts": (("day", "who", "what", "why"), [list(row) for row in analysis.acts], 4),
        "Allocation over time (mean probabilities)": (("until round", *(r[0] for r in analysis.flow)), allocation, 0),
        "Arm means": (EFFECTS, [_row(effect) for effect in analysis.means], 1),
        "Stages and subgroups": (("stage", "", "outcomes used", "missing", "estimate", alone), stages, 2),
        "Patients by stage (means of covariates)": (("covariate", *parts), means, 1),
        BALANCE: (("covariate", "arms", "as given", "weighted", "by chance up to"), balance, 2),
        PROTOCOL: (("registered", "before the first decision"), [*analysis.protocol.items()], 2),
    }
    return {title: Grid(*parts) for title, parts in heads.items() if parts[1]} | {
        CHECKLIST: Grid(["item", "what it asks", "answered by"], ace, 3)
    }


def _tables_of_looks(analysis: Analysis) -> dict[str, tuple[Any, Any, int]]:
    """Return the looks, what to expect after them, and what is said at the end."""
    registered = [effect for effect in analysis.contrasts if effect.registered]
    shown = [(effect, look) for effect in registered or analysis.contrasts for look in effect.looks]
    at = [(effect.name, str(look.round), str(look.rounds)) for effect, look in shown]
    looks = [
        [
            *(*place, f"{look.fraction:.0%}", _number(look.estimate), _range(look.low, look.high)),
            *(_number(look.z), _number(look.boundary), "yes" if look.excludes_zero else "no"),
            *(_p(look.p), str(look.event or "–")),
        ]
        for place, (_, look) in zip(at, shown, strict=True)
    ]
    later = [
        [*place, str(look.later[0]), _number(look.later[1]), _range(*look.later[2:])]
        for place, (_, look) in zip(at, shown, strict=True)
        if look.later is not None and look.later[0] != look.rounds
    ]
    outlooks = [
        [effect.name, str(look.round), _number(look.z), *map(_number, look.outlook)]
        for effect, look in shown
        if look.outlook is not None
    ]
    finals = [
        [
            *(effect.name, _number(each.median), f"{100 * effect.level:.4g} %", _range(each.low, each.high)),
            *(_p(each.p), "–" if effect.adjusted is None else _p(effect.adjusted), _share(effect)),
        ]
        for effect in registered
        if (each := effect.final) is not None
    ]
    return {
        "Final estimates (in the order of stages)": (FINALS, finals, 1),
        f"Looks ({analysis.plan.spending}, {len(analysis.plan.at)} planned)": (LOOKS, looks, 1),
        "Looks with later outcomes (which changed no decision)": (LATER, later, 1),
        "Outlook (at each look)": (OUTLOOKS, outlooks, 1),
    }


def _row(effect: Effect) -> list[str]:
    look = effect.looks[-1] if effect.looks else None
    last = ["–", "–"] if look is None else [_number(look.estimate), _range(look.low, look.high)]
    now = [_number(effect.estimate), _range(effect.low, effect.high), _range(effect.exact_low, effect.exact_high)]
    counts = [str(effect.rounds), str(effect.missing), _range(effect.bound_low, effect.bound_high)]
    return [effect.name + ("" if effect.registered else " (exploratory)"), *last, *now, *counts]


def _number(value: float) -> str:
    return f"{value:z.3f}" if math.isfinite(value) else "–"


def _range(low: float, high: float) -> str:
    return f"{low:z.3f} to {high:z.3f}" if math.isfinite(low) and math.isfinite(high) else "–"


def _p(value: float) -> str:
    return "–" if math.isnan(value) else "< 0.0001" if value < 1e-4 else f"{value:.4f}"


def _share(effect: Effect) -> str:
    if effect.shown is None or not effect.missing or not effect.looks[-1].excludes_zero:
        return "–"
    return "no values undo it" if effect.tipping is None else f"{effect.tipping:.0%} of the way to the worst"


def answers_of(analysis: Analysis) -> list[str]:
    """Return which arms were shown to be better than the control arm, by how much and how sure, a sentence each."""
    return [_answer(effect, analysis) for effect in analysis.contrasts if effect.registered]


def _answer(effect: Effect, analysis: Analysis) -> str:
    low, high, estimate, when = effect.low, effect.high, effect.estimate, "by the anytime interval: no look has come"
    level, difference = analysis.plan.level, not low <= 0 <= high
    if effect.looks:
        look = effect.looks[-1]
        low, high, estimate = look.low, look.high, look.estimate
        when = f"repeated p {_p(look.p)}, at the look after decision {look.round}"
        level, difference = effect.level, effect.shown is not None
    if effect.final is not None:
        low, high, estimate = effect.final.low, effect.final.high, effect.final.median
        p = "" if effect.adjusted is None else f"adjusted p {_p(effect.adjusted)}, "
        when = f"{p}median-unbiased at the end, after decision {look.round}"
    if effect.effective < FEW and not difference and not effect.exact_low <= 0 <= effect.exact_high:
        low, high, estimate = effect.exact_low, effect.exact_high, effect.estimate
        when, level, difference = "by the exact anytime interval", analysis.plan.level, True
    if not math.isfinite(estimate):
        return f"{effect.arm} and {effect.against} cannot be compared yet."
    said = f"{_number(estimate)} ({100 * level:.4g} % interval {_range(low, high)}), {when}."
    for name, *_, closed, _ in analysis.flow:
        if closed is not None and name in (effect.arm, effect.against):
            said += f" {name} got no patients after decision {closed}."
    if not difference and effect.looks and effect.looks[-1].excludes_zero:  # of comparisons in order
        return f"{effect.arm} and {effect.against} wait for the comparison before theirs, which showed nothing: {said}"
    if not difference:
        return f"No difference between {effect.arm} and {effect.against} is shown: {said}"
    if effect.shown is None:
        return f"{effect.arm} is {'better' if estimate > 0 else 'worse'} than {effect.against}: {said}"
    crossed = effect.looks[effect.shown]
    kind, first = "better" if crossed.estimate > 0 else "worse", f"at the look after decision {crossed.round}"
    if estimate * crossed.estimate < 0 or (low <= 0 <= high and crossed.excludes_zero):
        was = f"{effect.arm} was shown to be {kind} than {effect.against} {first}"
        return f"{was}, but the trial went on and does not bear this out: {said}"
    if low <= 0 <= high:
        said += " Closed testing shows it with the error that other comparisons left; the interval has a share alone."
    said += f" First shown {first}." if crossed.round < effect.looks[-1].round else ""
    return f"{effect.arm} is {kind} than {effect.against}: {said}"


def advice_of(analysis: Analysis) -> list[str]:
    """Return whether to stop or to continue, a sentence for each registered comparison whose trial goes on."""
    going = [effect for effect in analysis.contrasts if effect.registered and effect.looks and not effect.final]
    effects = [effect for effect in going if not (effect.closed or analysis.ended)]
    return [f"{effect.name}: {_advice(effect, analysis.plan.effect)}" for effect in effects]


def _advice(effect: Effect, wanted: float | None) -> str:
    look, outlook = effect.looks[-1], effect.outlook
    if effect.shown is not None:
        crossed = effect.looks[effect.shown]
        kind = "efficacy" if crossed.estimate > 0 else "harm"
        return f"stop for {kind}; the boundary was crossed at the look after decision {crossed.round}."
    if outlook is None:
        return "cannot tell: the rewards give no interval yet."
    chances = f"the trend leads to a crossing with probability {outlook.trend:.0%}"
    if not math.isnan(outlook.planned):
        chances += f", the planned effect with {outlook.planned:.0%}"
    if look.z < outlook.futility:
        low = f"Z is {look.z:.2f}, and a difference of {wanted:g} would hardly leave it below {outlook.futility:.2f}"
        return f"stop for futility (not binding); {low}; {chances}."
    return f"continue; {chances}."


def html_of(analysis: Analysis | None, *, study: str = "", refused: str = "", live: bool = False) -> str:
    """Return the analysis as one HTML page; or, of a study that has none, why it was refused."""
    drawings = {"effects": _chart, "allocation": _allocation}
    drawn = {} if analysis is None else {what: draw(analysis) for what, draw in drawings.items()}
    return rendered("analysis.html", analysis, study=study, refused=refused, live=live, caption=CAPTION, drawn=drawn)


def write_report(
    path: str | os.PathLike[str], made: dict[str, Callable[[], str]], page: str = "", **context: Any
) -> None:
    """Write what is made of the kind that a file's name asks for; .html of a template, if one is named."""
    made = made | ({".html": lambda: _render(page, **context)} if page else {})
    suffix = os.path.splitext(path)[1]
    if suffix not in made:
        raise InvalidInput(f"a report is {' or '.join(sorted(made))}, by the name of the file; got {os.fspath(path)}.")
    write_file(path, made[suffix]())


def _render(template: str, **context: Any) -> str:
    try:
        from rarely.pages.page import render
    except ImportError:
        raise InvalidInput("a report needs jinja2: pip install jinja2.") from None
    return render("rarely.study", template, **context)


def rendered(template: str, analysis: Analysis | None, **context: Any) -> str:
    """Return the analysis as a template has it: tables, contents and answers."""
    tables = [] if analysis is None else list(tables_of(analysis).items())
    titled = [(f"table-{place}", title, grid) for place, (title, grid) in enumerate(tables)]
    contents = [(id, title.partition(" (")[0]) for id, title, _ in titled]
    contents += [("deviations", "Deviations"), ("notes", "Notes")] if analysis is not None else []
    answers = [] if analysis is None else [*answers_of(analysis), *advice_of(analysis)]
    shown = {"analysis": analysis, "answers": answers, "cut": "" if analysis is None else cut_of(analysis)}
    return _render(template, contents=contents, tables=titled, note=CHECKLIST_NOTE, **shown, **context)


def _chart(analysis: Analysis) -> Drawing | None:
    """Draw the intervals of all contrasts with the control arm, or of all contrasts if there is none."""
    from rarely.pages.svg import Chart, legend

    effects = [effect for effect in analysis.contrasts if effect.registered] or analysis.contrasts
    bars = [
        [*((look.estimate, look.low, look.high) for look in each.looks), (each.estimate, each.low, each.high)]
        for each in effects
    ]
    ends = [end for each in bars for bar in each for end in bar if math.isfinite(end)]
    if not ends:
        return None
    chart = Chart("intervals of contrasts over looks", (-0.6, len(effects) - 0.4), (min(0, *ends), max(0, *ends)))
    chart.ticks = [(place, str(place + 1)) for place in range(len(effects))]  # names would run into one another
    chart.level(0.0)
    for place, each in enumerate(bars):
        for i, (estimate, low, high) in enumerate(each):
            x = place + 0.8 * ((i + 0.5) / len(each) - 0.5)
            chart.line([x, x], [low, high], place, dashed=i == len(each) - 1)
            chart.point(x, estimate, place)
    return chart.svg(), legend(*(f"{place} {effect.name}" for place, effect in enumerate(effects, 1)))


def _allocation(analysis: Analysis) -> Drawing | None:
    """Draw the mean probability of each arm over time, with a legend; None without decisions, or of very many arms."""
    from rarely.pages.svg import SERIES, Chart, legend

    if not analysis.allocation or len(analysis.flow) > len(SERIES):
        return None
    chart = Chart("allocation over time", (0, analysis.decisions), (0.0, 1.0), "decisions")
    ends = [0, *(until for until, _ in analysis.allocation)]
    for arm in range(len(analysis.flow)):
        shares = [each[arm] for _, each in analysis.allocation for _ in (0, 1)]
        chart.line([end for step in pairwise(ends) for end in step], shares, arm)
    return chart.svg(), legend(*(row[0] for row in analysis.flow))
