"""A policy that is judged by the rewards it learned from is found out, and no other."""

import numpy as np
import pytest

import rarely
from rarely import AtRounds, BatchNeuralUCB, LinUCB, Mixture, RejectedWarning, Uniform
from rarely.offpolicy import DecisionLog, difference, dr, ips, read_log, snips, write_log
from rarely.offpolicy.sample import rounds_learned_from

SETTINGS = {"dim": 2, "schedule": AtRounds([60, 90]), "exploration": Mixture(0.5), "seed": 0}


def varied(rounds, seed):
    return np.random.default_rng(seed).normal(size=(rounds, 3, 2))


def repeated(rounds, seed):
    """Contexts that say which arm it is, and nothing else."""
    return np.tile(np.eye(3)[:, :2], (rounds, 1, 1))


def play(policy, contexts, seed, told=1.0):
    """A log of these rounds, and the policy as it is after them; rewards are 0 or 1."""
    rng, log = np.random.default_rng(seed), DecisionLog()
    decision = policy.select(contexts)
    log.record(contexts, decision)
    kept = np.flatnonzero(rng.random(len(contexts)) < told)
    rewards = (rng.random(len(kept)) < 0.5) * 1.0
    for each in (log, policy):
        each.observe(decision[kept], rewards)
    return log


@pytest.mark.parametrize("estimator", [ips, snips, dr])
@pytest.mark.parametrize("made", [varied, repeated])
def test_a_policy_is_found_to_know_its_own_log(made, estimator):
    policy = LinUCB(**SETTINGS)
    log = play(policy, made(60, 1), seed=2)
    assert "learned" not in estimator(log, policy).note
    policy.update()
    assert "had 60 of these" in estimator(log, policy).note
    assert "it may have learned from their rewards" in estimator(log, policy).note
    # An array of the same probabilities comes from a place that cannot be checked.
    assert "learned" not in estimator(log, policy.probabilities(log.contexts)).note


@pytest.mark.parametrize("made", [varied, repeated])
def test_rounds_after_the_last_update_judge_without_a_note(made):
    policy = LinUCB(**SETTINGS)
    before = play(policy, made(60, 1), seed=2)
    policy.update()
    after = play(policy, made(30, 3), seed=4)
    assert rounds_learned_from(policy, before, before.observed) == 60
    assert rounds_learned_from(policy, after, after.observed) == 0


@pytest.mark.parametrize("made", [varied, repeated])
def test_a_log_of_before_and_after_is_told_apart(made):
    policy, log = LinUCB(**SETTINGS), DecisionLog()
    for contexts, seed in ((made(60, 1), 2), (made(30, 3), 4)):
        decision = policy.select(contexts)
        rewards = np.random.default_rng(seed).integers(2, size=len(contexts))
        log.record(contexts, decision)
        for each in (log, policy):
            each.observe(decision, rewards)
        if policy.round == 60:
            policy.update()
    assert rounds_learned_from(policy, log, log.observed) == 60


def test_a_rejected_or_missing_update_taught_nothing():
    policy = LinUCB(**SETTINGS)
    decision = policy.select(varied(60, 1))
    log = DecisionLog()
    log.record(varied(60, 1), decision)
    for each in (log, policy):
        each.observe(decision, np.tile([1e308, -1e308], 30))
    with pytest.warns(RejectedWarning):
        assert not policy.update().accepted
    assert rounds_learned_from(policy, log, log.observed) == 0


def test_rewards_that_never_came_were_not_learned_from():
    policy = LinUCB(**SETTINGS)
    log = play(policy, varied(60, 1), seed=2, told=0.5)
    policy.update()
    assert 0 < len(log.observed) < 60
    assert rounds_learned_from(policy, log, log.observed) == len(log.observed)
    missing = np.setdiff1d(log.rounds, log.rounds[log.observed])
    log.observe(rounds=missing, rewards=np.zeros(len(missing)))
    assert rounds_learned_from(policy, log, log.observed) == 60 - len(missing)


@pytest.mark.parametrize("kind", [LinUCB, BatchNeuralUCB])
@pytest.mark.parametrize("made", [varied, repeated])
def test_a_policy_started_from_a_log_knows_that_log(kind, made):
    log = play(Uniform(2, seed=5), made(200, 1), seed=2, told=0.9)
    kept = log.observed
    chosen, rewards = log.contexts[kept, log.arms[kept]], log.rewards[kept]
    part = slice(20, 120)
    small = {} if kind is LinUCB else {"hidden": 4, "training": 2}
    policy = kind.from_log(chosen[part], rewards[part], **SETTINGS, **small)
    assert f"had 100 of these {len(kept)} rounds" in ips(log, policy).note
    later = DecisionLog.from_arrays(
        log.contexts[kept[30:60]], log.arms[kept[30:60]], rewards[30:60], propensities=[1 / 3] * 30
    )
    assert "had 30 of these 30 rounds" in ips(later, policy).note


@pytest.mark.parametrize("made", [varied, repeated])
def test_rounds_are_found_behind_the_log_that_a_policy_started_from(made):
    policy = LinUCB.from_log(made(40, 5)[:, 0], np.arange(40.0), **SETTINGS)
    log = play(policy, made(60, 1), seed=2)
    assert rounds_learned_from(policy, log, log.observed) == 0
    policy.update()
    assert rounds_learned_from(policy, log, log.observed) == 60


@pytest.mark.parametrize("made", [varied, repeated])
def test_another_log_is_not_taken_for_the_policys_own(made):
    policy = LinUCB(**SETTINGS)
    play(policy, made(60, 1), seed=2)
    policy.update()
    for other, seed in ((Uniform(2, seed=7), 11), (LinUCB(**(SETTINGS | {"seed": 3})), 21)):
        log = play(other, made(60, seed), seed=seed + 1)
        assert rounds_learned_from(policy, log, log.observed) == 0


@pytest.mark.parametrize("made", [varied, repeated])
def test_the_same_decisions_with_other_rewards_are_another_log(made):
    one, other, log = LinUCB(**SETTINGS), LinUCB(**SETTINGS), DecisionLog()
    rng, contexts = np.random.default_rng(0), made(60, 1)
    decision, same = one.select(contexts), other.select(contexts)
    assert np.array_equal(decision.arm, same.arm)
    log.record(contexts, decision)
    log.observe(decision, rng.normal(size=60))
    other.observe(same, rng.normal(size=60))
    other.update()
    assert rounds_learned_from(other, log, log.observed) == 0


def test_a_saved_policy_and_a_written_log_still_know_each_other(tmp_path):
    policy = LinUCB(**SETTINGS)
    log = play(policy, repeated(60, 1), seed=2)
    policy.update()
    policy.save(tmp_path / "policy.rarely")
    write_log(log, tmp_path / "log.csv")
    again, written = rarely.load(tmp_path / "policy.rarely"), read_log(tmp_path / "log.csv")
    assert rounds_learned_from(again, written, written.observed) == 60


def test_uniform_learns_nothing_and_a_difference_names_who_learned():
    policy = LinUCB(**SETTINGS)
    log = play(policy, varied(60, 1), seed=2)
    policy.update()
    uniform = Uniform(2, seed=1)
    play(uniform, varied(60, 1), seed=2)
    uniform.update()
    assert "learned" not in ips(log, uniform).note
    note = difference(log, uniform, policy).note
    assert "The target b had 60 of these 60 rounds" in note
    assert "target a" not in note
