"""What belongs to single policies: constructors, logs, radii, rejected updates, generators."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rarely
from rarely import (
    Affine,
    AtRounds,
    BatchNeuralUCB,
    BudgetSpent,
    DeterminantTrigger,
    EveryRound,
    FixedGrid,
    InvalidContexts,
    InvalidInput,
    InvalidReward,
    KernelUCB,
    Limits,
    LinTS,
    LinUCB,
    NeuralTS,
    NothingToLearnWarning,
    OnDemand,
    Preset,
    RejectedWarning,
    TheoremRadius,
    TooExpensive,
    Training,
    TrainingRejected,
    Uniform,
    Window,
    load,
    prices,
)
from rarely._core.policies import linear
from rarely._core.schedules import SCHEDULES
from worlds import HORIZON, contexts, play, rewards, sequential, small


@pytest.mark.parametrize(
    "bad",
    [
        {"ridge": 0.0},
        {"ridge": -1.0},
        {"ridge": np.nan},
        {"beta": -0.1},
        {"beta": np.inf},
        {"beta": lambda t: -1.0},
        {"beta": lambda t: "much"},
        {"training": -5},
        {"training": {"step_size": -1.0}},
        {"hidden": 3},
        {"depth": 1},
        {"covariance": "full"},
        {"preset": "code2"},
        {"ties": "highest"},
        {"preset": {"precision": "float16"}},
        {"schedule": "nightly"},
        {"context_scale": rarely.Affine.identity(3)},
    ],
)
def test_impossible_settings_are_refused(bad):
    with pytest.raises(InvalidInput):
        small(**bad)


def test_a_ridge_of_0_is_refused_where_evidence_chooses_it_too():
    with pytest.raises(InvalidInput, match="ridge must be a positive"):
        BatchNeuralUCB(3, EveryRound(), ridge=0)


@pytest.mark.parametrize("dim", [0, -1, 1.5])
def test_dim_is_a_whole_number(dim):
    for make in (LinUCB, Uniform, lambda d: BatchNeuralUCB(d, EveryRound())):
        with pytest.raises(InvalidInput):
            make(dim)


def test_weights_are_lists_of_layers_and_copies():
    policy = small(depth=3)
    assert [w.shape for w in policy.weights] == [(16, 2), (16, 16), (1, 16)]
    assert all(np.array_equal(w, v) for w, v in zip(policy.weights, policy.initial_weights, strict=True))
    policy.weights[0][:] = 0
    policy.initial_weights[0][:] = 0
    assert policy.weights[0].any()
    play(policy, contexts())
    assert not np.array_equal(policy.weights[0], policy.initial_weights[0])


def test_the_same_seed_is_the_same_policy_and_a_generator_may_be_given():
    one, two = small(seed=5), small(seed=np.random.default_rng(5))
    assert np.array_equal(one.weights[0], two.weights[0])
    np.testing.assert_array_equal(play(one, contexts()), play(two, contexts()))
    assert not np.array_equal(one.weights[0], small(seed=6).weights[0])


@pytest.mark.parametrize("bits", [np.random.MT19937, np.random.Philox, np.random.SFC64, np.random.PCG64DXSM])
def test_any_generator_of_numpy_survives_a_file(bits, tmp_path):
    policy = Uniform(2, seed=np.random.Generator(bits(3)))
    policy.select(contexts())
    policy.save(tmp_path / "p")
    again = rarely.load(tmp_path / "p")
    np.testing.assert_array_equal(again.select(contexts()).arm, policy.select(contexts()).arm)


def test_policies_that_share_a_generator_draw_different_numbers():
    generator = np.random.default_rng(0)
    one, two = (Uniform(2, seed=generator).select(contexts(rounds=50)).arm for _ in range(2))
    assert not np.array_equal(one, two)


def test_uniform_is_uniform():
    arms = Uniform(2, seed=0).select(contexts(rounds=3000)).arm
    counts = np.bincount(arms, minlength=3)
    assert np.all(np.abs(counts - 1000) < 130)  # five standard deviations


# --- rejected updates


def force_rejection(monkeypatch):
    monkeypatch.setattr("rarely._core.training.gradient_descent.SHRINK", 1.0)


def test_a_rejected_update_spends_no_version_and_keeps_the_frozen_policy(monkeypatch):
    policy = small(FixedGrid(HORIZON, 4), training=Training(20, 1e4))
    force_rejection(monkeypatch)
    decision = policy.select(contexts()[:6])
    policy.observe(decision, rewards(contexts()[np.arange(6), decision.arm]))
    before, due_before = policy.score(contexts()), policy.due
    with pytest.warns(RejectedWarning):
        record = policy.update()
    after = policy.score(contexts())
    assert due_before
    assert not policy.due
    assert (record.accepted, record.version, policy.version) == (False, 0, 0)
    assert "the loss did not fall" in record.reason
    assert policy.updates == (record,)
    np.testing.assert_array_equal(before.means, after.means)
    np.testing.assert_array_equal(before.bonuses, after.bonuses)


def test_a_rejected_update_restarts_the_schedules_base(monkeypatch):
    policy = small(DeterminantTrigger(HORIZON, 5, 4.0), training=Training(20, 1e4))
    force_rejection(monkeypatch)
    n = len(policy.select(contexts(), until_due=True))
    policy.observe(rounds=np.arange(1, n + 1), rewards=np.ones(n) + np.arange(n))
    base = policy.log_det
    with pytest.warns(RejectedWarning):
        assert not policy.update().accepted
    policy.select(contexts()[n])
    assert policy.due == (policy.log_det - base > 4.0)


def test_rejected_updates_do_not_count_against_the_budget(monkeypatch):
    policy = small(FixedGrid(HORIZON, 2), training=Training(20, 1e4))
    force_rejection(monkeypatch)
    policy.observe(policy.select(contexts()[:3]), [1.0, 2.0, 3.0])
    for _ in range(5):
        with pytest.warns(RejectedWarning):
            assert not policy.update().accepted
    monkeypatch.undo()
    assert policy.update().accepted
    with pytest.raises(BudgetSpent):
        policy.update()


def test_an_update_without_rewards_does_not_spoil_the_next(tmp_path):
    policy = small(AtRounds([6, 12]))
    first = policy.select(contexts()[:6])
    with pytest.warns(NothingToLearnWarning):
        assert not policy.update().accepted
    policy.save(tmp_path / "p")
    policy = rarely.load(tmp_path / "p")
    second = policy.select(contexts()[6:12])
    policy.observe(first, np.linspace(0, 1, 6))
    policy.observe(second, np.linspace(1, 0, 6))
    record = policy.update()
    assert record.attempts == 1
    assert record.final_loss < record.initial_loss


@pytest.mark.parametrize(
    "make", [small, lambda **s: small(preset="practical", **s), lambda **s: LinUCB(2, FixedGrid(24, 4))]
)
def test_rewards_beyond_all_bounds_are_rejected_not_learned(make):
    policy = make()
    policy.observe(policy.select(contexts()[:6]), 1e308 * np.array([1.0, -1.0, 1.0, -1.0, 1.0, 1.0]))
    with np.errstate(all="ignore"), pytest.warns(RejectedWarning):
        record = policy.update()
    assert not record.accepted
    assert record.reason
    assert np.isfinite(policy.score(contexts()).means).all()


def test_contexts_whose_features_overflow_are_refused():
    for policy in (small(), LinUCB(2)):
        with pytest.raises(InvalidContexts, match="finite"):
            policy.select(1e200 * contexts()[0])
        assert policy.round == 0


@pytest.mark.filterwarnings("ignore::rarely.JitterWarning")
def test_equal_contexts_of_great_norm_do_not_break_the_ridge_estimate():
    policy = LinUCB(2, FixedGrid(HORIZON, 2), ridge=1e-3)
    decision = policy.select(np.full((4, 1, 2), 1e7))
    policy.observe(decision, np.ones(4))
    assert policy.update().accepted
    assert policy.score(np.full((1, 2), 1e7)).means == pytest.approx(1.0, rel=1e-3)


def test_tiny_rewards_do_not_all_tie():
    policy = small(preset="practical", beta=0.0)
    decision = policy.select(contexts()[:6])
    policy.observe(decision, 1e-12 * rewards(contexts()[np.arange(6), decision.arm]))
    policy.update()
    after = policy.select(contexts()[6:])
    np.testing.assert_array_equal(after.arm, after.means.argmax(axis=1))


# --- starting from a log


@pytest.mark.parametrize("make", ["neural", "practical", "linear"])
def test_a_log_starts_version_zero_already_trained(make, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    y = 3 + 2 * x[:, 0]
    if make == "linear":
        policy = LinUCB.from_log(x, y, schedule=FixedGrid(20, 2), ridge=1e-3, beta=0.0)
    else:
        preset = Preset.named("practical" if make == "practical" else "paper", biases=True)
        policy = BatchNeuralUCB.from_log(
            x, y, schedule=FixedGrid(20, 2), hidden=40, beta=0.0, training=500, seed=0, preset=preset
        )
    assert (policy.version, policy.round, policy.missing) == (0, 0, 0)
    assert policy.log_det > 0
    assert policy.history.logged == 60
    test = rng.normal(size=(50, 2, 2))
    chosen = policy.score(test).means.argmax(axis=1)
    assert np.mean(chosen == test[:, :, 0].argmax(axis=1)) > 0.85
    decision = policy.select(test[:10])
    assert list(decision.round) == list(range(1, 11))
    assert policy.due
    policy.observe(decision[:4], y[:4])
    record = policy.update()
    assert (record.samples, record.missing) == (64, 6)
    policy.save(tmp_path / "p")
    again = rarely.load(tmp_path / "p")
    np.testing.assert_array_equal(again.score(test).means, policy.score(test).means)


def test_a_log_counts_in_z_and_the_trigger_starts_after_it():
    x = np.random.default_rng(0).normal(size=(40, 2))
    policy = BatchNeuralUCB.from_log(
        x, x[:, 0], schedule=DeterminantTrigger(log_ratio=5.0), hidden=16, preset="paper", seed=0, beta=1.0
    )
    fresh = small(ridge=0.01, beta=1.0, seed=0)
    assert np.all(policy.score(contexts()).bonuses < fresh.score(contexts()).bonuses)
    base = policy.log_det
    policy.select(contexts()[0])
    assert policy.due == (policy.log_det - base > 5.0)


def test_the_training_on_a_log_is_on_record_as_version_0(tmp_path):
    x = np.random.default_rng(0).normal(size=(40, 2))
    policy = BatchNeuralUCB.from_log(x, x[:, 0], schedule=FixedGrid(20, 2), hidden=16, forgetting=None, seed=0)
    (record,) = policy.updates
    assert (record.version, record.round, record.accepted, record.samples, record.missing) == (0, 0, True, 40, 0)
    assert "log likelihood" in record.tuning
    assert (record.beta, record.log_det, record.covariance) == (policy.beta, policy.log_det, policy.covariance)
    assert record.final_loss < record.initial_loss
    assert record.coverage is None
    policy.save(tmp_path / "p")
    assert rarely.load(tmp_path / "p").updates == policy.updates
    policy.observe(policy.select(contexts()[:10]), np.zeros(10))
    assert policy.due
    policy.update()
    assert [u.version for u in policy.updates] == [0, 1]
    assert policy.updates[1].coverage is not None


def test_a_log_enters_z_with_features_at_the_initial_weights():
    from oracle import DenseZ, output_and_gradient

    x = np.random.default_rng(0).normal(size=(12, 2))
    policy = BatchNeuralUCB.from_log(
        x, x[:, 0], schedule=EveryRound(), hidden=8, preset="paper", seed=0, ridge=0.3, beta=1.0
    )
    dense, scale = DenseZ(policy.network.parameters, 0.3), np.sqrt(8)
    for row in x:
        dense.add(output_and_gradient(policy.initial_weights, row, output_scale=scale)[1] / scale)
    dense.freeze()
    assert policy.log_det == pytest.approx(dense.log_det)
    gradients = [output_and_gradient(policy.weights, c, output_scale=scale)[1] / scale for c in contexts()[0]]
    expected = [np.sqrt(dense.variance(g)) for g in gradients]
    np.testing.assert_allclose(policy.score(contexts()[0]).bonuses, expected, rtol=1e-8)


@pytest.mark.parametrize(
    ("x", "y", "error"),
    [
        (np.zeros((3, 2)), [1.0, 2.0], InvalidReward),
        (np.zeros((3, 2)), [1.0, 2.0, np.nan], InvalidReward),
        (np.full((3, 2), np.inf), [1.0, 2.0, 3.0], InvalidContexts),
        (np.zeros((3, 1, 2)), [1.0, 2.0, 3.0], InvalidContexts),
    ],
)
def test_a_bad_log_is_refused(x, y, error):
    with pytest.raises(error):
        LinUCB.from_log(x, y)


def test_a_log_that_cannot_be_trained_on_is_a_typed_error(monkeypatch):
    force_rejection(monkeypatch)
    x = np.random.default_rng(0).normal(size=(30, 2))
    settings = {"hidden": 16, "training": Training(step_size=1e4), "preset": "paper"}
    with pytest.raises(TrainingRejected):
        BatchNeuralUCB.from_log(x, x[:, 0], schedule=EveryRound(), **settings)


# --- the radius


def test_the_theorems_radius_is_theorem_1():
    policy = small(
        AtRounds([8]), beta=TheoremRadius(nu=0.3, S=2.0, delta=0.1, C1=0.5), ridge=0.4, training=Training(30, 1e-4)
    )

    def theorem(t, log_det):
        m, lam, depth, eta, steps = 16, 0.4, 2, 1e-4, 30
        left = (lam + t * depth) * (1 - eta * m * lam) ** (steps / 2) * np.sqrt(t / lam)
        return 0.5 * (0.3 * np.sqrt(log_det - 2 * np.log(0.1)) + np.sqrt(lam) * 2.0 + left)

    assert policy.beta == pytest.approx(theorem(1, 0.0))
    play(policy, contexts()[:8])
    assert policy.version == 1
    assert policy.beta == pytest.approx(theorem(9, policy.log_det))
    fixed = policy.beta
    policy.select(contexts()[8:])
    assert policy.beta == fixed


def test_linucbs_radius_is_the_self_normalised_bound():
    policy = LinUCB(2, AtRounds([5]), ridge=2.0, beta=TheoremRadius(nu=0.5, S=1.5, delta=0.05), intercept=False)
    play(policy, contexts()[:5])
    expected = 0.5 * np.sqrt(policy.log_det - 2 * np.log(0.05)) + np.sqrt(2.0) * 1.5
    assert policy.beta == pytest.approx(expected)


def test_an_exact_estimate_leaves_nothing_undone_whatever_the_ridge():
    for ridge in (49.0, 0.1, 1 / 3):
        policy = LinUCB(2, AtRounds([5]), ridge=ridge, beta=TheoremRadius(nu=0.0, S=1.0), intercept=False)
        assert policy.beta == np.sqrt(ridge)


def test_the_radius_knows_the_step_of_a_standard_network():
    radius = TheoremRadius(nu=0.0, S=0.0)
    policy = small(beta=radius, preset=Preset(scaling="standard"), ridge=0.5, training=Training(4, 0.1))
    assert policy.beta == pytest.approx((0.5 + 2) * (1 - 0.1 * 0.5) ** 2 * np.sqrt(1 / 0.5))


def test_the_radius_counts_logged_samples():
    x = np.random.default_rng(0).normal(size=(30, 2))
    settings = {"hidden": 16, "preset": "paper", "seed": 0, "training": Training(9, 1e-4), "ridge": 0.4}
    policy = BatchNeuralUCB.from_log(x, x[:, 0], schedule=EveryRound(), beta=TheoremRadius(nu=0.0, S=0.0), **settings)
    left = (0.4 + 31 * 2) * (1 - 1e-4 * 16 * 0.4) ** 4.5 * np.sqrt(31 / 0.4)
    assert policy.beta == pytest.approx(left)


@pytest.mark.parametrize("bad", [{"delta": 0.0}, {"delta": 1.0}, {"nu": -1.0}, {"S": np.inf}])
def test_impossible_radii_are_refused(bad):
    with pytest.raises(InvalidInput):
        TheoremRadius(**({"nu": 1.0, "S": 1.0} | bad))


def test_a_radius_survives_a_file_and_a_function_is_asked_for_again(tmp_path):
    radius = TheoremRadius(nu=0.1, S=1.0)
    policy = small(beta=radius)
    policy.save(tmp_path / "theorem")
    assert rarely.load(tmp_path / "theorem").beta == policy.beta

    def beta(t):
        return 1.0 / t

    policy = small(beta=beta)
    play(policy, contexts()[:7])
    policy.save(tmp_path / "function")
    with pytest.raises(InvalidInput, match="function"):
        rarely.load(tmp_path / "function")
    again = rarely.load(tmp_path / "function", beta=beta)
    assert again.beta == policy.beta
    with pytest.raises(InvalidInput, match="only for a function"):
        rarely.load(tmp_path / "theorem", beta=beta)


@pytest.mark.parametrize("covariance", ["dual", "primal", "diagonal", "last_layer"])
def test_a_beta_that_fails_at_an_update_changes_nothing(covariance):
    policy = small(FixedGrid(HORIZON, 4), beta=lambda t: 1.0 if t == 1 else np.nan, covariance=covariance)
    policy.observe(policy.select(contexts()[:6]), np.arange(6.0))
    before = policy.score(contexts())
    with pytest.raises(InvalidInput):
        policy.update()
    assert (policy.version, policy.due, policy.updates) == (0, True, ())
    np.testing.assert_array_equal(before.means, policy.score(contexts()).means)
    np.testing.assert_array_equal(before.bonuses, policy.score(contexts()).bonuses)


# --- the price


def test_too_dear_a_covariance_is_refused_at_the_door():
    with pytest.raises(TooExpensive, match="primal"):
        BatchNeuralUCB(20, FixedGrid(500, 20), hidden=1000, depth=3, covariance="primal")
    with pytest.raises(TooExpensive, match="dual"):
        BatchNeuralUCB(20, FixedGrid(10**6, 20), hidden=64, covariance="dual")
    with pytest.raises(TooExpensive):
        BatchNeuralUCB(20, FixedGrid(10**6, 20), hidden=1000, depth=3, covariance="exact")
    # The default leaves the exact forms long before they take so much.
    policy = BatchNeuralUCB(20, FixedGrid(10**6, 20), hidden=1000, depth=3, limits=Limits(arms=4))
    assert policy.exact_rounds < 10**4


def test_weights_that_do_not_fit_are_refused_before_they_are_made():
    with pytest.raises(TooExpensive, match="the weights alone"):
        BatchNeuralUCB(400, FixedGrid(100, 5), hidden=20_000, depth=4)


def test_a_policy_tells_where_it_stands():
    policy = small(FixedGrid(HORIZON, 4))
    policy.select(contexts()[:6])
    assert repr(policy) == "<BatchNeuralUCB: version 0, round 6, 6 rewards missing, due>"


def test_without_a_horizon_the_price_is_checked_as_rounds_come_and_nothing_changes():
    fitting = prices(small().network.shapes, 50)["dual"].bytes
    policy = small(DeterminantTrigger(log_ratio=1e9), covariance="dual", limits=Limits(memory=fitting))
    for _ in range(10):
        policy.select(contexts()[:5])
    with pytest.raises(TooExpensive):
        policy.select(contexts()[0])
    assert policy.round == len(policy.history) == 50
    policy.score(contexts())


@pytest.mark.parametrize("ties", ["lowest", "random"])
@pytest.mark.parametrize("covariance", ["dual", "primal", "diagonal", "last_layer"])
def test_a_block_that_fails_in_its_last_part_changes_nothing(monkeypatch, ties, covariance):
    for form in ("dual", "primal"):
        monkeypatch.setattr(f"rarely._core.covariance.{form}.BLOCK_NUMBERS", 100)
    policy, twin = (small(AtRounds([4]), ties=ties, covariance=covariance, preset="practical") for _ in range(2))
    for p in (policy, twin):
        play(p, contexts()[:6])
    broken = contexts(rounds=40).copy()
    broken[-1, 0, 0] = np.nan
    with pytest.raises(InvalidContexts):
        policy.select(broken)
    assert (policy.round, policy.log_det) == (twin.round, twin.log_det)
    one, two = policy.select(contexts(seed=8)), twin.select(contexts(seed=8))
    np.testing.assert_array_equal(one.arm, two.arm)
    np.testing.assert_array_equal(one.bonuses, two.bonuses)
    assert policy.log_det == twin.log_det


@pytest.mark.parametrize("covariance", ["dual", "primal", "diagonal", "last_layer"])
def test_small_blocks_choose_like_large_ones(monkeypatch, covariance):
    large, small_blocks = (small(covariance=covariance) for _ in range(2))
    arms = play(large, contexts(arms=9), block=HORIZON)
    for form in ("dual", "primal"):
        monkeypatch.setattr(f"rarely._core.covariance.{form}.BLOCK_NUMBERS", 40)
    np.testing.assert_array_equal(play(small_blocks, contexts(arms=9), block=HORIZON), arms)
    assert small_blocks.log_det == pytest.approx(large.log_det)


def test_a_block_that_fails_midway_changes_nothing():
    policy = small(DeterminantTrigger(log_ratio=1e9), covariance="dual", limits=Limits(memory=60_000))
    with pytest.raises(TooExpensive):
        policy.select(contexts(rounds=3000))
    assert (policy.round, policy.log_det, len(policy.history)) == (0, 0.0, 0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: small(ridge="0.5"),
        lambda: small(training=Training(step_size="1")),
        lambda: small(limits=Limits(memory=None)),
        lambda: small(context_scale=(0, 1)),
        lambda: LinUCB.from_log(3.0, [1.0]),
        lambda: LinUCB.from_log([[1.0], [1.0, 2.0]], [1.0, 2.0]),
        lambda: small().observe(rounds=[[1], [2, 3]], rewards=[1.0, 2.0]),
        lambda: rarely.Budget("nightly", 3),
        lambda: AtRounds(5),
        lambda: DeterminantTrigger(log_ratio=None),
        lambda: rarely.GeometricGrid(10, 3, first=50),
    ],
)
def test_values_of_the_wrong_kind_get_typed_errors(make):
    with pytest.raises(InvalidInput):
        make()


def test_an_error_inside_a_beta_function_is_not_hidden():
    def broken(t):
        raise TypeError("my own mistake")

    with pytest.raises(TypeError, match="my own mistake"):
        small(beta=broken)


def test_a_schedule_of_ones_own_is_saved_and_must_be_imported_to_be_loaded(tmp_path):
    class Mine(EveryRound):
        pass

    small(Mine()).save(tmp_path / "p")
    assert type(rarely.load(tmp_path / "p").schedule.schedule) is Mine
    del SCHEDULES["Mine"]
    with pytest.raises(rarely.SnapshotError, match="schedule of kind 'Mine', which is not imported here"):
        rarely.load(tmp_path / "p")


def test_auto_reports_the_form_in_use(monkeypatch):
    monkeypatch.setattr("rarely._core.covariance.factory.SMALL_PRIMAL", 0)
    policy = sequential(hidden=2, covariance="auto")
    play(policy, contexts())
    forms = [u.covariance for u in policy.updates]
    assert forms == ["dual"] * 5 + ["primal"] * (HORIZON - 5)


def test_auto_is_primal_from_the_start_of_a_batch_that_is_known_to_be_long():
    """Otherwise t×t would grow for life, and end in TooExpensive with no update left to change it."""
    policy = BatchNeuralUCB(2, DeterminantTrigger(horizon=10**6, batches=3, log_ratio=0.1), hidden=200, training=1)
    assert policy.covariance == "primal"  # 10**6 // 3 rounds a batch
    policy = BatchNeuralUCB(2, AtRounds([2, 4]), hidden=200, training=1)
    assert policy.covariance == "dual"
    forms = []
    for t in range(4):
        policy.observe(policy.select(contexts()[t]), float(t))
        if policy.due:
            forms.append(policy.update().covariance)
    assert forms == ["dual", "dual"]  # nobody knows how long the last batch is


def test_a_long_log_is_not_taken_through_the_t_by_t_form():
    x = np.random.default_rng(0).normal(size=(3000, 2))
    policy = BatchNeuralUCB.from_log(x, x[:, 0], schedule=AtRounds([5]), hidden=100, training=1)
    assert policy.covariance == "primal"


def test_huge_raw_contexts_are_announced_not_broken():
    policy = small(FixedGrid(HORIZON, 4), ridge=1e-3, covariance="dual")
    with pytest.warns(rarely.JitterWarning):
        policy.select(np.repeat(1e7 * contexts()[:1], HORIZON, axis=0))
    assert policy.jitters > 0
    assert np.isfinite(policy.log_det)


def test_log_det_goes_where_det_overflows():
    policy = BatchNeuralUCB(10, FixedGrid(300, 2), hidden=100, ridge=1e-3, preset="paper", seed=0)
    policy.select(np.random.default_rng(0).normal(size=(300, 2, 10)))
    assert policy.log_det > np.log(np.finfo(float).max)
    with np.errstate(over="ignore"):
        assert np.exp(policy.log_det) == np.inf


@given(seed=st.integers(0, 10**6), delay=st.integers(0, 7), intercept=st.booleans())
def test_linucb_adds_what_is_new_and_gets_the_ridge_estimate_of_everything(seed, delay, intercept):
    rng = np.random.default_rng(seed)
    policy = LinUCB(3, ridge=0.5, intercept=intercept, seed=0)
    waiting = []
    for _ in range(25):
        decision = policy.select(rng.normal(size=(4, 3)))
        waiting.append((decision, rng.normal()))
        rng.shuffle(waiting)
        while len(waiting) > delay:
            policy.observe(*waiting.pop())
        if policy.history.arrived:
            policy.update()
    x, r = policy.history.samples()[1:3]
    x = np.hstack((x, np.ones((len(x), 1)))) if intercept else x
    truth = np.linalg.solve(x.T @ x + 0.5 * np.eye(x.shape[1]), x.T @ r)
    np.testing.assert_allclose(policy.coefficients, truth, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("ridge", [np.inf, np.nan, 0.0, "x", None])
def test_a_ridge_is_checked_before_it_is_used(ridge):
    with pytest.raises(InvalidInput, match="ridge must be a positive, finite number"):
        LinUCB(2, ridge=ridge)


def test_linucb_with_late_rewards_goes_on_from_a_file_as_if_nothing_had_happened(tmp_path):
    def learned(policy, decisions, late, save):
        for k in late[:3]:
            policy.observe(decisions[k], float(k))
        policy.update()
        if save:
            policy.save(tmp_path / "policy.rarely")
            policy = load(tmp_path / "policy.rarely")
        for k in late[3:]:
            policy.observe(decisions[k], float(k))
        policy.update()
        return policy.coefficients

    def decided():
        rng, policy = np.random.default_rng(0), LinUCB(3, seed=0)
        return policy, [policy.select(rng.normal(size=(2, 3))) for _ in range(6)]

    late = [5, 2, 4, 0, 3, 1]
    np.testing.assert_array_equal(*(learned(*decided(), late, save) for save in (True, False)))


@pytest.mark.parametrize("kind", [LinUCB, LinTS, Uniform, KernelUCB, BatchNeuralUCB, NeuralTS])
def test_every_policy_takes_the_settings_of_blocks(kind, tmp_path):
    rows = np.random.default_rng(0).normal(size=(12, 3)) * [1.0, 10.0, 100.0]
    blocks = rarely.ArmBlocks.fit(rows, arms=2)
    policy = kind(schedule=FixedGrid(12, 3), seed=0, **blocks.settings)
    decision = policy.select(blocks(rows), until_due=True)
    policy.observe(decision, np.arange(len(decision)))
    policy.update()
    policy.save(tmp_path / "policy")
    again = rarely.load(tmp_path / "policy")
    np.testing.assert_array_equal(again.score(blocks(rows)).means, policy.score(blocks(rows)).means)


def test_linucb_on_scaled_contexts_is_linucb_on_contexts_that_are_scaled():
    stream = contexts(dim=2)
    scale = Affine(np.array([0.5, -1.0]), np.array([2.0, 3.0]))
    scaled = scale(stream.reshape(-1, 2)).reshape(*stream.shape[:2], 3)
    one = LinUCB(2, FixedGrid(HORIZON, 4), context_scale=scale)
    other = LinUCB(3, FixedGrid(HORIZON, 4), intercept=False)
    for round in range(HORIZON):
        a, b = one.select(stream[round]), other.select(scaled[round])
        assert a.arm == b.arm
        for policy, decision in ((one, a), (other, b)):
            policy.observe(decision, float(stream[round, a.arm, 0]))
            if policy.due:
                policy.update()
    np.testing.assert_allclose(one.coefficients, other.coefficients)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        small().save(tmp_path / "nowhere" / "policy")


def test_a_wide_linear_model_outlives_its_history(monkeypatch):
    """Rows that it has learned from may be dropped before there are as many rewards as columns."""
    monkeypatch.setattr(linear, "WIDE", 2)
    rng, width = np.random.default_rng(0), 8
    rows, paid = np.empty((0, width)), np.empty(0)
    policy = LinUCB(width - 1, OnDemand(), limits=Limits(history=300), seed=0)
    for _ in range(6):
        contexts, rewards = rng.normal(size=(3, 1, width - 1)), rng.normal(size=3)
        policy.observe(policy.select(contexts), rewards)
        policy.update()
        rows = np.concatenate((rows, np.column_stack((contexts[:, 0], np.ones(3)))))
        paid = np.concatenate((paid, rewards))
        truth = np.linalg.solve(np.eye(width) + rows.T @ rows, rows.T @ paid)
        np.testing.assert_allclose(policy.coefficients, truth, rtol=1e-9, atol=1e-11)
    assert len(policy.history) < 18


@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    ridge=st.sampled_from([0.01, 1.0, 20.0]),
    window=st.none() | st.integers(2, 12),
    seed=st.integers(0, 10**6),
)
def test_a_wide_linear_model_is_the_ridge_estimate(sizes, ridge, window, seed, tmp_path_factory):
    """Fewer rewards than columns, then more of them: nothing d×d is made before there are as many."""
    rng, width = np.random.default_rng(seed), 8
    forgetting = None if window is None else Window(window)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear, "WIDE", 2)
        policy = LinUCB(width - 1, OnDemand(), ridge=ridge, forgetting=forgetting, seed=0)
        for size in sizes:
            policy.observe(policy.select(rng.normal(size=(size, 2, width - 1))), rng.normal(size=size))
            policy.update()
            x = np.column_stack((policy.history.contexts, np.ones(len(policy.history))))[-window if window else None :]
            rewards = policy.history.rewards[-window if window else None :]
            truth = np.linalg.solve(ridge * np.eye(width) + x.T @ x, x.T @ rewards)
            np.testing.assert_allclose(policy.coefficients, truth, rtol=1e-7, atol=1e-9)
        path = tmp_path_factory.mktemp("wide") / "policy.rarely"
        policy.save(path)
        again, contexts = rarely.load(path), rng.normal(size=(5, 2, width - 1))
        for one in (policy, again):
            one.observe(one.select(contexts), np.arange(5.0))
            one.update()
    assert policy.fingerprint() == again.fingerprint()
