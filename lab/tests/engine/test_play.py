from types import SimpleNamespace

import numpy as np
import pytest

from rarely import BatchNeuralUCB, FixedGrid, NeuralUCB
from rarely.worlds import Cosine
from rarely_lab.engine.play import play_policy
from rarely_lab.reproduce.catalogue import PROBLEMS, Cell
from rarely_lab.reproduce.config import Configuration
from rarely_lab.reproduce.records import content_of, log_det_rounds

ROUNDS = Cosine().rounds(seed=0, count=30)


class Slow:
    """A policy whose methods take known times; `update` also sleeps, which costs the processor nothing."""

    log_det, updates = 0.0, ()
    due = True
    processor = wall = 0.0

    def burn(self, seconds, asleep=0.0):
        self.processor += seconds
        self.wall += seconds + asleep

    def select(self, contexts):
        self.burn(1.0)
        return SimpleNamespace(arm=0)

    def observe(self, decision, reward):
        self.burn(2.0)

    def update(self):
        self.burn(3.0, asleep=2.0)


def test_time_is_processor_time_split_into_selecting_and_training(monkeypatch):
    policy = Slow()
    clocks = SimpleNamespace(process_time=lambda: policy.processor, perf_counter=lambda: policy.wall)
    monkeypatch.setattr("rarely_lab.engine.play.time", clocks)
    played = play_policy(policy, ROUNDS[:5])
    assert (played.selecting.seconds, played.selecting.wall) == (15.0, 15.0)
    assert (played.training.seconds, played.training.wall) == (12.0, 20.0)


def test_sequential_play_updates_after_every_round_but_the_last():
    policy = NeuralUCB(10, hidden=4, training=1, seed=0)
    played = play_policy(policy, ROUNDS)
    assert [u.round for u in policy.updates] == list(range(1, 30)) == played.updates


@pytest.mark.parametrize("count", [7, 21, 45])
def test_log_det_is_on_record_from_the_start_to_the_end(count, monkeypatch):
    monkeypatch.setattr("rarely_lab.reproduce.records.LOG_DETS", 20)
    policy, after = BatchNeuralUCB(10, FixedGrid(count, 3), hidden=4, training=1, seed=0), {}
    rounds = Cosine().rounds(seed=0, count=count)
    played = play_policy(policy, rounds, lambda t: after.update({t: policy.log_det}))
    kept = content_of(played, policy.updates, after.__getitem__, "grid", 1.0)["log_det"]
    assert [t for t, _ in kept] == [0, *log_det_rounds(count)]
    assert (kept[0][1], kept[-1]) == (0.0, [count, round(policy.log_det, 4)])
    assert min(count, 20) <= len(kept) <= 30


def test_what_is_on_record_is_what_the_world_paid():
    policy = BatchNeuralUCB(10, FixedGrid(30, 3), hidden=4, training=1, seed=0)
    played = play_policy(policy, ROUNDS)
    arms = policy.history.arms
    np.testing.assert_allclose(policy.history.rewards, ROUNDS.paid(arms))
    np.testing.assert_allclose(played.regrets, ROUNDS.regrets(arms))
    content = content_of(played, policy.updates, lambda t: 0.0, "grid", 1.0)
    assert content["right"] == np.mean(arms == ROUNDS.best)
    assert content["reward"] == pytest.approx(ROUNDS.paid(arms).sum())


def test_a_rejected_update_is_on_record_as_rejected():
    cell = Cell(PROBLEMS["cosine"], "paper", Configuration("fixed", batches=3), 0, 30)
    policy = cell.policy()
    played = play_policy(policy, ROUNDS)
    refused = SimpleNamespace(round=20, accepted=False, reason="it rained", log_det=1.0, attempts=24)
    told = content_of(played, [policy.updates[0], refused], lambda t: 0.0, "grid", 1.0)["updates"]
    assert told["rounds"] == [10]
    assert told["rejected"] == [[20, "it rained"]]


def test_every_seed_has_initial_weights_of_its_own():
    weights = []
    for seed in (3, 4):
        cell = Cell(PROBLEMS["cosine"], "paper", Configuration("neuralucb"), seed, 10)
        weights.append(cell.policy().initial_weights[0])
    assert not np.array_equal(*weights)
