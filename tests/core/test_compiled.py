import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle import descend as plain_descend
from rarely.core import compiled, training
from rarely.core.network import Network
from rarely.core.training import Objective, Plan, train

needs_compiler = pytest.mark.skipif(
    not compiled.available(), reason="the package was built without a C compiler: the compiled pass is not tested"
)


def numpy_descent(objective, *arguments):
    """The same steps by NumPy's passes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "available", lambda: False)
        return training._descend(objective, *arguments)


@needs_compiler
@settings(max_examples=60)
@given(
    n=st.integers(1, 40),
    half=st.integers(1, 20),
    d=st.integers(1, 9),
    steps=st.integers(0, 6),
    ridge=st.sampled_from([1e-3, 0.5, 20.0]),
    dtype=st.sampled_from([np.float32, np.float64]),
    threads=st.integers(1, 3),
    seed=st.integers(0, 10**6),
)
def test_the_compiled_steps_are_numpys(n, half, d, steps, ridge, dtype, threads, seed):
    rng = np.random.default_rng(seed)
    net = Network(d, 2 * half)
    x, r = rng.normal(size=(n, d)), rng.normal(size=n)
    objective = Objective(net, net.initial_weights(rng), x, r, ridge, dtype)
    step = 0.5 / (objective.top_curvature(None)[0] + ridge)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "threads", lambda: threads)
        assert objective.fused
        ours = training._descend(objective, step, steps, np.inf)
    theirs = numpy_descent(objective, step, steps, np.inf)
    close = 2e-4 if dtype == np.float32 else 1e-11
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=close, atol=close)


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
    rng = np.random.default_rng(0)
    net = Network(3, 8)
    objective = Objective(net, net.initial_weights(rng), rng.normal(size=(20, 3)), rng.normal(size=20), 0.1, dtype)
    start = objective.loss(objective.initial)
    with np.errstate(over="ignore", invalid="ignore"):
        ours, theirs = training._descend(objective, 5.0, 50, 1e3 * start), numpy_descent(objective, 5.0, 50, 1e3 * start)
        assert not objective.loss(ours) <= 1e3 * start
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-3)


@needs_compiler
def test_a_descent_that_overflows_is_seen():
    rng = np.random.default_rng(0)
    net = Network(3, 8)
    objective = Objective(net, net.initial_weights(rng), rng.normal(size=(20, 3)), rng.normal(size=20), 0.1, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        loss = objective.loss(training._descend(objective, 1e30, 50, np.inf))
    assert not np.isfinite(loss)


@needs_compiler
@pytest.mark.parametrize("network", [Network(3, 8, 3), Network(3, 8, biases=True)])
def test_what_it_cannot_do_is_left_to_numpy(network):
    weights = network.initial_weights(np.random.default_rng(0))
    assert not Objective(network, weights, np.ones((2, 3)), np.ones(2), 0.1, np.float64).fused


@needs_compiler
def test_the_initial_weights_stay_as_they_were():
    net = Network(3, 8)
    initial = net.initial_weights(np.random.default_rng(0))
    before = [w.copy() for w in initial]
    train(net, initial, np.eye(3), np.ones(3), Plan(ridge=0.1))
    assert all(np.array_equal(a, b) for a, b in zip(initial, before, strict=True))


@pytest.mark.parametrize(("given", "threads"), [("3", 3), ("0", None), ("many", None)])
def test_threads_are_those_of_blas(given, threads, monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", given)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    assert compiled.threads() == (threads or len(os.sched_getaffinity(0)))


def test_it_can_be_turned_off():
    code = "from rarely.core import compiled; print(compiled.available())"
    environment = os.environ | {"RARELY_COMPILED": "0"}
    said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "False"
