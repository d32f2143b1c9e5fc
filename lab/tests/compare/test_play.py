import numpy as np
import pytest

from rarely import FixedGrid, LinUCB
from rarely.worlds import Cosine
from rarely.worlds.gallery import Wheel
from rarely_lab.compare import Contestant, find_problem
from rarely_lab.compare.policies import POLICIES
from rarely_lab.compare.problems import OTHER
from rarely_lab.engine.play import LibraryContestant, WrongContestant, play, play_policy


class Spy:
    """Notes what it is told and when."""

    def __init__(self, ends=(), arm=0):
        self.ends, self.arm, self.told, self.updates, self.round = set(ends), arm, [], 0, 0

    def select(self, contexts):
        self.round += 1
        return self.arm

    def observe(self, round, contexts, arm, reward):
        self.told.append((self.round, round, arm, reward))

    def due(self, round):
        return round in self.ends

    def update(self):
        self.updates += 1


ROUNDS = Cosine().rounds(seed=0, count=12)


def test_rewards_are_told_when_an_update_begins_and_at_no_other_time():
    spy = Spy({4, 9}, arm=2)
    assert isinstance(spy, Contestant)
    played = play(spy, ROUNDS, batches=10)
    assert played.updates == [4, 9]
    assert [(at, t) for at, t, *_ in spy.told] == [*((4, t) for t in range(1, 5)), *((9, t) for t in range(5, 10))]
    assert [reward for *_, reward in spy.told] == ROUNDS.rewards[:9, 2].tolist()
    assert played.regrets.tolist() == ROUNDS.regrets(np.full(12, 2)).tolist()


@pytest.mark.parametrize("batches", [1, 2, 3])
def test_the_budget_holds_whatever_a_policy_asks_for(batches):
    spy = Spy(range(1, 100))
    played = play(spy, ROUNDS, batches)
    assert played.updates == list(range(1, batches))
    assert spy.updates == batches - 1
    assert max((t for _, t, *_ in spy.told), default=0) == batches - 1


def test_there_is_no_update_after_the_last_round():
    assert play(Spy(range(1, 100)), ROUNDS, batches=100).updates == list(range(1, 12))


def test_late_rewards_are_told_when_they_are_in_and_an_update_without_one_is_not_made():
    late = np.array([5, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0])
    spy = Spy({1, 3, 7})
    played = play(spy, ROUNDS, batches=10, delays=late)
    assert played.updates == [3, 7]
    assert [(at, t) for at, t, *_ in spy.told] == [(3, 2), (3, 3), (7, 5), (7, 1), (7, 6), (7, 7)]


@pytest.mark.parametrize("arm", [4, -1, 1.5, None, "0"])
def test_what_is_no_arm_is_refused(arm):
    with pytest.raises(WrongContestant, match=r"select must give an arm"):
        play(Spy(arm=arm), ROUNDS, batches=2)


def test_a_policy_of_the_library_plays_as_everywhere_else():
    rounds = Cosine().rounds(seed=3, count=60)
    plain = play_policy(LinUCB(10, FixedGrid(60, 6), seed=0), rounds)
    here = play(LibraryContestant(LinUCB(10, FixedGrid(60, 6), seed=0)), rounds, batches=6)
    assert here.regrets.tolist() == plain.regrets.tolist()
    assert here.updates == [10, 20, 30, 40, 50]


@pytest.mark.parametrize("name", ["cosine", "needle", "rare-reward"])
def test_a_drifting_world_becomes_one_of_another_seed(name):
    problem, world = find_problem(f"{name}+drift"), find_problem(name).world
    rounds, before, after = problem.rounds(1, 200), world.rounds(1, 200), world.rounds(1 + OTHER, 200)
    old = np.array([np.array_equal(a, b) for a, b in zip(rounds.means, before.means, strict=True)])
    new = np.array([np.array_equal(a, b) for a, b in zip(rounds.means, after.means, strict=True)])
    assert (old | new).all()
    assert old[:50].all()
    assert new[150:].all()
    assert 0.25 < new[50:150].mean() < 0.75
    assert np.array_equal(rounds.rewards[150:], after.rewards[150:])


def test_in_a_drifting_world_of_blocks_each_arm_pays_what_its_neighbour_paid():
    rounds, after = find_problem("wheel+drift").rounds(1, 100), Wheel().rounds(1 + OTHER, 100)
    assert np.array_equal(rounds.means[75:], np.roll(after.means[75:], 1, axis=1))
    assert np.array_equal(rounds.contexts[75:], after.contexts[75:])


def test_delays_are_a_twentieth_of_the_run_in_the_mean():
    problem = find_problem("cosine+delay")
    late = problem.delays(0, 2000)
    assert late.min() >= 1
    assert 80 < late.mean() < 120
    assert problem.delays(0, 10).tolist() == [1] * 10


class Singly:
    """A policy of the library that is asked round by round."""

    def __init__(self, inner):
        self.select, self.observe, self.due, self.update = inner.select, inner.observe, inner.due, inner.update


@pytest.mark.parametrize("name", ["linucb", "lints", "default@fixed"])
@pytest.mark.parametrize("problem", ["cosine", "wheel+delay"])
def test_rounds_decided_in_one_call_are_those_decided_one_by_one(name, problem):
    asked = find_problem(problem)
    played = []
    for until_due in (True, False):
        contestant = POLICIES[name].make(asked.task(60, 5, 0))
        if not until_due:
            contestant = Singly(contestant)
        played.append(play(contestant, asked.rounds(0, 60), 5, asked.delays(0, 60)))
    ahead, one_by_one = played
    assert ahead.regrets.tolist() == one_by_one.regrets.tolist()
    assert ahead.updates == one_by_one.updates
