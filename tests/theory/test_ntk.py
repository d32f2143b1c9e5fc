"""Definition 1's kernel: against the expectations that define it, and against our own networks growing wide."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rarely import InvalidContexts, InvalidInput
from rarely._core.model import tangent_kernel
from rarely._core.model.features import gram
from rarely._core.model.network import Network
from rarely.theory import NTK
from worlds import unit_rows

KINDS = ("definition", "network")


def by_angle(angle, depth, kind):
    """The kernel of two unit vectors at a known angle, by the recursion in extended precision."""
    theta = np.asarray(angle, np.longdouble)
    pi = np.longdouble(np.pi) + np.longdouble(1.2246467991473532e-16)
    c = np.cos(theta)
    tangent = c
    for _ in range(depth - 1):
        kept = 1 - theta / pi
        c = (np.sin(theta) + (pi - theta) * np.cos(theta)) / pi
        tangent = tangent * kept + c
        theta = np.arccos(np.clip(c, -1, 1))
    return np.asarray(tangent if kind == "network" else (tangent + c) / 2, np.float64)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("depth", [2, 3, 4])
def test_the_closed_form_is_the_recursion_at_every_angle(depth, kind):
    angles = np.concatenate([[0, np.pi / 2, 3.0], np.geomspace(1e-3, 3.14, 40)])
    x = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    np.testing.assert_allclose(
        NTK(depth, kind).cross([[1.0, 0.0]], x)[0], by_angle(angles, depth, kind), rtol=0, atol=1e-13
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("angle", [1e-4, 1e-6, 1e-9, 1e-12])
def test_almost_parallel_contexts_keep_their_digits(angle, kind):
    """arccos would be off by 1e-8: here the slope of the kernel in the angle is seen at all sizes."""
    x = np.array([[np.cos(angle), np.sin(angle)], [-np.cos(angle), np.sin(angle)]])
    same, opposed = NTK(2, kind).cross([[1.0, 0.0]], x)[0]
    full = 2.0 if kind == "network" else 1.5
    # κ₀ = 1 − θ/π enters once, as c·κ₀ in H̃ and half of that in H; all else is of second order.
    slope = 1 / np.pi if kind == "network" else 1 / (2 * np.pi)
    assert full - same == pytest.approx(slope * angle, rel=2 * angle + 1e-3, abs=4e-16)
    assert opposed == pytest.approx(-slope * angle, rel=2 * angle + 1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_expectations_of_the_definition(kind, seed):
    """2E[σ(u)σ(v)] and 2E[σ'(u)σ'(v)] by simulation, layer by layer, with contexts of any length."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(2, 3))
    covariance = x @ x.T
    tangent, draws = covariance.copy(), 400_000
    for _ in range(2):
        u = np.linalg.cholesky(covariance) @ rng.normal(size=(2, draws))
        units, active = np.maximum(u, 0), (u > 0).astype(float)
        covariance = 2 * units @ units.T / draws
        tangent = tangent * (2 * active @ active.T / draws) + covariance
    expected = tangent if kind == "network" else (tangent + covariance) / 2
    np.testing.assert_allclose(NTK(3, kind).matrix(x), expected, rtol=0.02, atol=0.01)


def finite_width_error(depth, hidden, x, target):
    errors = []
    for seed in range(6):
        net = Network(x.shape[1], hidden, depth)
        _, factors = net.values_and_factors(net.initial_weights(np.random.default_rng(seed)), x)
        errors.append(gram(factors, factors) - target)
    return float(np.sqrt(np.mean(np.square(errors))))


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_our_networks_converge_to_their_limit_like_one_over_the_root_of_their_width(depth):
    x = unit_rows(1, 12, 5)
    widths = np.array([64, 128, 256, 512, 1024])
    target = NTK(depth, "network").matrix(x)
    errors = [finite_width_error(depth, int(m), x, target) for m in widths]
    slope = np.polyfit(np.log(widths), np.log(errors), 1)[0]
    assert -0.65 < slope < -0.35
    # Definition 1's H is not where they go.
    assert finite_width_error(depth, 1024, x, NTK(depth).matrix(x)) > 2 * errors[-1]


@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 6), st.integers(2, 5), st.sampled_from(KINDS))
def test_it_is_positive_semi_definite_to_rounding_whatever_is_repeated(seed, n, d, depth, kind):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-3, 3)
    x = np.concatenate([x, x[: n // 2], -x[: n // 3], 2 * x[: n // 4], x[: n // 4] * (1 + 1e-9), np.zeros((1, d))])
    x = np.concatenate([x, x[: n // 3] + 1e-8 * rng.normal(size=(n // 3, d))])
    matrix = NTK(depth, kind).matrix(x)
    values = np.linalg.eigvalsh(matrix)
    assert values[0] >= -1e-14 * len(x) * max(values[-1], 1e-300)
    np.testing.assert_array_equal(matrix, matrix.T)


@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 30), st.integers(2, 4), st.sampled_from(KINDS))
def test_matrix_cross_diagonal_and_tiles_are_one_kernel(seed, n, others, depth, kind):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(n, 3)), rng.normal(size=(others, 3))
    kernel = NTK(depth, kind)
    both = kernel.matrix(np.concatenate([x, y]))
    np.testing.assert_allclose(kernel.cross(x, y), both[:n, n:], atol=1e-13)
    np.testing.assert_allclose(kernel.diagonal(x), np.diagonal(both)[:n], rtol=1e-14)


def test_small_tiles_change_nothing(monkeypatch):
    x = unit_rows(2, 23, 4)
    whole = NTK(3).matrix(x)
    monkeypatch.setattr(tangent_kernel, "TILE", 25)
    np.testing.assert_allclose(NTK(3).matrix(x), whole, atol=1e-15)
    np.testing.assert_allclose(NTK(3).cross(x, x[:7]), whole[:, :7], atol=1e-13)


@given(st.floats(1e-100, 1e100), st.floats(1e-100, 1e100))
def test_it_is_homogeneous_at_every_size(a, b):
    x = np.array([[1.0, 2.0]]), np.array([[0.5, -1.0]])
    plain = NTK(3).cross(*x)[0, 0]
    assert NTK(3).cross(a * x[0], b * x[1])[0, 0] == pytest.approx(a * b * plain, rel=1e-12)


def test_bad_input_says_what_is_wanted():
    for wrong in ([1.0, 2.0], [[]], "abc", [[np.nan]], 5, None, [[1j]], [[1e200]]):
        with pytest.raises(InvalidContexts, match="contexts must"):
            NTK().matrix(wrong)
    with pytest.raises(InvalidContexts, match="as many numbers"):
        NTK().cross([[1.0]], [[1.0, 2.0]])
    with pytest.raises(InvalidInput, match="depth"):
        NTK(depth=1)
    with pytest.raises(InvalidInput, match="kind"):
        NTK(kind="other")


def test_no_contexts_have_no_kernel():
    assert NTK().matrix(np.empty((0, 3))).shape == (0, 0)
    assert NTK().cross(np.empty((0, 3)), np.ones((2, 3))).shape == (0, 2)
