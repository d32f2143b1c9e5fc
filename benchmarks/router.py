"""Play two routers under a budget: 20 versions, and a rival that is updated after every round.

    python benchmarks/router.py [--rounds 4000] [--seeds 3] [--every-round]

For each policy: right answers over those of the best fixed price in hindsight, and what was spent of the budget.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

from rarely import Ceiling, EveryRound, LinTS, LinUCB, Paced, Policy, Worth
from rarely.extend import Array
from rarely.worlds import Rounds
from rarely.worlds.gallery import Router

POLICIES: dict[str, Callable[[int], Policy]] = {
    "LinUCB, 20 versions": lambda rounds: LinUCB(Router.dim, Paced(rounds, 20), intercept=False, seed=0),
    "LinTS, 20 versions": lambda rounds: LinTS(Router.dim, Paced(rounds, 20), seed=0),
    "LinUCB, every round": lambda rounds: LinUCB(Router.dim, EveryRound(), intercept=False, seed=0),
}


def played(make: Callable[[int], Policy], world: Router, seed: int, share: float) -> tuple[float, float]:
    """Return the part of the best fixed price's answers, and of the budget."""
    count = world.horizon or 0
    rounds, costs, budget = world.rounds(seed, count), world.costs(seed), share * count
    policy = make(count).under(Ceiling(budget, per=count))
    right = 0.0
    for t in range(count):
        spends = np.append(costs[t], 0.0)  # not to answer is free, and never right
        contexts = np.vstack([rounds.contexts[t], np.zeros(world.dim)])
        decision = policy.select(contexts, worth=Worth([1, 1, 1, 0], [0, 0, 0, 1e-3], spends))
        answered = decision.arm < 3
        right += rounds.means[t, decision.arm] if answered else 0.0
        policy.observe(decision, float(rounds.rewards[t, decision.arm] > 0.5) if answered else 0.0)
        if policy.due:
            policy.update()
    return right / best_fixed_price(rounds, costs, budget), float(policy.spent or 0.0) / budget


def best_fixed_price(rounds: Rounds, costs: Array, budget: float) -> float:
    """Return the most right answers, on average, that a single price gets for the budget, known in hindsight."""
    best, each = 0.0, np.arange(len(rounds))
    for price in (0.0, *np.geomspace(1e-3, 10, 400)):
        arms = (rounds.means - price * costs).argmax(axis=1)
        paid = np.cumsum(costs[each, arms]) <= budget
        best = max(best, float(rounds.means[each, arms][paid].sum()))
    return best


def main() -> None:
    """Print a line for each policy, world and budget."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--every-round", action="store_true")
    options = parser.parse_args()
    for change in ("price cut", "regression"):
        for share in (0.5, 0.25):
            for name, make in POLICIES.items():
                if "every" in name and not options.every_round:
                    continue
                runs = [played(make, Router(change, options.rounds), seed, share) for seed in range(options.seeds)]
                answers, spent = np.mean(runs, axis=0)
                print(f"{change:10}  {share:4}  {name:20}  {answers:.3f}  {spent:.4f}", flush=True)


if __name__ == "__main__":
    main()
