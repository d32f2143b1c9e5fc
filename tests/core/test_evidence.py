"""The default's learner against dense algebra, and what evidence chooses on worlds whose answer is known."""

import pickle
import re
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import rarely
from effort import MANY
from rarely import BatchNeuralUCB, ForgettingWarning, NeuralTS, OnDemand, Paced, SnapshotError
from rarely._core.model import kernels
from rarely._core.model.kernels import COLUMNS, LEARNED, LINEAR, NAMES, NETWORK, PRODUCTS, Memory, Units, Views
from rarely._core.policies import betting, evidence, gaussian_process
from rarely._core.policies.betting import LEVEL, WINDOWS, Bets
from rarely._core.policies.evidence import EvidenceLearner
from rarely._core.policies.neural import EVIDENCE_BETA
from rarely._core.saving import archive


def views_of(contexts, seed=0, metric=True):
    rng, dim = np.random.default_rng(seed), contexts.shape[1]
    root = rng.normal(size=(dim, dim))
    units = Units.of(contexts.mean(axis=0), contexts.var(axis=0), np.zeros(dim, bool))
    return Views.of(contexts, units, (root + root.T) / 2 if metric else None), units, (root + root.T) / 2


@given(
    st.integers(1, 9),
    st.integers(1, 5),
    st.integers(0, 2**20),
    st.sampled_from([Memory(), Memory(0.1), Memory(change=3)]),
)
def test_products_of_features_are_the_weighted_sum_of_the_kernels(count, dim, seed, memory):
    rng = np.random.default_rng(seed)
    views, _, _ = views_of(1 + rng.normal(size=(count, dim)), seed)
    weights, times = rng.random(len(NAMES)) * rng.integers(0, 2, len(NAMES)), np.arange(count, dtype=float)
    factors = views.features(weights, times, memory)
    dense = np.tensordot(weights, views.grams(range(len(NAMES))), 1) * memory(times, times)
    assert_allclose(kernels.products(factors, factors), dense, atol=1e-12)
    assert_allclose(factors.squared_norms, dense.diagonal(), atol=1e-12)
    assert_allclose(factors.squared_norms, weights @ views.diagonals(), atol=1e-12)
    assert factors.widths == kernels.widths(dim, weights)


@given(st.integers(1, 90), st.integers(1, 90), st.integers(1, 80), st.integers(0, 2**20))
def test_columns_share_what_lies_on_one_side_of_the_center(count, others, dim, seed):
    rng = np.random.default_rng(seed)
    left, right = (rng.normal(size=(n, dim)) * (rng.random((n, dim)) < 0.5) for n in (count, others))
    one, other = left[:, None], right[None]
    brute = np.where(one * other > 0, np.minimum(abs(one), abs(other)), 0.0).sum(axis=-1)
    assert_allclose(kernels.shared_columns(left, right), brute, atol=1e-12)
    assert_allclose(kernels.plain_shared(left, right), brute, atol=1e-12)


def test_columns_are_covariances_of_sums_of_random_walks():
    """Walks in steps of h that begin in the center, one in each column, and their covariance over many draws."""
    rng, h, draws = np.random.default_rng(0), 0.25, 40_000
    points = np.array([[0.5, -1.0], [1.5, 0.25], [-0.75, -0.5]])
    right, left = (np.cumsum(rng.normal(size=(draws, 2, 8)) * np.sqrt(h), axis=2) for _ in "+-")
    steps = np.rint(np.abs(points) / h).astype(int) - 1
    values = sum(np.where(points[:, j] > 0, right[:, j, steps[:, j]], left[:, j, steps[:, j]]) for j in range(2))
    assert_allclose(values.T @ values / draws, kernels.shared_columns(points, points), atol=0.04)


def test_gradients_are_those_of_differences():
    rng = np.random.default_rng(1)
    points, units, metric = views_of(1 + rng.normal(size=(7, 3)))
    coefficients, weights, step = rng.normal(size=7), rng.random(len(NAMES)), 1e-6
    weights[COLUMNS] = 0  # has corners, and is left out

    def value(centred):
        views = Views.of(centred / units.rates + units.center, units, metric)
        features = (each.features(weights, np.zeros(len(each.x)), Memory()) for each in (views, points))
        return kernels.products(*features) @ coefficients

    centred = 0.4 * rng.normal(size=(4, 3))
    views = Views.of(centred / units.rates + units.center, units, metric)
    numeric = [(value(centred + step * one) - value(centred - step * one)) / (2 * step) for one in np.eye(3)]
    exact = views.gradients(points, coefficients, weights, units, metric)
    assert_allclose(exact, np.stack(numeric, axis=1), atol=1e-7)


@given(st.integers(2, 12), st.integers(0, 2**20))
def test_misfits_are_minus_the_log_density_of_a_normal_with_its_best_variance(count, seed):
    rng = np.random.default_rng(seed)
    root, target, trust = rng.normal(size=(count, count)), rng.normal(size=count), 0.5 + rng.random(count)
    gram, ridges = root @ root.T, np.array([0.1, 1.0, 7.0])
    lost, variances = gaussian_process.misfits(gram, trust, target, ridges)
    for ridge, misfit, variance in zip(ridges, lost, variances, strict=True):
        matrix = gram + np.diag(ridge / trust)
        best = (target @ np.linalg.solve(matrix, target) + 1) / (count + 1)
        assert variance == pytest.approx(best, rel=1e-8)
        assert misfit == pytest.approx(0.5 * count * np.log(best) + 0.5 * np.linalg.slogdet(matrix)[1], rel=1e-8)


def played(policy, rounds, mean, *, noise=0.1, arms=4, seed=0, every=40, shift=0.0):
    rng = np.random.default_rng(seed)
    for start in range(0, rounds, every):
        contexts = rng.normal(size=(every, arms, policy.dim))
        decision = policy.select(shift + contexts)
        expected = mean(contexts, start)[np.arange(every), decision.arm]
        policy.observe(decision, expected + noise * rng.normal(size=every))
        policy.update()
    return policy


def linear(contexts, start):
    return contexts[..., 0] - 0.5 * contexts[..., 1]


@pytest.mark.parametrize("memory", [Memory(), Memory(0.01), Memory(change=60)])
def test_means_and_bonuses_are_those_of_a_dense_posterior(memory):
    policy = played(BatchNeuralUCB(3, OnDemand(), seed=0), 120, lambda x, _: np.sin(2 * x[..., 0]))
    learner = policy._learner
    learner = replace(learner, choice=learner.choice._replace(memory=memory))
    choice, contexts, times = learner.choice, learner.contexts, learner.times
    new = np.random.default_rng(9).normal(size=(5, 3))
    weights = choice.weights / learner.divisors
    views = Views.of(np.concatenate((new, contexts)), learner.units, learner.metric)
    both = np.concatenate((np.full(5, learner.now), times))
    gram = np.tensordot(weights, views.grams(range(len(NAMES))), 1) * memory(both, both)
    cross, inner = gram[:5, 5:], gram[5:, 5:]
    scaled = np.linalg.solve(inner + (choice.ridge + evidence.JITTER) * np.eye(len(inner)), np.ones(len(inner)))
    learner = replace(learner, coefficients=scaled * learner.explored_ridge)
    means = learner.rewards.center + learner.rewards.spread * cross @ scaled
    assert_allclose(learner.assess(new)[0], means, rtol=1e-9, atol=1e-12)
    if not memory:
        left = gram.diagonal()[:5] - np.einsum(
            "ij,ji->i", cross, np.linalg.solve(inner + learner.explored_ridge * np.eye(len(inner)), cross.T)
        )
        scores = policy.score(new)
        deviations = learner.noise * np.sqrt(left / learner.explored_ridge)
        assert_allclose(scores.bonuses, EVIDENCE_BETA.factor * deviations, rtol=1e-7)


@pytest.mark.parametrize(
    ("mean", "kernel"),
    [
        (linear, {LINEAR}),
        (lambda x, _: x[..., 0] * x[..., 1], {PRODUCTS, LEARNED}),
        (lambda x, _: np.abs(x[..., 0] + x[..., 1]), {LEARNED, NETWORK}),
        (lambda x, _: (x > 0.5).sum(axis=-1) - (x[..., 0] > 0) * 2.0, {COLUMNS}),
    ],
)
def test_evidence_names_the_kernel_that_the_world_is_made_of(mean, kernel):
    policy = played(BatchNeuralUCB(4, OnDemand(), seed=0), 320, mean, every=80)
    weights = policy._learner.choice.weights.copy()
    weights[NAMES.index("constant")] = 0.0
    assert int(weights.argmax()) in kernel, policy.updates[-1].tuning


def test_the_learned_metric_finds_the_one_direction_that_matters():
    policy = played(BatchNeuralUCB(8, OnDemand(), seed=0), 400, lambda x, _: np.abs(x[..., 2]), every=80)
    metric = policy._learner.next_metric @ policy._learner.next_metric
    assert metric[2, 2] > 0.6 * np.trace(metric)


@pytest.mark.filterwarnings("ignore::rarely.DriftWarning", "ignore::rarely.ForgettingWarning")
def test_a_world_that_turns_over_is_forgotten_and_one_that_stands_still_is_not():
    turned = played(BatchNeuralUCB(3, OnDemand(), seed=0), 320, lambda x, start: x[..., 0] * (1 if start < 160 else -1))
    assert turned._learner.choice.memory
    assert turned._learner.choice.memory.change == 160.0
    assert "set aside" in turned.updates[-1].tuning
    assert any("before round 160 is set aside" in record.memory for record in turned.updates)
    stubborn = played(
        BatchNeuralUCB(3, OnDemand(), seed=0, forgetting=None),
        320,
        lambda x, start: x[..., 0] * (1 if start < 160 else -1),
    )
    assert not stubborn._learner.choice.memory
    still = played(BatchNeuralUCB(3, OnDemand(), seed=0), 320, linear, noise=0.5)
    assert all("nothing is forgotten" in record.tuning for record in still.updates[1:])


def test_no_memory_is_chosen_for_its_ridge_alone(monkeypatch):
    """Rewards without noise want a smaller λ than the grid has: not even a memory that forgets nothing may bring it."""
    monkeypatch.setattr(Bets, "settled", lambda self, *_: (self, True))
    monkeypatch.setattr(evidence, "DECAYS", (1e-12,))
    policy = played(BatchNeuralUCB(3, OnDemand(), seed=0), 240, lambda x, start: x[..., 0], noise=0.0)
    assert policy._learner.choice.ridge < 2e-4
    assert not any(record.memory for record in policy.updates)
    assert not policy._learner.choice.memory


def learned_from(reward, rounds=600):
    """The policy after six updates, and how well its means correlate with the first column."""
    rng, policy = np.random.default_rng(0), BatchNeuralUCB(3, OnDemand(), seed=0)
    for _ in range(6):
        contexts = rng.normal(size=(rounds // 6, 4, 3))
        decision = policy.select(contexts)
        policy.observe(decision, reward(rng, contexts[np.arange(rounds // 6), decision.arm, 0]))
        policy.update()
    new = rng.normal(size=(400, 4, 3))
    return policy, np.corrcoef(policy.score(new).means.ravel(), new[..., 0].ravel())[0, 1]


@pytest.mark.filterwarnings("ignore::rarely.OutlierWarning")
@pytest.mark.parametrize("exact", [evidence.EXACT, 200], ids=["exact", "inducing contexts"])
@pytest.mark.parametrize("wrong", [1e3, 1e12])
def test_mistaken_rewards_do_not_keep_it_from_learning(wrong, exact, monkeypatch):
    monkeypatch.setattr(evidence, "EXACT", exact)
    monkeypatch.setattr(evidence, "INDUCING", min(evidence.INDUCING, exact))

    def mistaken(rng, means):
        noisy = 0.3 * means + 0.1 * rng.normal(size=len(means))
        return np.where(rng.random(len(means)) < 0.01, rng.choice([-wrong, wrong], len(means)), noisy)

    policy, correlation = learned_from(mistaken)
    assert policy._learner.inducing == (exact == 200)
    assert correlation > 0.9
    assert re.search(r"; \d+ rewards lie far out, and count as 30 robust deviations at most", policy.explain_update())


@pytest.mark.parametrize(
    ("far", "heavy", "cut"),
    [([90.0], True, 0), ([90.0] * 7, True, 0), ([90.0] * 8, False, 0), ([90.0, -90.0], True, 2), ([1e9], True, 1)],
)
def test_a_few_rewards_far_out_on_one_side_are_not_cut(far, heavy, cut):
    rewards = np.append(np.linspace(-1, 1, 200), far)
    data = evidence._Rewards.of(rewards, None)
    assert (data.heavy, data.cut) == (heavy, cut)
    middle, robust = evidence.tails(rewards)[:2]
    near = np.clip(rewards, middle - 30 * robust, middle + 30 * robust)
    assert_allclose(data.scale.center + data.scale.spread * data.scaled, near if cut else rewards)


def test_rare_payoffs_count_in_full():
    def paid(rng, means):
        chance = 0.05 + 0.05 * np.tanh(2 * means)
        return np.where(rng.random(len(means)) < chance, 30.0, 0.1 * rng.normal(size=len(means)))

    policy, correlation = learned_from(paid, 1200)
    assert correlation > 0.6
    assert policy.score(np.zeros((1, 3))).means.item() == pytest.approx(1.5, abs=0.75)
    assert "far out" not in policy.explain_update()


def test_heavy_tails_do_not_decide():
    def heavy(seed):
        rng, policy = np.random.default_rng(seed), BatchNeuralUCB(3, OnDemand(), seed=0)
        for _ in range(6):
            contexts = rng.normal(size=(50, 4, 3))
            decision = policy.select(contexts)
            noise = 0.2 * rng.standard_t(1.5, size=50)
            policy.observe(decision, contexts[np.arange(50), decision.arm, 0] + noise)
            policy.update()
        new = rng.normal(size=(400, 4, 3))
        return np.corrcoef(policy.score(new).means.ravel(), new[..., 0].ravel())[0, 1]

    assert min(heavy(seed) for seed in range(2)) > 0.95


@pytest.mark.filterwarnings("ignore::rarely.DriftWarning", "ignore::rarely.ForgettingWarning")
@pytest.mark.parametrize(("kind", "rounds"), [(BatchNeuralUCB, 0), (BatchNeuralUCB, 320), (NeuralTS, 80)])
def test_a_saved_policy_goes_on_bit_for_bit(tmp_path, kind, rounds):
    policy = played(
        kind(4, OnDemand(), seed=3), rounds, lambda x, start: np.abs(x[..., 0]) * (1 if start < 160 else -1), every=80
    )
    policy.save(tmp_path / "p.rarely")
    other = rarely.load(tmp_path / "p.rarely")
    contexts = np.random.default_rng(5).normal(size=(20, 4, 4))
    for each in (policy, other):
        each.observe(each.select(contexts), np.arange(20.0))
        each.update()
    assert policy.fingerprint() == other.fingerprint()
    assert_allclose(policy.score(contexts).means, other.score(contexts).means, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("name", "forge"),
    [("zeros", lambda zeros: zeros[:0]), ("next_metric", lambda metric: np.full_like(metric, 1e300))],
)
def test_a_forged_learner_is_refused(tmp_path, name, forge):
    played(BatchNeuralUCB(3, OnDemand(), seed=0), 40, linear).save(tmp_path / "p.rarely")
    saved = archive.read(tmp_path / "p.rarely")
    forged = {**saved.arrays, f"learner.{name}": forge(saved.arrays[f"learner.{name}"])}
    archive.write(tmp_path / "p.rarely", saved.header, forged)
    with pytest.raises(SnapshotError, match=name):
        rarely.load(tmp_path / "p.rarely")


def test_beyond_the_exact_rounds_inducing_contexts_predict_the_same(monkeypatch):
    exact = played(BatchNeuralUCB(3, OnDemand(), seed=0), 400, linear, every=80)
    monkeypatch.setattr(evidence, "EXACT", 200)
    monkeypatch.setattr(evidence, "INDUCING", 150)
    induced = played(BatchNeuralUCB(3, OnDemand(), seed=0), 400, linear, every=80)
    assert induced._learner.inducing
    assert not exact._learner.inducing
    assert induced.updates[-1].covariance == "primal"
    new = np.random.default_rng(5).normal(size=(300, 3))
    for policy in (exact, induced):
        assert np.abs(policy.score(new).means - linear(new, 0)).mean() < 0.1


@pytest.mark.parametrize("times", [False, True], ids=["everything counts", "a decay"])
def test_z_of_many_rounds_is_made_of_a_sample_that_stands_for_all(monkeypatch, times):
    monkeypatch.setattr(evidence, "EXACT", 200)
    monkeypatch.setattr(evidence, "INDUCING", 40)
    policy = played(BatchNeuralUCB(3, OnDemand(), seed=0), 900, linear, every=150)
    learner, history = policy._learner, policy._state.history
    if times:
        learner = replace(learner, choice=learner.choice._replace(memory=Memory(decay=0.001)))
    contexts, rows = history.contexts, history.remembered()[0].astype(float)
    whole = policy._factory.build(learner.features_of(history), learner.widths, contexts)
    phi = learner._assessed(contexts, rows if times else learner.now)[1].inputs[0]
    assert_allclose(whole.written_out()[0], np.eye(40) + phi.T @ phi, rtol=1e-9, atol=1e-9)
    assert whole.rounds == len(contexts)
    monkeypatch.setattr(evidence, "COUNTED_IN_Z", 600)
    sample = policy._factory.build(learner.features_of(history), learner.widths, contexts)
    assert sample.rounds == len(contexts)
    new = learner.features(np.random.default_rng(7).normal(size=(50, 3)))
    ratio = sample.measure(new).variances / whole.measure(new).variances
    assert 0.8 < ratio.min() <= ratio.max() < 1.25
    assert not np.array_equal(sample.written_out()[0], whole.written_out()[0])


def test_an_update_that_is_prepared_and_run_elsewhere_is_that_of_the_policy():
    here, elsewhere = BatchNeuralUCB(3, OnDemand(), seed=0), BatchNeuralUCB(3, OnDemand(), seed=0)
    rng = np.random.default_rng(0)
    for _ in range(3):
        contexts = rng.normal(size=(50, 4, 3))
        for policy in (here, elsewhere):
            decision = policy.select(contexts)
            policy.observe(decision, linear(contexts[np.arange(50), decision.arm], 0))
        here.update()
        elsewhere.adopt(pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(elsewhere.prepare_update())).run())))
        assert here.updates[-1].tuning == elsewhere.updates[-1].tuning
        assert here.fingerprint() == elsewhere.fingerprint()


def test_units_of_contexts_and_rewards_change_no_decision():
    def arms(scale, unit):
        rng, policy, out = np.random.default_rng(0), BatchNeuralUCB(3, Paced(200, 8), seed=0), []
        for _ in range(200):
            contexts = rng.normal(size=(4, 3))
            decision = policy.select(scale * contexts)
            out.append(decision.arm)
            policy.observe(decision, unit * (np.tanh(contexts[decision.arm, 0]) + 0.1 * rng.normal()))
            if policy.due:
                policy.update()
        return out

    expected = arms(1.0, 1.0)
    assert arms(1024.0, 1.0) == expected
    assert arms(1.0, 2.0**-20) == expected
    assert arms(1.0, 2.0**-600) == expected  # whose squares vanish


def test_columns_on_a_large_common_part_are_learned_from():
    far = played(BatchNeuralUCB(3, OnDemand(), seed=0), 200, lambda x, _: x[..., 0], shift=1e9)
    new = np.random.default_rng(5).normal(size=(300, 3))
    assert np.corrcoef(far.score(1e9 + new).means, new[:, 0])[0, 1] > 0.95


def test_naming_a_network_trains_one():
    assert isinstance(BatchNeuralUCB(2, OnDemand(), seed=0)._learner, EvidenceLearner)
    for named in ({"hidden": 8}, {"depth": 3}, {"training": 20}, {"covariance": "diagonal"}, {"preset": "paper"}):
        assert not isinstance(BatchNeuralUCB(2, OnDemand(), seed=0, **named)._learner, EvidenceLearner)


def bets_on(errors, means, batch, ridge=1.0, seed=0):
    """Yield what bets say after each batch of errors around means, on contexts of three columns."""
    contexts = np.random.default_rng(seed).normal(size=(len(errors), 3))
    rewards, bets = means + errors, Bets().seen(np.array([-1.0, 1.0]))
    for start in range(0, len(errors), batch):
        window = slice(max(start - WINDOWS[-1], 0), start + batch)
        gram = contexts[window] @ contexts[window].T + ridge * np.eye(len(contexts[window]))
        bets, alarmed = bets.settled(rewards[window], means[window], gram, batch, start)
        bets = bets.seen(rewards[start : start + batch])
        yield bets, alarmed


def test_bets_on_a_large_batch_are_made_in_parts_of_bounded_size(monkeypatch):
    """All rewards at once would cost the cube of their number: a minute and a half for 6000."""
    parts, settled = [], Bets.settled

    def noted(self, rewards, means, gram, new, learned):
        parts.append((len(gram), new, learned))
        return settled(self, rewards, means, gram, new, learned)

    monkeypatch.setattr(evidence, "AT_ONCE", 50)
    monkeypatch.setattr(evidence, "LATEST", 120)
    monkeypatch.setattr(Bets, "settled", noted)
    policy, rng = BatchNeuralUCB(2, OnDemand(), seed=0), np.random.default_rng(0)
    for count in (20, 200):
        decision = policy.select(rng.normal(size=(count, 2, 2)))
        policy.observe(decision, rng.normal(size=count))
        policy.update()
    assert parts == [(130, 50, 100), (180, 50, 150), (200, 20, 200)]
    assert sum(policy._learner.bets.won) > 0


def test_bets_are_won_only_as_often_as_their_level_where_no_correction_helps():
    alarms = 0
    lives = 100 if MANY else 40
    for seed in range(lives):
        rng = np.random.default_rng(seed)
        errors = np.where(rng.random(400) < 0.3, 0.7, -0.3) * rng.choice([0.2, 1.0], 400)
        alarms += any(alarmed for _, alarmed in bets_on(errors, np.zeros(400), 20, seed=seed))
    assert alarms <= lives * LEVEL


def test_bets_are_won_within_two_batches_of_a_change():
    rng = np.random.default_rng(0)
    contexts = np.random.default_rng(0).normal(size=(200, 3))
    errors = 0.1 * rng.normal(size=200) - np.where(np.arange(200) >= 100, np.clip(contexts[:, 0], -1, 1), 0.0)
    alarms = [alarmed for _, alarmed in bets_on(errors, np.zeros(200), 50)]
    assert not any(alarms[:2])
    assert any(alarms[2:])


def test_a_bet_gains_what_its_correction_gains_of_the_most_that_was_possible():
    rng = np.random.default_rng(1)
    x, errors, low, high = rng.normal(size=(6, 2)), rng.uniform(-1, 1, 6), np.full(6, -1.0), np.full(6, 1.0)
    gram = x @ x.T + 0.5 * np.eye(6)
    truth = [0.0]
    for i in range(1, 6):
        guess = np.clip(gram[i, :i] @ np.linalg.solve(gram[:i, :i], errors[:i]), -1, 1)
        most = max(abs(r**2 - (r - guess) ** 2) for r in (-1.0, 1.0))
        truth.append((errors[i] ** 2 - (errors[i] - guess) ** 2) / most)
    assert_allclose(betting._gains(errors, gram, low, high), truth, atol=1e-12)


@pytest.mark.parametrize("settings", [{}, {"hidden": 8}])
def test_updates_made_elsewhere_are_those_made_at_once(settings):
    """A job has contexts and rewards alone; whether memory is asked for must not need more."""
    made = []
    for elsewhere in (False, True):
        policy, rng = BatchNeuralUCB(3, OnDemand(), seed=0, **settings), np.random.default_rng(0)
        for turn in (1, 1, 1, -1, -1):
            rows = rng.normal(size=(40, 2, 3))
            decision = policy.select(rows)
            policy.observe(decision, turn * rows[np.arange(40), decision.arm, 0])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ForgettingWarning)
                _ = policy.adopt(policy.prepare_update().run()) if elsewhere else policy.update()
        made.append(policy)
    assert made[0].updates == made[1].updates
    assert_array_equal(made[0].history.arms, made[1].history.arms)
