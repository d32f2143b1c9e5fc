"""The family around BatchNeuralUCB, each held against its limit."""

import numpy as np
import pytest

import rarely
from rarely import (
    BatchNeuralUCB,
    FixedGrid,
    InvalidInput,
    LinTS,
    LinUCB,
    Mixture,
    NeuralEpsilonGreedy,
    NeuralLinear,
    NeuralTS,
)
from rarely._core.choice.gaussian_argmax import highest_of_gaussians
from worlds import HORIZON, contexts, play, rewards

SMALL = {"hidden": 16, "training": 20, "seed": 3}
GRID = FixedGrid(HORIZON, 4)


@pytest.mark.parametrize("kind", [NeuralTS, NeuralLinear])
def test_without_bonuses_thompson_sampling_is_greedy(kind):
    policy = kind(2, GRID, beta=0.0, **SMALL)
    play(policy, contexts()[:12])
    decision = policy.select(contexts()[12:])
    assert policy.version == 2
    np.testing.assert_array_equal(decision.arm, np.argmax(decision.means, axis=1))
    assert (decision.propensity == 1).all()


@pytest.mark.parametrize("ties", ["lowest", "random"])
def test_without_bonuses_neural_thompson_sampling_plays_as_batch_neural_ucb(ties):
    """From the first round on, where all means are 0."""
    policies = [kind(2, GRID, beta=0.0, ties=ties, **SMALL) for kind in (NeuralTS, BatchNeuralUCB)]
    chances = [policy.probabilities(contexts()[:2]) for policy in policies]
    np.testing.assert_array_equal(*chances)
    np.testing.assert_allclose(chances[0], np.tile([1, 0, 0] if ties == "lowest" else [1 / 3] * 3, (2, 1)))
    np.testing.assert_array_equal(*(play(policy, contexts()) for policy in policies))


@pytest.mark.parametrize("kind", [NeuralTS, LinTS, NeuralLinear])
@pytest.mark.parametrize(("ties", "expected"), [("lowest", [1.0, 0.0]), ("random", [0.5, 0.5])])
def test_thompson_sampling_breaks_ties_as_asked(kind, ties, expected, tmp_path):
    policy = kind(2, GRID, beta=0.0, ties=ties, **({} if kind is LinTS else SMALL))
    policy.save(tmp_path / "policy")
    for one in (policy, rarely.load(tmp_path / "policy")):
        assert one.probabilities(np.ones((2, 2))).tolist() == expected


def test_linear_thompson_sampling_with_a_small_beta_is_not_uniform():
    small, whole = (LinTS(dim=1, intercept=False, beta=beta, seed=0) for beta in (1e-10, 1.0))
    rows = [[1.0], [2.0], [0.0]]
    np.testing.assert_allclose(small.probabilities(rows), whole.probabilities(rows), atol=1e-12)


@pytest.mark.parametrize("kind", [NeuralTS, LinTS, NeuralLinear])
def test_arms_are_sampled_as_often_as_they_would_be_best(kind):
    policy = kind(2, GRID, beta=0.7, **({} if kind is LinTS else SMALL))
    play(policy, contexts()[:6])
    scores = policy.score(contexts()[7])
    expected = highest_of_gaussians(scores.means[None], scores.bonuses[None], np.zeros(1))[0]
    np.testing.assert_allclose(policy.probabilities(contexts()[7]), expected, atol=1e-12)
    decisions = policy.select(np.tile(contexts()[7], (4000, 1, 1)))
    np.testing.assert_allclose(np.bincount(decisions.arm, minlength=3) / 4000, expected, atol=0.03)


def test_linear_thompson_sampling_knows_what_linucb_knows():
    """The posterior's mean and deviation are LinUCB's mean and bonus."""
    sampled, optimist = LinTS(2, GRID, beta=0.4, seed=0), LinUCB(2, GRID, beta=0.4)
    rows = contexts()[:6, :1]
    for policy in (sampled, optimist):
        policy.observe(policy.select(rows), rewards(rows[:, 0]))
        policy.update()
    for a, b in zip(sampled.score(contexts()), optimist.score(contexts()), strict=True):
        np.testing.assert_array_equal(a, b)


def test_epsilon_greedy_is_the_mixture_without_bonuses():
    policy = NeuralEpsilonGreedy(2, GRID, epsilon=0.3, **SMALL)
    other = BatchNeuralUCB(2, GRID, beta=0.0, exploration=Mixture(0.3), **SMALL)
    np.testing.assert_array_equal(play(policy, contexts()), play(other, contexts()))
    assert set(policy.probabilities(contexts()[0]).round(12)) == {0.1, 0.8}
    assert policy.score(contexts()).bonuses.max() == 0


def test_a_mixture_of_1_is_uniform_and_of_0_the_rule_itself():
    everything, nothing, plain = (
        BatchNeuralUCB(2, GRID, exploration=e, **SMALL) for e in (Mixture(1.0), Mixture(0.0), None)
    )
    np.testing.assert_allclose(everything.probabilities(contexts()), 1 / 3)
    assert {*play(everything, contexts())} == {0, 1, 2}
    np.testing.assert_array_equal(play(nothing, contexts()), play(plain, contexts()))


def features(policy, rows):
    """The last layer's input, by hand."""
    x = policy.context_scale(rows)
    return np.maximum(x @ policy.weights[0].T, 0)


@pytest.mark.parametrize("steps", [0, 20])
def test_neural_linear_is_bayesian_regression_on_the_last_layer(steps):
    """With no steps the features are random and fixed: a linear policy on them, exactly."""
    ridge, beta = 0.2, 0.6
    policy = NeuralLinear(2, GRID, **SMALL | {"training": steps, "ridge": ridge, "beta": beta})
    play(policy, contexts()[:18])
    assert policy.version == 3
    a, r = features(policy, policy.history.contexts), policy.history.rewards
    scale = np.sqrt(16)
    z = ridge * np.eye(16) + a.T @ a
    targets = (r - r.mean()) / r.std() / scale
    coefficients = np.linalg.solve(z, a.T @ targets)
    new = contexts()[20]
    b = features(policy, new)
    np.testing.assert_allclose(policy.score(new).means, r.mean() + r.std() * scale * b @ coefficients, rtol=1e-8)
    variances = np.einsum("ij,ij->i", b, np.linalg.solve(z, b.T).T)
    np.testing.assert_allclose(policy.score(new).bonuses, beta * np.sqrt(variances), rtol=1e-8)
    np.testing.assert_allclose(policy.log_det, np.linalg.slogdet(z)[1] - 16 * np.log(ridge), rtol=1e-9)


def test_a_log_makes_neural_linears_version_0():
    rows = contexts()[:, 0]
    policy = NeuralLinear.from_log(rows, rewards(rows), schedule=GRID, **SMALL)
    a = features(policy, rows)
    z = 0.01 * np.eye(16) + a.T @ a
    np.testing.assert_allclose(policy.log_det, np.linalg.slogdet(z)[1] - 16 * np.log(0.01), rtol=1e-9)


def test_propensities_stay_on_record(tmp_path):
    policy = NeuralTS(2, GRID, **SMALL)
    decision = policy.select(contexts()[:5])
    chosen = decision.probabilities[np.arange(5), decision.arm]
    np.testing.assert_array_equal(decision.propensity, chosen)
    assert decision[2].propensity == chosen[2]
    policy.save(tmp_path / "p")
    np.testing.assert_array_equal(rarely.load(tmp_path / "p").history.propensities, chosen)


def test_a_wrong_mixture_is_refused():
    with pytest.raises(InvalidInput, match="Mixture"):
        LinUCB(2, exploration=0.1)


@pytest.mark.parametrize("given", [{"beta": 1.0}, {"exploration": Mixture(0.5)}])
def test_epsilon_greedy_takes_no_other_exploration(given):
    with pytest.raises(InvalidInput, match="epsilon"):
        NeuralEpsilonGreedy(2, GRID, **SMALL, **given)
