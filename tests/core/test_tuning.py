"""A policy that chooses its own training, by rewards that training has not seen."""

import copy
import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import rarely
from rarely import (
    AtRounds,
    BatchNeuralUCB,
    FixedGrid,
    InvalidInput,
    LinUCB,
    NeuralLinear,
    NoiseRadius,
    OnDemand,
    Preset,
    Training,
    Window,
)
from rarely._core.model.network import Network
from rarely._core.policies import additions as module
from rarely._core.policies.additions import (
    EXHAUSTIVE_SAMPLES,
    FIRST,
    FOLDS,
    MAX_TRIALS,
    MIN_COMPARED,
    SKIP_GRID,
    STEP_GRID,
    Tuning,
    split_mix,
    tune,
)
from rarely._core.training import gradient_descent
from rarely._core.training.gradient_descent import TrainingPlan, descend_to, objective_of, train
from rarely._core.training.objective import MomentumState
from rarely.worlds import Cosine

PLAN = TrainingPlan(0.01)


def problem(samples, linear, noise=0.5, dim=4, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples, dim)) / np.sqrt(dim)
    clean = x.sum(axis=1) if linear else 3 * np.abs(x[:, 0]) - 2 * np.abs(x[:, 1] + x[:, 2])
    return x, clean + noise * rng.normal(size=samples)


def tuned_on(samples, linear, noise, updates=12):
    """The choice after some updates on growing data."""
    net = Network(4, 40, skip=SKIP_GRID[0])
    theta, tuning = net.initial_weights(np.random.default_rng(1)), Tuning()
    x, y = problem(samples, linear, noise)
    for count in np.linspace(samples // 3, samples, updates).astype(int):
        _, tuning = tune(net, theta, x[:count], y[:count], np.arange(count), PLAN, tuning)
    return tuning


def test_noise_stops_training_early_and_curves_prolong_it():
    noisy, curved = tuned_on(300, linear=True, noise=1.0), tuned_on(300, linear=False, noise=0.05)
    assert STEP_GRID[noisy.rung] <= 45
    assert STEP_GRID[curved.rung] >= 100


def test_the_choice_predicts_fresh_rewards_better_than_the_untuned_training():
    net = Network(4, 40, skip=SKIP_GRID[0])
    theta, (x, y), (new, truth) = (
        net.initial_weights(np.random.default_rng(1)),
        problem(300, linear=True, noise=1.0),
        problem(2000, linear=True, noise=0.0, seed=9),
    )
    outcome, tuning = None, Tuning()
    for _ in range(10):
        outcome, tuning = tune(net, theta, x, y, np.arange(300), PLAN, tuning)
    chosen = Network(4, 40, skip=SKIP_GRID[tuning.path])
    plain = train(Network(4, 40), (theta[0], theta[1][:, :40]), x, y, PLAN)
    own = np.mean(np.square(chosen.values(outcome.weights, new) - truth))
    untuned = np.mean(np.square(Network(4, 40).values(plain.weights, new) - truth))
    assert own < 0.7 * untuned


def test_held_out_samples_are_not_trained_on():
    """A held-out reward that is moved changes no prediction."""
    net = Network(3, 12, skip=SKIP_GRID[0])
    theta, (x, y) = net.initial_weights(np.random.default_rng(0)), problem(EXHAUSTIVE_SAMPLES + 50, linear=True, dim=3)
    rows = np.arange(len(y))
    held = Tuning().held_out(rows)
    moved = y.copy()
    moved[np.flatnonzero(held)[0]] += 100.0
    one, other = (tune(net, theta, x, rewards, rows, PLAN, Tuning())[1] for rewards in (y, moved))
    np.testing.assert_array_equal(one.predictions, other.predictions)
    assert not np.isnan(one.predictions[held, 0]).any()
    np.testing.assert_allclose(other.rewards - one.rewards, np.where(held, moved - y, np.nan))


@given(st.integers(1, 400), st.integers(0, 30))
def test_folds_take_turns_and_cover_every_row(rows, turn):
    numbers = np.arange(rows)
    folds = [Tuning(turn=turn + len(SKIP_GRID) * k).held_out(numbers) for k in range(FOLDS)]
    np.testing.assert_array_equal(np.sum(folds, axis=0), np.ones(rows))
    assert {Tuning(turn=turn + k).next_path for k in range(len(SKIP_GRID))} == set(range(len(SKIP_GRID)))


def judged(errors):
    """What would be chosen if these were the errors."""
    tuning = Tuning(weights=np.ones(len(errors)))
    tuning.__dict__["gains"] = errors[:, [FIRST[0]]][..., [FIRST[1]]] - errors
    return tuning


@given(st.integers(2, 30), st.floats(-5, 5), st.floats(0.1, 3), st.booleans(), st.integers(0, 10**6))
def test_predictions_are_judged_once_shifted_and_stretched(count, shift, stretch, weighted, seed):
    """Against least squares, one candidate at a time; and a map of all predictions changes nothing."""
    rng = np.random.default_rng(seed)
    rewards = rng.normal(size=count)
    predictions = rewards[:, None, None] * rng.normal(size=(len(SKIP_GRID), len(STEP_GRID)))
    predictions = predictions + rng.normal(size=predictions.shape)
    predictions[rng.random(predictions.shape) < 0.2] = np.nan
    weights = rng.random(count) if weighted else np.ones(count)
    tuning = Tuning(predictions=predictions, rewards=rewards, weights=weights)
    errors = tuning.errors(predictions)
    for s, j in np.ndindex(len(SKIP_GRID), len(STEP_GRID)):
        tried = ~np.isnan(predictions[:, s, j])
        assert np.isnan(errors[~tried, s, j]).all()
        ahead, came, root = predictions[tried, s, j], rewards[tried], np.sqrt(weights[tried])
        if len(ahead) < 2:
            continue
        columns = np.stack([np.ones_like(ahead), ahead], axis=1)
        shifted = np.linalg.lstsq(root[:, None] * columns, root * came, rcond=None)[0]
        if shifted[1] < 0:  # worse than nothing: all that is left is the mean
            shifted = np.array([np.average(came, weights=weights[tried]), 0.0])
        np.testing.assert_allclose(errors[tried, s, j], np.square(came - columns @ shifted), atol=1e-9)
    np.testing.assert_allclose(tuning.errors(shift + stretch * predictions), errors, atol=1e-9)


@given(st.integers(MIN_COMPARED, 60), st.integers(0, 10**6))
def test_candidates_are_compared_on_the_rows_of_both(count, seed):
    """One that was tried on few rows is not ahead because it was fitted to these alone."""
    rng = np.random.default_rng(seed)
    rewards = rng.normal(size=400)
    predictions = np.full((400, len(SKIP_GRID), len(STEP_GRID)), np.nan)
    predictions[:, FIRST[0], FIRST[1]] = 0.5 * rewards + rng.normal(size=400)
    predictions[:count, 1, 2] = 7.0 + 3.0 * predictions[:count, FIRST[0], FIRST[1]]
    gain, _ = Tuning(predictions=predictions, rewards=rewards, weights=np.ones(400)).compared()
    np.testing.assert_allclose(gain, 0.0, atol=1e-12)


def test_the_rounds_before_the_first_training_count_along_the_path_that_it_chose():
    """And a log does. Else Z would know nothing of the linear path, and all bonuses would be too large."""
    rng = np.random.default_rng(0)
    x, fresh = rng.normal(size=(300, 1, 3)), rng.normal(size=(50, 1, 3))
    y = x.sum(axis=(1, 2)) + 0.5 * rng.normal(size=300)
    logged = BatchNeuralUCB.from_log(x[:, 0], y, schedule=FixedGrid(300, 3), hidden=20, seed=0)
    played = BatchNeuralUCB(3, AtRounds([300]), hidden=20, beta=0.1, seed=0)
    played.observe(played.select(x), y)
    played.update()
    for policy in (logged, played):
        network, theta = policy.network, policy.initial_weights
        assert network.skip > 0
        phi = network.values_and_factors(theta, policy.context_scale(x[:, 0]))[1].vectors()
        dense = 0.01 * np.eye(phi.shape[1]) + phi.T @ phi
        new = network.values_and_factors(policy.weights, policy.context_scale(fresh[:, 0]))[1].vectors()
        expected = policy.beta * np.sqrt(np.sum(new * np.linalg.solve(dense, new.T).T, axis=1))
        np.testing.assert_allclose(policy.score(fresh).bonuses[:, 0], expected, rtol=1e-6)
        assert policy.log_det == pytest.approx(np.linalg.slogdet(dense / 0.01)[1])


def test_the_first_version_has_no_linear_path_and_a_snapshot_of_it_knows(tmp_path):
    policy = BatchNeuralUCB(2, FixedGrid(40, 4), hidden=8, seed=0)
    assert policy.network.skip == 0.0
    policy.save(tmp_path / "p")
    other, rows = rarely.load(tmp_path / "p"), np.random.default_rng(0).normal(size=(10, 2, 2))
    assert other.network.skip == 0.0
    for one in (policy, other):
        one.observe(one.select(rows), np.arange(10.0))
        one.update()
        assert one.network.skip in SKIP_GRID
    assert policy.log_det == other.log_det


@given(st.integers(MIN_COMPARED, 40), st.floats(-1, 1), st.floats(0.01, 3), st.integers(0, 10**6))
def test_another_candidate_must_be_better_by_more_than_the_doubt(count, shift, spread, seed):
    rng = np.random.default_rng(seed)
    errors = np.full((count, len(SKIP_GRID), len(STEP_GRID)), np.nan)
    own, other = rng.random(count), rng.random(count) * spread + shift
    errors[:, FIRST[0], FIRST[1]], errors[:, 1, 2] = own, other
    tuning = judged(errors)
    gain, doubt = tuning.compared()
    difference = own - other
    assert gain[1, 2] == pytest.approx(difference.mean())
    assert doubt[1, 2] == pytest.approx(difference.std() / np.sqrt(count))
    moves = difference.mean() > module.DOUBT * difference.std() / np.sqrt(count)
    assert tuning._choice() == ((1, 2) if moves else FIRST)


def test_many_samples_change_nothing_for_a_difference_that_luck_explains():
    """As seen after a week of a recommender: J = 330 gave way to J = 9 for −0.00021 ± 0.00034 on 1677 rewards."""
    rng = np.random.default_rng(0)
    noise = rng.normal(size=1677)
    noise = (noise - noise.mean()) / noise.std()
    errors = np.full((1677, len(SKIP_GRID), len(STEP_GRID)), np.nan)
    errors[:, FIRST[0], FIRST[1]] = 0.25
    errors[:, 1, 2] = 0.25 - 0.00021 + 0.00034 * np.sqrt(1677) * noise
    assert judged(errors)._choice() == FIRST
    errors[:, 1, 2] -= 0.0012
    assert judged(errors)._choice() == (1, 2)


@pytest.mark.parametrize(("count", "least", "most"), [(100, 0.5, 1.0), (4000, 0.0, 0.1)])
def test_candidates_that_are_alike_take_turns_while_samples_are_few_and_stay_when_they_are_many(count, least, most):
    rng, changes = np.random.default_rng(0), 0
    for _ in range(100):
        errors = 1.0 + 0.1 * rng.normal(size=(count, len(SKIP_GRID), len(STEP_GRID)))
        changes += judged(errors)._choice() != FIRST
    assert least <= changes / 100 <= most


def test_few_samples_decide_nothing():
    net = Network(2, 8, skip=SKIP_GRID[0])
    theta, (x, y) = net.initial_weights(np.random.default_rng(0)), problem(MIN_COMPARED - 1, linear=True, dim=2)
    outcome, tuning = tune(net, theta, x, y, np.arange(len(y)), PLAN, Tuning())
    assert outcome.accepted
    assert (tuning.path, tuning.rung) == FIRST
    assert "too few" in tuning.explain(Network(1, 2))
    assert tuning.noise is None


@pytest.fixture
def descents(monkeypatch):
    """The samples and the last rung of every descent."""
    done, original = [], module.descend_to

    def noted(objective, rungs, *rest, **named):
        done.append((objective.samples, rungs[-1]))
        return original(objective, rungs, *rest, **named)

    monkeypatch.setattr(module, "descend_to", noted)
    return done


def test_the_first_training_tries_each_path_on_one_fold_and_later_ones_take_turns(descents):
    """The cost beyond few samples: two trials on 4/5 of them at first, one at each later update, and the training."""
    net, count = Network(2, 8, skip=SKIP_GRID[0]), 2 * EXHAUSTIVE_SAMPLES
    theta, (x, y) = net.initial_weights(np.random.default_rng(0)), problem(count, linear=True, dim=2)
    tuning = Tuning()
    for update in range(4):
        held = tuning.held_out(np.arange(count)).sum()
        _, tuning = tune(net, theta, x, y, np.arange(count), PLAN, tuning)
        *trials, training = descents
        assert trials == [(count - held, STEP_GRID[-1])] * (len(SKIP_GRID) if update == 0 else 1)
        assert training == (count, STEP_GRID[tuning.rung])
        descents.clear()


def test_trials_that_never_succeed_end(descents, monkeypatch):
    monkeypatch.setattr(gradient_descent, "MOMENTUM_STABLE", 1e30)
    net = Network(2, 8, skip=SKIP_GRID[0])
    theta, (x, y) = net.initial_weights(np.random.default_rng(0)), problem(EXHAUSTIVE_SAMPLES + 1, linear=True, dim=2)
    outcome, tuning = tune(net, theta, x, y, np.arange(EXHAUSTIVE_SAMPLES + 1), PLAN, Tuning())
    assert len(descents) == MAX_TRIALS + 1
    assert "did not fall" in outcome.reason
    assert not tuning.comparable


@pytest.mark.parametrize("rounds", [EXHAUSTIVE_SAMPLES + 50, 1000])
def test_a_policy_from_a_log_has_tried_both_paths(rounds):
    """And one of two versions: whichever came first was kept without a trial of the other."""
    x, y = problem(rounds, linear=False, noise=0.05)
    logged = BatchNeuralUCB.from_log(x, y, schedule=FixedGrid(10, 2), hidden=20, seed=0)
    played = BatchNeuralUCB(4, FixedGrid(2 * rounds, 2), hidden=20, seed=0)
    played.observe(played.select(x[:, None]), y)
    played.update()
    for policy in (logged, played):
        assert (policy.tuning.rewards >= rounds / FOLDS / 2).all()
        assert np.isfinite(policy.tuning.difference_errors).all()


def test_a_path_that_is_better_is_found_at_the_first_training():
    """Curves that no strong linear path helps with."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 10)) / np.sqrt(10)
    policy = BatchNeuralUCB.from_log(x, np.abs(4 * x[:, :3]).sum(axis=1), schedule=FixedGrid(10, 2), hidden=200, seed=0)
    assert policy.updates[0].skip == 0.0


@given(
    st.integers(0, 4 * len(SKIP_GRID) * FOLDS),
    st.lists(st.integers(EXHAUSTIVE_SAMPLES + 1, 400), min_size=1, max_size=3),
    st.one_of(st.none(), st.integers(30, 300)),
    st.integers(0, 10**6),
)
def test_a_prediction_is_never_of_a_model_that_was_trained_on_its_row(turn, counts, window, seed):
    """Whatever the turn; also on top of predictions that version 0.1 noted in folds of another kind."""
    rng = np.random.default_rng(seed)
    net, size = Network(2, 4, skip=SKIP_GRID[0]), sum(counts)
    theta, (x, y) = net.initial_weights(rng), problem(size, linear=True, dim=2, seed=seed)
    before = np.full((counts[0] // 2, len(SKIP_GRID), len(STEP_GRID)), np.nan)
    before[rng.random(len(before)) < 0.2, turn % len(SKIP_GRID)] = rng.normal(size=len(STEP_GRID))
    rewards = np.where(np.isnan(before).all(axis=(1, 2)), np.nan, y[: len(before)])
    tuning, taught = Tuning(turn=turn, predictions=before, rewards=rewards, weights=np.ones(len(before))), []

    def small(network, initial, contexts, rewards, plan):
        taught.append({tuple(row) for row in contexts})
        return objective_of(network, initial, contexts, rewards, plan)

    def noted(tuning, rows, predictions, rewards):
        assert not taught[-1] & {tuple(row) for row in x[rows]}
        return original(tuning, rows, predictions, rewards)

    original = Tuning.with_predictions
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "objective_of", small)
        patch.setattr(Tuning, "with_predictions", noted)
        for count in np.cumsum(counts):
            rows = np.arange(0 if window is None else max(0, count - window), count)
            tuning = tune(net, theta, x[rows], y[rows], rows, PLAN, tuning)[1]
            assert tuning.comparable
    assert tuning.turn > turn
    assert not np.isnan(tuning.predictions[: len(before)][~np.isnan(before)]).any()  # nothing that was noted is lost


@pytest.mark.parametrize("turn", range(len(SKIP_GRID) * FOLDS))
def test_a_tuning_whose_predictions_are_gone_continues_where_it_was(turn, descents):
    """Its turn is the next path and fold, and a path that it has no predictions of is tried now."""
    net, count = Network(2, 4, skip=SKIP_GRID[0]), 2 * EXHAUSTIVE_SAMPLES
    theta, (x, y) = net.initial_weights(np.random.default_rng(0)), problem(count, linear=True, dim=2)
    nothing = np.full((9, len(SKIP_GRID), len(STEP_GRID)), np.nan)
    old = Tuning(turn=turn, predictions=nothing, rewards=nothing[:, 0, 0], weights=np.ones(9))
    assert (old.next_path, old.path_in_use) == (turn % len(SKIP_GRID), 0 if turn else None)
    _, tuning = tune(net, theta, x, y, np.arange(count), PLAN, old)
    trials = len(SKIP_GRID) + turn % len(SKIP_GRID)  # a fold that began with the second path is not enough
    assert tuning.turn == turn + trials
    assert len(descents) == trials + 1
    assert tuning.comparable


def test_predictions_are_kept_for_the_latest_rows_alone(monkeypatch):
    monkeypatch.setattr(module, "KEPT_ROWS", 30)
    tuning = Tuning()
    for turn in range(6):
        rows = np.arange(20 * turn, 20 * turn + 20)
        tuning = tuning.with_rows(np.arange(20 * turn + 20), None)
        tuning = tuning.with_predictions(rows, np.full((20, len(STEP_GRID)), float(turn)), rows.astype(float))
    assert len(tuning.predictions) == len(tuning.rewards) == 30
    assert tuning.first == 90
    before = tuning.predictions.copy()
    # One of these is long forgotten.
    tuning = tuning.with_predictions(np.array([3, 119]), np.full((2, len(STEP_GRID)), 9.0), np.array([3.0, 119.0]))
    assert tuning.predictions[29, 0, 0] == 9.0
    np.testing.assert_array_equal(tuning.rewards, np.arange(90.0, 120.0))
    np.testing.assert_array_equal(tuning.predictions[:29, 1], before[:29, 1])


def test_a_descent_notes_where_it_stood_at_each_rung():
    net = Network(3, 12, skip=3.0)
    theta, (x, y) = net.initial_weights(np.random.default_rng(0)), problem(60, linear=True, dim=3)
    objective = objective_of(net, theta, x, y, PLAN)
    checkpoints = descend_to(objective, (3, 7, 12))
    for rung, weights in zip((3, 7, 12), checkpoints.reached, strict=True):
        start = MomentumState.at_rest(objective.initial)
        alone, _ = objective.descend_with_momentum(start, checkpoints.step, rung, np.inf)
        for a, b in zip(weights, alone.weights, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9)


def test_a_descent_that_rises_is_tried_with_smaller_steps(monkeypatch):
    monkeypatch.setattr(gradient_descent, "MOMENTUM_STABLE", 64.0)
    net = Network(3, 12, skip=3.0)
    theta, (x, y) = net.initial_weights(np.random.default_rng(0)), problem(60, linear=True, dim=3)
    checkpoints = descend_to(objective_of(net, theta, x, y, PLAN), (5, 20))
    assert checkpoints.attempts > 1
    assert checkpoints.final_loss <= checkpoints.initial_loss
    assert checkpoints.outcome(net, 20).accepted


def test_a_descent_that_never_falls_is_refused(monkeypatch):
    monkeypatch.setattr(gradient_descent, "MOMENTUM_STABLE", 1e30)
    net = Network(3, 12, skip=3.0)
    theta, (x, y) = net.initial_weights(np.random.default_rng(0)), problem(60, linear=True, dim=3)
    outcome = descend_to(objective_of(net, theta, x, y, PLAN), (5,)).outcome(net, 5)
    assert "did not fall" in outcome.reason


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


def test_the_default_policy_tunes_itself_and_says_why():
    policy = played()
    last = policy.updates[-1]
    assert last.steps in STEP_GRID
    assert last.skip in SKIP_GRID
    assert last.tuning.startswith(f"J = {last.steps}, s = {last.skip:g}: validation loss")
    assert 0.3 < last.noise < 0.8  # the truth is 0.5
    assert 0.7 <= last.coverage <= 1.0
    assert last.describe()["tuning"] == last.tuning


def test_the_radius_is_that_of_noise_and_norm_and_nothing_at_the_end():
    policy, learners = life(scale=7.0)
    *earlier, last = policy.updates
    assert last.beta == policy.beta == 0.0  # nothing that it finds out is ever learned from
    for before, learner in zip(earlier, learners[:-1], strict=True):
        moved = np.concatenate(
            [(w - v).ravel() for w, v in zip(learner.base.weights, learner.base.initial, strict=True)]
        )
        norm = np.sqrt(learner.base.network.hidden) * np.linalg.norm(moved) * learner.reward_spread
        noise = before.noise or learner.reward_spread / 4
        so_far = [record for record in policy.updates if record.round <= before.round]
        known, least_known = min(record.chosen for record in so_far), before.least_known
        spread = max(np.std(policy.history.rewards[:n]) for n in range(2, before.round + 1))
        part = max(0.02, min(0.1 / known, 2.0))
        expected = part * max(noise, 0.1 * spread) + 0.02 * np.sqrt(0.01) * norm
        if least_known**2 > 4 * known * so_far[0].least_known:
            expected = max(expected, 3 * spread / least_known)
        assert before.beta == pytest.approx(expected)


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
    for v, w in zip(a.learner.base.weights, b.learner.base.weights, strict=True):
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
    assert "validation loss" in policy.updates[-1].tuning


def test_a_part_of_the_noise_needs_an_estimate_of_it():
    with pytest.raises(InvalidInput, match="estimates the noise"):
        LinUCB(2, beta=NoiseRadius(0.1))
    with pytest.raises(InvalidInput, match="factor"):
        NoiseRadius(-1.0)
    with pytest.raises(InvalidInput, match="relative"):
        NoiseRadius(0.1, relative=np.inf)


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


def test_rewards_that_have_not_come_yet_are_looked_for_everywhere():
    """A hundred rounds without success say nothing about the noise, and arms that were not tried are tried."""
    policy = BatchNeuralUCB(3, FixedGrid(200, 10), hidden=8, seed=0)
    while policy.round < 100:
        decision = policy.select(np.broadcast_to(np.eye(3), (10, 3, 3)))
        policy.observe(decision, np.zeros(10))
        if policy.due:
            policy.update()
    assert policy.updates[-1].noise is None
    assert policy.beta >= 0.02 / 4
    assert set(policy.history.arms.tolist()) == {0, 1, 2}


def test_the_losses_behind_the_choice_can_be_read():
    policy = played()
    tuning, chosen = policy.tuning, policy._learner.tuning
    errors = chosen.errors(chosen.predictions)
    assert (tuning.skips[tuning.chosen[0]], tuning.steps[tuning.chosen[1]]) == (
        policy.updates[-1].skip,
        policy.updates[-1].steps,
    )
    for s, j in np.ndindex(len(SKIP_GRID), len(STEP_GRID)):
        tried = errors[:, s, j][~np.isnan(errors[:, s, j])]
        assert tuning.rewards[s, j] == len(tried)
        assert tuning.losses[s, j] == pytest.approx(tried.mean())
        assert tuning.errors[s, j] == pytest.approx(tried.std() / np.sqrt(len(tried)))
    gain, doubt = policy._learner.tuning.compared()
    np.testing.assert_allclose(tuning.differences, -gain)
    np.testing.assert_allclose(tuning.difference_errors, doubt)
    ahead = policy._learner.tuning.predictions[:, tuning.chosen[0], tuning.chosen[1]]
    off = (ahead - policy._learner.tuning.rewards)[~np.isnan(ahead)]
    assert policy.updates[-1].noise == pytest.approx(np.sqrt(np.mean(off**2)))


def test_losses_that_are_not_there_are_nan():
    untried = BatchNeuralUCB(2, FixedGrid(10, 2), hidden=8).tuning
    assert np.isnan(untried.losses).all()
    assert not untried.rewards.any()
    assert BatchNeuralUCB(2, FixedGrid(10, 2), hidden=8, training=20).tuning is None
    x, y = problem(MIN_COMPARED - 1, linear=True)
    started = BatchNeuralUCB.from_log(x, y, schedule=FixedGrid(10, 2), hidden=8, seed=0).tuning
    assert np.isnan(started.losses).all()
    assert np.isnan(started.difference_errors).all()


def test_a_clear_winner_is_not_hidden_by_a_noisy_leader():
    rng = np.random.default_rng(0)
    errors = np.full((40, len(SKIP_GRID), len(STEP_GRID)), np.nan)
    errors[:, FIRST[0], FIRST[1]] = 5.0
    errors[:, 1, 2] = 5.0 - 0.9 + 0.1 * rng.normal(size=40)
    errors[:, 1, 3] = 5.0 - 1.0 + 60.0 * (np.arange(40) % 2 - 0.5)
    assert judged(errors)._choice() == (1, 2)


def test_an_empty_fold_is_passed_over():
    net = Network(2, 8, skip=SKIP_GRID[0])
    theta = net.initial_weights(np.random.default_rng(0))
    rows = np.arange(200)
    rows = rows[~Tuning(turn=len(SKIP_GRID)).held_out(rows)][:60]  # none of the second fold
    x, y = problem(60, linear=True, dim=2)
    _, tuning = tune(net, theta, x, y, rows, PLAN, Tuning())
    assert tuning.turn == len(SKIP_GRID) * FOLDS
    tried = ~np.isnan(tuning.predictions[rows - tuning.first]).any(axis=(1, 2))
    assert tried.all()


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


FAIR = 6.0
"""Standard deviations of a binomial count that a fold may differ by: chance exceeds it once in 10⁸ folds."""


def unfairness(rows):
    """By how many standard deviations the folds' counts differ at most from their share; rows are (..., n)."""
    counts = [Tuning(turn=len(SKIP_GRID) * fold).held_out(rows).sum(axis=-1) for fold in range(FOLDS)]
    share, n = 1 / FOLDS, rows.shape[-1]
    return float(np.abs(np.array(counts) - share * n).max() / np.sqrt(share * (1 - share) * n))


@given(st.integers(2, 400), st.integers(0, 10**6), st.integers(100, 1000))
@example(5, 0, 200)
def test_folds_do_not_follow_a_rhythm(period, offset, count):
    """Every hour of the day, every customer of a round trip has its fair share of each fold."""
    assert unfairness(offset + period * np.arange(count)) <= FAIR


@pytest.mark.parametrize("period", [29, 58, 116, 174])
def test_folds_do_not_follow_a_rhythm_that_a_product_alone_follows(period):
    assert unfairness(np.arange(period)[:, None] + period * np.arange(100)) <= FAIR


def test_folds_are_mixed_as_by_splitmix64():
    """Its first numbers from the seed 0, as published with it."""
    assert [hex(number) for number in split_mix(np.arange(3))] == [
        "0xe220a8397b1dcdaf",
        "0x6e789e6aa1b965f4",
        "0x6c45d188009454f",
    ]


def test_before_anything_was_held_out_the_record_claims_no_noise():
    policy = BatchNeuralUCB(2, FixedGrid(10, 3), hidden=8, seed=0)
    policy.observe(policy.select(np.random.default_rng(0).normal(size=(5, 1, 2))), 1000.0 + np.arange(5.0))
    record = policy.update()
    assert record.noise is None
    assert record.coverage is None
    assert 0.02 * np.arange(5.0).std() / 4 < policy.beta < 0.02 * np.arange(5.0).std()


def clicks(policy, rounds, seed=0):
    """Rounds that pay 1 or 0: one arm where its first number is positive, the other where it is negative."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(rounds, 3))
    offered = np.stack([np.hstack((rows, 0 * rows)), np.hstack((0 * rows, rows))], axis=1)
    decision = policy.select(offered)
    policy.observe(decision, (decision.arm == (rows[:, 0] > 0)).astype(float))


def test_no_mean_is_below_all_rewards(tmp_path):
    """Where the chosen arm is known to pay 0, an arm that is thought to pay −0.5 would never be tried."""
    policy = BatchNeuralUCB(6, OnDemand(), hidden=16, seed=0)
    for seed in range(3):
        clicks(policy, 30, seed)
        policy.update()
    far = 3 * np.random.default_rng(9).normal(size=(200, 2, 6))
    bare = replace(policy._state.current.learner, lowest=None).assess(far.reshape(-1, 6))[0]
    means = policy.score(far).means
    assert bare.min() < 0
    np.testing.assert_array_equal(means.ravel(), np.maximum(bare, 0.0))
    policy.save(tmp_path / "policy")
    np.testing.assert_array_equal(rarely.load(tmp_path / "policy").score(far).means, means)
    policy.observe(policy.select(far[0]), -0.25)  # it counts from the next version on
    assert policy.score(far).means.min() == 0
    policy.adopt(policy.prepare_update().run())
    assert policy.score(far).means.min() == -0.25


def test_a_policy_whose_training_is_given_predicts_as_printed():
    policy = BatchNeuralUCB(6, OnDemand(), hidden=16, training=50, seed=0)
    clicks(policy, 60)
    policy.update()
    assert policy.score(3 * np.random.default_rng(9).normal(size=(200, 2, 6))).means.min() < 0


def test_the_lowest_reward_outlives_its_round(tmp_path):
    policy = BatchNeuralUCB(6, OnDemand(), hidden=16, forgetting=Window(10), seed=0)
    policy.observe(policy.select(np.ones((2, 6))), -1.0)
    for seed in range(3):
        clicks(policy, 20, seed)
        policy.update()
    policy.compact()
    clicks(policy, 20, 3)
    policy.update()
    assert policy.history.rewards.min() == 0
    policy.save(tmp_path / "policy")
    for one in (policy, rarely.load(tmp_path / "policy")):
        assert one._state.current.learner.lowest == -1
