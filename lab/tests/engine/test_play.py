from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from rarely import BatchNeuralUCB, FixedGrid, NeuralUCB
from rarely.worlds import Cosine
from rarely_lab.engine.play import play
from rarely_lab.reproduce.catalogue import PROBLEMS
from rarely_lab.reproduce.cells import Cell
from rarely_lab.reproduce.config import Configuration
from rarely_lab.reproduce.records import content_of
from rarely_lab.reproduce.setup import policy_of

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
    played = play(policy, ROUNDS[:5])
    assert (played.selecting.seconds, played.selecting.wall) == (15.0, 15.0)
    assert (played.training.seconds, played.training.wall) == (12.0, 20.0)


def test_sequential_play_updates_after_every_round_but_the_last():
    policy = NeuralUCB(10, hidden=4, training=1, seed=0)
    play(policy, ROUNDS)
    assert [u.round for u in policy.updates] == list(range(1, 30))


@pytest.mark.parametrize("count", [7, 21, 45])
def test_log_det_is_on_record_from_the_start_to_the_end(count, monkeypatch):
    monkeypatch.setattr("rarely_lab.engine.play.POINTS", 20)
    policy = BatchNeuralUCB(10, FixedGrid(count, 3), hidden=4, training=1, seed=0)
    played = play(policy, Cosine().rounds(seed=0, count=count))
    assert played.log_dets[0] == (0, 0.0)
    assert played.log_dets[-1] == (count, policy.log_det)
    assert min(count, 20) <= len(played.log_dets) <= 30


def test_what_is_on_record_is_what_the_world_paid():
    policy = BatchNeuralUCB(10, FixedGrid(30, 3), hidden=4, training=1, seed=0)
    played = play(policy, ROUNDS)
    arms = policy.history.arms
    np.testing.assert_allclose(policy.history.rewards, ROUNDS.paid(arms))
    np.testing.assert_allclose(played.regrets, ROUNDS.regrets(arms))
    assert played.right == np.mean(arms == ROUNDS.best)
    assert played.reward == pytest.approx(ROUNDS.paid(arms).sum())


def test_a_rejected_update_is_on_record_as_rejected():
    cell = Cell(PROBLEMS["cosine"], "paper", Configuration("fixed", batches=3), 0, 30)
    policy = policy_of(cell, Cosine())
    played = play(policy, ROUNDS)
    refused = SimpleNamespace(round=20, accepted=False, reason="it rained", log_det=1.0, attempts=24)
    told = content_of(replace(played, updates=[policy.updates[0], refused]), "grid", 1.0)["updates"]
    assert told["rounds"] == [10]
    assert told["rejected"] == [[20, "it rained"]]


def test_every_seed_has_initial_weights_of_its_own():
    weights = []
    for seed in (3, 4):
        cell = Cell(PROBLEMS["cosine"], "paper", Configuration("neuralucb"), seed, 10)
        weights.append(policy_of(cell, Cosine()).initial_weights[0])
    assert not np.array_equal(*weights)
