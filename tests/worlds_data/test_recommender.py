"""The recommender world is what it says it is."""

import json
from itertools import pairwise

import numpy as np
import pytest

from rarely import InvalidInput, LinUCB, Mixture
from rarely.worlds import Recommender

WORLD = Recommender(daily=2000)


@pytest.fixture(scope="module")
def week():
    return [WORLD.day(seed=3, day=day) for day in range(3)]


def test_days_and_rounds_are_the_same_visits(week):
    rounds = WORLD.rounds(seed=3, count=40, first=1980)
    days = [(week[0], slice(1979, 2000)), (week[1], slice(0, 19))]
    for (day, visits), here in zip(days, (slice(0, 21), slice(21, 40)), strict=True):
        np.testing.assert_allclose(rounds.means[here], day.means[visits])
        np.testing.assert_array_equal(rounds.rewards[here], day.clicks[visits])
        users = np.repeat(day.users[visits][:, None], WORLD.arms, axis=1)
        np.testing.assert_array_equal(rounds.contexts[here][:, :, :20], users)
        articles = np.broadcast_to(day.features, (*users.shape[:2], 8))
        np.testing.assert_array_equal(rounds.contexts[here][:, :, 20:], articles)


def test_a_day_derives_from_its_seed_and_number_alone(week):
    again = WORLD.day(seed=3, day=2)
    for name in ("users", "names", "features", "means", "clicks", "hours", "arrivals"):
        np.testing.assert_array_equal(getattr(again, name), getattr(week[2], name))
    assert not np.array_equal(WORLD.day(seed=4, day=2).clicks, week[2].clicks)


def test_articles_come_and_go_and_keep_names_and_features(week):
    assert [len(day.names) for day in week] == [50] * 3
    for before, after in pairwise(week):
        assert before.names[8:] == after.names[:42]
        np.testing.assert_array_equal(before.features[8:], after.features[:42])
    world = Recommender(daily=2)
    names = {name for day in range(14) for name in world.day(0, day).names}
    assert len(names) == 154


def test_users_and_articles_are_standard_normal():
    users = np.concatenate([WORLD.day(seed, 0).users for seed in range(3)])
    articles = np.concatenate([Recommender(arms=300, daily=1).day(seed, 0).features for seed in range(3)])
    for numbers in (users, articles):
        size = 5 / np.sqrt(len(numbers))
        assert abs(numbers.mean(axis=0)).max() < size
        assert abs(numbers.std(axis=0) - 1).max() < size


def test_clicks_have_their_chances(week):
    for day in week:
        assert set(np.unique(day.clicks)) == {0.0, 1.0}
        assert day.clicks.mean() == pytest.approx(day.means.mean(), abs=4 * np.sqrt(0.06 / 2000))
    assert 0.04 < np.mean([day.means.mean() for day in week]) < 0.08


def test_who_likes_what_is_worth_more_than_what_all_like(week):
    """Over uniform: the best article of the day, the best for each user, and the parts of the log odds."""
    means = np.concatenate([day.means for day in week])
    popular = np.mean([day.means.mean(axis=0).max() / day.means.mean() for day in week])
    personal = means.max(axis=1).mean() / means.mean()
    assert 1.1 < popular < 1.8
    assert personal > 1.4 * popular
    odds = np.log(means / (1 - means))
    own = np.concatenate([np.log(day.means / (1 - day.means)).mean(axis=0) for day in week])
    apart = odds - np.repeat(own.reshape(3, -1), 2000, axis=0)
    assert np.std(apart) == pytest.approx(WORLD.taste, rel=0.25)
    assert np.std(own) == pytest.approx(np.hypot(WORLD.popularity, WORLD.quality), rel=0.35)


def test_the_interaction_has_the_rank_asked_for():
    tastes = Recommender(rank=2).secret(np.random.default_rng(0)).tastes
    values = np.linalg.svd(tastes, compute_uv=False)
    assert np.linalg.norm(tastes) == pytest.approx(1.0)
    assert values[1] > 1e-3
    assert values[2:].max() < 1e-12


def test_rewards_are_hours_late_and_a_tenth_never(week):
    late = np.concatenate([day.arrivals - day.hours for day in week])
    assert np.isnan(late).mean() == pytest.approx(0.1, abs=0.02)
    came = late[~np.isnan(late)]
    assert (came > 0).all()
    assert came.mean() == pytest.approx(4.0, rel=0.05)
    hours = np.concatenate([day.hours for day in week])
    np.testing.assert_allclose(np.diff(hours), 24 / 2000)
    assert hours[-1] < 72


def test_the_scale_of_its_contexts_is_standard_and_crosses():
    contexts = WORLD.rounds(seed=0, count=200).contexts.reshape(-1, WORLD.dim)
    scaled = WORLD.context_scale(contexts)
    assert scaled.shape[1] == 20 + 8 + 160 + 1
    assert np.square(scaled[:, :20]).sum(axis=1).mean() == pytest.approx(1.0, rel=0.05)
    assert np.square(scaled[:, 28:-1]).sum(axis=1).mean() == pytest.approx(1.0, rel=0.3)


@pytest.mark.parametrize(
    "bad",
    [{"arms": 0}, {"daily": 0}, {"new": -1}, {"lost": 1.1}, {"taste": -1.0}, {"delay": 0.0}, {"rank": 0}],
)
def test_worlds_that_cannot_be_are_refused(bad):
    with pytest.raises(InvalidInput, match=next(iter(bad))):
        Recommender(**bad)


def test_it_describes_itself():
    described = json.loads(json.dumps(WORLD.describe()))
    assert described["world"] == "Recommender"
    assert described["daily"] == 2000


def test_a_linear_model_of_products_learns_tastes():
    world = Recommender(daily=800, taste=1.2)
    policy = LinUCB(world.dim, context_scale=world.context_scale, beta=0.1, exploration=Mixture(0.1), seed=0)
    for first in (1, 801):
        rounds = world.rounds(seed=1, count=800, first=first)
        decision = policy.select(rounds.contexts)
        policy.observe(decision, rounds.paid(decision.arm))
        policy.update()
    assert rounds.means[np.arange(800), decision.arm].mean() > 1.3 * rounds.means.mean()
