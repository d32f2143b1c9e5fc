"""How a claim is judged: thresholds fixed before any run, intervals over runs, verdicts computed.

    holds            the whole 95 % interval lies where the claim says
    does not hold    the whole interval lies elsewhere
    cannot be told   the interval reaches into both, or there are no runs to tell

"almost N times" is at least 0.8N; "slightly" is up to 25 %; "very close" is up to 50 % more; "cannot be
told apart" is a paired interval within ±10 %; "beats" is a paired interval of differences above 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rarely.lab.results import Comparison, Series
from rarely.lab.statistics import Estimate

Verdict = Literal["holds", "does not hold", "cannot be told"]
ALMOST, SLIGHTLY, VERY_CLOSE, ALIKE = 0.8, 1.25, 1.5, 0.1
Quantity = Literal["regret", "time", "updates"]


@dataclass(frozen=True)
class Check:
    """One comparison that a claim rests on, or that stands beside it (`counts` is False)."""

    what: str
    needs: str
    estimate: Estimate | None
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


def some_hold(checks: Sequence[Check]) -> Verdict:
    """One is enough."""
    verdicts = [check.verdict for check in checks if check.counts]
    if "holds" in verdicts:
        return "holds"
    return "does not hold" if verdicts and set(verdicts) == {"does not hold"} else "cannot be told"


class Bench:
    """Checks on one comparison, by the names of its series."""

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison
        self.fixed = [series.name for series in comparison.of_kind("fixed")]
        self.adaptive = [series.name for series in comparison.of_kind("adaptive")]
        self.batched = self.fixed + self.adaptive

    def adaptive_with(self, *batches: int) -> list[str]:
        """The adaptive series with these B."""
        return [s.name for s in self.comparison.of_kind("adaptive") if s.configuration.batches in batches]

    def at_least(self, factor: float, quantity: Quantity, a: str, b: str) -> Check:
        """a is at least `factor` times b."""
        return self._factor(quantity, a, b, f"at least {factor:g}", lambda e: (e.low >= factor, e.high < factor))

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
        estimate = self.comparison.regret_difference(y, x)
        note = "the same decisions in every run" if self.comparison.same_runs(x, y) else ""
        return Check(what, "above 0", estimate, _told(estimate, estimate.low > 0, estimate.high < 0), note)

    def _factor(
        self, quantity: Quantity, a: str, b: str, needs: str, rule: Callable[[Estimate], tuple[bool, bool]]
    ) -> Check:
        pair = self._pair(a, b)
        what = f"{quantity} of {self._label(a)} ÷ {self._label(b)}"
        if pair is None:
            return self._not_run(what, needs, a, b)
        compare = self.comparison
        measure = {"regret": compare.regret_ratio, "time": compare.time_ratio, "updates": compare.update_ratio}
        estimate = measure[quantity](*pair)
        note = "the same decisions in every run" if compare.same_runs(*pair) else ""
        return Check(what, needs, estimate, _told(estimate, *rule(estimate)), note)

    def _pair(self, a: str, b: str) -> tuple[Series, Series] | None:
        series = self.comparison.series
        return (series[a], series[b]) if a in series and b in series else None

    def _label(self, name: str) -> str:
        series = self.comparison.series.get(name)
        return series.label if series else name

    def _not_run(self, what: str, needs: str, *names: str) -> Check:
        lacking = " and ".join(name for name in names if name not in self.comparison.series)
        return Check(what, needs, None, "cannot be told", f"no runs of {lacking}")


def _told(estimate: Estimate, holds: bool, fails: bool) -> Verdict:
    if estimate.runs < 2 or math.isnan(estimate.value):
        return "cannot be told"
    return "holds" if holds else "does not hold" if fails else "cannot be told"


def _finite(x: float) -> float | None:
    return float(f"{x:.6g}") if math.isfinite(x) else None
