"""The claims of the paper's experiments, one by one, and the checks that each comes to.

A claim about LinUCB is judged with the LinUCB that the paper reports: no intercept, the best of 16
pairs chosen on the very runs reported. The same check with a fair pair, and with an intercept, stands
beside it and does not count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from rarely.experiments.report.checker import ClaimChecker
from rarely.experiments.report.results import BEST_LINEAR, NEURAL
from rarely.experiments.report.verdicts import ALL, MOST, SLACK, VERY_CLOSE, Check, Rule
from rarely.worlds.datasets import DATASETS

OTHER_LINEAR = ("linucb-fair", "linucb-intercept-best", "linucb-intercept-fair")
ClaimKind = Literal["claim", "figure", "finding"]
"""The paper's claim; a number beside it that no verdict is given on; or a statement of ours, judged like a claim."""


@dataclass(frozen=True)
class Claim:
    """What the paper says, in other words, and how it is checked."""

    id: str
    short: str
    """In a few words, for a summary."""
    says: str
    checks: Callable[[ClaimChecker], list[Check]]
    rule: Rule = ALL
    kind: ClaimKind = "claim"


def beside(check: Check) -> Check:
    """The check, shown beside a claim that it does not decide."""
    return replace(check, counts=False)


def _order_of_magnitude(on: ClaimChecker) -> list[Check]:
    """For each batched configuration: close regret, and almost ten times fewer versions and less time."""
    checks = []
    for name in on.batched:
        close = on.at_most(VERY_CLOSE, "regret", name, NEURAL)
        fewer = on.at_least(10 / SLACK, "versions", NEURAL, name)
        faster = on.at_least(10 / SLACK, "time", NEURAL, name)
        needs = f"regret {close.needs}, and versions and time at least {10 / SLACK:g} times less"
        parts = (*close.parts, *fewer.parts, *faster.parts)
        note = "" if fewer.asked else fewer.note
        what = f"{on.comparison.problem}: {on.label(name)} against {on.label(NEURAL)}"
        checks.append(Check(what, needs, parts, note, counts=close.counts, asked=fewer.asked))
    return checks


def _with_linear(check: Callable[[str], Check]) -> list[Check]:
    """The paper's LinUCB counts; the others stand beside it."""
    return [check(BEST_LINEAR), *(beside(check(name)) for name in OTHER_LINEAR)]


def _beats_linear(on: ClaimChecker, name: str) -> list[Check]:
    return _with_linear(lambda linear: on.beats(name, linear))


def _ends_of_families(on: ClaimChecker) -> list[tuple[str, str]]:
    """The smallest and the largest B of the fixed grids, and of the adaptive ones at each log q."""
    families: dict[float | None, list[str]] = {}
    for name, c in on.batched.items():
        families.setdefault(c.log_ratio, []).append(name)
    return [(names[0], names[-1]) for names in families.values()]


def _falls_with_batches(on: ClaimChecker) -> list[Check]:
    return [on.beats(largest, smallest) for smallest, largest in _ends_of_families(on)]


def _nears_with_batches(on: ClaimChecker) -> list[Check]:
    return [on.nearer(largest, smallest, NEURAL) for smallest, largest in _ends_of_families(on)]


def _smaller_gaps(on: ClaimChecker, at_40: list[str], at_200: list[str]) -> list[Check]:
    return [
        *(on.nearer(name.replace("B40", "B100"), name, NEURAL) for name in at_40),
        *(on.alike(name, NEURAL) for name in at_200),
    ]


def _one_class_always(on: ClaimChecker) -> float:
    """The regret to expect of always choosing the more frequent class of MAGIC."""
    counts = [count for _, count in DATASETS["magic"].counts]
    return on.comparison.rounds * min(counts) / sum(counts)


OVERALL = Claim(
    "overall-1",
    "most batched configurations stay close with ten times fewer updates",
    "In most configurations, fixed and adaptive, regret stays close to sequential NeuralUCB's while updates and "
    "running time fall by an order of magnitude.",
    _order_of_magnitude,
    MOST,
)
CLAIMS: dict[str, list[Claim]] = {
    "cosine": [
        Claim(
            "cosine-1",
            "LinUCB almost ten times worse on cosine",
            "LinUCB's regret is almost 10 times NeuralUCB's.",
            lambda on: _with_linear(lambda linear: on.around(10, "regret", linear, NEURAL)),
        ),
        Claim(
            "cosine-2",
            "batched within a factor 2 on cosine",
            "Every batched configuration but fixed B = 40 is within a factor 2 of NeuralUCB.",
            lambda on: [on.at_most(2, "regret", name, NEURAL) for name in on.batched if name != "fixed-B40"],
        ),
        Claim(
            "cosine-3",
            "almost ten times fewer updates and less time on cosine",
            "Updates and running times of all batched configurations are almost 10 times smaller than NeuralUCB's.",
            lambda on: [
                check
                for name in on.batched
                for check in (
                    on.at_least(10 / SLACK, "versions", NEURAL, name),
                    on.at_least(10 / SLACK, "time", NEURAL, name),
                )
            ],
        ),
        Claim(
            "cosine-4",
            "adaptive beats fixed on cosine",
            "At equal B adaptive beats fixed.",
            lambda on: [on.beats(name, f"fixed-B{c.batches}") for name, c in on.adaptive.items()],
        ),
        Claim(
            "cosine-5",
            "fixed B = 40 is the exception on cosine",
            "Fixed B = 40 is the exception: it is not within a factor 2 of NeuralUCB.",
            lambda on: [on.at_least(2, "regret", "fixed-B40", NEURAL)],
        ),
        Claim(
            "cosine-intercept",
            "an intercept makes LinUCB as good on cosine",
            "Our finding: with a constant in its contexts, and λ = β = 1 fixed beforehand, LinUCB has no more regret "
            "than NeuralUCB. “Almost 10 times worse” is about the missing intercept.",
            lambda on: [
                on.at_most(1, "regret", "linucb-intercept-fair", NEURAL),
                beside(on.at_most(1, "regret", "linucb-intercept-best", NEURAL)),
                beside(on.at_most(1, "regret", BEST_LINEAR, NEURAL)),
            ],
            kind="finding",
        ),
    ],
    "mushroom": [
        Claim(
            "mushroom-1",
            "NeuralUCB beats LinUCB on Mushroom",
            "NeuralUCB beats LinUCB.",
            lambda on: _beats_linear(on, NEURAL),
        ),
        Claim(
            "mushroom-2",
            "NeuralUCB is 1000 times slower",
            "NeuralUCB is 1000 times slower than LinUCB. A figure: both times are of this implementation.",
            lambda on: [on.around(1000, "time", NEURAL, BEST_LINEAR)],
            kind="figure",
        ),
        Claim(
            "mushroom-3",
            "more batches, less regret on Mushroom",
            "Regret falls as B grows, toward NeuralUCB's.",
            lambda on: [*_falls_with_batches(on), *_nears_with_batches(on)],
        ),
        Claim(
            "mushroom-4",
            "adaptive B = 250 within 20 % on Mushroom",
            "Every adaptive B = 250 is within 20 % of NeuralUCB and beats LinUCB.",
            lambda on: [
                check
                for name in on.adaptive_with(250)
                for check in (on.at_most(1.2, "regret", name, NEURAL), *_beats_linear(on, name))
            ],
        ),
        Claim(
            "mushroom-5",
            "adaptive B = 250 eight times faster on Mushroom",
            "Every adaptive B = 250 runs 8 times faster than NeuralUCB.",
            lambda on: [on.around(8, "time", NEURAL, name) for name in on.adaptive_with(250)],
        ),
        Claim(
            "mushroom-6",
            "every adaptive beats every fixed on Mushroom",
            "Every adaptive configuration beats every fixed one.",
            lambda on: [on.beats(adaptive, fixed) for adaptive in on.adaptive for fixed in on.fixed],
        ),
        Claim(
            "mushroom-7",
            "adaptive B = 40 beats fixed B = 250 on Mushroom",
            "Adaptive B = 40, log q = 30 beats fixed B = 250.",
            lambda on: [on.beats("adaptive-B40-logq30", "fixed-B250")],
        ),
        Claim(
            "mushroom-8",
            "far fewer batches for the same regret on Mushroom",
            "Adaptive needs far fewer batches than fixed for the same regret: here, with B = 40 and log q = 30 at most "
            "10 % more than the fixed grid of 250, which the fixed grid of 40 does not reach.",
            lambda on: [
                on.at_most(1.1, "regret", "adaptive-B40-logq30", "fixed-B250"),
                on.beats("adaptive-B40-logq30", "fixed-B40"),
            ],
        ),
    ],
    "quadratic": [
        Claim(
            "quadratic-1",
            "LinUCB does badly on quadratic",
            "LinUCB does not perform well: it is not even very close to NeuralUCB.",
            lambda on: _with_linear(lambda linear: on.at_least(VERY_CLOSE, "regret", linear, NEURAL)),
        ),
        Claim(
            "quadratic-2",
            "NeuralUCB beats all on quadratic",
            "NeuralUCB beats all.",
            lambda on: [
                *_beats_linear(on, NEURAL),
                *(on.beats(NEURAL, name) for name in on.batched),
            ],
        ),
        Claim(
            "quadratic-3",
            "adaptive B = 40 very close on quadratic",
            "Adaptive B = 40, whatever log q, beats LinUCB and is very close to NeuralUCB.",
            lambda on: [
                check
                for name in on.adaptive_with(40)
                for check in (on.at_most(VERY_CLOSE, "regret", name, NEURAL), *_beats_linear(on, name))
            ],
        ),
        Claim(
            "quadratic-4",
            "the speed-up of adaptive B = 40 on quadratic",
            "Adaptive B = 40 takes around 90 s where NeuralUCB takes almost 2000 s.",
            lambda on: [on.around(2000 / 90, "time", NEURAL, name) for name in on.adaptive_with(40)],
        ),
        Claim(
            "quadratic-5",
            "smaller gaps with more batches on quadratic, adaptive",
            "The gap of the adaptive ones to NeuralUCB is smaller at B = 100 and almost nothing at B = 200.",
            lambda on: _smaller_gaps(on, on.adaptive_with(40), on.adaptive_with(200)),
        ),
        Claim(
            "quadratic-6",
            "all very close on quadratic",
            "Fixed and adaptive both perform very well: all are very close to NeuralUCB.",
            lambda on: [on.at_most(VERY_CLOSE, "regret", name, NEURAL) for name in on.batched],
        ),
        Claim(
            "quadratic-7",
            "smaller gaps with more batches on quadratic, fixed",
            "The gap of the fixed grids to NeuralUCB is smaller at B = 100 and almost nothing at B = 200.",
            lambda on: _smaller_gaps(on, ["fixed-B40"], ["fixed-B200"]),
        ),
    ],
    "magic": [
        Claim(
            "magic-1",
            "NeuralUCB slightly better than LinUCB on MAGIC",
            "NeuralUCB beats LinUCB slightly.",
            lambda on: [
                *_beats_linear(on, NEURAL),
                *_with_linear(lambda linear: on.at_most(SLACK, "regret", linear, NEURAL)),
            ],
        ),
        Claim(
            "magic-2",
            "adaptive B = 40 beats fixed B = 200 on MAGIC",
            "Adaptive beats fixed: B = 40 with log q = 50, 60, 70 beats fixed B = 200.",
            lambda on: [on.beats(name, "fixed-B200") for name in on.adaptive_with(40)],
        ),
        Claim("magic-3", "more batches, less regret on MAGIC", "Regret falls as B grows.", _falls_with_batches),
        Claim(
            "magic-4",
            "adaptive B = 100 and 200 like NeuralUCB on MAGIC, eight times faster",
            "Adaptive B = 100 and 200 cannot be told from NeuralUCB, at almost 8 times less time.",
            lambda on: [
                check
                for name in on.adaptive_with(100, 200)
                for check in (on.alike(name, NEURAL), on.around(8, "time", NEURAL, name))
            ],
        ),
        Claim(
            "magic-5",
            "adaptive much better than fixed on MAGIC",
            "Across batch models adaptive is much better than fixed: at equal B, fixed has over 25 % more regret.",
            lambda on: [on.at_least(SLACK, "regret", f"fixed-B{c.batches}", name) for name, c in on.adaptive.items()],
        ),
        Claim(
            "magic-6",
            "both sequential algorithms do well on MAGIC",
            "Both sequential algorithms perform relatively well: better than always the more frequent class.",
            lambda on: [on.below(_one_class_always(on), "always one class", name) for name in (NEURAL, BEST_LINEAR)],
        ),
    ],
}
