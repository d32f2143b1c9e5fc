"""95 % intervals hold the truth as often as they say, for a fixed logger and for one that learns.

A reward is 1 + 0.5·x_0 − 0.3·x_1 + noise with x ~ N(0, I), three arms. The target takes the arm of the largest x_0
in most rounds: its value is known, since the largest of three normal numbers is 3/(2√π) in the mean.
"""

import functools
import math

import numpy as np
import pytest

from effort import MANY
from rarely import FixedGrid, LinUCB, Mixture, Uniform
from rarely.offpolicy import DecisionLog, dr, ips, snips

REPLICATIONS, ROUNDS, ARMS = 400 if MANY else 200, 300, 3
SLOPES, INTERCEPT = np.array([0.5, -0.3]), 1.0
SURE = 0.9
"""The target's probability of the largest x_0; the other arms share the rest."""
SHARE = SURE - (1 - SURE) / (ARMS - 1)
TRUTH = INTERCEPT + SLOPES[0] * SHARE * 3 / (2 * math.sqrt(math.pi))
ESTIMATORS = {"ips": ips, "snips": snips, "dr": dr}
LEAST, MOST = 0.92, 0.98
"""Of 400 intervals at 95 %, 368 … 392 hold the truth with probability 0.996, were they exact; of 200 with 0.96."""


def target_of(contexts):
    chances = np.full(contexts.shape[:2], (1 - SURE) / (ARMS - 1))
    chances[np.arange(len(contexts)), contexts[..., 0].argmax(axis=1)] = SURE
    return chances


def fixed(seed):
    return Uniform(2, FixedGrid(ROUNDS, 1), seed=seed)


def learning(seed):
    # Frozen within a batch, it scores the rounds of a batch at once; the log is as adaptive as with a running Z.
    return LinUCB(2, FixedGrid(ROUNDS, 5), exploration=Mixture(0.3), within_batch="frozen", seed=seed)


def play(policy, seed):
    rng = np.random.default_rng(seed)
    stream, noise, log = rng.normal(size=(ROUNDS, ARMS, 2)), rng.normal(size=ROUNDS), DecisionLog()
    while policy.round < ROUNDS:
        start = policy.round
        decision = policy.select(stream[start:], until_due=True)
        decided = stream[start : policy.round]
        chosen = decided[np.arange(len(decided)), decision.arm]
        rewards = INTERCEPT + chosen @ SLOPES + noise[start : policy.round]
        log.record(decided, decision)
        log.observe(decision, rewards)
        policy.observe(decision, rewards)
        if policy.due:
            policy.update()
    return log


@functools.cache
def estimates(maker):
    """Of each estimator, and of the mean reward without weights, every replication's estimate."""
    found = {name: [] for name in (*ESTIMATORS, "unweighted")}
    for seed in range(REPLICATIONS):
        log = play(maker(seed), 10_000 + seed)
        target = target_of(log.contexts)
        for name, estimator in ESTIMATORS.items():
            found[name].append(estimator(log, target))
        found["unweighted"].append(ips(log, log.probabilities))
    return found


def coverage(many, shrink=1.0):
    half = np.array([estimate.high - estimate.value for estimate in many]) * shrink
    off = np.abs([estimate.value - TRUTH for estimate in many])
    return float(np.mean(off <= half))


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("maker", [fixed, learning])
def test_intervals_hold_the_truth_as_often_as_they_say(maker, name):
    assert LEAST <= coverage(estimates(maker)[name]) <= MOST


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("maker", [fixed, learning])
def test_estimates_are_right_in_the_mean(maker, name):
    values = np.array([estimate.value for estimate in estimates(maker)[name]])
    assert abs(values.mean() - TRUTH) <= 3 * values.std(ddof=1) / math.sqrt(REPLICATIONS)


@pytest.mark.parametrize("maker", [fixed, learning])
def test_a_good_model_narrows_the_interval(maker):
    found = estimates(maker)
    errors = {name: np.mean([estimate.error for estimate in found[name]]) for name in ESTIMATORS}
    assert errors["dr"] < errors["snips"] < errors["ips"]


def test_coverage_can_fail():
    """Without weights the truth is missed, and intervals of half the width hold it too seldom."""
    for maker in (fixed, learning):
        assert coverage(estimates(maker)["unweighted"]) < 0.8
        for name in ESTIMATORS:
            assert coverage(estimates(maker)[name], shrink=0.5) < LEAST


def test_the_learning_log_did_learn():
    log = play(learning(0), 10_000)
    assert log.versions.max() == 4
    values = (INTERCEPT + log.contexts @ SLOPES)[np.arange(ROUNDS), log.arms]
    assert values[log.versions == 4].mean() > values[log.versions == 0].mean()
