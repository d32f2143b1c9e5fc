"""What updates are worth, against the policy in use; and simulations that fail."""

import os

import numpy as np
import pytest

from decision_logs import planning_log
from rarely import Affine
from rarely.planning import plan
from rarely.planning.frontier import default_batches, improving, present_regrets
from rarely.planning.planner import improving_plan
from rarely.planning.simulate import LoggedRounds, LogWorld, Maker, SimulatedRewards, SimulationFailed
from rarely.worlds import World

QUICK = {"horizon": 30, "runs": 2, "policy": "LinUCB", "batches": [2, 4]}


class Lines(World):
    arms, dim, context_scale = 3, 3, Affine.identity(3)

    def secret(self, generator):
        return generator.normal(size=3)

    def round(self, t, secret, generator):
        contexts = generator.normal(size=(3, 3))
        return contexts, contexts @ secret, 0.3 * generator.normal()


def test_the_present_policy_is_the_one_that_wrote_the_log():
    """Of two arms that pay 1 and 0 the log has the worse one in a quarter of its rounds."""
    rows = np.random.default_rng(0).normal(size=(40, 2))
    log = LoggedRounds(planning_log(rows, 2, (np.arange(40) % 4 == 0).astype(int), np.arange(40.0)))
    world = LogWorld(log, SimulatedRewards(log, lambda features: np.tile([1.0, 0.0], (len(features), 1))), 40)
    assert present_regrets(world, 40, [1, 2]) == ([10.0, 10.0], True)
    unknown = LogWorld(LoggedRounds(planning_log(rows, 2)), world.rewards, 40)
    assert present_regrets(unknown, 40, [1, 2]) == ([20.0, 20.0], False)


def test_a_world_is_compared_with_arms_at_random():
    (present,), logged = present_regrets(Lines(), 60, [3])
    assert not logged
    rounds = Lines().rounds(3, 60)
    expected = np.mean([rounds.regrets(np.full(60, arm)).sum() for arm in range(3)])
    assert present == pytest.approx(expected)


def test_schedules_are_compared_with_64_batches_and_tried_up_to_32():
    assert default_batches(2000)[-1] == 32
    short, long = (next(improving(Lines(), Maker("LinUCB"), rounds, [2], ["fixed"], [1], [2])) for rounds in (64, 65))
    assert (short.often, long.often) == ("an update after every round", "63 updates")


def test_a_plan_begins_with_short_runs_and_gets_better(monkeypatch):
    assert (
        next(improving_plan(Lines(), horizon=408, policy="LinUCB", batches=[2], kinds=["fixed"])).frontier.rounds == 51
    )
    monkeypatch.setattr("rarely.planning.planner.SHORT", 90)  # where the next runs do not take long
    given = {"horizon": 96, "runs": 6, "policy": "LinUCB", "batches": [3], "kinds": ["adaptive"]}
    plans = list(improving_plan(Lines(), **given))
    assert [(each.frontier.rounds, each.frontier.runs) for each in plans] == [
        *((12, runs) for runs in range(1, 6)), (96, 5), (96, 6),
    ]  # fmt: skip
    assert plans[-1].describe() == plan(Lines(), **given).describe()


def test_a_simulation_that_fails_ends_the_plan_with_its_reason():
    class Failing(Lines):
        def rounds(self, seed, count, first=1):
            raise ZeroDivisionError("no such round")

    with pytest.raises(SimulationFailed, match=r"EveryRound\(.*\), \d+\): ZeroDivisionError: no such round"):
        plan(Failing(), **QUICK)


def test_a_process_that_is_killed_ends_the_plan_with_a_remedy():
    here = os.getpid()

    class Deadly(Lines):
        def rounds(self, seed, count, first=1):
            if os.getpid() != here:
                os._exit(9)
            return super().rounds(seed, count, first)

    with pytest.raises(SimulationFailed, match="was killed; is there enough memory"):
        plan(Deadly(), **QUICK, jobs=2)
