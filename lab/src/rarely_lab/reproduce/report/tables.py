"""What the report says: its headline, the tables as text for HTML and Markdown, and explanations."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from rarely.extend import PresetName
from rarely.pages.grid import Grid
from rarely.runs.statistics import CONFIDENCE, IntervalEstimate, ratios
from rarely_lab.reproduce.catalogue import GROWTH
from rarely_lab.reproduce.config import PRESETS
from rarely_lab.reproduce.report.claims import HELD, Decided, Judged, Verdict
from rarely_lab.reproduce.report.results import NEURAL, Comparison, Series, growth

WITH_INTERCEPT = "LinUCB + 1, best"
MARKS: dict[Verdict, str] = {
    "holds": "✓ holds",
    "holds, larger than claimed": "✓ holds, larger than claimed",
    "does not hold": "✗ does not hold",
    "inconclusive": "? inconclusive",
    "not applicable": "– not applicable",
}


def sentences(judged: Sequence[Judged]) -> list[str]:
    """Return the headline: how many claims hold in each preset, and which do, or do not, in all of them."""
    own = [j for j in judged if not j.second_reading] or judged
    presets = list(dict.fromkeys(j.preset for j in own))
    return [
        *(f"Preset {preset}: {tally([j for j in judged if j.preset == preset])}." for preset in presets),
        _common(own, presets, HELD, "hold"),
        _common(own, presets, ("does not hold",), "do not hold"),
    ]


def _common(judged: Sequence[Judged], presets: Sequence[str], verdicts: Sequence[Verdict], verb: str) -> str:
    """Name the claims with one of these verdicts in every preset that was played."""
    names: dict[str, list[Judged]] = {}
    for j in judged:
        if j.claim.kind == "claim":
            names.setdefault(j.claim.id, []).append(j)
    agreed = [of[0].claim for of in names.values() if {j.verdict for j in of} <= {*verdicts}]
    every = "in every reading" if len(presets) > 1 else f"in {presets[0]}"
    if not agreed:
        return f"No claim is shown to {verb.replace('do not', 'not')} {every}."
    return f"These {verb} {every}: {'; '.join(f'{claim.short} ({claim.id})' for claim in agreed)}."


def what_was_run(comparisons: Sequence[Comparison]) -> Grid:
    """Return how many runs and series there are of each problem in each preset."""
    body = []
    for c in comparisons:
        sequential = len(c.series[NEURAL].runs) if NEURAL in c.series else 0
        body.append([c.problem, c.preset, str(c.rounds), str(len(c.seeds)), str(sequential), str(len(c.series))])
    return Grid(["problem", "preset", "rounds T", "runs", "runs of NeuralUCB", "series"], body, numbers=2)


def growing(comparisons: Sequence[Comparison]) -> dict[str, Grid]:
    """Return for each preset with several lengths the exponents of every scheme, and its versions at each T."""
    out: dict[str, Grid] = {}
    for preset in dict.fromkeys(c.preset for c in comparisons if c.problem in GROWTH):
        schemes = growth([c for c in comparisons if c.problem in GROWTH and c.preset == preset])
        times = sorted({t for scheme in schemes for t in scheme.series})
        body = []
        for one in schemes:
            fits = [_short(sample.interval()) for sample in (one.regret, one.versions, one.per_log)]
            counts = [f"{one.series[t].updates + 1:.0f}" if t in one.series else "—" for t in times]
            body.append([one.label, str(one.regret.runs), *fits, *counts])
        head = ["scheme", "runs", "a of regret ∝ Tᵃ", "b of versions ∝ Tᵇ", "versions for each unit of log T"]
        out |= {preset: Grid([*head, *(f"versions, T = {t}" for t in times)], body, numbers=1)} if body else {}
    return out


def _short(e: IntervalEstimate) -> str:
    return f"{e.value:.3g} [{e.low:.3g}, {e.high:.3g}]" if e.low < e.high else f"{e.value:.3g}"


def results(c: Comparison) -> Grid:
    """Return the table of every configuration of a problem in one preset."""
    body, sequential = [], c.series.get(NEURAL)
    for s in c.series.values():
        pair = f" (λ {s.configuration.ridge:g}, β {s.configuration.beta:g})" if s.name.endswith("-best") else ""
        sd = "" if math.isnan(s.deviation) else f" ± {s.deviation:.0f}"
        right = s.mean_of(lambda record: record.data["right"])
        clock, faster = c.timed(s), math.nan
        if sequential is not None:
            faster = ratios(*c.paired("seconds", sequential, s)).interval().value
        memory = max((int(record.data["peak_memory"]) for record in clock.runs.values()), default=0)
        earned = [str(len(s.runs)), f"{s.regret.value:.0f}{sd}", f"{100 * right:.0f} %"]
        took = [f"{s.updates:.0f}", seconds(clock, "selecting"), seconds(clock, "training")]
        took.append(f"{faster:.3g}×" if faster and math.isfinite(faster) else "—")
        size = [f"{s.mean_of(lambda record: record.log_det):.0f}", f"{memory / 2**20:.0f}" if memory else "—"]
        body.append([s.label + pair, *earned, *took, *size])
    head = ["configuration", "runs", "regret ± sd", "best arm", "updates", "selecting, s", "training, s"]
    return Grid([*head, "faster than NeuralUCB", "log det", "MiB"], body, numbers=1)


def claims(judged: Sequence[Judged]) -> list[tuple[str, str, dict[PresetName, Judged | None]]]:
    """Return for each claim on each problem its name, what it says, and what came of it in every preset judged."""
    presets = [preset for preset in PRESETS if any(j.preset == preset for j in judged)]
    verdicts: dict[tuple[str, str], dict[PresetName, Judged | None]] = {}
    rows = []
    for j in judged:
        if (j.claim.id, j.problem) not in verdicts:
            name = j.claim.id if j.problem in ("all", j.claim.id.rsplit("-", 1)[0]) else f"{j.claim.id} ({j.problem})"
            verdicts[j.claim.id, j.problem] = dict.fromkeys(presets)
            rows.append((name, j.claim.says, verdicts[j.claim.id, j.problem]))
        verdicts[j.claim.id, j.problem][j.preset] = j
    return rows


def claims_grid(judged: Sequence[Judged]) -> Grid:
    """Return the table of claims with their verdicts."""
    rows = claims(judged)
    presets = list(rows[0][2]) if rows else []
    body = [[name, says, *(f"{mark(j)}: {behind(j)}" if j else "—" for j in by.values())] for name, says, by in rows]
    return Grid(["claim", "the paper, in other words", *presets], body, numbers=len(presets) + 2)


def mark(one: Judged) -> str:
    """Return the verdict in a word, with T if it is not the paper's; a figure is called a figure."""
    word = "figure" if one.claim.kind == "figure" else MARKS[one.verdict]
    return word if one.of_paper_length else f"{word} at T = {one.rounds}"


def behind(one: Judged) -> str:
    """Return the numbers behind a verdict in few words, and what would decide an inconclusive one."""
    return "; ".join(filter(None, (_numbers(one), one.outlook)))


def _numbers(one: Judged) -> str:
    """Return the one comparison, or how many checks hold."""
    counted = one.counted
    if not counted:
        return "no check applies" if one.checks else "not run"
    if len(counted) == 1:
        beside = [
            each for each in one.checks if WITH_INTERCEPT in each.check.what and each.estimate and each.estimate.runs
        ]
        few = "; with an intercept ".join(number(each) for each in (*counted, *beside[: one.claim.kind == "claim"]))
        how = next((f", {word}" for word in ("reversed", "smaller than claimed") if word in counted[0].note), "")
        return few + how + _uncounted(one)
    counts = Counter(each.verdict for each in counted)
    others = [f"{counts['does not hold']} fail"] if counts["does not hold"] else []
    return ", ".join([f"{sum(counts[v] for v in HELD)} of {len(counted)} checks hold", *others]) + _uncounted(one)


def _uncounted(one: Judged) -> str:
    """Say how many of the checks beside a claim that holds do hold, if not all."""
    beside = [each.verdict for each in one.checks if not each.check.counts and each.verdict != "not applicable"]
    held = sum(verdict in HELD for verdict in beside)
    shown = one.claim.kind == "claim" and one.verdict in HELD and held < len(beside)
    return f"; of {len(beside)} not counted {held} hold" if shown else ""


def tally(judged: Sequence[Judged]) -> str:
    """Count the paper's claims by verdict; those on second readings apart."""
    claimed = [j for j in judged if j.claim.kind == "claim"]
    again = [j for j in claimed if j.second_reading]
    if again and len(again) < len(claimed):
        return f"{tally([j for j in claimed if not j.second_reading])}; on second readings {tally(again)}"
    counts = Counter(j.verdict for j in claimed)
    words: dict[Verdict, str] = {
        "holds": "hold",
        HELD[1]: "hold and are larger than claimed",
        "does not hold": "do not hold",
        "inconclusive": "are inconclusive",
    }
    if ties := sum(j.tie for j in claimed):
        words["inconclusive"] += f" ({ties} of them {'a tie' if ties == 1 else 'ties'})"
    return f"of {len(claimed)} claims " + ", ".join(f"{counts[v]} {word}" for v, word in words.items() if counts[v])


def number(one: Decided) -> str:
    """Return a number with the interval that decided, and its confidence if it is not 95 %."""
    estimate = one.estimate
    if estimate is None or not estimate.runs:
        return "no runs of both; of a time, none on the machine whose times count"
    if math.isnan(estimate.value):
        return "undefined, because a value is 0"
    if estimate.runs == 1:
        return f"{estimate.value:.4g} (1 run)"
    wider = "" if math.isclose(one.confidence, CONFIDENCE) else f" ({percent(one.confidence)})"
    return f"{estimate.value:.4g} [{estimate.low:.4g}, {estimate.high:.4g}]{wider}"


def percent(confidence: float) -> str:
    """Return a confidence near 1 with enough digits to distinguish it from 1.

    >>> percent(0.95), percent(1 - 2 * 0.025 / 27)
    ('95 %', '99.81 %')
    """
    digits = max(0, 1 - math.floor(math.log10(100 * (1 - confidence)))) if confidence < 1 else 0
    return f"{100 * confidence:.{digits}f}".rstrip("0").rstrip(".") + " %"


def seconds(series: Series, part: str) -> str:
    """Return mean seconds, to two digits where they are few; a dash where none are known."""
    if not series.runs:
        return "—"
    value = series.mean_of(lambda run: run.data["seconds"][part])
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"
