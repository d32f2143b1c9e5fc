"""What sparse contexts cost: 10 000 one-hot columns with 20 ones, in units of dense contexts of 200 columns.

    python benchmarks/sparse.py                    # LinUCB and LinTS: half a minute
    python benchmarks/sparse.py --default          # the default too: minutes

20 arms of 20 fields with 500 values each, value i with a frequency of 1/i. A decision is timed after that many rounds,
an update with all of their rewards and one with 60 more. Arms and bonuses are those of contexts written out, to
rounding (tests/core/test_sparse_rows.py); "diagonal" is an approximation in both cases.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy; two cores are shared by other runs

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from rarely import BatchNeuralUCB, LinTS, LinUCB, OnDemand, SparseRows

ARMS, FIELDS, VALUES, DENSE = 20, 20, 500, 200
ROWS = SparseRows.of(columns=FIELDS * VALUES, nonzeros=FIELDS)
FREQUENCIES = 1 / np.arange(1, VALUES + 1)


def one_hot(rng: np.random.Generator) -> Any:
    values = rng.choice(VALUES, (ARMS, FIELDS), p=FREQUENCIES / FREQUENCIES.sum()) + VALUES * np.arange(FIELDS)
    return ROWS.pack([dict.fromkeys(row, 1.0) for row in values.tolist()])


def dense(rng: np.random.Generator) -> Any:
    return rng.normal(size=(ARMS, DENSE))


def times(policy: Any, contexts: Callable[[np.random.Generator], Any], rounds: int) -> np.ndarray:
    """Seconds of a decision, the lower quartile of 60; of an update with all rewards; of one with 60 more."""
    rng = np.random.default_rng(0)

    def play(count: int) -> list[float]:
        taken = []
        for _ in range(count):
            offered = contexts(rng)
            start = time.perf_counter()
            decision = policy.select(offered)
            taken.append(time.perf_counter() - start)
            policy.observe(decision, float(rng.normal()))
        return taken

    def update() -> float:
        start = time.perf_counter()
        policy.update()
        return time.perf_counter() - start

    play(rounds)
    first = update()
    return np.array([np.percentile(play(60), 25), first, update()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--default", action="store_true", help="measure BatchNeuralUCB too")
    parser.add_argument("--rounds", type=int, nargs="+", default=[200, 500])
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # of a Z that becomes approximate
    print("| policy | Z | rounds | decision | ratio | first update | ratio | next update | ratio |")
    print("|---|---|---|---|---|---|---|---|---|")
    for kind in (LinUCB, LinTS, *([BatchNeuralUCB] if given.default else [])):
        for rounds in given.rounds:
            plain = times(kind(dim=DENSE, schedule=OnDemand(), seed=0), dense, rounds)
            for form in ("dual", "diagonal"):
                policy = kind(schedule=OnDemand(), covariance=form, seed=0, **ROWS.settings)
                found = times(policy, one_hot, rounds)
                cells = (f"{1e3 * each:.3g} ms | {each / base:.2f}" for each, base in zip(found, plain, strict=True))
                print(f"| {kind.__name__} | {form} | {rounds} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
