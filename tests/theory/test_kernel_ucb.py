"""KernelUCB: against the formulas written out, and as the limit of our own networks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rarely
from rarely import Affine, AtRounds, BatchNeuralUCB, Discount, FixedGrid, InvalidInput, KernelUCB, NoiseRadius, Window
from rarely.theory import NTK
from worlds import HORIZON, contexts, play, rewards


def raw(**settings):
    """Nothing scaled, so that formulas can be written out."""
    plain = {"context_scale": Affine.identity(2), "standardise_rewards": False, "ridge": 0.3, "beta": 0.7}
    return KernelUCB(2, AtRounds((HORIZON // 2,)), **(plain | settings))


def half_played(policy, seed=0):
    stream = contexts(seed)
    play(policy, stream[: HORIZON // 2])
    assert policy.version == 1
    x = policy.history.contexts
    return x, rewards(x), stream[HORIZON // 2 :]


@given(st.integers(0, 10**6), st.integers(2, 4), st.sampled_from(["network", "definition"]))
def test_means_and_bonuses_are_the_formulas(seed, depth, kind):
    policy, kernel = raw(depth=depth, kind=kind), NTK(depth, kind)
    x, y, ahead = half_played(policy, seed)
    regular = kernel.matrix(x) + 0.3 * np.eye(len(x))
    scores = policy.score(ahead[0])
    k = kernel.cross(x, ahead[0])
    np.testing.assert_allclose(scores.means, k.T @ np.linalg.solve(regular, y), atol=1e-9)
    variance = kernel.diagonal(ahead[0]) - np.einsum("ij,ij->j", k, np.linalg.solve(regular, k))
    np.testing.assert_allclose(scores.bonuses, 0.7 * np.sqrt(variance / 0.3), atol=1e-8)
    expected = np.linalg.slogdet(regular / 0.3)[1]
    assert policy.log_det == pytest.approx(expected, rel=1e-9)


def test_many_steps_end_at_the_minimiser():
    _, _, ahead = half_played(ended := raw())
    half_played(walking := raw(steps=5000))
    half_played(short := raw(steps=3))
    exact = ended.score(ahead[0]).means
    np.testing.assert_allclose(walking.score(ahead[0]).means, exact, atol=1e-6)
    assert np.abs(short.score(ahead[0]).means - exact).max() > 1e-3
    assert walking.updates[0].steps == 5000


@pytest.mark.parametrize("depth", [2, 3])
def test_wide_networks_approach_it(depth):
    """The same contexts with the same arms: means after J steps, and bonuses, as m grows."""
    shared = {"ridge": 0.5, "beta": 0.7, "depth": depth}
    limit = raw(steps=40, **shared)
    x, y, ahead = half_played(limit)
    expected = limit.score(ahead)

    def distance(hidden, seed):
        network = BatchNeuralUCB.from_log(
            x, y, schedule=FixedGrid(HORIZON, 1), hidden=hidden, preset="paper", seed=seed, training=40, **shared
        )
        scores = network.score(ahead)
        return np.abs(scores.means - expected.means).mean(), np.abs(scores.bonuses - expected.bonuses).mean()

    narrow, wide = (np.mean([distance(m, seed) for seed in range(2)], axis=0) for m in (64, 1024))
    assert np.all(wide < 0.5 * narrow)
    assert wide[0] < 0.1 * np.abs(expected.means).mean()
    assert wide[1] < 0.1 * expected.bonuses.mean()


@pytest.mark.parametrize("steps", [1, 7])
def test_each_step_is_one_of_gradient_descent(steps):
    policy = raw(steps=steps)
    x, y, ahead = half_played(policy)
    kernel = NTK(2, "network")
    regular = kernel.matrix(x) + 0.3 * np.eye(len(x))
    step, alpha = policy.updates[0].step_size, np.zeros(len(x))
    # Power iteration stops within half a per cent, below the top eigenvalue.
    assert step == pytest.approx(1.8 / np.linalg.eigvalsh(regular)[-1], rel=5e-3)
    for _ in range(steps):
        alpha -= step * (regular @ alpha - y)
    np.testing.assert_allclose(policy.score(ahead[0]).means, kernel.cross(ahead[0], x) @ alpha, atol=1e-10)


def test_a_discount_fades_in_the_kernel_too():
    """Means, bonuses and log det: samples weigh w, and so do their features."""
    policy = raw(forgetting=Discount(0.8))
    x, y, ahead = half_played(policy)
    kernel, weights = NTK(2, "network"), 0.8 ** np.arange(len(x) - 1, -1, -1)
    root = np.sqrt(weights)
    regular = root[:, None] * kernel.matrix(x) * root + 0.3 * np.eye(len(x))
    k = root[:, None] * kernel.cross(x, ahead[0])
    scores = policy.score(ahead[0])
    np.testing.assert_allclose(scores.means, k.T @ np.linalg.solve(regular, root * y), atol=1e-9)
    variance = kernel.diagonal(ahead[0]) - np.einsum("ij,ij->j", k, np.linalg.solve(regular, k))
    np.testing.assert_allclose(scores.bonuses, 0.7 * np.sqrt(variance / 0.3), atol=1e-8)
    assert policy.log_det == pytest.approx(np.linalg.slogdet(regular / 0.3)[1], rel=1e-9)


def test_a_window_forgets_in_the_kernel_too():
    policy = raw(forgetting=Window(5))
    x, y, ahead = half_played(policy)
    kernel, kept = NTK(2, "network"), slice(len(x) - 5, len(x))
    regular = kernel.matrix(x[kept]) + 0.3 * np.eye(5)
    expected = kernel.cross(ahead[0], x[kept]) @ np.linalg.solve(regular, y[kept])
    np.testing.assert_allclose(policy.score(ahead[0]).means, expected, atol=1e-9)


def test_it_learns_a_curve_that_no_line_fits():
    rng = np.random.default_rng(0)
    policy = KernelUCB(1, FixedGrid(300, 10))
    got, best = [], []
    for _ in range(300):
        arms = rng.uniform(-1, 1, (3, 1))
        values = np.cos(4 * arms[:, 0])
        decision = policy.select(arms)
        policy.observe(decision, float(values[decision.arm] + 0.1 * rng.normal()))
        got.append(values[decision.arm])
        best.append(values.max())
        if policy.due:
            policy.update()
    assert np.mean(best[200:]) - np.mean(got[200:]) < 0.05


def test_saved_and_loaded_it_has_the_same_future(tmp_path):
    policy = raw(steps=30, depth=3, forgetting=Window(7))
    _, _, ahead = half_played(policy)
    policy.save(tmp_path / "policy")
    again = rarely.load(tmp_path / "policy")
    np.testing.assert_array_equal(again.score(ahead).means, policy.score(ahead).means)
    np.testing.assert_array_equal(play(again, ahead), play(policy, ahead))


def test_bad_settings_say_what_is_wanted():
    with pytest.raises(InvalidInput, match="steps"):
        KernelUCB(2, steps=0)
    with pytest.raises(InvalidInput, match="depth"):
        KernelUCB(2, depth=1)
    with pytest.raises(InvalidInput, match="ridge"):
        KernelUCB(2, ridge="a")
    with pytest.raises(InvalidInput, match="NoiseRadius"):
        KernelUCB(2, beta=NoiseRadius(0.1))


def test_a_class_of_ones_own_is_loaded_and_never_in_the_place_of_ours(tmp_path):
    class Mine(KernelUCB):
        pass

    ours, mine = raw(), Mine(2, AtRounds((3,)))
    Mine.__name__ = "KernelUCB"
    ours.save(tmp_path / "ours")
    assert type(rarely.load(tmp_path / "ours")) is KernelUCB
    Mine.__name__ = "Mine"
    mine.save(tmp_path / "mine")
    assert type(rarely.load(tmp_path / "mine")) is Mine
