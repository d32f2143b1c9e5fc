"""The claims and the tables as Markdown, to be kept beside code: `rarely report DIR --markdown FILE`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from rarely.lab.claims import Judged
from rarely.lab.config import PRESETS
from rarely.lab.records import Record
from rarely.lab.results import Comparison
from rarely.lab.statistics import Estimate
from rarely.lab.summary import rows
from rarely.lab.verdicts import Verdict

MARKS: dict[Verdict, str] = {
    "holds": "✓ holds",
    "does not hold": "✗ does not hold",
    "cannot be told": "? cannot be told",
}


def render(records: Sequence[Record], comparisons: Sequence[Comparison], judged: Sequence[Judged]) -> str:
    """What was run, the claims, and a table for each problem and preset."""
    return "\n\n".join([_what_was_run(records, comparisons), _claims(judged), *map(_results, comparisons)]) + "\n"


def _what_was_run(records: Sequence[Record], comparisons: Sequence[Comparison]) -> str:
    machines = " and ".join(sorted({record.machine for record in records}))
    facts = records[0].data["environment"]
    hours = sum(record.seconds for record in records) / 3600
    lines = _table(
        ["problem", "preset", "T", "runs", "runs of NeuralUCB"],
        [[c.problem, c.preset, str(c.rounds), str(len(c.seeds)), str(_runs(c, "neuralucb"))] for c in comparisons],
    )
    return (
        f"{len(records)} runs, {hours:.1f} hours of processor time on {machines}, Python {facts['python']}, NumPy "
        f"{facts['numpy']}; code {records[0].data['code']}.\n\n{lines}"
    )


def _claims(judged: Sequence[Judged]) -> str:
    presets = [preset for preset in PRESETS if any(j.preset == preset for j in judged)]
    by_claim: dict[tuple[str, str, str], dict[str, Judged]] = {}
    for j in judged:
        by_claim.setdefault((j.claim.id, j.problem, j.claim.says), {})[j.preset] = j
    body = []
    for (name, problem, says), found in by_claim.items():
        second = "" if problem in ("all", name.rsplit("-", 1)[0]) else f" ({problem})"
        body.append([name + second, says, *(_verdict(found.get(preset)) for preset in presets)])
    return "## The claims\n\n" + _table(["claim", "the paper, in other words", *presets], body)


def _verdict(one: Judged | None) -> str:
    if one is None:
        return "—"
    counted = [check for check in one.checks if check.counts]
    if len(counted) == 1:
        return f"{MARKS[one.verdict]}: {number(counted[0].estimate)}"
    counts = Counter(check.verdict for check in counted)
    told = ", ".join(f"{counts[v]} {v}" for v in MARKS if counts[v])
    return f"{MARKS[one.verdict]}: of {len(counted)}, {told}" if counted else MARKS[one.verdict]


def _results(c: Comparison) -> str:
    body = []
    for row in rows(c):
        pair = f" (λ {row['ridge']:g}, β {row['beta']:g})" if row["configuration"].endswith("-best") else ""
        sd = "" if math.isnan(row["regret_sd"]) else f" ± {row['regret_sd']:.0f}"
        faster = row["times_faster_than_neuralucb"]
        body.append(
            [
                row["label"] + pair,
                str(row["runs"]),
                f"{row['regret_mean']:.0f}{sd}",
                f"{row['updates']:.0f}",
                f"{row['seconds']:.1f}",
                f"{faster:.3g}" if faster and math.isfinite(faster) else "—",
            ]
        )
    head = ["configuration", "runs", "regret ± sd", "updates", "processor time, s", "times faster than NeuralUCB"]
    return f"## {c.problem}, preset {c.preset}\n\n" + _table(head, body)


def number(estimate: Estimate | None) -> str:
    """A figure with its interval."""
    if estimate is None or math.isnan(estimate.value):
        return "no runs"
    if not (math.isfinite(estimate.low) and math.isfinite(estimate.high)):
        return f"{estimate.value:.3g} (1 run)"
    return f"{estimate.value:.3g} [{estimate.low:.3g}, {estimate.high:.3g}]"


def _runs(c: Comparison, name: str) -> int:
    return len(c.series[name].runs) if name in c.series else 0


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
