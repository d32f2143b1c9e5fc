"""The rivals for plain arms learn, keep their budget, and refuse arms that change."""

import numpy as np
import pytest

import plain
from rarely import AtRounds, EveryRound, FixedGrid, InvalidInput, Paced
from rarely.worlds import Cosine, Rounds
from rarely.worlds.gallery import BernoulliArms, ConstantArms
from rarely_lab.compare import Task, find_problem
from rarely_lab.engine.play import Contestant, play
from suite.plain_arms import RIVALS, UCB1, BetaThompson, Elimination, GaussianThompson

everyone = pytest.mark.parametrize("name", RIVALS)


def task(arms, horizon, batches):
    return Task(arms, arms, horizon, batches, seed=0)


def arms_of(contestant, arms, rounds):
    return [contestant.select(np.eye(arms)) for _ in range(rounds)]


@everyone
def test_a_rival_learns_which_coin_pays(name):
    rounds = BernoulliArms(3, best=0.9, rest=0.1).rounds(seed=1, count=400)
    contestant = RIVALS[name](task(3, 400, 10), FixedGrid(400, 10))
    assert isinstance(contestant, Contestant)
    played = play(contestant, rounds, 10)
    assert played.updates == list(range(40, 400, 40))
    assert played.regrets[300:].sum() < 0.2 * played.regrets[:40].sum() * 100 / 40


@everyone
def test_a_rival_learns_whatever_units_rewards_have(name):
    plain = ConstantArms(4, noise=0.2).rounds(seed=3, count=300)
    rounds = Rounds(plain.contexts, 1e3 * plain.means - 5e3, 1e3 * plain.rewards - 5e3)
    regrets = play(RIVALS[name](task(4, 300, 30), FixedGrid(300, 30)), rounds, 30).regrets
    assert regrets[200:].sum() < 0.5 * (rounds.means.max(axis=1) - rounds.means.mean(axis=1))[200:].sum()


@everyone
@pytest.mark.parametrize("schedule", ["", "@fixed", "@geometric", "@loglog"])
def test_a_rival_keeps_its_budget_under_every_schedule(name, schedule):
    problem = find_problem("ten-coins+delay")
    contestant = plain.make(name + schedule, problem.task(60, 6, 0), 6)
    played = play(contestant, problem.rounds(0, 60), 6, problem.delays(0, 60))
    assert 2 <= len(played.updates) <= 5


def test_paced_follows_the_log_det_of_one_hot_arms():
    """Its limits are T(b/B)³ and T(b/B)²; log det decides in between."""
    problem = find_problem("gaussian-5")
    updates = play(plain.make("ucb1", problem.task(500, 10, 0), 10), problem.rounds(0, 500), 10).updates
    assert len(updates) == 9
    assert all(b**3 / 2 <= end <= 5 * b**2 for b, end in enumerate(updates, 1))
    assert any(end < 5 * b**2 for b, end in enumerate(updates, 1) if end >= 64)


@everyone
def test_nothing_is_learned_between_updates(name):
    """Rewards of a batch change no choice within it."""
    rounds = ConstantArms(3, noise=1.0).rounds(seed=0, count=40)
    other = Rounds(rounds.contexts, rounds.means, rounds.rewards.copy())
    other.rewards[10:] = 9.0
    chosen = []
    for each in (rounds, other):
        contestant = RIVALS[name](task(3, 40, 3), AtRounds([10, 30]))
        played, arms = play(contestant, each, 3), contestant.chosen
        chosen.append((played.regrets[:30].tolist(), arms.sum()))
    assert chosen[0] == chosen[1]


@everyone
def test_arms_that_change_are_refused(name):
    contestant = RIVALS[name](Task(4, 10, 30, 3, 0), EveryRound())
    with pytest.raises(InvalidInput, match="must be the same in every round"):
        play(contestant, Cosine().rounds(seed=0, count=3), 3)


def test_rivals_play_where_arms_stay():
    names = ["needle", "needle+drift", "ten-coins+drift", "cosine"]
    assert [name for name in names if plain.fixed_arms(find_problem(name))] == ["needle", "ten-coins+drift"]


def test_ucb1_spreads_a_batch_over_the_arms_by_its_counts():
    contestant = UCB1(task(3, 90, 2), FixedGrid(90, 2))
    arms = arms_of(contestant, 3, 45)
    assert sorted(arms[:3]) == [0, 1, 2]
    assert np.bincount(arms).tolist() == [15, 15, 15]


def test_the_index_of_ucb1_is_the_printed_one():
    contestant = UCB1(task(2, 90, 5), Paced(90, 5))
    contestant.chosen[:] = 3, 1
    for reward in (1.0, 0.0, 0.5):
        contestant.observe(1, np.eye(2), 0, reward)
    contestant.observe(4, np.eye(2), 1, 0.5)
    contestant.update()
    spread = np.std([1.0, 0.0, 0.5, 0.5])
    deviations = np.sqrt([(0.5 + 3 * spread**2) / 5, 3 * spread**2 / 3])
    np.testing.assert_allclose(contestant.scores(), 0.5 + deviations * np.sqrt(2 * np.log(5) / np.array([3, 1])))


def test_elimination_gives_up_an_arm_only_when_it_is_shown_to_be_worse_and_ends_with_the_best_mean():
    contestant = Elimination(task(3, 300, 3), FixedGrid(300, 3))
    noise = np.tile([-0.1, 0.1], 20)
    for arm, mean in enumerate((0.0, 1.0, 1.01)):
        for reward in mean + noise:
            contestant.observe(1, np.eye(3), arm, reward)
    contestant.update()
    assert contestant.left.tolist() == [False, True, True]
    assert np.bincount(arms_of(contestant, 3, 20)).tolist() == [0, 10, 10]
    contestant.update()
    assert set(arms_of(contestant, 3, 20)) == {2}


def test_thompson_draws_from_its_posteriors():
    gaussian, beta = (kind(task(2, 90, 5), Paced(90, 5)) for kind in (GaussianThompson, BetaThompson))
    for contestant in (gaussian, beta):
        for arm, reward in [(0, 1.0), (0, 1.0), (0, 0.0), (1, 0.0)]:
            contestant.observe(1, np.eye(2), arm, reward)
        contestant.update()
    draws = np.array([beta.scores() for _ in range(4000)])
    np.testing.assert_allclose(draws.mean(axis=0), [3 / 5, 1 / 3], atol=0.02)
    draws = np.array([gaussian.scores() for _ in range(4000)])
    np.testing.assert_allclose(draws.mean(axis=0), [(3 * 2 / 3 + 0.5) / 4, 0.25], atol=0.03)
    np.testing.assert_allclose(draws.std(axis=0), gaussian.deviations / np.sqrt([4, 2]), rtol=0.06)
