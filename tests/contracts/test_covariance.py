"""What every form of Z promises, held against the dense p×p truth. A new form is one line in FORMS."""

import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oracle import DenseZ, ExactZ
from rarely import InvalidInput, JitterWarning, NotPositiveDefinite, RoundingWarning, TooExpensive, prices
from rarely.core.covariance import FORMS, Limit
from rarely.core.covariance.auto import Auto
from rarely.core.covariance.sketch_settings import Sketch
from rarely.core.model.features import Factors
from rarely.core.model.network import Network
from rounds import HARD

ALL = sorted(FORMS)
EPSILON = np.finfo(np.float64).eps


def make(kind, net, ridge, **limit):
    return FORMS[kind](net.shapes, ridge, Limit(net.shapes, **limit))


def dense_vectors(kind, factors):
    return factors.last_layer().vectors() if kind == "last_layer" else factors.vectors()


def features(net, rng, n):
    """Features at weights of their own, as those of one batch are."""
    weights = tuple(rng.normal(size=s) / np.sqrt(s[1]) for s in net.shapes)
    return net.values_and_factors(weights, rng.normal(size=(n, net.dim)))[1]


def record(form, factors):
    proposal = form.propose(form.measure(factors))
    form.accept(proposal, len(factors))
    return proposal


@st.composite
def cases(draw):
    net = Network(draw(st.integers(1, 3)), draw(st.sampled_from([2, 4])), draw(st.integers(2, 4)))
    ridge = 10 ** draw(st.floats(-3, 1))
    batches = draw(st.lists(st.lists(st.integers(1, 7), min_size=0, max_size=3), max_size=4))
    return net, ridge, batches, draw(st.integers(0, 10**6))


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.usefixtures("no_small_networks")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cases())
def test_frozen_and_running_are_the_dense_matrices_batch_after_batch(kind, case):
    """No data, p < t and p > t, several weights, blocks of any size cut anywhere."""
    net, ridge, batches, seed = case
    rng = np.random.default_rng(seed)
    form = make(kind, net, ridge)
    p = net.shapes[-1][1] if kind == "last_layer" else net.parameters
    dense = DenseZ(p, ridge, diagonal=kind == "diagonal")
    for blocks in [*batches, []]:
        weights = tuple(rng.normal(size=s) / np.sqrt(s[1]) for s in net.shapes)
        candidates = net.values_and_factors(weights, rng.normal(size=(4, net.dim)))[1]
        for n in blocks:
            factors = net.values_and_factors(weights, rng.normal(size=(n, net.dim)))[1]
            proposal = form.propose(form.measure(factors))
            keep = int(rng.integers(0, n + 1))
            vectors = dense_vectors(kind, factors)
            form.accept(proposal, keep)
            for i in range(keep):
                dense.add(vectors[i])
                np.testing.assert_allclose(proposal.log_dets[i], dense.log_det, rtol=1e-8, atol=1e-8)
            np.testing.assert_allclose(form.log_det, dense.log_det, rtol=1e-8, atol=1e-8)
            truth = [dense.variance(v) for v in dense_vectors(kind, candidates)]
            np.testing.assert_allclose(form.measure(candidates).variances, truth, rtol=1e-6, atol=1e-9 / ridge)
        form.freeze()
        dense.freeze()
        assert form.frozen_log_det == form.log_det


@st.composite
def hard_rounds(draw):
    """Vectors, λ and candidates, in any unit of measurement; each round beside what is decided with it."""
    kind, seed = draw(st.sampled_from(HARD)), draw(st.integers(0, 2**32 - 1))
    rng, unit = np.random.default_rng(seed), 10.0 ** draw(st.integers(-6, 6))
    n, p = draw(st.integers(1, 48)), draw(st.integers(1, 6))
    vectors = unit * kind(rng, n, p)
    candidates = np.vstack((vectors[-2:], unit * rng.normal(size=(2, p))))
    return vectors, candidates, unit**2 * 10.0 ** draw(st.floats(-8, 3)), rng


@pytest.mark.parametrize(
    ("kind", "size", "digits"),
    [("dual", 2, 1e5), ("primal", 2, 1e3), ("sketched", 400, 1e3), ("sketched", 12, 1e3), ("sketched", 4, 1e3)],
)
@given(hard_rounds())
def test_the_full_matrix_is_within_the_bound_but_for_rounding(kind, size, digits, case):
    """The truth has 80 digits. Rounding may change v by `digits`·ε·cond(Z) of itself, whatever the rounds."""
    vectors, candidates, ridge, rng = case
    widths = ((1, vectors.shape[1]),)
    form, exact = FORMS[kind](widths, ridge, Limit(widths, sketch=Sketch(size))), ExactZ(vectors.shape[1], ridge)
    done = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RoundingWarning)
        while done < len(vectors):
            part = vectors[done : done + int(rng.integers(1, 9))]
            record(form, vectors_as_factors(part))
            if rng.random() < 0.3:
                form.freeze()
            done += len(part)
        form.freeze()
        measured = form.measure(vectors_as_factors(candidates)).variances
    for phi in vectors:
        exact.add(phi)
    truth, bound = exact.variances(candidates), form.error_bound
    rounding = digits * EPSILON * exact.condition
    ratios = np.maximum(measured / truth, truth / np.maximum(measured, np.finfo(np.float64).tiny))
    assert ratios.max() <= bound.ratio * (1 + rounding)
    assert abs(form.log_det - exact.log_det) <= bound.log_det + rounding * (1 + exact.log_det)


def vectors_as_factors(vectors):
    return Factors((np.ascontiguousarray(vectors),), (np.ones((len(vectors), 1)),))


@pytest.mark.parametrize("kind", ALL)
def test_a_whole_panel_and_more_is_still_the_dense_matrix(kind):
    net, rng = Network(2, 4), np.random.default_rng(0)
    form = make(kind, net, 0.05)
    p = 4 if kind == "last_layer" else net.parameters
    dense = DenseZ(p, 0.05, diagonal=kind == "diagonal")
    for n in (100, 60, 1, 200):
        factors = features(net, rng, n)
        record(form, factors)
        for v in dense_vectors(kind, factors):
            dense.add(v)
        form.freeze()
        dense.freeze()
    candidates = features(net, rng, 5)
    truth = [dense.variance(v) for v in dense_vectors(kind, candidates)]
    np.testing.assert_allclose(form.measure(candidates).variances, truth, rtol=1e-9)
    np.testing.assert_allclose(form.log_det, dense.log_det, rtol=1e-11)


@pytest.mark.parametrize("kind", ALL)
def test_before_any_data_the_variance_is_the_squared_norm_over_the_ridge(kind):
    net, rng = Network(2, 4), np.random.default_rng(0)
    factors = features(net, rng, 3)
    norms = np.square(dense_vectors(kind, factors)).sum(axis=1)
    np.testing.assert_allclose(make(kind, net, 0.25).measure(factors).variances, norms / 0.25)


@pytest.mark.parametrize("kind", ALL)
def test_accepting_rounds_does_not_touch_the_frozen_matrix(kind):
    net, rng = Network(2, 4), np.random.default_rng(0)
    form, candidates = make(kind, net, 0.1), features(net, rng, 3)
    record(form, features(net, rng, 5))
    form.freeze()
    before = form.measure(candidates).variances
    for _ in range(30):
        record(form, features(net, rng, 3))
        assert np.array_equal(form.measure(candidates).variances, before)
    form.freeze()
    assert np.all(form.measure(candidates).variances < before)


@pytest.mark.parametrize("kind", ALL)
def test_a_dropped_fork_leaves_the_original_as_it_was(kind):
    net, rng = Network(2, 4), np.random.default_rng(0)
    form, candidates = make(kind, net, 0.1), features(net, rng, 3)
    record(form, features(net, rng, 5))
    form.freeze()
    before, log_det = form.measure(candidates).variances, form.log_det
    fork = form.fork()
    for _ in range(10):
        record(fork, features(net, rng, 4))
        fork.freeze()
    assert np.array_equal(form.measure(candidates).variances, before)
    assert form.log_det == log_det
    next_round = features(net, rng, 2)
    expected = make(kind, net, 0.1)
    rng = np.random.default_rng(0)
    features(net, rng, 3)
    record(expected, features(net, rng, 5))
    np.testing.assert_allclose(record(form, next_round).log_dets, record(expected, next_round).log_dets, rtol=1e-12)


@pytest.mark.parametrize("kind", ALL)
def test_a_restored_form_has_the_same_future_bit_for_bit(kind):
    net, rng = Network(2, 4), np.random.default_rng(0)
    form = make(kind, net, 0.1)
    for n in (5, 150, 3):
        record(form, features(net, rng, n))
        if n == 150:
            form.freeze()
    again = make(kind, net, 0.1)
    numbers, arrays = form.state()
    again.restore(numbers, {name: array.copy() for name, array in arrays.items()})
    candidates, later = features(net, rng, 3), features(net, rng, 140)
    assert again.rounds == form.rounds
    assert np.array_equal(again.measure(candidates).variances, form.measure(candidates).variances)
    for form_now in (form, again):
        record(form_now, later)
        form_now.freeze()
    assert again.log_det == form.log_det
    assert np.array_equal(again.measure(candidates).variances, form.measure(candidates).variances)


@pytest.fixture
def no_small_networks(monkeypatch):
    """Let small networks stand for large ones, which start dual."""
    monkeypatch.setattr("rarely.core.covariance.auto.SMALL", 0)


def test_auto_goes_from_dual_to_primal_at_an_update_once_rounds_outnumber_parameters(no_small_networks):
    net, rng = Network(2, 4), np.random.default_rng(0)
    form = make("auto", net, 0.1)
    record(form, features(net, rng, net.parameters - 1))
    form.freeze()
    assert form.kind == "dual"
    record(form, features(net, rng, 1))
    assert form.kind == "dual"
    form.freeze()
    assert form.kind == "primal"


def test_auto_starts_primal_where_it_is_cheaper_from_the_start(no_small_networks, monkeypatch):
    net = Network(2, 4)
    assert Auto(net.shapes, 0.1, Limit(net.shapes), ahead=49).kind == "primal"
    assert Auto(net.shapes, 0.1, Limit(net.shapes), ahead=48).kind == "dual"
    monkeypatch.setattr("rarely.core.covariance.auto.SMALL", net.parameters)
    assert Auto(net.shapes, 0.1, Limit(net.shapes)).kind == "primal"


def test_auto_goes_primal_before_a_batch_that_is_known_to_be_long(no_small_networks):
    net, rng = Network(2, 4), np.random.default_rng(0)
    form = make("auto", net, 0.1)
    record(form, features(net, rng, 3))
    form.freeze(ahead=45)
    assert form.kind == "dual"
    form.freeze(ahead=46)
    assert form.kind == "primal"


def test_auto_stays_dual_where_primal_would_not_fit():
    """A wide first layer: p² is out of reach where t² is not."""
    net, rng = Network(1, 200), np.random.default_rng(0)
    rounds = net.parameters + 10
    fits = prices(net.shapes, rounds)
    assert fits["dual"].bytes < fits["primal"].bytes
    form = make("auto", net, 0.1, bytes=fits["dual"].bytes)
    record(form, features(net, rng, rounds))
    form.freeze()
    assert form.kind == "dual"
    roomy = make("auto", net, 0.1, bytes=fits["primal"].bytes)
    record(roomy, features(net, rng, rounds))
    roomy.freeze()
    assert roomy.kind == "primal"


@pytest.mark.parametrize("kind", sorted(prices(((1, 1),), 0)))
def test_too_dear_a_form_is_refused_with_the_prices_of_the_others(kind):
    net, rng = Network(2, 4), np.random.default_rng(0)

    def use():
        record(make(kind, net, 0.1, bytes=10), features(net, rng, 3))

    with pytest.raises(TooExpensive) as refused:
        use()
    others = set(prices(net.shapes, 3)) - {kind, "sketched"}
    assert all(f"{other} (" in str(refused.value) for other in others)
    assert "limits.memory" in str(refused.value)


@pytest.mark.parametrize("kind", ["dual", "primal", "sketched"])
def test_the_price_bounds_the_arrays_that_a_form_keeps(kind):
    net, rng = Network(4, 10), np.random.default_rng(0)
    form = make(kind, net, 0.1)
    for n in (200, 100):
        record(form, features(net, rng, n))
    kept = sum(array.nbytes for array in form.state()[1].values())
    assert kept <= 1.05 * prices(net.shapes, 300)[kind].bytes


@pytest.mark.parametrize("kind", ["dual", "primal", "sketched"])
def test_lost_definiteness_is_announced_and_counted(kind):
    """Forty times one context of norm 1e7 under a ridge of 1e-6: λ is below the rounding of K."""
    net, rng = Network(2, 4), np.random.default_rng(0)
    x = np.repeat(1e7 * rng.normal(size=(1, 2)), 40, axis=0)
    factors = net.values_and_factors(net.initial_weights(rng), x)[1]
    form = make(kind, net, 1e-6)

    def play():
        record(form, factors)
        form.freeze()

    with pytest.warns(JitterWarning, match="larger ridge"):
        play()
    assert form.jitters > 0
    assert np.isfinite(form.log_det)
    again = make(kind, net, 1e-6)
    again.restore(*form.state())
    assert again.jitters == form.jitters


@pytest.mark.parametrize("kind", ["dual", "primal", "sketched"])
def test_definiteness_that_single_rounds_lose_is_announced_as_that_of_a_block(kind):
    """What is left of a round beyond the others is rounding alone, so the jitter must be relative to the round."""
    net, rng = Network(2, 4), np.random.default_rng(0)
    x = np.repeat(1e7 * rng.normal(size=(1, 2)), 20, axis=0)
    factors = net.values_and_factors(net.initial_weights(rng), x)[1]
    form = make(kind, net, 1e-6)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(20):
            record(form, factors[[i]])
        form.freeze()
        variances = form.measure(factors[:3]).variances
    assert form.jitters == sum(issubclass(one.category, JitterWarning) for one in caught)
    assert form.jitters > 0
    assert np.isfinite(form.log_det)
    assert np.all((variances >= 0) & (variances <= factors[:3].squared_norms / 1e-6))


def test_a_pivot_that_may_be_rounding_alone_takes_a_jitter_of_the_size_of_its_row():
    from rarely.core.covariance.growing_cholesky import GrowingCholesky

    for last in (0.0, 8.9e-16):  # what is left after the subtraction: nothing, or noise
        factor = GrowingCholesky()
        factor.append(factor.border(np.empty((0, 1)), np.array([[4.0]])))
        with pytest.warns(JitterWarning, match=r"up to 4e-12 was added"):
            rows = factor.border(np.array([[4.0]]), np.array([[4.0 + last]]))
        np.testing.assert_allclose(rows, [[2.0, 2e-6]], rtol=1e-3)
        assert factor.jitters == 1


def test_a_hopeless_matrix_is_a_typed_error():
    from rarely.core.covariance.cholesky import cholesky

    with pytest.raises(NotPositiveDefinite):
        cholesky(np.array([[1.0, 2.0], [2.0, 1.0]]))


def test_a_barely_indefinite_matrix_is_mended_aloud():
    from rarely.core.covariance.cholesky import cholesky

    matrix = np.ones((3, 3)) - 1e-13 * np.eye(3)
    with pytest.warns(JitterWarning, match="not positive definite"):
        factor, jitters = cholesky(matrix)
    assert jitters >= 1
    np.testing.assert_allclose(factor @ factor.T, matrix, atol=1e-7)


@given(st.integers(1, 300), st.integers(1, 90), st.integers(0, 10**6))
def test_the_growing_factor_solves_like_the_whole_one(size, step, seed):
    from rarely.core.covariance.growing_cholesky import GrowingCholesky

    rng = np.random.default_rng(seed)
    a = rng.normal(size=(size, size + 3))
    a = a @ a.T / size + np.eye(size)
    growing = GrowingCholesky()
    for start in range(0, size, step):
        end = min(size, start + step)
        growing.append(growing.border(a[:start, start:end], a[start:end, start:end]))
    rhs = rng.normal(size=(size, 2))
    for rows in {1, size // 2 or 1, size}:
        truth = np.linalg.solve(np.linalg.cholesky(a[:rows, :rows]), rhs[:rows])
        np.testing.assert_allclose(growing.solve(rhs[:rows], rows), truth, rtol=1e-8, atol=1e-9)


def test_a_bonus_that_rounding_has_eaten_is_announced():
    """Raw contexts of norm 1e6 under a ridge of 0.01: the dual form is a difference of equal numbers."""
    net, rng = Network(2, 4), np.random.default_rng(0)
    factors = net.values_and_factors(net.initial_weights(rng), 1e6 * rng.normal(size=(30, 2)))[1]
    form = make("dual", net, 0.01)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        record(form, factors)
        form.freeze()
    with pytest.warns(RoundingWarning, match="primal"):
        form.measure(factors[:5])


@pytest.mark.parametrize("kind", ALL)
def test_cross_terms_are_there_exactly_where_a_round_adds_its_feature_alone(kind):
    net, rng = Network(2, 4), np.random.default_rng(0)
    form = make(kind, net, 0.5)
    record(form, features(net, rng, 3))
    one, others = (form.measure(features(net, rng, n), running=True) for n in (1, 4))
    if form.additive:
        assert form.cross(one, others).shape == (4,)
    else:
        with pytest.raises(InvalidInput, match=r"cross terms need a form .* measure the others again"):
            form.cross(one, others)
