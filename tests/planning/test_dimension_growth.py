import math

import numpy as np
import pytest

from rarely import Affine
from rarely.planning.dimension_growth import linear_measure, measure_growth, neural_measure
from rarely.theory import effective_dimension


def contexts(rounds, arms=2, dim=4, seed=0):
    x = np.random.default_rng(seed).random((rounds * arms, dim))
    return Affine.fit(x)(x).reshape(rounds, arms, dim + 1)


def test_what_is_measured_is_not_extrapolated():
    x = contexts(100)
    growth = measure_growth(x, 200, 0.1, neural_measure(0.1, 2, 0, 2**30), seed=0)
    assert not growth.extrapolated
    assert growth.value == growth.measured.value
    assert growth.lower < growth.value < growth.upper
    assert growth.upper - growth.value == pytest.approx(2 * growth.spread)
    assert growth.value**2 == pytest.approx(growth.lower * growth.upper)
    assert [count for count, _ in growth.curve] == [24, 50, 100, 200]


@pytest.mark.parametrize("ridge", [0.01, 1.0])
@pytest.mark.parametrize("dim", [2, 8])
@pytest.mark.parametrize("part", [2, 8])
def test_the_truth_lies_between_the_bounds_and_near_the_estimate(ridge, dim, part):
    x, measure = contexts(480, dim=dim), neural_measure(ridge, 2, 0, 2**30)
    truth = measure(x.reshape(-1, dim + 1)).value
    growth = measure_growth(x[: 480 // part], 960, ridge, measure, seed=0)
    assert growth.extrapolated
    assert growth.lower < truth < growth.upper
    assert growth.value == pytest.approx(truth, rel=0.3 if part == 8 else 0.08)


def test_halves_differ_as_samples_of_the_whole_do():
    measure = neural_measure(0.1, 2, 0, 2**30)
    values = [measure(contexts(80, seed=seed).reshape(-1, 5)).value for seed in range(12)]
    spreads = [measure_growth(contexts(80, seed=seed), 160, 0.1, measure, seed).spread for seed in range(4)]
    assert 0.4 < np.mean(spreads) / np.std(values, ddof=1) < 2.5


def test_a_linear_model_has_the_dimension_of_its_kernel_and_any_number_of_contexts():
    x = contexts(50).reshape(-1, 5)
    found = linear_measure(0.5)(x)
    log_det = np.linalg.slogdet(np.eye(len(x)) + x @ x.T / 0.5).logabsdet
    assert found.log_det == pytest.approx(log_det)
    assert found.value == pytest.approx(log_det / math.log(1 + 100 / 0.5))
    assert found.value < 5


def test_the_dimension_tells_how_far_it_is():
    heard = []
    measure_growth(contexts(20), 40, 1.0, linear_measure(1.0), 0, lambda done, of: heard.append((done, of)))
    assert heard == [(i, 10) for i in range(11)]


def test_a_linear_kernel_is_extrapolated_along_the_logarithm_and_has_no_more_dimensions_than_its_rank():
    x, measure = contexts(400), linear_measure(0.5)
    truth = measure(x.reshape(-1, 5)).value
    growth = measure_growth(x[:50], 800, 0.5, measure, seed=0, linear=True)
    assert growth.value == pytest.approx(truth, rel=0.03)
    assert growth.lower < truth < growth.upper
    far = measure_growth(x[:10], 10**9, 0.5, measure, seed=0, linear=True)
    assert math.isnan(far.value)
    assert 0 < far.lower < far.upper <= 5 * (1 + 2 * far.spread / far.measured.value)


def test_b_and_q_are_of_the_networks_own_kernel():
    x = contexts(20).reshape(-1, 5)
    own = effective_dimension(x, ridge=0.1, kind="network")
    assert neural_measure(0.1, 2, 0, 2**30)(x) == own


def test_beyond_a_hundredfold_there_are_bounds_alone():
    measure = neural_measure(1.0, 2, 0, 2**30)
    near, far = (measure_growth(contexts(10), wanted, 1.0, measure, seed=0) for wanted in (2000, 2001))
    assert near.lower < near.value < near.upper
    assert math.isnan(far.value)
    assert far.lower < far.upper
