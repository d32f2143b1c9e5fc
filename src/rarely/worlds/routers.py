"""Which of three models answers a prompt, under a budget: two worlds after the description of ParetoBandit's router.

    x      (r,)     what is known of a prompt          q   (K,)   how likely each model's answer is right
    c      (K,)     what each answer costs             B          what may be spent in all rounds

The large model is the best of most prompts and costs twenty times the small one. In the middle of the rounds either its
price is cut to a fifth, or it gets worse without a word. `best_fixed_price` is what no price that stays could beat.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from rarely.extend import Array
from rarely.extend.checks import check_choice, check_whole
from rarely.worlds.protocol import Rounds, World, seeded

QUALITY, COST = np.array([0.35, 0.55, 0.75]), np.array([0.1, 0.5, 2.0])
NUMBERS = 4
Change = Literal["price cut", "regression"]


class Router(World):
    """Three models, prompts of four numbers, and a change in the middle of the horizon.

    Examples
    --------
    >>> world = Router("price cut", horizon=100)
    >>> rounds, costs = world.rounds(seed=0, count=100), world.costs(seed=0)
    >>> rounds.contexts.shape, costs.shape, bool((costs[60:, 2] < costs[60:, 1] * 2).all())
    ((100, 3, 15), (100, 3), True)
    """

    arms, dim = 3, 3 * (NUMBERS + 1)

    def __init__(self, change: Change, horizon: int = 4000) -> None:
        check_choice("change", change, Change)
        check_whole("horizon", horizon, 2)
        self.change, self.horizon = change, int(horizon)

    def secret(self, generator: np.random.Generator) -> Any:
        return generator.normal(size=(self.arms, NUMBERS)) * 0.15

    def round(self, t: int, secret: Any, generator: np.random.Generator) -> tuple[Any, Any, Any]:
        x = generator.normal(size=NUMBERS)
        quality = QUALITY + secret @ x
        assert self.horizon is not None
        if self.change == "regression" and t > self.horizon // 2:
            quality[2] -= 0.35
        quality = np.clip(quality, 0.02, 0.98)
        row = np.append(x, 1.0)
        contexts = np.kron(np.eye(self.arms), row)
        return contexts, quality, (generator.random(self.arms) < quality) - quality

    def costs(self, seed: int) -> Array:
        """Return what every answer costs, (horizon, K): as long as the prompt, which differs."""
        assert self.horizon is not None
        costs = COST * seeded(seed, self.horizon + 1).uniform(0.6, 1.4, (self.horizon, 1))
        if self.change == "price cut":
            costs[self.horizon // 2 :, 2] *= 0.2
        return np.asarray(costs)


def best_fixed_price(rounds: Rounds, costs: Array, budget: float) -> float:
    """Return the most right answers, on average, that a single price gets for the budget, known in hindsight."""
    best, each = 0.0, np.arange(len(rounds))
    for price in (0.0, *np.geomspace(1e-3, 10, 400)):
        arms = (rounds.means - price * costs).argmax(axis=1)
        paid = np.cumsum(costs[each, arms]) <= budget
        best = max(best, float(rounds.means[each, arms][paid].sum()))
    return best
