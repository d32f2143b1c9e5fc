"""A policy that tunes itself forgets where the world changes, and nowhere else."""

import copy
import warnings

import numpy as np
import pytest

from rarely import BatchNeuralUCB, Discount, ForgettingWarning, InvalidInput, Paced, SparseRows, Window, load
from rarely.worlds import GALLERY
from rarely.worlds.gallery import Drifting

ROUNDS = 400


def played(rounds, policy, count=ROUNDS):
    for t in range(count):
        decision = policy.select(rounds.contexts[t])
        policy.observe(decision, rounds.rewards[t][decision.arm])
        if policy.due:
            policy.update()
    return policy


def small(dim, **settings):
    return BatchNeuralUCB(dim, Paced(horizon=ROUNDS, batches=16), hidden=16, seed=0, **settings)


@pytest.fixture(scope="module")
def turning():
    return Drifting(5, 2, 0.1, period=ROUNDS).rounds(5, ROUNDS)


@pytest.fixture(scope="module")
def adapted(turning):
    with pytest.warns(ForgettingWarning, match="the world seems to change") as said:
        policy = played(turning, small(2))
    assert sum(issubclass(one.category, ForgettingWarning) for one in said) == 1
    return policy


def regret(rounds, policy):
    arms = policy.history.arms
    return float((rounds.means.max(axis=1) - rounds.means[np.arange(len(arms)), arms]).sum())


def test_a_turning_world_is_followed_and_on_record(turning, adapted):
    assert regret(turning, adapted) < 0.5 * regret(turning, played(turning, small(2, forgetting=None)))
    changes = [record for record in adapted.updates if record.memory]
    assert changes
    assert [event.detail for event in adapted.events if event.kind == "memory"] == [u.memory for u in changes]
    last = adapted.updates[-1]
    assert last.samples < last.round
    assert last.lost == last.round - last.samples
    assert len(adapted.history.rewards) == ROUNDS  # what is forgotten now may count again


def test_saved_and_loaded_it_remembers_the_same(tmp_path, turning, adapted):
    adapted.save(tmp_path / "policy.rarely")
    other = load(tmp_path / "policy.rarely")
    assert other.fingerprint() == adapted.fingerprint()
    assert isinstance(other.history.forgetting, Window)
    decisions = [policy.select(turning.contexts[:20]) for policy in (copy.deepcopy(adapted), other)]
    np.testing.assert_array_equal(*(decision.arms for decision in decisions))


def test_an_update_made_elsewhere_chooses_the_same(turning):
    at_once = elsewhere = small(2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ForgettingWarning)
        at_once, elsewhere = played(turning, small(2), 150), small(2)
        for t in range(150):
            decision = elsewhere.select(turning.contexts[t])
            elsewhere.observe(decision, turning.rewards[t][decision.arm])
            if elsewhere.due:
                elsewhere.adopt(elsewhere.prepare_update().run())
    assert elsewhere.history.forgetting == at_once.history.forgetting
    np.testing.assert_array_equal(elsewhere.history.arms, at_once.history.arms)


def test_arms_that_return_are_judged_by_what_is_remembered():
    world = GALLERY["gaussian-arms"]
    before, after = world.rounds(1, 200), world.rounds(1, 200)
    policy = small(before.contexts.shape[-1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ForgettingWarning)
        for t in range(ROUNDS):
            rounds, sign = (before, 1.0) if t < 200 else (after, -1.0)
            decision = policy.select(rounds.contexts[t % 200])
            policy.observe(decision, 5 * sign * rounds.rewards[t % 200][decision.arm])
            if policy.due:
                policy.update()
    own, memory = policy._state.current.override, policy.history.forgetting
    assert isinstance(memory, Window)
    assert own.chosen.sum() < ROUNDS
    assert own.count.sum() <= memory.rounds


def test_what_is_given_is_kept(turning):
    for forgetting in (None, Window(50), Discount(0.99)):
        policy = played(turning, small(2, forgetting=forgetting), 150)
        assert policy.history.forgetting == forgetting
        assert not any(record.memory for record in policy.updates)
    with pytest.raises(InvalidInput, match="forgetting must be"):
        small(2, forgetting="always")


def test_sparse_contexts_are_judged_like_dense_ones(turning):
    rows = SparseRows.of(columns=2, nonzeros=2)
    sparse = small(rows.settings["dim"], **{k: v for k, v in rows.settings.items() if k != "dim"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ForgettingWarning)
        for t in range(200):
            contexts = rows.pack([dict(enumerate(map(float, row))) for row in turning.contexts[t]])
            decision = sparse.select(contexts)
            sparse.observe(decision, turning.rewards[t][decision.arm])
            if sparse.due:
                sparse.update()
    assert isinstance(sparse.history.forgetting, Window)
