"""The claims of the paper's experiments, with the checks of each; their words are in `paper_claims.toml`.

A claim about LinUCB is judged with the LinUCB that the paper reports: no intercept, the best of 16 pairs chosen on the
very runs reported. The same check with a fair pair, and with an intercept, is shown beside it and does not count.

The theory is about growing T, which one T cannot show: the last claims compare the same problem at six lengths.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from rarely.worlds.datasets import DATASETS
from rarely_lab.reproduce.catalogue import GROWTH, JUDGED, PAPER, SEQUENTIAL
from rarely_lab.reproduce.report import claims
from rarely_lab.reproduce.report.claims import Check, Claim, ClaimChecker, Estimand, Judged, Measured, beside
from rarely_lab.reproduce.report.results import BEST_LINEAR, NEURAL, SLACK, Comparison, by_preset, lengthened

OTHER_LINEAR = ("linucb-fair", "linucb-intercept-best", "linucb-intercept-fair")
TEN_TIMES = 10 / SLACK  # what "almost ten times less" needs


def _order_of_magnitude(on: ClaimChecker) -> list[Check]:
    """Check for each batched configuration: close regret, and almost ten times fewer versions and less time."""
    checks = []
    for name in on.batched:
        close = on.at_most(claims.VERY_CLOSE, "regret", name, NEURAL)
        fewer, faster = _ten_times_less(on, name)
        needs = f"regret {close.needs}, and versions and time at least {TEN_TIMES:g} times less"
        parts = (*close.parts, *fewer.parts, *faster.parts)
        note = "" if fewer.applies else fewer.note
        what = f"{on.comparison.problem}: {on.label(name)} against {on.label(NEURAL)}"
        checks.append(Check(what, needs, parts, note, counts=close.counts, applies=fewer.applies))
    return checks


def _ten_times_less(on: ClaimChecker, name: str) -> list[Check]:
    return [on.at_least(TEN_TIMES, "versions", NEURAL, name), on.at_least(TEN_TIMES, "seconds", NEURAL, name)]


def _with_linear(check: Callable[[str], Check]) -> list[Check]:
    """Make a check for every LinUCB; only the paper's counts."""
    return [check(BEST_LINEAR), *(beside(check(name)) for name in OTHER_LINEAR)]


def _beats_linear(on: ClaimChecker, name: str) -> list[Check]:
    return _with_linear(lambda linear: on.beats(name, linear))


def _close_and_beats_linear(on: ClaimChecker, factor: float, *names: str) -> list[Check]:
    return [check for name in names for check in (on.at_most(factor, "regret", name, NEURAL), *_beats_linear(on, name))]


def _ends_of_families(on: ClaimChecker) -> list[tuple[str, str]]:
    """Return the largest and the smallest B of the fixed grids, and of the adaptive ones at each log q."""
    families: dict[float | None, list[str]] = {}
    for name, c in on.batched.items():
        families.setdefault(c.log_ratio, []).append(name)
    return [(names[-1], names[0]) for names in families.values()]


def _falls_with_batches(on: ClaimChecker) -> list[Check]:
    return [on.beats(*ends) for ends in _ends_of_families(on)]


def _smaller_gaps(on: ClaimChecker, at_40: list[str], at_200: list[str]) -> list[Check]:
    return [
        *(on.nearer(name.replace("B40", "B100"), name, NEURAL) for name in at_40),
        *(on.alike(name, NEURAL) for name in at_200),
    ]


def _one_class_always(on: ClaimChecker) -> float:
    """Return the expected regret of always choosing the more frequent class of MAGIC."""
    counts = [count for _, count in DATASETS["magic"].counts]
    return on.comparison.rounds * min(counts) / sum(counts)


CHECKS: dict[str, Callable[[ClaimChecker], list[Check]]] = {
    "overall-1": _order_of_magnitude,
    "cosine-1": lambda on: _with_linear(lambda linear: on.around(10, "regret", linear, NEURAL)),
    "cosine-2": lambda on: [on.at_most(2, "regret", name, NEURAL) for name in on.batched if name != "fixed-B40"],
    "cosine-3": lambda on: [check for name in on.batched for check in _ten_times_less(on, name)],
    "cosine-4": lambda on: [on.beats(name, f"fixed-B{c.batches}") for name, c in on.adaptive.items()],
    "cosine-5": lambda on: [on.at_least(2, "regret", "fixed-B40", NEURAL)],
    "cosine-intercept": lambda on: [
        on.at_most(1, "regret", "linucb-intercept-fair", NEURAL),
        *(beside(on.at_most(1, "regret", name, NEURAL)) for name in ("linucb-intercept-best", BEST_LINEAR)),
    ],
    "mushroom-1": lambda on: _beats_linear(on, NEURAL),
    "mushroom-2": lambda on: [on.around(1000, "seconds", NEURAL, BEST_LINEAR)],
    "mushroom-3": lambda on: [*_falls_with_batches(on), *(on.nearer(*ends, NEURAL) for ends in _ends_of_families(on))],
    "mushroom-4": lambda on: _close_and_beats_linear(on, 1.2, *on.adaptive_with(250)),
    "mushroom-5": lambda on: [on.around(8, "seconds", NEURAL, name) for name in on.adaptive_with(250)],
    "mushroom-6": lambda on: [on.beats(adaptive, fixed) for adaptive in on.adaptive for fixed in on.fixed],
    "mushroom-7": lambda on: [on.beats("adaptive-B40-logq30", "fixed-B250")],
    "mushroom-8": lambda on: [
        on.at_most(1.1, "regret", "adaptive-B40-logq30", "fixed-B250"),
        on.beats("adaptive-B40-logq30", "fixed-B40"),
    ],
    "quadratic-1": lambda on: _with_linear(lambda linear: on.at_least(claims.VERY_CLOSE, "regret", linear, NEURAL)),
    "quadratic-2": lambda on: [*_beats_linear(on, NEURAL), *(on.beats(NEURAL, name) for name in on.batched)],
    "quadratic-3": lambda on: _close_and_beats_linear(on, claims.VERY_CLOSE, *on.adaptive_with(40)),
    "quadratic-4": lambda on: [on.around(2000 / 90, "seconds", NEURAL, name) for name in on.adaptive_with(40)],
    "quadratic-5": lambda on: _smaller_gaps(on, on.adaptive_with(40), on.adaptive_with(200)),
    "quadratic-6": lambda on: [on.at_most(claims.VERY_CLOSE, "regret", name, NEURAL) for name in on.batched],
    "quadratic-7": lambda on: _smaller_gaps(on, ["fixed-B40"], ["fixed-B200"]),
    "magic-1": lambda on: [
        *_beats_linear(on, NEURAL),
        *_with_linear(lambda linear: on.at_most(SLACK, "regret", linear, NEURAL)),
    ],
    "magic-2": lambda on: [on.beats(name, "fixed-B200") for name in on.adaptive_with(40)],
    "magic-3": _falls_with_batches,
    "magic-4": lambda on: [
        check
        for name in on.adaptive_with(100, 200)
        for check in (on.alike(name, NEURAL), on.around(8, "seconds", NEURAL, name))
    ],
    "magic-5": lambda on: [
        on.at_least(SLACK, "regret", f"fixed-B{c.batches}", name) for name, c in on.adaptive.items()
    ],
    "magic-6": lambda on: [on.below(_one_class_always(on), "always one class", name) for name in (NEURAL, BEST_LINEAR)],
}
_WORDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_EVERY = {
    name: Claim(
        name, checks=CHECKS.get(name, lambda _: []), rule=claims.MOST if name == "overall-1" else claims.ALL, **words
    )
    for name, words in _WORDS.items()
}
OVERALL = _EVERY["overall-1"]
CLAIMS = {base: [claim for name, claim in _EVERY.items() if name.startswith(f"{base}-")] for base in PAPER}
"""Claims by the problem that they are about; `OVERALL` is about all of them, those of `LASTING` about its lengths."""


def judge(comparisons: Iterable[Comparison]) -> list[Judged]:
    """Judge every claim on every problem and preset that was run, by means and by typical runs; overall ones first."""
    comparisons = list(comparisons)
    return [one for estimand in claims.ESTIMANDS for one in _judge(comparisons, estimand)]


def _judge(comparisons: Sequence[Comparison], estimand: Estimand) -> list[Judged]:
    overall, each, scaling = list[Judged](), list[Judged](), list[Judged]()
    for mine in by_preset(comparisons).values():
        if own := [c for c in mine if c.base in CLAIMS and c.base == c.problem]:
            checks = [check for c in own for check in OVERALL.checks(ClaimChecker(c, estimand))]
            overall.append(claims.judge_claim(OVERALL, "all", own, checks, estimand))
        for (base, _), lengths in lengthened(mine).items():
            idle = next((c.idle for c in mine if c.problem == base), "")
            for name, checks_of in LASTING.items():
                problem, checks = claims.GROWTH_PROBLEM.format(base), _lasting(base, lengths, estimand, checks_of)
                scaling.append(claims.judge_claim(_EVERY[name], problem, lengths, checks, estimand, idle))
    for c in comparisons:
        for claim in CLAIMS.get(c.base, ()):
            checks = claim.checks(ClaimChecker(c, estimand))
            each.append(claims.judge_claim(claim, c.problem, [c], checks, estimand, c.idle))
    return overall + each + scaling


Lengths = list[ClaimChecker]  # one problem in one preset at several T, the shortest first


def _lasting(
    base: str, comparisons: Sequence[Comparison], estimand: Estimand, checks: Callable[[Lengths], list[Check]]
) -> list[Check]:
    """Return the checks of a claim about lengths, or where one was not played, that which cannot hold."""
    played = {c.problem: c for c in comparisons}
    if lacking := [name for name, of in GROWTH.items() if of == base and name not in played]:
        what = "regret and versions at six lengths"
        return [Check(what, "all of them", (Measured(what, ""),), f"no runs of {', '.join(lacking)}")]
    return checks([ClaimChecker(c, estimand) for c in sorted(comparisons, key=lambda c: c.rounds)])


def _rule_against_root(lengths: Lengths) -> list[Check]:
    """Check that the rule's regret is that of √T batches, and that its versions grow slower than √T."""
    checks = []
    for on in lengths:
        few, root = on.fixed
        checks += [_counted(on, on.at_most(SLACK, "regret", name, root)) for name in on.adaptive]
        checks.append(beside(_counted(on, on.at_most(SLACK, "regret", few, root))))
    return checks + _versions(lengths, lambda short, long: (long / short) ** (0.5 / SLACK))


def _versions(lengths: Lengths, most: Callable[[int, int], float]) -> list[Check]:
    """Check that from the shortest T to the longest the rule's versions grow by less than a factor."""
    checks, ends = [], (lengths[0], lengths[-1])
    short, long = (on.comparison.rounds for on in ends)
    for ratio in (c.log_ratio for c in lengths[0].adaptive.values()):
        runs = [s for on in ends for s in on.comparison.of_kind("adaptive") if s.configuration.log_ratio == ratio]
        what, needs = f"versions of adaptive, log q = {ratio:g} at T = {long} ÷ at T = {short}", most(short, long)
        part = Measured(what, f"below {needs:.3g}", high=needs, strict=True)
        if len(runs) == 2:
            (first, last), seeds = runs, sorted(runs[0].runs.keys() & runs[1].runs.keys())
            sample = lengths[0].sample(*([s.runs[seed].versions for seed in seeds] for s in (last, first)))
            part = replace(part, sample=sample, of=("versions", last.group, first.group, ""))
        checks.append(Check(what, part.needs, (part,)))
    return checks


def _costs_nothing(lengths: Lengths, names: Callable[[ClaimChecker], Iterable[str]]) -> list[Check]:
    """Check that at every T that NeuralUCB is played at, regret is at most a tenth more than its own."""
    sequential, most = [on for on in lengths if on.comparison.rounds <= SEQUENTIAL], 1 + claims.ALIKE
    return [_counted(on, on.at_most(most, "regret", name, NEURAL)) for on in sequential for name in names(on)]


def _counted(on: ClaimChecker, check: Check) -> Check:
    """Return a check about one T, which counts if that has 100 runs."""
    at = replace(check, what=f"T = {on.comparison.rounds}: {check.what}")
    return at if on.comparison.rounds <= JUDGED else beside(at)


LASTING: dict[str, Callable[[Lengths], list[Check]]] = {
    "theory-1": _rule_against_root,
    "few-1": lambda lengths: _costs_nothing(lengths, lambda on: on.adaptive),
    "few-2": lambda lengths: _costs_nothing(lengths, lambda on: [*on.fixed][1:]),
    "few-3": lambda lengths: _versions(lengths, lambda short, long: SLACK * math.log(long) / math.log(short)),
}
"""The checks of the claims about several lengths."""
