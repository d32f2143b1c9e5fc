"""Rewards may share a large common part, as times and balances do: it tells no arm from another.

The oracle of a policy that standardises rewards is the same policy with the rewards rounded as the common part rounds
them, and without it; that of a ridge regression is its estimate, which is linear in the rewards.
"""

import copy

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from rarely import BatchNeuralUCB, EnsemblePolicy, LinTS, LinUCB, NeuralLinear, NeuralTS, OnDemand
from rarely._core.choice.rules import ArmScores, Thompson, UpperConfidence, argmax_mask, tolerances
from rarely._core.inputs.scaling import RewardScale

SHIFTS = (0.0, 1e6, 1e9, 1e12)
STANDARDISING = {
    "default": lambda: BatchNeuralUCB(3, OnDemand(), hidden=8, seed=1),
    "NeuralTS": lambda: NeuralTS(3, OnDemand(), hidden=8, seed=1),
    "NeuralLinear": lambda: NeuralLinear(3, OnDemand(), hidden=8, seed=1),
    "EnsemblePolicy": lambda: EnsemblePolicy(Ridge(), 3, OnDemand(), members=5, seed=1),
}
LINEAR = {"LinUCB": LinUCB, "LinTS": LinTS}


def offered(rounds, seed):
    """Four arms a round, the last of which is the first again."""
    contexts = np.random.default_rng(seed).normal(size=(rounds, 4, 3))
    contexts[:, 3] = contexts[:, 0]
    return contexts


def trained(policy, shift, *, rounded_alone=False):
    """A policy after one update on 60 rewards around the first column; its first version chooses as all others do."""
    rng, contexts = np.random.default_rng(0), offered(60, seed=0)
    decision = policy.select(contexts)
    rewards = contexts[np.arange(60), decision.arm, 0] + 0.1 * rng.normal(size=60) + shift
    policy.observe(decision, rewards - shift if rounded_alone else rewards)
    assert policy.update(force=True).accepted
    return policy


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("name", STANDARDISING)
def test_a_common_part_of_rewards_decides_nothing(name, shift):
    policy, oracle = (trained(STANDARDISING[name](), shift, rounded_alone=alone) for alone in (False, True))
    contexts, unit = offered(80, seed=2), 1e-6 + 64 * np.spacing(shift)
    means, wanted = policy.score(contexts).means - shift, oracle.score(contexts).means
    np.testing.assert_allclose(means, wanted, atol=unit)
    probabilities, expected = policy.probabilities(contexts), oracle.probabilities(contexts)
    if name == "NeuralTS" or name == "NeuralLinear":
        np.testing.assert_allclose(probabilities, expected, atol=100 * unit)
        return
    best = np.sort((wanted + oracle.score(contexts).bonuses)[:, :3], axis=1)  # the last arm equals the first
    clear = best[:, 2] - best[:, 1] > unit
    assert clear.mean() > 0.9
    np.testing.assert_allclose(probabilities[clear], expected[clear], atol=1e-12)
    if name == "default":
        assert not probabilities[:, 3].any()  # an equal arm ties, and the lower one has the round


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("name", LINEAR)
def test_a_linear_policy_decides_by_its_estimate_whatever_rewards_share(name, shift):
    policy = trained(LINEAR[name](3, OnDemand(), seed=1), shift)
    history, contexts = policy.history, offered(80, seed=2)
    x, z = (np.insert(rows, 3, 1.0, axis=-1) for rows in (history.contexts, contexts))
    matrix = np.eye(4) + x.T @ x
    of_rest, of_ones = (np.linalg.solve(matrix, x.T @ r) for r in (history.rewards - shift, np.ones(60)))
    apart = z @ of_rest + shift * (z @ of_ones - 1.0)  # what is left once the common part is taken off
    rounded = 1e-9 + 64 * np.spacing(shift)
    np.testing.assert_allclose(policy.score(contexts).means - shift, apart, rtol=1e-9, atol=rounded)
    probabilities, bonuses = policy.probabilities(contexts), policy.score(contexts).bonuses
    if name == "LinTS":
        expected = Thompson().probabilities(ArmScores(apart, bonuses))
        np.testing.assert_allclose(probabilities, expected, atol=1e-9 + rounded / bonuses.min())
        return
    scores = apart + bonuses
    assert (scores[probabilities == 1] >= scores.max(axis=1) - rounded - 1e-9 * np.ptp(scores)).all()
    assert not probabilities[:, 3].any()


def test_scores_tie_by_what_is_rounded_and_by_nothing_else():
    far = 1e12 + np.array([[0.0, 0.01, 0.01 + 1e-4]])
    tolerance = tolerances(far, np.full((1, 3), 0.1), 1.0)
    assert tolerance < 0.005
    assert argmax_mask(far, tolerance).tolist() == [[False, True, True]]
    assert UpperConfidence().probabilities(ArmScores(far, np.zeros((1, 3)), tolerance)).tolist() == [[0, 1, 0]]
    # Of N(1e12, 1), N(1e12 + 1, 1) the second is higher with the probability N(1/√2).
    close = np.array([[1e12, 1e12 + 1]])
    assert Thompson().probabilities(ArmScores(close, np.ones((1, 2))))[0, 1] == pytest.approx(0.76025, abs=1e-4)


def test_equal_arms_tie_under_every_order_of_sums():
    """Arms of the same numbers in blocks of all sizes, whose products are added in different orders."""
    policy = trained(BatchNeuralUCB(3, OnDemand(), hidden=8, seed=1), 1e9)
    for arms in (2, 3, 5, 17, 65):
        contexts = np.broadcast_to(np.random.default_rng(arms).normal(size=3), (arms, 3))
        assert copy.deepcopy(policy).select(contexts).arm == 0


@pytest.mark.parametrize("shift", SHIFTS)
def test_the_spread_of_rewards_is_theirs_and_not_that_of_rounding(shift):
    """Small rewards on a large common part vary; equal ones do not, however many, and by whatever weights."""
    rng = np.random.default_rng(0)
    rewards = shift + 0.1 * rng.normal(size=500)
    assert RewardScale.fit(rewards).spread == pytest.approx(np.std(rewards - shift), rel=1e-3)
    for count in (2, 3, 1000, 10**5):
        same = np.full(count, shift + 0.1)
        assert RewardScale.fit(same).spread == RewardScale.fit(same, rng.random(count)).spread == 1.0
