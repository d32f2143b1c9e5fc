import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle import output_and_gradient, unflatten
from rarely import BatchNeuralUCB, FixedGrid, Training, load
from rarely._core.model.network import Network
from rarely._core.training.gradient_descent import HOPELESS, TrainingPlan, train_singly

networks = st.builds(
    Network,
    dim=st.integers(1, 4),
    hidden=st.sampled_from([2, 4, 8]),
    depth=st.integers(2, 4),
    biases=st.booleans(),
    scaling=st.sampled_from(["ntk", "standard"]),
    initial=st.just("uniform"),
)


def flat(weights):
    return np.concatenate([np.ravel(w) for w in weights])


def plain(net, start, x, r, ridge, steps, eta, seed=0):
    """The public program's loop: one shuffle, cycled; 2δ∇f and decay; a stop at an epoch's mean loss of 1e-3."""
    order = np.random.default_rng((seed, len(r))).permutation(len(r))
    theta, taken = flat(start), 0
    while taken < steps:
        losses = []
        for i in order:
            if taken == steps:
                return theta, taken
            f, g = output_and_gradient(unflatten(theta, start), x[i], output_scale=net.output_scale, biases=net.biases)
            losses.append((f - r[i]) ** 2)
            theta = theta - eta * (2 * (f - r[i]) * g + ridge * theta)
            taken += 1
        if np.mean(losses) <= 1e-3:
            break
    return theta, taken


@given(networks, st.integers(0, 10**6), st.integers(1, 6), st.integers(0, 15), st.sampled_from([0.05, 0.8]))
def test_single_sample_steps_are_the_plain_ones(net, seed, n, steps, ridge):
    rng = np.random.default_rng(seed)
    start = net.initial_weights(rng)
    x, r = rng.normal(size=(n, net.dim)), rng.normal(size=n)
    eta = 1e-2 / net.output_scale**2
    outcome = train_singly(net, start, x, r, TrainingPlan(ridge=ridge, steps=steps, step_size=eta, optimiser="sgd"))
    assert outcome.report.attempts == 1
    np.testing.assert_allclose(flat(outcome.weights), plain(net, start, x, r, ridge, steps, eta)[0], rtol=1e-9)


def test_an_epoch_that_fits_well_ends_the_training():
    net = Network(2, 8, biases=True, scaling="standard", initial="uniform")
    start = net.initial_weights(np.random.default_rng(1))
    x, r = np.eye(2), np.array([0.3, -0.2])
    truth, taken = plain(net, start, x, r, 1e-4, 5000, 0.05)
    assert 2 < taken < 5000
    outcome = train_singly(net, start, x, r, TrainingPlan(ridge=1e-4, steps=5000, step_size=0.05, optimiser="sgd"))
    np.testing.assert_allclose(flat(outcome.weights), truth, rtol=1e-9)


def test_a_step_that_overflows_is_tried_smaller():
    net = Network(2, 8, scaling="ntk", initial="uniform")
    start = net.initial_weights(np.random.default_rng(0))
    x = 10 * np.random.default_rng(1).normal(size=(20, 2))
    outcome = train_singly(net, start, x, x[:, 0], TrainingPlan(ridge=0.01, steps=200, step_size=1e3, optimiser="sgd"))
    assert outcome.accepted
    assert outcome.report.attempts > 1
    assert np.isfinite(flat(outcome.weights)).all()


def test_data_that_no_step_can_bear_is_rejected_with_a_reason():
    net = Network(1, 4, initial="uniform")
    start = net.initial_weights(np.random.default_rng(0))
    outcome = train_singly(net, start, np.ones((2, 1)), np.full(2, 1e200), TrainingPlan(ridge=1.0, optimiser="sgd"))
    assert not outcome.accepted
    assert "diverges" in outcome.reason


def test_a_descent_that_diverges_without_an_overflow_is_tried_smaller():
    net = Network(2, 8, scaling="standard", initial="uniform")
    start = net.initial_weights(np.random.default_rng(0))
    x = np.random.default_rng(1).normal(size=(20, 2))
    for step in np.geomspace(0.5, 500, 10):
        outcome = train_singly(
            net, start, x, x[:, 0], TrainingPlan(ridge=0.01, steps=4, step_size=step, optimiser="sgd")
        )
        assert outcome.accepted
        assert outcome.report.final_loss < 1e4
    assert outcome.report.attempts > 1


def test_a_step_of_its_own_lowers_the_loss_on_an_easy_problem():
    net = Network(3, 20, biases=True, scaling="standard", initial="uniform")
    x = np.random.default_rng(0).normal(size=(40, 3))
    start = net.initial_weights(np.random.default_rng(0))
    outcome = train_singly(net, start, x, x.sum(axis=1), TrainingPlan(ridge=1e-4, steps=400, optimiser="sgd"))
    assert outcome.report.final_loss < 0.5 * outcome.report.initial_loss


def test_the_code_preset_goes_on_from_its_last_weights():
    policy = BatchNeuralUCB(2, FixedGrid(20, 4), hidden=8, preset="code", training=Training(3, 0.01), seed=0)
    rng = np.random.default_rng(0)
    for batch in range(1, 3):
        before = policy.weights
        decision = policy.select(rng.random((5, 3, 2)))
        policy.observe(decision, np.arange(5.0))
        chosen, rewards = policy.history.samples()[1:3]
        policy.update()
        truth, _ = plain(policy.network, before, chosen, rewards, 0.01, 3, 0.01, policy._network.plan.seed)
        np.testing.assert_allclose(flat(policy.weights), truth, rtol=1e-9)
        assert policy.version == batch


def test_every_seed_has_an_order_of_its_own_and_keeps_it(tmp_path):
    made = [BatchNeuralUCB(2, FixedGrid(20, 4), hidden=8, preset="code", seed=seed) for seed in (0, 1)]
    seeds = [policy._network.plan.seed for policy in made]
    assert seeds[0] != seeds[1]
    made[0].save(tmp_path / "policy")
    assert load(tmp_path / "policy")._network.plan.seed == seeds[0]


def test_a_step_of_its_own_is_half_of_what_one_sample_bears():
    net = Network(2, 4, scaling="standard", initial="uniform")
    start = net.initial_weights(np.random.default_rng(0))
    x = np.random.default_rng(1).normal(size=(5, 2))
    steepest = max(np.sum(output_and_gradient(start, row, output_scale=1.0)[1] ** 2) for row in x)
    outcome = train_singly(net, start, x, x[:, 0], TrainingPlan(ridge=0.3, steps=1, optimiser="sgd"))
    assert outcome.report.step_size == pytest.approx(1 / (2 * steepest + 0.3))


def test_the_code_preset_is_the_programs_network():
    policy = BatchNeuralUCB(3, FixedGrid(20, 4), hidden=9, preset="code", seed=0)
    assert (policy.network.biases, policy.network.scaling, policy.network.initial) == (True, "standard", "uniform")
    for w, fan_in in zip(policy.weights, (3, 9), strict=True):
        assert np.abs(w).max() <= 1 / np.sqrt(fan_in)


def test_the_steps_are_those_of_torch():
    torch = pytest.importorskip("torch", reason="torch is not installed: its gradients are not compared")
    net = Network(3, 6, biases=True, scaling="standard", initial="uniform")
    rng = np.random.default_rng(2)
    start = net.initial_weights(rng)
    x, r = rng.normal(size=(5, 3)), rng.normal(size=5)
    weights = [torch.tensor(w, requires_grad=True) for w in start]
    optimiser = torch.optim.SGD(weights, lr=0.02, weight_decay=0.1)
    for i in np.tile(np.random.default_rng((0, 5)).permutation(5), 4):
        optimiser.zero_grad()
        hidden = torch.relu(weights[0] @ torch.tensor([*x[i], 1.0]))
        value = (weights[1] @ torch.cat([hidden, torch.ones(1, dtype=torch.float64)]))[0]
        ((value - r[i]) ** 2).backward()
        optimiser.step()
    outcome = train_singly(net, start, x, r, TrainingPlan(ridge=0.1, steps=20, step_size=0.02, optimiser="sgd"))
    np.testing.assert_allclose(flat(outcome.weights), flat([w.detach().numpy() for w in weights]), rtol=1e-9)


def test_a_training_that_begins_near_the_truth_may_end_farther_from_it():
    """The loss grows by more than 1000 times, from next to nothing, and is far below that of f = 0."""
    net = Network(1, 2, scaling="standard")
    start = tuple(np.abs(w) for w in net.initial_weights(np.random.default_rng(0)))
    x, (weights, out) = np.ones((20, 1)), start  # more samples than steps: no epoch ends
    value = float((out @ np.maximum(weights @ x[0], 0))[0])
    steepness = float(np.square(out).sum() + np.square(weights).sum())
    plan = TrainingPlan(ridge=1e-14, steps=18, step_size=2.5 / (2 * steepness), optimiser="sgd")
    outcome = train_singly(net, start, x, np.full(20, value + 1e-5), plan)
    assert outcome.report.final_loss > HOPELESS * outcome.report.initial_loss
    assert outcome.accepted
    assert outcome.report.attempts == 1
