"""Rounds that only look as if a target had learned from them."""

import numpy as np
import pytest

from rarely import LinUCB
from rarely.logs import DecisionLog
from rarely.offpolicy.sample import rounds_learned_from


def discrete(rng, count, values):
    contexts = rng.integers(values, size=(count, 2, 2)).astype(float)
    arms = rng.integers(2, size=count)
    return contexts, arms, (rng.random(count) < 0.4) * 1.0


@pytest.mark.parametrize("values", [3, 12, 40])
def test_other_rounds_of_contexts_with_few_values_are_not_taken_for_the_same(values):
    rng = np.random.default_rng(values)
    contexts, arms, rewards = discrete(rng, 500, values)
    policy = LinUCB.from_log(contexts[np.arange(500), arms], rewards, dim=2)
    policy.update(force=True)
    other, chosen, paid = discrete(rng, 500, values)
    log = DecisionLog.from_arrays(other, chosen, paid, propensities=np.full(500, 0.5))
    assert rounds_learned_from(policy, log, log.observed) == 0
    same = DecisionLog.from_arrays(contexts, arms, rewards, propensities=np.full(500, 0.5))
    assert rounds_learned_from(policy, same, same.observed) > 250
