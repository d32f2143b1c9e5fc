"""How often each Gaussian is the highest, against closed forms, draws, and a plain quadrature of its own."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rarely._core import native
from rarely._core.choice import gaussian_argmax
from rarely._core.choice.gaussian_argmax import distribution, highest_of_gaussians

SEEDS = st.integers(0, 10**6)
DECADES = [0.5, 3.0, 7.0 if np.finfo(np.longdouble).eps < 1e-18 else 4.0]
NORMAL = np.vectorize(lambda z: 0.5 * math.erfc(-z / math.sqrt(2)), otypes=[float])


@pytest.fixture(scope="module", autouse=True, params=["in C", "in NumPy"])
def in_c(request):
    """Whether the loops are those in C."""
    compiled = request.param == "in C"
    if compiled and not native.available():
        pytest.skip("no compiled loops")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gaussian_argmax, "in_use", lambda: compiled)
        yield compiled


def chances_of(means, deviations, **settings):
    """Of one row, without a tolerance."""
    row = np.asarray(means, float)[None], np.asarray(deviations, float)[None]
    return highest_of_gaussians(*row, np.zeros(1), **settings)[0]


def by_plain_quadrature(means, deviations):
    """P(k) = ∫ n(z) Π_{j≠k} N((μ_k + σ_k z − μ_j)/σ_j) dz, each alone, cut at half deviations of every Gaussian."""
    nodes, weights = np.polynomial.legendre.leggauss(24)
    means, deviations = np.asarray(means, np.longdouble), np.asarray(deviations, np.longdouble)
    cuts = np.sort((means[:, None] + deviations[:, None] * np.arange(-9.5, 9.6, 0.5)).ravel())
    middle, half = (cuts[1:] + cuts[:-1]) / 2, (cuts[1:] - cuts[:-1]) / 2
    x, dx = (middle[:, None] + half[:, None] * nodes).ravel(), (half[:, None] * weights).ravel()
    z = ((x - means[:, None]) / deviations[:, None]).astype(float)
    below, density = NORMAL(z), np.exp(-(z**2) / 2) / (math.sqrt(2 * math.pi) * deviations[:, None])
    return [math.fsum(dx * density[k] * np.prod(np.delete(below, k, axis=0), axis=0)) for k in range(len(means))]


def test_the_distribution_function_is_that_of_the_error_function():
    z = np.concatenate((np.linspace(-12, 12, 4001), [np.inf, -np.inf]))
    np.testing.assert_allclose(distribution(z), NORMAL(z), atol=1e-15)
    inside = z[np.abs(z) <= 9]
    np.testing.assert_allclose(distribution(inside), NORMAL(inside), rtol=1e-11)


@given(st.floats(-5, 5), st.floats(1e-6, 10), st.floats(1e-6, 10), st.sampled_from([0.0, 1.0, -1e6]))
def test_two_gaussians_are_one_difference(gap, first, second, shift):
    high = gap + shift
    chances = chances_of([high, shift], [first, second])
    expected = NORMAL((high - shift) / math.hypot(first, second))
    np.testing.assert_allclose(chances, [expected, 1 - expected], rtol=0, atol=1e-12)


@given(st.lists(st.floats(-6, 1).map(lambda power: 10.0**power), min_size=3, max_size=3))
@example([1e-6, 1.0, 1.0])
def test_three_gaussians_of_one_mean_are_an_angle(deviations):
    """P(X > Y, X > Z) = 1/4 + asin(ρ)/2π, ρ the correlation of the two differences; by atan, which has all digits."""
    squares = np.square(deviations)

    def first(x, y, z):
        return 0.25 + math.atan(x / math.sqrt(x * y + y * z + z * x)) / (2 * math.pi)

    expected = [first(*np.roll(squares, -k)) for k in range(3)]
    np.testing.assert_allclose(chances_of([0.7] * 3, deviations), expected, rtol=0, atol=1e-12)


@given(st.integers(2, 7), st.sampled_from([0.1, 1.0, 4.0]), st.sampled_from(DECADES), SEEDS)
def test_several_gaussians_against_the_plain_quadrature(arms, apart, decades, seed):
    rng = np.random.default_rng(seed)
    means, deviations = apart * rng.normal(size=arms), 10.0 ** -rng.uniform(0, decades, arms)
    expected = by_plain_quadrature(means, deviations)
    np.testing.assert_allclose(chances_of(means, deviations), expected, rtol=0, atol=1e-12)


@given(st.integers(2, 5), SEEDS)
def test_a_constant_is_a_very_narrow_gaussian(arms, seed):
    rng = np.random.default_rng(seed)
    means, deviations = rng.normal(size=arms), 10.0 ** -rng.uniform(0, 2, arms)
    deviations[rng.integers(arms)] = 0.0
    narrow = np.where(deviations > 0, deviations, 1e-10)
    np.testing.assert_allclose(chances_of(means, deviations), chances_of(means, narrow), rtol=0, atol=1e-12)


@given(st.integers(2, 5), SEEDS)
def test_several_gaussians_against_draws(arms, seed):
    rng = np.random.default_rng(seed)
    means, deviations = rng.normal(size=arms), 10.0 ** rng.uniform(-3, 1, arms) * (rng.random(arms) < 0.8)
    wins = np.argmax(means + deviations * rng.normal(size=(40_000, arms)), axis=1)
    np.testing.assert_allclose(np.bincount(wins, minlength=arms) / 40_000, chances_of(means, deviations), atol=0.015)


def test_many_gaussians_against_draws():
    rng = np.random.default_rng(0)
    means, deviations = rng.normal(size=300), rng.random(300)
    wins = np.argmax(means + deviations * rng.normal(size=(20_000, 300)), axis=1)
    np.testing.assert_allclose(np.bincount(wins, minlength=300) / 20_000, chances_of(means, deviations), atol=0.015)


@pytest.mark.parametrize("arms", [7, 1000, 10_000])
def test_equal_gaussians_share_alike(arms):
    np.testing.assert_allclose(chances_of(np.ones(arms), np.full(arms, 0.3)), 1 / arms, rtol=1e-12)


@pytest.mark.parametrize(("arms", "copies"), [(3, 300), (5, 1000)])
def test_the_highest_of_copies_is_a_power(arms, copies):
    """Of K distinct Gaussians in c copies each, arm k's copies have ∫ c n N^{c−1} Π_{j≠k} N_j^c: a plain quadrature."""
    rng = np.random.default_rng(1)
    means, deviations = rng.normal(size=arms), rng.uniform(0.2, 1, arms)
    nodes, weights = np.polynomial.legendre.leggauss(24)
    cuts = np.linspace((means - 9 * deviations).max(), (means + 9 * deviations).max(), 800)
    middle, half = (cuts[1:] + cuts[:-1]) / 2, (cuts[1:] - cuts[:-1]) / 2
    x, dx = (middle[:, None] + half[:, None] * nodes).ravel(), (half[:, None] * weights).ravel()
    z = (x - means[:, None]) / deviations[:, None]
    density = np.exp(-(z**2) / 2) / (math.sqrt(2 * math.pi) * deviations[:, None])
    logs = np.where(z < 0, np.log(NORMAL(np.minimum(z, 0.0))), np.log1p(-NORMAL(-np.maximum(z, 0.0))))
    highest = np.exp(copies * logs.sum(axis=0))
    expected = [math.fsum(dx * density[k] / NORMAL(z[k]) * highest) for k in range(arms)]
    chances = chances_of(np.tile(means, copies), np.tile(deviations, copies)).reshape(copies, arms)
    np.testing.assert_allclose(chances, np.tile(expected, (copies, 1)), rtol=0, atol=1e-12)


@given(st.integers(1, 60), st.sampled_from([0.5, 3.0, 9.0]), SEEDS)
def test_the_order_of_the_arms_and_their_units_do_not_matter(arms, decades, seed):
    rng = np.random.default_rng(seed)
    means, deviations = rng.normal(size=arms), 10.0 ** -rng.uniform(0, decades, arms)
    chances, order = chances_of(means, deviations), rng.permutation(arms)
    np.testing.assert_allclose(chances_of(means[order], deviations[order]), chances[order], rtol=0, atol=1e-12)
    np.testing.assert_allclose(chances_of(2.0**40 * means, 2.0**40 * deviations), chances, rtol=0, atol=1e-12)


@given(st.integers(1, 9), st.integers(1, 40), st.sampled_from([1, 50, 2**15]), SEEDS)
def test_rows_are_integrated_as_if_alone(arms, rows, at_once, seed):
    rng = np.random.default_rng(seed)
    means, deviations = rng.normal(size=(rows, arms)), 10.0 ** -rng.uniform(0, 4, (rows, arms))
    deviations[rng.random((rows, arms)) < 0.2] = 0.0
    gone = rng.random((rows, arms)) < 0.2
    gone[np.arange(rows), rng.integers(arms, size=rows)] = False
    means[gone] = deviations[gone] = np.nan
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gaussian_argmax, "AT_ONCE", at_once)
        together = highest_of_gaussians(means, deviations, np.zeros(rows))
    alone = [chances_of(*row) for row in zip(means, deviations, strict=True)]
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-12)


def test_a_piece_that_is_too_wide_is_halved(monkeypatch):
    """Pieces of 30 deviations cannot be right at once."""
    rng = np.random.default_rng(3)
    means, deviations = rng.normal(size=50), 10.0 ** -rng.uniform(0, 3, 50)
    expected = chances_of(means, deviations)
    monkeypatch.setattr(gaussian_argmax, "WIDTH", 30.0)
    np.testing.assert_allclose(chances_of(means, deviations), expected, rtol=0, atol=1e-12)


def test_without_deviations_the_highest_mean_wins():
    means, none = np.array([0.0, 2.0, 2.0, np.nan]), np.array([0.0, 0.0, 0.0, np.nan])
    np.testing.assert_array_equal(chances_of(means, none), [0, 0.5, 0.5, 0])
    np.testing.assert_array_equal(chances_of(means, none, lowest=True), [0, 1, 0, 0])


def test_ties_of_constants_share_what_the_others_leave():
    chances = [chances_of([0.0, 1.0, 1.0], [1.0, 0.0, 0.0], lowest=lowest) for lowest in (False, True)]
    left = NORMAL(1.0)
    np.testing.assert_allclose(chances, [[1 - left, left / 2, left / 2], [1 - left, left, 0]], atol=1e-15)


def test_a_deviation_within_the_tolerance_is_none():
    row = np.array([[0.0, 1e-7]]), np.array([[1e-6, 1e-6]])
    assert highest_of_gaussians(*row, np.array([1e-5])).tolist() == [[0.5, 0.5]]
    assert highest_of_gaussians(*row, np.zeros(1))[0, 1] == pytest.approx(NORMAL(0.1 / math.sqrt(2)), abs=1e-12)


def test_the_smallest_numbers_are_no_deviations():
    assert chances_of([0.0, 0.0], [5e-324, 5e-324]).tolist() == [0.5, 0.5]
    assert chances_of([0.0, 0.0], [1e-280, 1e-280]).tolist() == [0.5, 0.5]


def test_an_arm_out_of_reach_has_no_probability():
    chances = chances_of([0.0, -40.0, -3.0], [1.0, 1.0, 1.0])
    assert chances[1] == 0
    assert 0 < chances[2] < chances[0]


@pytest.mark.parametrize("arms", [100, 1000])
def test_the_work_grows_with_the_arms_and_not_with_their_square(arms, monkeypatch, in_c):
    """Evaluations of the distribution function, counted."""
    if in_c:
        pytest.skip("of NumPy's")
    rng, plain = np.random.default_rng(0), gaussian_argmax._normal
    means, deviations = rng.normal(size=(1, arms)), rng.random((1, arms))
    evaluated = []

    def counted(places):
        evaluated.append(places.size)
        return plain(places)

    monkeypatch.setattr(gaussian_argmax, "_normal", counted)
    highest_of_gaussians(means, deviations, np.zeros(1))
    assert sum(evaluated) < 300 * arms
