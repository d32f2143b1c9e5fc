"""Arms come as often as a decision says that they do, for every kind of policy."""

import numpy as np
import pytest

from rarely import AtRounds, Mixture, NeuralTS
from rarely.testing import unfairness
from worlds import DRAWN, MAKERS, contexts, play, small

DRAWS = 4000
OWN_MATRIX = {"neural_linear", "linear_thompson", "uniform"}
"""Policies without a choice of covariance; theirs is small."""


def trained(name, **settings):
    """A policy after two updates, with a third far away."""
    if name not in OWN_MATRIX and "covariance" not in settings:
        settings["covariance"] = "primal"
    policy = MAKERS[name](AtRounds([4, 8, 10**6]), **settings)
    play(policy, contexts()[:9])
    assert policy.version == 2
    return policy


@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.parametrize("masked", [False, True])
def test_arms_come_as_often_as_the_decision_says(name, masked):
    policy = trained(name)
    arms = np.repeat(contexts(seed=7)[:1], DRAWS, axis=0)
    if name == "random_ties":
        arms[:, 1] = arms[:, 0]  # a tie, or there is nothing to draw
    mask = np.tile([True, True, False], (DRAWS, 1)) if masked else None
    chances = policy.probabilities(arms[0], None if mask is None else mask[0])
    decision = policy.select(arms, mask)
    np.testing.assert_allclose(decision.probabilities, np.tile(chances, (DRAWS, 1)), rtol=1e-9)
    np.testing.assert_allclose(decision.propensity, chances[decision.arm], rtol=1e-9)
    statistic, bound = unfairness(decision.arm, chances)
    assert statistic <= bound
    assert np.count_nonzero(chances) >= 2, "nothing was drawn"


@pytest.mark.parametrize("arms", [2, 7])
def test_draws_of_several_rounds_are_fair_together(arms):
    """Each round with chances of its own: deviations of counts summed over rounds, in their standard deviations."""
    policy = small(AtRounds([4, 10**6]), NeuralTS, covariance="primal", exploration=Mixture(0.1))
    play(policy, contexts()[:5])
    decision = policy.select(contexts(seed=3, rounds=DRAWS, arms=arms))
    chances = decision.probabilities
    counts = np.bincount(decision.arm, minlength=arms)
    deviation = np.sqrt((chances * (1 - chances)).sum(axis=0))
    # A Gaussian lies beyond 4.5 deviations with probability 7e-6, and there are at most seven.
    assert (np.abs(counts - chances.sum(axis=0)) <= 4.5 * deviation).all()


def test_draws_do_not_depend_on_one_another():
    """Pairs of consecutive draws are as frequent as the products of their chances."""
    policy = trained("epsilon_greedy")
    arms = np.repeat(contexts(seed=7)[:1], DRAWS, axis=0)
    chances = policy.probabilities(arms[0])
    drawn = policy.select(arms).arm
    pairs = 3 * drawn[:-1:2] + drawn[1::2]
    statistic, bound = unfairness(pairs, np.outer(chances, chances).ravel())
    assert statistic <= bound
