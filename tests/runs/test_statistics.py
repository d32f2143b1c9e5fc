import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rarely._runs.statistics import differences, mean, ratios, t_quantile


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.7062), (2, 4.30265), (3, 3.18245), (4, 2.77645), (9, 2.26216), (19, 2.09302)]
)
def test_t_quantiles_are_those_of_the_tables(freedom, quantile):
    assert t_quantile(freedom) == pytest.approx(quantile, rel=1e-5)


def test_t_quantiles_tend_to_the_normal_one():
    assert t_quantile(4000) == pytest.approx(1.95996, abs=1e-3)


def test_an_interval_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(0)
    inside = [e.low < 3.0 < e.high for e in (mean(rng.normal(3.0, 2.0, 5)) for _ in range(4000))]
    assert np.mean(inside) == pytest.approx(0.95, abs=0.014)


def test_one_run_tells_nothing():
    estimate = mean([5.0])
    assert (estimate.value, estimate.low, estimate.high) == (5.0, -math.inf, math.inf)
    assert ratios([4.0], [2.0]).interval().low == 0
    assert mean([]).runs == 0


@given(st.lists(st.tuples(st.floats(0.1, 1e3), st.floats(0.1, 1e3)), min_size=2, max_size=8))
def test_a_ratio_and_its_inverse_tell_the_same(pairs):
    a, b = zip(*pairs, strict=True)
    there, back = ratios(a, b).interval(), ratios(b, a).interval()
    assert there.value == pytest.approx(1 / back.value)
    assert there.low == pytest.approx(1 / back.high)


def test_pairing_removes_what_the_runs_share():
    a = [101.0, 1002.0, 10.5]
    b = [100.0, 1001.0, 9.6]
    paired = differences(a, b).interval()
    assert 0 < paired.low < paired.value < paired.high < 1.5
    assert mean(a).low < mean(b).value


def test_a_ratio_with_a_zero_is_no_number():
    estimate = ratios([0.0, 1.0], [1.0, 1.0]).interval()
    assert math.isnan(estimate.value)
    assert (estimate.low, estimate.high) == (0.0, math.inf)
