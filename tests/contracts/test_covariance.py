"""What every form of Z promises, against the dense p×p truth. A new form is one line in FORMS."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle import ExactZ
from rarely import JitterWarning, NotPositiveDefinite, RoundingWarning, TooExpensive, prices
from rarely._core.covariance import FORMS, CovarianceFactory, Limit, factory, primal
from rarely._core.covariance.cholesky import GrowingCholesky, cholesky
from rarely._core.model.features import Factors
from rarely._core.model.network import Network
from rarely._core.saving.fields import Fields
from rarely.testing import check_covariance
from rounds import HARD

ALL = sorted(FORMS)
DENSE = {
    "diagonal": {"matrix": lambda vectors, ridge: np.diag(ridge + np.square(vectors).sum(axis=0))},
    "last_layer": {"vectors": lambda factors: factors.last_layer().vectors()},
}
"""What an approximation stands for."""
EPSILON = np.finfo(np.float64).eps
ROOM = 2**32


def make(kind, net, ridge, **limit):
    return FORMS[kind](net.shapes, ridge, Limit(net.shapes, **limit))


def features(net, rng, n):
    """Features at weights of their own, as those of one batch are."""
    weights = tuple(rng.normal(size=s) / np.sqrt(s[1]) for s in net.shapes)
    return net.values_and_factors(weights, rng.normal(size=(n, net.dim)))[1]


def record(form, factors):
    proposal = form.propose(form.measure(factors))
    form.accept(proposal, len(factors))
    return proposal


@pytest.mark.parametrize("kind", ALL)
@given(st.integers(0, 10**6))
def test_a_form_keeps_its_promises(kind, seed):
    check_covariance(
        lambda widths, ridge: FORMS[kind](widths, ridge, Limit(widths)), seed=seed, examples=1, **DENSE.get(kind, {})
    )


@pytest.mark.parametrize("kind", ALL)
def test_more_rounds_than_a_panel_are_still_the_dense_matrix(kind):
    """A factor is kept in panels of 128 rows, and large products are computed in blocks of another size."""
    net, rng = Network(2, 4), np.random.default_rng(0)
    form, vectors = make(kind, net, 0.05), DENSE.get(kind, {}).get("vectors", Factors.vectors)
    past = []
    for n in (100, 60, 1, 200):
        past.append(features(net, rng, n))
        record(form, past[-1])
        form.freeze()
    rows = np.vstack([vectors(each) for each in past])
    whole = 0.05 * np.eye(rows.shape[1]) + rows.T @ rows
    z = DENSE["diagonal"]["matrix"](rows, 0.05) if kind == "diagonal" else whole
    candidates = features(net, rng, 5)
    truth = np.einsum("ij,ji->i", vectors(candidates), np.linalg.solve(z, vectors(candidates).T))
    np.testing.assert_allclose(form.measure(candidates).variances, truth, rtol=1e-9)
    log_det = np.linalg.slogdet(z)[1] - len(z) * np.log(0.05)
    np.testing.assert_allclose(form.log_det, log_det, rtol=1e-11)


@st.composite
def hard_rounds(draw):
    """Vectors, λ and candidates, in any unit of measurement; each round beside what is decided with it."""
    kind, seed = draw(st.sampled_from(HARD)), draw(st.integers(0, 2**32 - 1))
    rng, unit = np.random.default_rng(seed), 10.0 ** draw(st.integers(-6, 6))
    n, p = draw(st.integers(1, 48)), draw(st.integers(1, 6))
    vectors = unit * kind(rng, n, p)
    candidates = np.vstack((vectors[-2:], unit * rng.normal(size=(2, p))))
    return vectors, candidates, unit**2 * 10.0 ** draw(st.floats(-8, 3)), rng


@pytest.mark.parametrize(("kind", "digits"), [("dual", 1e5), ("primal", 1e3)])
@given(hard_rounds())
def test_the_full_matrix_is_exact_but_for_rounding(kind, digits, case):
    """The truth has 80 digits. Rounding may change v by `digits`·ε·cond(Z) of itself, whatever the rounds."""
    vectors, candidates, ridge, rng = case
    widths = ((1, vectors.shape[1]),)
    form, exact = FORMS[kind](widths, ridge, Limit(widths)), ExactZ(vectors.shape[1], ridge)
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
    truth = exact.variances(candidates)
    rounding = digits * EPSILON * exact.condition
    ratios = np.maximum(measured / truth, truth / np.maximum(measured, np.finfo(np.float64).tiny))
    assert ratios.max() <= 1 + rounding
    assert abs(form.log_det - exact.log_det) <= rounding * (1 + exact.log_det)


def vectors_as_factors(vectors):
    return Factors((np.ascontiguousarray(vectors),), (np.ones((len(vectors), 1)),))


@pytest.fixture
def no_small_networks(monkeypatch):
    """Let small networks stand for large ones, which start dual."""
    monkeypatch.setattr(factory, "SMALL_PRIMAL", 0)


def auto(memory=ROOM, operations=None, arms=None):
    return CovarianceFactory("auto", 0.1, memory, None, operations, arms)


def test_auto_goes_from_dual_to_primal_at_an_update_once_rounds_outnumber_parameters(no_small_networks):
    net, rng = Network(2, 4), np.random.default_rng(0)
    form = auto().empty(net.shapes)
    record(form, features(net, rng, net.parameters - 1))
    form = auto().freeze_for_batch(form, 3, ahead=0)
    assert form.kind == "dual"
    record(form, features(net, rng, 1))
    assert auto().adapted(form, 3).kind == "dual"
    assert auto().freeze_for_batch(form, 3, ahead=0).kind == "primal"


def test_auto_goes_primal_inside_a_batch_that_nobody_knew_to_be_long(no_small_networks):
    net, rng = Network(2, 4), np.random.default_rng(0)
    form = auto().empty(net.shapes)
    record(form, features(net, rng, 4 * net.parameters - 1))
    assert auto().adapted(form, 3) is form
    assert auto().rounds_until_change(form, 3) == 1
    record(form, features(net, rng, 1))
    assert auto().adapted(form, 3).kind == "primal"


def test_auto_starts_primal_where_it_is_cheaper_from_the_start(no_small_networks, monkeypatch):
    net = Network(2, 4)
    assert auto().empty(net.shapes, ahead=49).kind == "primal"
    assert auto().empty(net.shapes, ahead=48).kind == "dual"
    monkeypatch.setattr(factory, "SMALL_PRIMAL", net.parameters)
    assert auto().empty(net.shapes).kind == "primal"


def test_auto_goes_primal_before_a_batch_that_is_known_to_be_long(no_small_networks):
    net, rng = Network(2, 4), np.random.default_rng(0)
    form = auto().empty(net.shapes)
    record(form, features(net, rng, 3))
    form = auto().freeze_for_batch(form, 3, ahead=45)
    assert form.kind == "dual"
    assert auto().freeze_for_batch(form, 3, ahead=46).kind == "primal"


def test_auto_stays_dual_where_primal_would_not_fit():
    """A wide first layer: p² is out of reach where t² is not."""
    net, rng = Network(1, 200), np.random.default_rng(0)
    rounds = net.parameters + 10
    fits = prices(net.shapes, rounds)
    assert fits["dual"].bytes < fits["primal"].bytes
    past = features(net, rng, rounds)
    for room, kind in (("dual", "dual"), ("primal", "primal")):
        maker = auto(fits[room].bytes)
        form = maker.empty(net.shapes)
        record(form, past)
        assert maker.freeze_for_batch(form, 3, ahead=0).kind == kind


@pytest.mark.parametrize("frozen", [0, 5, 17])
def test_a_change_of_form_keeps_both_matrices(no_small_networks, frozen):
    """Dual to primal, inside a batch or at its start, with the same bonuses and log dets."""
    net, rng = Network(2, 4), np.random.default_rng(0)
    form, candidates = auto().empty(net.shapes), features(net, rng, 4)
    for count in (frozen, 17 - frozen):
        record(form, features(net, rng, count))
        if form.rounds == frozen:
            form.freeze()
    primal = CovarianceFactory("primal", 0.1, ROOM, None).converted(form, 3, same_form=False)
    assert (form.kind, primal.kind, primal.rounds) == ("dual", "primal", 17)
    for running in (False, True):
        truth = form.measure(candidates, running=running).variances
        np.testing.assert_allclose(primal.measure(candidates, running=running).variances, truth, rtol=1e-9)
    np.testing.assert_allclose([primal.log_det, primal.frozen_log_det], [form.log_det, form.frozen_log_det], rtol=1e-9)


@pytest.mark.parametrize("kind", sorted(prices(((1, 1),), 0)))
def test_too_dear_a_form_is_refused_with_the_prices_of_the_others(kind):
    net, rng = Network(2, 4), np.random.default_rng(0)

    def use():
        record(make(kind, net, 0.1, bytes=10), features(net, rng, 3))

    with pytest.raises(TooExpensive) as refused:
        use()
    others = set(prices(net.shapes, 3)) - {kind}
    assert all(f"{other} (" in str(refused.value) for other in others)
    assert "limits.memory" in str(refused.value)


@pytest.mark.parametrize("kind", ["dual", "primal"])
def test_the_price_bounds_the_arrays_that_a_form_keeps(kind):
    net, rng = Network(4, 10), np.random.default_rng(0)
    form = make(kind, net, 0.1)
    for n in (200, 100):
        record(form, features(net, rng, n))
    kept = sum(array.nbytes for array in form.state()[1].values())
    assert kept <= 1.05 * prices(net.shapes, 300)[kind].bytes


@pytest.mark.parametrize("kind", ["dual", "primal"])
def test_lost_definiteness_is_announced_and_counted(kind, monkeypatch):
    """Forty times one context of norm 1e7 under a ridge of 1e-6: λ is below the rounding of K."""
    monkeypatch.setattr(primal, "MOST_UPDATED", 0)
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
    again.read(Fields("covariance", *form.state()))
    assert again.jitters == form.jitters


def test_the_primal_form_keeps_the_digits_of_equal_rounds():
    net, rng = Network(2, 4), np.random.default_rng(0)
    x = np.repeat(1e7 * rng.normal(size=(1, 2)), 20, axis=0)
    factors = net.values_and_factors(net.initial_weights(rng), x)[1]
    form = make("primal", net, 1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in range(20):
            record(form, factors[[i]])
        form.freeze()
        norms = factors.squared_norms[0]
        np.testing.assert_allclose(form.measure(factors[:3]).variances, norms / (1e-6 + 20 * norms), rtol=1e-10)
    assert form.log_det == pytest.approx(np.log1p(20 * norms / 1e-6), rel=1e-10)


def test_definiteness_that_single_rounds_lose_is_announced_as_that_of_a_block():
    """What is left of a round beyond the others is rounding alone, so the jitter must be relative to the round."""
    net, rng = Network(2, 4), np.random.default_rng(0)
    x = np.repeat(1e7 * rng.normal(size=(1, 2)), 20, axis=0)
    factors = net.values_and_factors(net.initial_weights(rng), x)[1]
    form = make("dual", net, 1e-6)
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
    for last in (0.0, 8.9e-16):  # what is left after the subtraction: nothing, or noise
        factor = GrowingCholesky()
        factor.append(factor.border(np.empty((0, 1)), np.array([[4.0]])))
        with pytest.warns(JitterWarning, match=r"up to 4e-12 was added"):
            rows = factor.border(np.array([[4.0]]), np.array([[4.0 + last]]))
        np.testing.assert_allclose(rows, [[2.0, 2e-6]], rtol=1e-3)
        assert factor.jitters == 1


def test_a_hopeless_matrix_is_a_typed_error():
    with pytest.raises(NotPositiveDefinite):
        cholesky(np.array([[1.0, 2.0], [2.0, 1.0]]))


def test_a_barely_indefinite_matrix_is_mended_aloud():
    matrix = np.ones((3, 3)) - 1e-13 * np.eye(3)
    with pytest.warns(JitterWarning, match="not positive definite"):
        factor, jitters = cholesky(matrix)
    assert jitters >= 1
    np.testing.assert_allclose(factor @ factor.T, matrix, atol=1e-7)


@given(st.integers(1, 300), st.integers(1, 90), st.integers(0, 10**6))
def test_the_growing_factor_solves_like_the_whole_one(size, step, seed):
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


def test_the_diagonal_form_sums_its_log_det_anew_when_a_batch_begins():
    net, rng = Network(3, 6), np.random.default_rng(0)
    form = make("diagonal", net, 0.1)
    for _ in range(40):
        record(form, features(net, rng, 1))
    form.freeze()
    diagonals = [array for name, array in form.state()[1].items() if name.startswith("running")]
    assert form.log_det == sum(np.log(z / 0.1).sum() for z in diagonals)


def test_the_diagonal_form_survives_a_product_that_overflows():
    net, rng = Network(3, 6), np.random.default_rng(0)
    form, huge = make("diagonal", net, 1.0), features(net, rng, 2)
    huge = Factors(tuple(1e80 * a for a in huge.inputs), tuple(1e70 * d for d in huge.signals))
    record(form, huge)
    diagonals = [array for name, array in form.state()[1].items() if name.startswith("running")]
    assert form.log_det == pytest.approx(sum(np.log(z).sum() for z in diagonals), rel=1e-12)


def test_a_matrix_that_rounding_cannot_explain_is_not_mended():
    with pytest.raises(NotPositiveDefinite):
        cholesky(np.ones((3, 3)) - 1e-5 * np.eye(3))


@pytest.mark.parametrize("kind", FORMS)
def test_two_forks_grow_apart(kind):
    """Both may find room behind the rows that they share."""
    net, rng = Network(3, 6), np.random.default_rng(0)
    first, more, others = (features(net, rng, 1) for _ in range(9)), features(net, rng, 2), features(net, rng, 2)
    form, alone = make(kind, net, 0.1), make(kind, net, 0.1)
    for one in first:
        record(form, one)
        record(alone, one)
    forks = form.fork(), form.fork()
    for fork, rows in zip(forks, (more, others), strict=True):
        record(fork, rows)
    record(alone, more)
    probe = features(net, rng, 4)
    for running in (False, True):
        expected = alone.measure(probe, running=running).variances
        np.testing.assert_array_equal(forks[0].measure(probe, running=running).variances, expected)
    assert forks[0].log_det == alone.log_det
