"""What users of notebooks, scikit-learn and logging expect of a policy and of a decision."""

import json
import logging

import numpy as np
import pytest

from rarely import (
    ArmBlocks,
    BatchNeuralUCB,
    FixedGrid,
    InvalidInput,
    LinTS,
    LinUCB,
    Mixture,
    NeuralEpsilonGreedy,
    Paced,
    Roster,
    Uniform,
)
from rarely.study import StudySettings


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


@pytest.mark.parametrize("policy", list(policies()), ids=lambda policy: type(policy).__name__)
def test_a_clone_of_scikit_learn_has_the_arguments_and_no_history(policy):
    base = pytest.importorskip("sklearn.base")
    policy.select(np.zeros((3, 2)))
    clone = base.clone(policy)
    assert (clone.round, policy.round) == (0, 1)
    assert clone.get_params().keys() == policy.get_params().keys()


def test_parameters_can_be_set_before_the_first_round_and_not_after():
    policy = LinUCB(dim=2, seed=0)
    assert policy.set_params(beta=0.25, ridge=2.0) is policy
    assert (policy.beta, policy.get_params()["ridge"]) == (0.25, 2.0)
    with pytest.raises(InvalidInput, match="unknown argument 'alpha' for LinUCB"):
        policy.set_params(alpha=1)
    with pytest.raises(InvalidInput, match="ridge"):
        policy.set_params(ridge=-1.0)
    assert policy.get_params()["ridge"] == 2.0
    policy.select([[1.0, 0.0], [0.0, 1.0]])
    with pytest.raises(InvalidInput, match="decided 1 rounds"):
        policy.set_params(beta=1.0)
    assert policy.beta == 0.25


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
    assert decision[0]._repr_html_().count("<tr>") == 4
    assert "chosen" in decision[0]._repr_html_()
    assert decision._repr_html_().count("<tr>") == 3
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


class TestArmBlocks:
    @pytest.fixture
    def blocks(self):
        return ArmBlocks.fit(np.random.default_rng(0).random((9, 2)), arms=3, layout="hybrid")

    def test_blocks_made_of_their_parameters_are_the_same(self, blocks):
        assert ArmBlocks(**blocks.get_params()) == blocks

    def test_a_clone_of_scikit_learn_makes_the_same_contexts(self, blocks):
        base = pytest.importorskip("sklearn.base")
        clone = base.clone(blocks)
        assert clone is not blocks
        assert clone.describe() == blocks.describe()
        np.testing.assert_array_equal(clone([0.5, 0.1]), blocks([0.5, 0.1]))

    def test_a_search_over_parameters_of_a_part_changes_it(self, blocks):
        base = pytest.importorskip("sklearn.base")

        class Recommender(base.BaseEstimator):
            def __init__(self, blocks):
                self.blocks = blocks

        assert Recommender(blocks).set_params(blocks__layout="shared").blocks.layout == "shared"

    def test_parameters_that_do_not_fit_change_nothing(self, blocks):
        before = blocks.describe()
        with pytest.raises(InvalidInput, match="unknown argument 'colour' for ArmBlocks"):
            blocks.set_params(colour=1)
        with pytest.raises(InvalidInput, match="arms must be None"):
            blocks.set_params(arms=5, layout="bilinear")
        assert blocks.describe() == before
        assert blocks.set_params(arms=5) is blocks
        assert blocks([0.5, 0.1]).shape == (5, blocks.dim)

    def test_a_roster_and_a_study_keep_the_blocks_that_they_were_made_with(self, blocks):
        roster, settings, dim = Roster(blocks), StudySettings(blocks=blocks), blocks.dim
        blocks.set_params(arms=5)
        assert roster.blocks.dim == roster.settings["dim"] == settings.blocks.dim == dim
