"""What the report says: its headline, the tables as text for HTML and Markdown, and explanations."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from rarely.extend import PresetName
from rarely.pages.grid import Grid
from rarely.runs.statistics import CONFIDENCE, IntervalEstimate, ratios, ratios_of_means
from rarely_lab.reproduce.catalogue import PAPER
from rarely_lab.reproduce.config import PRESETS, Kind
from rarely_lab.reproduce.report.claims import ESTIMANDS, HELD, Decided, Estimand, Judged, Verdict
from rarely_lab.reproduce.report.results import NEURAL, Comparison, Series, by_preset, growth, lengthened

WITH_INTERCEPT = "LinUCB + 1, best"
FEW: dict[Kind, str] = {"fixed": "on a fixed grid", "adaptive": "by the determinant rule"}
WORDS: dict[Estimand, str] = {"mean": "means", "typical": "typical runs"}
MARKS: dict[Verdict, str] = {
    "holds": "✓ holds",
    "holds, larger than claimed": "✓ holds, larger than claimed",
    "does not hold": "✗ does not hold",
    "inconclusive": "? inconclusive",
    "not applicable": "– not applicable",
}


def sentences(judged: Sequence[Judged], comparisons: Sequence[Comparison] = ()) -> list[str]:
    """Return the headline: what few updates cost, how many claims hold in each preset, and which do or fail in all."""
    own = [j for j in judged if not j.second_reading] or list(judged)
    counts = []
    for preset, mine in by_preset(own).items():
        of = {e: [j for j in mine if j.estimand == e] for e in ESTIMANDS}
        each = "; ".join(f"by {WORDS[e]} {tally(some)}" for e, some in of.items())
        counts.append(f"Preset {preset}, of {sum(j.claim.kind == 'claim' for j in of['mean'])} claims: {each}.")
    return [*_cost_of_few(comparisons), *counts, _common(own, HELD, "hold"), _common(own, ("does not hold",), "fail")]


def _cost_of_few(comparisons: Sequence[Comparison]) -> list[str]:
    """Say what the smallest budgets cost beside sequential NeuralUCB, in the mean of each of the paper's problems."""
    told = []
    for preset, mine in by_preset(c for c in comparisons if c.problem in PAPER and NEURAL in c.series).items():
        parts = []
        for kind, words in FEW.items():
            costs = []
            for c in mine:
                if some := c.of_kind(kind):
                    least = min(s.configuration.batches or 0 for s in some)
                    few = [s for s in some if s.configuration.batches == least]
                    sample = ratios_of_means(*c.paired("regret", few[len(few) // 2], c.series[NEURAL]))
                    costs.append((sample.interval().value, c.problem))
            if costs:
                (low, one), (high, other) = min(costs), max(costs)
                parts.append(f"{low:.2g} ({one}) to {high:.2g} times ({other}) {words}")
        if parts:
            told.append(
                f"Preset {preset}: with the smallest budget mean regret is {', and '.join(parts)}, of NeuralUCB's with "
                "an update after every round."
            )
    return told


def _common(judged: Sequence[Judged], verdicts: Sequence[Verdict], verb: str) -> str:
    """Name the claims with one of these verdicts in every reading that was judged, by means and by typical runs."""
    claimed = [j for j in judged if j.claim.kind == "claim"]
    agreed = []
    for name in dict.fromkeys(j.claim.id for j in claimed):
        first, *others = of = [j for j in claimed if j.claim.id == name]
        if {j.verdict for j in of} <= {*verdicts}:
            one = first.decisive.estimate if first.decisive else None
            number = f": {one.value:.2g} times" if one and math.isfinite(one.value) else ""
            alone = "" if {j.preset for j in others} - {first.preset} else f", judged in {first.preset} alone"
            agreed.append(f"{first.claim.short} ({name}{number}{alone})")
    presets = {j.preset for j in judged}
    every = "in every reading" if len(presets) > 1 else f"in {', '.join(presets)}"
    return f"These {verb} {every}: {'; '.join(agreed)}." if agreed else f"No claim is shown to {verb} {every}."


def what_was_run(comparisons: Sequence[Comparison]) -> Grid:
    """Return how many runs and series there are of each problem in each preset."""
    body = []
    for c in comparisons:
        runs = {seed for series in c.series.values() for seed in series.runs}
        body.append([c.problem, c.preset, *map(str, (c.rounds, len(runs), c.sequential_runs, len(c.series)))])
    return Grid(["problem", "preset", "rounds T", "runs", "runs of NeuralUCB", "series"], body, numbers=2)


def growing(comparisons: Sequence[Comparison]) -> dict[str, Grid]:
    """Return by problem and preset with several lengths the exponents of every scheme, and its versions at each T."""
    out: dict[str, Grid] = {}
    for (problem, preset), mine in lengthened(comparisons).items():
        schemes = growth(mine)
        times = sorted({t for one in schemes.values() for t in one.series})
        body = []
        for label, one in schemes.items():
            fits = [short(sample.interval()) for sample in (one.regret, one.versions, one.per_log)]
            counts = [f"{one.series[t].updates + 1:.0f}" if t in one.series else "—" for t in times]
            body.append([label, str(one.regret.runs), *fits, *counts])
        head = ["scheme", "runs", "a of regret ∝ Tᵃ", "b of versions ∝ Tᵇ", "versions for each unit of log T"]
        if body:
            head += [f"versions, T = {t}" for t in times]
            out[f"{problem}, preset {preset}"] = Grid(head, body, numbers=1)
    return out


def short(e: IntervalEstimate) -> str:
    """Return a number of three digits with its interval, if it has one."""
    return f"{e.value:.3g} [{e.low:.3g}, {e.high:.3g}]" if e.low < e.high else f"{e.value:.3g}"


def results(c: Comparison) -> Grid:
    """Return the table of every configuration of a problem in one preset."""
    body, sequential = [], c.series.get(NEURAL)
    for s in c.series.values():
        pair = f" (λ {s.configuration.ridge:g}, β {s.configuration.beta:g})" if s.name.endswith("-best") else ""
        sd = "" if math.isnan(s.deviation) else f" ± {s.deviation:.0f}"
        right = s.mean_of(lambda record: record.data["right"])
        clock = c.timed(s)
        faster = ratios(*c.paired("seconds", sequential, s)).interval().value if sequential else math.nan
        memory = max((int(record.data["peak_memory"]) for record in clock.runs.values()), default=0)
        typical, bad = math.exp(s.mean_of(lambda record: math.log(max(record.regret, 1e-9)))), s.disasters
        many = f"{100 * bad.value:.3g} [{100 * bad.low:.3g}, {100 * bad.high:.3g}]" if bad.runs else "—"
        earned = [str(len(s.runs)), f"{s.regret.value:.0f}{sd}", f"{typical:.0f}", many, f"{100 * right:.0f} %"]
        took = [f"{s.updates:.0f}", seconds(clock, "selecting"), seconds(clock, "training")]
        took.append(f"{faster:.3g}×" if faster and math.isfinite(faster) else "—")
        size = [f"{s.mean_of(lambda record: record.log_det):.0f}", f"{memory / 2**20:.0f}" if memory else "—"]
        body.append([s.label + pair, *earned, *took, *size])
    head = [
        "configuration", "runs", "mean regret ± sd", "typical", "bad runs, %", "best arm", "updates", "selecting, s",
        "training, s", "faster than NeuralUCB", "log det", "MiB",
    ]  # fmt: skip
    return Grid(head, body, numbers=1)


Verdicts = dict[Estimand, Judged]  # what came of a claim by means and by typical runs


def claims(judged: Sequence[Judged]) -> list[tuple[str, str, dict[PresetName, Verdicts]]]:
    """Return for each claim on each problem its name, what it says, and what came of it in every preset judged."""
    presets = [preset for preset in PRESETS if any(j.preset == preset for j in judged)]
    verdicts: dict[tuple[str, str], dict[PresetName, Verdicts]] = {}
    rows = []
    for j in judged:
        if (j.claim.id, j.problem) not in verdicts:
            name = j.claim.id if j.problem in ("all", j.claim.id.rsplit("-", 1)[0]) else f"{j.claim.id} ({j.problem})"
            verdicts[j.claim.id, j.problem] = {preset: {} for preset in presets}
            rows.append((name, j.claim.says, verdicts[j.claim.id, j.problem]))
        verdicts[j.claim.id, j.problem][j.preset][j.estimand] = j
    return rows


def claims_grid(judged: Sequence[Judged]) -> Grid:
    """Return the table of claims with their verdicts."""
    rows = claims(judged)
    presets = list(rows[0][2]) if rows else []
    body = []
    for name, says, by_each in rows:
        told = (". ".join(f"{mark}: {text}" for _, mark, text in lines(by)) or "—" for by in by_each.values())
        body.append([name, says, *told])
    return Grid(["claim", "the paper, in other words", *presets], body, numbers=len(presets) + 2)


def lines(by: Verdicts) -> list[tuple[Judged, str, str]]:
    """Return the verdicts that differ, each with its mark and its decisive number; one where both are the same."""
    marks = {estimand: mark(one) for estimand, one in by.items()}
    if len({*marks.values()}) == 1:
        first = next(iter(by.values()))
        return [(first, mark(first), behind(*by.values()))]
    return [(one, f"{WORDS[e]}: {marks[e]}", behind(one)) for e, one in by.items()]


def decisive(one: Judged) -> str:
    """Return the decisive number alone, and what is asked of it; its name and the rest is what `behind` says."""
    if one.decisive is None:
        return "no check applies" if one.checks else "not run"
    needs = (one.decisive.part or one.decisive.check.parts[0]).needs.partition(";")[0]
    return number(one.decisive).partition(" (")[0] + (f", asked {needs}" if needs else "")


def mark(one: Judged) -> str:
    """Return the verdict in a word, with T if it is not the paper's; a figure is called a figure."""
    word = "figure" if one.claim.kind == "figure" else MARKS[one.verdict]
    return word if one.of_paper_length else f"{word} at T = {one.rounds}"


def behind(*same: Judged) -> str:
    """Return the decisive number behind verdicts, how many checks hold, and what would decide an inconclusive one."""
    one, told = same[0], ["no check applies" if same[0].checks else "not run"]
    if (decisive := one.decisive) is not None:
        part = decisive.part or decisive.check.parts[0]
        how = next((f", {word}" for word in ("reversed", "smaller than claimed") if word in decisive.note), "")
        told = [f"{part.what}: {_number(one)}{', asked ' if part.needs else ''}{part.needs}{how}"]
    told += [f"{WORDS[other.estimand]} {_number(other)}" for other in same[1:] if other.decisive]
    if len(held := [e.verdict in HELD for e in one.counted]) > 1:
        told.append(f"{sum(held)} of {len(held)} checks hold")
    beside = [e.verdict in HELD for e in one.checks if not e.check.counts and e.verdict != "not applicable"]
    if one.claim.kind == "claim" and one.verdict in HELD and not all(beside):
        told.append(f"of {len(beside)} not counted {sum(beside)} hold")
    return "; ".join(filter(None, [*told, f"holds because {one.idle}" if one.idle else "", one.outlook]))


def _number(one: Judged) -> str:
    """Return the decisive number; beside a single one that of the same check with an intercept."""
    shown = [one.decisive] if one.decisive else []
    if len(one.counted) == 1 and one.claim.kind == "claim":
        shown += [e for e in one.checks if WITH_INTERCEPT in e.check.what and e.estimate and e.estimate.runs][:1]
    return ", with an intercept ".join(map(number, shown))


def tally(judged: Sequence[Judged]) -> str:
    """Count the paper's claims by verdict."""
    claimed = [j for j in judged if j.claim.kind == "claim"]
    counts = Counter(j.verdict for j in claimed)
    held, larger, ties = counts["holds"] + counts[HELD[1]], counts[HELD[1]], sum(j.tie for j in claimed)
    more, tied = f" ({larger} larger than claimed)" if larger else "", f" (ties: {ties})" if ties else ""
    return f"{held} hold{more}, {counts['does not hold']} fail, {counts['inconclusive']} are open{tied}"


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
