"""Limits and identities that hold whatever the numbers are."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rarely
from rarely import AtRounds, BatchNeuralUCB, DeterminantTrigger, FixedGrid, KernelUCB, LinUCB, NeuralUCB, Preset
from worlds import DETERMINISTIC, HORIZON, MAKERS, contexts, play, rewards, sequential, small

DOUBLE = Preset.named("practical", precision="float64")
deterministic = pytest.mark.parametrize("name", DETERMINISTIC)


def schedules(horizon=HORIZON):
    return st.one_of(
        st.builds(FixedGrid, st.just(horizon), st.integers(1, horizon)),
        st.builds(DeterminantTrigger, st.just(horizon), st.integers(1, horizon), st.floats(0.3, 8)),
    )


@pytest.mark.parametrize("preset", ["paper", "practical"])
def test_a_grid_of_t_batches_is_an_update_after_every_round(preset):
    stream = contexts()
    grid, every = small(FixedGrid(HORIZON, HORIZON), preset=preset), sequential(preset=preset)
    np.testing.assert_array_equal(play(grid, stream), play(every, stream))
    assert grid.version == HORIZON - 1
    assert grid.log_det == pytest.approx(every.log_det, rel=1e-10)


@given(schedules(), st.integers(0, 10**6), st.floats(-3, 1), st.integers(2, 4))
def test_dual_and_primal_choose_alike(schedule, seed, log_ridge, depth):
    stream = contexts(seed)
    settings = {"ridge": 10**log_ridge, "depth": depth, "seed": seed, "hidden": 4, "training": 10}
    dual, primal = (small(schedule, covariance=kind, **settings) for kind in ("dual", "primal"))
    np.testing.assert_array_equal(play(dual, stream), play(primal, stream))
    assert dual.log_det == pytest.approx(primal.log_det, rel=1e-8)
    assert [u.round for u in dual.updates] == [u.round for u in primal.updates]


@deterministic
@settings(max_examples=max(2, settings.default.max_examples // 2))
@given(st.integers(0, 10**6), st.integers(2, 12), schedules(12))
def test_n_rounds_in_a_block_are_n_single_calls(name, seed, block, schedule):
    stream = contexts(seed, rounds=12)
    single, blocks = MAKERS[name](schedule), MAKERS[name](schedule)
    np.testing.assert_array_equal(play(single, stream), play(blocks, stream, block=block))
    assert single.log_det == pytest.approx(blocks.log_det, rel=1e-8)
    assert [u.round for u in single.updates] == [u.round for u in blocks.updates]


@pytest.mark.parametrize("name", ["uniform", "random_ties"])
@given(block=st.integers(1, HORIZON), schedule=schedules())
def test_blocks_draw_the_random_numbers_of_single_calls(name, block, schedule):
    """Also where a batch's end cuts a block for which more had been drawn."""
    stream = np.repeat(contexts()[:, :1], 3, axis=1)
    single, blocks = MAKERS[name](schedule), MAKERS[name](schedule)
    arms = play(single, stream)
    np.testing.assert_array_equal(arms, play(blocks, stream, block=block))
    assert len(set(arms)) > 1


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_contexts_of_any_kind_of_number_are_taken_as_doubles(dtype):
    stream = np.round(8 * contexts()) / 8 if dtype is not np.int64 else np.round(8 * contexts())
    plain, typed = small(), small()
    np.testing.assert_array_equal(play(plain, stream), play(typed, stream.astype(dtype), block=5))
    frozen = np.asfortranarray(stream)
    frozen.flags.writeable = False
    np.testing.assert_array_equal(play(small(), stream), play(small(), frozen, block=7))


def test_a_plain_block_does_not_stop_where_the_batch_ends():
    policy = small(FixedGrid(HORIZON, 4))
    assert len(policy.select(contexts())) == HORIZON
    assert policy.due


@deterministic
def test_a_masked_arm_is_an_arm_left_out(name):
    stream = contexts()
    masked, without = MAKERS[name](), MAKERS[name]()
    mask = np.array([True, False, True])
    for t in range(HORIZON):
        one = masked.select(stream[t], mask)
        two = without.select(stream[t][mask])
        assert one.arm == [0, 2][two.arm]
        np.testing.assert_array_equal(one.means[mask], two.means)
        np.testing.assert_array_equal(one.bonuses[mask], two.bonuses)
        for p, d in ((masked, one), (without, two)):
            p.observe(d, rewards(stream[t, one.arm])[0])
            if p.due:
                p.update()
    assert masked.log_det == without.log_det


@deterministic
def test_permuted_arms_permute_the_answer(name):
    stream, order = contexts(), np.array([2, 0, 1])
    plain, permuted = MAKERS[name](), MAKERS[name]()
    one, two = play(plain, stream), play(permuted, stream[:, order])
    np.testing.assert_array_equal(one, order[two])
    assert plain.log_det == pytest.approx(permuted.log_det, rel=1e-9)


@deterministic
def test_equal_arms_tie_and_the_lowest_wins(name):
    policy = MAKERS[name]()
    for t in range(HORIZON):
        context = np.repeat(contexts()[t, :1], 5, axis=0)
        decision = policy.select(context)
        assert decision.arm == 0
        policy.observe(decision, rewards(context[0])[0])
        if policy.due:
            policy.update()


def test_an_endless_ratio_never_ends_a_batch():
    policy = small(DeterminantTrigger(log_ratio=np.inf))
    play(policy, contexts(), block=HORIZON)
    assert policy.version == 0
    assert not policy.due


def test_the_trigger_fires_at_the_first_round_past_the_ratio():
    policy = small(DeterminantTrigger(log_ratio=3.0))
    base, last = 0.0, 0.0
    for t in range(HORIZON):
        policy.observe(policy.select(contexts()[t]), float(t))
        assert policy.due == (policy.log_det - base > 3.0)
        assert last - base <= 3.0
        last = policy.log_det
        if policy.due:
            policy.update()
            base = policy.log_det


def test_beta_zero_is_greedy():
    policy = small(beta=0.0)
    play(policy, contexts()[:12])
    decision = policy.select(contexts()[12:])
    assert not decision.bonuses.any()
    np.testing.assert_array_equal(decision.arm, decision.means.argmax(axis=1))


def test_a_function_beta_is_asked_once_per_version_at_its_first_round():
    asked = []

    def beta(t):
        asked.append(t)
        return 0.1 * t

    policy = small(FixedGrid(HORIZON, 4), beta=beta)
    play(policy, contexts())
    policy.score(contexts())
    assert asked == [1, 7, 13, 19]
    assert policy.beta == pytest.approx(1.9)
    assert [u.beta for u in policy.updates] == pytest.approx([0.7, 1.3, 1.9])


def test_batch_zero_scores_by_the_prior_alone():
    """Trap 2: before the first update f = 0 and Z = λI."""
    policy = small(ridge=0.25, beta=2.0)
    decision = policy.select(contexts()[:5])
    np.testing.assert_allclose(decision.means, 0, atol=1e-12)
    _, factors = policy.network.values_and_factors(tuple(policy.initial_weights), contexts()[:5].reshape(-1, 2))
    prior = 2.0 * np.sqrt(np.square(factors.vectors()).sum(axis=1) / 0.25)
    np.testing.assert_allclose(decision.bonuses.ravel(), prior)


def test_past_features_keep_the_weights_of_their_own_version():
    """Trap 1, against a p×p matrix built by hand."""
    from oracle import DenseZ, output_and_gradient

    policy = small(AtRounds([3, 7]), ridge=0.5)
    dense = DenseZ(policy.network.parameters, 0.5)
    for t in range(12):
        scale = np.sqrt(policy.network.hidden)
        stream = contexts()[t]
        gradients = [output_and_gradient(policy.weights, x, output_scale=scale) for x in stream]
        expected = [0.5 * np.sqrt(dense.variance(g / scale)) for _, g in gradients]
        decision = policy.select(stream)
        np.testing.assert_allclose(decision.bonuses, expected, rtol=1e-9)
        np.testing.assert_allclose(decision.means, [f for f, _ in gradients], atol=1e-10)
        dense.add(gradients[decision.arm][1] / scale)
        assert policy.log_det == pytest.approx(dense.log_det)
        policy.observe(decision, rewards(stream[decision.arm])[0])
        if policy.due:
            policy.update()
            dense.freeze()


def test_scaling_every_reward_scales_the_practical_means():
    big, plain = (small(preset=DOUBLE, beta=0.0) for _ in range(2))
    stream = contexts()[:6]
    for policy, factor in ((plain, 1.0), (big, 1e6)):
        decision = policy.select(stream)
        policy.observe(decision, 5 * factor + factor * rewards(stream[np.arange(6), decision.arm]))
        policy.update()
    np.testing.assert_allclose(big.score(contexts()).means, 1e6 * plain.score(contexts()).means, rtol=1e-6)


@pytest.mark.parametrize("unit", [1e-3, 1e-9, 1e6])
@pytest.mark.parametrize("kind", [BatchNeuralUCB, KernelUCB])
def test_practical_does_not_care_for_the_units_of_contexts(kind, unit):
    """From the first round on: the scale undoes the unit, in scores, in log det and so in the trigger."""
    trigger = DeterminantTrigger(HORIZON, 6, 4.0)
    settings = {"hidden": 16, "preset": DOUBLE} if kind is BatchNeuralUCB else {}
    plain, changed = (kind(2, trigger, ridge=0.1, seed=3, **settings) for _ in range(2))
    for t, x in enumerate(contexts()):
        one, two = plain.select(x), changed.select(unit * x)
        assert one.arm == two.arm
        np.testing.assert_allclose(two.means, one.means, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(two.bonuses, one.bonuses, rtol=1e-6)
        assert changed.log_det == pytest.approx(plain.log_det, rel=1e-7)
        for policy, decision in ((plain, one), (changed, two)):
            policy.observe(decision, rewards(x[decision.arm])[0])
            if policy.due:
                policy.update()
        assert plain.version == changed.version, t
    assert plain.version > 1


def test_practical_does_not_care_where_contexts_have_their_zero():
    """After 16 rounds: until then a spread is not taken to be far below the numbers themselves."""
    plain, changed = (small(AtRounds([16]), preset=DOUBLE, beta=0.0) for _ in range(2))
    stream, move = contexts()[:16], lambda x: 1000 * x + 7
    for policy, seen in ((plain, stream), (changed, move(stream))):
        decision = policy.select(seen)
        np.testing.assert_array_equal(decision.arm, 0)  # β = 0 and f = 0: a tie
        policy.observe(decision, rewards(stream[:, 0]))
        policy.update()
    np.testing.assert_allclose(changed.score(move(contexts())).means, plain.score(contexts()).means, rtol=1e-7)


def test_the_context_scale_is_fitted_to_all_arms_and_stays_while_the_data_do():
    policy = small(AtRounds([16, 18, 20]), preset="practical")
    play(policy, contexts()[:16])
    scale = policy.context_scale
    seen = contexts()[:16].reshape(-1, 2)
    np.testing.assert_allclose(scale.center, seen.mean(axis=0))
    np.testing.assert_allclose(scale.spread, seen.std(axis=0) * np.sqrt(2))
    play(policy, contexts()[16:])
    assert policy.version == 3
    np.testing.assert_array_equal(policy.context_scale.center, scale.center)
    np.testing.assert_array_equal(policy.context_scale.spread, scale.spread)
    assert [update.rescaled for update in policy.updates] == [(), (), ()]  # 16 rounds were followed


def test_a_scale_fitted_to_few_rounds_is_cautious_and_fitted_again():
    """One round of two nearly equal arms would otherwise blow a column up."""
    policy = sequential(preset="practical")
    stream = contexts(arms=2)
    stream[0, 1] = stream[0, 0] + 1e-9
    scales = []
    for t in range(HORIZON):
        policy.observe(policy.select(stream[t]), rewards(stream[t, 0])[0])
        policy.update()
        scales.append(policy.context_scale)
    np.testing.assert_allclose(scales[0].spread, np.abs(stream[0, 0]) * np.sqrt(2 * 15 / 16), rtol=1e-6)
    np.testing.assert_allclose(scales[15].spread, stream[:16].reshape(-1, 2).std(axis=0) * np.sqrt(2))
    np.testing.assert_array_equal(scales[-1].spread, scales[15].spread)


@pytest.mark.parametrize("kind", [BatchNeuralUCB, KernelUCB])
def test_a_column_that_leaves_its_scale_is_fitted_again_and_z_with_it(kind):
    """Kept for life, a scale of the first batch would let one late, irrelevant column outweigh all others."""
    rng = np.random.default_rng(0)
    stream = rng.random((120, 3, 2))
    stream[:40, :, 1] *= 1e-4
    settings = {"hidden": 16, "training": 20} if kind is BatchNeuralUCB else {}
    policy = kind(2, AtRounds([40, 80, 100]), seed=3, **settings)
    play(policy, stream[:80])
    first, second = policy.updates
    assert first.rescaled == (0, 1)
    assert second.rescaled == (1,)
    seen = stream[:80, :, 1]
    assert policy.context_scale.spread[1] == pytest.approx(seen.std() * np.sqrt(2))
    learner = policy._learner
    fresh = policy._factory.build(learner.features, learner.widths, policy.history.contexts)
    assert policy.log_det == pytest.approx(fresh.log_det, rel=1e-9)
    play(policy, stream[80:])
    assert policy.updates[2].rescaled == ()


def test_a_number_far_from_its_column_counts_as_eight_deviations():
    policy = small(AtRounds([40]), preset="practical")
    play(policy, contexts(rounds=41)[:40])
    far, farther = (np.array([[size, 0.0], [0.0, 0.0]]) for size in (1e3, 1e6))
    np.testing.assert_array_equal(policy.score(far).means, policy.score(farther).means)
    near, nearer = (np.array([[size, 0.0], [0.0, 0.0]]) for size in (3.0, 2.0))
    assert policy.score(near).means[0] != policy.score(nearer).means[0]


def test_a_column_shared_by_all_arms_is_scaled_by_what_varies_between_rounds(tmp_path):
    """A user's feature looks constant within a round, and one that never varied is not settled for life."""
    rng = np.random.default_rng(0)
    stream = contexts(rounds=40, arms=30)
    stream[:, :, 0] = 1000 * rng.normal(size=(40, 1))
    stream[:20, :, 1] = 7.0
    policy = small(FixedGrid(40, 4), preset="practical")
    play(policy, stream[:20])
    policy.save(tmp_path / "p")
    policy = rarely.load(tmp_path / "p")
    early = policy.context_scale
    np.testing.assert_allclose(early.spread[0], stream[:20, 0, 0].std() * np.sqrt(2))
    play(policy, stream[20:])
    late = policy.context_scale
    assert late.spread[0] == early.spread[0]
    assert early.spread[1] == np.sqrt(2)
    np.testing.assert_allclose(late.spread[1], stream[:30, :, 1].std() * np.sqrt(2))


def test_neural_ucb_is_the_same_class_with_its_schedule_given():
    policy = NeuralUCB(2, hidden=4)
    assert isinstance(policy, BatchNeuralUCB)
    policy.select(contexts()[0])
    assert policy.due


def test_linucb_is_ridge_regression():
    policy = LinUCB(2, FixedGrid(HORIZON, 4), ridge=0.7, beta=0.3, intercept=True)
    play(policy, contexts()[:18])
    history = policy.history
    x = np.hstack([history.contexts, np.ones((18, 1))])
    z = 0.7 * np.eye(3) + x.T @ x
    np.testing.assert_allclose(policy.coefficients, np.linalg.solve(z, x.T @ history.rewards))
    candidates = np.hstack([contexts()[20], np.ones((3, 1))])
    scores = policy.score(contexts()[20])
    np.testing.assert_allclose(scores.means, candidates @ policy.coefficients)
    widths = np.sqrt(np.einsum("ki,ij,kj->k", candidates, np.linalg.inv(z), candidates))
    np.testing.assert_allclose(scores.bonuses, 0.3 * widths)


def test_linucb_estimates_from_the_rewards_that_are_in():
    policy = LinUCB(2, FixedGrid(HORIZON, 2), intercept=False)
    decision = policy.select(contexts()[:12])
    policy.observe(decision[::2], np.arange(6.0))
    policy.update()
    x = contexts()[np.arange(12), decision.arm][::2]
    np.testing.assert_allclose(policy.coefficients, np.linalg.solve(np.eye(2) + x.T @ x, x.T @ np.arange(6.0)))


def test_the_linear_policy_is_rarely_switching():
    """Versions grow like log det, not like rounds."""
    stream = contexts(rounds=400)
    policy = LinUCB(2, DeterminantTrigger(log_ratio=np.log(2)), intercept=False)
    play(policy, stream, block=100)
    assert 3 <= policy.version <= policy.log_det / np.log(2)
