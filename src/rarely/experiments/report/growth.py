"""How the B that each scheme needs grows with T: order √T for fixed grids, order log T for adaptive ones.

The theory speaks of growing T, and one T cannot show it. Here the same problem is played at five lengths. In every run
the B that a fixed grid needs is the smallest one whose regret is within a slack of that of the finest grid of the run.
For the adaptive scheme, which has no budget here, it is the number of versions that the largest such log q led to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rarely.experiments.catalogue import GROWTH
from rarely.experiments.records import Record
from rarely.experiments.report.paper_claims import Claim, beside
from rarely.experiments.report.results import Comparison
from rarely.experiments.report.verdicts import SLACK, Check, Measured
from rarely.simulation.statistics import Sample

SCALING = Claim(
    "theory-1",
    "fixed grids need a B that grows faster with T",
    "For the regret of a fine grid a fixed grid needs order √T batches and an adaptive one order log T: from T = 500 "
    "to 8000 the B that fixed grids need grows faster.",
    lambda _: [],
)


@dataclass(frozen=True)
class Needed:
    """The B that both schemes need at one length, run by run."""

    rounds: int
    fixed: dict[int, int]
    """By seed."""
    adaptive: dict[int, int]


def growth_problem(name: str) -> bool:
    """Whether a problem is one length of the study."""
    return name in GROWTH


def needed(comparison: Comparison) -> Needed | None:
    """The B that each scheme needs; None where no run has both schemes and the finest grid."""
    fixed = sorted(comparison.of_kind("fixed"), key=lambda s: s.configuration.batches or 0)
    adaptive = sorted(comparison.of_kind("adaptive"), key=lambda s: -(s.configuration.log_ratio or 0.0))
    if not fixed or not adaptive:
        return None
    seeds = sorted(set.intersection(*(set(series.runs) for series in (*fixed, *adaptive))))
    found = Needed(comparison.rounds, {}, {})
    for seed in seeds:
        enough = SLACK * fixed[-1].runs[seed].regret
        found.fixed[seed] = _first([series.runs[seed] for series in fixed], enough)
        found.adaptive[seed] = _first([series.runs[seed] for series in adaptive], enough)
    return found if seeds else None


def _first(from_few_to_many: Sequence[Record], enough: float) -> int:
    """The versions of the coarsest run with so little regret; of the finest one where none has."""
    return next((run.versions for run in from_few_to_many if run.regret <= enough), from_few_to_many[-1].versions)


def growth_checks(comparisons: Sequence[Comparison]) -> list[Check]:
    """That fixed grids need a B that grows faster; beside it both exponents a of B ∝ Tᵃ."""
    lengths = [found for c in comparisons if (found := needed(c))]
    what = "exponent a of B ∝ Tᵃ, fixed − adaptive"
    lacking = [name for name in GROWTH if name not in {c.problem for c in comparisons}]
    if lacking or len(lengths) < len(GROWTH):
        note = f"no runs of {', '.join(lacking)}" if lacking else "some lengths lack configurations"
        return [Check(what, "above 0", (Measured(what, "above 0", None),), note)]
    seeds = sorted(set.intersection(*(set(found.fixed) for found in lengths)))
    fixed, adaptive = ([_exponent(lengths, kind, seed) for seed in seeds] for kind in ("fixed", "adaptive"))
    wider = Sample(tuple(a - b for a, b in zip(fixed, adaptive, strict=True)))
    root = ("exponent of fixed grids (√T: 0.5)", f"between {0.5 / SLACK:g} and {0.5 * SLACK:g}")
    slow = ("exponent of the adaptive scheme (log T: below √T's)", f"below {0.5 / SLACK:g}")
    return [
        Check(what, "above 0", (Measured(what, "above 0", wider, 0.0, strict=True),)),
        beside(Check(*root, (Measured(*root, Sample(tuple(fixed)), 0.5 / SLACK, 0.5 * SLACK),))),
        beside(Check(*slow, (Measured(*slow, Sample(tuple(adaptive)), -math.inf, 0.5 / SLACK, strict=True),))),
    ]


def _exponent(lengths: Sequence[Needed], kind: str, seed: int) -> float:
    """The slope of log B against log T in one run."""
    x = np.log([found.rounds for found in lengths])
    y = np.log([getattr(found, kind)[seed] for found in lengths])
    return float(np.polyfit(x, y, 1)[0])
