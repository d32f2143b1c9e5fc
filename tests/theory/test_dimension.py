"""d̃ and S: exact, between certain bounds, and with contexts that repeat."""

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rarely import InvalidContexts, InvalidInput, InvalidReward, TooExpensive
from rarely.theory import NTK, dimension, effective_dimension, reward_norm
from worlds import unit_rows


def quiet(_):
    pass


@given(st.integers(0, 10**6), st.integers(1, 40), st.floats(-3, 2), st.integers(2, 4))
def test_the_definition(seed, n, log_ridge, depth):
    x, ridge = unit_rows(seed, n, 3), 10**log_ridge
    found = effective_dimension(x, ridge=ridge, depth=depth)
    sign, expected = np.linalg.slogdet(np.eye(n) + NTK(depth).matrix(x) / ridge)
    assert sign == 1
    assert found.log_det == pytest.approx(expected, rel=1e-9)
    assert found.value == pytest.approx(expected / math.log1p(n / ridge), rel=1e-9)
    assert found.exact
    assert found.confidence == 1
    assert found.count == n


def test_repeated_contexts_count_as_the_directions_they_share():
    x = unit_rows(0, 4, 3)
    repeated = effective_dimension(np.repeat(x, 5, axis=0), ridge=0.5)
    weighted = np.linalg.slogdet(np.eye(4) + 5 * NTK().matrix(x) / 0.5)[1]
    assert repeated.log_det == pytest.approx(weighted, rel=1e-9)


def memory_for(count, numbers):
    """A limit that leaves so many numbers a context to each half."""
    return 16 * count * numbers


@pytest.mark.parametrize("ridge", [1.0, 0.01, 1e-6])
@pytest.mark.parametrize("dim", [2, 8])
def test_the_bounds_hold_the_truth_at_least_as_often_as_they_say(ridge, dim):
    missed = 0
    for seed in range(20):
        x = unit_rows(seed, 300, dim)
        truth = dimension.exact(NTK(), x, ridge).value
        found = dimension.bracketed(NTK(), x, ridge, memory_for(300, 130), seed, quiet)
        missed += not found.lower <= truth <= found.upper
        assert found.lower <= found.value <= found.upper
        assert found.upper - found.lower < 0.3 * truth
    assert missed <= 1


@given(st.integers(0, 10**6), st.floats(-8, 2), st.integers(1, 4), st.floats(0, 3))
def test_nothing_that_is_left_out_is_forgotten(seed, log_ridge, dim, stretch):
    """Norms that differ by many powers of ten, so that some directions are too faint to be told from rounding."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(150, dim)) * np.exp(stretch * rng.normal(size=(150, 1)))
    ridge = 10**log_ridge
    found = dimension.bracketed(NTK(), x, ridge, memory_for(150, 400), seed, quiet)
    values = np.linalg.eigvalsh(NTK().matrix(x))
    # Rounding of H itself: what its smallest eigenvalues may be.
    faint = len(x) * np.finfo(float).eps * values[-1]
    low, high = (np.log1p(np.maximum(values + side * faint, 0) / ridge).sum() for side in (-1, 1))
    assert found.lower <= high * (1 + 1e-9)
    assert found.upper >= low * (1 - 1e-9)
    assert found.lower <= found.value <= found.upper


@given(st.integers(0, 10**6), st.integers(5, 60), st.integers(1, 60), st.floats(-2, 1))
def test_what_is_certain_without_sampling_is_certain(seed, n, rank, log_ridge):
    """QᵀΛQ ⪯ H, its remainder's diagonal, and the bracket that they give; also where contexts repeat."""
    x, ridge = unit_rows(seed, n, 3), 10**log_ridge
    x = np.concatenate([x, x[: n // 2]])
    kernel = NTK()
    matrix = kernel.matrix(x)
    share = dimension.Share(columns=rank, block=7, probes=8, steps=8)
    values, directions = dimension._low_rank(kernel, x, share, np.random.default_rng(seed), quiet)
    found = directions.T @ (values[:, None] * directions)
    rest = dimension._remainder(kernel.diagonal(x), values, directions)
    np.testing.assert_allclose(directions @ directions.T, np.eye(len(values)), atol=1e-7)
    np.testing.assert_allclose(np.diagonal(matrix - found), rest, atol=1e-9)
    assert np.linalg.eigvalsh(matrix - found)[0] > -1e-9
    known = np.linalg.slogdet(np.eye(len(x)) + found / ridge)[1]
    truth = dimension.exact(kernel, x, ridge).value
    assert known - 1e-6 <= truth <= known + np.log1p(rest / ridge).sum() + 1e-6


def test_a_bracket_that_is_narrow_needs_no_chance():
    x = np.repeat(unit_rows(1, 6, 3), 50, axis=0)
    found = dimension.bracketed(NTK(), x, 1.0, memory_for(300, 130), 0, quiet)
    assert found.confidence == 1
    assert found.value == pytest.approx(dimension.exact(NTK(), x, 1.0).value, rel=1e-6)


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
    lower, upper = dimension.gauss_bounds(np.array(diagonal), np.array(beside[:-1]), beside[-1])
    square = v @ v
    assert square * lower <= truth * (1 + 1e-7) + 1e-9
    assert truth <= square * upper * (1 + 1e-7) + 1e-9


def test_the_mean_over_probes_is_between_its_quadratures_from_the_first_step_on():
    rng = np.random.default_rng(0)
    half = rng.normal(size=(40, 60)) / 4
    matrix, probes = half @ half.T, rng.normal(size=(40, 8))
    values, vectors = np.linalg.eigh(matrix)
    truth = np.mean(np.square(vectors.T @ probes).T @ np.log1p(values))
    widths = []
    for steps in (1, 2, 4, 8, 16):
        least, most = dimension.quadratures(lambda v: matrix @ v, probes, steps, 0.0, quiet)
        assert least < truth < most
        widths.append(most - least)
    assert np.all(np.diff(widths) < 0)
    assert widths[-1] < 1e-3 * truth


def test_a_probe_without_anything_to_find_has_an_exact_quadrature():
    matrix = np.diag([1.0, 0.0, 0.0])
    probes = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    least, most = dimension.quadratures(lambda v: matrix @ v, probes, 3, 0.0, quiet)
    assert least == pytest.approx(np.log(2) / 2)
    assert most == pytest.approx(np.log(2) / 2)


def test_the_majorant_of_the_spread_is_one_and_concave():
    x = np.concatenate([[0], np.geomspace(1e-6, 1e8, 4001)])
    above = [np.square(dimension.tails(np.array([r]), 1)[1]) / (4 * math.log(2 / dimension.FAILURE)) for r in x]
    assert np.all(above >= np.log1p(x) ** 2 * (1 - 1e-12))
    slopes = np.diff(above) / np.diff(x)
    assert np.all(np.diff(slopes) <= 1e-9)
    assert np.all(np.array(above)[1:] <= dimension.SLOPE * x[1:] * (1 + 1e-9))


@pytest.mark.parametrize("eigenvalues", [[1.0], [5.0, 0.1, 0.1], [0.3] * 30, [1e4, 1.0]])
def test_the_tails_hold_for_any_number_of_probes(eigenvalues):
    """On either side half of δ, for a diagonal G, whose E_ii/λ are its eigenvalues."""
    eigenvalues = np.array(eigenvalues)
    logs, rng = np.log1p(eigenvalues), np.random.default_rng(0)
    for probes in (1, 4, 32):
        below, above = dimension.tails(eigenvalues, probes)
        assert below > above
        means = rng.chisquare(probes, size=(20_000, len(logs))) @ logs / probes
        for outside in (means - logs.sum() > below, logs.sum() - means > above):
            assert outside.mean() <= dimension.FAILURE / 2 + 3 * math.sqrt(dimension.FAILURE / 2 / 20_000)


def test_a_small_limit_asks_for_the_bracket_and_says_what_it_does():
    x, said = unit_rows(3, 400, 4), []
    limit = memory_for(400, 200)
    found = effective_dimension(x, ridge=0.1, memory_limit=limit, progress=said.append)
    truth = effective_dimension(x, ridge=0.1)
    assert truth.exact
    assert not found.exact
    assert found.lower <= truth.value <= found.upper
    assert found.confidence == 0.95
    assert any("Lanczos" in line for line in said)
    assert found == effective_dimension(x, ridge=0.1, memory_limit=limit)
    with pytest.raises(TooExpensive, match="sample of the contexts"):
        effective_dimension(x, ridge=0.1, memory_limit=memory_for(400, 100))


@pytest.mark.parametrize("numbers", [130, 300])
def test_the_memory_is_what_was_allowed(numbers):
    x = unit_rows(4, 4000, 5)
    limit = memory_for(4000, numbers)
    tracemalloc.start()
    effective_dimension(x, ridge=0.1, memory_limit=limit)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= limit


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
    for seed in (-1, "a"):
        with pytest.raises(InvalidInput, match="seed"):
            effective_dimension(np.eye(2), ridge=1.0, seed=seed)
