"""d̃ and S: exact, between certain bounds, and with contexts that repeat."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rarely import InvalidContexts, InvalidInput, InvalidReward
from rarely.theory import NTK, effective_dimension, log_det, ntk_matrix, reward_norm
from worlds import unit_rows


def quiet(_):
    pass


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40), st.floats(-3, 2), st.integers(2, 4))
def test_the_definition(seed, n, log_ridge, depth):
    x, ridge = unit_rows(seed, n, 3), 10**log_ridge
    found = effective_dimension(x, ridge=ridge, depth=depth)
    sign, expected = np.linalg.slogdet(np.eye(n) + ntk_matrix(x, depth) / ridge)
    assert sign == 1
    assert found.log_det == pytest.approx(expected, rel=1e-9)
    assert found.value == pytest.approx(expected / math.log1p(n / ridge), rel=1e-9)
    assert found.exact
    assert found.confidence == 1
    assert found.count == n


def test_repeated_contexts_count_as_the_directions_they_share():
    x = unit_rows(0, 4, 3)
    repeated = effective_dimension(np.repeat(x, 5, axis=0), ridge=0.5)
    weighted = np.linalg.slogdet(np.eye(4) + 5 * ntk_matrix(x) / 0.5)[1]
    assert repeated.log_det == pytest.approx(weighted, rel=1e-9)


@pytest.mark.parametrize("ridge", [1.0, 0.01])
@pytest.mark.parametrize("dim", [2, 8])
def test_the_bounds_hold_the_truth_at_least_as_often_as_they_say(ridge, dim):
    missed = 0
    for seed in range(25):
        x = unit_rows(seed, 300, dim)
        truth = log_det.exact(NTK(), x, ridge).value
        found = log_det.bracketed(NTK(), x, ridge, rank=40, seed=seed, tell=quiet)
        missed += not found.lower <= truth <= found.upper
        assert found.lower <= found.value <= found.upper
        assert found.upper - found.lower < 0.2 * truth
    assert missed <= 1


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(5, 60), st.integers(1, 60), st.floats(-2, 1))
def test_what_is_certain_without_sampling_is_certain(seed, n, rank, log_ridge):
    """FᵀF ⪯ H, its remainder's diagonal, and the bracket that they give; also where contexts repeat."""
    x, ridge = unit_rows(seed, n, 3), 10**log_ridge
    x = np.concatenate([x, x[: n // 2]])
    kernel = NTK()
    matrix = kernel.matrix(x)
    factor, rest = log_det._low_rank(kernel, x, rank, np.random.default_rng(seed), quiet)
    remainder = matrix - factor.T @ factor
    np.testing.assert_allclose(np.diagonal(remainder), rest, atol=1e-9)
    assert np.linalg.eigvalsh(remainder)[0] > -1e-9
    known = np.linalg.slogdet(np.eye(len(x)) + factor.T @ factor / ridge)[1]
    truth = log_det.exact(kernel, x, ridge).value
    assert known - 1e-6 <= truth <= known + np.log1p(rest / ridge).sum() + 1e-6


def test_a_bracket_that_is_narrow_needs_no_chance():
    x = np.repeat(unit_rows(1, 6, 3), 50, axis=0)
    found = log_det.bracketed(NTK(), x, 1.0, rank=20, seed=0, tell=quiet)
    assert found.confidence == 1
    assert found.value == pytest.approx(log_det.exact(NTK(), x, 1.0).value, rel=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 12), st.integers(1, 11), st.floats(-3, 3))
def test_the_two_quadratures_hold_the_form_between_them(seed, n, steps, log_scale):
    rng = np.random.default_rng(seed)
    half = rng.normal(size=(n, n))
    matrix = 10**log_scale * half @ half.T
    values, vectors = np.linalg.eigh(matrix)
    v = rng.normal(size=n)
    truth = float((vectors.T @ v) ** 2 @ np.log1p(values))
    diagonal, beside, basis = [], [], [v / np.linalg.norm(v)]
    for _ in range(min(steps, n - 1)):
        image = matrix @ basis[-1]
        diagonal.append(basis[-1] @ image)
        for _ in range(2):
            for earlier in basis:
                image = image - earlier * (earlier @ image)
        beside.append(np.linalg.norm(image))
        basis.append(image / beside[-1])
    lower, upper = log_det._gauss_bounds(np.array(diagonal), np.array(beside[:-1]), beside[-1])
    square = v @ v
    assert square * lower <= truth * (1 + 1e-7) + 1e-9
    assert truth <= square * upper * (1 + 1e-7) + 1e-9


def test_the_constant_of_the_spread_is_an_upper_bound():
    x = np.geomspace(1e-9, 1e9, 200_001)
    assert np.max(np.log1p(x) ** 2 / x) <= log_det.SQUARE


def test_a_small_limit_asks_for_the_bracket_and_says_what_it_does():
    x, said = unit_rows(3, 400, 4), []
    found = effective_dimension(x, ridge=0.1, memory_limit=2**18, progress=said.append)
    truth = effective_dimension(x, ridge=0.1)
    assert truth.exact
    assert not found.exact
    assert found.lower <= truth.value <= found.upper
    assert found.confidence == 0.95
    assert any("Lanczos" in line for line in said)
    assert found == effective_dimension(x, ridge=0.1, memory_limit=2**18)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(2, 4))
def test_s_is_the_norm_of_the_least_function(seed, n, depth):
    x = unit_rows(seed, n, 4)
    h = np.random.default_rng(seed + 1).normal(size=n)
    expected = math.sqrt(2 * h @ np.linalg.solve(ntk_matrix(x, depth), h))
    assert reward_norm(h, x, depth=depth) == pytest.approx(expected, rel=1e-5)
    # Repeated with their rewards, contexts say nothing new; and −x beside x is another context.
    twice = reward_norm(np.repeat(h, 2), np.repeat(x, 2, axis=0), depth=depth)
    assert twice == pytest.approx(expected, rel=1e-5)


def test_s_is_infinite_where_no_function_fits():
    assert reward_norm([1.0, 2.0], [[1.0, 0.0], [1.0, 0.0]]) == math.inf
    assert reward_norm([1.0, 2.0], [[1.0, 0.0], [2.0, 0.0]]) == pytest.approx(reward_norm([1.0], [[1.0, 0.0]]))
    assert reward_norm([1.0], [[0.0, 0.0]]) == math.inf
    assert reward_norm([0.0], [[0.0, 0.0]]) == 0


def test_bad_input_says_what_is_wanted():
    with pytest.raises(InvalidInput, match="ridge"):
        effective_dimension(np.eye(2), ridge=0.0)
    with pytest.raises(InvalidContexts, match="at least one"):
        effective_dimension(np.empty((0, 2)), ridge=1.0)
    with pytest.raises(InvalidReward, match="one number"):
        reward_norm([1.0], np.eye(2))
