"""The sketched form: its own matrix held against the dense one, its error bound against the full Z."""

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rarely
from oracle import ExactZ
from rarely import (
    BatchNeuralUCB,
    DeterminantTrigger,
    ErrorBound,
    FixedGrid,
    InvalidInput,
    Limits,
    LinUCB,
    NeuralUCB,
    Sketch,
    TooExpensive,
    Uniform,
    prices,
)
from rarely.core.covariance import Dual, Limit, Primal, Sketched
from rarely.core.covariance.sketch.dictionary import Dictionary
from rarely.core.covariance.sketch.error_bound import excess
from rarely.core.covariance.sketch.projection import Projection
from rarely.core.model.features import Factors, joined
from rarely.core.model.network import Network
from rounds import HARD, alike_at_first, nearly_repeated, repeated
from worlds import HORIZON, MAKERS, contexts, play, small


def make(net, ridge, size):
    return Sketched(net.shapes, ridge, Limit(net.shapes, sketch=Sketch(size)))


def features(net, rng, n):
    weights = tuple(rng.normal(size=s) / np.sqrt(s[1]) for s in net.shapes)
    return net.values_and_factors(weights, rng.normal(size=(n, net.dim)))[1]


def record(form, factors, keep=None):
    proposal = form.propose(form.measure(factors))
    keep = len(factors) if keep is None else keep
    form.accept(proposal, keep)
    return proposal


def vectors_as_factors(vectors):
    return Factors((vectors,), (np.ones((len(vectors), 1)),))


class DenseSketch:
    """λI + Σ(Pφ)(Pφ)ᵀ as a p×p matrix, P by least squares on the points, and the full Z beside it."""

    def __init__(self, p, ridge):
        self.points, self.ridge = np.empty((0, p)), ridge
        self.sketched, self.full = ridge * np.eye(p), ridge * np.eye(p)

    def add(self, phi, kept):
        if kept:
            self.points = np.vstack((self.points, phi))
        projected = self.points.T @ np.linalg.lstsq(self.points.T, phi, rcond=None)[0]
        self.sketched += np.outer(projected, projected)
        self.full += np.outer(phi, phi)

    def worst_ratio(self):
        """The largest v/v~ or v~/v of any vector at all."""
        half = np.linalg.inv(np.linalg.cholesky(self.sketched))
        ratios = np.linalg.eigvalsh(half @ self.full @ half.T)
        return max(ratios[-1], 1 / ratios[0])

    def log_dets(self):
        p = len(self.full)
        return [np.linalg.slogdet(z)[1] - p * np.log(self.ridge) for z in (self.sketched, self.full)]


@st.composite
def cases(draw):
    net = Network(draw(st.integers(1, 4)), draw(st.sampled_from([2, 4, 8])), draw(st.integers(2, 4)))
    ridge, size = 10 ** draw(st.floats(-2, 1)), draw(st.integers(2, 40))
    batches = draw(st.lists(st.lists(st.integers(1, 9), min_size=0, max_size=4), max_size=4))
    return net, ridge, size, batches, draw(st.integers(0, 10**6))


@given(cases())
def test_it_is_its_own_dense_matrix_and_the_full_one_is_within_its_bound(case):
    """Shapes, depths, ridges, sizes, several weights, blocks of any size cut anywhere."""
    net, ridge, size, batches, seed = case
    rng = np.random.default_rng(seed)
    form, dense = make(net, ridge, size), DenseSketch(net.parameters, ridge)
    for blocks in batches:
        weights = tuple(rng.normal(size=s) / np.sqrt(s[1]) for s in net.shapes)
        candidates = net.values_and_factors(weights, rng.normal(size=(4, net.dim)))[1]
        for n in blocks:
            factors = net.values_and_factors(weights, rng.normal(size=(n, net.dim)))[1]
            keep = int(rng.integers(0, n + 1))
            proposal = record(form, factors, keep)
            for phi, kept in zip(factors.vectors()[:keep], proposal.kept, strict=False):
                dense.add(phi, kept)
            sketched, full = dense.log_dets()
            assert form.points == len(dense.points) <= size
            assert form.log_det == pytest.approx(sketched, rel=1e-8, abs=1e-8)
            bound = form.error_bound
            assert abs(full - form.log_det) <= bound.log_det + 1e-8 * (1 + full)
            assert dense.worst_ratio() <= bound.ratio * (1 + 1e-7)
        form.freeze()
        inverse = np.linalg.inv(dense.sketched)
        truth = [v @ inverse @ v for v in candidates.vectors()]
        np.testing.assert_allclose(form.measure(candidates).variances, truth, rtol=1e-7, atol=1e-10 / ridge)


@given(cases(), st.integers(1, 20))
def test_how_rounds_are_cut_into_calls_does_not_matter(case, step):
    net, ridge, size, batches, seed = case
    rng = np.random.default_rng(seed)
    many, single = make(net, ridge, size), make(net, ridge, size)
    for n in (sum(blocks) for blocks in batches):
        factors = features(net, rng, n)
        for start in range(0, n, step):
            record(many, factors[start : start + step])
        for i in range(n):
            record(single, factors[[i, i]], keep=1)
        assert many.points == single.points
        many.freeze()
        single.freeze()
    candidates = features(net, rng, 3)
    # The weights of a round that is no point are a least-squares solution. Rounding moves them by a small part of
    # what the sketch says was lost: by nothing where nothing was (decision 0016).
    lost = many.error_bound
    np.testing.assert_allclose(
        many.measure(candidates).variances,
        single.measure(candidates).variances,
        rtol=1e-7 + 1e-5 * (lost.ratio - 1),
        atol=1e-10 / ridge,
    )
    assert many.log_det == pytest.approx(single.log_det, rel=1e-9, abs=1e-9 + 1e-5 * lost.log_det)
    # Bounds grow as the square root of what was lost, and that may be rounding alone.
    assert many.error_bound.ratio == pytest.approx(single.error_bound.ratio, rel=1e-2)
    assert many.error_bound.log_det == pytest.approx(single.error_bound.log_det, rel=1e-2, abs=1e-1)


def test_with_two_places_for_every_round_it_is_exact():
    net, rng = Network(5, 20, 3), np.random.default_rng(0)
    form, exact = make(net, 0.01, 400), Dual(net.shapes, 0.01, Limit(net.shapes))
    for _ in range(10):
        factors = features(net, rng, 20)
        np.testing.assert_allclose(record(form, factors).log_dets, record(exact, factors).log_dets, rtol=1e-9)
        for f in (form, exact):
            f.freeze()
    candidates = joined([factors, features(net, rng, 20)])
    np.testing.assert_allclose(form.measure(candidates).variances, exact.measure(candidates).variances, rtol=1e-8)
    assert (form.points, form.error_bound) == (200, ErrorBound(1.0, 0.0))


def test_a_linear_model_that_fits_the_places_is_exact_for_life():
    sketched, exact = (
        LinUCB(4, DeterminantTrigger(log_ratio=1.0), beta=0.5, covariance=form) for form in (Sketch(10), "primal")
    )
    stream = contexts(rounds=600, dim=4)
    np.testing.assert_array_equal(play(sketched, stream), play(exact, stream))
    np.testing.assert_allclose(sketched.score(stream[0]).bonuses, exact.score(stream[0]).bonuses, rtol=1e-9)
    assert sketched.log_det == pytest.approx(exact.log_det, rel=1e-10)
    assert sketched._covariance.points == 5
    assert sketched.error_bound.ratio < 1 + 1e-5


def test_a_network_with_places_enough_chooses_like_the_exact_one():
    sketched, exact = (small(covariance=form) for form in (Sketch(2 * HORIZON), "dual"))
    np.testing.assert_array_equal(play(sketched, contexts()), play(exact, contexts()))
    np.testing.assert_allclose(sketched.score(contexts()).bonuses, exact.score(contexts()).bonuses, rtol=1e-8)


def test_a_good_sketch_knows_that_it_is_good():
    """Features of 100 numbers that all but lie in 10 of them: 500 rounds, 20 points, variances within 2 %."""
    rng = np.random.default_rng(0)
    spread = np.where(np.arange(100) < 10, 1.0, 1e-4)
    form = Sketched(((1, 100),), 1.0, Limit(((1, 100),), sketch=Sketch(24)))
    exact = Dual(((1, 100),), 1.0, Limit(((1, 100),)))
    for _ in range(5):
        factors = vectors_as_factors(rng.normal(size=(100, 100)) * spread)
        for f in (form, exact):
            record(f, factors)
            f.freeze()
    bound = form.error_bound
    assert form.points < 24
    assert 1 < bound.ratio < 1.02
    assert 0 < bound.log_det < 0.3
    candidates = vectors_as_factors(rng.normal(size=(50, 100)) * spread)
    ratios = exact.measure(candidates).variances / form.measure(candidates).variances
    assert 1 < max(ratios.max(), 1 / ratios.min()) <= bound.ratio


def test_the_bound_is_reached_up_to_a_factor():
    """One point, and rounds that lean out of its line: half the bound would be wrong."""
    form, dense = Sketched(((1, 2),), 0.1, Limit(((1, 2),), sketch=Sketch(2))), DenseSketch(2, 0.1)
    vectors = np.array([[1.0, 0.0]] + [[1.0, 1.0]] * 30)
    for phi, kept in zip(vectors, record(form, vectors_as_factors(vectors)).kept, strict=True):
        dense.add(phi, kept)
    assert form.points == 1
    assert form.error_bound.ratio / 2 < dense.worst_ratio() <= form.error_bound.ratio


def test_the_bound_by_blocks_is_below_the_sum_of_all_that_was_lost():
    net, rng = Network(5, 20, 3), np.random.default_rng(0)
    form = make(net, 0.1, 30)
    record(form, features(net, rng, 200))
    total = form._remainders._total / 0.1
    assert form.error_bound.ratio < 1 + excess(total) / 4
    record(form, features(net, rng, 1))
    assert form._remainders._total / 0.1 > total


def test_scores_and_log_det_are_woodburys_in_points_and_weights():
    """W is the sum over all rounds, whenever they are counted in it; the frozen matrix ignores later points."""
    net, rng, ridge = Network(3, 8), np.random.default_rng(0), 0.1
    form, candidates = make(net, ridge, 24), features(net, rng, 5)
    weights, truth = np.zeros((24, 24)), None
    for rounds in (1, 7, 30, 2, 9):
        proposal = record(form, features(net, rng, rounds))
        if truth is not None:
            np.testing.assert_allclose(form.measure(candidates).variances, truth, rtol=1e-9)
        new = proposal.projection.weights
        weights[: new.shape[1], : new.shape[1]] += new.T @ new
        form.freeze()
        k, gram = form.points, form._dictionary.gram
        products = form._dictionary.products(candidates, k)
        matrix = gram + ridge * np.linalg.inv(weights[:k, :k])
        explained = np.einsum("ij,ij->j", products, np.linalg.solve(matrix, products))
        truth = (candidates.squared_norms - explained) / ridge
        np.testing.assert_allclose(form.measure(candidates).variances, truth, rtol=1e-9)
        log_det = np.linalg.slogdet(matrix)[1] + np.linalg.slogdet(weights[:k, :k])[1] - k * np.log(ridge)
        assert form.log_det == pytest.approx(log_det, rel=1e-10)


def test_log_det_never_falls_and_places_never_run_out():
    net, rng = Network(4, 16), np.random.default_rng(0)
    form, last, points = make(net, 0.1, 16), 0.0, 0
    for _ in range(6):
        proposal = record(form, features(net, rng, 100))
        assert np.all(np.diff([last, *proposal.log_dets]) > 0)
        last = form.log_det
        form.freeze()
        assert form.log_det == pytest.approx(last, rel=1e-10)
        assert points < form.points < 16 or form.points == 15
        points = form.points


def test_early_large_remainders_do_not_shut_out_later_ones():
    rng = np.random.default_rng(0)
    form = Sketched(((1, 50),), 1.0, Limit(((1, 50),), sketch=Sketch(20)))
    record(form, vectors_as_factors(1e3 * rng.normal(size=(20, 50))))
    before = form.points
    record(form, vectors_as_factors(rng.normal(size=(1000, 50))))
    assert form.points > before


def test_features_of_zero_are_in_the_span_of_nothing():
    policy = LinUCB(2, FixedGrid(6, 2), intercept=False, covariance=Sketch(2))
    policy.observe(policy.select(np.zeros((3, 2, 2))), np.zeros(3))
    policy.update()
    assert policy.log_det == 0
    assert policy.error_bound == ErrorBound(1.0, 0.0)
    assert np.all(policy.score(np.ones((1, 2))).bonuses > 0)


def test_its_arrays_stop_growing():
    net, rng = Network(3, 8), np.random.default_rng(0)
    form, price = make(net, 0.1, 20), prices(net.shapes, 10**9, Sketch(20))["sketched"].bytes
    for _ in range(40):
        record(form, features(net, rng, 50))
        form.freeze()
        assert sum(array.nbytes for array in form.state()[1].values()) <= price


# --- rounding


def sketch_of(p, ridge, size):
    return Sketched(((1, p),), ridge, Limit(((1, p),), sketch=Sketch(size)))


def play_vectors(form, vectors, step):
    """All rounds in blocks, with a new batch after every third."""
    for i in range(0, len(vectors), step):
        record(form, vectors_as_factors(vectors[i : i + step]))
        if i // step % 3 == 2:
            form.freeze()
    form.freeze()


@pytest.mark.parametrize("size", [400, 20])
@pytest.mark.parametrize("spread", [0.0, 1e-5, 1e-3, 1e-1])
@pytest.mark.parametrize("ridge", [1e-6, 1e-4, 1e-2, 1.0, 1e2])
def test_nearly_dependent_rounds_cost_no_more_digits_than_in_the_dual_form(ridge, spread, size):
    """Three vectors with small differences, 150 rounds of 8 numbers: up to 9 times v as inducing points of a basis."""
    rng = np.random.default_rng(0)
    vectors = repeated(rng, 150, 8) + spread * rng.normal(size=(150, 8))
    candidates = np.vstack((vectors[:8], rng.normal(size=(8, 8))))
    exact = ExactZ(8, ridge)
    for phi in vectors:
        exact.add(phi)
    truth, rounding = exact.variances(candidates), np.finfo(np.float64).eps * exact.condition
    for form in (sketch_of(8, ridge, size), Dual(((1, 8),), ridge, Limit(((1, 8),)))):
        play_vectors(form, vectors, 7)
        variances = form.measure(vectors_as_factors(candidates)).variances
        np.testing.assert_allclose(variances, truth, rtol=1e-9 + 300 * rounding)
        assert form.log_det == pytest.approx(exact.log_det, rel=1e-10, abs=300 * rounding)


@given(st.sampled_from(HARD), st.integers(1, 8), st.integers(0, 10**6))
def test_features_of_a_quarter_as_many_numbers_as_places_lose_nothing_but_rounding(kind, p, seed):
    """Whatever the first rounds are: poor points neither take the places of good ones nor stand in for them."""
    rng = np.random.default_rng(seed)
    vectors, form = kind(rng, 120, p), sketch_of(p, 0.1, 4 * p)
    play_vectors(form, vectors, 9)
    assert form._remainders._total <= 1e-9 * np.square(vectors).sum()


@given(st.sampled_from(HARD), st.integers(1, 60), st.integers(1, 30), st.integers(0, 10**6))
def test_what_rounding_may_hide_of_a_remainder_is_no_less_than_it_does(kind, p, points, seed):
    """‖φ − Φ_Sᵀw‖² of the weights that were found, in whole numbers of 2⁻¹⁰⁷⁴."""
    rng = np.random.default_rng(seed)
    vectors = kind(rng, points + 6, p)
    form = sketch_of(p, 0.1, 400)
    record(form, vectors_as_factors(vectors[:points]))
    projection = Projection(form._dictionary, vectors_as_factors(vectors[points:]))
    kept = form._dictionary._points.view.vectors()
    for phi, weights, remainder, hidden in zip(
        vectors[points:], projection.weights, projection.remainders, projection.rounding, strict=True
    ):
        left = [Fraction(x) for x in phi]
        for weight, point in zip(weights, kept, strict=False):
            left = [x - Fraction(weight) * Fraction(y) for x, y in zip(left, point, strict=True)]
        assert abs(Fraction(remainder) - sum(x * x for x in left)) <= Fraction(hidden)


@given(st.sampled_from(HARD), st.integers(1, 12), st.integers(1, 40), st.integers(0, 10**6))
def test_pivots_are_independent_and_a_basis_of_all_points(kind, p, points, seed):
    vectors = kind(np.random.default_rng(seed), points, p)
    dictionary = Dictionary(((1, p),), points)
    for i, phi in enumerate(vectors):
        dictionary.add(vectors_as_factors(phi[None]), vectors[:i] @ phi, phi @ phi)
    dictionary.choose_pivots()
    basis = dictionary._basis.view
    assert dictionary.pivots <= min(p, points)
    orthonormal = basis @ dictionary.gram @ basis.T
    np.testing.assert_allclose(orthonormal, np.eye(dictionary.pivots), atol=1e-2)
    norms = np.linalg.norm(vectors, axis=1)
    remainders = Projection(dictionary, vectors_as_factors(vectors)).remainders
    assert np.all(remainders <= 1e-9 * norms**2)


def test_short_weights_are_the_best_that_are_so_short():
    """Two points that differ by 1e-6 in one direction: their difference is not for sale at any price."""
    dictionary = Dictionary(((1, 3),), 4)
    points = np.array([[1.0, 0.0, 0.0], [1.0, 1e-6, 0.0]])
    for i, phi in enumerate(points):
        dictionary.add(vectors_as_factors(phi[None]), points[:i] @ phi, phi @ phi)
    phi = np.array([1.0, 1.0, 1.0])
    weights = dictionary.short_weights(points @ phi, limit=50.0)
    np.testing.assert_allclose(phi - weights @ points, [0.0, 1.0, 1.0], atol=1e-5)
    unlimited = dictionary.short_weights(points @ phi, limit=1e9)
    np.testing.assert_allclose(phi - unlimited @ points, [0.0, 0.0, 1.0], atol=1e-3)


@pytest.mark.parametrize("size", [60, 24, 18])
@pytest.mark.parametrize("ridge", [1e-2, 1.0])
def test_pivots_that_are_chosen_anew_do_not_depend_on_how_rounds_are_cut(size, ridge):
    rng = np.random.default_rng(5)
    vectors = np.vstack((rng.normal(size=6) + 1e-4 * rng.normal(size=(20, 6)), rng.normal(size=(40, 6))))
    forms = [sketch_of(6, ridge, size) for _ in range(3)]
    for phi in vectors:
        record(forms[0], vectors_as_factors(phi[None]))
    for start in range(0, 60, 15):
        record(forms[1], vectors_as_factors(vectors[start : start + 15]))
    done = 0
    while done < 60:  # of each block the first rounds alone, so that what later ones did must be undone
        record(forms[2], vectors_as_factors(vectors[done : done + 12]), keep=min(5, 60 - done))
        done += 5
    candidates = vectors_as_factors(rng.normal(size=(10, 6)))
    assert forms[0]._dictionary.pivots < forms[0].points, "some points are spare"
    for form in forms:
        form.freeze()
        assert (form.points, form._dictionary.pivots) == (forms[0].points, forms[0]._dictionary.pivots)
        assert form.log_det == pytest.approx(forms[0].log_det, rel=1e-6)
        assert form.error_bound.ratio == pytest.approx(forms[0].error_bound.ratio, rel=1e-2)  # roots of rounding
        np.testing.assert_allclose(
            form.measure(candidates).variances, forms[0].measure(candidates).variances, rtol=1e-6
        )


@pytest.mark.parametrize("kind", [alike_at_first, nearly_repeated])
@pytest.mark.parametrize("size", [40, 12, 6])
def test_spare_points_pending_rounds_and_the_frozen_matrix_come_back_bit_for_bit(kind, size):
    rng = np.random.default_rng(3)
    vectors, candidates = kind(rng, 90, 5), vectors_as_factors(rng.normal(size=(6, 5)))
    form = sketch_of(5, 0.01, size)
    separate = 0
    for start in range(0, 60, 6):
        record(form, vectors_as_factors(vectors[start : start + 6]))
        if start == 24:
            form.freeze()
        again, fork = sketch_of(5, 0.01, size), form.fork()
        numbers, arrays = form.state()
        again.restore(json.loads(json.dumps(numbers)), {name: array.copy() for name, array in arrays.items()})
        separate += "frozen.factor" in arrays
        record(fork, vectors_as_factors(vectors[:30]))  # and is dropped
        fork.freeze()
        for later in (vectors[60:75], vectors[75:]):
            futures = []
            for future in (form.fork(), again):
                log_dets = record(future, vectors_as_factors(later)).log_dets
                before = future.measure(candidates).variances
                future.freeze()
                futures.append((log_dets, before, future.measure(candidates).variances, future.error_bound))
            for mine, theirs in zip(*futures, strict=True):
                assert np.array_equal(mine, theirs) if isinstance(mine, np.ndarray) else mine == theirs
            again = sketch_of(5, 0.01, size)
            again.restore(numbers, {name: array.copy() for name, array in arrays.items()})
    assert separate or size == 40


# --- the public face


@pytest.mark.parametrize("size", [1, 0, -5, 2.5, "many", None, True])
def test_impossible_sizes_are_refused(size):
    with pytest.raises(InvalidInput, match=r"Sketch\.size"):
        Sketch(size)


@pytest.mark.parametrize(
    "make_policy",
    [
        lambda form: BatchNeuralUCB(2, FixedGrid(HORIZON, 4), hidden=8, training=5, covariance=form, seed=0),
        lambda form: NeuralUCB(2, hidden=8, training=5, covariance=form, seed=0),
        lambda form: LinUCB(2, covariance=form),
        lambda form: Uniform(2, covariance=form, seed=0),
    ],
)
@pytest.mark.parametrize("form", ["sketched", Sketch(6)])
def test_every_policy_takes_a_sketch_and_brings_it_back_from_a_file(make_policy, form, tmp_path):
    policy = make_policy(form)
    play(policy, contexts()[:15])
    policy.save(tmp_path / "p")
    again = rarely.load(tmp_path / "p")
    assert again.covariance == policy.covariance == "sketched"
    assert again.settings() == policy.settings()
    assert again.error_bound == policy.error_bound
    future = contexts(seed=7)
    np.testing.assert_array_equal(play(again, future), play(policy, future))
    assert (again.log_det, again.error_bound) == (policy.log_det, policy.error_bound)
    assert again.score(future).bonuses.tobytes() == policy.score(future).bonuses.tobytes()


def test_too_large_a_sketch_is_refused_before_anything_is_allocated():
    with pytest.raises(TooExpensive, match=r"covariance 'sketched' must fit .* needs 72 TB"):
        small(covariance=Sketch(10**6))
    assert small(covariance=Sketch(50), limits=Limits(memory=400_000)).covariance == "sketched"


def test_a_refused_exact_form_names_the_others_and_not_the_sketch():
    with pytest.raises(TooExpensive, match=r"diagonal \(approximate\): .* MB") as refused:
        BatchNeuralUCB(20, FixedGrid(10**6, 20), hidden=256, depth=3, covariance="exact")
    assert "sketched" not in str(refused.value)


@pytest.mark.parametrize("name", MAKERS)
def test_every_policy_says_how_far_from_the_full_matrix_it_can_be(name):
    policy = MAKERS[name]()
    play(policy, contexts())
    bound, form = policy.error_bound, policy.covariance
    if form in ("dual", "primal"):
        assert bound == ErrorBound(1.0, 0.0)
    elif form == "sketched":
        assert bound.ratio > 1
        assert bound.log_det > 0
    else:
        assert bound is None


def lost_rows(form, phi):
    """R of every round, dense: a round's remainder outside the points of its own time."""
    rows, points = [], np.empty((0, phi.shape[1]))
    for row in phi:
        proposal = form.propose(form.measure(vectors_as_factors(row[None])))
        form.accept(proposal, 1)
        points = np.vstack((points, row)) if proposal.kept[0] else points
        rows.append(row - (points.T @ np.linalg.lstsq(points.T, row, rcond=None)[0] if len(points) else 0))
    return np.array(rows), len(points)


@pytest.mark.parametrize("seed", range(6))
def test_the_norm_of_what_was_lost_is_the_dense_one_and_the_bounds_are_their_formulas(seed):
    rng, ridge = np.random.default_rng(seed), 0.1
    form = Sketched(((1, 12),), ridge, Limit(((1, 12),), sketch=Sketch(10)))
    remainders, points = lost_rows(form, rng.normal(size=(14, 12)))
    squares = np.square(remainders).sum(axis=1)
    count, total = int((squares > 1e-12).sum()), float(squares.sum())
    assert 0 < count < 10, "one open block, with points that came after some of its rounds"
    truth = np.linalg.norm(remainders, 2) ** 2
    assert form._remainders._top(form._dictionary) == pytest.approx(truth, rel=1e-9)
    assert form.error_bound.ratio == pytest.approx(1 + excess(min(truth, total) / ridge), rel=1e-9)
    c, rank = excess(total / ridge / points), max(count, points)
    expected = points * np.log1p(c) + rank * np.log1p(c * points / rank)
    assert form.error_bound.log_det == pytest.approx(expected, rel=1e-9)


def test_a_fork_that_is_dropped_leaves_what_was_lost_as_it_was():
    rng = np.random.default_rng(0)
    form = Sketched(((1, 12),), 0.1, Limit(((1, 12),), sketch=Sketch(4)))
    record(form, vectors_as_factors(rng.normal(size=(9, 12))))
    before, recent = form.error_bound, form._remainders.recent()
    record(form.fork(), vectors_as_factors(5 * rng.normal(size=(9, 12))))
    assert form.error_bound == before
    assert form._remainders.recent() == recent


def test_a_place_goes_to_a_round_that_loses_no_less_than_rounds_lately_did():
    form = Sketched(((1, 12),), 0.1, Limit(((1, 12),), sketch=Sketch(4)))
    eye = np.eye(12)
    record(form, vectors_as_factors(eye[:2]))  # the first half of the places
    record(form, vectors_as_factors(eye[2:3]))  # no place is free yet: lost
    assert form.points == 2
    record(form, vectors_as_factors(0.5 * eye[3:4]))  # a place is free, but it loses less than that one did
    assert form.points == 2
    record(form, vectors_as_factors(2.0 * eye[4:5]))
    assert form.points == 3


@pytest.mark.parametrize("form", ["sketched", Sketch(8)])
def test_the_form_is_deprecated_and_still_loads(form, tmp_path):
    with pytest.warns(FutureWarning, match=r"'sketched' is deprecated.*'last_layer' or 'diagonal'"):
        policy = LinUCB(2, covariance=form, seed=0)
    policy.observe(policy.select([[1.0, 0.0], [0.0, 1.0]]), 1.0)
    policy.save(tmp_path / "policy")
    with pytest.warns(FutureWarning, match="'sketched' is deprecated"):
        again = rarely.load(tmp_path / "policy")
    assert again.fingerprint() == policy.fingerprint()


def test_what_is_lost_is_never_learned():
    """Why it is deprecated: the exact variance falls with the rounds, and that of a sketch does not."""
    rng, widths = np.random.default_rng(0), ((1, 60),)
    forms = [form(widths, 0.01, Limit(widths, sketch=Sketch(20))) for form in (Sketched, Primal)]
    new, falls = Factors((rng.normal(size=(50, 60)),), (np.ones((50, 1)),)), []
    for form in forms:
        found = []
        for rounds in (300, 2700):
            x = np.random.default_rng(rounds).normal(size=(rounds, 60))
            for start in range(0, rounds, 100):
                part = Factors((x[start : start + 100],), (np.ones((100, 1)),))
                form.accept(form.propose(form.measure(part)), 100)
            form.freeze()
            found.append(form.measure(new).variances.mean())
        falls.append(found[1] / found[0])
    assert falls[0] > 0.9
    assert falls[1] == pytest.approx(300 / 3000, rel=0.2)
