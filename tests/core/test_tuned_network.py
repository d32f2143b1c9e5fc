"""A network that chooses ridge, skip path, noise and memory by the likelihood of the rewards."""

import copy
import warnings
from functools import cache

import numpy as np
import pytest

import rarely
from rarely import (
    BatchNeuralUCB,
    FixedGrid,
    InvalidInput,
    LinUCB,
    NeuralLinear,
    NoiseRadius,
    OnDemand,
    Preset,
    SnapshotError,
    Training,
)
from rarely._core.policies.evidence import FEWEST, RIDGES
from rarely._core.policies.tuned_network import STEPS, _errors, remembered
from rarely._core.saving.fields import Fields
from rarely.extend.additions import TunedNetwork
from rarely.worlds import Cosine


def trained(rounds=120, **settings):
    """A policy after one update, and its chosen contexts and rewards."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(rounds, 1, 3))
    y = np.abs(x[:, 0, 0]) + 0.3 * rng.normal(size=rounds)
    policy = BatchNeuralUCB(3, OnDemand(), **({"hidden": 10, "beta": 0.5, "seed": 0} | settings))
    policy.observe(policy.select(x), y)
    policy.update()
    return policy, x[:, 0], y


def dense_likelihood(gram, target, ridge):
    """The log likelihood of a Gaussian process, its variance put in, up to a constant."""
    matrix, n = gram + ridge * np.eye(len(gram)), len(target)
    variance = (target @ np.linalg.solve(matrix, target) + 1) / (n + 1)
    return -0.5 * n * np.log(variance) - 0.5 * np.linalg.slogdet(matrix)[1]


def test_the_ridge_is_the_mean_of_ridges_by_their_likelihood_under_the_better_skip_path():
    policy, x, y = trained()
    learner = policy._learner
    target, scaled = (y - y.mean()) / y.std(), policy.context_scale(x)
    found = {}
    for skip in learner.network.skips:
        phi = learner.network.tuned(skip).values_and_factors(policy.initial_weights, scaled)[1].vectors()
        unit = np.square(phi).sum(axis=1).mean()
        found[skip] = unit, np.array([dense_likelihood(phi @ phi.T / unit, target, ridge) for ridge in RIDGES])
    skip = max(found, key=lambda each: found[each][1].max())
    unit, likely = found[skip]
    share = np.exp(likely - likely.max())
    assert policy.network.skip == skip
    assert learner.unit == pytest.approx(unit)
    assert learner.ridge == pytest.approx(np.exp(share @ np.log(RIDGES) / share.sum()), rel=1e-6)
    record = policy.updates[-1]
    assert (record.steps, record.skip) == (STEPS, skip)
    assert record.tuning == f"ridge {learner.ridge:.2g}, log likelihood {likely.max():.1f} on 120 rewards"


def test_the_mean_is_a_training_with_the_ridge_that_was_chosen_and_no_other_fits_better():
    policy, x, y = trained()
    learner, target = policy._learner, (y - y.mean()) / y.std()
    network, ridge = learner.network, learner.ridge * learner.unit

    def loss(weights):
        moved = sum(np.square(w - v).sum() for w, v in zip(weights, policy.initial_weights, strict=True))
        return np.square(network.values(weights, policy.context_scale(x)) - target).sum() / 2 + ridge * moved / 2

    weights, rng = policy.weights, np.random.default_rng(0)
    assert loss(weights) < 0.8 * loss(policy.initial_weights)
    for _ in range(20):
        step = [0.02 * rng.normal(size=w.shape) for w in weights]
        assert loss(tuple(w + s for w, s in zip(weights, step, strict=True))) > loss(weights)
    np.testing.assert_allclose(
        policy.score(x[:, None]).means[:, 0],
        y.mean() + y.std() * network.values(weights, policy.context_scale(x)),
        rtol=1e-9,
    )


@pytest.mark.parametrize("settings", [{}, {"ridge": 3.0}, {"covariance": "primal"}, {"depth": 3}])
def test_bonuses_are_deviations_under_the_ridge_that_was_chosen(settings):
    """Whatever the ridge of Z, which only shares its unit with the features."""
    policy, x, _ = trained(**settings)
    network, fresh = policy.network, np.random.default_rng(2).normal(size=(20, 3))
    phi, new = (
        network.values_and_factors(policy.weights, policy.context_scale(rows))[1].vectors() for rows in (x, fresh)
    )
    dense = policy._learner.unit * min(policy._learner.ridge, 1.0) * np.eye(phi.shape[1]) + phi.T @ phi
    expected = 0.5 * np.sqrt(np.einsum("ij,ij->i", new, np.linalg.solve(dense, new.T).T))
    np.testing.assert_allclose(policy.score(fresh[:, None]).bonuses[:, 0], expected, rtol=1e-6)


def test_the_next_update_judges_by_the_network_of_this_one():
    policy, x, y = trained()
    before = policy.weights
    policy.observe(policy.select(x[:40, None]), y[:40])
    policy.update()
    scaled = policy.context_scale(np.concatenate((x, x[:40])))
    gram = policy.network.kernel(tuple(before), scaled)
    assert policy._learner.unit == pytest.approx(np.trace(gram) / len(gram))


def test_few_rewards_choose_nothing():
    policy, _, _ = trained(rounds=FEWEST - 1)
    assert (policy._learner.ridge, policy.network.skip) == (1.0, 0.0)
    assert "too few rewards" in policy.updates[-1].tuning


def test_one_reward_far_out_moves_the_mean_little():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 1, 3))
    y = x[:, 0, 0] + 0.1 * rng.normal(size=200)
    means = []
    for outlier in (0.0, 1e4):
        policy = BatchNeuralUCB(3, OnDemand(), hidden=20, seed=0)
        policy.observe(policy.select(x[:100]), y[:100])
        policy.update()
        policy.observe(policy.select(x[100:]), np.append(y[100:-1], y[-1] + outlier))
        policy.update()
        means.append(policy.score(x).means[:, 0])
    assert np.abs(means[1] - means[0]).max() < 0.5
    assert np.square(means[1] - x[:, 0, 0]).mean() < 0.05


def test_errors_one_after_the_other_are_those_of_gaussian_conditionals():
    rng = np.random.default_rng(3)
    rows, target, noise = rng.normal(size=(12, 4)), rng.normal(size=12), rng.uniform(0.1, 1, size=12)
    gram = rows @ rows.T
    errors, deviations = _errors(target, gram, noise, 7)
    for place, i in enumerate(range(7, 12)):
        inverse = np.linalg.inv(gram[:i, :i] + np.diag(noise[:i]))
        mean = gram[i, :i] @ inverse @ target[:i]
        deviation = np.sqrt(gram[i, i] + noise[i] - gram[i, :i] @ inverse @ gram[:i, i])
        assert deviations[place] == pytest.approx(deviation, rel=1e-6)
        assert errors[place] == pytest.approx((target[i] - mean) / deviation, rel=1e-6)


def line(turn, rounds=240, seed=0):
    """Rewards linear in two numbers, whose slope changes its sign at a round, and what `remembered` makes of them."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rounds, 2))
    y = np.where(np.arange(rounds) < turn, 1.0, -1.0) * x[:, 0] + 0.3 * rng.normal(size=rounds)
    begun = tuple(range(40, rounds, 40))
    return remembered(np.arange(rounds), y, x @ x.T, np.full(rounds, 0.09), begun)


@pytest.mark.parametrize("seed", range(10))
def test_a_world_that_stands_still_is_remembered_whole(seed):
    assert line(turn=1000, seed=seed).rounds(240) == 240


@pytest.mark.parametrize("seed", range(10))
def test_what_came_before_a_turn_is_forgotten(seed):
    """The turn is at a round where a batch began; nothing after it is forgotten for a little."""
    found = line(turn=160, seed=seed)
    assert 40 <= found.rounds(240) <= 80
    assert found.gain > 10


def test_batches_that_are_too_short_decide_nothing():
    assert remembered(np.arange(9), np.arange(9.0), np.eye(9), np.ones(9), (4, 8)).rounds(9) == 9


@cache
def life(scale):
    """A policy that has played 160 rounds of a world in this unit of reward, and its learner after each update."""
    world, learners = Cosine().rounds(seed=3, count=160), []
    policy = BatchNeuralUCB(10, FixedGrid(160, 8), hidden=20, seed=0)
    while policy.round < 160:
        start = policy.round
        decision = policy.select(world.contexts[start:], until_due=True)
        policy.observe(decision, scale * world.rewards[np.arange(start, policy.round), decision.arm])
        if policy.due:
            policy.update()
            learners.append(policy._learner)
    return policy, learners


def played(scale=1.0):
    """A copy of the policy, to do anything with."""
    return copy.deepcopy(life(scale)[0])


def test_thompson_sampling_has_probabilities_to_the_end():
    world = Cosine().rounds(seed=3, count=60)
    for kind in (rarely.NeuralTS, NeuralLinear):
        policy = kind(10, FixedGrid(60, 3), hidden=10, seed=0)
        while policy.round < 60:
            start = policy.round
            decision = policy.select(world.contexts[start:], until_due=True)
            policy.observe(decision, world.rewards[np.arange(start, policy.round), decision.arm])
            if policy.due:
                policy.update()
        assert policy.beta > 0


def test_coverage_is_what_was_predicted_against_what_came():
    policy = played()
    record, before = policy.updates[-1], policy.updates[-2]
    own = policy.history.versions == before.version
    off = np.abs(policy.history.rewards - policy.history.means)[own]
    allowed = 1.959963984540054 * np.sqrt(before.noise**2 + policy.history.bonuses[own] ** 2)
    assert record.coverage == pytest.approx(np.mean(off <= allowed))


def test_units_of_rewards_do_not_matter():
    plain, scaled = played(), played(scale=1000.0)
    np.testing.assert_array_equal(plain.history.arms, scaled.history.arms)
    assert scaled.updates[-1].noise == pytest.approx(1000 * plain.updates[-1].noise, rel=1e-3)


@pytest.mark.parametrize(
    "settings",
    [
        {"training": 200},
        {"training": Training(skip=1.0)},
        {"training": Training(step_size=1e-4)},
        {"training": Training(warm_start=True)},
        {"preset": Preset.named("practical", optimiser="sgd"), "training": Training(step_size=1e-4)},
        {"preset": "paper"},
        {"preset": "code", "training": Training(step_size=1e-3)},
    ],
)
def test_whoever_sets_something_about_training_gets_just_that(settings):
    policy = BatchNeuralUCB(2, FixedGrid(10, 2), hidden=8, seed=0, **settings)
    policy.observe(policy.select(np.ones((5, 1, 2))), np.arange(5.0))
    record = policy.update()
    assert record.tuning == ""
    assert record.steps == 200
    assert policy.beta == 0.01
    assert record.noise is None
    assert record.coverage is None


def test_a_saved_policy_goes_on_tuning_where_it_was(tmp_path):
    policy = played()
    policy.save(tmp_path / "p")
    other = rarely.load(tmp_path / "p")
    fresh = Cosine().rounds(seed=4, count=30)
    for one in (policy, other):
        decision = one.select(fresh.contexts)
        one.observe(decision, fresh.rewards[np.arange(30), decision.arm])
    np.testing.assert_array_equal(policy.history.arms, other.history.arms)
    a, b = policy._learner.learn(policy.history), other._learner.learn(other.history)
    assert a.report == b.report
    for v, w in zip(a.learner.weights, b.learner.weights, strict=True):
        np.testing.assert_array_equal(v, w)


def test_neural_linear_tunes_itself_too():
    policy = NeuralLinear(2, FixedGrid(60, 4), hidden=10, seed=0)
    rng = np.random.default_rng(0)
    for _ in range(4):
        rows = rng.normal(size=(15, 3, 2))
        decision = policy.select(rows)
        policy.observe(decision, rows[np.arange(15), decision.arm].sum(axis=1))
        if policy.due:
            policy.update()
    assert "log likelihood" in policy.updates[-1].tuning


def test_a_part_of_the_noise_needs_an_estimate_of_it():
    with pytest.raises(InvalidInput, match="estimates the noise"):
        LinUCB(2, beta=NoiseRadius(0.1))
    with pytest.raises(InvalidInput, match="factor"):
        NoiseRadius(-1.0)


def test_rewards_that_never_vary_are_no_trouble():
    policy = BatchNeuralUCB(2, FixedGrid(60, 3), hidden=8, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            decision = policy.select(np.random.default_rng(0).normal(size=(20, 2, 2)))
            policy.observe(decision, np.full(20, 3.0))
            if policy.due:
                assert policy.update().accepted
    np.testing.assert_allclose(policy.score(np.ones((2, 2))).means, 3.0)


def forgetful(forgetting, noises, rounds=500, seed=0):
    """A tuned policy in a world of one arm whose noise changes in mid-run."""
    rng = np.random.default_rng(seed)
    policy = BatchNeuralUCB(2, FixedGrid(rounds, 25), hidden=10, forgetting=forgetting, seed=0)
    while policy.round < rounds:
        rows = rng.normal(size=(20, 1, 2))
        decision = policy.select(rows)
        noise = noises[0] if policy.round <= rounds // 2 else noises[1]
        policy.observe(decision, rows[:, 0].sum(axis=1) + noise * rng.normal(size=20))
        if policy.due:
            policy.update()
    return policy


@pytest.mark.parametrize(("column", "alarmed"), [(0, True), (1, False)])
def test_only_rewards_of_columns_that_varied_raise_an_alarm(column, alarmed):
    """Rewards leap by 9 where a column is 1, which varied before or was always 0, as that of an arm to come."""
    rng, policy = np.random.default_rng(0), BatchNeuralUCB(2, OnDemand(), hidden=10, seed=0)
    rows = np.stack((rng.integers(2, size=60), np.zeros(60)), axis=1)
    policy.observe(policy.select(rows[:, None]), rows[:, 0] + 0.1 * rng.normal(size=60))
    policy.update()
    rows[:20] = 0.0
    rows[:10, column] = 1.0
    policy.observe(policy.select(rows[:20, None]), 9.0 * rows[:20, column] + 0.1 * rng.normal(size=20))
    assert policy._learner._alarmed(policy.history) == alarmed


@pytest.mark.parametrize("forgetting", [None, rarely.Discount(0.98), rarely.Window(150)])
def test_the_noise_is_that_of_rewards_whatever_their_weights(forgetting):
    policy = forgetful(forgetting, (1.0, 1.0))
    assert 0.8 < policy.updates[-1].noise < 1.3
    assert 0.85 <= np.mean([update.coverage for update in policy.updates[-8:]]) <= 1.0


@pytest.mark.parametrize(
    ("forgetting", "least", "most"),
    [(None, 1.0, np.inf), (rarely.Discount(0.96), 0.0, 0.5), (rarely.Window(80), 0.0, 0.5)],
)
def test_the_noise_of_forgotten_rounds_is_forgotten(forgetting, least, most):
    assert least < forgetful(forgetting, (3.0, 0.1)).updates[-1].noise < most


@pytest.mark.parametrize(("name", "value"), [("skip", 2.0), ("ridge", 1e-308), ("unit", -1.0), ("updates", None)])
def test_a_forged_choice_is_refused(name, value):
    learner = played()._learner
    numbers, arrays = learner.state()
    assert isinstance(learner, TunedNetwork)
    learner.restored(Fields("learner", dict(numbers), dict(arrays)))
    if value is None:
        arrays = arrays | {name: np.full((2, 2), 1.5)}
    else:
        numbers = numbers | {name: value}
    with pytest.raises(SnapshotError, match=name):
        learner.restored(Fields("learner", numbers, arrays))
