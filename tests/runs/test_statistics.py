import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rarely.runs.statistics import Sample, _least, mean, ratios, t_quantile


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.7062), (2, 4.30265), (3, 3.18245), (4, 2.77645), (9, 2.26216), (19, 2.09302)]
)
def test_t_quantiles_are_those_of_the_tables(freedom, quantile):
    assert t_quantile(freedom) == pytest.approx(quantile, rel=1e-5)


def test_t_quantiles_tend_to_the_normal_one():
    assert t_quantile(4000) == pytest.approx(1.95996, abs=1e-3)


@pytest.mark.parametrize(
    ("draw", "truth"),
    [
        (lambda rng, n: rng.normal(3.0, 2.0, n), 3.0),
        (lambda rng, n: 5.0 * (rng.random(n) < 0.05), 0.25),
        (lambda rng, n: rng.lognormal(size=n), math.exp(0.5)),
        (lambda rng, n: rng.beta(1, 9, n), 0.1),
    ],
)
@pytest.mark.parametrize("runs", [10, 30])
def test_an_interval_misses_the_truth_in_at_most_5_percent_on_either_side(draw, truth, runs):
    """Where Student's misses 12 % of log-normal runs, and a tenth of tied ones."""
    rng = np.random.default_rng(0)
    found = [mean(draw(rng, runs)) for _ in range(1500)]
    assert np.mean([e.high < truth for e in found]) <= 0.05
    assert np.mean([e.low > truth for e in found]) <= 0.05


@given(
    st.lists(st.floats(-100, 100).map(lambda x: round(x, 3)), min_size=1, max_size=12),
    st.floats(-100, 100),
    st.sampled_from([0.5, 0.9, 0.95, 0.999]),
)
def test_the_interval_is_what_the_tests_do_not_exclude(values, bound, confidence):
    sample = Sample(tuple(values))
    found, level = sample.interval(confidence), (1 - confidence) / 2
    for p, outside in ((sample.p_above(bound), found.low - bound), (sample.p_below(bound), bound - found.high)):
        if abs(p / level - 1) > 1e-6:
            assert (p < level) == (outside > 0)


def test_of_runs_without_skewness_the_test_is_near_students():
    """Two hundred symmetric runs: their skewness is known to be small, and costs little."""
    x = np.linspace(-1, 1, 200)
    student = t_quantile(199) * np.std(x, ddof=1) / math.sqrt(200)
    assert student <= mean(x).high < 1.05 * student


@pytest.mark.parametrize("runs", [2, 10, 100])
def test_runs_without_spread_decide_nothing_unless_they_are_equal_by_construction(runs):
    same = Sample((1.0,) * runs)
    assert same.p_above(0.0) == same.p_below(2.0) == 1.0
    assert same.interval().high == math.inf
    exact = Sample((1.0,) * runs, exact=True)
    assert exact.p_above(0.0) == exact.p_above(1.0, or_equal=True) == 0.0
    assert exact.p_above(1.0) == exact.p_below(1.0) == 1.0
    assert exact.interval().low == exact.interval().high == 1.0


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
    a = [101.0, 1002.0, 10.55]
    b = [100.0, 1001.05, 9.5]
    paired = mean([x - y for x, y in zip(a, b, strict=True)])
    assert 0 < paired.low < paired.value < paired.high < 2
    assert mean(a).low < mean(b).value


def test_a_ratio_with_a_zero_is_no_number():
    estimate = ratios([0.0, 1.0], [1.0, 1.0]).interval()
    assert math.isnan(estimate.value)
    assert (estimate.low, estimate.high) == (0.0, math.inf)


def test_an_infinite_ratio_is_no_number():
    assert math.isnan(ratios([math.inf, 1.0, 2.0], [1.0, 1.0, 1.0]).interval().value)


@given(
    st.lists(st.floats(-50, 50).map(lambda x: round(x, 3)), min_size=3, max_size=30),
    st.sampled_from([0.8, 0.95, 0.999]),
)
def test_the_interval_ends_where_the_tests_do(values, confidence):
    assume(np.ptp(values) > 1e-2)
    sample, level = Sample(tuple(values)), (1 - confidence) / 2
    found = sample.interval(confidence)
    assert sample.p_above(found.low) == pytest.approx(level, rel=1e-6)
    assert sample.p_below(found.high) == pytest.approx(level, rel=1e-6)


@given(st.floats(-30, 30), st.sampled_from([-1.0, 1.0]), st.floats(-2, 2), st.floats(0, 2))
def test_no_skewness_within_the_range_is_less_favourable(t, sign, low, width):
    every = sign * np.append(np.linspace(low, low + width, 2001), 0.0)
    plain = (t + every * t**2 + every**2 * t**3 / 3 + every / 2).min()
    found = _least(t, sign, (low, low + width))
    assert found <= plain + 1e-9
    assert found == pytest.approx(plain, rel=1e-3, abs=1e-3 + 1e-6 * abs(t) ** 3)
