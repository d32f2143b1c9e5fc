"""Each estimate is what a plain loop says, and what it must be where the answer is known."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from decision_logs import made, target_for
from rarely import Decision, InvalidInput, LinUCB, Uniform
from rarely.offpolicy import (
    DecisionLog,
    InvalidLog,
    InvalidTarget,
    NotIdentified,
    Ridge,
    bandit_feedback,
    difference,
    dr,
    ips,
    snips,
    write_log,
)
from rarely.offpolicy.estimates import stages
from rarely.offpolicy.sample import Sample

logs = st.builds(
    made,
    st.integers(0, 10**6),
    rounds=st.integers(3, 12),
    arms=st.integers(1, 4),
    dim=st.integers(1, 3),
    told=st.sampled_from([0.6, 1.0]),
)
seeds = st.integers(0, 10**6)


def oracle(log, target, q=None):
    """(value, error) of ips, of snips and of dr, one round after another."""
    rounds = []
    for place in np.argsort(log.rounds):
        if not math.isnan(log.rewards[place]):
            arm = log.arms[place]
            weight = target[place][arm] / log.probabilities[place][arm]
            model = [0.0] * len(target[place]) if q is None else q[place]
            direct = sum(t * m for t, m in zip(target[place], model, strict=True) if t > 0)
            rounds.append((weight, log.rewards[place], direct, model[arm]))
    n, total = len(rounds), sum(w for w, *_ in rounds)

    def error(influence):
        return math.sqrt(sum(x * x for x in influence) / (n * (n - 1)))

    plain = sum(w * r for w, r, *_ in rounds) / n
    normalised = sum(w * r for w, r, *_ in rounds) / total
    doubly = sum(d + w * (r - m) for w, r, d, m in rounds) / n
    return (
        (plain, error([w * r - plain for w, r, *_ in rounds])),
        (normalised, error([w * (r - normalised) / (total / n) for w, r, *_ in rounds])),
        (doubly, error([d + w * (r - m) - doubly for w, r, d, m in rounds])),
    )


@given(log=logs, seed=seeds)
def test_estimates_are_what_a_plain_loop_says(log, seed):
    assume(len(log.observed) > 1)
    target, q = target_for(log, seed), np.random.default_rng(seed).normal(size=log.present.shape)
    estimates = ips(log, target), snips(log, target), dr(log, target, model=q)
    for estimate, (value, error) in zip(estimates, oracle(log, target, q), strict=True):
        scale = 1e-9 * (1 + abs(value) + np.nanmax(np.abs(log.rewards)) * estimate.largest_weight)
        assert estimate.value == pytest.approx(value, rel=1e-9, abs=scale)
        assert estimate.error == pytest.approx(error, rel=1e-9, abs=scale)
        assert estimate.high - estimate.value == pytest.approx(1.959964 * error, rel=1e-6, abs=scale)
        assert estimate.value - estimate.low == pytest.approx(1.959964 * error, rel=1e-6, abs=scale)
        assert (estimate.rounds, estimate.level) == (len(log.observed), 0.95)


@given(log=logs, seed=seeds)
def test_a_fitted_model_sees_earlier_rounds_alone(log, seed):
    assume(len(log.observed) > 2)
    target, kept, seen = target_for(log, seed), log.observed, []

    def fit(contexts, rewards):
        seen.append(len(rewards))
        np.testing.assert_array_equal(rewards, log.rewards[kept[: len(rewards)]])
        np.testing.assert_array_equal(contexts, log.contexts[kept, log.arms[kept]][: len(rewards)])
        return lambda rows: rewards.mean() + rows.sum(axis=1)

    estimate = dr(log, target, model=fit)
    assert seen == [start for start, _ in stages(len(kept))]
    q = np.zeros(log.present.shape)
    for start, end in stages(len(kept)):
        for place in kept[start:end]:
            q[place] = log.rewards[kept[:start]].mean() + log.contexts[place].sum(axis=1)
    later = DecisionLog()
    order = kept[1:]
    blank = np.where(log.present, 0.0, np.nan)[order]
    facts = (log.arms[order], blank, blank, log.versions[order], log.rounds[order], log.probabilities[order])
    later.record(log.contexts[order], Decision(*facts))
    later.observe(rounds=log.rounds[order], rewards=log.rewards[order])
    same = dr(later, target[order], model=q[order])
    assert estimate.value == pytest.approx(same.value, rel=1e-9, abs=1e-9)
    assert estimate.error == pytest.approx(same.error, rel=1e-6, abs=1e-9)
    assert estimate.rounds == len(kept) - 1


@given(log=logs)
def test_the_logging_policy_has_earned_the_mean_reward(log):
    assume(len(log.observed) > 1)
    mean = log.rewards[log.observed].mean()
    for estimate in (ips(log, log.probabilities), snips(log, log.probabilities)):
        assert estimate.value == mean
        assert estimate.largest_weight == 1.0
        assert estimate.effective_rounds == pytest.approx(estimate.rounds)
        assert estimate.error == pytest.approx(np.std(log.rewards[log.observed], ddof=1) / math.sqrt(estimate.rounds))


@given(log=logs, seed=seeds)
def test_without_a_model_doubly_robust_is_inverse_propensity(log, seed):
    assume(len(log.observed) > 0)
    target = target_for(log, seed)
    assert dr(log, target, model=np.zeros(log.present.shape)) == ips(log, target)


@given(seed=seeds)
def test_a_perfect_model_leaves_nothing_to_correct(seed):
    log = made(seed, rounds=12, told=0.0)
    q = np.where(log.present, np.nansum(log.contexts, axis=2), np.nan)
    log.observe(rounds=log.rounds, rewards=q[np.arange(12), log.arms])
    target = target_for(log, seed)
    direct = (target * np.nan_to_num(q)).sum(axis=1)
    estimate = dr(log, target, model=q)
    assert estimate.value == pytest.approx(direct.mean(), rel=1e-12, abs=1e-12)
    assert estimate.error == pytest.approx(direct.std(ddof=1) / math.sqrt(12), rel=1e-9, abs=1e-12)


DOUBLE = {"ips": 0, "snips": 1, "dr": 2}


@given(log=logs, seed=seeds, name=st.sampled_from(sorted(DOUBLE)))
def test_a_difference_is_what_two_plain_loops_say_round_by_round(log, seed, name):
    assume(len(log.observed) > 1)
    a, b, q = (
        target_for(log, seed),
        target_for(log, seed + 1),
        np.random.default_rng(seed).normal(size=log.present.shape),
    )
    found = difference(log, a, b, estimator=name, model=q if name == "dr" else None)
    kept = log.observed
    each = np.arange(len(kept))
    arms, rewards = log.arms[kept], log.rewards[kept]
    values, influences, weights = [], [], []
    for target in (a, b):
        w = target[kept][each, arms] / log.probabilities[kept][each, arms]
        value = oracle(log, target, q)[DOUBLE[name]][0]
        direct = np.where(target[kept] > 0, target[kept] * q[kept], 0.0).sum(axis=1)
        terms = {
            "ips": w * rewards - value,
            "snips": w * (rewards - value) / w.mean(),
            "dr": direct + w * (rewards - q[kept][each, arms]) - value,
        }
        values.append(value)
        influences.append(terms[name])
        weights.append(w / w.mean() if name == "snips" else w)
    apart, spread = values[0] - values[1], influences[0] - influences[1]
    error = math.sqrt((spread**2).sum() / (len(kept) * (len(kept) - 1)))
    scale = 1e-9 * (1 + np.abs(rewards).max() * np.max(weights))
    assert found.value == pytest.approx(apart, rel=1e-9, abs=scale)
    assert found.error == pytest.approx(error, rel=1e-6, abs=scale)
    assert found.high - found.value == pytest.approx(1.959964 * error, rel=1e-6, abs=scale)
    assert found.largest_weight == pytest.approx(np.abs(weights[0] - weights[1]).max())
    back = difference(log, b, a, estimator=name, model=q if name == "dr" else None)
    assert [-back.high, -back.low, -back.value] == pytest.approx([found.low, found.high, found.value], abs=scale)


@given(log=logs, seed=seeds, name=st.sampled_from(sorted(DOUBLE)), clicks=st.booleans())
def test_a_target_does_not_differ_from_itself(log, seed, name, clicks):
    assume(len(log.observed) > 2)
    if clicks:
        log = DecisionLog.from_arrays(
            np.nan_to_num(log.contexts),
            log.arms,
            (log.rewards > 0) * 1.0,
            probabilities=log.probabilities,
            mask=log.present,
        )
    target = target_for(log, seed)
    found = difference(log, target, target, estimator=name)
    assert (found.value, found.error, found.low, found.high) == (0.0, 0.0, 0.0, 0.0)
    assert found.effective_rounds == 0.0
    assert "effective rounds" not in found.note


def test_a_difference_is_surer_than_its_parts():
    """Two targets that differ in one round of ten; most of the noise is common to both."""
    rng = np.random.default_rng(0)
    contexts, policy = rng.normal(size=(1000, 2, 1)), Uniform(1, seed=0)
    decision, log = policy.select(contexts), DecisionLog()
    log.record(contexts, decision)
    log.observe(decision, 3.0 * decision.arm + 5 * rng.normal(size=1000))
    always, mostly = np.ones(1000, int), (np.arange(1000) % 10 > 0).astype(int)
    found = difference(log, always, mostly, estimator="snips")
    parts = snips(log, always), snips(log, mostly)
    assert found.value == pytest.approx(parts[0].value - parts[1].value)
    assert found.error < 0.5 * math.hypot(parts[0].error, parts[1].error)
    assert found.low <= 0.3 <= found.high
    assert 80 < found.effective_rounds < 130


def test_the_model_of_a_difference_is_fitted_once():
    log, fits = made(1, rounds=12, told=1.0), []

    def fit(contexts, rewards):
        fits.append(len(rewards))
        return lambda rows: np.full(len(rows), rewards.mean())

    found = difference(log, target_for(log, 0), target_for(log, 1), model=fit)
    assert fits == [start for start, _ in stages(12)]
    apart = dr(log, target_for(log, 0), model=fit).value - dr(log, target_for(log, 1), model=fit).value
    assert found.value == pytest.approx(apart)
    assert found.rounds == 11


def test_what_cannot_be_a_difference_is_refused():
    log = made(1, rounds=12, told=1.0)
    target = target_for(log, 0)
    with pytest.raises(InvalidInput, match="estimator must be one of 'ips', 'snips', 'dr'"):
        difference(log, target, target, estimator="dm")
    with pytest.raises(InvalidInput, match="only dr has one"):
        difference(log, target, target, estimator="ips", model=Ridge())
    with pytest.raises(InvalidInput, match="level must be"):
        difference(log, target, target, level=95)
    with pytest.raises(InvalidTarget, match="must be a Policy"):
        difference(log, target, "other")


def test_notes_of_a_difference_name_the_target():
    n = 600
    rare = np.tile([1 - 2e-6, 1e-6, 1e-6], (n, 1))
    rewards = np.random.default_rng(0).normal(size=n)
    log = DecisionLog.from_arrays(np.ones((n, 3, 1)), np.zeros(n, int), rewards, probabilities=rare)
    note = difference(log, rare, np.full((n, 3), 1 / 3), estimator="ips").note
    assert "The weights of the target b average" in note
    assert "target a" not in note


def test_shifting_rewards_shifts_snips_and_not_its_error():
    log, other = made(1, rounds=12, told=1.0), made(1, rounds=12, told=0.0)
    other.observe(rounds=log.rounds, rewards=log.rewards + 1000.0)
    target = target_for(log, 2)
    one, two = snips(log, target), snips(other, target)
    assert two.value == pytest.approx(one.value + 1000)
    assert two.error == pytest.approx(one.error)


def test_probabilities_arms_and_policies_are_one_target():
    log = made(1, rounds=12, told=1.0)
    arms = log.probabilities.argmax(axis=1)
    assert ips(log, arms) == ips(log, np.eye(3)[arms])
    alike = log.present / log.present.sum(axis=1, keepdims=True)
    assert ips(log, Uniform(2)) == ips(log, alike)
    greedy = LinUCB(2)
    chances = greedy.probabilities(log.contexts, mask=log.present)
    assert snips(log, greedy) == snips(log, chances)


@pytest.mark.parametrize("estimator", [ips, snips, dr])
def test_a_target_outside_the_log_is_not_identified(estimator):
    greedy, log = LinUCB(1), DecisionLog()
    contexts = [[[1.0], [2.0]], [[1.0], [2.0]]]
    decision = greedy.select(contexts)
    log.record(contexts, decision)
    log.observe(decision, [1.0, 2.0])
    assert decision.arm.tolist() == [1, 1]
    with pytest.raises(NotIdentified, match=r"round 2 the target chooses arm 0 with probability 0\.25"):
        estimator(log, [[0.0, 1.0], [0.25, 0.75]])


@pytest.mark.parametrize("estimator", [ips, snips, dr])
def test_a_target_that_the_log_never_met_is_not_estimated(estimator):
    log = made(1, rounds=6, told=1.0)
    only = np.ones((6, 2)) / 2
    other = DecisionLog()
    blank = np.zeros((6, 2))
    other.record(np.ones((6, 2, 1)), Decision(np.zeros(6, int), blank, blank, log.versions, log.rounds, only))
    other.observe(rounds=log.rounds, rewards=log.rewards)
    with pytest.raises(NotIdentified, match="agree with the log at least once"):
        estimator(other, np.ones(6, int))


def test_a_probability_that_is_next_to_nothing_is_no_reason_to_refuse():
    """As of Thompson sampling, whose chances are small beyond counting and not 0."""
    contexts, log = np.ones((40, 2, 1)), DecisionLog()
    decision = LinUCB(1).select(contexts)
    log.record(contexts, decision)
    log.observe(decision, np.arange(40.0))
    target = np.tile([1.0 - 1e-15, 1e-15], (40, 1))
    assert ips(log, target).value == pytest.approx(np.arange(40.0).mean())
    with pytest.raises(NotIdentified):
        ips(log, np.tile([1.0 - 1e-9, 1e-9], (40, 1)))


def test_missing_rewards_and_few_effective_rounds_are_said_aloud():
    log = made(5, rounds=12, told=0.6)
    note = ips(log, target_for(log, 0)).note
    assert f"{log.missing} of 12 rounds have no reward" in note
    assert "effective rounds" in note
    policy, long = Uniform(1, seed=0), DecisionLog()
    contexts = np.ones((60, 2, 1))
    decision = policy.select(contexts)
    long.record(contexts, decision)
    long.observe(decision, np.full(60, 3.0))
    assert "All 60 rewards that count are 3: the interval has no width" in ips(long, policy).note
    varied = DecisionLog()
    varied.record(contexts, decision)
    varied.observe(decision, np.arange(60.0))
    assert ips(varied, policy).note == ""


def test_effective_rounds_and_largest_weight_are_the_weights_own():
    log = made(7, rounds=12, told=1.0)
    target = target_for(log, 1)
    w = (target / np.where(log.probabilities > 0, log.probabilities, 1))[np.arange(12), log.arms]
    estimate = snips(log, target)
    assert estimate.effective_rounds == pytest.approx(w.sum() ** 2 / (w**2).sum())
    assert estimate.largest_weight == pytest.approx(w.max())


def test_a_single_round_has_no_error():
    log = made(1, rounds=1, told=1.0)
    estimate = ips(log, log.probabilities)
    assert (estimate.error, estimate.low, estimate.high) == (math.inf, -math.inf, math.inf)
    for of, reward in ((ips, 3.0), (snips, 3.0), (ips, 1.0), (snips, 1.0)):
        single = DecisionLog.from_arrays(np.ones((1, 2, 1)), [1], [reward], propensities=[0.5])
        assert of(single, [1]).note.startswith("A single reward counts")
        assert "too short" not in of(single, [1]).note
    with pytest.raises(InvalidLog, match="two rounds"):
        dr(log, log.probabilities)


def test_a_wider_level_is_a_wider_interval():
    log = made(1, rounds=12, told=1.0)
    narrow, wide = (ips(log, log.probabilities, level=level) for level in (0.5, 0.99))
    assert wide.low < narrow.low < narrow.value < narrow.high < wide.high
    assert (narrow.high - narrow.value) / narrow.error == pytest.approx(0.6744898)


@pytest.mark.parametrize(
    "level", [0.0, 1.0, 95, "0.95", float("nan"), pytest.param(10**400, id="huge"), np.full(2, 0.5)]
)
def test_a_level_that_is_none_is_refused(level):
    log = made(1, rounds=4, told=1.0)
    with pytest.raises(InvalidInput, match="level must be"):
        ips(log, log.probabilities, level=level)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ([0, 1], "whole numbers of shape"),
        ([0.0] * 6, "whole numbers of shape"),
        ([[0.5, 0.5]] * 6, "whole numbers of shape"),
        ([[1.0, 0.0, 0.0], [1.0]], "must be a Policy"),
        ("greedy", "must be a Policy"),
        (np.ma.masked_array([0] * 6, mask=[1] + [0] * 5), "must not be masked"),
        (np.zeros(6, object), "must be a Policy"),
        (np.full((6, 3), 1 / 3 + 0j), "must be a Policy"),
        (np.ma.masked_less(np.full((6, 3), 1 / 3), 1), "must not be masked"),
        ([3] * 6, "arms must be 0 … 2"),
        ([-1] * 6, "arms must be 0 … 2"),
        ([[0.5, 0.5, 0.5]] * 6, "sum to 1"),
        ([[1.5, -0.5, 0.0]] * 6, "at least 0"),
        ([[np.nan, 0.5, 0.5]] * 6, "at least 0"),
    ],
)
def test_a_target_that_is_none_is_refused(target, message):
    policy, log = Uniform(1, seed=0), DecisionLog()
    contexts = np.ones((6, 3, 1))
    decision = policy.select(contexts)
    log.record(contexts, decision)
    log.observe(decision, np.ones(6))
    with pytest.raises(InvalidTarget, match=message):
        ips(log, target)


def test_a_target_chooses_no_arm_that_was_not_there():
    log = made(1, rounds=12, told=1.0)
    assert not log.present.all()
    with pytest.raises(InvalidTarget, match="0 where no arm is"):
        ips(log, np.full((12, 3), 1 / 3))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (np.zeros((3, 3)), "function that fits"),
        (np.full((12, 3), np.inf), "function that fits"),
        ("ridge", "function that fits"),
        ([[1.0], [1.0, 2.0]], "function that fits"),
        (np.zeros((12, 3), complex), "must be real numbers"),
        (np.full((12, 3), "0", object), "must be real numbers"),
        (np.ma.masked_less(np.zeros((12, 3)), 1), "must not be masked"),
        (lambda contexts, rewards: lambda rows: np.zeros(len(rows), complex), "must be real numbers"),
        (lambda contexts, rewards: lambda rows: np.ma.masked_less(np.zeros(len(rows)), 1), "must not be masked"),
        (lambda contexts, rewards: lambda rows: np.zeros(2), "one finite reward"),
        (lambda contexts: None, r"fit\(contexts, rewards\) that returns a function"),
        (lambda contexts, rewards: 3.0, r"fit\(contexts, rewards\) that returns a function"),
        (lambda contexts, rewards: lambda rows: np.full(len(rows), np.nan), "not all finite"),
    ],
)
def test_a_model_that_is_none_is_refused(model, message):
    log = made(1, rounds=12, told=1.0)
    with pytest.raises(InvalidInput, match=message):
        dr(log, log.probabilities, model=model)


@pytest.mark.parametrize("log", [None, np.ones((3, 2))], ids=["nothing", "an array"])
def test_what_is_no_log_is_refused(log, tmp_path):
    calls = [lambda each=each: each(log, [0]) for each in (ips, snips, dr)]
    calls += [lambda: difference(log, [0], [1]), lambda: write_log(log, tmp_path / "log"), lambda: bandit_feedback(log)]
    for call in calls:
        with pytest.raises(InvalidLog, match="log must be a DecisionLog; got"):
            call()


def test_a_log_without_rewards_says_so():
    with pytest.raises(InvalidLog, match="the log has 4 without"):
        ips(made(1, rounds=4, told=0.0), [0] * 4)
    with pytest.raises(InvalidLog):
        ips(DecisionLog(), [])


@given(
    seed=seeds,
    rows=st.integers(16, 40),
    dim=st.integers(1, 30),
    strength=st.floats(1e-3, 1e3),
    scale=st.sampled_from([1e-4, 1.0, 1e4]),
)
def test_ridge_is_least_squares_with_its_penalty(seed, rows, dim, strength, scale):
    """Against lstsq on rows with the penalty below them; and on any scale of contexts the predictions are the same."""
    rng = np.random.default_rng(seed)
    x, r, new = rng.normal(size=(rows, dim)), rng.normal(size=rows), rng.normal(size=(5, dim))
    penalty = strength * x.var(axis=0).mean()
    stacked = np.vstack([x - x.mean(axis=0), math.sqrt(penalty) * np.eye(dim)])
    theta = np.linalg.lstsq(stacked, np.concatenate([r - r.mean(), np.zeros(dim)]), rcond=None)[0]
    expected = r.mean() + (new - x.mean(axis=0)) @ theta
    predict = Ridge(strength)(scale * x + 3 * scale, r)
    np.testing.assert_allclose(predict(scale * new + 3 * scale), expected, rtol=1e-6, atol=1e-6)


def test_ridge_of_a_handful_or_of_still_contexts_is_the_mean():
    new = np.array([[100.0]])
    assert Ridge()(np.arange(15.0)[:, None], np.arange(15.0))(new).tolist() == [7.0]
    assert Ridge()(np.ones((20, 1)), np.arange(20.0))(new).tolist() == [9.5]
    with pytest.raises(InvalidInput, match="strength"):
        Ridge(0.0)


def test_a_log_that_hardly_explores_is_told_apart():
    """Every arm could have been chosen, and only one ever was: positive propensities are not enough."""
    n = 600
    rare = np.tile([1 - 2e-6, 1e-6, 1e-6], (n, 1))
    log = DecisionLog.from_arrays(np.ones((n, 3, 1)), np.zeros(n, int), np.ones(n), probabilities=rare)
    anyone = np.full((n, 3), 1 / 3)
    for estimator in (ips, snips):
        assert "next to no chance" in estimator(log, anyone).note
        assert "next to no chance" not in estimator(log, rare).note


def propensities_only(n=5000):
    """Three arms that pay 0, 1 and 5, drawn with 0.7, 0.25 and 0.05, of which the log knows the chosen arms' alone."""
    rng, chances, means = np.random.default_rng(0), np.array([0.7, 0.25, 0.05]), np.array([0.0, 1.0, 5.0])
    arms = rng.choice(3, n, p=chances)
    rewards = means[arms] + 0.1 * rng.normal(size=n)
    contexts = np.broadcast_to(np.eye(3), (n, 3, 3))
    part = DecisionLog.from_arrays(contexts, arms, rewards, propensities=chances[arms])
    return part, DecisionLog.from_arrays(contexts, arms, rewards, probabilities=np.tile(chances, (n, 1)))


def test_the_old_rule_is_estimated_without_probabilities_that_the_log_does_not_know():
    log, full = propensities_only()
    for estimator in (ips, snips, dr):
        estimate = estimator(log, log.probabilities)
        later = log.rewards[1:] if estimator is dr else log.rewards
        assert estimate.value == pytest.approx(later.mean())
        assert estimate.error == pytest.approx(later.std(ddof=1) / np.sqrt(len(later)))
        assert estimate.low < 0.5 < estimate.high
    best = np.full(len(log), 2)
    for estimator in ("ips", "snips", "dr"):
        gain = difference(log, best, log.probabilities, estimator=estimator)
        loss = difference(log, log.probabilities, best, estimator=estimator)
        assert gain.low < 4.5 < gain.high
        assert (loss.value, loss.error) == pytest.approx((-gain.value, gain.error))
        assert gain.error < 2 * difference(full, best, full.probabilities, estimator=estimator).error + 0.1


def test_the_spread_of_weights_is_that_of_many_draws_or_not_known():
    part, whole = propensities_only()
    target = np.tile([0.2, 0.3, 0.5], (len(whole), 1))
    rng, chances = np.random.default_rng(1), np.array([0.7, 0.25, 0.05])
    draws = (target[0] / chances)[rng.choice(3, 10**6, p=chances)]
    assert Sample.of(whole, target).variance == pytest.approx(draws.var(), rel=0.01)
    assert np.isnan(Sample.of(part, target).variance)
    assert Sample.of(whole, whole.probabilities).variance == pytest.approx(0.0)


def test_targets_whose_probabilities_are_known_need_no_others_of_the_log():
    log, full = propensities_only(400)
    for target in (np.full(400, 1), full.probabilities):
        for estimator in (ips, snips, dr):
            assert estimator(log, target) == estimator(full, target)
    with pytest.raises(NotIdentified, match="with 0"):  # what follows is known: an arm with 1 leaves 0
        ips(DecisionLog.from_arrays(np.ones((2, 3, 1)), [0, 1], [1.0, 2.0], propensities=[1.0, 1.0]), [0, 0])


def test_unknown_probabilities_are_a_target_only_as_the_rule_of_the_log():
    log, _ = propensities_only(40)
    mixed = 0.5 * log.probabilities + 0.5 / 3
    with pytest.raises(InvalidTarget, match="chosen arms alone"):
        snips(log, mixed)
    clicks = DecisionLog.from_arrays(log.contexts, log.arms, (log.arms == 1) * 1.0, propensities=log.propensities)
    estimate = dr(clicks, clicks.probabilities, model=np.tile([0.0, 1.0, 0.0], (40, 1)))
    plain = snips(clicks, clicks.probabilities)
    assert (estimate.low, estimate.high) == pytest.approx((plain.low, plain.high))  # no model narrows a mean


@pytest.mark.parametrize("propensity", [1e-300, 5e-324])
@pytest.mark.parametrize("estimator", [ips, snips, dr])
def test_probabilities_whose_weights_are_no_numbers_are_refused(estimator, propensity):
    past = {"arms": [0, 1, 0, 0], "rewards": [1.0, 0.0, 1.0, 2.0], "propensities": [propensity, 0.5, 0.5, 0.5]}
    log = DecisionLog.from_arrays(np.ones((4, 2, 1)), **past)
    with pytest.raises(InvalidLog, match=f"that of round 1 is {propensity}"):
        estimator(log, [0] * 4)
    assert estimator(log, [1, 1, 1, 1]).effective_rounds == 1
