"""What a descent passes through: greedy regret where it stands after J steps, beside a skip path of strength s.

python benchmarks/paths.py                        # four problems, with momentum: two minutes
python benchmarks/paths.py --plain cosine          # plain gradient descent, and longer

A network is trained on the rewards of random arms and then plays greedily on fresh rounds: regret per 2000 of them,
mean of some seeds. It shows why one descent can hold all models that a policy chooses from, and which s and J are
worth trying.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from rarely.core.inputs.scaling import Affine, RewardScale
from rarely.core.model.network import Network, Weights
from rarely.core.training.checkpoints import descend_to
from rarely.core.training.gradient_descent import STABLE as PLAIN_STABLE
from rarely.core.training.gradient_descent import TrainingPlan, objective_of
from rarely.core.training.tuning import STEP_GRID
from rarely.experiments.catalogue import PAPER, PROBLEMS
from rarely.worlds import World

PLAIN_STEPS = (10, 25, 50, 100, 200, 400, 800, 1600, 3200)
STRENGTHS = (0.0, 1.0, 3.0, 10.0)
SAMPLES = (60, 250, 1000)
FRESH = 1500


def stops(network: Network, theta: Weights, x: np.ndarray, y: np.ndarray, plain: bool) -> list[Weights]:
    """The weights after each number of steps."""
    objective = objective_of(network, theta, x, y, TrainingPlan(0.01, precision="float32"))
    if not plain:
        return descend_to(objective, STEP_GRID).reached
    step = PLAIN_STABLE / (objective.top_curvature(None)[0] + objective.ridge)
    at, reached, done = objective.initial, [], 0
    for steps in PLAIN_STEPS:
        at, _ = objective.descend(at, step, steps - done, np.inf)
        reached.append(at)
        done = steps
    return reached


def regrets(world: World, samples: int, strength: float, seed: int, plain: bool) -> list[float]:
    """Per 2000 fresh rounds, at each stop."""
    rounds = world.rounds(seed=seed, count=samples + FRESH)
    taught, fresh = rounds[:samples], rounds[samples:]
    arms = np.random.default_rng(seed).integers(world.arms, size=samples)
    scale = world.context_scale or Affine.fit(taught.contexts.reshape(-1, world.dim))
    rewards = taught.rewards[np.arange(samples), arms]
    unit = RewardScale.fit(rewards)
    network = Network(scale.scaled_dim, 100, skip=strength)
    theta = network.initial_weights(np.random.default_rng(seed))
    x, y = scale(taught.contexts[np.arange(samples), arms]), (rewards - unit.center) / unit.spread
    candidates = scale(fresh.contexts.reshape(-1, world.dim))
    out = []
    for weights in stops(network, theta, x, y, plain):
        greedy = network.values(weights, candidates).reshape(len(fresh), -1).argmax(axis=1)
        out.append(2000 * float(np.mean(fresh.regrets(greedy))))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", default=list(PAPER))
    parser.add_argument("--plain", action="store_true", help="gradient descent without momentum")
    parser.add_argument("--seeds", type=int, default=5)
    asked = parser.parse_args()
    print("s \\ J", *(f"{steps:5d}" for steps in (PLAIN_STEPS if asked.plain else STEP_GRID)))
    for name in asked.problems:
        problem = PROBLEMS[name]
        world = problem.world(problem.view("practical"), constant=True)
        for samples in SAMPLES:
            print(f"{name}, {samples} samples")
            for strength in STRENGTHS:
                runs = [regrets(world, samples, strength, 1000 + seed, asked.plain) for seed in range(asked.seeds)]
                print(f"{strength:5g}", *(f"{value:5.0f}" for value in np.mean(runs, axis=0)), flush=True)


if __name__ == "__main__":
    main()
