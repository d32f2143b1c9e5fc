"""Contestants of others compute what their papers or their code say: each against a plain computation."""

import copy
import itertools
import math

import numpy as np
import pytest

from comparison_records import record
from rarely import LinUCB
from rarely_lab.compare import Task, find_problem, leaderboard
from rarely_lab.compare.linear_rivals import BLCE, DesignElimination, Version, optimal_design
from rarely_lab.compare.neural_rivals import AuthorsNeuralTS, AuthorsNeuralUCB
from rarely_lab.compare.policies import PAIRS, POLICIES
from rarely_lab.compare.scores import HINDSIGHT, Leaderboard
from rarely_lab.engine.play import Contestant, play

OTHERS = ["blce", "elimination-design", "neuralucb-uclaml", "neuralts-zeroweight", "bayesianbandits"]
neural = pytest.mark.parametrize("kind", [AuthorsNeuralUCB, AuthorsNeuralTS])
shape = pytest.mark.parametrize("block", [0, 3])


def made(name, task):
    if POLICIES[name].package:
        pytest.importorskip(POLICIES[name].package)
    return POLICIES[name].make(task)


@pytest.mark.parametrize("problem", ["cosine", "wheel", "two-sided+delay"])
@pytest.mark.parametrize("name", OTHERS)
def test_it_plays_and_keeps_its_budget(name, problem):
    found = find_problem(problem)
    contestant = made(name, found.task(60, 4, 0))
    assert isinstance(contestant, Contestant)
    played = play(contestant, found.rounds(0, 60), 4, found.delays(0, 60))
    assert 1 <= len(played.updates) <= 3


@pytest.mark.parametrize("name", OTHERS)
def test_it_learns_a_linear_world(name):
    found = find_problem("two-sided")
    played = play(made(name, found.task(240, 6, 1)), found.rounds(1, 240), 6)
    assert played.regrets[-80:].sum() < 0.6 * played.regrets[:20].sum() * 4


def rows_of(contexts, task):
    """Contexts as the authors' code has them: each row of a table has length 1."""
    return contexts / np.linalg.norm(contexts, axis=1, keepdims=True) if task.block else contexts


def contexts_of(task, rng, count):
    if not task.block:
        return rng.normal(size=(count, task.arms, task.dim))
    rows = rng.normal(size=(count, task.block))
    return np.einsum("nb,kj->nkjb", rows, np.eye(task.arms)).reshape(count, task.arms, task.dim)


def weights_of(network):
    """The weights of a dense network: W₁ (100, d), b₁, w₂, b₂."""
    hidden = np.concatenate(list(network.hidden), axis=1)
    return [np.array(hidden, float), np.array(network.biases, float), np.array(network.output, float), network.offset]


def gradient(weights, x):
    hidden, biases, output, offset = weights
    before = hidden @ x + biases
    after = np.maximum(before, 0)
    signal = output * (before > 0)
    return after @ output + offset, [np.outer(signal, x), signal, after, 1.0]


@neural
@shape
def test_its_bonus_has_the_diagonal_of_all_chosen_gradients(kind, block):
    task = Task(3, 3 * block or 5, 50, 5, 0, block=block)
    network, rng = kind(task), np.random.default_rng(0)
    diagonal = [kind.decay * np.ones_like(part) for part in weights_of(network)]
    for contexts in contexts_of(task, rng, 6):
        found = [gradient(weights_of(network), x) for x in rows_of(contexts, task)]
        deviations = [
            math.sqrt(kind.decay * kind.variance * sum(np.sum(g * g / u) for g, u in zip(gs, diagonal, strict=True)))
            for _, gs in found
        ]
        means, their, _ = network.assess(contexts)
        np.testing.assert_allclose(means, [mean for mean, _ in found], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(their, deviations, rtol=1e-4)
        arm = network.select(contexts)
        diagonal = [u + g * g for u, g in zip(diagonal, found[arm][1], strict=True)]
    assert AuthorsNeuralUCB(task).scores(np.array([1.0]), np.array([0.5])) == 1.5


def trained_by_uclaml(weights, rows, rewards, order):
    steps = 0
    while True:
        loss = 0.0
        for i in order:
            mean, gradients = gradient(weights, rows[i])
            pairs = zip(weights, gradients, strict=True)
            weights = [w - 0.01 * (2 * (mean - rewards[i]) * g + 0.001 * w) for w, g in pairs]
            loss, steps = loss + (mean - rewards[i]) ** 2, steps + 1
            if steps >= 1000:
                return weights, steps
        if loss / len(order) <= 1e-3:
            return weights, steps


def trained_by_zeroweight(weights, rows, rewards):
    for _ in range(100 * len(rows)):  # all of them are new
        found = [gradient(weights, x) for x in rows]
        sums = [0.0] * 4
        for (mean, gradients), reward in zip(found, rewards, strict=True):
            sums = [s + 2 * (mean - reward) * g / len(rows) for s, g in zip(sums, gradients, strict=True)]
        weights = [w - 0.01 * (s + 0.01 / len(rows) * w) for w, s in zip(weights, sums, strict=True)]
    return weights


@neural
@shape
@pytest.mark.parametrize("reward", [0.0, 3.0])
def test_it_trains_as_the_code_of_its_authors(kind, block, reward):
    """Rewards of 0 are soon learned, so that NeuralUCB stops before 1000 steps; two for one context never are."""
    task = Task(3, 3 * block or 5, 50, 5, 0, block=block)
    network, rng = kind(task), np.random.default_rng(1)
    contexts = contexts_of(task, rng, 7)
    arms, rewards = rng.integers(3, size=7), reward * rng.normal(size=7)
    contexts[1], arms[1] = contexts[0], arms[0]
    rows = np.array([rows_of(x, task)[arm] for x, arm in zip(contexts, arms, strict=True)])
    weights = weights_of(network)
    # In double precision: a rounding may carry a unit over the kink of ReLU.
    network.hidden, network.biases, network.output = (
        part.astype(float) for part in (network.hidden, network.biases, network.output)
    )
    if kind is AuthorsNeuralUCB:
        order = copy.deepcopy(network._generator).permutation(7)
        expected, steps = trained_by_uclaml(weights, rows, rewards, order)
        assert (steps < 1000) == (reward == 0)
    else:
        expected = trained_by_zeroweight(weights, rows, rewards)
    own = rows.reshape(7, -1, block or task.dim).sum(axis=1)
    network.train(own, arms if block else np.zeros(7, int), rewards)
    for found, part in zip(weights_of(network), expected, strict=True):
        np.testing.assert_allclose(found, part, rtol=1e-8, atol=1e-10)


def test_steps_of_neuralts_are_for_the_rounds_since_the_last_update():
    task = Task(3, 9, 50, 5, 0, block=3)
    often, rarely = AuthorsNeuralTS(task), AuthorsNeuralTS(task)
    rows, rewards = np.tile(np.eye(3)[0], (4, 1)), np.zeros(4)
    arms = np.zeros(4, int)
    often.train(rows, arms, rewards)
    for _ in range(2):  # no new reward: no step
        often.train(rows, arms, rewards)
    rarely.train(rows, arms, rewards)
    np.testing.assert_array_equal(often.hidden, rarely.hidden)
    assert (AuthorsNeuralTS.decay, AuthorsNeuralTS.variance) == (0.01, 1e-5)


@neural
def test_an_update_trains_on_all_rewards_so_far(kind):
    task = Task(3, 9, 50, 5, 0, block=3)
    network, contexts, given = kind(task), contexts_of(task, np.random.default_rng(3), 3), []
    network.train = lambda rows, blocks, rewards: given.append((rows, blocks, rewards))
    for number in (1, 2, 3):
        network.observe(number, contexts[number - 1], number - 1, float(number))
        network.update()
    rows, blocks, rewards = given[-1]
    lengths = np.linalg.norm(contexts[np.arange(3), np.arange(3)], axis=1)
    np.testing.assert_allclose(rows, [contexts[k, k, 3 * k : 3 * k + 3] / lengths[k] for k in range(3)], rtol=1e-6)
    assert (blocks.tolist(), rewards.tolist(), len(given[0][2])) == ([0, 1, 2], [1.0, 2.0, 3.0], 1)


def test_it_trains_as_torch_does():
    torch = pytest.importorskip("torch", reason="torch is not installed: its optimiser is not compared")
    task = Task(2, 4, 50, 5, 0)
    network, rng = AuthorsNeuralTS(task), np.random.default_rng(2)
    hidden, biases, output, offset = (torch.tensor(part, dtype=torch.float64) for part in weights_of(network))
    module = torch.nn.Sequential(torch.nn.Linear(4, 100), torch.nn.ReLU(), torch.nn.Linear(100, 1)).double()
    with torch.no_grad():
        for part, start in zip(module.parameters(), (hidden, biases, output[None], offset[None]), strict=True):
            part.copy_(start)
    rows, rewards = rng.normal(size=(6, 4)), rng.normal(size=6)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01, weight_decay=0.01 / 6)
    for _ in range(6 * 100):  # as many for each new reward
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(module(torch.tensor(rows)).view(-1), torch.tensor(rewards)).backward()
        optimizer.step()
    network.train(rows.astype(np.float32), np.zeros(6, int), rewards.astype(np.float32))
    for found, part in zip(weights_of(network), module.parameters(), strict=True):
        np.testing.assert_allclose(np.ravel(found), part.detach().numpy().ravel(), rtol=2e-3, atol=1e-5)


def test_weights_that_diverge_do_not_stop_a_run():
    network = AuthorsNeuralUCB(Task(2, 2, 20, 5, 0))
    for number in range(1, 4):
        network.observe(number, np.full((2, 2), 100.0), 0, 1e20)
    network.update()
    assert network.select(np.eye(2)) in (0, 1)


def test_an_estimate_is_ridge_regression_and_its_deviation_leaves_each_reward_out():
    rng = np.random.default_rng(3)
    rows, rewards = rng.normal(size=(9, 4)), rng.normal(size=9)
    version = Version.of(rows, rewards)

    def ridge(x, r):
        return np.linalg.solve(np.eye(4) + x.T @ x, x.T @ r)

    np.testing.assert_allclose(version.coefficients, ridge(rows, rewards))
    errors = [rewards[i] - rows[i] @ ridge(np.delete(rows, i, axis=0), np.delete(rewards, i)) for i in range(len(rows))]
    assert version.deviation == pytest.approx(math.sqrt(np.mean(np.square(errors))))


def blce_arm(x, versions, ends, t, horizon, batch_rows):
    """BLCE's arm in round t, plainly: `batch_rows` are the contexts chosen since the last update."""
    d, left = x.shape[1], list(range(len(x)))
    count = len(ends)
    for theta, v in versions:
        norms = [math.sqrt(x[k] @ np.linalg.solve(v, x[k])) for k in left]
        few = math.sqrt(2 * math.log(len(left) * count * horizon**2)) + 1
        many = 2 * math.sqrt(math.log(2 ** (6 * d - 5) * math.pi * d * count**2 * horizon**2 / 15 ** (d - 1))) + 2
        best = max(x[k] @ theta for k in left)
        left = [k for k in left if best - x[k] @ theta <= 2 * max(norms) * min(few, many)]
    began = max([0, *(end for end in ends if end < t)])
    end = min([horizon, *(end for end in ends if end >= t)])
    if versions and t - began > 0.5 * (end - began):
        return max(left, key=lambda k: x[k] @ versions[-1][0])
    h = np.eye(d) + sum((np.outer(row, row) for row in batch_rows), np.zeros((d, d)))
    return max(left, key=lambda k: x[k] @ np.linalg.solve(h, x[k]))


@pytest.mark.parametrize("batches", [4, 80])
def test_blce_plays_what_its_description_says(batches):
    rng, horizon = np.random.default_rng(4), 80
    task = Task(5, 2, horizon, batches, 0)
    contestant, versions, rows, rewards = BLCE(task), [], [], []
    ends = BLCE.grid(horizon)[: batches - 1]
    truth = np.array([30.0, -20.0, 1.0])
    for t in range(1, horizon + 1):
        contexts = rng.normal(size=(5, 2))
        x = np.hstack([contexts, np.ones((5, 1))])
        arm = contestant.select(contexts)
        assert arm == blce_arm(x, versions, ends, t, horizon, rows)
        rows.append(x[arm])
        rewards.append(x[arm] @ truth + rng.normal())
        contestant.observe(t, contexts, arm, rewards[-1])
        assert contestant.due(t) == (t in ends)
        if t in ends:
            contestant.update()
            v = np.eye(3) + np.transpose(rows) @ rows
            versions.append((np.linalg.solve(v, np.transpose(rows) @ rewards), v))
            rows, rewards = [], []
    assert len(versions) == len(ends) == min(batches - 1, 4)
    assert any(len(contestant.left(x)) < 5 for x in (np.hstack([rng.normal(size=(5, 2)), np.ones((5, 1))]),) * 3)


def test_elimination_leaves_what_may_be_best_and_the_last_version_plays_the_largest_mean():
    rng = np.random.default_rng(5)
    contestant = DesignElimination(Task(4, 1, 2000, 5, 0))
    assert len(contestant._ends) == 4
    theta = np.array([1.0, 0.0])
    for version in range(4):
        x = rng.uniform(-1, 1, size=(4, 1))
        rows = np.hstack([x, np.ones((4, 1))])
        for number in range(1, 41):
            contestant.observe(number, x, number % 4, rows[number % 4] @ theta + 0.1 * rng.normal())
        contestant._passed = version + 1
        contestant.update()
        means, errors, arms = {}, {}, range(4)
        for each in contestant.versions:
            for k in arms:
                means[k] = rows[k] @ each.coefficients
                errors[k] = each.deviation * math.sqrt(2 * math.log(8000) * (rows[k] @ each.inverse @ rows[k]))
            lowest = max(means[k] - errors[k] for k in arms)
            arms = [k for k in arms if means[k] + errors[k] >= lowest]
        assert contestant.left(rows) == arms
        assert contestant.select(x) in arms
    assert contestant.select(x) == max(arms, key=lambda k: rows[k] @ contestant.versions[-1].coefficients)


def test_the_design_is_g_optimal():
    """Kiefer and Wolfowitz: a design is optimal if and only if the largest xᵀ(Σ p x xᵀ)⁻¹x is d."""
    x = np.random.default_rng(6).normal(size=(12, 3))
    chances = optimal_design(x)
    assert chances.sum() == pytest.approx(1)
    inverse = np.linalg.inv(np.einsum("n,nd,ne->de", chances, x, x))
    assert 3 <= np.einsum("nd,de,ne->n", x, inverse, x).max() < 3.3
    np.testing.assert_allclose(optimal_design(np.eye(4)[:3]), 1 / 3)
    np.testing.assert_allclose(optimal_design(np.zeros((2, 3))), 0.5)


def test_bayesianbandits_has_the_posterior_of_bayesian_linear_regression():
    pytest.importorskip("bayesianbandits")
    rng = np.random.default_rng(7)
    contestant = POLICIES["bayesianbandits"].make(Task(3, 2, 90, 5, 0))
    rows, rewards = [], []
    for number, contexts in enumerate(rng.normal(size=(12, 3, 2)), 1):
        arm, reward = contestant.select(contexts), rng.normal()
        contestant.observe(number, contexts, arm, reward)
        rows.append([*contexts[arm], 1.0])
        rewards.append(reward)
        if number in (5, 12):
            contestant.update()
    precision = np.eye(3) + np.transpose(rows) @ rows
    mean = np.linalg.solve(precision, np.transpose(rows) @ rewards)
    np.testing.assert_allclose(contestant.agent.learner.coef_, mean, atol=1e-9)
    contexts = rng.normal(size=(3, 2))
    x = np.hstack([contexts, np.ones((3, 1))])
    draws = rng.multivariate_normal(mean, np.linalg.inv(precision), 4000) @ x.T
    expected = np.bincount(draws.argmax(axis=1), minlength=3) / 4000
    chosen = np.bincount([contestant.select(contexts) for _ in range(4000)], minlength=3) / 4000
    np.testing.assert_allclose(chosen, expected, atol=0.05)


def test_pairs_of_linucb_go_beyond_the_papers_grid():
    grid = ("0.001", "0.01", "0.1", "1")
    assert {f"linucb-{a}-{b}" for a, b in itertools.product(grid, grid)} - {"linucb-1-1"} < set(PAIRS)
    assert len(PAIRS) == 6 * 7 - 1
    found = find_problem("two-sided")
    policy = POLICIES["linucb-0.1-0.01"].make(found.task(50, 5, 0)).policy
    assert isinstance(policy, LinUCB)
    assert (policy.settings()["ridge"], policy.settings()["beta"]) == (0.1, 0.01)
    policy = POLICIES["linucb"].make(found.task(50, 5, 0)).policy
    assert (policy.settings()["ridge"], policy.settings()["beta"]) == (1.0, 1.0)


def test_hindsight_is_the_best_pair_on_each_problem_with_each_budget_and_never_the_zero():
    regrets = {
        ("p", 5): {"linucb": 40, "linucb-0.1-1": 30, "linucb-1-0.1": 35},
        ("p", None): {"linucb": 20, "linucb-0.1-1": 25, "linucb-1-0.1": 10},
        ("q", 5): {"linucb": 40, "linucb-0.1-1": 50},
        ("q", None): {"linucb": 15, "linucb-0.1-1": 55},
    }
    records = [
        record(problem, policy, batches, seed, regret + seed)
        for (problem, batches), of in regrets.items()
        for policy, regret in of.items()
        for seed in (0, 1)
    ]
    results = Leaderboard([*records, record("p", "linucb-0.01-1", 5, 0, 1.0)])  # lucky, with one run only
    assert results.policies == ["linucb", HINDSIGHT]
    for (problem, batches), of in regrets.items():
        assert results.regret(problem, HINDSIGHT, batches).value == min(of.values()) + 0.5
    assert [results.scales[problem].zero for problem in "pq"] == [20.5, 15.5]
    assert [row.policy for row in leaderboard(records).rows] == [HINDSIGHT, "linucb"]
    assert HINDSIGHT not in Leaderboard([record("p", "linucb", 5)]).policies
