"""The report as one HTML file that needs nothing else: styles inside, figures as data."""

from __future__ import annotations

import base64
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from rarely.core.policies.neural import Preset
from rarely.lab.catalogue import FAIR
from rarely.lab.claims import PRINTED_ROUNDS, Judged
from rarely.lab.config import PRESETS
from rarely.lab.markdown import number
from rarely.lab.records import Record
from rarely.lab.results import BEST_LINEAR, Comparison, overhead
from rarely.lab.summary import rows
from rarely.lab.verdicts import Check, Verdict

MARKS: dict[Verdict, str] = {"holds": "✓", "does not hold": "✗", "cannot be told": "?"}
READINGS: dict[Preset, str] = {
    "paper": "the printed network, loss, contexts and rewards, with the step from the curvature, for the printed "
    "one diverges; float64",
    "practical": "the same with contexts scaled and given a constant, rewards standardised, training in float32; "
    "rows of tables are standardised over the whole file",
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
    "Times are processor time of selecting and training in a process with one BLAS thread; they are compared "
    "within runs on one machine. The paper's own seconds cannot be compared with them, ratios can.",
)


def render(
    records: Sequence[Record], comparisons: Sequence[Comparison], judged: Sequence[Judged], figures: Path
) -> str:
    """The whole page."""
    problems = [(name, list(group)) for name, group in groupby(comparisons, key=lambda c: c.problem)]
    sections = [
        _head(records, comparisons),
        _navigation(problems),
        _what_was_run(records, comparisons),
        _claims(judged),
        _figure(figures, "frontier", "Regret against the number of updates, every configuration; intervals over runs."),
        *(_problem(name, group, figures) for name, group in problems),
        _deviations(),
        _evidence(judged),
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
    fewest = min(len(c.seeds) for c in comparisons)
    if fewest < 10:
        warnings.append(f"Some problems have {fewest} runs; the paper's have 10. Few runs tell few things.")
    warned = "".join(f'<p class="warn">{escape(text)}</p>' for text in warnings)
    return (
        "<h1>Batched Neural Bandits, reproduced claim by claim</h1>"
        f"<p>Every experiment of <em>Batched Neural Bandits</em> (Gu, Karbasi, Khosravi, Mirrokni, Zhou, 2021) by "
        f"<code>rarely</code> {escape(version)}. Every verdict is computed from the runs, with thresholds fixed "
        f"before any run; none is written by hand.</p>{warned}"
    )


def _navigation(problems: Iterable[tuple[str, list[Comparison]]]) -> str:
    links = [("run", "What was run"), ("claims", "Claims"), *((f"p-{n}", n) for n, _ in problems)]
    links += [("deviations", "Deviations"), ("evidence", "Evidence")]
    return "<nav>" + "".join(f'<a href="#{at}">{escape(text)}</a>' for at, text in links) + "</nav>"


def _what_was_run(records: Sequence[Record], comparisons: Sequence[Comparison]) -> str:
    body = []
    for c in comparisons:
        sequential = c.series.get("neuralucb")
        body.append(
            _tr(
                [escape(c.problem), c.preset],
                [str(c.rounds), str(len(c.seeds)), str(len(sequential.runs) if sequential else 0), str(len(c.series))],
            )
        )
    machines = Counter(record.machine for record in records)
    versions = sorted({f"Python {_env(r, 'python')}, NumPy {_env(r, 'numpy')}, {_env(r, 'system')}" for r in records})
    hours = sum(record.seconds for record in records) / 3600
    many = "" if len(machines) == 1 else " Times are compared within one machine only."
    presets = [preset for preset in PRESETS if any(c.preset == preset for c in comparisons)]
    readings = "".join(f"<li><strong>{p}</strong>: {READINGS[p]}.</li>" for p in presets)
    return (
        '<h2 id="run">What was run</h2>'
        + _table(["problem", "preset"], ["rounds T", "runs", "runs of NeuralUCB", "series"], body)
        + f"<p>{len(records)} records, {hours:.1f} hours of processor time, on "
        + "; ".join(f"{escape(machine)} ({count})" for machine, count in machines.items())
        + f". {escape('; '.join(versions))}. Code {escape(records[0].data['code'])}.{many} The runner added "
        + f"{100 * overhead(records):.1f} % to the policies' own time.</p>"
        + f"<p>The experiments can be read in three ways:</p><ul>{readings}</ul>"
    )


def _claims(judged: Sequence[Judged]) -> str:
    presets = [preset for preset in PRESETS if any(j.preset == preset for j in judged)]
    body = []
    for (problem, claim), group in groupby(
        sorted(judged, key=lambda j: _place(judged, j)), key=lambda j: (j.problem, j.claim)
    ):
        by_preset = {j.preset: j for j in group}
        name = claim.id if problem in ("all", claim.id.rsplit("-", 1)[0]) else f"{claim.id} ({problem})"
        cells = [f'<td class="id">{escape(name)}</td><td>{escape(claim.says)}</td>']
        for preset in presets:
            cells.append(_verdict_cell(by_preset.get(preset)))
        body.append(f"<tr>{''.join(cells)}</tr>")
    tally = []
    for preset in presets:
        counts = Counter(j.verdict for j in judged if j.preset == preset)
        told = ", ".join(f"{counts[v]} {v}" for v in MARKS if counts[v])
        tally.append(f"{preset}: {told}")
    return (
        '<h2 id="claims">The claims</h2><p>✓ holds: the 95 % interval over runs, paired by seed, lies where the claim '
        "says. ✗ does not hold: it lies elsewhere. ? cannot be told from these runs. A claim with several comparisons "
        "holds if all do. The figures behind each verdict are under <a href='#evidence'>Evidence</a> and in "
        f"<code>claims.json</code>.</p><p class='faint'>{escape('; '.join(tally))}.</p>"
        + _table(["claim", "the paper, in other words", *presets], [], body)
    )


def _place(judged: Sequence[Judged], one: Judged) -> tuple[int, int]:
    """Keep a claim's presets together, in the order of the claims."""
    first = next(i for i, j in enumerate(judged) if (j.problem, j.claim) == (one.problem, one.claim))
    return first, PRESETS.index(one.preset)


def _verdict_cell(one: Judged | None) -> str:
    if one is None:
        return "<td>—</td>"
    counted = [check for check in one.checks if check.counts]
    shown = number(counted[0].estimate) if len(counted) == 1 else _tally(counted)
    return (
        f'<td><a class="v {_css(one.verdict)}" href="#{_anchor(one)}">{MARKS[one.verdict]} {one.verdict}</a>'
        f'<br><span class="faint">{shown}</span></td>'
    )


def _tally(checks: Sequence[Check]) -> str:
    counts = Counter(check.verdict for check in checks)
    if not checks:
        return "not run"
    return f"{counts['holds']} of {len(checks)} hold" + (
        f", {counts['does not hold']} do not" if counts["does not hold"] else ""
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
    body = []
    for row in rows(c):
        pair = f" (λ {row['ridge']:g}, β {row['beta']:g})" if row["configuration"].endswith("-best") else ""
        sd = "" if math.isnan(row["regret_sd"]) else f" ± {row['regret_sd']:.0f}"
        faster = row["times_faster_than_neuralucb"]
        body.append(
            _tr(
                [escape(row["label"] + pair)],
                [
                    str(row["runs"]),
                    f"{row['regret_mean']:.0f}{sd}",
                    f"{row['updates']:.0f}",
                    _seconds(row["seconds_selecting"]),
                    _seconds(row["seconds_training"]),
                    f"{faster:.3g}×" if faster and math.isfinite(faster) else "—",
                    f"{row['log_det']:.0f}",
                    f"{row['peak_memory_bytes'] / 2**20:.0f}",
                ],
            )
        )
    notes = _same_runs(c)
    rejected = sum(series.rejected for series in c.series.values())
    if rejected:
        notes.append(f"{rejected} updates were refused by training's own check; those versions went on.")
    linear = c.series.get(BEST_LINEAR)
    if linear and linear.rejected:
        notes.append("LinUCB had refused updates, which should not be.")
    told = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return _table(
        ["configuration"],
        ["runs", "regret ± sd", "updates", "selecting, s", "training, s", "faster than NeuralUCB", "log det", "MiB"],
        body,
    ) + (f"<ul class='faint'>{told}</ul>" if told else "")


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
            verdict = f'<span class="{_css(check.verdict)}">{MARKS[check.verdict]} {check.verdict}</span>'
            note = f'<br><span class="faint">{escape(check.note)}</span>' if check.note else ""
            body.append(
                f"<tr{css}><td>{escape(check.what)}{note}</td><td>{escape(check.needs)}</td>"
                f'<td class="n">{number(check.estimate)}</td><td>{verdict}</td></tr>'
            )
        parts.append(
            f'<details open id="{_anchor(one)}"><summary><strong>{escape(one.claim.id)}</strong> '
            f'{escape(one.problem)}, {one.preset}: <span class="{_css(one.verdict)}">{one.verdict}</span></summary>'
            f"<p>{escape(one.claim.says)}</p>"
            + _table(["compared", "needs"], ["measured [95 %]"], body, last=["verdict"])
            + "</details>"
        )
    return "\n".join(parts)


def _figure(folder: Path, name: str, caption: str) -> str:
    data = base64.b64encode((folder / f"{name}.svg").read_bytes()).decode()
    wide = ' class="wide"' if name == "frontier" else ""
    return (
        f'<figure{wide}><img alt="{escape(caption)}" src="data:image/svg+xml;base64,{data}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _table(left: Sequence[str], right: Sequence[str], body: Sequence[str], last: Sequence[str] = ()) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in left)
    head += "".join(f'<th class="n">{escape(text)}</th>' for text in right)
    head += "".join(f"<th>{escape(text)}</th>" for text in last)
    rows = "\n".join(body)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table></div>'


def _tr(left: Sequence[str], right: Sequence[str]) -> str:
    cells = "".join(f"<td>{text}</td>" for text in left) + "".join(f'<td class="n">{text}</td>' for text in right)
    return f"<tr>{cells}</tr>"


def _seconds(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def _css(verdict: Verdict) -> str:
    return verdict.replace(" ", "-")


def _anchor(one: Judged) -> str:
    return f"{one.claim.id}-{one.problem}-{one.preset}"


def _env(record: Record, name: str) -> str:
    return str(record.data["environment"][name])
