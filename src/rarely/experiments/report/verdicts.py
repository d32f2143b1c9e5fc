"""How a claim is judged: thresholds fixed before any run, intervals over runs, verdicts computed.

    holds            the whole 95 % interval lies where the claim says
    does not hold    the whole interval lies elsewhere
    cannot be told   the interval reaches into both, or there are no runs to tell

"almost N times" is at least 0.8N; "slightly" is up to 25 %; "very close" is up to 50 % more; "cannot be
told apart" is a paired interval within ±10 %; "beats" is a paired interval of differences above 0. A ratio is
taken run by run (runs of one problem can differ tenfold), and where the ratio of mean regrets is another it
stands beside it. Several checks of one claim are not corrected for their number: the more there are, the
sooner one fails by chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from rarely.experiments.catalogue import PROBLEMS, configurations
from rarely.experiments.report.results import Comparison, Series
from rarely.simulation.statistics import IntervalEstimate

Verdict = Literal["holds", "does not hold", "cannot be told"]
SAME = "the same decisions in every run"
ALMOST, SLIGHTLY, VERY_CLOSE, ALIKE = 0.8, 1.25, 1.5, 0.1
Quantity = Literal["regret", "time", "versions"]


@dataclass(frozen=True)
class Check:
    """One comparison that a claim rests on, or that stands beside it (`counts` is False)."""

    what: str
    needs: str
    estimate: IntervalEstimate | None
    verdict: Verdict
    note: str = ""
    counts: bool = True

    def describe(self) -> dict[str, Any]:
        """The check as JSON."""
        e = self.estimate
        numbers = {
            "value": _finite(e.value) if e else None,
            "low": _finite(e.low) if e else None,
            "high": _finite(e.high) if e else None,
            "runs": e.runs if e else 0,
        }
        return {"what": self.what, "needs": self.needs, **numbers, "verdict": self.verdict} | {
            "note": self.note,
            "counts": self.counts,
        }


def all_hold(checks: Sequence[Check]) -> Verdict:
    """Every check must hold."""
    verdicts = [check.verdict for check in checks if check.counts]
    if "does not hold" in verdicts:
        return "does not hold"
    return "holds" if verdicts and set(verdicts) == {"holds"} else "cannot be told"


def most_hold(checks: Sequence[Check]) -> Verdict:
    """More than half must hold."""
    verdicts = [check.verdict for check in checks if check.counts]
    if verdicts.count("holds") > len(verdicts) / 2:
        return "holds"
    return "does not hold" if verdicts and verdicts.count("does not hold") >= len(verdicts) / 2 else "cannot be told"


class Bench:
    """Checks on one comparison, by the names of its series.

    "Every" configuration is every one of the catalogue: one that was not run cannot be told.
    """

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison
        known = {c.id: c for c in configurations(PROBLEMS[comparison.problem])}
        self.fixed = {name: c for name, c in known.items() if c.kind == "fixed"}
        self.adaptive = {name: c for name, c in known.items() if c.kind == "adaptive"}
        self.batched = self.fixed | self.adaptive

    def adaptive_with(self, *batches: int) -> list[str]:
        """The adaptive configurations with these B."""
        return [name for name, c in self.adaptive.items() if c.batches in batches]

    def at_least(self, factor: float, quantity: Quantity, a: str, b: str) -> Check:
        """a is at least `factor` times b."""
        check = self._factor(quantity, a, b, f"at least {factor:g}", lambda e: (e.low >= factor, e.high < factor))
        budget, rounds = self.fixed[b].batches if b in self.fixed else None, self.comparison.rounds
        if quantity == "versions" and budget is not None and rounds < factor * budget:
            note = f"cannot be asked: {rounds} rounds are not {factor:g} times a grid of {budget}"
            return replace(check, verdict="cannot be told", note=note, counts=False)
        return check

    def at_most(self, factor: float, quantity: Quantity, a: str, b: str) -> Check:
        """a is at most `factor` times b."""
        return self._factor(quantity, a, b, f"at most {factor:g}", lambda e: (e.high <= factor, e.low > factor))

    def alike(self, a: str, b: str) -> Check:
        """Regrets of a and b cannot be told apart."""
        low, high = 1 - ALIKE, 1 + ALIKE
        return self._factor(
            "regret",
            a,
            b,
            f"within {low:g} and {high:g}",
            lambda e: (low <= e.low and e.high <= high, e.low > high or e.high < low),
        )

    def beats(self, a: str, b: str) -> Check:
        """a has less regret than b."""
        pair = self._pair(a, b)
        what = f"regret of {self._label(b)} − regret of {self._label(a)}"
        if pair is None:
            return self._not_run(what, "above 0", a, b)
        x, y = pair
        return self._above_zero(what, self.comparison.regret_difference(y, x), x, y)

    def nearer(self, a: str, b: str, target: str) -> Check:
        """a's regret is nearer to the target's than b's."""
        first, second = self._pair(a, b), self._pair(a, target)
        labels = [self._label(name) for name in (b, a, target)]
        what = f"distance of {labels[0]} − distance of {labels[1]}, from the regret of {labels[2]}"
        if first is None or second is None:
            return self._not_run(what, "above 0", a, b, target)
        x, y = first
        return self._above_zero(what, self.comparison.gap_difference(x, y, second[1]), x, y)

    def _above_zero(self, what: str, estimate: IntervalEstimate, x: Series, y: Series) -> Check:
        same = self.comparison.same_runs(x, y)
        verdict = _told(estimate, estimate.low > 0, estimate.high < 0 or same)
        return Check(what, "above 0", estimate, verdict, SAME if same else "")

    def _factor(
        self, quantity: Quantity, a: str, b: str, needs: str, rule: Callable[[IntervalEstimate], tuple[bool, bool]]
    ) -> Check:
        pair = self._pair(a, b)
        what = f"{quantity} of {self._label(a)} ÷ {self._label(b)}"
        if pair is None:
            return self._not_run(what, needs, a, b)
        compare = self.comparison
        measure = {"regret": compare.regret_ratio, "time": compare.time_ratio, "versions": compare.version_ratio}
        estimate = measure[quantity](*pair)
        notes = [SAME] if compare.same_runs(*pair) else []
        if quantity == "regret" and estimate.runs > 1:
            notes.append(f"ratio of the means {compare.ratio_of_means(*pair):.4g}")
        return Check(what, needs, estimate, _told(estimate, *rule(estimate)), "; ".join(notes))

    def _pair(self, a: str, b: str) -> tuple[Series, Series] | None:
        series = self.comparison.series
        return (series[a], series[b]) if a in series and b in series else None

    def _label(self, name: str) -> str:
        series = self.comparison.series.get(name)
        return series.label if series else name

    def _not_run(self, what: str, needs: str, *names: str) -> Check:
        lacking = " and ".join(name for name in names if name not in self.comparison.series)
        return Check(what, needs, None, "cannot be told", f"no runs of {lacking}")


def _told(estimate: IntervalEstimate, holds: bool, fails: bool) -> Verdict:
    if estimate.runs < 2 or math.isnan(estimate.value):
        return "cannot be told"
    return "holds" if holds else "does not hold" if fails else "cannot be told"


def _finite(x: float) -> float | None:
    return float(f"{x:.6g}") if math.isfinite(x) else None
