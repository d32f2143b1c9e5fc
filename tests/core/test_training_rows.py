"""Updates whose cost does not grow: a sample trains the network, and a linear part has all rewards."""

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
    NeuralLinear,
    OnDemand,
    Training,
    Window,
)
from rarely._core.inputs.history import History
from rarely._core.inputs.scaling import Affine, ContextScale
from rarely._core.policies.additions import RIDGES, LinearPart
from rarely._core.policies.learner import training_rows

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


# --- the linear part


def told(history, rng, count, coefficients, noise=0.5):
    """With rounds and their rewards, a fifth of them late."""
    contexts = rng.normal(size=(count, len(coefficients)))
    first = history.rounds + 1
    history = history.with_rounds(contexts, np.zeros(count, int), 0, np.zeros((count, 3)), "life")
    order = rng.permutation(count)[: count - count // 5]
    rewards = contexts @ coefficients + noise * rng.normal(size=count) + 2
    return history.with_rewards(first + order, rewards[order])


def plain_ridge(x, r):
    """Generalised cross-validation with the hat matrix written out."""
    scores = []
    for ridge in RIDGES:
        hat = x @ np.linalg.solve(x.T @ x + ridge * np.eye(x.shape[1]), x.T)
        scores.append(np.square(r - hat @ r).sum() / (len(r) - np.trace(hat)) ** 2)
    best = RIDGES[int(np.argmin(scores))]
    return best, np.linalg.solve(x.T @ x + best * np.eye(x.shape[1]), x.T @ r)


@pytest.mark.parametrize("noise", [0.1, 3.0])
def test_sums_of_several_updates_give_the_ridge_regression_of_all_rewards(noise):
    rng, history = np.random.default_rng(1), History(3)
    scale = ContextScale(Affine(np.array([1.0, 0.0, -1.0]), np.array([2.0, 1.0, 0.5])))
    part = LinearPart.start(scale)
    for _ in range(3):
        history = told(history, rng, 40, np.array([1.0, -2.0, 0.0]), noise)
        part = part.learn(history)
    contexts, rewards = history.observed()
    ridge, coefficients = plain_ridge(scale(contexts), rewards)
    assert part.learned == len(rewards) == 96
    assert part.ridge == pytest.approx(ridge)
    np.testing.assert_allclose(part.coefficients, coefficients, rtol=1e-8)
    np.testing.assert_allclose(part(contexts), scale(contexts) @ coefficients, rtol=1e-8)


@given(st.floats(0, 2), st.floats(0.01, 3), st.integers(0, 3))
def test_the_share_of_the_network_is_what_held_out_rewards_ask_for(true, noise, seed):
    rng = np.random.default_rng(seed)
    predictions = rng.normal(size=2000)
    residuals = true * predictions + noise * rng.normal(size=2000)
    part = LinearPart.start(ContextScale(Affine.identity(1))).with_share(residuals, predictions)
    doubt = noise / np.sqrt(2000)
    assert 0 <= part.share <= 1
    assert min(true - 7 * doubt, 1) <= part.share <= max(true + doubt, 0)


def test_a_network_that_nothing_was_held_out_for_has_no_share():
    part = LinearPart.start(ContextScale(Affine.identity(1)))
    assert part.with_share(np.empty(0), np.empty(0)).share == 0
    assert part.with_share(np.ones(3), np.zeros(3)).share == 0


def test_rewards_that_overflow_leave_no_linear_part():
    history = told(History(2), np.random.default_rng(0), 30, np.array([1e200, 0.0]))
    assert LinearPart.start(ContextScale(Affine.identity(2))).learn(history) is None


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
    assert policy._learner.linear.learned == policy.updates[-1].samples


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


def test_what_is_linear_is_learned_from_all_rewards():
    """The mean error over new contexts: all rewards, a sample of them, and the linear part beside the sample."""
    rng = np.random.default_rng(3)
    contexts, coefficients = rng.normal(size=(6000, 30)), rng.normal(size=30) / np.sqrt(30)
    rewards, new = contexts @ coefficients + 3 * rng.normal(size=6000), rng.normal(size=(500, 30))
    errors = {}
    logs = {"sample": (contexts[-300:], rewards[-300:]), "ours": (contexts, rewards)}
    for name, (rows, values) in logs.items():
        own = {"schedule": FixedGrid(100, 2), "hidden": 10, "seed": 0, "training": Training(rows=300)}
        policy = BatchNeuralUCB.from_log(rows, values, **own)
        errors[name] = float(np.mean(np.square(policy.score(new[:, None]).means[:, 0] - new @ coefficients)))
    assert policy.updates[0].trained == 300
    assert errors["ours"] < 0.25
    assert errors["sample"] > 2 * errors["ours"]


def test_what_is_not_linear_is_left_to_the_network():
    rng, errors = np.random.default_rng(4), {}
    contexts, new = rng.uniform(-1, 1, size=(4000, 2)), rng.uniform(-1, 1, size=(300, 2))
    rewards = np.cos(3 * contexts[:, 0]) + 0.1 * rng.normal(size=4000)
    for most in (1000, "all"):
        own = {"schedule": FixedGrid(100, 2), "hidden": 40, "seed": 0, "training": Training(rows=most)}
        policy = BatchNeuralUCB.from_log(contexts, rewards, **own)
        means = policy.score(new[:, None]).means[:, 0]
        errors[most] = np.mean(np.square(means - np.cos(3 * new[:, 0]))) / np.var(rewards)
        assert most == "all" or policy._learner.linear.share > 0.9
    assert errors["all"] < errors[1000] < 0.01


def test_a_window_has_its_own_limit_and_no_linear_part():
    policy = played(tuned(training=Training(rows=100), forgetting=Window(200)), 500)
    assert policy._learner.linear is None
    assert policy.updates[-1].trained == 100


def test_the_last_layer_of_neural_linear_needs_no_linear_part():
    policy = played(NeuralLinear(4, FixedGrid(600, 6), hidden=10, seed=0, training=Training(rows=150)), 500)
    assert policy._learner.base.linear is None
    assert policy.updates[-1].trained == 150
    assert NeuralLinear(4, FixedGrid(600, 6)).settings()["training"]["rows"] == "all"


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
    np.testing.assert_array_equal(limited._learner.linear.matrix, whole._learner.linear.matrix)
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
