"""The policy that tunes itself against the untuned one, LinUCB and sequential NeuralUCB.

python benchmarks/tuning.py                                  # the four problems, 20 seeds, B = 100 and 40
python benchmarks/tuning.py --seeds 4 --problems cosine       # a quick look
python benchmarks/tuning.py --datasets                       # digits, wine and breast cancer of scikit-learn
python benchmarks/tuning.py --sequential                     # NeuralUCB with 2000 trainings too: an hour and more

Nothing is set for the policy that tunes itself, and its seeds were used for no decision about it. The untuned one is
preset `practical` with J = 200, m = 100 and no skip path; both have the same schedule. LinUCB has an intercept,
λ = β = 1, and is updated after every round. A ratio is the geometric mean over seeds of the regret over the untuned
one's.
"""

from __future__ import annotations

import argparse
import os

# One thread a process: the processes share the cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np

from rarely import BatchNeuralUCB, DeterminantTrigger, LinUCB, NeuralUCB, Policy
from rarely.core.policies.neural import TUNED_BETA
from rarely.experiments.problems import find_problem
from rarely.worlds import Rounds, World

FIRST_SEED = 40_000
ROUNDS = 2000
LOG_RATIOS = {"cosine": 40.0, "quadratic": 25.0, "mushroom": 30.0, "magic": 60.0}
"""The middle one of each problem's three in the paper's grids."""
DATASETS = ("sklearn:digits", "sklearn:wine", "sklearn:breast_cancer")
WAYS = ("untuned", "tuned", "linucb", "sequential")


def play(policy: Policy, rounds: Rounds) -> float:
    """All rounds, a batch at a time: its regret."""
    arms: list[int] = []
    while len(arms) < len(rounds):
        start = len(arms)
        decision = policy.select(rounds.contexts[start:], until_due=True)
        arms += decision.arm.tolist()
        policy.observe(decision, rounds.rewards[np.arange(start, len(arms)), decision.arm])
        if policy.due and len(arms) < len(rounds):
            policy.update()
    return float(rounds.regrets(arms).sum())


def regret(problem: str, factor: float | None, hidden: int | None, seed: int, way: str, batches: int) -> float:
    """Of one run."""
    found = find_problem(problem)
    synthetic = isinstance(found.source, World)
    world = found.world(found.view("practical"), constant=True)
    rounds = world.rounds(seed=seed, count=min(ROUNDS, world.horizon or ROUNDS))
    schedule = DeterminantTrigger(len(rounds), batches, LOG_RATIOS.get(problem, 40.0))
    given = {"context_scale": world.context_scale, "seed": seed, "hidden": hidden}
    policies: dict[str, partial[Policy]] = {
        "tuned": partial(
            BatchNeuralUCB,
            world.dim,
            schedule,
            beta=None if factor is None else replace(TUNED_BETA, factor=factor),
            **given,
        ),
        "untuned": partial(BatchNeuralUCB, world.dim, schedule, training=200, **given),
        # A table's constant stands in its blocks already, one for each arm.
        "linucb": partial(LinUCB, world.dim, intercept=synthetic, ridge=1.0, beta=1.0),
        "sequential": partial(NeuralUCB, world.dim, training=200, **given),
    }
    return play(policies[way](), rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--batches", type=int, nargs="+", default=[100, 40])
    parser.add_argument("--problems", nargs="+", default=list(LOG_RATIOS))
    parser.add_argument("--datasets", action="store_true", help="those of scikit-learn in place of the four problems")
    parser.add_argument(
        "--factor", type=float, help="the part of the noise in the tuned policy's beta, for another than its own"
    )
    parser.add_argument("--hidden", type=int, help="units of all networks, for others than their own")
    parser.add_argument("--sequential", action="store_true", help="sequential NeuralUCB too")
    asked = parser.parse_args()
    ways = WAYS if asked.sequential else WAYS[:3]
    seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
    print(f"seeds {seeds.start} … {seeds.stop - 1}")
    with ProcessPoolExecutor() as pool:
        for problem in DATASETS if asked.datasets else asked.problems:
            for batches in asked.batches:
                regrets = {}
                for way in ways:
                    if way in ("linucb", "sequential") and batches != asked.batches[0]:
                        continue  # they have no batches
                    runs = pool.map(
                        partial(regret, problem, asked.factor, asked.hidden),
                        seeds,
                        [way] * len(seeds),
                        [batches] * len(seeds),
                    )
                    regrets[way] = np.array(list(runs))
                    ratio = np.exp(np.mean(np.log(regrets[way] / regrets["untuned"])))
                    error = regrets[way].std(ddof=1) / np.sqrt(len(seeds)) if len(seeds) > 1 else np.nan
                    print(
                        f"{problem:22s} B = {batches:3d}  {way:10s} mean {regrets[way].mean():7.1f} ± {error:5.1f}  "
                        f"ratio {ratio:.3f}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
