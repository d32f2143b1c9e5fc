"""The report's tables as plain text cells, whatever they are written in: HTML or Markdown."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rarely.core.policies.presets import PresetName
from rarely.experiments.config import PRESETS
from rarely.experiments.report.claims import Judged
from rarely.experiments.report.results import NEURAL, Comparison
from rarely.experiments.report.summary import rows
from rarely.experiments.report.verdicts import Decided, Verdict
from rarely.simulation.statistics import CONFIDENCE

WITH_INTERCEPT = "LinUCB + 1, best"
MARKS: dict[Verdict, str] = {
    "holds": "✓ holds",
    "does not hold": "✗ does not hold",
    "cannot be told": "? cannot be told",
    "not asked": "– not asked",
}


@dataclass(frozen=True)
class Grid:
    """Rows of text under a head; from column `numbers` on they are numbers."""

    head: list[str]
    body: list[list[str]]
    numbers: int


@dataclass(frozen=True)
class ClaimRow:
    """One claim on one problem, in every preset."""

    name: str
    says: str
    judged: dict[PresetName, Judged | None]


def what_was_run(comparisons: Sequence[Comparison]) -> Grid:
    """Problems, presets, rounds and runs."""
    body = []
    for c in comparisons:
        sequential = len(c.series[NEURAL].runs) if NEURAL in c.series else 0
        body.append([c.problem, c.preset, str(c.rounds), str(len(c.seeds)), str(sequential), str(len(c.series))])
    return Grid(["problem", "preset", "rounds T", "runs", "runs of NeuralUCB", "series"], body, numbers=2)


def results(c: Comparison) -> Grid:
    """Every configuration of a problem in one preset."""
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
                f"{100 * row['best_arm_share']:.0f} %",
                f"{row['updates']:.0f}",
                _seconds(row["seconds_selecting"]),
                _seconds(row["seconds_training"]),
                f"{faster:.3g}×" if faster and math.isfinite(faster) else "—",
                f"{row['log_det']:.0f}",
                f"{row['peak_memory_bytes'] / 2**20:.0f}",
            ]
        )
    head = [
        "configuration",
        "runs",
        "regret ± sd",
        "best arm",
        "updates",
        "selecting, s",
        "training, s",
        "faster than NeuralUCB",
    ]
    return Grid([*head, "log det", "MiB"], body, numbers=1)


def claims(judged: Sequence[Judged]) -> tuple[list[PresetName], list[ClaimRow]]:
    """The presets judged, and a row for each claim."""
    presets = [preset for preset in PRESETS if any(j.preset == preset for j in judged)]
    found: dict[tuple[str, str], dict[str, Judged]] = {}
    for j in judged:
        found.setdefault((j.claim.id, j.problem), {})[j.preset] = j
    out = []
    for (name, problem), by_preset in found.items():
        own = problem in ("all", name.rsplit("-", 1)[0])
        says = next(iter(by_preset.values())).claim.says
        shown = name if own else f"{name} ({problem})"
        out.append(ClaimRow(shown, says, {preset: by_preset.get(preset) for preset in presets}))
    return presets, out


def mark(one: Judged) -> str:
    """The verdict in a word, with T where it is not the paper's; what is no claim is called what it is."""
    word = "figure" if one.claim.kind == "figure" else MARKS[one.verdict]
    return word if one.of_paper_length else f"{word} at T = {one.rounds}"


def behind(one: Judged) -> str:
    """The figures behind a verdict in few words, and what would tell where they do not."""
    return "; ".join(filter(None, (_figures(one), one.outlook)))


def _figures(one: Judged) -> str:
    """The one comparison, or how many hold."""
    counted = one.counted
    if not counted:
        return "nothing to ask" if one.checks else "not run"
    if len(counted) == 1:
        beside = [each for each in one.checks if WITH_INTERCEPT in each.check.what and each.estimate]
        few = "; with an intercept ".join(number(each) for each in (*counted, *beside[: one.claim.kind == "claim"]))
        return few + (", more than claimed" if "more than claimed" in counted[0].note else "") + _uncounted(one)
    counts = Counter(each.verdict for each in counted)
    others = [f"{counts['does not hold']} do not"] if counts["does not hold"] else []
    return ", ".join([f"{counts['holds']} of {len(counted)} hold", *others]) + _uncounted(one)


def _uncounted(one: Judged) -> str:
    """How many hold of the comparisons beside a claim that holds, such as those of values that the paper names not."""
    beside = [each.verdict for each in one.checks if not each.check.counts and each.check.asked]
    held = beside.count("holds")
    told = one.claim.kind == "claim" and one.verdict == "holds" and held < len(beside)
    return f"; of {len(beside)} not counted {held} hold" if told else ""


def tally(judged: Sequence[Judged]) -> str:
    """How many of the paper's claims hold, do not, and cannot be told; those on second readings apart."""
    claimed = [j for j in judged if j.claim.kind == "claim"]
    again = [j for j in claimed if j.second_reading]
    if again and len(again) < len(claimed):
        return f"{tally([j for j in claimed if not j.second_reading])}; on second readings {tally(again)}"
    counts = Counter(j.verdict for j in claimed)
    words: dict[Verdict, str] = {"holds": "hold", "does not hold": "do not hold", "cannot be told": "cannot be told"}
    if ties := sum(j.tie for j in claimed):
        words["cannot be told"] += f" ({ties} of them {'a tie' if ties == 1 else 'ties'})"
    return f"of {len(claimed)} claims " + ", ".join(f"{counts[v]} {word}" for v, word in words.items() if counts[v])


def number(one: Decided) -> str:
    """A figure with the interval that decided, and its confidence where it is not 95 %."""
    estimate = one.estimate
    if estimate is None or not estimate.runs:
        return "no runs"
    if math.isnan(estimate.value):
        return "no number, because a value is 0"
    if estimate.runs == 1:
        return f"{estimate.value:.4g} (1 run)"
    wider = "" if math.isclose(one.confidence, CONFIDENCE) else f" ({percent(one.confidence)})"
    return f"{estimate.value:.4g} [{estimate.low:.4g}, {estimate.high:.4g}]{wider}"


def percent(confidence: float) -> str:
    """A confidence near 1 with as many digits as tell it from 1.

    >>> percent(0.95), percent(1 - 2 * 0.025 / 27)
    ('95 %', '99.81 %')
    """
    digits = max(0, 1 - math.floor(math.log10(100 * (1 - confidence)))) if confidence < 1 else 0
    return f"{100 * confidence:.{digits}f}".rstrip("0").rstrip(".") + " %"


def _seconds(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"
