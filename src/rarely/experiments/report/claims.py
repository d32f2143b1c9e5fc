"""Every claim on every problem and preset of which there are runs, with its verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rarely.core.policies.presets import PresetName
from rarely.experiments.report.checker import ClaimChecker
from rarely.experiments.report.growth import SCALING, growth_checks, growth_problem
from rarely.experiments.report.paper_claims import CLAIMS, OVERALL, Claim
from rarely.experiments.report.results import Comparison
from rarely.experiments.report.verdicts import Check, Decided, Verdict, decide

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

    @property
    def counted(self) -> list[Decided]:
        """The checks that decide."""
        return [one for one in self.checks if one.check.counts and one.check.asked]

    @property
    def of_paper_length(self) -> bool:
        """Whether the runs have the paper's T, or the lengths of the claim's own."""
        return self.rounds == PRINTED_ROUNDS or self.claim is SCALING

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
    return Judged(claim, problem, preset, rounds, "not asked" if claim.kind == "figure" else verdict, decided)
