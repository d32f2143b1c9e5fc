"""Alarms: silent while nothing changes, raised once, and over when all is as before."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from rarely import DriftWarning, LinTS, LinUCB, OnDemand, Policy, Uniform, Window, load
from rarely._core.policies.monitor import FEWEST, LEVEL, Expectations, Moments, _bound
from rarely.study import Request, Study

THETA = np.array([0.6, -0.8])
BATCH = 50


def play(policy: Policy, batches: int, seed: int = 0, *, theta=THETA, lower=0.0, lost=0.0, shift=0.0):
    """Play batches of rounds with an update each, and return the warnings."""
    generator = np.random.default_rng(seed)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(batches):
            x = generator.normal(size=(BATCH, 3, 2))
            x[:, 0] += shift * theta
            decision = policy.select(x)
            means = x[np.arange(BATCH), decision.arm] @ theta - lower
            rewards = means + generator.normal(0, 0.3, BATCH)
            kept = generator.random(BATCH) >= lost
            policy.observe(rounds=decision.rounds[kept], rewards=rewards[kept])
            policy.update()
    return [str(each.message) for each in said if each.category is DriftWarning]


def kinds(policy: Policy) -> list[str]:
    """The alarms on record, in order."""
    return [event.detail.partition(":")[0] for event in policy.events if event.kind == "alarm"]


@pytest.mark.parametrize("make", [LinUCB, LinTS, Uniform])
def test_an_unchanged_world_raises_no_alarm(make):
    for seed in range(3):
        policy = make(2, OnDemand(), seed=seed)
        assert play(policy, 12, seed) == [] == kinds(policy)
        assert all(record.alarms == () for record in policy.updates)


@pytest.mark.parametrize("make", [LinUCB, LinTS])
def test_a_flip_of_the_truth_is_announced_once_and_stays_on_record(make):
    policy = make(2, OnDemand(), seed=1)
    play(policy, 8)
    said = play(policy, 3, 1, theta=-THETA)
    assert sorted(kinds(policy)) == ["coverage", "rewards"]
    assert len(said) == 2
    assert all("forgetting=Window" in text for text in said)
    assert all(set(record.alarms) == {"coverage", "rewards"} for record in policy.updates[-3:])


def test_an_alarm_is_over_once_the_predictions_are_good_again_and_may_be_raised_anew():
    policy = LinUCB(2, OnDemand(), seed=1, forgetting=Window(2 * BATCH))
    play(policy, 8)
    play(policy, 5, 1, theta=-THETA)
    assert policy.updates[-1].alarms == ()
    assert "rewards" in kinds(policy)
    before = len(kinds(policy))
    play(policy, 1, 2)
    assert len(kinds(policy)) > before


def test_rewards_of_a_lower_level_are_noticed_without_a_model():
    policy = Uniform(2, OnDemand(), seed=0)
    play(policy, 8)
    (said,) = play(policy, 1, 1, lower=1.5)
    assert said.startswith("rewards: the last 50 rewards are ")
    assert kinds(policy) == ["rewards"]


def test_rewards_that_vary_more_are_no_alarm_while_predictions_are_as_good():
    """Clicks of 5 % become clicks of 50 %, foreseen as such: e² is five times as large, and q is 1 as before."""
    for seed in range(20):
        generator, known = np.random.default_rng(seed), Expectations()
        for chance in (0.05, 0.05, 0.05, 0.5):
            clicks = (generator.random(100) < chance).astype(float)
            found, known = known._check_rewards(clicks, clicks - chance, 0.0, predicts=True)
        assert found == {"coverage": "", "rewards": ""}


@pytest.mark.parametrize("scale", [1e150, 1e-200, 0.0])
def test_rewards_whose_squares_are_no_numbers_are_not_compared(scale):
    generator, policy = np.random.default_rng(0), Uniform(2, OnDemand(), seed=0)
    for _ in range(6):
        decision = policy.select(generator.normal(size=(30, 3, 2)))
        policy.observe(decision, scale * generator.normal(size=30))
        policy.update()
    assert kinds(policy) == []


def test_rounding_is_no_alarm():
    generator, known = np.random.default_rng(0), Expectations()
    for size in (1e-16, 1e-16, 1e-12):
        errors = size * (1 + 0.1 * generator.random(50))
        found, known = known._check_rewards(1 + generator.random(50), errors, 0.0, predicts=True)
        assert not any(found.values())


def test_better_predictions_are_no_alarm():
    """A version from a poor log learns: its errors shrink by a factor of ten, and nothing is said."""
    generator = np.random.default_rng(0)
    policy = LinUCB.from_log(generator.normal(size=(30, 2)), 5 * generator.normal(size=30), schedule=OnDemand())
    assert play(policy, 8) == []


def test_lost_rewards_are_noticed_one_batch_later():
    policy = LinUCB(2, OnDemand(), seed=0)
    play(policy, 6, lost=0.02)
    assert play(policy, 1, 1, lost=0.5) == []
    (said,) = play(policy, 1, 2, lost=0.5)
    assert said.startswith("missing: ")
    assert "rounds 301 to 350 have no reward" in said
    play(policy, 2, 3, lost=0.0)
    assert policy.updates[-1].alarms == ()


def test_arms_of_one_frozen_version_that_change_are_noticed():
    policy = LinTS(2, OnDemand(), seed=0)
    play(policy, 4)
    generator = np.random.default_rng(1)
    x = generator.normal(size=(2 * BATCH, 3, 2))
    x[BATCH:, 0] += 3 * THETA
    decision = policy.select(x)
    policy.observe(decision, x[np.arange(2 * BATCH), decision.arm] @ THETA + generator.normal(0, 0.3, 2 * BATCH))
    with pytest.warns(DriftWarning, match="arms: version 4 chose arm 0"):
        policy.update()


def test_short_batches_are_compared_once_they_are_long_enough():
    policy = Uniform(1, OnDemand(), seed=0)
    generator = np.random.default_rng(0)
    for round in range(6 * FEWEST):
        lower = 5.0 if round >= 4 * FEWEST else 0.0
        policy.observe(policy.select([[1.0], [2.0]]), generator.normal() - lower)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            policy.update()
    first = next(event for event in policy.events if event.kind == "alarm")
    assert 4 * FEWEST < first.round <= 5 * FEWEST + 1


def test_expectations_are_saved(tmp_path):
    policy, whole = (LinUCB(2, OnDemand(), seed=1) for _ in range(2))
    play(policy, 8)
    play(whole, 8)
    policy.save(tmp_path / "p.rarely")
    policy = load(tmp_path / "p.rarely")
    assert policy.fingerprint() == whole.fingerprint()
    play(policy, 2, 1, theta=-THETA)
    play(whole, 2, 1, theta=-THETA)
    policy.save(tmp_path / "p.rarely")
    assert load(tmp_path / "p.rarely").events == whole.events
    assert whole.updates[-1].alarms


def test_a_study_counts_alarms_and_its_dashboard_names_them():
    generator = np.random.default_rng(0)
    study = Study.create("memory://alarms", "level", policy=Uniform(1, OnDemand(), seed=0), arms=["a", "b"])
    for day in range(6):
        for answer in study.ask_many([Request([[1.0], [2.0]])] * 25):
            study.tell(answer.id, generator.normal() - 9 * (day == 5))
        if day == 5:
            with pytest.warns(DriftWarning, match="rewards: "):
                study.update()
        else:
            study.update()
    status = study.status()
    assert status.raised == ("rewards",)
    assert status.alarms == {"rewards": 1}


def test_moments_are_those_of_all_values_with_old_ones_at_half_weight():
    one, other = np.arange(5.0), np.array([7.0, 1.0, 4.0])
    found = Moments.of(one).merge(Moments.of(other))
    values, weights = np.concatenate([one, other]), np.array([0.5] * 5 + [1.0] * 3)
    mean = np.average(values, weights=weights)
    within = (2.5 * one.var(ddof=1) + 3 * other.var(ddof=1)) / 5.5
    between = (2.5 * (one.mean() - mean) ** 2 + 3 * (other.mean() - mean) ** 2) / 5.5
    np.testing.assert_allclose([found.weight, found.mean, found.variance], [5.5, mean, within + between])


def test_the_bound_is_student_s_quantile():
    """Beyond it lies the level of one test, by quadrature of Student's density with 98 degrees of freedom."""
    bound = _bound(Moments(50, 0.0, 1.0), Moments(50, 0.0, 1.0)) / math.sqrt(2 / 50)
    x = np.linspace(bound, 60, 400_001)
    density = math.gamma(49.5) / math.sqrt(98 * math.pi) / math.gamma(49) * (1 + x * x / 98) ** -49.5
    assert 2 * float(density.sum() * (x[1] - x[0])) == pytest.approx(LEVEL, rel=0.01)
