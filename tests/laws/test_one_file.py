"""The library against the paper in one plain file: the same arms, round by round."""

import importlib.util
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from rarely import BatchNeuralUCB, DeterminantTrigger, FixedGrid, NeuralUCB, Training

ROUNDS, SEQUENTIAL = 120, 60
"""Of the schemes with batches, and of the one that trains after every round."""
STEP = 2e-6
"""η: stable for 150 rounds of cosine with m = 60 (1.8 over the curvature is about 4e-6 there)."""


@cache
def one_file():
    path = Path(__file__).parents[2] / "examples" / "one_file.py"
    spec = importlib.util.spec_from_file_location("one_file", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def library_arms(policy, contexts, reward_of):
    arms, starts, t = [], [1], 0
    while t < len(contexts):
        decision = policy.select(contexts[t:], until_due=True)
        policy.observe(decision, [reward_of(t + i, a) for i, a in enumerate(decision.arm)])
        arms += list(decision.arm)
        t += len(decision)
        if policy.due and t < len(contexts):
            assert policy.update().attempts == 1
            starts.append(t + 1)
    return np.array(arms), starts


KNOBS = {"hidden": 60, "ridge": 0.05, "beta": 0.05}
SCHEMES = {
    "fixed": (FixedGrid(ROUNDS, 17), {"batches": 17}),
    "adaptive": (DeterminantTrigger(ROUNDS, 20, 12.0), {"batches": 20, "log_q": 12.0}),
    "sequential": (None, {"batches": SEQUENTIAL}),
}


@cache
def plain_run(scheme):
    """A problem, the arms that the plain file chooses in it and the rounds with which its batches start."""
    problem = one_file().cosine_problem(seed=4, rounds=SEQUENTIAL if scheme == "sequential" else ROUNDS)
    contexts, means, noise = problem

    def reward_of(t, arm):
        return means[t, arm] + noise[t]

    options = SCHEMES[scheme][1] | KNOBS | {"steps": 60, "eta": STEP}
    return contexts, reward_of, *one_file().batch_neural_ucb(contexts, reward_of, scheme=scheme, seed=11, **options)


@pytest.mark.parametrize("covariance", ["dual", "primal"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_library_chooses_the_arms_of_the_plain_file(scheme, covariance):
    contexts, reward_of, expected, starts = plain_run(scheme)
    schedule = SCHEMES[scheme][0]
    settings = {"preset": "paper", "seed": 11, "training": Training(60, STEP), "covariance": covariance, **KNOBS}
    policy = NeuralUCB(10, **settings) if schedule is None else BatchNeuralUCB(10, schedule, **settings)
    arms, library_starts = library_arms(policy, contexts, reward_of)
    np.testing.assert_array_equal(arms, expected)
    assert library_starts == starts
    assert len(set(arms)) == 4


@pytest.mark.slow
def test_the_whole_cosine_problem_is_chosen_alike():
    """T = 2000, m = 200, adaptive B = 40, log q = 40, as the benchmark plays it, with one step size for both."""
    plain = one_file()
    contexts, means, noise = plain.cosine_problem(seed=0, rounds=2000)

    def reward_of(t, arm):
        return means[t, arm] + noise[t]

    knobs = {"hidden": 200, "ridge": 0.01, "beta": 0.001}
    expected, starts = plain.batch_neural_ucb(
        contexts, reward_of, scheme="adaptive", batches=40, log_q=40.0, seed=0, steps=200, eta=5e-7, **knobs
    )
    schedule = DeterminantTrigger(2000, 40, 40.0)
    policy = BatchNeuralUCB(10, schedule, preset="paper", seed=0, training=Training(200, 5e-7), **knobs)
    arms, library_starts = library_arms(policy, contexts, reward_of)
    np.testing.assert_array_equal(arms, expected)
    assert library_starts == starts


def test_the_plain_file_imports_nothing_of_ours():
    text = (Path(__file__).parents[2] / "examples" / "one_file.py").read_text()
    assert "import rarely" not in text
    assert "from rarely" not in text
