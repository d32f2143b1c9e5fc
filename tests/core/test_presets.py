"""Presets, trainings and limits as values."""

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
    Preset,
    Training,
    Uniform,
    load,
)

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


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"training": 7}, {"training": Training(steps=7)}),
        ({"preset": "practical"}, {"preset": Preset.named("practical")}),
        ({"preset": "paper", "training": 3}, {"preset": Preset(), "training": {"steps": 3}}),
        ({"limits": None}, {"limits": Limits()}),
    ],
    ids=str,
)
def test_a_short_form_makes_the_same_policy(one, other):
    assert played(made(**one)) == played(made(**other))


def test_a_name_that_was_never_an_argument_is_refused():
    with pytest.raises(InvalidInput, match=r"unknown argument 'stepps' for BatchNeuralUCB\. It has beta, "):
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


class TestLimits:
    @pytest.mark.parametrize("kind", [LinUCB, Uniform, KernelUCB])
    def test_a_name_that_was_never_an_argument_is_refused(self, kind):
        with pytest.raises(InvalidInput, match=f"unknown argument 'memory_limit' for {kind.__name__}"):
            kind(2, memory_limit=10)

    @pytest.mark.parametrize("limit", [{"operations": 10}, {"arms": 3}])
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
        assert policy.settings()["limits"]["memory"] == 10**7
        assert kind(**policy.settings()).fingerprint() == policy.fingerprint()
