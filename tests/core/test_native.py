"""The loops in C against NumPy's, and both against the plain loops of the oracle.

Every form of this processor, and those of the other architecture where they can be emulated: see `tests/loops.py`.
"""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loops import folder_of_the_run, in_kind, kinds
from oracle import descend as plain_descend
from rarely import BatchNeuralUCB, FixedGrid, InvalidInput, NotPositiveDefinite
from rarely._core import native
from rarely._core.covariance.cholesky import PANEL, GrowingCholesky, cholesky
from rarely._core.model.features import Factors, gram
from rarely._core.model.kernels import Memory, Units, Views, plain_products, products
from rarely._core.model.network import Network
from rarely._core.native import linalg
from rarely._core.training.gradient_descent import TrainingPlan, train
from rarely._core.training.objective import CompiledObjective, MomentumState, Objective

needs_compiler = pytest.mark.skipif(
    not native.available(), reason=f"the compiled loops are not tested: {native.missing()}"
)
CLOSE = {np.float32: 2e-4, np.float64: 1e-11}
COUNTS = st.one_of(st.integers(1, 4), st.integers(5, 16), st.integers(17, 70))
"""Candidates: row by row, in one block of lanes, in several."""
SHAPES = {
    "n": st.integers(0, 40),
    "half": st.integers(1, 20),
    "depth": st.integers(2, 4),
    "d": st.integers(1, 9),
    "ridge": st.sampled_from([1e-3, 0.5, 20.0]),
    "skip": st.sampled_from([None, 0.0, 0.3, 2.0]),
    "dtype": st.sampled_from([np.float32, np.float64]),
    "seed": st.integers(0, 10**6),
}


@pytest.fixture(scope="module", params=kinds())
def loops(request, tmp_path_factory):
    """The compiled loops in every way in which they can be run here."""
    with in_kind(request.param, folder_of_the_run(tmp_path_factory)):
        yield


def both(n, half, d, ridge, dtype, seed, depth=2, skip=None):
    """The same objective twice, in C and in NumPy."""
    rng = np.random.default_rng(seed)
    net = Network(d, 2 * half, depth, skip=skip)
    data = (net, net.initial_weights(rng), rng.normal(size=(n, d)), rng.normal(size=n), ridge, dtype)
    return CompiledObjective(*data), Objective(*data)


def assert_close(ours, theirs, close):
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=close, atol=close * max(1, np.abs(b).max(initial=0)))


@given(steps=st.integers(0, 6), warm=st.booleans(), **SHAPES)
def test_the_compiled_steps_are_numpys(loops, steps, warm, **shape):
    fused, plain = both(**shape)
    start = plain.initial
    if warm:
        rng = np.random.default_rng(shape["seed"] + 1)
        start = tuple((w + rng.normal(0, 0.3, w.shape)).astype(plain.dtype) for w in plain.initial)
    # Small against the n of the curvature after a step too: else the two diverge, each in its own way.
    step = 0.5 / (plain.top_curvature(None)[0] + plain.ridge + 10 * shape["n"])
    (ours, our_loss), (theirs, loss) = (o.descend(start, step, steps, np.inf) for o in (fused, plain))
    assert_close(ours, theirs, CLOSE[plain.dtype])
    assert our_loss == pytest.approx(loss, rel=CLOSE[plain.dtype])
    assert fused.loss(start) == pytest.approx(plain.loss(start), rel=CLOSE[plain.dtype])


@given(stretches=st.lists(st.integers(0, 4), min_size=1, max_size=3), **SHAPES)
def test_the_compiled_steps_with_momentum_are_numpys(loops, stretches, **shape):
    fused, plain = both(**shape)
    step = 0.5 / (plain.top_curvature(None)[0] + plain.ridge + 10 * shape["n"])
    ours = theirs = MomentumState.at_rest(plain.initial)
    for steps in stretches:
        (ours, our_loss), (theirs, loss) = (
            fused.descend_with_momentum(ours, step, steps, np.inf),
            plain.descend_with_momentum(theirs, step, steps, np.inf),
        )
        assert our_loss == pytest.approx(loss, rel=CLOSE[plain.dtype])
        assert ours.steps == theirs.steps
        assert_close(ours.weights + ours.ago, theirs.weights + theirs.ago, CLOSE[plain.dtype])


def test_stretches_of_momentum_are_one_motion(loops):
    fused, _ = both(n=30, half=8, d=5, ridge=0.1, dtype=np.float64, seed=0, skip=2.0)
    whole, _ = fused.descend_with_momentum(MomentumState.at_rest(fused.initial), 1e-3, 20, np.inf)
    part, _ = fused.descend_with_momentum(MomentumState.at_rest(fused.initial), 1e-3, 7, np.inf)
    part, _ = fused.descend_with_momentum(part, 1e-3, 13, np.inf)
    assert_close(part.weights, whole.weights, 1e-12)


@needs_compiler
def test_a_hopeless_motion_comes_back_to_its_start():
    for objective in both(n=20, half=4, d=3, ridge=0.1, dtype=np.float64, seed=0):
        start = MomentumState.at_rest(objective.initial)
        moved, loss = objective.descend_with_momentum(start, 10.0, 30, 2 * objective.loss(objective.initial))
        assert moved is start
        assert not loss <= 2 * objective.loss(objective.initial)


def test_momentum_is_nesterovs():
    """Against the three lines of the textbook."""
    _, plain = both(n=20, half=4, d=3, ridge=0.1, dtype=np.float64, seed=0)
    now = ago = plain.initial
    for k in range(6):
        ahead = tuple(w + k / (k + 3) * (w - b) for w, b in zip(now, ago, strict=True))
        gradient = plain.loss_and_gradient(ahead)[1]
        now, ago = tuple(w - 1e-3 * g for w, g in zip(ahead, gradient, strict=True)), now
    moved, loss = plain.descend_with_momentum(MomentumState.at_rest(plain.initial), 1e-3, 6, np.inf)
    assert_close(moved.weights, now, 1e-13)
    assert loss == pytest.approx(plain.loss(now))


@given(**SHAPES)
def test_the_compiled_curvature_is_numpys(loops, **shape):
    fused, plain = both(**shape)
    rng = np.random.default_rng(shape["seed"] + 1)
    vector = tuple(rng.normal(size=w.shape).astype(plain.dtype) for w in plain.initial)
    (our_value, ours), (value, theirs) = fused.curvature_times(vector), plain.curvature_times(vector)
    assert our_value == pytest.approx(value, rel=CLOSE[plain.dtype])
    assert_close(ours, theirs, CLOSE[plain.dtype])


def features(rng, count, widths):
    return Factors(
        tuple(rng.normal(size=(count, i)) for _, i in widths), tuple(rng.normal(size=(count, o)) for o, _ in widths)
    )


@given(
    past=st.integers(0, 300),
    new=COUNTS,
    widths=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=3),
    skip=st.integers(0, 5),
    seed=st.integers(0, 10**6),
)
def test_candidates_get_numpys_products(loops, past, new, widths, skip, seed):
    rng = np.random.default_rng(seed)
    old, fresh = features(rng, past + skip, widths)[skip:], features(rng, new, widths)
    np.testing.assert_allclose(gram(old, fresh), old.vectors() @ fresh.vectors().T, rtol=1e-11, atol=1e-11)


@given(size=st.integers(1, 300), new=COUNTS, part=st.floats(0, 1), seed=st.integers(0, 10**6))
def test_candidates_are_solved_as_numpy_solves_them(loops, size, new, part, seed):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(size, size))
    factor, _ = GrowingCholesky.of(root @ root.T + size * np.eye(size))
    rows, rhs = max(1, round(part * size)), rng.normal(size=(size, new))
    ours = factor.solve(rhs[:rows], rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linalg, "compiled", lambda count: False)
        theirs = factor.solve(rhs[:rows], rows)
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
    known = ours[: len(ours) // PANEL * PANEL]
    going_on = factor.solve(rhs[len(known) :], size, known)
    np.testing.assert_allclose(going_on, factor.solve(rhs, size), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_threads_share_the_candidates(loops, threads, monkeypatch):
    # Large enough for seven threads: each wants 2²¹ products and a block of 16 candidates of its own.
    monkeypatch.setattr(linalg, "threads", lambda: threads)
    rng, widths = np.random.default_rng(0), [(60, 20), (1, 60)]
    old, fresh = features(rng, 500, widths), features(rng, 250, widths)
    k = gram(old, fresh)
    np.testing.assert_allclose(k, old.vectors() @ fresh.vectors().T, rtol=1e-10, atol=1e-10)
    matrix = gram(old, old) + np.eye(500)
    solution = GrowingCholesky.of(matrix)[0].solve(k, 500)
    np.testing.assert_allclose(np.linalg.cholesky(matrix) @ solution, k, rtol=1e-9, atol=1e-7)


@pytest.mark.parametrize("shape", [(1, 1, 1), (4, 11, 200), (100, 30, 7), (33, 200, 65), (0, 5, 3)])
def test_a_product_is_numpys(shape):
    (n, k, m), rng = shape, np.random.default_rng(0)
    a, b = rng.normal(size=(n, k)), rng.normal(size=(m, k))
    np.testing.assert_allclose(linalg.product(a, b), a @ b.T, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("depth", [2, 3])
def test_threads_change_nothing_but_rounding(loops, depth, threads, dtype, monkeypatch):
    # Large enough for seven threads: each wants 2¹⁸ products of its own.
    fused, plain = both(n=1001, half={2: 50, 3: 20}[depth], d=20, ridge=0.1, dtype=dtype, seed=3, depth=depth)
    monkeypatch.setattr("rarely._core.training.objective.threads", lambda: threads)
    step = 0.5 / (plain.top_curvature(None)[0] + plain.ridge)
    assert_close(
        fused.descend(fused.initial, step, 5, np.inf)[0],
        plain.descend(plain.initial, step, 5, np.inf)[0],
        CLOSE[dtype],
    )
    assert fused.top_curvature(None)[0] == pytest.approx(plain.top_curvature(None)[0], rel=1e-4)


def test_a_unit_at_exactly_zero_is_off_as_in_numpy(loops):
    rng = np.random.default_rng(0)
    net = Network(2, 4)
    initial = net.initial_weights(rng)
    initial[0][0] = 0.0
    data = (net, initial, rng.normal(size=(5, 2)), rng.normal(size=5), 0.1, np.float64)
    ours, theirs = (o.descend(o.initial, 0.01, 3, np.inf)[0] for o in (CompiledObjective(*data), Objective(*data)))
    assert_close(ours, theirs, 1e-12)
    assert not ours[0][0].any()


def test_the_compiled_steps_are_the_plain_ones(loops):
    rng = np.random.default_rng(0)
    net = Network(3, 6)
    initial, x, r = net.initial_weights(rng), rng.normal(size=(11, 3)), rng.normal(size=11)
    outcome = train(net, initial, x, r, TrainingPlan(ridge=0.2, steps=7, step_size=1e-3))
    truth = plain_descend(initial, x, r, 0.2, 7, 1e-3, net.output_scale)
    for a, b in zip(outcome.weights, truth, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_hopeless_descent_stops_where_numpys_does(loops, dtype):
    fused, plain = both(n=20, half=4, d=3, ridge=0.1, dtype=dtype, seed=0)
    limit = 1e3 * plain.loss(plain.initial)
    with np.errstate(over="ignore", invalid="ignore"):
        (ours, our_loss), (theirs, loss) = (o.descend(o.initial, 5.0, 50, limit) for o in (fused, plain))
    assert loss > limit
    assert our_loss == pytest.approx(loss, rel=1e-2)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-3)


def test_a_descent_that_overflows_is_seen(loops):
    fused, _ = both(n=20, half=4, d=3, ridge=0.1, dtype=np.float32, seed=0)
    assert not np.isfinite(fused.descend(fused.initial, 1e30, 50, np.inf)[1])


@needs_compiler
def test_biases_are_left_to_numpy():
    assert not CompiledObjective.fits(Network(3, 8, biases=True))
    assert CompiledObjective.fits(Network(3, 8))
    assert CompiledObjective.fits(Network(3, 8, 4))


@needs_compiler
def test_nothing_handed_over_is_changed():
    rng = np.random.default_rng(0)
    net = Network(3, 8)
    given = [*net.initial_weights(rng), np.eye(3), np.ones(3)]
    before = [a.copy() for a in given]
    train(net, tuple(given[:2]), given[2], given[3], TrainingPlan(ridge=0.1), start=tuple(given[:2]))
    assert all(np.array_equal(a, b) for a, b in zip(given, before, strict=True))


@needs_compiler
def test_contexts_need_not_be_contiguous():
    rng = np.random.default_rng(0)
    net = Network(3, 8)
    initial, x, r = net.initial_weights(rng), rng.normal(size=(3, 20)).T, rng.normal(size=20)
    plan = TrainingPlan(ridge=0.1, steps=5)
    one, other = train(net, initial, x, r, plan), train(net, initial, np.ascontiguousarray(x), r, plan)
    assert_close(one.weights, other.weights, 1e-15)


@needs_compiler
def test_stretches_are_one_descent(monkeypatch):
    fused, _ = both(n=30, half=4, d=3, ridge=0.1, dtype=np.float64, seed=0)
    whole = fused.descend(fused.initial, 1e-3, 17, np.inf)
    monkeypatch.setattr("rarely._core.training.objective.STRETCH", 4.0 * 30 * 24 * 5)
    again = fused.descend(fused.initial, 1e-3, 17, np.inf)
    assert_close(whole[0], again[0], 1e-14)
    assert whole[1] == pytest.approx(again[1], rel=1e-14)


def test_a_loss_that_is_no_number_ends_the_descent(loops):
    fused, _ = both(n=30, half=4, d=3, ridge=0.1, dtype=np.float64, seed=0)
    broken = tuple(np.full_like(w, np.nan) for w in fused.initial)
    _, loss = fused.descend(broken, 1e-3, 10**9, np.inf)  # hours, if it did not end
    assert np.isnan(loss)


def test_the_curvature_of_a_dead_unit_is_numpys(loops):
    net, rng = Network(2, 4), np.random.default_rng(0)
    initial = net.initial_weights(rng)
    initial[0][0] = 0.0
    data = (net, initial, rng.normal(size=(5, 2)), rng.normal(size=5), 0.1, np.float64)
    vector = tuple(rng.normal(size=w.shape) for w in initial)
    (value, ours), (truth, theirs) = (o.curvature_times(vector) for o in (CompiledObjective(*data), Objective(*data)))
    assert value == pytest.approx(truth, rel=1e-12)
    assert_close(ours, theirs, 1e-12)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda policy: pickle.loads(pickle.dumps(policy))])
def test_a_copy_of_a_policy_stands_alone(copied):
    rng = np.random.default_rng(0)
    policy = BatchNeuralUCB(3, FixedGrid(400, 2), hidden=8, covariance="dual", seed=0)
    policy.observe(policy.select(rng.normal(size=(200, 4, 3))), rng.normal(size=200))
    policy.update()
    contexts = rng.normal(size=(4, 3))
    before, other = policy.score(contexts), copied(policy)
    panels = policy._covariance._factor.panels
    for panel in panels.left + panels.inverse:
        panel[:] = np.nan
    np.testing.assert_array_equal(other.score(contexts).bonuses, before.bonuses)


def test_features_of_single_precision_are_converted():
    rng = np.random.default_rng(0)
    old, fresh = features(rng, 300, [(9, 8)]), features(rng, 40, [(9, 8)])
    small = Factors(*(tuple(a.astype(np.float32) for a in side) for side in (fresh.inputs, fresh.signals)))
    np.testing.assert_allclose(gram(old, small), gram(old, fresh), rtol=1e-4, atol=1e-4)


def test_features_of_other_layers_are_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match=r"same layers|mismatch|match"):
        gram(features(rng, 300, [(9, 8)]), features(rng, 40, [(9, 7)]))


def test_contexts_without_a_reward_each_are_refused():
    net = Network(3, 8)
    with pytest.raises(InvalidInput, match="a row for each reward"):
        train(net, net.initial_weights(np.random.default_rng(0)), np.ones((4, 3)), np.ones(8), TrainingPlan(ridge=0.1))


@given(order=st.integers(1, 140), seed=st.integers(0, 99))
def test_small_factors_and_their_inverses_are_lapacks(loops, order, seed):
    rows = np.random.default_rng(seed).normal(size=(order, order + 2))
    matrix = rows @ rows.T + 0.1 * np.eye(order)
    lower = linalg.factor(matrix)
    np.testing.assert_allclose(lower, np.linalg.cholesky(matrix), rtol=1e-7, atol=1e-9 * np.abs(matrix).max())
    np.testing.assert_allclose(linalg.inverse(lower) @ lower, np.eye(order), atol=1e-8)
    assert not np.triu(linalg.inverse(lower), 1).any()


@pytest.mark.parametrize("last", [-1.0, 0.0, np.nan])
def test_a_small_matrix_that_is_not_positive_definite_is_refused(loops, last):
    with pytest.raises(np.linalg.LinAlgError):
        linalg.factor(np.diag([1.0, last]))


@given(order=st.integers(100, 420), seed=st.integers(0, 99), log_ridge=st.floats(-4, 1))
def test_large_factors_are_lapacks(loops, order, seed, log_ridge):
    """Panel by panel, whether the last one is whole or not."""
    rows = np.random.default_rng(seed).normal(size=(order, order // 2))
    matrix = rows @ rows.T + 10**log_ridge * np.eye(order)
    lower, jitters = cholesky(matrix)
    assert jitters == 0
    np.testing.assert_allclose(lower @ lower.T, matrix, atol=1e-12 * np.abs(matrix).max())
    np.testing.assert_allclose(lower, np.linalg.cholesky(matrix), rtol=1e-6, atol=1e-9 * np.abs(matrix).max())
    assert not np.triu(lower, 1).any()


@pytest.mark.parametrize("where", [0, 130, 299])
def test_a_large_matrix_that_is_not_positive_definite_is_refused(loops, where):
    matrix = np.eye(300)
    matrix[where, where] = -1.0
    with pytest.raises(NotPositiveDefinite):
        cholesky(matrix)


@pytest.mark.parametrize("count", [1, 2, 4, 5, 8, 9, 16, 17, 40])
def test_a_solution_in_the_place_of_its_right_hand_side_has_the_same_bits(count):
    rng = np.random.default_rng(count)
    half = rng.normal(size=(300, 200))
    factor = GrowingCholesky.of(np.eye(200) + half.T @ half)[0]
    rhs = rng.normal(size=(200, count))
    place = linalg.room(200, count)
    place[:] = rhs
    kept = factor.solve(place, 200)
    assert np.array_equal(place, rhs)
    assert np.array_equal(factor.solve(place, 200, overwrite=True), kept)
    assert np.allclose(kept, factor.solve(rhs, 200))


def arms_of_the_default():
    rng = np.random.default_rng(3)
    stream = rng.random((300, 4, 6))
    rewards = np.cos(3 * stream @ rng.normal(size=6)) + 0.3 * rng.normal(size=(300, 4))
    policy, chosen = BatchNeuralUCB(6, FixedGrid(300, 8), hidden=64, seed=0), []
    while policy.round < len(stream):
        decision = policy.select(stream[policy.round :], until_due=True)
        policy.observe(decision, rewards[decision.round - 1, decision.arm])
        chosen += decision.arm.tolist()
        if policy.due:
            policy.update()
    return chosen


@pytest.fixture(scope="module")
def arms_in_numpy():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "in_use", lambda: False)
        patch.setattr(linalg, "in_use", lambda: False)
        patch.setattr(CompiledObjective, "fits", staticmethod(lambda network: False))
        return arms_of_the_default()


def test_the_default_chooses_the_same_arms_in_every_form(loops, arms_in_numpy):
    """In single precision rounding decided between the candidates of tuning, so each form was another policy."""
    assert arms_of_the_default() == arms_in_numpy


def kernel_features(rng, count, dim, weights, memory, like=None):
    """Features of contexts, some of which are those of `like`, or opposed to them."""
    contexts = rng.normal(size=(count, dim))
    for i, row in enumerate(() if like is None else like[: count // 2]):
        contexts[i] = -row + 1e-9 if i % 2 else row * (1 + 1e-7 * rng.normal(size=dim))
    metric = rng.normal(size=(dim, dim))
    views = Views.of(contexts, Units.given(dim), metric @ metric.T)
    return contexts, views.features(weights, np.arange(count, dtype=float), memory)


@given(
    seed=st.integers(0, 10**6),
    past=COUNTS,
    new=COUNTS,
    dim=st.integers(1, 6),
    kinds=st.sets(st.integers(0, 5), min_size=1),
    memory=st.sampled_from([Memory(), Memory(decay=0.1), Memory(change=2.0), Memory(0.01, 5.0)]),
)
def test_kernels_are_numpys(loops, seed, past, new, dim, kinds, memory):
    rng, weights = np.random.default_rng(seed), np.zeros(6)
    weights[list(kinds)] = rng.random(len(kinds)) + 0.1
    contexts, left = kernel_features(rng, past, dim, weights, memory)
    _, right = kernel_features(np.random.default_rng(seed), new, dim, weights, memory, contexts)
    plain = plain_products(left, right)
    np.testing.assert_allclose(products(left, right), plain, rtol=1e-11, atol=1e-12 * np.abs(plain).max())
    square = products(left, left)
    assert np.array_equal(square, square.T)
