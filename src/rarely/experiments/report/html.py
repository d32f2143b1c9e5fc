"""The report as one HTML file that needs nothing else: styles inside, figures as data."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from rarely.core.policies.presets import PresetName
from rarely.experiments.catalogue import FAIR
from rarely.experiments.records import Record
from rarely.experiments.report import tables
from rarely.experiments.report.claims import PRINTED_ROUNDS, Judged
from rarely.experiments.report.results import NEURAL, Comparison, overhead
from rarely.experiments.report.verdicts import Verdict

EXPLAINED: dict[PresetName, str] = {
    "paper": "the printed network, loss, contexts and rewards, with the step from the curvature, for the printed "
    "one diverges; float64",
    "practical": "the printed network and loss with contexts scaled and given a constant, rewards standardised, "
    "training in float32; rows of tables are standardised over the whole file",
    "code": "what the public NeuralUCB program of Zhou et al. (2020) does: biases, no √m, uniform initial weights, "
    "J steps on single samples at the printed η going on from the last weights, decay toward 0, bonus "
    "√(λν·gᵀZ⁻¹g); rows of tables scaled to norm 1",
}
DEVIATIONS = (
    "The printed step sizes diverge at once with f = √m·W<sub>L</sub>σ(…): presets paper and practical take "
    "1.8/(m(λ<sub>max</sub>(ΦΦᵀ) + λ)) and check that the loss falls; preset code has no √m and takes the printed "
    "ones.",
    "Z is the full matrix, exact at every round; the program that preset code follows keeps its diagonal only.",
    "The fixed grid is t<sub>b</sub> = ⌊bT/B⌋ + 1: the printed one where B divides T, and balanced elsewhere.",
    "Batch 0 has no printed policy: it is that of the initial weights with Z = λI. A budget of B versions is "
    "B − 1 updates.",
    "N(0, 0.25) is read as variance 0.25; cosine-sd and quadratic-sd have it as a standard deviation. MAGIC has "
    "m = 100 here; magic-m400 has the other value that the text prints.",
    "Values that the text does not name: B = 100 and 200 and log q = 20, 40, 60 for cosine; B = 100 and "
    "log q = 20, 40 for Mushroom.",
    "LinUCB's best pair (λ, β) of 16 is chosen on the very runs reported, as in the paper; beside it stands "
    f"λ = β = {FAIR[0]:g}, fixed beforehand, and both again with an intercept (“LinUCB + 1”: a constant in the "
    "context, for tables one in each arm's block).",
    "Times are processor time of selecting and training in a process with one BLAS thread, rounds decided one at a "
    "time; they are compared within runs on one machine, and they are times of this implementation: LinUCB goes "
    "through the same machinery as the others, at about a millisecond a round, so that NeuralUCB is fewer times slower "
    "than it would be against a bare rank-one update. The paper's own seconds cannot be compared with them.",
)


def render(
    records: Sequence[Record],
    comparisons: Sequence[Comparison],
    judged: Sequence[Judged],
    figures: Path,
    doubts: Sequence[str] = (),
) -> str:
    """The whole page; `doubts` are warnings about the records."""
    problems = [(name, list(group)) for name, group in groupby(comparisons, key=lambda c: c.problem)]
    sections = [
        _head(records, comparisons),
        *(f'<p class="warn">{escape(doubt)}</p>' for doubt in doubts),
        _navigation(problems, judged),
        _what_was_run(records, comparisons),
        *([_claims(judged)] if judged else []),
        _figure(figures, "frontier", "Regret against the number of updates, every configuration; intervals over runs."),
        *(_problem(name, group, figures) for name, group in problems),
        *([_deviations(), _evidence(judged)] if judged else []),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Batched Neural Bandits, reproduced</title><style>{_style()}</style></head>\n<body>\n"
        + "\n".join(sections)
        + "\n</body></html>\n"
    )


def _style() -> str:
    return Path(__file__).with_name("page.css").read_text(encoding="utf-8")


def _head(records: Sequence[Record], comparisons: Sequence[Comparison]) -> str:
    version = records[0].data["environment"]["rarely"]
    warnings = []
    if any(c.rounds != PRINTED_ROUNDS and c.base == c.problem for c in comparisons):
        lengths = ", ".join(str(n) for n in sorted({c.rounds for c in comparisons}))
        warnings.append(f"These runs have T = {lengths} rounds; the paper's have {PRINTED_ROUNDS}.")
    sequential = [len(c.series[NEURAL].runs) if NEURAL in c.series else 0 for c in comparisons]
    if min(sequential) < 10:
        few = " to ".join(str(n) for n in sorted({min(sequential), max(sequential)}))
        warnings.append(
            f"Sequential NeuralUCB, with which most claims compare, has {few} runs "
            "of a problem here; the paper's has 10. Few runs tell few things."
        )
    warned = "".join(f'<p class="warn">{escape(text)}</p>' for text in warnings)
    if not any(c.base for c in comparisons):
        return "<h1>BatchNeuralUCB and its rivals on a problem of your own</h1>"
    return (
        "<h1>Batched Neural Bandits, reproduced claim by claim</h1>"
        f"<p>Experiments of <em>Batched Neural Bandits</em> (Gu, Karbasi, Khosravi, Mirrokni, Zhou, 2021) by "
        f"<code>rarely</code> {escape(version)}. Every verdict is computed from the runs, with thresholds fixed "
        f"before any run; none is written by hand.</p>{warned}"
    )


def _navigation(problems: Iterable[tuple[str, list[Comparison]]], judged: Sequence[Judged]) -> str:
    links = [("run", "What was run"), ("claims", "Claims"), *((f"p-{n}", n) for n, _ in problems)]
    links += [("deviations", "Deviations"), ("evidence", "Evidence")]
    if not judged:
        links = [link for link in links if link[0] not in ("claims", "deviations", "evidence")]
    return "<nav>" + "".join(f'<a href="#{at}">{escape(text)}</a>' for at, text in links) + "</nav>"


def _what_was_run(records: Sequence[Record], comparisons: Sequence[Comparison]) -> str:
    machines = Counter(record.machine for record in records)
    versions = sorted({f"Python {_env(r, 'python')}, NumPy {_env(r, 'numpy')}, {_env(r, 'system')}" for r in records})
    hours = sum(record.seconds for record in records) / 3600
    many = "" if len(machines) == 1 else " Times are compared within one machine only."
    played = {c.preset for c in comparisons}
    readings = "".join(
        f"<li><strong>{p}</strong>{'' if p in played else ' (not run here)'}: {text}.</li>"
        for p, text in EXPLAINED.items()
    )
    return (
        '<h2 id="run">What was run</h2>'
        + _grid(tables.what_was_run(comparisons))
        + f"<p>{len(records)} records (one configuration on one run each), {hours:.2g} hours of processor time, on "
        + "; ".join(f"{escape(machine)} ({count} records)" for machine, count in machines.items())
        + f". {escape('; '.join(versions))}. Code {escape(records[0].data['code'])}.{many} Worlds and records took "
        + f"{100 * overhead(records):.1f} % of the policies' own time.</p>"
        + f"<p>The experiments can be read in three ways:</p><ul>{readings}</ul>"
    )


def _claims(judged: Sequence[Judged]) -> str:
    presets, rows = tables.claims(judged)
    body = []
    for row in rows:
        cells = [f'<td class="id">{escape(row.name)}</td><td>{escape(row.says)}</td>']
        cells += [_verdict_cell(one) for one in row.judged.values()]
        body.append(f"<tr>{''.join(cells)}</tr>")
    counted = "; ".join(f"{p}: {tables.tally([j for j in judged if j.preset == p])}" for p in presets)
    return (
        '<h2 id="claims">The claims</h2><p>✓ holds: the 95 % interval over runs, paired by seed, lies where the claim '
        "says. ✗ does not hold: it lies elsewhere. ? cannot be told from these runs. A claim with several comparisons "
        "holds if all do, overall-1 if most do; they are not corrected for their number, so with few runs one of many "
        "may fail by chance. The figures behind each verdict are under <a href='#evidence'>Evidence</a> and in "
        f"<code>claims.json</code>.</p><p class='faint'>{escape(counted)}.</p>"
        + _table(["claim", "the paper, in other words", *presets], body)
    )


def _verdict_cell(one: Judged | None) -> str:
    if one is None:
        return "<td>—</td>"
    return (
        f'<td><a class="v {_css(one.verdict)}" href="#{_anchor(one)}">{tables.MARKS[one.verdict]}</a>'
        f'<br><span class="faint">{escape(tables.behind(one))}</span></td>'
    )


def _problem(name: str, comparisons: Sequence[Comparison], figures: Path) -> str:
    parts = [f'<h2 id="p-{escape(name)}">{escape(name)}</h2>']
    for c in comparisons:
        parts.append(f"<h3>{escape(name)}, preset {c.preset}</h3>")
        parts.append(_results(c))
        for kind, caption in (
            ("box", "Total regret: solid line median, dashed line mean."),
            ("scatter", "Regret against processor time."),
            ("curves", "Mean regret so far; ticks where one run updated."),
            ("logdet", "How log det Z grew, and how much in each batch."),
        ):
            parts.append(_figure(figures, f"{c.problem}-{c.preset}-{kind}", caption))
    return "\n".join(parts)


def _results(c: Comparison) -> str:
    notes = _same_runs(c)
    if retried := sum(series.retried for series in c.series.values()):
        notes.append(f"Trainings were tried again with a smaller step {retried} times.")
    if rejected := sum(series.rejected for series in c.series.values()):
        notes.append(f"{rejected} updates were refused by training's own check; the version in use went on.")
    told = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return _grid(tables.results(c)) + (f"<ul class='faint'>{told}</ul>" if told else "")


def _same_runs(c: Comparison) -> list[str]:
    """Adaptive configurations that never met their budget are the same runs: say so."""
    notes = []
    adaptive = c.of_kind("adaptive")
    for i, a in enumerate(adaptive):
        twins = [b.label for b in adaptive[i + 1 :] if c.same_runs(a, b)]
        if twins and not any(c.same_runs(before, a) for before in adaptive[:i]):
            notes.append(
                f"{a.label} and {', '.join(twins)} are the same runs: the trigger asks for fewer versions than B."
            )
    return notes


def _deviations() -> str:
    return (
        '<h2 id="deviations">What deviates from the printed text, and why</h2><ul>'
        + "".join(f"<li>{text}</li>" for text in DEVIATIONS)
        + "</ul>"
    )


def _evidence(judged: Sequence[Judged]) -> str:
    parts = ['<h2 id="evidence">Evidence</h2><p class="faint">Lines in grey stand beside a claim and do not count.</p>']
    for one in judged:
        body = []
        for check in one.checks:
            css = "" if check.counts else ' class="beside"'
            note = f'<br><span class="faint">{escape(check.note)}</span>' if check.note else ""
            body.append(
                f"<tr{css}><td>{escape(check.what)}{note}</td><td>{escape(check.needs)}</td>"
                f'<td>{escape(tables.number(check.estimate))}</td><td class="{_css(check.verdict)}">'
                f"{tables.MARKS[check.verdict]}</td></tr>"
            )
        parts.append(
            f'<details open id="{_anchor(one)}"><summary><strong>{escape(one.claim.id)}</strong> '
            f'{escape(one.problem)}, {one.preset}: <span class="{_css(one.verdict)}">{one.verdict}</span></summary>'
            f"<p>{escape(one.claim.says)} <span class='faint'>{escape(one.rule)}</span></p>"
            + _table(["compared", "needs", "measured [95 %]", "verdict"], body)
            + "</details>"
        )
    return "\n".join(parts)


def _figure(folder: Path, name: str, caption: str) -> str:
    data = base64.b64encode((folder / f"{name}.svg").read_bytes()).decode()
    wide = ' class="wide"' if name == "frontier" else ""
    return (
        f'<figure{wide}><div class="scroll"><img alt="{escape(caption)}" src="data:image/svg+xml;base64,{data}"></div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _grid(grid: tables.Grid) -> str:
    body = [f"<tr>{''.join(_cells('td', line, grid.numbers))}</tr>" for line in grid.body]
    return _scrolled("".join(_cells("th", grid.head, grid.numbers)), body, "grid")


def _table(head: Sequence[str], body: Sequence[str]) -> str:
    return _scrolled("".join(_cells("th", head, len(head))), body)


def _cells(tag: str, texts: Sequence[str], numbers: int) -> Iterator[str]:
    for i, text in enumerate(texts):
        css = ' class="n"' if i >= numbers else ""
        yield f"<{tag}{css}>{escape(text)}</{tag}>"


def _scrolled(head: str, body: Sequence[str], css: str = "") -> str:
    rows = "\n".join(body)
    head = f"<thead><tr>{head}</tr></thead>"
    return f'<div class="scroll"><table class="{css}">{head}<tbody>\n{rows}\n</tbody></table></div>'


def _css(verdict: Verdict) -> str:
    return verdict.replace(" ", "-")


def _anchor(one: Judged) -> str:
    return f"{one.claim.id}-{one.problem}-{one.preset}"


def _env(record: Record, name: str) -> str:
    return str(record.data["environment"][name])
