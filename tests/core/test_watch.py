"""A budget of seconds for the training of an update: where it ends, and what the record says."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rarely
from rarely import BatchNeuralUCB, InvalidInput, LinUCB, NeuralLinear, OnDemand, Training
from rarely._core.training import watch
from rarely._core.training.gradient_descent import TrainingPlan, _descend
from rarely.theory import KernelUCB

MAKERS = {
    "tuned": lambda: BatchNeuralUCB(3, OnDemand(), hidden=8, seed=0),
    "fixed": lambda: BatchNeuralUCB(3, OnDemand(), hidden=8, training=Training(steps=100), seed=0),
    "paper": lambda: BatchNeuralUCB(3, OnDemand(), hidden=8, preset="paper", training=Training(steps=100), seed=0),
    "code": lambda: BatchNeuralUCB(3, OnDemand(), hidden=8, preset="code", training=Training(steps=700), seed=0),
    "neural_linear": lambda: NeuralLinear(3, OnDemand(), hidden=8, seed=0),
    "kernel": lambda: KernelUCB(3, OnDemand(), steps=100, seed=0),
}


class Clock:
    """A clock that goes on by a second whenever it is asked."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def prepared(name: str, rounds: int = 200) -> rarely.Policy:
    policy = MAKERS[name]()
    contexts = np.random.default_rng(1).normal(size=(rounds, 4, 3))
    decision = policy.select(contexts)
    chosen = contexts[np.arange(rounds), decision.arm]
    policy.observe(decision, chosen[:, 0] + 0.3 * chosen[:, 1] ** 2)
    return policy


@pytest.fixture
def ticking(monkeypatch):
    monkeypatch.setattr(watch, "clock", Clock())


@pytest.mark.parametrize("name", MAKERS)
def test_a_budget_that_is_not_used_up_changes_no_number(name):
    plain, limited = prepared(name), prepared(name)
    record = plain.update()
    assert limited.update(seconds=3600) == record
    assert record.early == ""
    assert limited.fingerprint() == plain.fingerprint()


@pytest.mark.parametrize("name", MAKERS)
def test_a_budget_that_is_used_up_ends_the_training_and_the_record_says_so(name, ticking):
    whole, policy = prepared(name), prepared(name)
    planned = whole.update().steps
    record = policy.update(seconds=0.5)
    assert record.accepted
    assert record.steps < planned
    assert record.early.startswith("seconds = 0.5 were over: ")
    assert f"after {record.steps} of" in record.early
    assert name == "kernel" or record.final_loss <= record.initial_loss
    assert policy.version == 1


@pytest.mark.parametrize(("name", "least"), [("fixed", 10), ("code", 100)])
def test_the_first_stretch_is_always_taken(name, least, ticking):
    record = prepared(name).update(seconds=1e-9)
    assert record.steps == least


def test_the_weights_are_those_of_a_training_of_so_many_steps(ticking, monkeypatch):
    policy = prepared("fixed")
    record = policy.update(seconds=4.5)
    assert 10 < record.steps < 100
    exact = Training(steps=record.steps)
    monkeypatch.setitem(MAKERS, "short", lambda: BatchNeuralUCB(3, OnDemand(), hidden=8, training=exact, seed=0))
    same = prepared("short")
    same.update()
    for mine, theirs in zip(policy.weights, same.weights, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_job_has_the_same_budget(ticking):
    policy = prepared("fixed")
    result = pickle.loads(pickle.dumps(policy.prepare_update())).run(seconds=0.5)
    record = policy.adopt(pickle.loads(pickle.dumps(result)))
    assert (record.steps, record.early) == (10, "seconds = 0.5 were over: the training ended after 10 of 100 steps")


def test_a_record_keeps_what_was_left_undone(tmp_path, ticking):
    policy = prepared("tuned")
    policy.update(seconds=3.0)
    policy.save(tmp_path / "policy.rarely")
    again = rarely.load(tmp_path / "policy.rarely")
    assert again.updates == policy.updates
    assert again.fingerprint() == policy.fingerprint()
    assert again.updates[0].early


def test_the_radius_counts_the_steps_that_were_taken(ticking):
    radius = rarely.TheoremRadius(nu=0.1, S=1.0)
    made = [
        BatchNeuralUCB(3, OnDemand(), hidden=8, preset="paper", training=Training(steps=j), beta=radius, seed=0)
        for j in (10, 100, 100)
    ]
    contexts = np.random.default_rng(1).normal(size=(30, 4, 3))
    betas = []
    for policy, seconds in zip(made, (None, None, 0.5), strict=True):
        policy.observe(policy.select(contexts), np.linspace(0, 1, 30))
        betas.append(policy.update(seconds=seconds).beta)
    assert betas[0] == betas[2] > betas[1]


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), float("inf"), "1"])
def test_seconds_must_be_a_positive_number(seconds):
    policy = prepared("fixed")
    before = policy.fingerprint()
    with pytest.raises(InvalidInput, match="seconds"):
        policy.update(seconds=seconds)
    assert policy.fingerprint() == before


def test_a_linear_model_is_solved_in_one_step(ticking):
    policy = LinUCB(2, OnDemand())
    policy.observe(policy.select(np.eye(2)), 1.0)
    assert policy.update(seconds=0.5).early == ""


@given(seconds=st.floats(0.1, 60.0), name=st.sampled_from(sorted(MAKERS)))
def test_every_budget_gives_a_version_or_a_reason(seconds, name):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watch, "clock", Clock())
        policy = prepared(name, rounds=60)
        record = policy.update(seconds=seconds)
    assert record.accepted != bool(record.reason)
    assert np.isfinite(policy.score(np.eye(4, 3)).means).all()


class Losses:
    """An objective whose loss at each stretch is known."""

    def __init__(self, *losses):
        self.losses, self.steps = list(losses), 0

    def descend(self, weights, step, count, hopeless):
        self.steps += count
        return (np.array([float(self.steps)]),), self.losses.pop(0)

    def descend_with_momentum(self, state, step, count, hopeless):
        self.steps += count
        return state._replace(weights=(np.array([float(self.steps)]),)), self.losses.pop(0)


class OverAfter:
    """A watch whose time is over after some stretches."""

    reports = False

    def __init__(self, stretches):
        self.left = stretches

    def stretches(self, steps):
        return [steps // 10] * 10

    def over(self):
        self.left -= 1
        return self.left <= 0

    def step(self):
        pass


def test_time_that_is_over_ends_at_the_best_point_and_not_at_the_last():
    for momentum in (False, True):
        plan = TrainingPlan(0.01, steps=100, momentum=momentum)
        weights, loss, done = _descend(Losses(3.0, 1.0, 2.0), (), 0.1, plan, np.inf, OverAfter(3))
        assert (loss, done, weights[0][0]) == (1.0, 20, 20.0)
