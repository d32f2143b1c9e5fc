"""Probabilities of arms, and arms drawn from them."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rarely import InvalidInput, Mixture
from rarely.core.choice import Coin, Optimist, Thompson, alike, drawn, mixed, tied
from rarely.core.gaussian import distribution, highest_of_gaussians

SEEDS = st.integers(0, 10**6)


def some_scores(rng, n, arms):
    """Means and bonuses with ties, and arms that are not there."""
    means, bonuses = rng.integers(0, 3, size=(n, arms)).astype(float), rng.random((n, arms))
    gone = rng.random((n, arms)) < 0.3
    gone[np.arange(n), rng.integers(arms, size=n)] = False
    means[gone] = bonuses[gone] = np.nan
    return means, bonuses


@given(st.integers(1, 6), st.integers(1, 8), SEEDS)
def test_the_highest_score_wins_and_ties_stay_among_the_tied(arms, n, seed):
    rng = np.random.default_rng(seed)
    means, bonuses = some_scores(rng, n, arms)
    bonuses[~np.isnan(bonuses)] = 0.0
    best = np.nanmax(means, axis=1)
    lowest, random = (Optimist(draws).probabilities(means, bonuses, np.zeros(n)) for draws in (False, True))
    picked = drawn(random, rng.random(n))
    for i in range(n):
        ties = np.flatnonzero(means[i] == best[i])
        assert np.flatnonzero(lowest[i]).tolist() == [ties[0]]
        assert np.flatnonzero(random[i]).tolist() == ties.tolist()
        assert picked[i] in ties


def test_random_ties_are_shared_alike():
    chances = alike(np.tile([True, False, True], (6000, 1)))
    arms = drawn(chances, np.random.default_rng(0).random(6000))
    assert set(arms) == {0, 2}
    assert abs(np.mean(arms == 0) - 0.5) < 0.035


@settings(max_examples=60)
@given(st.integers(1, 6), st.integers(1, 5), st.sampled_from([None, 0.0, 0.3, 1.0]), SEEDS)
def test_probabilities_sum_to_1_and_absent_arms_have_none(arms, n, epsilon, seed):
    rng = np.random.default_rng(seed)
    means, bonuses = some_scores(rng, n, arms)
    present = ~np.isnan(means)
    for rule in (Optimist(), Optimist(draws=True), Thompson(), Coin()):
        chances = mixed(rule, None if epsilon is None else Mixture(epsilon)).probabilities(means, bonuses, np.zeros(n))
        np.testing.assert_allclose(chances.sum(axis=1), 1.0, rtol=1e-12)
        assert (chances[~present] == 0).all()
        least = (epsilon or 0.0) / present.sum(axis=1)
        assert (chances >= present * least[:, None] * (1 - 1e-12)).all()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6).filter(lambda p: sum(p) > 0.01), SEEDS)
def test_arms_come_as_often_as_their_probabilities_say(weights, seed):
    chances = np.array(weights) / sum(weights)
    uniforms = (np.arange(4000) + np.random.default_rng(seed).random()) / 4000
    arms = drawn(np.tile(chances, (4000, 1)), uniforms)
    np.testing.assert_allclose(np.bincount(arms, minlength=len(chances)) / 4000, chances, atol=1e-3)
    assert (chances[arms] > 0).all()


@pytest.mark.parametrize("uniform", [0.0, np.nextafter(1.0, 0.0)])
def test_the_ends_of_the_unit_interval_pick_arms_that_can_be(uniform):
    chances = np.array([[0.0, 0.1, 0.2, 0.7 - 1e-16, 0.0]])
    assert drawn(chances, np.array([uniform]))[0] == (1 if uniform == 0.0 else 3)


def test_the_distribution_function_is_that_of_the_error_function():
    z = np.concatenate((np.linspace(-12, 12, 4001), [np.inf, -np.inf]))
    exact = [0.5 * math.erfc(-x / math.sqrt(2)) for x in z]
    np.testing.assert_allclose(distribution(z), exact, atol=1e-12)


@given(st.floats(-5, 5), st.floats(1e-6, 10), st.floats(1e-6, 10))
def test_two_gaussians_are_one_difference(gap, first, second):
    chances = highest_of_gaussians(np.array([[gap, 0.0]]), np.array([[first, second]]), np.zeros(1))
    expected = 0.5 * math.erfc(-gap / math.hypot(first, second) / math.sqrt(2))
    np.testing.assert_allclose(chances[0], [expected, 1 - expected], atol=1e-9)


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 5), SEEDS)
def test_several_gaussians_against_draws(arms, seed):
    rng = np.random.default_rng(seed)
    means, deviations = rng.normal(size=arms), 10.0 ** rng.uniform(-3, 1, arms) * (rng.random(arms) < 0.8)
    chances = highest_of_gaussians(means[None], deviations[None], np.zeros(1))[0]
    wins = np.argmax(means + deviations * rng.normal(size=(40_000, arms)), axis=1)
    np.testing.assert_allclose(np.bincount(wins, minlength=arms) / 40_000, chances, atol=0.015)


def test_equal_gaussians_share_alike_and_none_is_greedy():
    same = highest_of_gaussians(np.ones((1, 7)), np.full((1, 7), 0.3), np.zeros(1))
    np.testing.assert_allclose(same, 1 / 7, atol=1e-10)
    greedy = highest_of_gaussians(np.array([[0.0, 2.0, 2.0, np.nan]]), np.array([[0.0, 0.0, 0.0, np.nan]]), np.zeros(1))
    np.testing.assert_allclose(greedy, [[0, 0.5, 0.5, 0]])


def test_many_rows_are_integrated_in_parts(monkeypatch):
    rng = np.random.default_rng(0)
    means, deviations = rng.normal(size=(9, 3)), rng.random((9, 3))
    whole = highest_of_gaussians(means, deviations, np.zeros(9))
    monkeypatch.setattr("rarely.core.gaussian.AT_ONCE", 1)
    np.testing.assert_allclose(highest_of_gaussians(means, deviations, np.zeros(9)), whole, rtol=1e-12)


@pytest.mark.parametrize("epsilon", [-0.1, 1.5, float("nan"), "0.1", True, None])
def test_a_mixture_is_a_part(epsilon):
    with pytest.raises(InvalidInput, match="from 0 to 1"):
        Mixture(epsilon)


def test_exploration_is_a_mixture():
    with pytest.raises(InvalidInput, match="Mixture"):
        mixed(Optimist(), 0.1)


def test_ties_have_a_tolerance():
    assert tied(np.array([[1.0, 1.0 + 1e-12, 0.9]]), np.array([1e-9])).tolist() == [[True, True, False]]


def test_many_arms_are_integrated_within_bounds():
    rng = np.random.default_rng(0)
    means, deviations = rng.normal(size=(1, 60)), rng.random((1, 60))
    chances = highest_of_gaussians(means, deviations, np.zeros(1))[0]
    wins = np.argmax(means + deviations * rng.normal(size=(20_000, 60)), axis=1)
    np.testing.assert_allclose(np.bincount(wins, minlength=60) / 20_000, chances, atol=0.015)


def test_an_arm_out_of_reach_has_no_probability():
    chances = highest_of_gaussians(np.array([[0.0, -40.0, -3.0]]), np.ones((1, 3)), np.zeros(1))[0]
    assert chances[1] == 0
    assert 0 < chances[2] < chances[0]


def test_numpys_numbers_are_numbers():
    assert Mixture(np.float32(0.25)).describe() == {"epsilon": 0.25}
