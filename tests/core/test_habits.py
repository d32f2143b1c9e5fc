"""What users of notebooks and logging expect of a policy and of a decision."""

import json
import logging

import numpy as np
import pytest

from rarely import (
    BatchNeuralUCB,
    FixedGrid,
    LinTS,
    LinUCB,
    Mixture,
    NeuralEpsilonGreedy,
    Paced,
    Uniform,
)


def policies():
    grid = FixedGrid(horizon=8, batches=4)
    yield BatchNeuralUCB(dim=2, schedule=grid, hidden=4, training=3, seed=1)
    yield LinUCB(dim=2, schedule=grid, beta=lambda t: 1 / t, seed=1)
    yield LinTS(dim=2, exploration=Mixture(0.2), seed=1)
    yield NeuralEpsilonGreedy(dim=2, schedule=grid, hidden=4, training=3, epsilon=0.3, seed=1)
    yield Uniform(dim=2, seed=1)


@pytest.mark.parametrize("policy", list(policies()), ids=lambda policy: type(policy).__name__)
def test_a_policy_made_of_its_parameters_is_the_same(policy):
    again = type(policy)(**policy.get_params())
    contexts = np.random.default_rng(0).random((6, 3, 2))
    assert again.select(contexts).describe()[-1]["means"] == policy.select(contexts).describe()[-1]["means"]
    np.testing.assert_array_equal(again.select(contexts).arm, policy.select(contexts).arm)


def test_a_decision_is_json_with_null_for_an_arm_that_was_not_there():
    policy = LinUCB(dim=1, seed=0)
    decision = policy.select([[[1.0], [2.0]], [[3.0], [0.0]]], mask=[[True, True], [True, False]])
    first, second = json.loads(json.dumps(decision.describe(), allow_nan=False))
    assert (first["round"], second["round"], second["arm"]) == (1, 2, 0)
    assert second["means"][1] is None
    assert [first["id"], second["id"]] == decision.id
    assert second["propensity"] == 1.0


def test_the_text_of_a_decision_names_its_arm():
    policy = LinUCB(dim=1, within_batch="frozen", seed=0)
    one = policy.select([[1.0], [2.0]])
    assert "round 1, version 0, arm 1 of 2" in repr(one)
    many = policy.select([[[1.0], [2.0]]] * 3)
    assert repr(many) == "<3 decisions: rounds 2 … 4, arms 1, 1, 1>"


def test_notebooks_show_tables():
    policy = BatchNeuralUCB(dim=2, schedule=Paced(horizon=20, batches=4), hidden=4, seed=0)
    decision = policy.select(np.random.default_rng(0).random((2, 3, 2)))
    assert "0 (at most 4 versions)" in policy._repr_html_()
    policy.observe(decision, [1.0, 2.0])
    policy.update()
    assert "<caption>updates</caption>" in policy._repr_html_()


def test_updates_are_logged_and_silent_without_a_handler(caplog):
    policy = LinUCB(dim=1, seed=0)
    with caplog.at_level(logging.INFO, logger="rarely"):
        policy.observe(policy.select([[1.0], [2.0]]), 1.0)
        policy.update()
    assert [record.getMessage() for record in caplog.records] == [
        "LinUCB: version 1 after round 1, from 1 rewards (0 missing)"
    ]
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("rarely").handlers)
