"""How often the intervals of a trial's analysis hold the truth, and how often they find a difference.

python benchmarks/trials.py                                  # 1000 trials of each kind: about 20 minutes on one core
python benchmarks/trials.py LinTS --trials 200 --out /tmp/t  # one policy; the same command resumes
python benchmarks/trials.py --report                         # the tables of what has been simulated

A trial has 1200 patients with two covariates x ~ N(0, I), rewards of 0 and 1 whose probability is the arm's level plus
slopes·x, cut to [0.02, 0.98]. 240 are assigned to all arms alike; the policy learns after 240, 480, 720 and 960.

    LinTS      every arm at least 0.1             null    levels 0.4, 0.4
    LinUCB     Mixture(0.2), frozen in a batch    diff    levels 0.35, 0.5
    default    BatchNeuralUCB, Mixture(0.2),      early   levels 0.4, 0.4; 60 patients alike, limits half as large
               16 units, 30 steps

Looks come after 240, 480, 720, 960 and 1200 patients. Held means that all looks of a trial contain the truth at once,
for anytime intervals that all of 50, 60, …, 1200 patients do. Seeds begin with 50 000; methods were chosen on others.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from collections.abc import Iterator
from pathlib import Path
from statistics import NormalDist

import numpy as np

from rarely import Mixture
from rarely.planning.trial import make_policy, simulate_trial
from rarely.study import AnalysisPlan, Stage
from rarely.study.effects import (
    Outcomes,
    Scores,
    anytime,
    exact_interval,
    predict_rewards,
    scores_of,
)
from rarely.study.looks import cuts_of, looks_of

Array = np.ndarray
PATIENTS, FIRST_SEED = 1200, 50_000
PLANS = {name: AnalysisPlan(PATIENTS, 5, name) for name in ("obrien-fleming", "pocock")}
LEVELS = {"null": (0.4, 0.4), "diff": (0.35, 0.5), "early": (0.4, 0.4)}
SLOPES = np.array([[0.10, 0.0], [0.02, 0.08]])
POLICIES = ("LinTS", "LinUCB", "default")
COMPARED = 300
"""Trials of each kind in which alternatives are tried."""
MOMENTS = range(50, PATIENTS + 1, 10)
WEIGHTS = {"equal": 0.0, "stable": 1.0, "precision": 2.0}
"""Powers of ψ^−½."""


def planned_looks(scores, plan, decisions):
    """The looks that have come, of one comparison with the whole error of the plan."""
    return looks_of(cuts_of(scores, plan, decisions), plan, 1 - plan.level)


def patients(levels: tuple[float, ...], count: int, seed: int) -> tuple[Array, Array, Array]:
    """Covariates (n, 2), means (n, K) and rewards (n, K)."""
    rng = np.random.default_rng([seed, 11])
    x = rng.normal(size=(count, 2))
    means = np.clip(np.array(levels) + x @ SLOPES.T, 0.02, 0.98)
    return x, means, (rng.random(means.shape) < means).astype(float)


def contexts_of(x: Array, arms: int) -> Array:
    """Contexts (n, K, 3K): a block of a constant and the covariates for each arm."""
    out = np.zeros((len(x), arms, 3 * arms))
    for arm in range(arms):
        out[:, arm, 3 * arm : 3 * arm + 3] = np.column_stack([np.ones(len(x)), x])
    return out


def limit_of(kind: str) -> float:
    """The least probability of each arm."""
    return 0.05 if kind == "early" else 0.1


def outcomes_of(policy: str, kind: str, seed: int) -> Outcomes:
    x, _, rewards = patients(LEVELS[kind], PATIENTS, seed)
    limit, first = limit_of(kind), 60 if kind == "early" else 240
    updates = [first, 300, 600, 900] if kind == "early" else [240, 480, 720, 960]
    settings = {} if policy == "default" else {"beta": 0.5, "intercept": False}
    if policy == "LinUCB":
        settings["within_batch"] = "frozen"
    if policy != "LinTS":
        settings["exploration"] = Mixture(2 * limit)
    stages = [Stage("alike", first, burn_in=True), Stage("main", least=limit if policy == "LinTS" else 0.0)]
    made = make_policy(policy, 6, updates, seed, **settings)
    return simulate_trial(made, contexts_of(x, 2), rewards, stages, updates)


def judged(scores: Scores, truth: float, limit: float, spending: tuple[str, ...]) -> dict[str, list[float]]:
    """Whether each interval held, whether it excludes 0, and its width at the end."""
    found, z = {}, NormalDist().inv_cdf(0.975)
    for name in spending:
        looks = planned_looks(scores, PLANS[name], PATIENTS)
        found[name] = verdict([(look.low, look.high) for look in looks], truth)
    end = scores.until(PATIENTS)
    found["fixed"] = verdict([end.interval(z)], truth)
    always = [anytime(scores.until(moment), PATIENTS, 0.05) for moment in MOMENTS]
    found["anytime"] = verdict(always, truth)
    exact = [exact_interval(scores.values[:moment], 1.0, limit, 0.05) for moment in (*MOMENTS[::20], PATIENTS)]
    found["exact"] = verdict(exact, truth)
    return found


def verdict(intervals: list[tuple[float, float]], truth: float) -> list[float]:
    low, high = intervals[-1]
    held = all(low <= truth <= high for low, high in intervals)
    return [float(held), float(any(low > 0 or high < 0 for low, high in intervals)), min(high - low, 9.0)]


def alternatives(outcomes: Outcomes, q: Array, truth: float) -> dict[str, list[float]]:
    """O'Brien and Fleming's looks with other models, weights and quantiles."""
    found = {}
    nothing = np.full_like(q, 0.0)
    for model, predicted in (("none", nothing), ("regression", q)):
        scores = scores_of(outcomes, predicted, 1, 0)
        for weights, power in WEIGHTS.items():
            made = scores._replace(
                weights=scores.weights**power, shares=scores.shares * (scores.weights ** (power - 1))[:, None]
            )
            looks = planned_looks(made, PLANS["obrien-fleming"], PATIENTS)
            sums = [made.until(look.round) for look in looks]
            halves = [each.error * look.boundary for each, look in zip(sums, looks, strict=True)]
            normal = [(each.estimate - half, each.estimate + half) for each, half in zip(sums, halves, strict=True)]
            found[f"{model}, {weights}, normal"] = verdict(normal, truth)
            if model == "regression":
                found[f"{model}, {weights}, t"] = verdict([(look.low, look.high) for look in looks], truth)
    return found


def play(policy: str, kind: str, seed: int) -> dict[str, dict[str, list[float]]]:
    outcomes = outcomes_of(policy, kind, seed)
    truth = patients(LEVELS[kind], 400_000, 1)[1].mean(axis=0) if kind not in TRUTHS else TRUTHS[kind]
    TRUTHS[kind] = truth
    q = predict_rewards(outcomes)
    both, limit = tuple(PLANS), limit_of(kind)
    found = {
        "difference": judged(scores_of(outcomes, q, 1, 0), float(truth[1] - truth[0]), limit, both),
        "control's mean": judged(scores_of(outcomes, q, 0), float(truth[0]), limit, both[:1]),
        "other arm's mean": judged(scores_of(outcomes, q, 1), float(truth[1]), limit, both[:1]),
    }
    if seed < FIRST_SEED + COMPARED:
        found["alternatives"] = alternatives(outcomes, q, float(truth[1] - truth[0]))
    return found


TRUTHS: dict[str, Array] = {}


def simulate(policies: list[str], trials: int, folder: Path) -> None:
    """Play what is not in the folder yet, and say how long it will take."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind in LEVELS:
        for policy in policies:
            path = folder / f"{policy}-{kind}.jsonl"
            done = {json.loads(line)["seed"] for line in path.open(encoding="utf-8")} if path.exists() else set()
            todo = [seed for seed in range(FIRST_SEED, FIRST_SEED + trials) if seed not in done]
            start = time.perf_counter()
            with path.open("a", encoding="utf-8") as file:
                for count, seed in enumerate(todo, 1):
                    file.write(json.dumps({"seed": seed} | play(policy, kind, seed)) + "\n")
                    if not count % 50:
                        file.flush()
                        left = (time.perf_counter() - start) / count * (len(todo) - count)
                        print(f"{policy} {kind}: {count} of {len(todo)}, {left:.0f} s left", file=sys.stderr)


def rows(folder: Path, group: str) -> Iterator[tuple[str, str, str, str, Array]]:
    """Yield policy, kind, effect, method and (trials, 3) verdicts."""
    for path in sorted(folder.glob("*.jsonl")):
        policy, kind = path.stem.split("-")
        lines = [json.loads(line) for line in path.open(encoding="utf-8")]
        for effect in [name for name in lines[0] if name != "seed" and (name == "alternatives") == (group == "other")]:
            for method in lines[0][effect]:
                yield policy, kind, effect, method, np.array([line[effect][method] for line in lines if effect in line])


def report(folder: Path) -> None:
    """Print a table of the intervals in use, and one of the alternatives."""
    print("| policy | trials | effect | interval | held | excludes 0 | width |\n|---|---|---|---|---|---|---|")
    for policy, kind, effect, method, found in rows(folder, "own"):
        held, excludes, width = found.mean(axis=0)
        print(f"| {policy} | {kind} | {effect} | {method} | {held:.1%} | {excludes:.1%} | {width:.3f} |")
    print("\n| model, weights, quantile | held: lowest, mean | excludes 0 (diff) | width (diff) |\n|---|---|---|---|")
    table: dict[str, list[tuple[str, Array]]] = {}
    for _, kind, _, method, found in rows(folder, "other"):
        table.setdefault(method, []).append((kind, found.mean(axis=0)))
    for method, cells in table.items():
        held = [cell[0] for _, cell in cells]
        power, width = (np.mean([cell[place] for kind, cell in cells if kind == "diff"]) for place in (1, 2))
        print(f"| {method} | {min(held):.1%}, {np.mean(held):.1%} | {power:.1%} | {width:.3f} |")


def main() -> None:
    """Simulate and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("policies", nargs="*", choices=[[], *POLICIES], default=[])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("out/trials"))
    parser.add_argument("--report", action="store_true", help="print the tables of what is there")
    asked = parser.parse_args()
    if not asked.report:
        simulate(asked.policies or list(POLICIES), asked.trials, asked.out)
    report(asked.out)


if __name__ == "__main__":
    main()
