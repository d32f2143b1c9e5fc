"""How to judge a training by held-out rewards: as it predicts, or once its predictions are shifted and stretched.

python benchmarks/judging.py                      # four problems, 16 seeds, a few minutes
python benchmarks/judging.py --seeds 4 magic

The default policy plays; at some rounds every candidate (s, J) is trained on what it has seen, and would play greedily
on fresh rounds: regret per 2000 of them. Shown is that of the candidate with the least held-out error by either
measure, of the one that the policy itself has chosen, and of the best of all, which nobody knows; means over seeds.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np

from rarely import BatchNeuralUCB, DeterminantTrigger
from rarely.core.inputs.scaling import RewardScale
from rarely.core.model.network import Network
from rarely.core.training.checkpoints import descend_to
from rarely.core.training.gradient_descent import TrainingPlan, objective_of
from rarely.core.training.tuning import FOLDS, SKIP_GRID, STEP_GRID, Tuning
from rarely.experiments.problems import find_problem
from tuning import LOG_RATIOS

CHECKED = (30, 60, 120, 250, 500, 1000)
WAYS = ("as it predicts", "shifted and stretched", "the policy's own", "the best of all")
HIDDEN = 100
FRESH = 2000


def regrets(problem: str, seed: int) -> np.ndarray:
    """(checks, ways)."""
    found = find_problem(problem)
    world = found.world(found.view("practical"), constant=True)
    rounds = world.rounds(seed=seed, count=2000 + FRESH)
    schedule = DeterminantTrigger(2000, 100, LOG_RATIOS[problem])
    policy = BatchNeuralUCB(world.dim, schedule, hidden=HIDDEN, context_scale=world.context_scale, seed=seed)
    out: list[list[float]] = []
    while len(out) < len(CHECKED):
        start = policy.round
        decision = policy.select(rounds.contexts[start:2000], until_due=True)
        policy.observe(decision, rounds.rewards[np.arange(start, policy.round), decision.arm])
        if policy.due:
            policy.update()
        if policy.round >= CHECKED[len(out)]:
            out.append(judged(policy, rounds[2000:]))
    return np.array(out)


def judged(policy: BatchNeuralUCB, fresh) -> list[float]:
    """Of the candidates that each way chooses now."""
    samples, scale = policy.history.samples(), policy.context_scale
    x, unit = scale(samples.contexts), RewardScale.fit(samples.rewards)
    y = (samples.rewards - unit.center) / unit.spread
    rows = np.arange(len(y))
    candidates = scale(fresh.contexts.reshape(-1, policy.dim))
    tuning = Tuning().with_rows(rows, None)
    played = np.empty((len(SKIP_GRID), len(STEP_GRID)))
    for _ in range(len(SKIP_GRID) * FOLDS):
        held, strength = tuning.held_out(rows), SKIP_GRID[tuning.next_path]
        network = Network(x.shape[1], HIDDEN, skip=strength)

        def trained(part: np.ndarray, network: Network = network) -> list:
            objective = objective_of(
                network, policy.initial_weights, x[part], y[part], TrainingPlan(0.01, precision="float32")
            )
            return descend_to(objective, STEP_GRID).reached

        if tuning.turn < len(SKIP_GRID):
            for rung, weights in enumerate(trained(rows)):
                values = network.values(weights, candidates).reshape(len(fresh), -1)
                played[tuning.next_path, rung] = fresh.regrets(values.argmax(axis=1).tolist()).mean() * 2000
        ahead = [network.values(weights, x[held]) for weights in trained(~held)]
        tuning = tuning.with_predictions(rows[held], np.stack(ahead, axis=1), y[held])
    plain = np.square(tuning.predictions - tuning.rewards[:, None, None]).mean(axis=0)
    chosen = policy.tuning.chosen
    return [
        played.flat[plain.argmin()],
        played.flat[tuning.errors(tuning.predictions).mean(axis=0).argmin()],
        played[chosen],
        played.min(),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", default=list(LOG_RATIOS))
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--first-seed", type=int, default=900)
    asked = parser.parse_args()
    print(f"{'':34s}" + "".join(f"{n:>8d}" for n in CHECKED))
    with ProcessPoolExecutor() as pool:
        for problem in asked.problems or list(LOG_RATIOS):
            seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
            means = np.mean(list(pool.map(partial(regrets, problem), seeds)), axis=0)
            for way, row in zip(WAYS, means.T, strict=True):
                print(f"{problem:12s}{way:22s}" + "".join(f"{value:8.0f}" for value in row), flush=True)


if __name__ == "__main__":
    main()
