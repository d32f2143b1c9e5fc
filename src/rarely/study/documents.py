"""Documents beside the tables of a trial: its flow of patients, its allocation over time, and the ACE checklist.

The checklist is that of Dimairo and others, "The adaptive designs CONSORT extension (ACE) statement", Trials 21, 528
(2020): its new and modified items in our words, and where a report of ours answers them.
"""

from __future__ import annotations

from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

from rarely.pages.grid import Grid

if TYPE_CHECKING:
    from markupsafe import Markup

    from rarely.study.analysis import Analysis

AUTHORS = "for the authors to write"
ACE = (
    ("3b", "the adaptive design, the adaptations that were planned, and on what they rest", "Protocol; the plan"),
    ("3c", "changes of design and methods that were not planned, and why", "Deviations"),
    ("6a, 6b", "outcomes, also those that adaptations use, and unplanned changes of them", AUTHORS),
    ("7a", "how size and operating characteristics were found", "plan_trial: its table and seeds"),
    ("7b", "rules of decision at looks, binding or not; looks planned and taken", "the plan; Looks; Outlook"),
    ("8b", "randomisation, and how allocation was updated, by which rule and when", "Protocol; Allocation over time"),
    ("11c", "how interim results were kept from those who must not know them", f"blinded view; {AUTHORS}"),
    ("12a, 12b", "statistical methods that fit the adaptations", "the plan; Notes"),
    ("13a, 13b", "patients allocated, lost and analysed, of each arm", "Flow of patients"),
    ("14a, 14b", "dates, and why the trial ended", "the record: closing acts and reasons; Deviations"),
    ("14c", "decisions of adaptation that were taken, by the rules and the data of the time", "Looks; Acts"),
    ("15b", "whether patients of different stages are alike", "Patients by stage; Stages and subgroups"),
    ("17a, 17c", "effects with intervals, and the interim results that decisions rested on", "Contrasts; Looks"),
    ("20, 21", "limits, bias and for whom results hold", f"Notes; {AUTHORS}"),
    ("24b", "where plan and protocol can be read", "the hashes of plan and first event"),
)
NAME = 22  # letters of an arm's name in the drawing
WIDTH, ROW, TALL = 400, 50, 38
COLUMNS = ((4, 196), (214, 84), (312, 84))  # where the boxes of an arm begin, and how wide they are


def checklist() -> Grid:
    """Return the items of the ACE checklist, and where they are answered."""
    return Grid(["item", "what it asks", "answered by"], [list(row) for row in ACE], 3)


def flow_of(analysis: Analysis) -> Markup:
    """Draw the flow of patients after CONSORT: enrolled, allocated, without an outcome, analysed."""
    from markupsafe import Markup

    state = "enrolment has ended" if analysis.ended else "enrolment is open"
    marks = [_box(4, 4, WIDTH - 8, [f"{analysis.decisions} of {analysis.plan.rounds} patients enrolled", state])]
    heads = zip(COLUMNS, ("allocated", "without outcome", "analysed"), strict=True)
    marks += [_text(x + width / 2, 62, head) for (x, width), head in heads]
    for place, (name, allocated, outcomes, lacking, closed, _) in enumerate(analysis.flow):
        top = 70 + ROW * place
        short = name if len(name) <= NAME else f"{name[: NAME - 1]}…"
        count = f"{allocated} patients" + ("" if closed is None else f", closed after {closed}")
        lines = [[f"{short}:", count], [str(lacking)], [str(outcomes)]]
        marks += [_box(x, top, width, each) for (x, width), each in zip(COLUMNS, lines, strict=True)]
        for (x, width), (after, _) in pairwise(COLUMNS):
            middle = top + TALL / 2
            marks.append(f'<path d="M{x + width} {middle}H{after - 1}m-5 -3l5 3l-5 3" class="axis"/>')
    title, tall = "flow of patients", 70 + ROW * len(analysis.flow)
    head = f'class="chart" viewBox="0 0 {WIDTH} {tall}" role="img" aria-label="{title}"'
    return Markup(f"<svg {head}><title>{title}</title>{''.join(marks)}</svg>")


def _box(x: float, y: float, width: float, lines: list[str]) -> str:
    first = y + TALL / 2 + 4 - 7.5 * (len(lines) - 1)
    texts = [_text(x + width / 2, first + 15 * place, line) for place, line in enumerate(lines)]
    return f'<rect x="{x}" y="{y}" width="{width}" height="{TALL}" rx="3" class="axis"/>{"".join(texts)}'


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{escape(text)}</text>'


def allocation_of(analysis: Analysis) -> tuple[Markup, list[tuple[str, str]]] | None:
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
