"""Presets and trainings as values, and the arguments of version 0.1 that they replace."""

import warnings

import numpy as np
import pytest

from rarely import BatchNeuralUCB, FixedGrid, InvalidInput, NeuralTS, Preset, Training, load
from rarely.core.policies.renamed import grouped_settings

GRID = FixedGrid(horizon=12, batches=3)


def made(kind=BatchNeuralUCB, **given):
    return kind(dim=2, schedule=GRID, hidden=8, seed=0, **given)


def played(policy):
    rng = np.random.default_rng(1)
    for _ in range(3):
        decision = policy.select(rng.random((4, 3, 2)))
        policy.observe(decision, rng.random(4))
        if policy.due:
            policy.update()
    return policy.fingerprint()


@pytest.mark.parametrize("kind", [BatchNeuralUCB, NeuralTS])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"steps": 7}, {"training": 7}),
        ({"steps": 7}, {"training": Training(steps=7)}),
        ({"steps": 5, "skip": 2.0, "step_size": 0.01}, {"training": Training(5, 0.01, 2.0)}),
        ({"steps": 5, "warm_start": True}, {"training": Training(5, warm_start=True)}),
        ({"precision": "float64"}, {"preset": Preset.named("practical", precision="float64")}),
        ({"preset": "paper", "biases": True, "steps": 3}, {"preset": Preset(biases=True), "training": 3}),
        ({"preset": "code", "step_size": 0.01}, {"preset": Preset.named("code"), "training": Training(step_size=0.01)}),
    ],
    ids=str,
)
def test_an_old_argument_warns_and_makes_the_same_policy(kind, old, new):
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        wanted = played(made(kind, **new))
    with pytest.warns(DeprecationWarning, match=r"until version 0\.3; write (preset|training)="):
        before = made(kind, **old)
    assert played(before) == wanted


def test_the_warning_names_the_line_of_the_caller():
    with pytest.warns(DeprecationWarning, match="steps") as caught:
        BatchNeuralUCB(dim=2, schedule=GRID, steps=3)
    assert caught[0].filename == __file__


def test_a_name_that_was_never_an_argument_is_refused_as_python_refuses_it():
    with pytest.raises(TypeError, match="unexpected keyword argument 'stepps'"):
        made(stepps=3)


@pytest.mark.parametrize("training", ["long", 2.5, True, [200]])
def test_a_training_that_is_none_is_refused(training):
    with pytest.raises(InvalidInput, match=r"training must be a Training"):
        made(training=training)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"precision": "float16"}, "precision must be one of"),
        ({"biases": 1}, "biases"),
        ({"optimiser": "adam"}, "optimiser must be one of"),
    ],
)
def test_a_preset_is_checked_when_it_is_made(given, message):
    with pytest.raises(InvalidInput, match=message):
        Preset(**given)


def test_settings_are_json_that_makes_the_policy_again(tmp_path):
    policy = made(preset=Preset.named("practical", precision="float64"), training=Training(5, skip=1.0))
    again = BatchNeuralUCB(**policy.settings())
    assert played(again) == played(policy)
    policy.save(tmp_path / "policy.npz")
    assert load(tmp_path / "policy.npz").settings() == policy.settings()
    assert made(preset=Preset()).settings()["preset"] == "paper"


def test_settings_of_version_0_1_are_grouped():
    old = {"dim": 2, "preset": "practical", "steps": 5, "skip": None, "precision": None, "biases": True, "seed": 0}
    assert grouped_settings(old) == {
        "dim": 2,
        "seed": 0,
        "preset": {
            "scale_contexts": True,
            "standardise_rewards": True,
            "biases": True,
            "scaling": "ntk",
            "initial": "paired",
            "optimiser": "gradient_descent",
            "precision": "float32",
        },
        "training": {"steps": 5, "step_size": None, "skip": None, "warm_start": False},
    }
    assert grouped_settings({"dim": 2, "beta": 1.0}) == {"dim": 2, "beta": 1.0}
