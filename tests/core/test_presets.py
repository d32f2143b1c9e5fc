"""Presets and trainings as values, and the arguments of version 0.1 that they replace."""

import warnings

import numpy as np
import pytest

from rarely import (
    BatchNeuralUCB,
    FixedGrid,
    InvalidInput,
    KernelUCB,
    Limits,
    LinTS,
    LinUCB,
    NeuralTS,
    Preset,
    Training,
    Uniform,
    load,
)
from rarely.core.policies.renamed import grouped_settings, settings_with_limits

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
        "training": {"steps": 5, "step_size": None, "skip": None, "warm_start": False, "rows": None},
    }
    assert grouped_settings({"dim": 2, "beta": 1.0}) == {"dim": 2, "beta": 1.0}


class TestLimits:
    @pytest.mark.parametrize("kind", [BatchNeuralUCB, LinUCB, LinTS, Uniform, KernelUCB])
    def test_the_old_argument_warns_and_makes_the_same_policy(self, kind):
        with pytest.warns(DeprecationWarning, match=r"until version 0\.3; write limits=Limits\(memory=") as caught:
            old = kind(2, GRID, seed=0, memory_limit=10**7)
        assert caught[0].filename == __file__
        assert old.fingerprint() == kind(2, GRID, seed=0, limits=Limits(memory=10**7)).fingerprint()

    @pytest.mark.parametrize("kind", [LinUCB, Uniform, KernelUCB])
    def test_a_name_that_was_never_an_argument_is_refused_as_python_refuses_it(self, kind):
        with pytest.raises(TypeError, match="unexpected keyword argument 'history_limit'"):
            kind(2, history_limit=10)

    @pytest.mark.parametrize("limit", [{"latency": 0.1}, {"arms": 3}])
    @pytest.mark.parametrize("kind", [LinUCB, LinTS, Uniform, KernelUCB])
    def test_a_policy_refuses_a_limit_that_it_does_not_have(self, kind, limit):
        name = next(iter(limit))
        with pytest.raises(InvalidInput, match=rf"limits\.{name} must be left out for {kind.__name__}"):
            kind(2, limits=Limits(**limit))

    def test_kernel_ucb_keeps_its_history(self):
        with pytest.raises(InvalidInput, match=r"limits\.history must be left out for KernelUCB"):
            KernelUCB(2, limits=Limits(history=10**6))

    @pytest.mark.parametrize("limits", [10**9, "auto", True])
    def test_limits_that_are_none_are_refused(self, limits):
        with pytest.raises(InvalidInput, match="limits must be a Limits"):
            LinUCB(2, limits=limits)

    @pytest.mark.parametrize("kind", [BatchNeuralUCB, LinUCB, Uniform, KernelUCB])
    def test_parameters_hold_them_as_one_value(self, kind):
        policy = kind(2, GRID, seed=0, limits=Limits(memory=10**7))
        limits = policy.get_params()["limits"]
        assert isinstance(limits, Limits)
        assert limits.memory == 10**7
        assert kind(**policy.get_params()).fingerprint() == policy.fingerprint()
        assert policy.set_params(limits=Limits(memory=10**8)).get_params()["limits"].memory == 10**8

    def test_saved_settings_that_name_them_one_by_one_are_grouped(self):
        old = {"dim": 2, "memory_limit": 100}
        assert settings_with_limits(old) == {
            "dim": 2,
            "limits": {"memory": 100, "history": None, "latency": None, "arms": None},
        }
        later = old | {"history_limit": 9, "latency": 0.1, "arms": 3, "training_rows": 7, "training": {"steps": 1}}
        assert settings_with_limits(later) == {
            "dim": 2,
            "training": {"steps": 1, "rows": 7},
            "limits": {"memory": 100, "history": 9, "latency": 0.1, "arms": 3},
        }
        assert settings_with_limits(old | {"training": {"steps": 1}})["training"] == {"steps": 1, "rows": "all"}
        for left in ({"dim": 2}, {"dim": 2, "limits": {"memory": 1}}):
            assert settings_with_limits(left) == left
