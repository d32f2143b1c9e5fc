"""BatchNeuralUCB against Algorithm 1 written out: p-vectors, p×p matrices and one sample at a time, at any depth."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle import descend, output_and_gradient
from rarely import AtRounds, BatchNeuralUCB, DeterminantTrigger, Discount, FixedGrid, NeuralUCB, Training, Window
from worlds import contexts, rewards

HIDDEN, STEPS, ETA, BETA = 4, 6, 1e-3, 0.5


class DensePolicy:
    """θ, the frozen Z and the running Z, and every round so far; weights of rounds by age, if any are forgotten."""

    def __init__(self, initial, ridge, weight_of_age=None):
        self.initial = self.theta = [np.array(w) for w in initial]
        self.scale = np.sqrt(HIDDEN)
        self.ridge, self.weight_of_age = ridge, weight_of_age
        self.running = ridge * np.eye(sum(w.size for w in self.initial))
        self.frozen = self.running
        self.rows, self.told = [], []

    def feature(self, x):
        f, g = output_and_gradient(self.theta, x, output_scale=self.scale)
        return f, g / self.scale

    def scores(self, arms):
        """Means and bonuses under the frozen Z (line 10)."""
        means, features = zip(*map(self.feature, arms), strict=True)
        return np.array(means), BETA * np.sqrt([phi @ np.linalg.solve(self.frozen, phi) for phi in features])

    def play(self, x, reward):
        """Line 11: Z ← Z + φφᵀ."""
        phi = self.feature(x)[1]
        self.running = self.running + np.outer(phi, phi)
        self.rows.append(x)
        self.told.append(reward)

    def update(self, eta):
        """Lines 5 to 7: rewards in, θ from θ_0, Z frozen; with weights Z is that of the new features."""
        counts = None
        if self.weight_of_age is not None:
            counts = [self.weight_of_age(age) for age in reversed(range(len(self.rows)))]
        self.theta = descend(self.initial, self.rows, self.told, self.ridge, STEPS, eta, self.scale, counts=counts)
        if counts is not None:
            self.running = self.ridge * np.eye(len(self.running))
            for x, count in zip(self.rows, counts, strict=True):
                phi = self.feature(x)[1]
                self.running = self.running + count * np.outer(phi, phi)
        self.frozen = self.running

    @property
    def log_det(self):
        return np.linalg.slogdet(self.running)[1] - len(self.running) * np.log(self.ridge)


def compare(policy, dense, stream, begins):
    """Round by round: the same scores, an arm of the highest one, the same log det; and the same batches.

    `begins` says whether a batch begins with round t, from what the dense policy knows.
    """
    starts = []
    for t, arms in enumerate(stream, start=1):
        assert policy.due == (t > 1 and begins(t))
        if policy.due:
            record = policy.update()
            assert record.accepted
            assert record.step_size == ETA / 4 ** (record.attempts - 1)  # smaller where the loss did not fall
            dense.update(record.step_size)
            starts.append(t)
        means, bonuses = dense.scores(arms)
        decision = policy.select(arms)
        np.testing.assert_allclose(decision.means, means, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(decision.bonuses, bonuses, rtol=1e-8)
        scores = means + bonuses
        assert scores[decision.arm] >= scores.max() - 1e-8
        reward = rewards(arms[decision.arm])[0]
        policy.observe(decision, reward)
        dense.play(arms[decision.arm], reward)
        assert policy.log_det == pytest.approx(dense.log_det, rel=1e-8)
    return starts


def both(schedule, depth, ridge, seed, **given):
    settings = {"hidden": HIDDEN, "depth": depth, "ridge": ridge, "beta": BETA, "training": Training(STEPS, ETA)}
    settings |= {"preset": "paper", "seed": seed} | given
    policy = NeuralUCB(2, **settings) if schedule is None else BatchNeuralUCB(2, schedule, **settings)
    forgetting = given.get("forgetting")
    weight = None if forgetting is None else lambda age: float(forgetting.weights(np.array([float(age)]))[0])
    return policy, DensePolicy(policy.initial_weights, ridge, weight)


DEPTHS, RIDGES, SEEDS = st.integers(2, 4), st.sampled_from([0.03, 0.5, 2.0]), st.integers(0, 10**6)


@pytest.mark.parametrize("depth", [2, 3, 4])
@pytest.mark.parametrize(
    ("rounds", "batches"),
    [(11, 4), (11, 1), (11, 11), (5, 9), (10, 5), (1, 1), (1, 3)],
    ids=["B ∤ T", "B = 1", "B = T", "B > T", "B | T", "one round", "one round, three batches"],
)
def test_a_fixed_grid_is_the_written_out_algorithm(rounds, batches, depth):
    policy, dense = both(FixedGrid(rounds, batches), depth, 0.5, seed=rounds)
    count = min(batches, rounds)
    grid = [b * rounds // count + 1 for b in range(count)]
    assert compare(policy, dense, contexts(depth, rounds), grid.__contains__) == grid[1:]
    assert policy.version == count - 1


@given(st.integers(1, 12), st.integers(1, 15), DEPTHS, RIDGES, SEEDS, st.sampled_from(["dual", "primal"]))
def test_any_fixed_grid_is_the_written_out_algorithm(rounds, batches, depth, ridge, seed, covariance):
    policy, dense = both(FixedGrid(rounds, batches), depth, ridge, seed, covariance=covariance)
    count = min(batches, rounds)
    compare(policy, dense, contexts(seed, rounds), [b * rounds // count + 1 for b in range(count)].__contains__)


@given(st.integers(1, 6), st.floats(0.5, 6.0), DEPTHS, RIDGES, SEEDS)
def test_an_adaptive_batch_is_that_of_the_written_out_determinant(batches, log_ratio, depth, ridge, seed):
    policy, dense = both(DeterminantTrigger(12, batches, log_ratio), depth, ridge, seed)
    since = [0.0]

    def begins(t):
        if len(since) >= batches or dense.log_det - since[-1] <= log_ratio:
            return False
        since.append(dense.log_det)
        return True

    compare(policy, dense, contexts(seed, 12), begins)


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_an_update_after_every_round_is_the_written_out_algorithm(depth):
    policy, dense = both(None, depth, 0.5, seed=0)
    assert len(compare(policy, dense, contexts(depth, 8), lambda t: True)) == 7


FORGETTING = st.one_of(st.builds(Window, st.integers(1, 12)), st.builds(Discount, st.floats(0.2, 1.0)))


@given(FORGETTING, st.sampled_from([(2, 5, 9), (1, 2, 3, 4), (4, 8)]), DEPTHS, RIDGES, SEEDS)
def test_what_is_forgotten_counts_less_at_every_update(forgetting, points, depth, ridge, seed):
    """Weighted losses and a weighted Z, at the features of each new version, over several updates."""
    policy, dense = both(AtRounds(points), depth, ridge, seed, forgetting=forgetting)
    starts = compare(policy, dense, contexts(seed, 12), lambda t: t - 1 in points)
    assert len(starts) == len(points)
