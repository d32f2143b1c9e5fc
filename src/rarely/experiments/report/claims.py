"""The claims of the paper's experiments, one by one, and the checks that each comes to.

A claim about LinUCB is judged with the LinUCB that the paper reports: no intercept, the best of 16
pairs chosen on the very runs reported. The same check with a fair pair, and with an intercept, stands
beside it and does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rarely.experiments.report.results import BEST_LINEAR, NEURAL, Comparison
from rarely.experiments.report.verdicts import (
    ALMOST,
    SLIGHTLY,
    VERY_CLOSE,
    Bench,
    Check,
    Verdict,
    all_hold,
    most_hold,
)

OTHER_LINEAR = ("linucb-fair", "linucb-intercept-best", "linucb-intercept-fair")
PRINTED_ROUNDS = 2000


@dataclass(frozen=True)
class Claim:
    """What the paper says, in other words, and how it is checked."""

    id: str
    says: str
    checks: Callable[[Bench], list[Check]]
    judge: Callable[[Sequence[Check]], Verdict] = all_hold


@dataclass(frozen=True)
class Judged:
    """A claim on one problem, in one preset."""

    claim: Claim
    problem: str
    preset: str
    rounds: int
    checks: list[Check]

    @property
    def verdict(self) -> Verdict:
        """What the checks come to."""
        return self.claim.judge(self.checks)

    @property
    def rule(self) -> str:
        """How the checks come to a verdict."""
        return (self.claim.judge.__doc__ or "").strip()

    def describe(self) -> dict[str, Any]:
        """The judgement as JSON."""
        return {
            "id": self.claim.id,
            "says": self.claim.says,
            "problem": self.problem,
            "preset": self.preset,
            "rounds": self.rounds,
            "verdict": self.verdict,
            "rule": self.rule,
            "checks": [check.describe() for check in self.checks],
        }


def judge(comparisons: Iterable[Comparison]) -> list[Judged]:
    """Every claim on every problem and preset of which there are runs; the overall one first."""
    comparisons = list(comparisons)
    judged = []
    for preset in dict.fromkeys(c.preset for c in comparisons):
        mine = [c for c in comparisons if c.preset == preset and c.base == c.problem]
        if mine:
            checks = [check for c in mine for check in OVERALL.checks(Bench(c))]
            judged.append(Judged(OVERALL, "all", preset, max(c.rounds for c in mine), checks))
    for c in comparisons:
        for claim in CLAIMS.get(c.base, ()):
            judged.append(Judged(claim, c.problem, c.preset, c.rounds, claim.checks(Bench(c))))
    return judged


def _order_of_magnitude(bench: Bench) -> list[Check]:
    """For each batched configuration: close regret, and almost ten times fewer versions and less time."""
    checks = []
    for name in bench.batched:
        close = bench.at_most(VERY_CLOSE, "regret", name, NEURAL)
        fewer = bench.at_least(10 * ALMOST, "versions", NEURAL, name)
        faster = bench.at_least(10 * ALMOST, "time", NEURAL, name)
        note = close.note
        if fewer.estimate and faster.estimate:
            note = f"{fewer.estimate.value:.3g} times fewer versions, {faster.estimate.value:.3g} times less time"
        verdict = all_hold([close, fewer, faster])
        needs = f"{close.needs}, and versions and time at least {10 * ALMOST:g} times less"
        what = f"{bench.comparison.problem}: {close.what}"
        checks.append(replace(close, what=what, needs=needs, verdict=verdict, note=note))
    return checks


def _with_linear(check: Callable[[str], Check]) -> list[Check]:
    """The paper's LinUCB counts; the others stand beside it."""
    return [check(BEST_LINEAR), *(replace(check(name), counts=False) for name in OTHER_LINEAR)]


def _beats_linear(bench: Bench, name: str) -> list[Check]:
    return _with_linear(lambda linear: bench.beats(name, linear))


def _ends_of_families(bench: Bench) -> list[tuple[str, str]]:
    """The smallest and the largest B of the fixed grids, and of the adaptive ones at each log q."""
    families: dict[float | None, list[str]] = {}
    for name, c in bench.batched.items():
        families.setdefault(c.log_ratio, []).append(name)
    return [(names[0], names[-1]) for names in families.values()]


def _falls_with_batches(bench: Bench) -> list[Check]:
    return [bench.beats(largest, smallest) for smallest, largest in _ends_of_families(bench)]


def _nears_with_batches(bench: Bench) -> list[Check]:
    return [bench.nearer(largest, smallest, NEURAL) for smallest, largest in _ends_of_families(bench)]


OVERALL = Claim(
    "overall-1",
    "In most configurations, fixed and adaptive, regret stays close to sequential NeuralUCB's while updates and "
    "running time fall by an order of magnitude.",
    _order_of_magnitude,
    most_hold,
)
CLAIMS: dict[str, list[Claim]] = {
    "cosine": [
        Claim(
            "cosine-1",
            "LinUCB's regret is almost 10 times NeuralUCB's.",
            lambda b: _with_linear(lambda linear: b.at_least(10 * ALMOST, "regret", linear, NEURAL)),
        ),
        Claim(
            "cosine-2",
            "Every batched configuration but fixed B = 40 is within a factor 2 of NeuralUCB.",
            lambda b: [replace(b.at_most(2, "regret", name, NEURAL), counts=name != "fixed-B40") for name in b.batched],
        ),
        Claim(
            "cosine-3",
            "Updates and running times of all batched configurations are almost 10 times smaller than NeuralUCB's.",
            lambda b: [
                check
                for name in b.batched
                for check in (
                    b.at_least(10 * ALMOST, "versions", NEURAL, name),
                    b.at_least(10 * ALMOST, "time", NEURAL, name),
                )
            ],
        ),
        Claim(
            "cosine-4",
            "At equal B adaptive beats fixed.",
            lambda b: [b.beats(name, f"fixed-B{c.batches}") for name, c in b.adaptive.items()],
        ),
    ],
    "mushroom": [
        Claim(
            "mushroom-1",
            "NeuralUCB beats LinUCB.",
            lambda b: _beats_linear(b, NEURAL),
        ),
        Claim(
            "mushroom-2",
            "NeuralUCB is 1000 times slower than LinUCB.",
            lambda b: [b.at_least(1000, "time", NEURAL, BEST_LINEAR)],
        ),
        Claim(
            "mushroom-3",
            "Regret falls as B grows, toward NeuralUCB's.",
            lambda b: [*_falls_with_batches(b), *_nears_with_batches(b)],
        ),
        Claim(
            "mushroom-4",
            "Every adaptive B = 250 is within 20 % of NeuralUCB and beats LinUCB.",
            lambda b: [
                check
                for name in b.adaptive_with(250)
                for check in (b.at_most(1.2, "regret", name, NEURAL), *_beats_linear(b, name))
            ],
        ),
        Claim(
            "mushroom-5",
            "Every adaptive B = 250 runs 8 times faster than NeuralUCB.",
            lambda b: [b.at_least(8, "time", NEURAL, name) for name in b.adaptive_with(250)],
        ),
        Claim(
            "mushroom-6",
            "Every adaptive configuration beats every fixed one.",
            lambda b: [b.beats(adaptive, fixed) for adaptive in b.adaptive for fixed in b.fixed],
        ),
        Claim(
            "mushroom-7",
            "Adaptive B = 40, log q = 30 beats fixed B = 250.",
            lambda b: [b.beats("adaptive-B40-logq30", "fixed-B250")],
        ),
        Claim(
            "mushroom-8",
            "Adaptive needs far fewer batches than fixed for the same regret: here, with B = 40 and log q = 30 at most "
            "10 % more than the fixed grid of 250, which the fixed grid of 40 does not reach.",
            lambda b: [
                b.at_most(1.1, "regret", "adaptive-B40-logq30", "fixed-B250"),
                b.beats("adaptive-B40-logq30", "fixed-B40"),
            ],
        ),
    ],
    "quadratic": [
        Claim(
            "quadratic-1",
            "LinUCB does not perform well: it is not even very close to NeuralUCB.",
            lambda b: _with_linear(lambda linear: b.at_least(VERY_CLOSE, "regret", linear, NEURAL)),
        ),
        Claim(
            "quadratic-2",
            "NeuralUCB beats all.",
            lambda b: [
                *_beats_linear(b, NEURAL),
                *(b.beats(NEURAL, name) for name in b.batched),
            ],
        ),
        Claim(
            "quadratic-3",
            "Adaptive B = 40, whatever log q, beats LinUCB and is very close to NeuralUCB.",
            lambda b: [
                check
                for name in b.adaptive_with(40)
                for check in (b.at_most(VERY_CLOSE, "regret", name, NEURAL), *_beats_linear(b, name))
            ],
        ),
        Claim(
            "quadratic-4",
            "Adaptive B = 40 takes 90 s where NeuralUCB takes 2000 s.",
            lambda b: [b.at_least(round(2000 / 90, 1), "time", NEURAL, name) for name in b.adaptive_with(40)],
        ),
        Claim(
            "quadratic-5",
            "The gap to NeuralUCB is smaller at B = 100 and almost nothing at B = 200.",
            lambda b: [
                *(b.nearer(name.replace("B40", "B100"), name, NEURAL) for name in b.adaptive_with(40)),
                *(b.alike(name, NEURAL) for name in b.adaptive_with(200)),
            ],
        ),
        Claim(
            "quadratic-6",
            "Fixed and adaptive both perform very well: all are very close to NeuralUCB.",
            lambda b: [b.at_most(VERY_CLOSE, "regret", name, NEURAL) for name in b.batched],
        ),
    ],
    "magic": [
        Claim(
            "magic-1",
            "NeuralUCB beats LinUCB slightly.",
            lambda b: [
                *_beats_linear(b, NEURAL),
                *_with_linear(lambda linear: b.at_most(SLIGHTLY, "regret", linear, NEURAL)),
            ],
        ),
        Claim(
            "magic-2",
            "Adaptive beats fixed: B = 40 with log q = 50, 60, 70 beats fixed B = 200.",
            lambda b: [b.beats(name, "fixed-B200") for name in b.adaptive_with(40)],
        ),
        Claim("magic-3", "Regret falls as B grows.", _falls_with_batches),
        Claim(
            "magic-4",
            "Adaptive B = 100 and 200 cannot be told from NeuralUCB, at almost 8 times less time.",
            lambda b: [
                check
                for name in b.adaptive_with(100, 200)
                for check in (b.alike(name, NEURAL), b.at_least(8 * ALMOST, "time", NEURAL, name))
            ],
        ),
    ],
}
