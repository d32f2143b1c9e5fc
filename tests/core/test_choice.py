"""Probabilities of arms, and arms drawn from them."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rarely import InvalidInput, LinUCB, Mixture, OnDemand
from rarely._core.choice.rules import (
    ArmScores,
    Thompson,
    UniformChoice,
    UpperConfidence,
    argmax_mask,
    rule_from,
    sample_arms,
    tolerances,
    uniform_over,
)

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
    lowest, random = (
        UpperConfidence(draws).probabilities(ArmScores(means, bonuses, np.zeros(n))) for draws in (False, True)
    )
    picked = sample_arms(random, rng.random(n))
    for i in range(n):
        ties = np.flatnonzero(means[i] == best[i])
        assert np.flatnonzero(lowest[i]).tolist() == [ties[0]]
        assert np.flatnonzero(random[i]).tolist() == ties.tolist()
        assert picked[i] in ties


def test_random_ties_are_shared_alike():
    chances = uniform_over(np.tile([True, False, True], (6000, 1)))
    arms = sample_arms(chances, np.random.default_rng(0).random(6000))
    assert set(arms) == {0, 2}
    assert abs(np.mean(arms == 0) - 0.5) < 0.035


@given(st.integers(1, 6), st.integers(1, 5), st.sampled_from([None, 0.0, 0.3, 1.0]), SEEDS)
def test_probabilities_sum_to_1_and_absent_arms_have_none(arms, n, epsilon, seed):
    rng = np.random.default_rng(seed)
    means, bonuses = some_scores(rng, n, arms)
    present = ~np.isnan(means)
    for rule in (UpperConfidence(), UpperConfidence(draws=True), Thompson(), Thompson(lowest=False), UniformChoice()):
        chances = rule_from(rule, None if epsilon is None else Mixture(epsilon)).probabilities(
            ArmScores(means, bonuses, np.zeros(n))
        )
        np.testing.assert_allclose(chances.sum(axis=1), 1.0, rtol=1e-12)
        assert (chances[~present] == 0).all()
        least = (epsilon or 0.0) / present.sum(axis=1)
        assert (chances >= present * least[:, None] * (1 - 1e-12)).all()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6).filter(lambda p: sum(p) > 0.01), SEEDS)
def test_arms_come_as_often_as_their_probabilities_say(weights, seed):
    chances = np.array(weights) / sum(weights)
    uniforms = (np.arange(4000) + np.random.default_rng(seed).random()) / 4000
    arms = sample_arms(np.tile(chances, (4000, 1)), uniforms)
    np.testing.assert_allclose(np.bincount(arms, minlength=len(chances)) / 4000, chances, atol=1e-3)
    assert (chances[arms] > 0).all()


@pytest.mark.parametrize("uniform", [0.0, np.nextafter(1.0, 0.0)])
def test_the_ends_of_the_unit_interval_pick_arms_that_can_be(uniform):
    chances = np.array([[0.0, 0.1, 0.2, 0.7 - 1e-16, 0.0]])
    assert sample_arms(chances, np.array([uniform]))[0] == (1 if uniform == 0.0 else 3)


@pytest.mark.parametrize("epsilon", [-0.1, 1.5, float("nan"), "0.1", True, None])
def test_a_mixture_is_a_part(epsilon):
    with pytest.raises(InvalidInput, match="from 0 to 1"):
        Mixture(epsilon)


def test_exploration_is_a_mixture():
    with pytest.raises(InvalidInput, match="Mixture"):
        rule_from(UpperConfidence(), 0.1)


def test_ties_have_a_tolerance():
    assert argmax_mask(np.array([[1.0, 1.0 + 1e-12, 0.9]]), np.array([1e-9])).tolist() == [[True, True, False]]


def test_numpys_numbers_are_numbers():
    assert Mixture(np.float32(0.25)).describe() == {"epsilon": 0.25}


def test_small_bonuses_are_bonuses():
    """A tolerance of 1e-9 times the scale of rewards took them for none, and every arm for tied."""
    means, bonuses, tolerance = np.zeros((1, 3)), np.array([[1.0, 2.0, 0.0]]), np.array([1e-9])
    whole = Thompson().probabilities(ArmScores(means, bonuses, tolerance))
    assert whole[0].round(3).tolist() == [0.324, 0.426, 0.25]
    for scale in (1e-9, 1e-10, 1e-100):
        np.testing.assert_allclose(
            Thompson().probabilities(ArmScores(means, scale * bonuses, tolerance)), whole, atol=1e-12
        )
        some = np.array([[0.1, 0.3, -0.2]])
        expected = Thompson().probabilities(ArmScores(some, bonuses, tolerance))
        np.testing.assert_allclose(
            Thompson().probabilities(ArmScores(scale * some, scale * bonuses, tolerance)), expected, atol=1e-12
        )


def test_without_bonuses_ties_are_those_of_the_scale_of_rewards():
    means, none, tolerance = np.array([[1e-12, 0.0, -1.0]]), np.zeros((1, 3)), np.array([1e-9])
    assert Thompson().probabilities(ArmScores(means, none, tolerance)).tolist() == [[1, 0, 0]]
    assert Thompson(lowest=False).probabilities(ArmScores(means, none, tolerance)).tolist() == [[0.5, 0.5, 0]]
    assert Thompson().probabilities(ArmScores(means[:, ::-1], none, tolerance)).tolist() == [
        [0, 1, 0]
    ]  # 0 ties with 1e-12


def test_scores_that_rounding_of_their_bonuses_explains_are_a_tie():
    """A bonus of 1e-6 that is left of 1e5 is known to 1e-4: without that the order of sums would choose."""
    scores, subtracted_from = np.array([[1e-6, 3e-6, 2e-5]]), np.full((1, 3), 1e5)
    assert argmax_mask(scores, tolerances(scores, subtracted_from, 1e-9)).all()
    assert argmax_mask(scores, tolerances(scores, scores, 1e-9)).tolist() == [[False, False, True]]


@given(epsilon=st.floats(1e-6, 1), arms=st.integers(1, 40), seed=st.integers(0, 10**6))
def test_no_arm_of_a_mixture_is_below_its_share(epsilon, arms, seed):
    policy = LinUCB(2, OnDemand(), exploration=Mixture(epsilon), seed=0)
    probabilities = policy.probabilities(np.random.default_rng(seed).normal(size=(arms, 2)))
    room = Fraction(0) if (1 - epsilon) * 2**53 >= arms**2 else Fraction(1, 2**53)
    assert min(map(Fraction, probabilities.tolist())) >= Fraction(epsilon) / arms - room
    assert sum(map(Fraction, probabilities.tolist())) == 1
