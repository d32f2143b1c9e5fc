"""The report as one HTML file that needs nothing else: styles inside, figures as data."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from rarely.experiments.records import Record
from rarely.experiments.report import tables
from rarely.experiments.report.claims import PRINTED_ROUNDS, Judged
from rarely.experiments.report.growth import growth_problem
from rarely.experiments.report.headline import sentences
from rarely.experiments.report.results import NEURAL, Comparison, overhead
from rarely.experiments.report.texts import DEVIATIONS, EXPLAINED
from rarely.experiments.report.verdicts import Verdict
from rarely.simulation.inline_svg import inline
from rarely.simulation.page import document, grid, table

PRINTED_RUNS = 10


def render(
    records: Sequence[Record],
    comparisons: Sequence[Comparison],
    judged: Sequence[Judged],
    figures: Path,
    doubts: Sequence[str] = (),
) -> str:
    """The whole page; `doubts` are warnings about the records."""
    plain = [c for c in comparisons if not growth_problem(c.problem)]
    problems = [(name, list(group)) for name, group in groupby(plain, key=lambda c: c.problem)]
    sections = [
        _head(records, comparisons),
        *([_headline(comparisons, judged)] if judged else []),
        _warnings(plain),
        *(f'<p class="warn">{escape(doubt)}</p>' for doubt in doubts),
        _navigation(problems, judged),
        _what_was_run(records, comparisons),
        *([_claims(judged)] if judged else []),
        _frontiers(comparisons, figures),
        *(_problem(name, group, figures) for name, group in problems),
        *([_deviations(), _evidence(judged)] if judged else []),
    ]
    return document("Batched Neural Bandits, reproduced", "\n".join(sections))


def _head(records: Sequence[Record], comparisons: Sequence[Comparison]) -> str:
    version = records[0].data["environment"]["rarely"]
    if not any(c.base for c in comparisons):
        return "<h1>BatchNeuralUCB and its rivals on a problem of your own</h1>"
    return (
        "<h1>Batched Neural Bandits, reproduced claim by claim</h1>"
        f"<p>Experiments of <em>Batched Neural Bandits</em> (Gu, Karbasi, Khosravi, Mirrokni, Zhou, 2021) by "
        f"<code>rarely</code> {escape(version)}. Every verdict is computed from the runs, with thresholds fixed "
        "before any run; none is written by hand.</p>"
    )


def _warnings(comparisons: Sequence[Comparison]) -> str:
    """In what the runs fall short of the paper's."""
    warnings = []
    if any(c.rounds != PRINTED_ROUNDS and c.base and c.base == c.problem for c in comparisons):
        lengths = ", ".join(str(n) for n in sorted({c.rounds for c in comparisons}))
        warnings.append(f"These runs have T = {lengths} rounds; the paper's have {PRINTED_ROUNDS}.")
    sequential = [len(c.series[NEURAL].runs) if NEURAL in c.series else 0 for c in comparisons if c.base]
    if sequential and min(sequential) < PRINTED_RUNS:
        few = " to ".join(str(n) for n in sorted({min(sequential), max(sequential)}))
        warnings.append(
            f"Sequential NeuralUCB, with which most claims compare, has {few} runs "
            f"of a problem here; the paper's has {PRINTED_RUNS}. Few runs tell few things."
        )
    return "".join(f'<p class="warn">{escape(text)}</p>' for text in warnings)


def _headline(comparisons: Sequence[Comparison], judged: Sequence[Judged]) -> str:
    told = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences(comparisons, judged))
    return f'<ul class="headline" id="summary">{told}</ul>'


def _frontiers(comparisons: Sequence[Comparison], figures: Path) -> str:
    """Regret against updates in every preset, and the B that each scheme needs where several lengths were played."""
    about = {
        "frontier": "Regret against the number of updates, every configuration, with intervals over runs; "
        "single runs as dots where there are few.",
        "growth": "The B that each scheme needs for at most 25 % more regret than the finest grid of 256.",
    }
    names = [f"frontier-{preset}" for preset in dict.fromkeys(c.preset for c in comparisons)]
    names += [f"growth-{c.preset}" for c in comparisons if growth_problem(c.problem)]
    there = [name for name in dict.fromkeys(names) if (figures / f"{name}.svg").exists()]
    return _row([_figure(figures, name, about[name.split("-")[0]]) for name in there])


def _row(figures: Sequence[str]) -> str:
    return f'<div class="figures">{"".join(figures)}</div>'


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
        cells += [_verdict_cell(preset, one) for preset, one in row.judged.items()]
        body.append(f"<tr>{''.join(cells)}</tr>")
    counted = "; ".join(f"{p}: {tables.tally([j for j in judged if j.preset == p])}" for p in presets)
    return (
        '<h2 id="claims">The claims</h2><p>✓ holds: the 95 % interval over runs, paired by seed, lies where the claim '
        "says. ✗ does not hold: an interval that is widened for the number of comparisons (Holm) lies elsewhere. "
        "? cannot be told from these runs. Of ten runs or more it says with how many chances would be even, or that it "
        "is a tie, which ten times as many with the same means and spreads would not decide. A claim with several "
        "comparisons holds if all do, overall-1 if most do. "
        "Configurations with values that the paper does not name do not decide. The comparisons behind each verdict "
        "are under <a href='#evidence'>Evidence</a> and in "
        f"<code>claims.json</code>.</p><p class='faint'>{escape(counted)}.</p>"
        + table(["claim", "the paper, in other words", *presets], body, "claims")
    )


def _verdict_cell(preset: str, one: Judged | None) -> str:
    if one is None:
        return f'<td data-preset="{preset}">—</td>'
    return (
        f'<td data-preset="{preset}"><a class="v {_css(one.verdict)}" href="#{_anchor(one)}">{tables.mark(one)}</a>'
        f'<br><span class="faint">{escape(tables.behind(one))}</span></td>'
    )


def _problem(name: str, comparisons: Sequence[Comparison], figures: Path) -> str:
    parts = [f'<h2 id="p-{escape(name)}">{escape(name)}</h2>']
    for c in comparisons:
        parts.append(f"<h3>{escape(name)}, preset {c.preset}</h3>")
        parts.append(_results(c))
        captions = {
            "box": "Total regret of every configuration.",
            "scatter": "Regret against processor time.",
            "curves": "Mean regret so far; ticks where one run updated.",
            "logdet": "How log det Z grew, and how much in each batch.",
        }
        parts.append(_row([_figure(figures, f"{c.problem}-{c.preset}-{kind}", captions[kind]) for kind in captions]))
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
        for each in one.checks:
            css = "" if each in one.counted else ' class="beside"'
            note = f'<br><span class="faint">{escape(each.note)}</span>' if each.note else ""
            verdict = "" if one.claim.kind == "figure" else tables.MARKS[each.verdict]
            body.append(
                f"<tr{css}><td>{escape(each.check.what)}{note}</td><td>{escape(each.check.needs)}</td>"
                f'<td>{escape(tables.number(each))}</td><td class="{_css(each.verdict)}">{verdict}</td></tr>'
            )
        parts.append(
            f'<details open id="{_anchor(one)}"><summary><strong>{escape(one.claim.id)}</strong> '
            f'{escape(one.problem)}, {one.preset}: <span class="{_css(one.verdict)}">{tables.mark(one)}</span>'
            "</summary>"
            f"<p>{escape(one.claim.says)} <span class='faint'>{escape(one.claim.rule.says)}</span></p>"
            + table(["compared", "needs", "measured [interval that decided]", "verdict"], body, "evidence")
            + "</details>"
        )
    return "\n".join(parts)


def _figure(folder: Path, name: str, caption: str) -> str:
    svg = inline((folder / f"{name}.svg").read_text(encoding="utf-8"), f"{name}: {caption}", _short(name))
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def _short(name: str) -> str:
    """A few letters for the ids of a figure, of which there are many."""
    return f"i{zlib.crc32(name.encode()):x}-"


def _grid(given: tables.Grid) -> str:
    return grid(given.head, given.body, given.numbers)


def _css(verdict: Verdict) -> str:
    return verdict.replace(" ", "-")


def _anchor(one: Judged) -> str:
    return f"{one.claim.id}-{one.problem}-{one.preset}"


def _env(record: Record, name: str) -> str:
    return str(record.data["environment"][name])
