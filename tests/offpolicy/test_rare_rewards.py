"""Few clicks: intervals hold the truth, stay in range, and say what they rest on.

P(click) = 1/(1 + exp(−b − 0.8·x_0 + 0.4·x_1)) with x ~ N(0, I), three arms.
"""

import functools

import numpy as np
import pytest

from decision_logs import made, target_for
from effort import MANY
from rarely import FixedGrid, InvalidInput, LinUCB, Mixture
from rarely.offpolicy import DecisionLog, difference, dr, ips, snips

LOGS, ARMS = 200 if MANY else 80, 3
SLOPES = np.array([0.8, -0.4])
INTERCEPTS = {0.01: -5.02, 0.03: -3.87, 0.10: -2.53}
"""b for about so many clicks of any arm."""
ESTIMATORS = {"ips": ips, "snips": snips, "dr": dr}
LEAST = 0.92 if MANY else 0.9
"""Of so many intervals at 95 %, this share or more hold the truth with probability 0.96, were they exact."""


def clicking(contexts, rate):
    return 1 / (1 + np.exp(-INTERCEPTS[rate] - contexts @ SLOPES))


def targets(contexts):
    """The largest x_0; the smallest x_1; and the largest x_0 but where the first arm's x_1 is large."""
    best, other = contexts[..., 0].argmax(axis=1), contexts[..., 1].argmin(axis=1)
    near = np.where(contexts[:, 0, 1] > 1.28, contexts[..., 0].argmin(axis=1), best)
    return np.eye(ARMS)[best], np.eye(ARMS)[other], np.eye(ARMS)[near]


@functools.cache
def truths(rate):
    contexts = np.random.default_rng(0).normal(size=(400_000, ARMS, 2))
    return [float((target * clicking(contexts, rate)).sum(axis=1).mean()) for target in targets(contexts)]


def uniform_log(contexts, outcomes, rng):
    arms, each = rng.integers(ARMS, size=len(contexts)), np.arange(len(contexts))
    return DecisionLog.from_arrays(
        contexts, arms, outcomes[each, arms], probabilities=np.full(outcomes.shape, 1 / ARMS)
    )


def learning_log(contexts, outcomes, rng):
    schedule, settings = FixedGrid(len(contexts), 4), {"exploration": Mixture(0.3), "within_batch": "frozen"}
    log, policy = DecisionLog(), LinUCB(2, schedule, **settings, seed=rng)
    while policy.round < len(contexts):
        start = policy.round
        decision = policy.select(contexts[start:], until_due=True)
        rewards = outcomes[np.arange(start, policy.round), decision.arm]
        log.record(contexts[start : policy.round], decision)
        for each in (log, policy):
            each.observe(decision, rewards)
        if policy.due:
            policy.update()
    return log


@functools.cache
def logs(maker, rate, rounds):
    found = []
    for seed in range(LOGS):
        rng = np.random.default_rng([seed, rounds])
        contexts = rng.normal(size=(rounds, ARMS, 2))
        outcomes = (rng.random((rounds, ARMS)) < clicking(contexts, rate)).astype(float)
        found.append(maker(contexts, outcomes, rng))
    return found


@functools.cache
def estimates(maker, rate, rounds, name):
    return [ESTIMATORS[name](log, targets(log.contexts)[0]) for log in logs(maker, rate, rounds)]


CELLS = [(uniform_log, 0.01, 200), (uniform_log, 0.03, 500), (uniform_log, 0.10, 200), (learning_log, 0.03, 300)]


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize(("maker", "rate", "rounds"), CELLS)
def test_intervals_of_few_clicks_hold_the_truth_and_stay_in_range(maker, rate, rounds, name):
    found, truth = estimates(maker, rate, rounds, name), truths(rate)[0]
    assert np.mean([e.low <= truth <= e.high for e in found]) >= LEAST
    assert all(0 <= e.low <= e.high <= 1 for e in found)
    assert all(e.low < e.high for e in found)
    assert {e.reward_range for e in found} == {(0.0, 1.0)}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_normal_intervals_of_few_clicks_would_not(name):
    found, truth = estimates(uniform_log, 0.01, 200, name), truths(0.01)[0]
    assert np.mean([abs(e.value - truth) <= 1.96 * e.error for e in found]) < 0.8


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize(("maker", "rate", "rounds"), CELLS)
def test_ordinary_click_logs_have_no_note_but_where_no_click_counts(maker, rate, rounds, name):
    """Their intervals hold the truth: a note that most logs had would say nothing."""
    for log, found in zip(logs(maker, rate, rounds), estimates(maker, rate, rounds, name), strict=True):
        skipped = 1 if name == "dr" else 0
        matching = log.rewards[skipped:][targets(log.contexts)[0][np.arange(rounds), log.arms][skipped:] > 0]
        assert ("the range of rewards alone" in found.note) == (not matching.any())
        assert not found.note or not matching.any() or not 0 <= found.value <= 1


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize(("maker", "rate", "rounds"), CELLS[:2])
def test_few_rewards_other_than_0_are_noted_where_no_range_is_known(maker, rate, rounds, name):
    log = max(logs(maker, rate, rounds)[:20], key=lambda log: log.rewards.sum())
    amounts = DecisionLog.from_arrays(log.contexts, log.arms, 3 * log.rewards, probabilities=log.probabilities)
    note = ESTIMATORS[name](amounts, targets(log.contexts)[0]).note
    assert "rewards that count" in note
    assert "may be too short" in note


@functools.cache
def blind_logs(known):
    """Nine of ten arms have a probability of 0.002, and the target wants one of them in a tenth of the rounds."""
    found, arms, rounds = [], 10, 1000
    many = np.random.default_rng(0).normal(size=(100_000, arms, 2))
    truth = float(clicking(many, 0.10)[np.arange(len(many)), near(many)].mean())
    for seed in range(60):
        rng = np.random.default_rng(seed)
        contexts = rng.normal(size=(rounds, arms, 2))
        chances = 0.002 + 0.98 * np.eye(arms)[contexts[..., 1].argmin(axis=1)]
        chosen = (rng.random(rounds)[:, None] > np.cumsum(chances, axis=1)[:, :-1]).sum(axis=1)
        each = np.arange(rounds)
        clicks = (rng.random(rounds) < clicking(contexts, 0.10)[each, chosen]).astype(float)
        given = {"probabilities": chances} if known else {"propensities": chances[each, chosen]}
        found.append(DecisionLog.from_arrays(contexts, chosen, clicks, **given))
    return found, truth


def near(contexts):
    wanted = contexts[:, 0, 0] > 1.28
    return np.where(wanted, contexts[..., 0].argmax(axis=1), contexts[..., 1].argmin(axis=1))


@pytest.mark.parametrize("known", [True, False])
def test_logs_that_hardly_chose_what_the_target_wants_are_noted(known):
    """Few of their intervals hold the truth, and the mean weight shows it, whatever else the log knows."""
    found, truth = blind_logs(known)
    estimates = [ips(log, near(log.contexts)) for log in found]
    held = np.array([estimate.low <= truth <= estimate.high for estimate in estimates])
    noted = np.array(["next to no chance" in estimate.note for estimate in estimates])
    assert held.mean() < 0.8
    assert noted[~held].mean() > 0.9
    assert held[noted].mean() < 0.6


def test_probabilities_that_are_too_small_are_noted():
    rng = np.random.default_rng(0)
    log = DecisionLog.from_arrays(
        np.ones((400, 2, 1)), rng.integers(2, size=400), np.ones(400), propensities=[0.3] * 400
    )
    assert "the probabilities on record are too small" in snips(log, [0] * 400).note


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_interval_is_hardly_wider_where_clicks_are_many(name):
    rng = np.random.default_rng(0)
    contexts = rng.normal(size=(4000, ARMS, 2))
    outcomes = (rng.random((4000, ARMS)) < clicking(contexts, 0.1)).astype(float)
    log = uniform_log(contexts, outcomes, rng)
    found = ESTIMATORS[name](log, targets(contexts)[0])
    assert found.high - found.low == pytest.approx(2 * 1.96 * found.error, rel=0.02)
    assert found.note == ""


def test_a_model_that_knows_better_keeps_its_narrow_interval():
    """Rewards that a model foresees leave little variance, though 0/1 rewards could have much."""
    rng = np.random.default_rng(0)
    label, each = rng.integers(ARMS, size=2000), np.arange(2000)
    contexts = np.eye(ARMS)[(np.arange(ARMS) + label[:, None]) % ARMS]
    outcomes = (np.arange(ARMS) == label[:, None]).astype(float)
    log = uniform_log(contexts, outcomes, rng)
    target = np.eye(ARMS)[np.where(rng.random(2000) < 0.8, label, (label + 1) % ARMS)]
    plain, modelled = snips(log, target), dr(log, target, model=outcomes)
    assert modelled.value == pytest.approx(0.8, abs=0.02)
    assert modelled.high - modelled.low < 0.6 * (plain.high - plain.low)
    assert modelled.high - modelled.low == pytest.approx(2 * 1.96 * modelled.error, rel=0.02)
    assert outcomes[each, log.arms].tolist() == log.rewards.tolist()


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize(("rate", "rounds", "other"), [(0.03, 500, 2), (0.10, 200, 1)])
def test_differences_of_few_clicks_hold_the_truth(name, other, rate, rounds):
    truth = truths(rate)[0] - truths(rate)[other]
    found = []
    for log in logs(uniform_log, rate, rounds):
        both = targets(log.contexts)
        found.append(difference(log, both[0], both[other], estimator=name))
    assert np.mean([e.low <= truth <= e.high for e in found]) >= LEAST
    assert all(-1 <= e.low <= e.value <= e.high <= 1 for e in found)
    if other == 2 and rate == 0.03:
        assert np.mean([abs(e.value - truth) <= 1.96 * e.error for e in found]) < 0.9


def test_all_rewards_0_are_taken_for_clicks_and_said_to_be():
    log = DecisionLog.from_arrays(np.ones((80, 2, 1)), [0, 1] * 40, np.zeros(80), propensities=[0.5] * 80)
    for estimate in (estimator(log, [0] * 80) for estimator in ESTIMATORS.values()):
        assert (estimate.value, estimate.low) == (0.0, 0.0)
        assert 0.03 < estimate.high < 0.15
        assert "40 rewards that count are 0" in estimate.note.replace("39", "40")
        assert "reward_range=(low, high)" in estimate.note
    wide = snips(log, [0] * 80, reward_range=(0, 100))
    assert wide.high == pytest.approx(100 * snips(log, [0] * 80).high)


def test_clicks_on_other_arms_alone_are_no_news_of_the_target():
    """dr's model makes something of them, and its error is small and wrong."""
    rng = np.random.default_rng(3)
    arms = rng.integers(2, size=300)
    clicks = np.where(arms == 1, rng.random(300) < 0.05, 0.0)
    log = DecisionLog.from_arrays(rng.normal(size=(300, 2, 1)), arms, clicks, propensities=[0.5] * 300)
    estimate = dr(log, [0] * 300)
    assert 0 < estimate.error < 0.01
    assert "rewards that count are 0" in estimate.note
    assert estimate.high > 0.015
    unknown = DecisionLog.from_arrays(log.contexts, arms, 3 * clicks, propensities=[0.5] * 300)
    assert "may be too short" in dr(unknown, [0] * 300).note


def test_ips_says_why_its_value_is_outside_the_range():
    log = DecisionLog.from_arrays(
        np.ones((60, 2, 1)), [0] * 40 + [1] * 20, [1.0] * 58 + [0.0] * 2, propensities=[0.5] * 60
    )
    estimate = ips(log, [0] * 60)
    assert estimate.value == pytest.approx(4 / 3)
    assert 0 < estimate.low < estimate.high == 1.0
    assert "outside the range of rewards, [0, 1]" in estimate.note
    assert "snips" in estimate.note
    assert "outside" not in snips(log, [0] * 60).note


def test_ips_of_rewards_below_0_is_normal_and_cut():
    rng = np.random.default_rng(0)
    rewards = np.where(rng.random(90) < 0.05, 1.0, -1.0)
    log = DecisionLog.from_arrays(np.ones((90, 2, 1)), [0, 1] * 45, rewards, propensities=[0.5] * 90)
    free, known = ips(log, [0] * 90), ips(log, [0] * 90, reward_range=(-1, 1))
    assert known.high == free.high
    assert free.low < -1.0 == known.low
    assert "may be too short" in known.note


@pytest.mark.parametrize("name", [*ESTIMATORS, "difference"])
def test_a_range_moves_and_stretches_with_the_rewards(name):
    """Rewards of 0 and 10 are those of 0 and 1 on another scale; for all but ips 5 and 6 are too."""
    log = logs(uniform_log, 0.10, 200)[0]
    one, other, _ = targets(log.contexts)

    def estimate(scale, shift):
        rewards = shift + scale * log.rewards
        moved = DecisionLog.from_arrays(log.contexts, log.arms, rewards, probabilities=log.probabilities)
        settings = {"reward_range": (shift, shift + scale)}
        if name == "difference":
            return difference(moved, one, other, **settings)
        return ESTIMATORS[name](moved, one, **settings)

    plain, stretched, moved = estimate(1.0, 0.0), estimate(10.0, 0.0), estimate(1.0, 5.0)
    ends = np.array([plain.low, plain.high, plain.value])
    assert [stretched.low, stretched.high, stretched.value] == pytest.approx(10 * ends)
    if name == "ips":
        assert moved.error > plain.error
    elif name == "snips":
        assert [moved.low, moved.high, moved.value] == pytest.approx(5 + ends)


def test_few_effective_rounds_are_noted_where_no_range_is_known():
    rng = np.random.default_rng(0)
    amounts, contexts, arms = rng.normal(size=90), rng.normal(size=(90, 2, 1)), [0, 1] * 45
    log = DecisionLog.from_arrays(contexts, arms, amounts, propensities=[0.5] * 90)
    twice = DecisionLog.from_arrays(
        np.tile(contexts, (2, 1, 1)), arms * 2, np.tile(amounts, 2), propensities=[0.5] * 180
    )
    for estimator in ESTIMATORS.values():
        assert "effective rounds" in estimator(log, [0] * 90).note
        assert (
            estimator(log, [0] * 90, reward_range=(-1000, 1000)).note == "" or estimator is ips
        )  # ips below 0 is normal
        assert estimator(twice, [0] * 180).note == ""


def test_a_range_is_checked_by_every_estimator():
    log = made(1, rounds=12, told=1.0)
    target = target_for(log, 0)
    for estimator in ESTIMATORS.values():
        with pytest.raises(InvalidInput, match="reward_range"):
            estimator(log, target, reward_range=(0, 1e-9))
    with pytest.raises(InvalidInput, match="reward_range"):
        difference(log, target, target, reward_range=(1, 0))


def heavy(seed, floor, n=1000):
    """Whether ips holds a truth of 0.5, and its note, of a log with a Dirichlet's probabilities of at least `floor`."""
    rng = np.random.default_rng(seed)
    chances = np.maximum(rng.dirichlet([0.3] * 3, n), floor)
    chances /= chances.sum(axis=1, keepdims=True)
    arms = (rng.random(n)[:, None] > np.cumsum(chances, axis=1)[:, :-1]).sum(axis=1)
    rewards = 0.5 + 0.3 * rng.normal(size=n)
    log = DecisionLog.from_arrays(rng.normal(size=(n, 3, 1)), arms, rewards, probabilities=chances)
    estimate = ips(log, np.tile([0.6, 0.3, 0.1], (n, 1)))
    return estimate.low <= 0.5 <= estimate.high, estimate.note, log


def test_intervals_of_ips_that_large_weights_may_make_too_short_are_noted():
    """Simulated: next to 60 % hold the truth where weights reach 6000; where they reach 60, those without a note do."""
    found = [heavy(seed, 1e-4)[:2] for seed in range(30)]
    assert np.mean([held for held, _ in found]) < 0.8
    assert all(note for _, note in found)
    assert "the interval of ips may be too short" in " ".join(note for _, note in found)
    mild = [heavy(seed, 1e-2)[:2] for seed in range(120)]
    assert np.mean([held for held, note in mild if not note]) > 0.92
    assert np.mean([held for held, note in mild if note]) < 0.8
    assert 0.02 < np.mean([bool(note) for _, note in mild]) < 0.25


def test_only_ips_has_a_note_on_the_spread_of_weights():
    log = next(log for held, note, log in map(heavy, range(60), [1e-4] * 60) if "of ips may be too short" in note)
    target = np.tile([0.6, 0.3, 0.1], (len(log), 1))
    for estimator in (snips, dr):
        assert "may be too short" not in estimator(log, target).note
    uniform = np.full((len(log), 3), 1 / 3)
    noted = difference(log, target, uniform, estimator="ips").note
    assert "The weights of the target a spread" in noted
