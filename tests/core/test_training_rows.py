"""Updates whose cost does not grow: a sample trains the network."""

import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rarely
from rarely import (
    BatchNeuralUCB,
    FixedGrid,
    InvalidInput,
    Limits,
    OnDemand,
    Training,
)
from rarely._core.inputs.scaling import Affine
from rarely._core.policies.learner import split_mix, training_rows

# --- which rows


@given(st.sets(st.integers(0, 500)), st.integers(2, 40))
def test_a_sample_is_the_latest_half_and_some_others(chosen, most):
    rows = np.array(sorted(chosen), np.int64)
    places = training_rows(rows, most)
    assert len(places) == min(len(rows), most)
    assert (np.diff(places) > 0).all()
    latest = min(len(rows), most - most // 2)
    np.testing.assert_array_equal(places[len(places) - latest :], np.arange(len(rows) - latest, len(rows)))


@given(st.integers(1, 300), st.integers(0, 300), st.integers(2, 40))
def test_a_row_that_was_left_out_never_comes_back(count, more, most):
    before, after = (set(training_rows(np.arange(n), most).tolist()) for n in (count, count + more))
    assert {row for row in after if row < count} <= before


def test_older_rows_are_sampled_uniformly():
    places = training_rows(np.arange(100_000), 10_000)[:5000]
    counts = np.histogram(places, bins=10, range=(0, 95_000))[0]
    assert abs(counts - 500).max() < 5 * np.sqrt(500)


def test_rows_are_mixed_as_by_splitmix64():
    """Its first numbers from the seed 0, as published with it."""
    assert [hex(number) for number in split_mix(np.arange(3))] == [
        "0xe220a8397b1dcdaf",
        "0x6e789e6aa1b965f4",
        "0x6c45d188009454f",
    ]


# --- policies


def played(policy, rounds, per_call=20, seed=0):
    """Rewards are linear but for a wave, and one in ten never comes."""
    rng = np.random.default_rng((seed, policy.round))
    for _ in range(rounds // per_call):
        contexts = rng.normal(size=(per_call, 3, 4))
        decision = policy.select(contexts)
        chosen = contexts[np.arange(per_call), decision.arm]
        rewards = chosen @ [1.0, -1.0, 0.5, 0.0] + 0.3 * np.sin(3 * chosen[:, 3]) + 0.5 * rng.normal(size=per_call)
        came = rng.random(per_call) < 0.9
        policy.observe(decision[came], rewards[came])
        if policy.due:
            policy.update()
    return policy


def tuned(**settings):
    own = {"schedule": FixedGrid(600, 6), "hidden": 10, "seed": 0}
    return BatchNeuralUCB(4, **(own | settings))


def test_below_the_limit_nothing_is_different():
    limited, whole, default = (
        played(tuned(**own), 500) for own in ({"training": Training(rows=500)}, {"training": Training(rows="all")}, {})
    )
    for policy in (limited, default):
        assert policy.updates == whole.updates
        assert all(np.array_equal(w, v) for w, v in zip(policy.weights, whole.weights, strict=True))
        np.testing.assert_array_equal(policy.history.arms, whole.history.arms)
    assert all(update.trained is None for update in default.updates)


def test_above_the_limit_a_record_says_how_many_samples_trained():
    policy = played(tuned(training=Training(rows=150)), 500)
    assert [update.trained for update in policy.updates] == [None, 150, 150, 150, 150]
    assert policy.updates[-1].samples > 400
    assert policy.updates[-1].accepted


@pytest.mark.parametrize(
    "own", [{}, {"context_scale": Affine.identity(4, constant=True)}, {"covariance": "last_layer"}]
)
def test_a_policy_above_the_limit_is_saved_and_loaded(tmp_path, own):
    policy = played(tuned(training=Training(rows=150), **own), 300)
    policy.save(tmp_path / "policy")
    again = rarely.load(tmp_path / "policy")
    assert again.fingerprint() == policy.fingerprint()
    for each in (policy, again):
        played(each, 200)
    assert again.fingerprint() == policy.fingerprint()
    assert type(policy)(**json.loads(json.dumps(policy.settings()))).settings() == policy.settings()


@pytest.mark.parametrize(
    "own", [{"preset": "paper"}, {"preset": "code"}, {"training": 20}, {"training": Training(warm_start=True)}]
)
def test_policies_that_do_not_tune_themselves_train_on_all(own):
    assert BatchNeuralUCB(4, FixedGrid(100, 2), hidden=4, **own).settings()["training"]["rows"] == "all"


@pytest.mark.parametrize("bad", [1, 0, -5, 2.5, "some", True])
def test_limits_that_cannot_be_are_refused(bad):
    with pytest.raises(InvalidInput, match="rows"):
        tuned(training=Training(rows=bad))


def test_rows_that_train_no_more_are_dropped_and_nothing_else_changes():
    whole = played(tuned(training=Training(rows=100), limits=Limits(history=None)), 560)
    limited = played(tuned(training=Training(rows=100), limits=Limits(history=30_000)), 560)
    assert limited.history.dropped > 100
    assert all(update.lost == 0 for update in limited.updates)
    assert [u.trained for u in limited.updates] == [u.trained for u in whole.updates]
    assert all(np.array_equal(w, v) for w, v in zip(limited.weights, whole.weights, strict=True))
    contexts = np.random.default_rng(8).normal(size=(20, 3, 4))
    np.testing.assert_array_equal(limited.score(contexts).means, whole.score(contexts).means)


def test_an_update_made_elsewhere_is_the_same():
    here, elsewhere = (played(tuned(training=Training(rows=100), schedule=OnDemand()), 240) for _ in range(2))
    for _ in range(2):
        here.update()
        elsewhere.adopt(pickle.loads(pickle.dumps(elsewhere.prepare_update())).run())
        for policy in (here, elsewhere):
            played(policy, 60)
    assert here.updates[-1].trained == 100
    assert here.fingerprint() == elsewhere.fingerprint()


@pytest.mark.parametrize("most", [1, 4, 5, 9])
def test_the_latest_half_is_in_and_the_rest_is_a_sample(most):
    chosen = training_rows(np.arange(50), most)
    assert len(chosen) == most
    latest = most - most // 2
    assert chosen[-latest:].tolist() == list(range(50 - latest, 50))
