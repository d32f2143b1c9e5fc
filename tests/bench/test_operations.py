"""The counts of operations, against programs in plain loops that count as they go."""

import numpy as np
import pytest

from rarely._core.covariance import prices
from rarely._core.model.features import gram
from rarely._core.model.network import Network
from rarely._core.training.objective import Objective
from suite.machine import (
    factor_numbers,
    forward,
    frozen_numbers,
    scoring_dual,
    scoring_primal,
    training_pass,
)


class Counter:
    """Scalar arithmetic: a product added to a sum is two operations."""

    def __init__(self):
        self.operations = 0

    def product(self, a, b):
        out = np.zeros((len(a), b.shape[1]))
        for i in range(len(a)):
            for j in range(b.shape[1]):
                for k in range(len(b)):
                    out[i, j] += a[i, k] * b[k, j]
                    self.operations += 2
        return out


def case(depth):
    rng = np.random.default_rng(depth)
    network = Network(dim=3, hidden=4, depth=depth)
    theta = network.initial_weights(rng)
    weights = tuple(w + 0.1 * rng.normal(size=w.shape) for w in theta)
    return network, theta, weights, rng.normal(size=(5, 3)), rng.normal(size=5)


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_a_training_pass_against_loops(depth):
    network, theta, weights, contexts, rewards = case(depth)
    products, small = Counter(), Counter()  # all layers but the last, and W_L's row
    inputs = [contexts]
    for w in weights[:-1]:
        inputs.append(np.maximum(products.product(inputs[-1], w.T), 0))
    residuals = small.product(inputs[-1], weights[-1].T) - rewards[:, None] / network.output_scale
    gradients = [small.product(residuals.T, inputs[-1])]
    signal = residuals * weights[-1] * (inputs[-1] > 0)
    for layer in range(depth - 2, -1, -1):
        gradients.insert(0, products.product(signal.T, inputs[layer]))
        if layer:
            signal = products.product(signal, weights[layer]) * (inputs[layer] > 0)
    objective = Objective(network, theta, contexts, rewards, 0.01, np.float64)
    for ours, plain, w, w0 in zip(objective.loss_and_gradient(weights)[1], gradients, weights, theta, strict=True):
        np.testing.assert_allclose(ours, plain + 0.01 * (w - w0), atol=1e-12)
    assert training_pass(5, network.shapes) == products.operations
    n, m, d = 5, 4, 3
    assert products.operations == 4 * n * m * d + 6 * n * m * m * (depth - 2)
    assert small.operations == 4 * n * m


def solved(factor, right):
    """L⁻¹ right by forward substitution; a division is one operation."""
    out, operations = np.zeros_like(right), 0
    for column in range(right.shape[1]):
        for i in range(len(factor)):
            rest = right[i, column]
            for k in range(i):
                rest -= factor[i, k] * out[k, column]
                operations += 2
            out[i, column] = rest / factor[i, i]
            operations += 1
    return out, operations


@pytest.mark.parametrize("depth", [2, 3])
def test_scoring_against_loops(depth):
    network, _, weights, contexts, _ = case(depth)
    past = np.random.default_rng(7).normal(size=(6, 3))
    old, new = (network.values_and_factors(weights, x)[1] for x in (past, contexts))
    pairs = Counter()
    k = sum(
        pairs.product(a, b.T) * pairs.product(d, e.T)
        for a, d, b, e in zip(old.inputs, old.signals, new.inputs, new.signals, strict=True)
    )
    np.testing.assert_allclose(k, gram(old, new), atol=1e-12)
    factor = np.linalg.cholesky(0.01 * np.eye(6) + gram(old, old))
    solution, solving = solved(factor, k)
    np.testing.assert_allclose(factor @ solution, k, atol=1e-12)
    passing = Counter()
    units = contexts
    for w in weights[:-1]:
        units = np.maximum(passing.product(units, w.T), 0)
    passing.product(units, weights[-1].T)
    assert forward(5, network.shapes) == passing.operations == 2 * 5 * network.parameters
    assert scoring_dual(6, 5, network.shapes) == pairs.operations + solving + passing.operations

    features = new.vectors()
    z = np.linalg.cholesky(0.01 * np.eye(network.parameters) + features.T @ features)
    assert scoring_primal(5, network.shapes) == solved(z, features.T)[1] + passing.operations


def test_counts_agree_with_the_price_list():
    shapes = ((200, 11), (1, 200))
    assert factor_numbers(shapes) == 412
    price = prices(shapes, 2000)
    assert scoring_dual(2000, 1, shapes) - forward(1, shapes) == price["dual"].flops
    assert scoring_primal(1, shapes) - forward(1, shapes) == price["primal"].flops
    assert frozen_numbers(2000, shapes) == 2000 * 2000 // 2 + 412 * 2000
