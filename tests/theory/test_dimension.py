"""d̃ and S, also of contexts that repeat."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rarely import InvalidContexts, InvalidInput, InvalidReward, TooExpensive
from rarely.theory import NTK, effective_dimension, reward_norm
from worlds import unit_rows


@given(st.integers(0, 10**6), st.integers(1, 40), st.floats(-3, 2), st.integers(2, 4))
def test_the_definition(seed, n, log_ridge, depth):
    x, ridge = unit_rows(seed, n, 3), 10**log_ridge
    found = effective_dimension(x, ridge=ridge, depth=depth)
    sign, expected = np.linalg.slogdet(np.eye(n) + NTK(depth).matrix(x) / ridge)
    assert sign == 1
    assert found.log_det == pytest.approx(expected, rel=1e-9)
    assert found.value == pytest.approx(expected / math.log1p(n / ridge), rel=1e-9)
    assert found.count == n


def test_repeated_contexts_count_as_the_directions_they_share():
    x = unit_rows(0, 4, 3)
    repeated = effective_dimension(np.repeat(x, 5, axis=0), ridge=0.5)
    weighted = np.linalg.slogdet(np.eye(4) + 5 * NTK().matrix(x) / 0.5)[1]
    assert repeated.log_det == pytest.approx(weighted, rel=1e-9)


@pytest.mark.parametrize("ridge", [1e-300, 1e-16, 1e-12, 1.0, 1e12, 1e16, 1e200])
def test_any_ridge_gives_its_dimension(ridge):
    """Repeated contexts under every λ: three of five eigenvalues are 0."""
    x = np.repeat(np.eye(2), [2, 3], axis=0)
    found = effective_dimension(x, ridge=ridge)
    within = 1 / np.pi  # the kernel of two directions at a right angle
    values = np.linalg.eigvalsh(np.array([[3.0, within * 6**0.5], [within * 6**0.5, 4.5]]))
    expected = np.logaddexp(0, np.log(values) - np.log(ridge)).sum()
    assert found.log_det == pytest.approx(expected, rel=1e-9)
    assert 0 < found.value < 3


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(2, 4))
def test_s_is_the_norm_of_the_least_function(seed, n, depth):
    x = unit_rows(seed, n, 4)
    h = np.random.default_rng(seed + 1).normal(size=n)
    expected = math.sqrt(2 * h @ np.linalg.solve(NTK(depth).matrix(x), h))
    assert reward_norm(x, h, depth=depth) == pytest.approx(expected, rel=1e-5)
    # Repeated with their rewards, contexts say nothing new, and at any length they say the same.
    lengths = 10.0 ** np.random.default_rng(seed).integers(-150, 150, size=2 * n)
    twice = reward_norm(np.repeat(x, 2, axis=0) * lengths[:, None], np.repeat(h, 2) * lengths, depth=depth)
    assert twice == pytest.approx(expected, rel=1e-5)


def test_s_is_infinite_where_no_function_fits():
    assert reward_norm([[1.0, 0.0], [1.0, 0.0]], [1.0, 2.0]) == math.inf
    assert reward_norm([[1.0, 0.0], [1.0, 0.0]], [1.0, 1.001]) == math.inf
    assert reward_norm([[1.0, 0.0], [2.0, 0.0]], [1.0, 2.0]) == pytest.approx(reward_norm([[1.0, 0.0]], [1.0]))
    assert reward_norm([[0.0, 0.0]], [1.0]) == math.inf
    assert reward_norm([[0.0, 0.0]], [0.0]) == 0
    assert reward_norm(np.empty((0, 2)), []) == 0


def test_opposed_contexts_are_two_directions():
    assert math.isfinite(reward_norm([[1.0, 0.0], [-1.0, 0.0]], [1.0, 2.0]))


def test_short_contexts_count_in_s():
    plain = reward_norm(np.eye(2), [100.0, 1.0])
    assert reward_norm([[1e-9, 0.0], [0.0, 1.0]], [1e-7, 1.0]) == pytest.approx(plain)


def test_bad_input_says_what_is_wanted():
    with pytest.raises(InvalidInput, match="ridge"):
        effective_dimension(np.eye(2), ridge=0.0)
    with pytest.raises(InvalidContexts, match="at least one"):
        effective_dimension(np.empty((0, 2)), ridge=1.0)
    with pytest.raises(InvalidReward, match="one number"):
        reward_norm(np.eye(2), [1.0])
    with pytest.raises(TooExpensive, match=r"the dimension of 2 contexts needs 96 B.*take a sample"):
        effective_dimension(np.eye(2), ridge=1.0, memory_limit=95)
