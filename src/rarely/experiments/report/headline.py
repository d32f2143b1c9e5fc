"""Five sentences at the top of the report, computed from the verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rarely.experiments.catalogue import SECOND_READINGS
from rarely.experiments.report.claims import Judged
from rarely.experiments.report.growth import growth_problem
from rarely.experiments.report.results import NEURAL, Comparison
from rarely.experiments.report.verdicts import Verdict
from rarely.simulation.statistics import IntervalEstimate


def sentences(comparisons: Sequence[Comparison], judged: Sequence[Judged]) -> list[str]:
    """What was run, how many claims hold, which do and do not in every preset, and what surprised."""
    own = [j for j in judged if not j.second_reading] or judged
    presets = list(dict.fromkeys(j.preset for j in own))
    return [
        _what_was_run(comparisons, presets),
        _tallies(own, presets),
        _common(own, presets, "holds", "hold"),
        _common(own, presets, "does not hold", "do not hold"),
        _surprise(own),
    ]


def _what_was_run(comparisons: Sequence[Comparison], presets: Sequence[str]) -> str:
    lengths = sorted(c.rounds for c in comparisons if growth_problem(c.problem))
    problems = [c.problem for c in comparisons if not growth_problem(c.problem) and c.problem not in SECOND_READINGS]
    problems = list(dict.fromkeys(problems))
    again = [c for c in comparisons if c.problem in SECOND_READINGS]
    if lengths:
        problems.append(f"quadratic at lengths from {lengths[0]} to {lengths[-1]}")
    runs = sorted({len(c.series[NEURAL].runs) for c in comparisons if NEURAL in c.series}) or [0]
    many = f"{runs[0]}" if len(runs) == 1 else f"{runs[0]} to {runs[-1]}"
    played = [f"{_listed(problems)} in {_listed(presets)}"] if problems else []
    if again:
        others, where = (dict.fromkeys(getattr(c, name) for c in again) for name in ("problem", "preset"))
        played.append(f"the second reading{'s' if len(others) > 1 else ''} {_listed(others)} in {_listed(where)}")
    return f"Played: {'; '.join(played)}; {many} runs of NeuralUCB."


def _tallies(judged: Sequence[Judged], presets: Sequence[str]) -> str:
    parts = []
    for preset in presets:
        mine = [j for j in judged if j.preset == preset and j.claim.kind == "claim"]
        verdicts: tuple[Verdict, ...] = ("holds", "does not hold", "cannot be told")
        held, failed, open_ = ([j.verdict for j in mine].count(verdict) for verdict in verdicts)
        ties = sum(j.tie for j in mine)
        told = f", {ties} of them because of a tie" if ties else ""
        parts.append(f"in {preset} {held} of {len(mine)} hold, {failed} do not, and {open_} cannot be told{told}")
    return f"Of the paper's claims, {'; '.join(parts)}."


def _common(judged: Sequence[Judged], presets: Sequence[str], verdict: Verdict, verb: str) -> str:
    """The claims with one verdict in every preset that was played."""
    names: dict[str, list[Judged]] = {}
    for j in judged:
        if j.claim.kind == "claim":
            names.setdefault(j.claim.id, []).append(j)
    found = [of[0].claim for of in names.values() if {j.verdict for j in of} == {verdict}]
    every = "in every reading" if len(presets) > 1 else f"in {presets[0]}"
    if not found:
        return f"No claim is told to {verb.replace('do not', 'not')} {every}."
    return f"These {verb} {every}: {'; '.join(f'{claim.short} ({claim.id})' for claim in found)}."


def _surprise(judged: Sequence[Judged]) -> str:
    """What an intercept does to LinUCB on cosine; elsewhere the sizes that came out larger than claimed."""
    parts = []
    for j in judged:
        estimate = j.checks[0].estimate if j.checks else None
        if j.claim.kind == "finding" and j.verdict != "cannot be told" and estimate is not None:
            parts.append(f"{_times(estimate)} in {j.preset}")
    if parts:
        return (
            "What surprised: with a constant in its contexts, LinUCB's regret on cosine is "
            f"{_listed(parts)}, so that “almost 10 times worse” is about the missing intercept."
        )
    larger = [j for j in judged if any("more than claimed" in each.note for each in j.counted)]
    if larger:
        return f"What surprised: larger than claimed are {_listed(dict.fromkeys(j.claim.short for j in larger))}."
    return "What surprised: nothing that these runs can tell."


def _times(estimate: IntervalEstimate) -> str:
    return f"{estimate.value:.2g} times NeuralUCB's [{estimate.low:.2g}, {estimate.high:.2g}]"


def _listed(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
