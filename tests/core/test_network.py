import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from oracle import descend, loss_gradient, output_and_gradient
from rarely import InvalidInput
from rarely._core.model.features import gram
from rarely._core.model.network import Network
from rarely._core.training.gradient_descent import TrainingPlan, train
from rarely._core.training.objective import Objective

shapes = st.builds(
    Network,
    dim=st.integers(1, 4),
    hidden=st.sampled_from([2, 4, 8]),
    depth=st.integers(2, 4),
    biases=st.booleans(),
    scaling=st.sampled_from(["ntk", "standard"]),
    initial=st.sampled_from(["paired", "uniform"]),
    skip=st.sampled_from([None, 0.0, 0.5, 3.0]),
)


SEEDS = st.integers(0, 10**6)


def random_weights(net, rng):
    return tuple(rng.normal(size=s) / np.sqrt(s[1]) for s in net.shapes)


def flat(weights):
    return np.concatenate([w.ravel() for w in weights])


@given(shapes, st.integers(0, 10**6))
def test_values_and_features_are_those_of_the_plain_network(net, seed):
    rng = np.random.default_rng(seed)
    weights, x = random_weights(net, rng), rng.normal(size=(5, net.dim))
    values, factors = net.values_and_factors(weights, x)
    vectors = factors.vectors()
    assert vectors.shape == (5, net.parameters)
    for i in range(5):
        f, g = output_and_gradient(weights, x[i], output_scale=net.output_scale, biases=net.biases, skip=net.skip)
        np.testing.assert_allclose(values[i], f, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(vectors[i], g / net.output_scale, rtol=1e-10, atol=1e-12)


@given(shapes, st.integers(0, 10**6))
def test_gram_across_different_weights_is_that_of_the_vectors(net, seed):
    rng = np.random.default_rng(seed)
    _, left = net.values_and_factors(random_weights(net, rng), rng.normal(size=(4, net.dim)))
    _, right = net.values_and_factors(random_weights(net, rng), rng.normal(size=(3, net.dim)))
    np.testing.assert_allclose(gram(left, right), left.vectors() @ right.vectors().T, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(left.squared_norms, np.square(left.vectors()).sum(axis=1), rtol=1e-10)


@given(
    st.integers(1, 5),
    st.sampled_from([2, 6, 40]),
    st.integers(2, 4),
    st.booleans(),
    st.sampled_from([None, 0.0, 2.0]),
    SEEDS,
)
def test_f_is_zero_at_the_initial_weights(dim, hidden, depth, biases, skip, seed):
    net = Network(dim, hidden, depth, biases, skip=skip)
    rng = np.random.default_rng(seed)
    values, factors = net.values_and_factors(net.initial_weights(rng), rng.normal(size=(4, dim)))
    scale = net.output_scale * np.sqrt(factors.squared_norms)
    assert np.all(np.abs(values) <= 1e-13 * scale)


def printed_initial_weights(net, weights):
    """Assumption 2 as printed: W_1 = diag(W, W) with N(0, 4/m) on [x, x]/√2, from ours by W = √2·W_1's half."""
    half, dim = net.hidden // 2, net.dim
    first = np.zeros((net.hidden, 2 * dim))
    first[:half, :dim] = first[half:, dim:] = np.sqrt(2) * weights[0][:half]
    return (first, *weights[1:])


@given(st.integers(1, 3), st.sampled_from([2, 4, 6]), st.integers(2, 4), st.integers(0, 10**6))
def test_paired_units_are_the_printed_doubled_construction(dim, hidden, depth, seed):
    """The same f, gradient steps and inner products, without doubling contexts, at any depth."""
    rng = np.random.default_rng(seed)
    net = Network(dim, hidden, depth)
    ours = net.initial_weights(rng)
    doubled = Network(2 * dim, hidden, depth)
    printed = printed_initial_weights(net, ours)
    x, r = rng.normal(size=(5, dim)), rng.normal(size=5)
    xx = np.hstack([x, x]) / np.sqrt(2)
    ridge, eta = 0.1, 0.002
    for steps in (0, 1, 7):
        w = tuple(descend(ours, x, r, ridge, steps, eta, net.output_scale))
        v = tuple(descend(printed, xx, r, ridge, steps, eta, net.output_scale))
        f, phi = net.values_and_factors(w, x)
        ff, psi = doubled.values_and_factors(v, xx)
        np.testing.assert_allclose(f, ff, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(gram(phi, phi), gram(psi, psi), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_initial_weights_have_the_printed_variances(depth):
    net = Network(dim=50, hidden=400, depth=depth)
    weights = net.initial_weights(np.random.default_rng(0))
    half = net.hidden // 2
    assert np.var(weights[0]) == pytest.approx(2 / 400, rel=0.05)
    assert np.array_equal(weights[0][:half], weights[0][half:])
    for w in weights[1:-1]:
        assert np.var(w[:half, :half]) == pytest.approx(4 / 400, rel=0.05)
        assert np.array_equal(w[:half, :half], w[half:, half:])
        assert not w[:half, half:].any()
        assert not w[half:, :half].any()
    assert np.var(weights[-1]) == pytest.approx(2 / 400, rel=0.3)
    assert np.array_equal(weights[-1][0, :half], -weights[-1][0, half:])


def test_parameters_are_counted_as_the_layers_have_them():
    assert Network(dim=10, hidden=200, depth=2).parameters == 200 * 10 + 200
    assert Network(dim=20, hidden=1000, depth=3).parameters == 20_000 + 1000**2 + 1000
    assert Network(dim=3, hidden=5, depth=2, biases=True, initial="uniform").parameters == 5 * 4 + 6


@pytest.mark.parametrize("bad", [{"hidden": 5}, {"depth": 1}, {"dim": 0}, {"scaling": "odd"}, {"initial": "?"}])
def test_impossible_networks_are_refused(bad):
    with pytest.raises(InvalidInput):
        Network(**({"dim": 2, "hidden": 4} | bad))


@given(shapes, st.integers(0, 10**6), st.integers(1, 6))
def test_training_gradient_is_the_plain_one(net, seed, n):
    rng = np.random.default_rng(seed)
    initial, weights = random_weights(net, rng), random_weights(net, rng)
    x, r = rng.normal(size=(n, net.dim)), rng.normal(size=n)
    objective = Objective(net, initial, x, r, 0.3, np.float64)
    _, gradient = objective.loss_and_gradient(weights)
    truth = loss_gradient(weights, initial, x, r, 0.3, net.output_scale, net.biases, net.skip)
    np.testing.assert_allclose(flat(gradient) * net.output_scale**2, truth, rtol=1e-8, atol=1e-9)


@given(shapes, st.integers(0, 10**6))
def test_training_takes_the_plain_gradient_steps(net, seed):
    rng = np.random.default_rng(seed)
    initial = net.initial_weights(rng)
    x, r = rng.normal(size=(6, net.dim)), rng.normal(size=6)
    eta = 1e-3 / net.output_scale**2
    outcome = train(net, initial, x, r, TrainingPlan(ridge=0.2, steps=5, step_size=eta))
    assume(outcome.report.attempts == 1)
    truth = descend(initial, x, r, 0.2, 5, eta, net.output_scale, net.biases, net.skip)
    assert outcome.accepted
    np.testing.assert_allclose(flat(outcome.weights), flat(truth), rtol=1e-8, atol=1e-10)


def test_tiles_do_not_change_the_gradient(monkeypatch):
    net = Network(3, 4, 3)
    rng = np.random.default_rng(0)
    w, x, r = random_weights(net, rng), rng.normal(size=(300, 3)), rng.normal(size=300)
    whole = Objective(net, w, x, r, 0.1, np.float64).loss_and_gradient(w)
    monkeypatch.setattr("rarely._core.training.objective.CACHE_BYTES", 1)
    tiled = Objective(net, w, x, r, 0.1, np.float64).loss_and_gradient(w)
    assert tiled[0] == pytest.approx(whole[0])
    np.testing.assert_allclose(flat(tiled[1]), flat(whole[1]), rtol=1e-9)


@pytest.mark.parametrize("depth", [2, 3, 4])
@pytest.mark.parametrize("biases", [False, True])
def test_gradients_agree_with_torch_autograd(depth, biases):
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0 to run this")
    net = Network(5, 8, depth, biases)
    rng = np.random.default_rng(1)
    weights, x = random_weights(net, rng), rng.normal(size=(3, 5))
    values, factors = net.values_and_factors(weights, x)
    for i in range(3):
        leaves = [torch.tensor(w, requires_grad=True) for w in weights]
        a = torch.tensor(x[i])
        for layer, w in enumerate(leaves):
            a = torch.cat([a, torch.ones(1, dtype=a.dtype)]) if biases else a
            a = w @ a
            a = torch.relu(a) if layer < depth - 1 else a
        f = net.output_scale * a[0]
        f.backward()
        g = np.concatenate([w.grad.numpy().ravel() for w in leaves])
        assert values[i] == pytest.approx(f.item(), rel=1e-12)
        np.testing.assert_allclose(factors.vectors()[i], g / net.output_scale, rtol=1e-10, atol=1e-13)
