"""Every claim on every problem and preset of which there are runs, with its verdict."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rarely.core.policies.presets import PresetName
from rarely.experiments.catalogue import SECOND_READINGS
from rarely.experiments.report.checker import ClaimChecker
from rarely.experiments.report.growth import SCALING, growth_checks, growth_problem
from rarely.experiments.report.paper_claims import CLAIMS, OVERALL, Claim
from rarely.experiments.report.results import Comparison
from rarely.experiments.report.verdicts import MANY_TIMES, Check, Decided, Verdict, decide, runs_to_tell

PRINTED_ROUNDS = 2000


@dataclass(frozen=True)
class Judged:
    """A claim on one problem, in one preset."""

    claim: Claim
    problem: str
    preset: PresetName
    rounds: int
    verdict: Verdict
    """Of a figure: not asked."""
    checks: list[Decided]
    runs_to_tell: float = math.nan
    """Of a claim that cannot be told: with how many runs chances are even, ∞ for a tie, NaN where nobody knows."""

    @property
    def counted(self) -> list[Decided]:
        """The checks that decide."""
        return [one for one in self.checks if one.check.counts and one.check.asked]

    @property
    def second_reading(self) -> bool:
        """Whether it is judged where the text was read in the other way."""
        return self.problem in SECOND_READINGS

    @property
    def of_paper_length(self) -> bool:
        """Whether the runs have the paper's T, or the lengths of the claim's own."""
        return self.rounds == PRINTED_ROUNDS or self.claim is SCALING

    @property
    def tie(self) -> bool:
        """Whether many more runs with the same means and spreads would not tell either."""
        return self.runs_to_tell == math.inf

    @property
    def outlook(self) -> str:
        """What it would take to tell, in words; empty where that is not known, or not asked."""
        if self.tie:
            runs = min(part.sample.runs for one in self.counted for part in one.check.parts if part.sample)
            return f"a tie, as far as these runs tell: even {MANY_TIMES * runs} of them would not decide"
        return (
            "" if math.isnan(self.runs_to_tell) else f"an even chance to tell with about {self.runs_to_tell:.0f} runs"
        )

    def describe(self) -> dict[str, Any]:
        """The judgement as JSON."""
        return {
            "id": self.claim.id,
            "kind": self.claim.kind,
            "says": self.claim.says,
            "problem": self.problem,
            "preset": self.preset,
            "rounds": self.rounds,
            "verdict": self.verdict,
            "outlook": self.outlook,
            "rule": self.claim.rule.says,
            "checks": [check.describe() for check in self.checks],
        }


def judge(comparisons: Iterable[Comparison]) -> list[Judged]:
    """Every claim on every problem and preset of which there are runs; the overall one first."""
    comparisons = list(comparisons)
    judged = []
    for preset in dict.fromkeys(c.preset for c in comparisons):
        if mine := [c for c in comparisons if c.preset == preset and c.base in CLAIMS and c.base == c.problem]:
            checks = [check for c in mine for check in OVERALL.checks(ClaimChecker(c))]
            judged.append(_judged(OVERALL, "all", preset, max(c.rounds for c in mine), checks))
    for c in comparisons:
        for claim in CLAIMS.get(c.base, ()):
            judged.append(_judged(claim, c.problem, c.preset, c.rounds, claim.checks(ClaimChecker(c))))
    for preset in dict.fromkeys(c.preset for c in comparisons):
        if mine := [c for c in comparisons if c.preset == preset and growth_problem(c.problem)]:
            judged.append(_judged(SCALING, "growth", preset, max(c.rounds for c in mine), growth_checks(mine)))
    return judged


def _judged(claim: Claim, problem: str, preset: PresetName, rounds: int, checks: Sequence[Check]) -> Judged:
    verdict, decided = decide(checks, claim.rule)
    if claim.kind == "figure":
        verdict = "not asked"
    more = runs_to_tell(checks, claim.rule) if verdict == "cannot be told" else math.nan
    return Judged(claim, problem, preset, rounds, verdict, decided, more)
