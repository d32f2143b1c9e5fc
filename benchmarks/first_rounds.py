"""What the first rounds of quadratic cost, whatever the policy: simple models beside the policy.

python benchmarks/first_rounds.py                       # 20 seeds, a minute
python benchmarks/first_rounds.py --first-seed 300 --seeds 5

Rewards are xᵀAᵀAx + noise of contexts x in the unit cube. Four models, each greedy, with ridge 0.1:

form known         the ten products x_i·x_j, which hold the mean reward exactly
linear, origin 0   x and a constant, on rewards as they are: it takes for granted that a context of zeros pays 0
linear, centred    x − 1/2 and a constant, on standardised rewards: units and origins do not matter, as for our policies
the same, paced    updated after rounds 1, 2, 4, 8 and then every half as many rounds more, as `Paced` begins
"""

from __future__ import annotations

import argparse

import numpy as np

from rarely.worlds import Quadratic
from rarely.worlds.protocol import Rounds

ROUNDS, RIDGE = 2000, 0.1
ENDS = (5, 10, 20, 100, ROUNDS)


def products(x: np.ndarray) -> np.ndarray:
    i, j = np.triu_indices(x.shape[-1])
    return x[..., i] * x[..., j]


def with_constant(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x, np.ones((*x.shape[:-1], 1))], axis=-1)


def regrets(rounds: Rounds, features: np.ndarray, *, standardised: bool, paced: bool) -> np.ndarray:
    """The regret of every round."""
    seen, rewards, coefficients, arms, due = [], [], np.zeros(features.shape[-1]), [], 1
    for t, offered in enumerate(features):
        arms.append(int(np.argmax(offered @ coefficients)))
        seen.append(offered[arms[-1]])
        rewards.append(rounds.rewards[t, arms[-1]])
        if paced and t + 1 < due:
            continue
        due = 2 * (t + 1) if t < 7 else t + 1 + (t + 1) // 2
        x, y = np.array(seen), np.array(rewards)
        if standardised:
            y = (y - y.mean()) / (y.std() or 1.0)
        coefficients = np.linalg.solve(x.T @ x + RIDGE * np.eye(x.shape[1]), x.T @ y)
    return rounds.regrets(arms)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=78_000)
    given = parser.parse_args()
    models = {
        "form known": (products, False, False),
        "linear, origin 0": (with_constant, False, False),
        "linear, centred": (lambda x: with_constant(2 * x - 1), True, False),
        "the same, paced": (lambda x: with_constant(2 * x - 1), True, True),
    }
    print("mean regret up to round   " + "".join(f"{end:>8}" for end in ENDS))
    for name, (features, standardised, paced) in models.items():
        runs = []
        for seed in range(given.first_seed, given.first_seed + given.seeds):
            rounds = Quadratic().rounds(seed=seed, count=ROUNDS)
            played = regrets(rounds, features(np.asarray(rounds.contexts)), standardised=standardised, paced=paced)
            runs.append([played[:end].sum() for end in ENDS])
        print(f"{name:<26}" + "".join(f"{mean:8.1f}" for mean in np.mean(runs, axis=0)), flush=True)


if __name__ == "__main__":
    main()
