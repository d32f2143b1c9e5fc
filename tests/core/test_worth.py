"""Worth: scores are u·mean + |u|·bonus − v, and the probabilities on record are exact under every rule."""

import copy
import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rarely import BatchNeuralUCB, EnsemblePolicy, LinTS, LinUCB, Mixture, NeuralTS, OnDemand, Uniform, Worth
from rarely.errors import InvalidWorth
from rarely.extend import ArmScores, ChoiceRule

D = 3


@dataclass(frozen=True)
class Boltzmann(ChoiceRule):
    temperature: float = 0.3

    def probabilities(self, scores: ArmScores):
        z = np.where(np.isnan(scores.means), -np.inf, scores.means / self.temperature)
        weights = np.exp(z - z.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)


def policy_of(name, seed):
    schedule = OnDemand()
    return {
        "ucb": lambda: LinUCB(D, schedule, seed=seed),
        "epsilon": lambda: LinUCB(D, schedule, exploration=Mixture(0.2), seed=seed),
        "thompson": lambda: LinTS(D, schedule, seed=seed),
        "boltzmann": lambda: LinUCB(D, schedule, exploration=Boltzmann(), seed=seed),
        "network": lambda: BatchNeuralUCB(D, schedule, hidden=4, seed=seed),
        "neural thompson": lambda: NeuralTS(D, schedule, hidden=16, seed=seed),
    }[name]()


def trained(name, seed):
    policy, draw = policy_of(name, seed), np.random.default_rng(seed)
    decision = policy.select(draw.normal(size=(20, 4, D)))
    policy.observe(decision, draw.normal(size=20))
    policy.update()
    return policy


def gaussians(means, deviations):
    """Return how often each of some Gaussians is the highest: ∫ n(z) Π_j N((μ_k + σ_k·z − μ_j)/σ_j) dz."""
    normal = np.vectorize(lambda x: 0.5 * math.erfc(-x / 2**0.5))
    z, out = np.linspace(-9, 9, 20_001), np.zeros(len(means))
    density = np.exp(-0.5 * z * z) / (2 * math.pi) ** 0.5
    there = np.flatnonzero(~np.isnan(means))
    for k in there:
        x = means[k] + deviations[k] * z
        below = [normal((x - means[j]) / deviations[j]) for j in there if j != k]
        out[k] = np.trapezoid(density * np.prod(below, axis=0), z)
    return out


def plain(name, means, bonuses, u, v):
    """Return the probabilities of one round by the formula, one arm after another."""
    there = ~np.isnan(means)
    m, b = u * means - v, np.abs(u) * bonuses
    if name in ("thompson", "neural thompson"):
        return gaussians(m, b)
    if name == "boltzmann":
        weights = np.where(there, np.exp((m - np.nanmax(m)) / 0.3), 0.0)
        return weights / weights.sum()
    best = np.zeros(len(m))
    best[np.nanargmax(m + b)] = 1.0
    return 0.2 * there / there.sum() + 0.8 * best if name == "epsilon" else best


numbers = st.floats(-4, 4).filter(lambda x: x == 0 or abs(x) > 1e-3)


@settings(deadline=None, max_examples=40)
@given(
    name=st.sampled_from(["ucb", "epsilon", "boltzmann", "network"]),
    seed=st.integers(0, 5),
    u=st.lists(numbers, min_size=4, max_size=4),
    v=st.lists(st.one_of(numbers, st.just(np.inf)), min_size=4, max_size=4).filter(lambda v: min(v) < np.inf),
)
def test_probabilities_are_those_of_the_plain_form(name, seed, u, v):
    policy, u, v = trained(name, seed), np.array(u), np.array(v)
    contexts = np.random.default_rng(seed + 9).normal(size=(4, D))
    expected = plain(name, *policy.score(contexts, v < np.inf), u, np.where(v < np.inf, v, 0))
    told = policy.probabilities(contexts, worth=Worth(u, v))
    decision = policy.select(contexts, worth=Worth(u, v))
    np.testing.assert_allclose(told, expected, atol=1e-12)
    np.testing.assert_array_equal(decision.probabilities, told)
    np.testing.assert_array_equal(np.isnan(decision.means), v == np.inf)
    assert v[decision.arm] < np.inf


@pytest.mark.parametrize("name", ["thompson", "neural thompson"])
def test_a_gaussian_stays_a_gaussian(name):
    policy, draw = trained(name, 1), np.random.default_rng(3)
    contexts = draw.normal(size=(4, D))
    for u, v in ([1, -2, 0.5, 3], [0, 0, 0, 0.1]), ([5, 0.5, 1, 1], [0, -0.2, np.inf, 0.1]):
        means, bonuses = policy.score(contexts, np.array(v) < np.inf)
        expected = plain(name, means, bonuses, np.array(u, float), np.where(np.isfinite(v), v, 0))
        np.testing.assert_allclose(policy.probabilities(contexts, worth=Worth(u, v)), expected, atol=2e-8)


@pytest.mark.parametrize("name", ["ucb", "epsilon", "thompson", "boltzmann", "network"])
def test_a_block_decides_as_its_rounds_one_by_one(name):
    one, other = trained(name, 2), trained(name, 2)
    draw = np.random.default_rng(4)
    contexts, u, v = draw.normal(size=(12, 4, D)), draw.normal(size=(12, 4)), draw.normal(size=(12, 4))
    v[3, 1] = v[7, 2] = np.inf
    block = one.select(contexts, worth=Worth(u, v))
    for i in range(12):
        single = other.select(contexts[i], worth=Worth(u[i], v[i]))
        assert single.arm == block.arm[i]
        np.testing.assert_allclose(single.probabilities, block.probabilities[i], atol=1e-9)
        np.testing.assert_array_equal(block[i].worth.gain, single.worth.gain)


@pytest.mark.parametrize("name", ["ucb", "epsilon", "thompson", "network"])
def test_outcomes_as_they_are_have_the_worth_one(name):
    one, other = trained(name, 3), trained(name, 3)
    contexts = np.random.default_rng(5).normal(size=(9, 4, D))
    decision, same = one.select(contexts), other.select(contexts, worth=Worth())
    np.testing.assert_array_equal(decision.arm, same.arm)
    np.testing.assert_allclose(decision.probabilities, same.probabilities, atol=1e-12)
    np.testing.assert_allclose(decision.bonuses, same.bonuses)


@pytest.mark.parametrize("name", ["ucb", "epsilon", "thompson", "boltzmann", "network"])
@pytest.mark.parametrize("common", [1.0, 1e6, 1e15, -1e300])
def test_what_all_costs_have_in_common_decides_nothing(name, common):
    policies = [trained(name, 3) for _ in range(4)]
    draw = np.random.default_rng(4)
    x, gone = draw.normal(size=(12, 4, D)), draw.random((12, 4)) < 0.2
    gone[:, 2] = False
    cost = np.where(gone, np.inf, common)
    expected = policies[0].select(x, mask=~gone)
    block = policies[1].select(x, worth=Worth(cost=cost))
    single = [policies[2].select(x[t], worth=Worth(cost=cost[t])).arm for t in range(12)]
    masked = [policies[3].select(x[t], mask=~gone[t], worth=Worth(cost=np.full(4, common))).arm for t in range(12)]
    for arms in (block.arm, single, masked):
        np.testing.assert_array_equal(arms, expected.arm)
    np.testing.assert_allclose(block.propensity, expected.propensity, rtol=1e-9)


def test_an_infinite_cost_is_a_mask():
    mask = np.array([True, False, True, True])
    one, other = trained("thompson", 4), trained("thompson", 4)
    contexts = np.random.default_rng(6).normal(size=(4, D))
    masked = one.select(contexts, mask, worth=Worth())
    priced = other.select(contexts, worth=Worth(1.0, np.where(mask, 0.0, np.inf)))
    np.testing.assert_array_equal(masked.probabilities, priced.probabilities)
    assert one.fingerprint() == other.fingerprint()


def test_prices_change_without_a_training_and_the_model_learns_outcomes():
    policy = trained("ucb", 5)
    contexts = np.random.default_rng(7).normal(size=(4, D))
    before = policy.score(contexts)
    arms = {policy.select(contexts, worth=Worth(10 * np.eye(4)[k])).arm for k in range(4)}
    assert arms == {0, 1, 2, 3} or len(arms) > 1
    assert policy.version == 1
    np.testing.assert_array_equal(policy.score(contexts).means, before.means)


def test_arms_that_differ_in_number_have_worths_of_their_own():
    policy = LinUCB(D, OnDemand(), seed=0)
    contexts = [np.ones((2, D)), np.ones((3, D))]
    decision = policy.select(contexts, worth=Worth([[1, 2], [3, 2, 1]], [[0, 0], [np.inf, 0, 0]]))
    assert decision.arm.tolist() == [1, 1]


def test_a_joint_rule_draws_in_worth():
    tree = pytest.importorskip("sklearn.tree").DecisionTreeRegressor(max_depth=2)
    policy = EnsemblePolicy(tree, D, OnDemand(), seed=0)
    draw = np.random.default_rng(0)
    policy.observe(policy.select(draw.normal(size=(40, 4, D))), draw.normal(size=40))
    policy.update()
    contexts = draw.normal(size=(4, D))
    plainly = policy.probabilities(contexts)
    np.testing.assert_allclose(policy.probabilities(contexts, worth=Worth(7.0)), plainly)
    assert policy.probabilities(contexts, worth=Worth(1.0, [0, 1e6, 1e6, 1e6]))[0] == 1.0


def test_uniform_heeds_only_which_arms_are_there():
    decision = Uniform(1, seed=0).select(np.zeros((3, 1)), worth=Worth([9.0, 0, 0], [0, 0, np.inf]))
    assert decision.probabilities.tolist() == [0.5, 0.5, 0.0]


@pytest.mark.parametrize(
    ("worth", "says"),
    [
        (Worth([1.0, 2.0]), r"gain of a worth must be one number, or of shape \(4,\); got shape \(2,\)"),
        (Worth(1.0, [0, np.nan, 0, 0]), "cost .* that of arm 1 in round 0 of the call is nan"),
        (Worth([1, 1, np.inf, 1]), "gain .* arm 2 in round 0"),
        (Worth(1.0, [0, 0, -np.inf, 0]), "cost .* arm 2"),
        (Worth("price"), "gain of a worth must be real numbers; got text"),
        (Worth(1e200, [1e308, 0, 0, -1e308]), "so small that scores are finite"),
        ({"gain": 1.0, "price": 1.0}, "gain, cost and spends"),
        ({"tea": 1.0}, "must be real numbers"),
        (Worth(1.0, spends=1.0), "for a policy with a ceiling"),
    ],
)
def test_bad_worth_is_refused_and_nothing_is_recorded(worth, says):
    policy = trained("ucb", 6)
    before = policy.fingerprint()
    if "so small" in says:
        worth = Worth(1e308, 1e308)
        policy.observe(policy.select(np.full((4, D), 3.0)), 50.0)
        policy.update()
        before = policy.fingerprint()
    with pytest.raises(InvalidWorth, match=says):
        policy.select(np.full((4, D), 3.0), worth=worth)
    assert policy.fingerprint() == before


def test_no_arm_is_left_by_infinite_costs():
    with pytest.raises(ValueError, match="at least one arm"):
        trained("ucb", 6).select(np.ones((4, D)), worth=Worth(1.0, np.inf))


def test_a_decision_describes_its_worth():
    decision = trained("ucb", 7).select(np.ones((2, D)), worth=Worth([1.0, 2.0], [0.5, np.inf]))
    assert decision.describe()["worth"] == {"gain": [1.0, 0.0], "cost": [0.5, 0.0]}
    assert copy.copy(decision.worth).of(2.0).tolist() == [1.5, 0.0]


def test_a_round_in_worth_like_the_last_one_is_decided_and_refused_as_the_first():
    contexts, costs = np.eye(3, D), np.array([0.0, 1.0, 2.0])
    one, plain = (LinUCB(D, OnDemand(), beta=0.5, seed=0) for _ in range(2))
    plain._step = None
    gains = np.array([1.0, 3.0, -4.0])
    for worth in (Worth(gains, costs), None, Worth(2.0, costs), Worth(gains), gains, Worth(1.0, [0.0, np.inf, 0.5])):
        for _ in range(2):
            made, wanted = one.select(contexts, worth=worth), plain.select(contexts, worth=worth)
            np.testing.assert_array_equal(made.probabilities, wanted.probabilities)
            np.testing.assert_allclose(made.bonuses, wanted.bonuses, rtol=1e-12)
            assert (made.worth is None) == (wanted.worth is None)
            if worth is not None:
                np.testing.assert_array_equal(
                    [made.worth.gain, made.worth.cost], [wanted.worth.gain, wanted.worth.cost]
                )
    made = one.select(contexts, worth=Worth(gains, costs))
    gains[:] = 0.0  # the record is not the caller's array
    assert made.worth.gain.tolist() == [1.0, 3.0, -4.0]
    before = one.fingerprint()
    for bad in (Worth(np.array([1.0, np.nan, 1.0])), Worth(np.inf), Worth(cost=-np.inf), Worth(spends=1.0)):
        with pytest.raises(InvalidWorth):
            one.select(contexts, worth=bad)
    assert one.fingerprint() == before
