"""How a claim is judged: thresholds fixed before any run, tests over runs, verdicts computed.

    holds            every check holds: its 95 % interval lies where the claim says (an intersection–union test, which
                     needs no correction for the number of checks)
    does not hold    a check fails: an interval that is widened for the number of checks lies elsewhere (Holm's method)
    cannot be told   neither
    not asked        the check has no meaning for these runs; it counts nowhere

A claim that needs only u of K checks is judged by partial conjunction (Benjamini and Heller, 2008): it holds if the
u-th smallest p-value is at most α/(K − u + 1), and does not hold if the (K − u + 1)-th smallest p-value against the
checks is at most α/u. For u = K these are the two rules above. α is 2.5 % on each side, and
docs/decisions/0030-judge.md has the error rates of the whole judge in simulated papers. Of a claim that cannot be told,
`runs_to_tell` says with how many runs the chances are even; where ten times as many are not enough, it is called a tie.

"almost", "around" and "slightly" have one slack, a factor of 1.25: "almost N times" and "around N" are 0.8N to 1.25N
where the paper gives a size, "almost N times smaller" of all configurations is at least 0.8N, and "slightly" is up to
25 %; "much better" is beyond "slightly". "very close" is up to 50 % more, "cannot be told apart" within ±10 %, and
"beats" is a mean difference above 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from rarely.simulation.statistics import IntervalEstimate, Sample

Verdict = Literal["holds", "does not hold", "cannot be told", "not asked"]
ALPHA = 0.025
"""The size of each one-sided test: what a 95 % interval leaves on either side."""
SLACK, VERY_CLOSE, ALIKE = 1.25, 1.5, 0.1
MANY_TIMES, FEWEST_RUNS = 10, 10
"""How many times as many runs are thought of, and how many must be there: means of fewer say little about more."""


@dataclass(frozen=True)
class Measured:
    """A measured quantity, and the range where a claim says that it lies; the ends belong to it unless `strict`."""

    what: str
    needs: str
    sample: Sample | None
    """None where a configuration was not run."""
    low: float = -math.inf
    high: float = math.inf
    strict: bool = False

    @property
    def two_sided(self) -> bool:
        """Whether the range has two ends."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    @cached_property
    def p_outside(self) -> float:
        """The p-value against "it lies outside the range"; small where the claim holds."""
        if self.sample is None:
            return 1.0
        closed = not self.strict
        return max(self.sample.p_above(self.low, or_equal=closed), self.sample.p_below(self.high, or_equal=closed))

    @cached_property
    def p_inside(self) -> float:
        """The p-value against "it lies in the range"; small where the claim fails."""
        if self.sample is None:
            return 1.0
        below = self.sample.p_below(self.low, or_equal=self.strict)
        above = self.sample.p_above(self.high, or_equal=self.strict)
        return min(1.0, (2.0 if self.two_sided else 1.0) * min(below, above))

    def confidence(self, level: float, *, outside: bool) -> float:
        """The confidence of the interval that a test of this level looks at."""
        return 1 - (level if outside and self.two_sided else 2 * level)


@dataclass(frozen=True)
class Check:
    """One comparison that a claim rests on, or that stands beside it (`counts` is False)."""

    what: str
    needs: str
    parts: tuple[Measured, ...]
    """All must lie in their ranges."""
    note: str = ""
    counts: bool = True
    asked: bool = True

    @cached_property
    def p_fails_to_hold(self) -> float:
        """The p-value against "the check is false"."""
        return max(part.p_outside for part in self.parts)

    @cached_property
    def p_true(self) -> float:
        """The p-value against "the check is true"."""
        return min(1.0, len(self.parts) * min(part.p_inside for part in self.parts))


@dataclass(frozen=True)
class Decided:
    """A check with its verdict, and the interval that decided."""

    check: Check
    verdict: Verdict
    estimate: IntervalEstimate | None
    confidence: float
    note: str = ""

    def describe(self) -> dict[str, Any]:
        """The check as JSON."""
        e = self.estimate
        numbers = {name: _finite(getattr(e, name)) if e else None for name in ("value", "low", "high")}
        return {
            "what": self.check.what,
            "needs": self.check.needs,
            **numbers,
            "confidence": _finite(self.confidence),
            "runs": e.runs if e else 0,
            "verdict": self.verdict,
            "note": self.note,
            "counts": self.check.counts and self.check.asked,
        }


@dataclass(frozen=True)
class Rule:
    """How many of a claim's checks must be true."""

    says: str
    needed: Callable[[int], int]


ALL = Rule("Every check must hold.", lambda count: count)
MOST = Rule("More than half must hold.", lambda count: count // 2 + 1)


def decide(checks: Sequence[Check], rule: Rule = ALL) -> tuple[Verdict, list[Decided]]:
    """The verdict on a claim, and on each of its checks in their order."""
    counted = [check for check in checks if check.counts and check.asked]
    held, failed = _levels(counted, rule)
    decided, place = list[Decided](), 0
    for check in checks:
        if check.counts and check.asked:
            decided.append(_decide(check, held, failed[place]))
            place += 1
        else:
            decided.append(_decide(check, ALPHA, ALPHA))
    return _verdict(counted, rule), decided


def runs_to_tell(checks: Sequence[Check], rule: Rule = ALL) -> float:
    """With how many runs the chances to tell are even: whole multiples of those that there are.

    They tell if their means and spreads are those of the runs so far. True means are as often nearer to a threshold as
    farther from it. ∞ where `MANY_TIMES` as many would not tell, and NaN where there are too few, or none of a
    configuration.
    """
    counted = [check for check in checks if check.counts and check.asked]
    samples = [part.sample for check in counted for part in check.parts]
    runs = min((0 if sample is None else sample.runs for sample in samples), default=0)
    if runs < FEWEST_RUNS:
        return math.nan
    for times in range(1, MANY_TIMES + 1):
        if _verdict([_repeated(check, times) for check in counted], rule) != "cannot be told":
            return float(times * runs)
    return math.inf


def _repeated(check: Check, times: int) -> Check:
    parts = [replace(part, sample=part.sample and part.sample.repeated(times)) for part in check.parts]
    return replace(check, parts=tuple(parts))


def _verdict(counted: Sequence[Check], rule: Rule) -> Verdict:
    count = len(counted)
    if not count:
        return "cannot be told"
    needed = rule.needed(count)
    if sorted(check.p_fails_to_hold for check in counted)[needed - 1] <= ALPHA / (count - needed + 1):
        return "holds"
    if sorted(check.p_true for check in counted)[count - needed] <= ALPHA / needed:
        return "does not hold"
    return "cannot be told"


def _levels(counted: Sequence[Check], rule: Rule) -> tuple[float, list[float]]:
    """The level at which a check holds, and for each check the one at which it fails: Holm's where all must hold."""
    count = len(counted)
    needed = rule.needed(count) if count else 0
    if needed < count:
        return ALPHA / (count - needed + 1), [ALPHA / needed] * count
    levels, last = [0.0] * count, count
    for rank, place in enumerate(sorted(range(count), key=lambda i: counted[i].p_true)):
        # Holm's levels rise from α/K to α, and no further than the first check that is not rejected.
        levels[place] = ALPHA / (count - min(rank, last))
        if counted[place].p_true > levels[place]:
            last = min(rank, last)
    return ALPHA, levels


def _decide(check: Check, held: float, failed: float) -> Decided:
    if not check.asked:
        return Decided(check, "not asked", None, 1 - 2 * ALPHA, check.note)
    if check.p_fails_to_hold <= held:
        part = max(check.parts, key=lambda part: part.p_outside)
        return _with_interval(check, "holds", part, part.confidence(held, outside=False))
    part = min(check.parts, key=lambda part: part.p_inside)
    strict = failed / len(check.parts)
    if check.p_true <= failed:
        return _with_interval(check, "does not hold", part, part.confidence(strict, outside=True))
    if part.p_inside <= ALPHA:
        # An interval of 95 % that lies elsewhere did not decide; the wider one that reaches into the range did.
        return _with_interval(check, "cannot be told", part, part.confidence(strict, outside=True))
    unproven = max(check.parts, key=lambda part: part.p_outside)
    # Likewise where many checks ask for more than an interval of 95 % inside the range.
    level = held if unproven.p_outside <= ALPHA else ALPHA
    return _with_interval(check, "cannot be told", unproven, unproven.confidence(level, outside=False))


def _with_interval(check: Check, verdict: Verdict, part: Measured, confidence: float) -> Decided:
    notes = [check.note] if check.note else []
    estimate = part.sample.interval(confidence) if part.sample is not None else None
    if len(check.parts) > 1:
        role = "left open" if verdict == "cannot be told" else "decided"
        notes.append(f"{role} by {part.what}, {part.needs}")
    if verdict == "does not hold" and part.two_sided and estimate is not None:
        notes.append("more than claimed" if estimate.value > part.high else "less than claimed")
    return Decided(check, verdict, estimate, confidence, "; ".join(notes))


def _finite(x: float) -> float | None:
    return float(f"{x:.6g}") if math.isfinite(x) else None
