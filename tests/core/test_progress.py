"""Bars such as tqdm's as the `progress` of long calls."""

from functools import partial
from typing import ClassVar

import numpy as np
import pytest

from rarely import BatchNeuralUCB, InvalidInput, LinUCB, OnDemand
from rarely._core.training.watch import read_progress
from rarely.logs import DecisionLog
from rarely.planning import plan, plan_trial
from rarely.study import Study


class FakeBar:
    """What a call does to a bar of tqdm's."""

    made: ClassVar[list["FakeBar"]] = []

    def __init__(self, total=None, desc="", **options):
        self.total, self.desc, self.options, self.n, self.moves, self.resets = total, desc, options, 0, [], []
        FakeBar.made.append(self)

    def update(self, n=1):
        self.moves.append(n)
        self.n += n

    def reset(self, total=None):
        self.n, self.total = 0, total
        self.resets.append(total)

    def close(self):
        pass


@pytest.fixture(autouse=True)
def fresh():
    FakeBar.made = []


def prepared():
    policy = BatchNeuralUCB(2, OnDemand(), hidden=4, seed=0)
    contexts = np.random.default_rng(0).random((40, 3, 2))
    decision = policy.select(contexts)
    policy.observe(decision, contexts[np.arange(40), decision.arm, 0])
    return policy


@pytest.mark.parametrize("progress", [FakeBar, partial(FakeBar, ncols=80)], ids=["class", "partial"])
def test_an_update_makes_one_bar_and_fills_it(progress):
    policy = prepared()
    policy.update(progress=progress)
    (bar,) = FakeBar.made
    assert (bar.desc, bar.total, bar.n) == ("update", 100, 100)
    assert len(bar.moves) > 5
    assert all(isinstance(move, int) and move >= 0 for move in bar.moves)
    plain = prepared()
    plain.update()
    assert plain.fingerprint() == policy.fingerprint()


def test_a_bar_of_the_callers_is_used_again():
    bar, policy = FakeBar(), prepared()
    for _ in range(2):
        policy.update(progress=bar, force=True)
        assert (bar.n, bar.total) == (100, 100)
    policy.prepare_update(force=True).run(bar)
    assert bar.resets == [100, 100, 100]
    assert FakeBar.made == [bar]


def test_a_plan_has_a_bar():
    log = DecisionLog.from_arrays(rows=np.random.default_rng(0).random((60, 2)), arm_count=2)
    plan(log, horizon=60, simulator=np.copy, policy="LinUCB", batches=[2, 4], runs=2, progress=FakeBar)
    assert [bar.desc for bar in FakeBar.made] == ["simulation"]
    assert all(bar.n == bar.total for bar in FakeBar.made)


def test_a_plan_of_a_trial_and_a_study_take_one_too():
    asked = {"patients": [40], "looks": [1], "runs": 3}
    plan_trial([0.2, 0.8], **asked, progress=FakeBar)
    assert plan_trial([0.2, 0.8], **asked, progress=None) == plan_trial([0.2, 0.8], **asked)
    study = Study.create("memory://bar", "trial", policy=LinUCB(dim=1), arms=["a", "b"])
    study.tell(study.ask([[1.0], [2.0]]).id, 1.0)
    study.update(progress=FakeBar)
    assert [(bar.desc, bar.n, bar.total) for bar in FakeBar.made] == [("trials", 3, 3), ("update", 100, 100)]
    study.close()


@pytest.mark.parametrize("progress", [5, True, "tqdm", {}, [1]], ids=repr)
def test_what_is_neither_a_function_nor_a_bar_is_refused(progress):
    with pytest.raises(InvalidInput, match="progress must be a function of a stage, a bar as tqdm's or None"):
        read_progress(progress, "a stage")


def test_a_function_is_called_as_it_is():
    class Listener:
        """A function with the methods of a bar is a function."""

        def __call__(self, *at):
            return at

        update = close = None

    listener = Listener()
    assert read_progress(listener, "anything") is listener
    assert read_progress(None, "anything")("stage", 1, 2) is None
