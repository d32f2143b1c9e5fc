"""Rounds that a policy must not learn from any more: the next version is as if their rewards had never come."""

import io

import numpy as np
import pytest

from rarely import BatchNeuralUCB, Discount, LinTS, LinUCB, NeuralUCB, OnDemand, Window
from rarely.extend import provisional
from rarely.extend.provisional import archive

MARK = 123.456789
GONE = [6, 10, 46, 50, 86, 90, 117, 2000]
"""The rounds with this mark, one that is open, and one that never was."""
KINDS = {
    "LinUCB": lambda: LinUCB(dim=3, seed=0, schedule=OnDemand()),
    "LinTS": lambda: LinTS(dim=3, seed=0, schedule=OnDemand()),
    "discount": lambda: LinUCB(dim=3, seed=0, schedule=OnDemand(), forgetting=Discount(0.9)),
    "window": lambda: LinUCB(dim=3, seed=0, schedule=OnDemand(), forgetting=Window(50)),
    "default": lambda: BatchNeuralUCB(dim=3, seed=0, schedule=OnDemand()),
    "network": lambda: NeuralUCB(dim=3, seed=0, hidden=8),
}


def grown(make, lacking=()):
    """A policy in its third batch, whose rewards of some rounds never came."""
    policy, rng = make(), np.random.default_rng(0)
    for batch in range(3):
        contexts = rng.normal(size=(40, 4, 3))
        contexts[5] = contexts[9] = MARK
        decision, rewards = policy.select(contexts), rng.normal(size=30)
        there = [i for i in range(30) if int(decision.rounds[i]) not in lacking]
        policy.observe(decision[there], rewards[there])
        if batch < 2:
            policy.update(force=True)
    return policy


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_version_does_not_hold_them_and_files_keep_what_is_left(kind):
    policy = grown(KINDS[kind])
    decided = policy.round
    provisional.forget(policy, GONE)
    assert (policy.round, len(policy.history)) == (decided, decided - 7)
    data = archive.to_bytes(*policy._content())
    policy = provisional.restore(archive.parse(io.BytesIO(data), "it"), "it")
    policy.update(force=True)
    policy.select(np.random.default_rng(1).normal(size=(4, 3)))
    history = policy.history
    assert len(history) == decided - 6
    assert not np.isin(np.array(GONE) - 1, history.rows).any()
    assert not any(np.isclose(array, MARK).any() for array in policy._content()[1].values() if array.dtype.kind == "f")
    assert np.isfinite(policy.select(np.ones((4, 3))).means).all()


def test_what_was_not_learned_is_as_if_it_had_never_come():
    forgotten, never = grown(KINDS["LinUCB"]), grown(KINDS["LinUCB"], lacking=(86, 90))
    provisional.forget(forgotten, [86, 90])
    forgotten.update()
    never.update()
    contexts = np.random.default_rng(2).normal(size=(9, 4, 3))
    np.testing.assert_array_equal(forgotten.select(contexts).means, never.select(contexts).means)
    assert forgotten.updates[-1].samples == never.updates[-1].samples


def test_forgetting_nothing_leaves_the_state():
    policy = grown(KINDS["LinUCB"])
    before = provisional.state_of(policy)
    provisional.forget(policy, [])
    provisional.forget(policy, [5000])
    assert provisional.state_of(policy) is before or provisional.state_of(policy).history is before.history
