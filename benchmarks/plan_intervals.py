"""How often intervals of a ratio of mean regrets miss it, with as few runs as a plan has.

    python benchmarks/plan_intervals.py

Two schedules share a run's luck and have some of their own: regrets are exp(c·common + o·own), and one is 1.2 times the
other on average. Nominally an interval misses in 1.7 % of plans, half of them on either side.
"""

from __future__ import annotations

import numpy as np

from rarely.planning.frontier import CONFIDENCE
from rarely.simulation.statistics import ratio_of_means

PLANS, RESAMPLES, TRUTH = 1500, 400, 1.2


def main() -> None:
    """Print shares of plans whose interval lies above, and below, the truth."""
    generator = np.random.default_rng(0)
    print("runs  c    o    jackknife      percentiles of resampled runs")
    for runs in (5, 8, 16):
        for common, own in ((0.3, 0.2), (0.6, 0.4), (1.0, 0.1)):
            missed = np.zeros(4)
            for _ in range(PLANS):
                shared = common * generator.normal(size=runs)
                a, b = np.exp(shared + own * generator.normal(size=(2, runs)))
                a *= TRUTH
                found = ratio_of_means(a, b, CONFIDENCE)
                picked = generator.integers(runs, size=(RESAMPLES, runs))
                ratios = a[picked].sum(axis=1) / b[picked].sum(axis=1)
                low, high = np.quantile(ratios, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
                missed += [found.low > TRUTH, found.high < TRUTH, low > TRUTH, high < TRUTH]
            shares = missed / PLANS
            print(f"{runs:4d}  {common}  {own}  {shares[0]:.3f} {shares[1]:.3f}    {shares[2]:.3f} {shares[3]:.3f}")


if __name__ == "__main__":
    main()
