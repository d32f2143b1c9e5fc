"""What sketching Z costs in regret, how good its error bound is, and what it saves: the tables of docs/decisions/0009.

python benchmarks/sketch.py          # about 10 minutes, one process
python benchmarks/sketch.py large    # the last table alone: p and T both large
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # times are those of one core, whatever else runs

import resource
import sys
import time
from typing import Any

import numpy as np

from rarely import BatchNeuralUCB, DeterminantTrigger, FixedGrid, Sketch, prices
from rarely.bench.yardstick import describe
from rarely.core.covariance import Dual, Limit, Proposal, in_bytes
from rarely.core.covariance.delegating import Delegating
from rarely.core.model.features import FactorRows
from rarely.experiments.catalogue import PROBLEMS
from rarely.simulation.play import play

LOG_RATIOS = {"cosine": 40.0, "quadratic": 25.0}
SEEDS = range(100, 105)
FORMS: dict[str, Any] = {
    "exact": "auto",
    **{f"sketched, r = {r}": Sketch(r) for r in (50, 100, 200, 400)},
    "diagonal": "diagonal",
    "last layer": "last_layer",
}


class Remembered(Delegating):
    """A form that keeps all features beside its own business, for the truth afterwards."""

    def __init__(self, inner: Any, widths: Any) -> None:
        super().__init__(inner)
        self.past = FactorRows(widths)

    def accept(self, proposal: Proposal, count: int) -> None:
        super().accept(proposal, count)
        self.past.append(proposal.factors[:count])

    def fork(self) -> Remembered:
        other = super().fork()
        other.past = self.past.fork()
        return other


def one_run(name: str, form: Any, seed: int) -> dict[str, float]:
    problem = PROBLEMS[name]
    world = problem.world("raw", constant=False)
    policy = BatchNeuralUCB(
        world.dim,
        DeterminantTrigger(2000, 100, LOG_RATIOS[name]),
        hidden=problem.hidden,
        ridge=problem.ridge,
        beta=problem.beta,
        seed=seed,
        covariance=form,
    )
    if isinstance(form, Sketch):
        policy._covariance = Remembered(policy._covariance, policy.network.shapes)
    played = play(policy, world.rounds(seed, 2000))
    row = {"regret": float(played.regrets.sum()), "versions": policy.version + 1, "seconds": played.selecting.seconds}
    if isinstance(form, Sketch):
        row |= against_the_truth(policy, world.rounds(seed + 1000, 200).contexts.reshape(-1, world.dim))
    return row


def against_the_truth(policy: BatchNeuralUCB, contexts: Any) -> dict[str, float]:
    """The bound after the last round, and v/v~ of contexts that were never seen, under the last weights."""
    sketched = policy._covariance.fork()
    assert isinstance(sketched, Remembered)
    shapes, past = policy.network.shapes, sketched.past.view
    exact = Dual(shapes, sketched._inner.ridge, Limit(shapes))
    for start in range(0, len(past), 200):
        part = past[start : start + 200]
        exact.accept(exact.propose(exact.measure(part)), len(part))
    exact.freeze()
    sketched.freeze()
    candidates = policy._learner.assess(contexts)[1]
    ratios = exact.measure(candidates).variances / sketched.measure(candidates).variances
    assert policy.error_bound is not None
    assert max(ratios.max(), 1 / ratios.min()) <= policy.error_bound.ratio
    return {
        "bound": policy.error_bound.ratio,
        "low": float(ratios.min()),
        "median": float(np.median(ratios)),
        "high": float(ratios.max()),
    }


def regrets() -> None:
    """Mean regret of 5 seeds and its standard deviation; medians of the rest."""
    for name in LOG_RATIOS:
        print(f"\n{name}, T = 2000, adaptive B = 100, log q = {LOG_RATIOS[name]:.0f}\n")
        print("| Z | regret | versions | selecting, s | 1 + c | v/v~: least | median | most |\n" + 8 * "|---" + "|")
        for label, form in FORMS.items():
            rows = [one_run(name, form, seed) for seed in SEEDS]
            regret = [row["regret"] for row in rows]
            middle = {key: float(np.median([row[key] for row in rows])) for key in rows[0]}
            tail = [f"{middle[key]:.3g}" if key in middle else "" for key in ("bound", "low", "median", "high")]
            print(
                f"| {label} | {np.mean(regret):.0f} ± {np.std(regret, ddof=1):.0f} | {middle['versions']:.0f} "
                f"| {middle['seconds']:.1f} | " + " | ".join(tail) + " |",
                flush=True,
            )


def large(rounds: int = 20_000, batches: int = 20) -> None:
    """m = 256, L = 3, d = 20, K = 4, J = 5: p and T both large."""
    rng = np.random.default_rng(0)
    policy = BatchNeuralUCB(
        20, FixedGrid(rounds, batches), hidden=256, depth=3, training=5, covariance="sketched", seed=0
    )
    before, deciding, right = peak(), 0.0, 0
    start = time.process_time()
    while policy.round < rounds:
        contexts = rng.normal(size=(rounds // batches, 4, 20)) / np.sqrt(20)
        means = np.sin(3 * contexts[:, :, 0])
        begun = time.process_time()
        decision = policy.select(contexts)
        deciding += time.process_time() - begun
        chosen = means[np.arange(len(decision)), decision.arm]
        right += int((chosen == means.max(axis=1)).sum())
        policy.observe(decision, chosen + rng.normal(0, 0.1, len(chosen)))
        if policy.due:
            policy.update()
    seconds, bound = time.process_time() - start, policy.error_bound
    assert bound is not None
    print(f"\np = {policy.network.parameters:,}, T = {rounds:,}, B = {policy.version + 1}, sketched with r = 400\n")
    print(f"- peak memory {in_bytes(peak())}, {in_bytes(before)} before the first round")
    print(f"- {seconds:.0f} s of one core; deciding {1e3 * deciding / rounds:.2f} ms a round of 4 arms")
    print(f"- the best arm in {right / rounds:.0%} of rounds; 1 + c = {bound.ratio:.3g}\n")
    print("| rounds | dual | primal | sketched |\n|---|---|---|---|")
    for t in (rounds, 10**5, 10**6):
        cost = prices(policy.network.shapes, t)
        print(f"| {t:,} | " + " | ".join(in_bytes(cost[form].bytes) for form in ("dual", "primal", "sketched")) + " |")
        work = (f"{cost[form].flops:.2g} operations an arm" for form in ("dual", "primal", "sketched"))
        print("| | " + " | ".join(work) + " |", flush=True)


def peak() -> int:
    """The most memory that this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    print(describe())
    large()  # first, for its peak memory is the process'
    if sys.argv[1:] != ["large"]:
        regrets()


if __name__ == "__main__":
    main()
