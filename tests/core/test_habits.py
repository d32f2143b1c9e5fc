"""What users of notebooks and logging expect of a policy and of a decision."""

import json
import logging

import numpy as np

from rarely import (
    BatchNeuralUCB,
    LinUCB,
    Paced,
)


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
