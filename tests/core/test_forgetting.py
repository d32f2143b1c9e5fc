"""Windows and discounts against weighted sums written out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rarely import (
    AtRounds,
    BatchNeuralUCB,
    Discount,
    EveryRound,
    FixedGrid,
    InvalidInput,
    LinUCB,
    NeuralLinear,
    Training,
    Window,
)
from rarely._core.model.network import Network
from rarely._core.training.gradient_descent import TrainingPlan, train
from worlds import HORIZON, MAKERS, contexts, play, rewards

FORGETTING = st.one_of(st.builds(Window, st.integers(1, 30)), st.builds(Discount, st.floats(0.05, 1.0)))


@given(FORGETTING, st.sampled_from([EveryRound(), FixedGrid(HORIZON, 5), AtRounds([7, 9])]), st.floats(0.1, 2.0))
def test_a_linear_policy_is_the_weighted_regression(forgetting, schedule, ridge):
    policy = LinUCB(2, schedule, ridge=ridge, beta=0.5, forgetting=forgetting, within_batch="frozen")
    play(policy, contexts())
    last = policy.updates[-1].round
    rows, r = np.hstack((policy.history.contexts, np.ones((HORIZON, 1)))), policy.history.rewards
    weights = forgetting.weights(np.arange(last - 1.0, -1.0, -1.0))[:, None]
    z = ridge * np.eye(3) + (weights * rows[:last]).T @ rows[:last]
    coefficients = np.linalg.solve(z, (weights * rows[:last]).T @ r[:last])
    np.testing.assert_allclose(policy.coefficients, coefficients, rtol=1e-8, atol=1e-10)
    new = np.hstack((contexts(seed=5)[0], np.ones((3, 1))))
    variances = np.einsum("ij,ij->i", new, np.linalg.solve(z, new.T).T)
    np.testing.assert_allclose(policy.score(new[:, :2]).bonuses, 0.5 * np.sqrt(variances), rtol=1e-8)
    running = z + rows[last:].T @ rows[last:]
    np.testing.assert_allclose(policy.log_det, np.linalg.slogdet(running)[1] - 3 * np.log(ridge), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("forgetting", [Window(HORIZON), Discount(1.0)])
def test_what_forgets_nothing_is_plain_for_a_linear_policy(forgetting):
    plain, other = (LinUCB(2, FixedGrid(HORIZON, 4), forgetting=f) for f in (None, forgetting))
    np.testing.assert_array_equal(play(plain, contexts()), play(other, contexts()))
    np.testing.assert_allclose(plain.coefficients, other.coefficients, rtol=1e-10)
    assert plain.log_det == pytest.approx(other.log_det, rel=1e-10)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.sampled_from([0.0, 2.0]), st.integers(2, 3))
def test_a_sample_of_weight_w_is_w_samples(weights, skip, depth):
    rng = np.random.default_rng(len(weights))
    net = Network(3, 12, depth, skip=skip)
    theta, x, y = net.initial_weights(rng), rng.normal(size=(len(weights), 3)), rng.normal(size=len(weights))
    root = np.sqrt(np.array(weights, float))
    weighted = train(net, theta, x * root[:, None], y * root, TrainingPlan(0.1, 30, 1e-3))
    repeated = train(net, theta, np.repeat(x, weights, axis=0), np.repeat(y, weights), TrainingPlan(0.1, 30, 1e-3))
    for a, b in zip(weighted.weights, repeated.weights, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["window", "discount"])
@pytest.mark.parametrize("covariance", ["dual", "primal"])
def test_a_neural_policys_matrix_is_that_of_what_it_remembers(name, covariance):
    policy = MAKERS[name](covariance=covariance)
    play(policy, contexts())
    last = policy.updates[-1].round
    weights = policy.history.forgetting.weights(np.arange(last - 1.0, -1.0, -1.0))
    _, factors = policy.network.values_and_factors(policy.weights, policy.context_scale(policy.history.contexts))
    phi = factors.vectors()
    z = 0.1 * np.eye(phi.shape[1]) + (weights[:, None] * phi[:last]).T @ phi[:last] + phi[last:].T @ phi[last:]
    assert policy.log_det == pytest.approx(np.linalg.slogdet(z)[1] - len(z) * np.log(0.1), rel=1e-9)


def test_a_window_follows_a_world_that_turns():
    """Rewards change sign in mid-run: only a policy that forgets finds the other arm soon."""
    stream, late = contexts(seed=1, rounds=400), []
    for forgetting in (None, Window(60), Discount(0.97)):
        policy = BatchNeuralUCB(2, FixedGrid(400, 40), hidden=20, training=60, forgetting=forgetting, seed=0)
        for start in range(0, 400, 10):
            decision = policy.select(stream[start : start + 10])
            signal = stream[np.arange(start, start + 10), decision.arm].sum(axis=1) * (1 if start < 200 else -1)
            policy.observe(decision, signal)
            if policy.due:
                policy.update()
        chosen = policy.history.contexts[300:].sum(axis=1)
        late.append(-float(np.mean(chosen)))
    assert min(late[1:]) > 0.8
    assert late[0] < 0.5 * min(late[1:])


def test_late_rewards_count_as_old_as_their_rounds():
    policy = LinUCB(2, AtRounds([4, 8]), forgetting=Window(3))
    first = policy.select(contexts()[:8, :1])
    policy.observe(first[:3], [5.0, 5.0, 5.0])
    policy.observe(first[6:], rewards(contexts()[6:8, 0]))
    policy.update()
    rows = np.hstack((contexts()[6:8, 0], np.ones((2, 1))))
    expected = np.linalg.solve(np.eye(3) + rows.T @ rows, rows.T @ rewards(contexts()[6:8, 0]))
    np.testing.assert_allclose(policy.coefficients, expected, rtol=1e-9)


@pytest.mark.parametrize("factor", [0.0, -0.5, 1.5, True, "0.9", float("nan")])
def test_a_discount_is_a_factor(factor):
    with pytest.raises(InvalidInput, match="factor"):
        Discount(factor)


@pytest.mark.parametrize("rounds", [0, -1, 2.5, True])
def test_a_window_is_a_number_of_rounds(rounds):
    with pytest.raises(InvalidInput, match="rounds"):
        Window(rounds)


def test_what_is_neither_is_refused():
    with pytest.raises(InvalidInput, match="Window"):
        LinUCB(2, forgetting=50)


def test_biases_cannot_be_discounted():
    with pytest.raises(InvalidInput, match="without biases"):
        BatchNeuralUCB(2, FixedGrid(10, 2), preset="code", training=Training(step_size=0.01), forgetting=Discount(0.9))


@pytest.mark.parametrize("kind", [LinUCB, BatchNeuralUCB])
def test_a_log_is_forgotten_like_any_past(kind):
    rows = contexts(rounds=40)[:, 0]
    given = {"schedule": FixedGrid(20, 2), "ridge": 0.5} | (
        {} if kind is LinUCB else {"hidden": 8, "training": 20, "seed": 0}
    )
    policy = kind.from_log(rows, rewards(rows), forgetting=Window(5), **given)
    if kind is LinUCB:
        phi = np.hstack((rows[-5:], np.ones((5, 1))))
    else:
        scaled = policy.context_scale(rows[-5:])
        phi = policy.network.values_and_factors(policy.weights, scaled)[1].vectors()
    z = 0.5 * np.eye(phi.shape[1]) + phi.T @ phi
    assert policy.log_det == pytest.approx(np.linalg.slogdet(z)[1] - len(z) * np.log(0.5), rel=1e-9)
    assert policy.updates[0].samples == 5


def test_neural_linear_and_its_units_are_weighted():
    policy = NeuralLinear(2, FixedGrid(HORIZON, 4), hidden=16, training=20, ridge=0.2, seed=3, forgetting=Discount(0.7))
    play(policy, contexts())
    last = policy.updates[-1].round
    w = Discount(0.7).weights(np.arange(last - 1.0, -1.0, -1.0))
    rows, r = policy.history.contexts[:last], policy.history.rewards[:last]
    mean = np.average(r, weights=w)
    spread = np.sqrt(np.average(np.square(r - mean), weights=w))
    a = np.maximum(policy.context_scale(rows) @ policy.weights[0].T, 0)
    z = 0.2 * np.eye(16) + (w[:, None] * a).T @ a
    coefficients = np.linalg.solve(z, (w[:, None] * a).T @ ((r - mean) / spread / 4))
    b = np.maximum(policy.context_scale(contexts()[3]) @ policy.weights[0].T, 0)
    np.testing.assert_allclose(policy.score(contexts()[3]).means, mean + spread * 4 * b @ coefficients, rtol=1e-8)


def test_a_weight_counts_down_to_a_millionth():
    weights = Discount(0.9).weights(np.array([60.0, 130.0, 132.0]))
    np.testing.assert_allclose(weights, [0.9**60, 0.9**130, 0.0])
