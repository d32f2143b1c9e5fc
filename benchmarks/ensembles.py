"""Regressors as policies beside the default and LinUCB, all under Paced(T, 40): regret, coverage and time.

python benchmarks/ensembles.py                       # the problems that nothing was chosen by, seeds 92 000 and on
python benchmarks/ensembles.py --tune                # those by which `members` and `prior` were chosen, other seeds
python benchmarks/ensembles.py --worlds adult --ways default lightgbm --seeds 3
python benchmarks/ensembles.py --ways lightgbm lightgbm:prior=0 lightgbm:members=30

A way is a name below, and perhaps arguments of `EnsemblePolicy`. Every finished run is a line of --out, and a run that
is there is not played again. Regret is summed over T = 1000 rounds. Where arms are blocks of one row, regressors get
the row and a 1 for the arm (`ArmBlocks(layout="shared")`). `coverage` is the share of rewards, from the second batch
on, within 1.96·√(noise² + bonus²) of the mean that the decision had; LinUCB does not estimate the noise. `means` is the
share of decisions after the first update whose true mean lies within 1.96·bonus of the predicted one.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rarely import BatchNeuralUCB, EnsemblePolicy, LinUCB, Mixture, Paced, Policy
from rarely_lab.compare.problems import find_problem
from suite.studies import play_all, play_batches

ROUNDS, BATCHES, FIRST_SEED = 1000, 40, 92_000
TUNED = ("cosine", "needle", "wheel", "one-in-fifty", "mushroom")
CONFIRMED = ("quadratic", "two-sided", "rare-reward", "magic", "shuttle")
SHARED = ("default", "linucb")


def regressor(name: str) -> Any:
    """Return a regressor by name; small leaves, because the first batches have few rows."""
    if name == "lightgbm":
        from lightgbm import LGBMRegressor

        return LGBMRegressor(n_estimators=50, min_child_samples=5, n_jobs=1, verbosity=-1, deterministic=True)
    from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, WhiteKernel
    from sklearn.linear_model import BayesianRidge
    from sklearn.tree import DecisionTreeRegressor

    return {
        "tree": partial(DecisionTreeRegressor, min_samples_leaf=3),
        "forest": partial(ExtraTreesRegressor, n_estimators=20, min_samples_leaf=2),
        "boosting": partial(HistGradientBoostingRegressor, max_iter=50, min_samples_leaf=5),
        "ridge": BayesianRidge,
        "gaussian": partial(GaussianProcessRegressor, RBF() + WhiteKernel(), normalize_y=True),
    }[name]()


def policy_of(way: str, dim: int, horizon: int, scale: Any, seed: int) -> Policy:
    """Return the policy that a way names."""
    schedule = Paced(horizon, BATCHES)
    if way == "default":
        return BatchNeuralUCB(dim, schedule=schedule, context_scale=scale, seed=seed)
    if way == "linucb":
        return LinUCB(dim, schedule, intercept=scale is None, context_scale=scale, seed=seed)
    name, _, options = way.partition(":")
    given: dict[str, Any] = {key: int(value) for key, value in (one.split("=") for one in options.split(",") if one)}
    if "epsilon" in given:  # in per cent
        given |= {"members": 1, "exploration": Mixture(given.pop("epsilon") / 100)}
    if name in ("gaussian", "ridge"):
        given["members"] = None
    return EnsemblePolicy(regressor(name), dim, schedule, seed=seed, **given)


def covered(policy: Policy) -> float:
    """Return the share of rewards in the intervals of their decisions, over all batches that have an estimate."""
    shares = [(record.coverage, record.samples) for record in policy.updates if record.coverage is not None]
    if not shares:
        return float("nan")
    counts = np.diff([0, *(samples for _, samples in shares)])
    return float(np.average([share for share, _ in shares], weights=np.maximum(counts, 1)))


def play(world: str, way: str, seed: int) -> dict[str, Any]:
    """Return one run."""
    warnings.simplefilter("ignore")
    problem, began = find_problem(world), time.process_time()
    count = problem.length(ROUNDS)
    rounds, scale = problem.rounds(seed, count), problem.world.context_scale
    contexts = rounds.contexts
    if problem.blocks and way not in SHARED:
        task = problem.task(count, BATCHES, seed)
        contexts, scale = np.array([task.features(one) for one in contexts]), None
    policy = policy_of(way, contexts.shape[2], count, scale, seed)
    arms = play_batches(policy, contexts, rounds.rewards)
    learned = policy.history.versions > 0
    off = np.abs(rounds.means[np.arange(count), arms] - policy.history.means)
    return {
        "world": world,
        "way": way,
        "seed": seed,
        "regret": float(rounds.regrets(arms).sum()),
        "uniform": float(rounds.means.max(axis=1).sum() - rounds.means.mean(axis=1).sum()),
        "coverage": covered(policy),
        "means": float(np.mean(off[learned] <= 1.96 * policy.history.bonuses[learned])),
        "seconds": time.process_time() - began,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tune", action="store_true", help="the problems and seeds of the tuning")
    parser.add_argument("--worlds", nargs="+")
    parser.add_argument("--ways", nargs="+", default=["default", "linucb", "lightgbm", "forest"])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("out/ensembles.jsonl"))
    given = parser.parse_args()
    first = FIRST_SEED - 1000 if given.tune else FIRST_SEED
    worlds = given.worlds or (TUNED if given.tune else CONFIRMED)
    seeds = range(first, first + given.seeds)
    tasks = [(world, way, seed) for seed in seeds for world in worlds for way in given.ways]
    groups = defaultdict(list)
    for run in play_all(play, tasks, ("world", "way", "seed"), given.out, given.jobs):
        groups[run["world"], run["way"]].append(run)
    print(f"{'world':16} {'way':24} {'regret':>9} {'±':>7} {'uniform':>9} {'coverage':>9} {'means':>6} {'seconds':>8}")
    for (world, way), group in groups.items():
        regret = np.array([run["regret"] for run in group])
        error = regret.std(ddof=1) / np.sqrt(len(regret)) if len(regret) > 1 else 0.0
        mean = {key: float(np.mean([run[key] for run in group])) for key in ("uniform", "coverage", "means", "seconds")}
        print(
            f"{world:16} {way:24} {regret.mean():9.1f} {error:7.1f} {mean['uniform']:9.0f} {mean['coverage']:9.2f} "
            f"{mean['means']:6.2f} {mean['seconds']:8.1f}"
        )


if __name__ == "__main__":
    main()
