"""How a claim is checked and judged: thresholds, tests over runs, verdicts computed.

Thresholds were fixed before the first runs, and changed once since, before those that are published (decision 0047).
Every check asks for a ratio of two numbers of the same runs, and is judged twice (decision 0073):

    mean       the ratio of the means over runs: what an average of runs shows, in which a rare bad run counts in full
    typical    the geometric mean of the runs' ratios, which half of the runs stay below if their logarithms are even

    holds            every check holds: its 95 % interval lies where the claim says (an intersection–union test, which
                     needs no correction for the number of checks); *larger than claimed* if beyond the size that the
                     paper gives, in the direction that it gives
    does not hold    a check fails: an interval that is widened for the number of checks lies elsewhere (Holm's method);
                     the check says whether the direction is reversed, or only the size is smaller than claimed
    inconclusive     neither
    not applicable   the check has no meaning for these runs and counts nowhere

A claim that needs only u of K checks is judged by partial conjunction (Benjamini and Heller, 2008): it holds if the
u-th smallest p-value is at most α/(K − u + 1), and does not hold if the (K − u + 1)-th smallest p-value against the
checks is at most α/u. For u = K these are the two rules above. α is 2.5 % on each side. For an inconclusive claim,
`runs_to_decide` estimates with how many runs the chances of a decision are even; where ten times as many are not
enough, the claim is called a tie.

"almost", "around" and "slightly" have one slack, a factor of 1.25: "almost N times" and "around N" are at least 0.8N,
and larger than claimed beyond 1.25N; "slightly" is up to 25 %, and "much better" is beyond it. "very close" is up to
50 % more, "the same regret" within ±10 %, and "beats" is a ratio above 1.

"Every" configuration is every one of the catalogue whose B and log q the paper names; if one was not run, the claim is
inconclusive. Configurations with other values are shown beside a claim. On the cosine problem the paper speaks of all
configurations and names no log q and of the values of B one alone, so those of the catalogue count, B like log q.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from rarely.extend import PresetName
from rarely.runs.statistics import IntervalEstimate, Sample, ratios, ratios_of_means
from rarely_lab.reproduce.catalogue import PROBLEMS, SECOND_READINGS, configurations
from rarely_lab.reproduce.report.results import NEURAL, SLACK, Comparison, Series

Estimand = Literal["mean", "typical"]
RATIOS: dict[Estimand, Callable[..., Sample]] = {"mean": ratios_of_means, "typical": ratios}
ESTIMANDS = (*RATIOS,)
ClaimKind = Literal["claim", "figure", "finding"]
"""A claim of the paper; a number that gets no verdict; or a finding of ours, judged like a claim."""
Verdict = Literal["holds", "holds, larger than claimed", "does not hold", "inconclusive", "not applicable"]
HELD: tuple[Verdict, ...] = ("holds", "holds, larger than claimed")
ALPHA = 0.025  # the size of each one-sided test: what a 95 % interval leaves on either side
VERY_CLOSE, ALIKE = 1.5, 0.1
MAX_REPEATS, MIN_RUNS = 10, 10
"""How many times as many runs `runs_to_decide` considers, and how many it needs to say anything."""
PRINTED_ROUNDS = 2000  # the paper's number of rounds T
NO_RUNS = Sample((), 1.0)
GROWTH_PROBLEM = "{}-growth"  # what the claims about several lengths of a problem are judged on


@dataclass(frozen=True)
class Measured:
    """A measured quantity and the range in which a claim puts it; the range includes its ends unless `strict`."""

    what: str
    needs: str
    sample: Sample = NO_RUNS  # the runs that were measured; none if a configuration was not run
    low: float = 0.0
    high: float = math.inf
    strict: bool = False
    size: float = math.inf
    """The largest value that the paper's words mean; beyond it the claim holds, and is larger than claimed."""
    of: tuple[str, ...] = ()
    """The number, the runs above and below the line, a third if distances from it are asked, and a machine."""

    @property
    def two_sided(self) -> bool:
        return self.low > 0 and math.isfinite(self.high)

    @cached_property
    def p_outside(self) -> float:
        """Return the p-value against "it lies outside the range"; small where the claim holds."""
        closed = not self.strict
        return max(self.sample.p_above(self.low, or_equal=closed), self.sample.p_below(self.high, or_equal=closed))

    @cached_property
    def p_inside(self) -> float:
        """Return the p-value against "it lies in the range"; small where the claim fails."""
        below = self.sample.p_below(self.low, or_equal=self.strict)
        above = self.sample.p_above(self.high, or_equal=self.strict)
        return min(1.0, (2.0 if self.two_sided else 1.0) * min(below, above))

    @property
    def direction(self) -> str:
        """Say of a size that is not reached whether the sign is another; empty if that is not asked, or not known."""
        if self.low >= 1 and self.sample.p_below(1.0) <= ALPHA:
            return "reversed"
        return "smaller than claimed, in its direction" if self.low >= 1 and self.sample.p_above(1.0) <= ALPHA else ""


@dataclass(frozen=True)
class Check:
    """One comparison that a claim rests on, or one that is shown beside it (`counts` is False)."""

    what: str
    needs: str
    parts: tuple[Measured, ...]  # all must lie in their ranges
    note: str = ""
    counts: bool = True
    applies: bool = True  # False where the comparison has no meaning for these runs
    relative: bool = False
    """Whether it asks that something be close to sequential NeuralUCB, which says little if that learns nothing."""

    @property
    def counted(self) -> bool:
        return self.counts and self.applies

    @cached_property
    def p_fails_to_hold(self) -> float:
        """Return the p-value against "the check is false"."""
        return max(part.p_outside for part in self.parts)

    @cached_property
    def p_true(self) -> float:
        """Return the p-value against "the check is true"."""
        return min(1.0, len(self.parts) * min(part.p_inside for part in self.parts))


@dataclass(frozen=True)
class Decided:
    """A check with its verdict and the interval that decided it."""

    check: Check
    verdict: Verdict
    estimate: IntervalEstimate | None
    confidence: float
    note: str = ""
    part: Measured | None = None  # what decided it, or left it open

    def describe(self) -> dict[str, Any]:
        e, check = self.estimate, self.check
        numbers = {name: _finite(getattr(e, name)) if e else None for name in ("value", "low", "high")}
        return {
            "what": check.what, "needs": check.needs, **numbers, "confidence": _finite(self.confidence),
            "runs": e.runs if e else 0, "verdict": self.verdict, "note": self.note, "counts": check.counted,
        }  # fmt: skip


@dataclass(frozen=True)
class Rule:
    """How many of a claim's checks must be true."""

    says: str
    needed: Callable[[int], int]


ALL = Rule("Every check must hold.", lambda count: count)
MOST = Rule("More than half must hold.", lambda count: count // 2 + 1)


def decide(checks: Sequence[Check], rule: Rule = ALL) -> tuple[Verdict, list[Decided]]:
    """Return the verdict on a claim, and on each of its checks in order."""
    counted = [check for check in checks if check.counted]
    held, levels = _levels(counted, rule)
    failed = iter(levels)
    decided = [_decide(check, *((held, next(failed)) if check.counted else (ALPHA, ALPHA))) for check in checks]
    verdict = _verdict(counted, rule)
    larger = verdict == "holds" and any(one.verdict == HELD[1] and one.check.counted for one in decided)
    return HELD[1] if larger else verdict, decided


def runs_to_decide(checks: Sequence[Check], rule: Rule = ALL) -> float:
    """Return with how many runs the chances of a decision are even, as a multiple of the runs so far.

    The estimate assumes that more runs have the same means and spreads; true means are as often nearer to a threshold
    as farther from it. ∞ if `MAX_REPEATS` times as many would not decide, NaN if there are too few runs, or none of a
    configuration.
    """
    counted = [check for check in checks if check.counted]
    runs = min((part.sample.runs for check in counted for part in check.parts), default=0)
    if runs < MIN_RUNS:
        return math.nan

    for times in range(1, MAX_REPEATS + 1):
        parts = (tuple(replace(one, sample=one.sample.repeated(times)) for one in check.parts) for check in counted)
        more = [replace(check, parts=own) for check, own in zip(counted, parts, strict=True)]
        if _verdict(more, rule) != "inconclusive":
            return float(runs * times)
    return math.inf


def _verdict(counted: Sequence[Check], rule: Rule) -> Verdict:
    count = len(counted)
    if not count:
        return "inconclusive"
    needed = rule.needed(count)
    if sorted(check.p_fails_to_hold for check in counted)[needed - 1] <= ALPHA / (count - needed + 1):
        return "holds"
    if sorted(check.p_true for check in counted)[count - needed] <= ALPHA / needed:
        return "does not hold"
    return "inconclusive"


def _levels(counted: Sequence[Check], rule: Rule) -> tuple[float, list[float]]:
    """Return the level at which checks hold, and for each check that at which it fails (Holm's if all must hold)."""
    count = len(counted)
    needed = rule.needed(count) if count else 0
    if needed < count:
        return ALPHA / (count - needed + 1), [ALPHA / needed] * count
    levels, last = [0.0] * count, count
    for rank, place in enumerate(sorted(range(count), key=lambda i: counted[i].p_true)):
        # Holm's levels rise from α/K to α, but stop at the first check that is not rejected.
        levels[place] = ALPHA / (count - min(rank, last))
        if counted[place].p_true > levels[place]:
            last = min(rank, last)
    return ALPHA, levels


def _decide(check: Check, held: float, failed: float) -> Decided:
    if not check.applies:
        return Decided(check, "not applicable", None, 1 - 2 * ALPHA, check.note)
    verdict: Verdict = "inconclusive"
    part, level, sides = max(check.parts, key=lambda part: part.p_outside), held, 2
    surest = min(check.parts, key=lambda part: part.p_inside)
    if check.p_fails_to_hold <= held:
        verdict = HELD[any(each.sample.p_above(each.size) <= ALPHA for each in check.parts)]
    elif check.p_true <= failed or surest.p_inside <= ALPHA:
        # Where only the 95 % interval lies elsewhere, the wider one that decided reaches into the range.
        verdict = "does not hold" if check.p_true <= failed else verdict
        part, level, sides = surest, failed / len(check.parts), 1 if surest.two_sided else 2
    elif part.p_outside > ALPHA:  # elsewhere many checks ask for more than an interval of 95 % inside the range
        level = ALPHA
    confidence = 1 - sides * level  # that of the interval which corresponds to the test
    estimate, notes = part.sample.interval(confidence), [check.note]
    if len(check.parts) > 1:
        notes.append(f"{'left open' if verdict == 'inconclusive' else 'decided'} by {part.what}, {part.needs}")
    if verdict == "does not hold":
        side = f"{'more' if estimate.value > part.high else 'less'} than claimed"
        notes.append(side if part.two_sided else part.direction)
    return Decided(check, verdict, estimate, confidence, "; ".join(filter(None, notes)), part)


def _finite(x: float) -> float | None:
    return float(f"{x:.6g}") if math.isfinite(x) else None


Quantity = Literal["regret", "seconds", "versions"]
SAME = "the same decisions in every run"
NAMED_BATCHES = {"mushroom": (40, 250), "quadratic": (40, 100, 200), "magic": (40, 100, 200)}
NAMED_LOG_RATIOS: dict[str, tuple[float, ...]] = {"mushroom": (30,), "quadratic": (20, 25, 30), "magic": (50, 60, 70)}


class ClaimChecker:
    """Makes the checks of claims on one problem in one preset, by the names of its series."""

    def __init__(self, comparison: Comparison, estimand: Estimand = "mean") -> None:
        self.comparison, self.estimand = comparison, estimand
        planned = {c.id: c for c in configurations(PROBLEMS[comparison.problem])}
        self.fixed = {name: c for name, c in planned.items() if c.kind == "fixed"}
        self.adaptive = {name: c for name, c in planned.items() if c.kind == "adaptive"}
        self.batched = self.fixed | self.adaptive

    def adaptive_with(self, *batches: int) -> list[str]:
        return [name for name, c in self.adaptive.items() if c.batches in batches]

    def named(self, name: str) -> bool:
        """Return whether the paper names the values of a configuration, or it has none."""
        if name not in self.batched:
            return True
        c, base = self.batched[name], self.comparison.base
        named = c.log_ratio is None or c.log_ratio in NAMED_LOG_RATIOS.get(base, (c.log_ratio,))
        return named and c.batches in NAMED_BATCHES.get(base, (c.batches,))

    def at_least(self, factor: float, quantity: Quantity, a: str, b: str) -> Check:
        return self._ratio(quantity, a, b, f"at least {factor:g}", factor)

    def at_most(self, factor: float, quantity: Quantity, a: str, b: str) -> Check:
        return self._ratio(quantity, a, b, f"at most {factor:g}", 0.0, factor)

    def around(self, size: float, quantity: Quantity, a: str, b: str) -> Check:
        """Check that a is about `size` times b: at least that, less the slack, and perhaps larger than claimed."""
        low, high = size / SLACK, size * SLACK
        return self._ratio(quantity, a, b, f"at least {low:.3g}; claimed up to {high:.3g}", low, size=high)

    def alike(self, a: str, b: str) -> Check:
        """Check that a and b have the same regret, within `ALIKE`."""
        low, high = 1 - ALIKE, 1 + ALIKE
        return self._ratio("regret", a, b, f"between {low:g} and {high:g}", low, high)

    def beats(self, a: str, b: str) -> Check:
        return self._ratio("regret", b, a, "above 1", 1.0, strict=True)

    def nearer(self, a: str, b: str, target: str) -> Check:
        """Check that a's regret is nearer to the target's than b's; among typical runs, in logarithms."""
        what = f"distance of {self.label(b)} ÷ distance of {self.label(a)}, from the regret of {self.label(target)}"

        def distance(x: float, aim: float) -> float:
            return abs(x - aim) if self.estimand == "mean" else max(x / aim, aim / x)

        def distances(far: Series, near: Series, goal: Series) -> Sample:
            seeds = sorted(far.runs.keys() & near.runs.keys() & goal.runs.keys())
            own = [[distance(s.runs[seed].regret, goal.runs[seed].regret) for seed in seeds] for s in (far, near)]
            return self.sample(*own)

        check = self._check(what, "above 1", distances, (b, a, target), "regret", 1.0, strict=True)
        return replace(check, relative=target == NEURAL)

    def below(self, regret: float, meaning: str, name: str) -> Check:
        what = f"{regret:.0f} ({meaning}) ÷ regret of {self.label(name)}"

        def sample(own: Series) -> Sample:
            return self.sample([regret] * len(own.runs), own.regrets)

        check = self._check(what, "above 1", sample, (name,), "regret", 1.0, strict=True)
        (part,) = check.parts
        return replace(check, parts=(replace(part, of=("regret", f"{regret:.6f}", *part.of[1:3])),))

    def sample(self, a: Sequence[float], b: Sequence[float]) -> Sample:
        """Return the ratio that is estimated."""
        return RATIOS[self.estimand](a, b)

    def _ratio(
        self, quantity: Quantity, a: str, b: str, needs: str, low: float = 0.0, *high: float, **more: Any
    ) -> Check:
        def sample(a: Series, b: Series) -> Sample:
            # An update after every round and a budget of B are no chance: T and at most B versions.
            budget = b.configuration.batches or math.inf
            exact = quantity == "versions" and low * budget <= self.comparison.rounds
            return replace(self.sample(*self.comparison.paired(quantity, a, b)), exact=exact)

        what = f"{'time' if quantity == 'seconds' else quantity} of {self.label(a)} ÷ {self.label(b)}"
        check = self._check(what, needs, sample, (a, b), quantity, low, *high, **more)
        series, (measured,) = self._run((a, b)), check.parts
        if measured.strict and series and self.comparison.same_runs(*series):
            return replace(check, applies=False, note=f"{SAME}: the budget of neither was used up")
        grid, rounds = (self.fixed[b].batches or 0) if b in self.fixed else 0, self.comparison.rounds
        if quantity != "regret" and rounds < measured.low * grid:  # which cannot have so many times fewer updates
            reason = f"not applicable: {rounds} rounds are less than {measured.low:g} times a grid of {grid}"
            return replace(check, applies=False, note=reason)
        return replace(check, relative=b == NEURAL and quantity == "regret" and math.isfinite(measured.high))

    def _check(
        self, what: str, needs: str, sample: Callable[..., Sample], names: tuple[str, ...], quantity: str,
        low: float, high: float = math.inf, **more: Any,
    ) -> Check:  # fmt: skip
        counts, series = all(map(self.named, names)), self._run(names)
        if not series:
            lacking = " and ".join(name for name in names if name not in self.comparison.series)
            return Check(what, needs, (Measured(what, needs),), f"no runs of {lacking}", counts)
        runs = sample(*series)
        note = "undefined, because a value is 0" if any(map(math.isnan, runs.values)) else ""
        machine = self.comparison.place if quantity == "seconds" else ()
        timed = [self.comparison.timed(s) if machine else s for s in series]
        of = (quantity, *(s.group for s in timed), *[""] * (3 - len(timed)), *machine)
        return Check(what, needs, (Measured(what, needs, runs, low, high, of=of, **more),), note, counts)

    def _run(self, names: Sequence[str]) -> list[Series]:
        """Return the series of these names; none if one was not run."""
        there = self.comparison.series
        return [there[name] for name in names] if all(name in there for name in names) else []

    def label(self, name: str) -> str:
        series = self.comparison.series.get(name)
        return series.label if series else name


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, in other words, and its checks."""

    id: str
    short: str  # a few words for a summary
    says: str
    checks: Callable[[ClaimChecker], list[Check]]
    rule: Rule = ALL
    kind: ClaimKind = "claim"


def beside(check: Check) -> Check:
    """Return the check as one that is shown beside a claim and does not count."""
    return replace(check, counts=False)


@dataclass(frozen=True)
class Judged:
    """A claim with its verdict on one problem in one preset."""

    claim: Claim
    problem: str
    preset: PresetName
    rounds: int
    verdict: Verdict  # a figure is not applicable
    checks: list[Decided]
    estimand: Estimand = "mean"
    idle: str = ""  # why it holds although nothing learns; empty elsewhere
    runs_to_decide: float = math.nan
    """The runs with which the chances of an inconclusive claim are even: ∞ for a tie, NaN if unknown."""

    @property
    def counted(self) -> list[Decided]:
        return [one for one in self.checks if one.check.counted]

    @property
    def decisive(self) -> Decided | None:
        """The check that decides: the surest of those that fail, or else that which is nearest to its bound."""
        if self.verdict == "does not hold":
            return min(self.counted, key=lambda one: one.check.p_true)
        return max(self.counted, key=lambda one: one.check.p_fails_to_hold, default=None)

    @property
    def second_reading(self) -> bool:
        return self.problem in SECOND_READINGS

    @property
    def of_paper_length(self) -> bool:
        """Return whether the runs have the paper's T, or the lengths that the claim is about."""
        return self.rounds == PRINTED_ROUNDS or self.problem.endswith(GROWTH_PROBLEM[2:])

    @property
    def tie(self) -> bool:
        """Return whether many more runs with the same means and spreads would not decide either."""
        return self.runs_to_decide == math.inf

    @property
    def outlook(self) -> str:
        """Return what it would take to decide, in words; empty if unknown or decided."""
        if self.tie:
            runs = min(part.sample.runs for one in self.counted for part in one.check.parts)
            return f"{MAX_REPEATS * runs} runs would not resolve a difference this small"
        if math.isnan(self.runs_to_decide):
            return ""
        return f"about {self.runs_to_decide:.0f} runs would have an even chance of deciding"

    def describe(self) -> dict[str, Any]:
        claim = {name: getattr(self.claim, name) for name in ("id", "kind", "says")}
        named = ("problem", "preset", "rounds", "estimand", "verdict", "idle", "outlook")
        own = {name: getattr(self, name) for name in named}
        return claim | own | {"rule": self.claim.rule.says, "checks": [check.describe() for check in self.checks]}


def judge_claim(
    claim: Claim, problem: str, on: Sequence[Comparison], checks: Sequence[Check], estimand: Estimand, idle: str = ""
) -> Judged:
    """Return what came of a claim by its checks on a problem in a preset; `idle` says that nothing learns there."""
    verdict, decided = decide(checks, claim.rule)
    if claim.kind == "figure":
        verdict = "not applicable"
    idle = idle if verdict in HELD and any(check.relative and check.counted for check in checks) else ""
    more = runs_to_decide(checks, claim.rule) if verdict == "inconclusive" else math.nan
    rounds = max(c.rounds for c in on)
    return Judged(claim, problem, on[0].preset, rounds, verdict, decided, estimand, idle, more)
