from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rarely import BatchNeuralUCB, FixedGrid, InvalidInput, Training, UpdateRecord
from rarely._core.model.network import Network
from rarely._core.policies.tuned_network import STEPS
from rarely._core.training.gradient_descent import SHRINK, TrainingPlan, TrainingReport, allowed_loss, train
from rarely._core.training.objective import Objective

NET = Network(dim=3, hidden=20)
THETA = NET.initial_weights(np.random.default_rng(0))
RNG = np.random.default_rng(1)
X = RNG.random((40, 3))
HARD = {
    "huge": (X, 1e6 * RNG.normal(size=40)),
    "huge and shifted": (X, 1e6 + RNG.normal(size=40)),
    "zero": (X, np.zeros(40)),
    "constant": (X, np.full(40, 7.0)),
    "one sample": (X[:1], np.array([3.0])),
    "no sample": (X[:0], np.zeros(0)),
    "duplicated": (np.repeat(X[:1], 40, axis=0), RNG.normal(size=40)),
    "zero contexts": (np.zeros((40, 3)), RNG.normal(size=40)),
    "large contexts": (1e4 * X, RNG.normal(size=40)),
    "tiny": (X, 1e-12 * RNG.normal(size=40)),
}


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize("case", HARD)
def test_hard_data_is_trained_on_and_never_rejected(case, depth, precision):
    net = Network(3, 20, depth)
    contexts, rewards = HARD[case]
    theta = net.initial_weights(np.random.default_rng(0))
    outcome = train(net, theta, contexts, rewards, TrainingPlan(ridge=0.01, precision=precision))
    assert outcome.accepted, outcome.reason
    assert all(np.isfinite(w).all() for w in outcome.weights)
    assert outcome.report.final_loss <= outcome.report.initial_loss * (1 + 1e-6) + 1e-12


def test_the_printed_step_diverges_and_a_smaller_one_is_found():
    outcome = train(
        NET, THETA, np.tile(X, (10, 1)), np.tile(X.sum(axis=1), 10), TrainingPlan(ridge=0.01, step_size=0.05)
    )
    assert outcome.report.attempts > 1
    assert outcome.accepted
    assert outcome.report.step_size < 0.05


def test_a_training_that_never_improves_is_rejected_with_its_reason(monkeypatch):
    monkeypatch.setattr("rarely._core.training.gradient_descent.SHRINK", 1.0)
    outcome = train(NET, THETA, X, X.sum(axis=1), TrainingPlan(ridge=0.01, step_size=1e3))
    assert not outcome.accepted
    assert "the loss did not fall" in outcome.reason


def test_a_rejected_training_reports_the_step_of_its_last_attempt(monkeypatch):
    monkeypatch.setattr("rarely._core.training.gradient_descent.ATTEMPTS", 2)
    outcome = train(NET, THETA, X, X.sum(axis=1), TrainingPlan(ridge=0.01, step_size=1e3))
    assert not outcome.accepted
    assert outcome.report.attempts == 2
    assert outcome.report.step_size == pytest.approx(1e3 * SHRINK)
    assert f"η = {1e3 * SHRINK:.3g}" in outcome.reason


def test_a_loss_that_is_rounding_of_0_is_allowed():
    objective = Objective(NET, THETA, X, np.zeros(40), 0.01, np.float64)
    assert 0 < allowed_loss(objective, 0.0, curvature=3.0) < 1e-25


def test_a_warm_start_that_fits_worse_than_the_initial_weights_is_not_taken():
    far = tuple(100.0 * w for w in THETA)
    plan, rewards = TrainingPlan(ridge=0.01, steps=5), X.sum(axis=1)
    warm, cold = train(NET, THETA, X, rewards, plan, start=far), train(NET, THETA, X, rewards, plan)
    assert warm.report == cold.report
    assert all(np.array_equal(a, b) for a, b in zip(warm.weights, cold.weights, strict=True))


@pytest.mark.parametrize("step_size", [1e150, 1e300])
def test_a_loss_that_is_no_number_is_rejected(monkeypatch, step_size):
    monkeypatch.setattr("rarely._core.training.gradient_descent.SHRINK", 1.0)
    outcome = train(NET, THETA, X, X.sum(axis=1), TrainingPlan(ridge=0.01, step_size=step_size, steps=3))
    assert not outcome.report.final_loss < np.inf
    assert not outcome.accepted


def test_the_curvature_is_the_largest_eigenvalue():
    from rarely._core.model.features import gram

    _, phi = NET.values_and_factors(THETA, X)
    truth = np.linalg.eigvalsh(gram(phi, phi))[-1]
    objective = Objective(NET, THETA, X, np.zeros(40), 0.1, np.float64)
    value, direction = objective.top_curvature(None)
    assert value == pytest.approx(truth, rel=0.01)
    assert objective.top_curvature(direction)[0] == pytest.approx(truth, rel=0.01)
    outcome = train(NET, THETA, X, np.zeros(40), TrainingPlan(ridge=0.1))
    assert outcome.report.step_size == pytest.approx(1.8 / (20 * (truth + 0.1)), rel=0.01)


@given(st.integers(0, 10**6), st.floats(1e-3, 10), st.integers(2, 4))
def test_a_step_from_the_curvature_lowers_the_loss_at_once_or_at_the_second_attempt_if_deep(seed, ridge, depth):
    rng = np.random.default_rng(seed)
    net = Network(4, 40, depth)
    x, r = rng.normal(size=(50, 4)) / 2, rng.normal(size=50)
    outcome = train(net, net.initial_weights(rng), x, r, TrainingPlan(ridge=ridge, steps=50))
    # The curvature of a deep network may grow so much on the way that a smaller step is needed.
    assert outcome.report.attempts <= (1 if depth == 2 else 2)
    assert outcome.report.final_loss < outcome.report.initial_loss


def test_float32_and_float64_agree_to_single_precision():
    r = np.sin(3 * X.sum(axis=1))
    single = train(NET, THETA, X, r, TrainingPlan(ridge=0.01, precision="float32"))
    double = train(NET, THETA, X, r, TrainingPlan(ridge=0.01))
    f32, f64 = (NET.values_and_factors(o.weights, X)[0] for o in (single, double))
    np.testing.assert_allclose(f32, f64, atol=2e-4)


def test_zero_steps_leave_the_weights_at_their_start():
    outcome = train(NET, THETA, X, X.sum(axis=1), TrainingPlan(ridge=0.01, steps=0))
    assert all(np.array_equal(w, w0) for w, w0 in zip(outcome.weights, THETA, strict=True))


def test_a_warm_start_is_where_the_descent_begins_and_the_penalty_still_pulls_to_the_initial_weights():
    rng = np.random.default_rng(4)
    rewards, plan = rng.normal(size=40), TrainingPlan(ridge=0.3, steps=3, step_size=1e-3)
    last = train(NET, THETA, X, rewards, TrainingPlan(ridge=0.3, steps=50)).weights
    warm = train(NET, THETA, X, rewards, plan, start=last)
    plain = Objective(NET, THETA, X, rewards, 0.3, np.float64)
    theirs, loss = plain.descend(last, 1e-3 * NET.output_scale**2, 3, np.inf)
    for a, b in zip(warm.weights, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)
    assert warm.report.final_loss == pytest.approx(loss)
    assert warm.report.initial_loss == pytest.approx(plain.loss(last))
    assert warm.report.final_loss < warm.report.initial_loss < plain.loss(THETA)


def test_a_warm_policy_goes_on_from_its_last_weights_and_a_cold_one_does_not():
    def trained(*training, **more):
        training = Training(*training, **more)
        policy = BatchNeuralUCB(2, FixedGrid(40, 4), hidden=8, preset="paper", seed=0, training=training)
        rng = np.random.default_rng(0)
        for _ in range(2):
            decision = policy.select(rng.normal(size=(10, 3, 2)))
            policy.observe(decision, np.linspace(0, 1, 10))
            policy.update()
        return policy

    cold, warm, once = trained(20), trained(20, warm_start=True), trained(0, warm_start=True)
    assert warm.updates[-1].final_loss < cold.updates[-1].final_loss
    assert all(np.array_equal(a, b) for a, b in zip(once.weights, once.initial_weights, strict=True))


def test_a_warm_start_is_not_for_descent_on_single_samples():
    with pytest.raises(InvalidInput, match="always starts from the last weights"):
        BatchNeuralUCB(2, FixedGrid(10, 2), preset="code", training=Training(warm_start=True))


def test_a_record_has_every_number_of_a_report():
    of_report = {field.name: field.default for field in fields(TrainingReport)}
    of_record = {field.name: field.default for field in fields(UpdateRecord)}
    assert of_report.items() <= of_record.items()


TRAINED = {
    "self-tuned": {},
    "gradient descent": {"training": 7},
    "warm start": {"training": Training(7, warm_start=True)},
    "single samples": {"preset": "code", "training": Training(7, 0.01)},
}


@pytest.mark.parametrize("case", TRAINED)
def test_every_trainer_fills_the_report(case):
    policy = BatchNeuralUCB(2, FixedGrid(80, 2), hidden=8, seed=0, **TRAINED[case])
    stream = np.random.default_rng(5).normal(size=(60, 3, 2))
    decision = policy.select(stream)
    policy.observe(decision, stream[np.arange(60), decision.arms, 0])
    record = policy.update()
    assert record.accepted
    assert record.attempts >= 1
    assert record.step_size > 0
    assert record.final_loss < record.initial_loss
    assert record.loops
    assert record.trained is None
    tuned = policy.tunes
    assert record.steps == (STEPS if tuned else 7)
    assert bool(record.tuning) == tuned
    assert record.step_size == policy._network.used_step
    assert record.skip == policy.network.skip
