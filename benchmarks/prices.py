"""Compare what forms of Z are said to cost with what they take: `python benchmarks/prices.py`.

A decision among ten arms measures ten features against the running matrix, and adds one. Its price is `Price.seconds`;
the table has the processor time over it, and the command fails if one is beyond a factor of 2.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from rarely import prices
from rarely._core.covariance.factory import CovarianceFactory
from rarely._core.model.features import Factors

ARMS = 10
SIZES = [((8, 6), (1, 8)), ((40, 20), (1, 40)), ((64, 20), (64, 64), (1, 64)), ((300, 20), (300, 300), (1, 300))]
ROUNDS = (100, 400, 1600)
MEMORY = 2**31


def features(widths, count, rng):
    """Return factors as a network has them: half of the units are off."""
    signals = [rng.normal(size=(count, o)) * (rng.random((count, o)) < 0.5 if o > 1 else 1) for o, _ in widths]
    inputs = [rng.normal(size=(count, i)) for _, i in widths]
    return Factors(tuple(inputs), tuple(signals))


def seconds(form, widths, rounds, repeats=30):
    """Return the processor time of a decision, the least of three runs."""
    rng = np.random.default_rng(0)
    covariance = CovarianceFactory(form, 1.0, MEMORY, None).empty(widths, rows=0)
    past = features(widths, rounds, rng)
    for start in range(0, rounds, 100):
        part = past[start : start + 100]
        covariance.accept(covariance.propose(covariance.measure(part)), len(part))
    covariance.freeze()
    arms, taken = [features(widths, ARMS, rng) for _ in range(repeats)], []
    for _ in range(3):
        here, began = covariance.fork(), time.process_time()
        for each in arms:
            here.measure(each, running=True)
            here.accept(here.propose(here.measure(each[:1], running=True)), 1)
        taken.append((time.process_time() - began) / repeats)
    return min(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    worst = 1.0
    print(f"{'p':>8} {'t':>6} {'form':>12} {'measured µs':>12} {'price µs':>12} {'ratio':>6}")
    for widths in SIZES:
        p = sum(o * i for o, i in widths)
        for rounds in ROUNDS:
            for form, price in prices(widths, rounds).items():
                if price.bytes > MEMORY / 8:
                    continue
                took = seconds(form, widths, rounds)
                ratio = took / price.seconds
                worst = max(worst, ratio, 1 / ratio)
                print(
                    f"{p:8} {rounds:6} {form:>12} {1e6 * took:12.0f} {1e6 * price.seconds:12.0f} {ratio:6.2f}",
                    flush=True,
                )
    print(f"at most a factor of {worst:.2f}")
    raise SystemExit(worst > 2)


if __name__ == "__main__":
    main()
