"""Intervals for rewards in a known range: Wilson's where that is known, and a plain search elsewhere."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rarely import InvalidInput
from rarely.offpolicy.intervals import (
    Span,
    deviations,
    effective,
    pooled_error,
    read_range,
    score,
    variance_share,
)

Z = deviations(0.95)
UNIT = (0.0, 1.0)
fractions = st.floats(0, 1)


@given(rounds=st.integers(1, 5000), part=fractions, level=st.floats(0.5, 0.999))
def test_of_equal_weights_and_clicks_it_is_wilsons(rounds, part, level):
    clicks, z = round(part * rounds), deviations(level)
    p, n = clicks / rounds, rounds
    rewards, weights = np.repeat(UNIT, [n - clicks, clicks]), np.ones(n)
    share = variance_share(weights, rewards, rewards - p, UNIT)
    assert share == pytest.approx(1)
    low, high = score(p, math.sqrt(p * (1 - p) / n), z, Span(0.0, 1.0, n), share, UNIT)
    center = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(p * (1 - p) / n + (z / (2 * n)) ** 2)
    assert low == pytest.approx(center - half, abs=1e-9)
    assert high == pytest.approx(center + half, abs=1e-9)


@given(
    value=st.floats(-0.5, 1.5),
    error=st.floats(0, 0.5),
    rounds=st.floats(1, 1e4),
    share=st.floats(1e-3, 1),
    stretch=st.floats(1, 20),
    shift=st.sampled_from([0.0, -3.0]),
    scale=st.sampled_from([1.0, 10.0]),
)
def test_it_holds_each_value_that_its_own_error_can_explain(value, error, rounds, share, stretch, shift, scale):
    """Against a search over many values; `stretch` is that of ips, whose variance vanishes at one end alone."""
    within = (shift, shift + scale)
    span = Span(shift, shift + stretch * scale, rounds)
    low, high = score(shift + scale * value, scale * error, Z, span, share, within)
    assert within[0] <= low <= high <= within[1]
    nearest = shift + scale * min(max(value, 0.0), 1.0)
    assert low <= nearest <= high

    tried = np.linspace(*within, 2001)

    def variance(truth):
        return share * (truth - span.low) * (span.high - truth) / rounds

    rest = max(0.0, (scale * error) ** 2 - variance(nearest))
    kept = tried[(nearest - tried) ** 2 <= Z**2 * (rest + variance(tried))]
    step = scale / 2000
    if len(kept):
        assert low == pytest.approx(kept[0], abs=1.01 * step)
        assert high == pytest.approx(kept[-1], abs=1.01 * step)
    else:
        assert high - low <= step


def test_a_single_round_says_nothing_but_the_range():
    assert score(0.3, math.inf, Z, Span(0.0, 1.0, 1.0), 1.0, UNIT) == UNIT


def test_a_range_of_any_size_has_its_interval():
    rewards = np.tile([0.0, 1.0], 10)
    plain = score(0.5, 0.1, Z, Span(0.0, 1.0, 20.0), variance_share(np.ones(20), rewards, rewards - 0.5, UNIT), UNIT)
    for size in (1e-200, 1e200):
        within = (0.0, size)
        share = variance_share(np.ones(20), size * rewards, size * (rewards - 0.5), within)
        ends = score(0.5 * size, 0.1 * size, Z, Span(0.0, size, 20.0), share, within)
        assert [end / size for end in ends] == pytest.approx(plain)
        assert pooled_error(np.ones(20), size * rewards, size) / size == pytest.approx(
            pooled_error(np.ones(20), rewards, 1.0)
        )


def test_a_good_model_has_a_small_share_and_a_handful_of_rounds_none():
    weights, rewards = np.ones(1000), np.tile([0.0, 1.0], 500)
    assert variance_share(weights, rewards, rewards - 0.5, UNIT) == 1.0
    assert variance_share(weights, rewards, (rewards - 0.5) / 10, UNIT) == pytest.approx(0.01, abs=0.005)
    few = slice(0, 2)
    assert variance_share(weights[few], rewards[few], np.zeros(2), UNIT) > 0.6
    # Ten times as far on a scale ten times as large is as much.
    one = variance_share(weights, rewards, rewards - 0.3, UNIT)
    assert variance_share(weights, 10 * rewards, 10 * (rewards - 0.3), (0.0, 10.0)) == pytest.approx(one)


def test_the_pooled_error_is_that_of_residuals_alike_at_every_weight():
    rng = np.random.default_rng(0)
    weights, residuals = rng.exponential(size=100_000), rng.normal(size=100_000)
    usual = (weights * residuals).std() / math.sqrt(100_000)
    assert pooled_error(weights, residuals, 1.0) == pytest.approx(usual, rel=0.02)
    assert pooled_error(-weights, residuals, 1.0) == pooled_error(weights, residuals, 1.0)
    # Without any residual, a reward at either end is still thinkable.
    assert pooled_error(np.array([2.0, 0.0]), np.zeros(2), 1.0) == pytest.approx(math.sqrt(1 / 4 * 4) / 2)
    assert pooled_error(np.zeros(2), np.ones(2), 1.0) == 0.0


def test_effective_rounds():
    assert effective(np.array([2.0, 2.0, 0.0])) == 2.0
    assert effective(np.zeros(3)) == 0.0


def test_the_range_is_known_of_clicks_and_of_what_is_given():
    assert read_range(None, np.array([0.0, 1.0])) == UNIT
    assert read_range(None, np.zeros(3)) == UNIT
    assert read_range(None, np.array([0.0, 0.5])) is None
    assert read_range((0, 5), np.array([0.0, 1.0])) == (0.0, 5.0)


@pytest.mark.parametrize(
    "odd", [(1, 0), (0, 0), (0, math.inf), (math.nan, 1), (-1e308, 1e308), 1, (0, 1, 2), "01", (0, 1j), [None, 1]]
)
def test_a_range_that_is_none_is_refused(odd):
    with pytest.raises(InvalidInput, match="reward_range must be"):
        read_range(odd, np.zeros(2))


def test_rewards_outside_their_range_are_refused():
    with pytest.raises(InvalidInput, match=r"must lie in reward_range, \[0, 1\]; the log has 2\.0"):
        read_range((0, 1), np.array([0.0, 2.0]))
