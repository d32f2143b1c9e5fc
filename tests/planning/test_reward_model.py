from dataclasses import replace

import numpy as np
import pytest

from decision_logs import planning_log
from rarely import InvalidInput
from rarely.logs import InvalidLog
from rarely.planning import simulate
from rarely.planning.planner import notes_on_fit
from rarely.planning.simulate import LoggedRounds, LogWorld, SimulatedRewards, _trained, fit_rewards


def played(*arguments, **settings):
    return LoggedRounds(planning_log(*arguments, **settings))


def linear_log(rounds=300, arms=3, noise=0.2, seed=0):
    generator = np.random.default_rng(seed)
    rows, slopes = generator.normal(size=(rounds, 3)), generator.normal(size=(3, 3))
    chosen = generator.integers(arms, size=rounds)
    rewards = (rows @ slopes)[np.arange(rounds), chosen] + noise * generator.normal(size=rounds)
    return played(rows, 3, chosen, rewards), rows @ slopes


def test_a_fit_says_how_good_it_is_and_finds_the_truth():
    log, truth = linear_log()
    fitted = fit_rewards(log, seed=0)
    means = fitted.means(np.arange(len(log)))
    assert fitted.fit.rewards == 300
    assert fitted.fit.r_squared > 0.9
    assert fitted.fit.noise == pytest.approx(0.2, rel=0.5)
    assert np.corrcoef(means.ravel(), truth.ravel())[0, 1] > 0.97
    assert np.mean(means.argmax(axis=1) == truth.argmax(axis=1)) > 0.85


def test_rewards_of_pure_noise_are_not_foreseen():
    log, _ = linear_log(120)
    noise = played(log.features, 3, rewards=np.random.default_rng(1).normal(size=(120, 3)))
    assert fit_rewards(noise, seed=0).fit.r_squared < 0.2


def test_arms_without_a_reward_are_named_and_too_few_rewards_refused():
    log, _ = linear_log(100, arms=2)
    assert fit_rewards(log, seed=0).fit.rare == ((2, 0),)
    with pytest.raises(InvalidLog, match="at least 50 rewards; the log has 49"):
        fit_rewards(played(log.features[:49], 3, *(each[:49] for each in log.log.known_rewards()[1:])), seed=0)


def test_arms_are_named_by_the_log_and_only_where_they_are_the_same_arms_every_round():
    log, _ = linear_log(100, arms=2)
    named = played(
        log.features, 3, log.log.known_rewards()[1], log.log.known_rewards()[2], arm_names=["high", "low", "none"]
    )
    notes = " ".join(notes_on_fit(fit_rewards(named, seed=0).fit, named.log))
    assert "(how many, in brackets): none (0). What these pay is EXTRAPOLATED" in notes
    assert "What the network misses of the truth counts as noise" in notes
    own = played(np.repeat(log.features[:, None], 3, 1), None, *log.log.known_rewards()[1:])
    fit = fit_rewards(own, seed=0).fit
    assert fit.rare == ()
    nothing = replace(fit, r_squared=-0.2)
    assert "it foresees NOTHING of the variance" in notes_on_fit(nothing, own.log)[0]


def test_the_third_that_judges_is_of_other_rounds_than_those_learned_from(monkeypatch):
    # Rewards that only a round's own number tells: seen in one arm, they are known of all others.
    generator = np.random.default_rng(0)
    rows, luck = generator.normal(size=(60, 1, 3)), generator.normal(size=60)
    log = played(np.repeat(rows, 4, axis=1), rewards=np.repeat(luck[:, None], 4, axis=1))
    trained = []
    monkeypatch.setattr(
        simulate, "_trained", lambda x, y, seed, settings: trained.append((x, y)) or _trained(x, y, seed, settings)
    )
    fit = fit_rewards(log, seed=0).fit
    seen = [{tuple(row) for row in contexts} for contexts, _ in trained]
    assert [len(rows) for rows in seen] == [40] * 9  # of 60 rounds, each of which has one row in four arms
    assert not seen[0] & seen[1] & seen[2]
    assert fit.r_squared < 0.3


def test_a_world_of_a_log_has_the_noise_it_is_said_to_have_and_an_order_for_each_seed():
    log, _ = linear_log(400)
    world = LogWorld(log, SimulatedRewards(log, lambda rows: rows, 0.7), 400)
    one, other = world.rounds(1, 400), world.rounds(2, 400)
    assert np.std((one.rewards - one.means)[:, 0]) == pytest.approx(0.7, rel=0.12)
    assert not np.array_equal(one.means, other.means)
    np.testing.assert_array_equal(np.sort(one.means[:, 0]), np.sort(other.means[:, 0]))
    prepared = world.with_runs([1])
    np.testing.assert_array_equal(prepared.rounds(1, 50, 11).rewards, one.rewards[10:60])
    np.testing.assert_array_equal(prepared.rounds(2, 400).rewards, other.rewards)


def test_a_simulator_gets_features_as_they_are_in_the_log():
    log, _ = linear_log(50)
    seen = []
    rewards = SimulatedRewards(log, lambda rows: seen.append(rows.shape) or rows[:, [0, 0, 1]])
    means = rewards.means(np.array([3, 3, 7]))
    assert seen == [(3, 3)]
    np.testing.assert_array_equal(means[:, 2], log.features[[3, 3, 7], 1])
    paid = rewards.pay(np.repeat(means, 500, axis=0), np.random.default_rng(0).random((1500, 3, 2)))
    assert (paid - np.repeat(means, 500, axis=0)).std() == pytest.approx(means.std() / 2, rel=0.05)
    with pytest.raises(InvalidInput, match="a finite mean for every arm"):
        SimulatedRewards(log, lambda rows: rows[:, 0]).means(np.array([0]))


def test_a_world_of_a_log_plays_every_round_once_and_then_some_again():
    log, _ = linear_log(30)
    world = LogWorld(log, SimulatedRewards(log, lambda rows: rows, 0.0), 50)
    rounds = world.rounds(seed=3, count=50)
    places = [int(np.argmin(np.abs(log.features[:, 0] - mean))) for mean in rounds.means[:, 0]]
    assert sorted(places[:30]) == list(range(30))
    assert len(set(places[30:])) > 5
    np.testing.assert_array_equal(rounds.contexts, log.contexts(places))
    np.testing.assert_array_equal(rounds.rewards, rounds.means)
    np.testing.assert_array_equal(world.rounds(3, 20, first=31).means, rounds.means[30:])
