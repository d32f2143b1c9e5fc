"""The loops in C against NumPy's, and both against the plain loops of the oracle."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle import descend as plain_descend
from rarely.core import native, scores
from rarely.core.covariance.cholesky import GrowingCholesky, whole_panels
from rarely.core.factors import Factors, gram
from rarely.core.fused import Fused
from rarely.core.network import Network
from rarely.core.objective import Objective
from rarely.core.training import Plan, train

needs_compiler = pytest.mark.skipif(
    not native.available(), reason="the package was built without a C compiler: the compiled passes are not tested"
)
CLOSE = {np.float32: 2e-4, np.float64: 1e-11}
SHAPES = {
    "n": st.integers(0, 40),
    "half": st.integers(1, 20),
    "d": st.integers(1, 9),
    "ridge": st.sampled_from([1e-3, 0.5, 20.0]),
    "dtype": st.sampled_from([np.float32, np.float64]),
    "seed": st.integers(0, 10**6),
}


def both(n, half, d, ridge, dtype, seed):
    """The same objective twice, in C and in NumPy."""
    rng = np.random.default_rng(seed)
    net = Network(d, 2 * half)
    data = (net, net.initial_weights(rng), rng.normal(size=(n, d)), rng.normal(size=n), ridge, dtype)
    return Fused(*data), Objective(*data)


def assert_close(ours, theirs, close):
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=close, atol=close * max(1, np.abs(b).max(initial=0)))


@needs_compiler
@settings(max_examples=80)
@given(steps=st.integers(0, 6), warm=st.booleans(), **SHAPES)
def test_the_compiled_steps_are_numpys(steps, warm, **shape):
    fused, plain = both(**shape)
    start = plain.initial
    if warm:
        rng = np.random.default_rng(shape["seed"] + 1)
        start = tuple((w + rng.normal(0, 0.3, w.shape)).astype(plain.dtype) for w in plain.initial)
    # Small against the n of the curvature after a step too, lest the two diverge, each in its own way.
    step = 0.5 / (plain.top_curvature(None)[0] + plain.ridge + 10 * shape["n"])
    (ours, our_loss), (theirs, loss) = (o.descend(start, step, steps, np.inf) for o in (fused, plain))
    assert_close(ours, theirs, CLOSE[plain.dtype])
    assert our_loss == pytest.approx(loss, rel=CLOSE[plain.dtype])
    assert fused.loss(start) == pytest.approx(plain.loss(start), rel=CLOSE[plain.dtype])


@needs_compiler
@settings(max_examples=60)
@given(**SHAPES)
def test_the_compiled_curvature_is_numpys(**shape):
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


@needs_compiler
@settings(max_examples=60)
@given(
    past=st.integers(0, 300),
    new=st.integers(1, 70),
    widths=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=3),
    skip=st.integers(0, 5),
    seed=st.integers(0, 10**6),
)
def test_candidates_get_numpys_products(past, new, widths, skip, seed):
    rng = np.random.default_rng(seed)
    old, fresh = features(rng, past + skip, widths)[skip:], features(rng, new, widths)
    np.testing.assert_allclose(gram(old, fresh), old.vectors() @ fresh.vectors().T, rtol=1e-11, atol=1e-11)


@needs_compiler
@settings(max_examples=40, deadline=None)
@given(size=st.integers(1, 300), new=st.integers(1, 70), part=st.floats(0, 1), seed=st.integers(0, 10**6))
def test_candidates_are_solved_as_numpy_solves_them(size, new, part, seed):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(size, size))
    factor, _ = GrowingCholesky.of(root @ root.T + size * np.eye(size))
    rows, rhs = max(1, round(part * size)), rng.normal(size=(size, new))
    ours = factor.solve(rhs[:rows], rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rarely.core.covariance.cholesky.available", lambda: False)
        theirs = factor.solve(rhs[:rows], rows)
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
    known = whole_panels(ours)
    going_on = factor.solve(rhs[len(known) :], size, known)
    np.testing.assert_allclose(going_on, factor.solve(rhs, size), rtol=1e-12, atol=1e-14)


@needs_compiler
@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_threads_share_the_candidates(threads, monkeypatch):
    # Large enough for seven threads: each wants 2²¹ products and a block of 16 candidates of its own.
    monkeypatch.setattr(scores, "threads", lambda: threads)
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
    np.testing.assert_allclose(scores.product(a, b), a @ b.T, rtol=1e-12, atol=1e-12)


@needs_compiler
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_threads_change_nothing_but_rounding(threads, dtype, monkeypatch):
    # Large enough for seven threads: each wants 16384 products of its own.
    fused, plain = both(n=501, half=25, d=9, ridge=0.1, dtype=dtype, seed=3)
    monkeypatch.setattr("rarely.core.fused.threads", lambda: threads)
    step = 0.5 / (plain.top_curvature(None)[0] + plain.ridge)
    assert_close(
        fused.descend(fused.initial, step, 20, np.inf)[0],
        plain.descend(plain.initial, step, 20, np.inf)[0],
        CLOSE[dtype],
    )
    assert fused.top_curvature(None)[0] == pytest.approx(plain.top_curvature(None)[0], rel=1e-4)


@needs_compiler
def test_a_unit_at_exactly_zero_is_off_as_in_numpy():
    rng = np.random.default_rng(0)
    net = Network(2, 4)
    initial = net.initial_weights(rng)
    initial[0][0] = 0.0
    data = (net, initial, rng.normal(size=(5, 2)), rng.normal(size=5), 0.1, np.float64)
    ours, theirs = (o.descend(o.initial, 0.01, 3, np.inf)[0] for o in (Fused(*data), Objective(*data)))
    assert_close(ours, theirs, 1e-12)
    assert not ours[0][0].any()


@needs_compiler
def test_the_compiled_steps_are_the_plain_ones():
    rng = np.random.default_rng(0)
    net = Network(3, 6)
    initial, x, r = net.initial_weights(rng), rng.normal(size=(11, 3)), rng.normal(size=11)
    outcome = train(net, initial, x, r, Plan(ridge=0.2, steps=7, step_size=1e-3))
    truth = plain_descend(initial, x, r, 0.2, 7, 1e-3, net.output_scale)
    for a, b in zip(outcome.weights, truth, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


@needs_compiler
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_hopeless_descent_stops_where_numpys_does(dtype):
    fused, plain = both(n=20, half=4, d=3, ridge=0.1, dtype=dtype, seed=0)
    limit = 1e3 * plain.loss(plain.initial)
    with np.errstate(over="ignore", invalid="ignore"):
        (ours, our_loss), (theirs, loss) = (o.descend(o.initial, 5.0, 50, limit) for o in (fused, plain))
    assert loss > limit
    assert our_loss == pytest.approx(loss, rel=1e-2)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-3)


@needs_compiler
def test_a_descent_that_overflows_is_seen():
    fused, _ = both(n=20, half=4, d=3, ridge=0.1, dtype=np.float32, seed=0)
    assert not np.isfinite(fused.descend(fused.initial, 1e30, 50, np.inf)[1])


@needs_compiler
@pytest.mark.parametrize("network", [Network(3, 8, 3), Network(3, 8, biases=True)])
def test_what_it_is_not_made_for_is_left_to_numpy(network):
    assert not Fused.fits(network)
    assert Fused.fits(Network(3, 8))


@needs_compiler
def test_nothing_handed_over_is_changed():
    rng = np.random.default_rng(0)
    net = Network(3, 8)
    given = [*net.initial_weights(rng), np.eye(3), np.ones(3)]
    before = [a.copy() for a in given]
    train(net, tuple(given[:2]), given[2], given[3], Plan(ridge=0.1), start=tuple(given[:2]))
    assert all(np.array_equal(a, b) for a, b in zip(given, before, strict=True))


@needs_compiler
def test_contexts_need_not_be_contiguous():
    rng = np.random.default_rng(0)
    net = Network(3, 8)
    initial, x, r = net.initial_weights(rng), rng.normal(size=(3, 20)).T, rng.normal(size=20)
    plan = Plan(ridge=0.1, steps=5)
    one, other = train(net, initial, x, r, plan), train(net, initial, np.ascontiguousarray(x), r, plan)
    assert_close(one.weights, other.weights, 1e-15)


@pytest.mark.parametrize(("given", "threads"), [("3", 3), ("0", None), ("many", None)])
def test_threads_are_those_of_blas(given, threads, monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", given)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    assert native.threads() == (threads or len(os.sched_getaffinity(0)))


def test_it_can_be_turned_off():
    code = "from rarely.core import native; print(native.available())"
    environment = os.environ | {"RARELY_COMPILED": "0"}
    said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "False"


@needs_compiler
@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc: the forms for other processors are not tested")
@pytest.mark.parametrize("form", ["v3", "any"])
def test_every_processors_form_gives_the_same(form, tmp_path):
    # The form is chosen by what the processor says it can; here the answer is overruled.
    for source in Path(native.__file__).parent.glob("*.[ch]"):
        text = source.read_text().replace('HAS("avx512f")', "0")
        (tmp_path / source.name).write_text(text.replace('HAS("avx2")', "0") if form == "any" else text)
    command = ["gcc", "-O2", "-w", "-shared", "-fPIC", "-pthread", "passes.c", "scores.c", "-o", "native.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "LIBRARY", tmp_path / "native.so")
        native.library.cache_clear()
        try:
            for dtype in (np.float32, np.float64):
                fused, plain = both(n=37, half=11, d=5, ridge=0.1, dtype=dtype, seed=5)
                step = 0.5 / (plain.top_curvature(None)[0] + plain.ridge)
                ours, theirs = (o.descend(o.initial, step, 9, np.inf)[0] for o in (fused, plain))
                assert_close(ours, theirs, CLOSE[dtype])
                assert_close(fused.curvature_times(ours)[1], plain.curvature_times(ours)[1], CLOSE[dtype])
            rng, widths = np.random.default_rng(1), [(7, 3), (1, 7)]
            for count in (3, 11, 40):
                old, fresh = features(rng, 150, widths), features(rng, count, widths)
                k = gram(old, fresh)
                np.testing.assert_allclose(k, old.vectors() @ fresh.vectors().T, rtol=1e-11, atol=1e-11)
                factor, _ = GrowingCholesky.of(gram(old, old) + np.eye(150))
                left = np.linalg.cholesky(gram(old, old) + np.eye(150)) @ factor.solve(k, 150)
                np.testing.assert_allclose(left, k, rtol=1e-9, atol=1e-9)
        finally:
            native.library.cache_clear()
