"""What a run of the paper's experiments is made of: its world, and the policy that plays in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from rarely import BatchNeuralUCB, DeterminantTrigger, FixedGrid, LinUCB, NeuralUCB, Paced, Policy, Training
from rarely.extend import PresetName
from rarely.worlds.protocol import World
from rarely.worlds.table import View
from rarely_lab.reproduce.config import Configuration, Problem


@dataclass(frozen=True)
class Setup:
    """One configuration on one run of one problem."""

    problem: Problem
    reading: PresetName | View
    configuration: Configuration
    seed: int
    rounds: int

    @property
    def id(self) -> str:
        """The readable name."""
        return f"{self.problem.name}/{self.reading}/{self.configuration.id}/seed{self.seed}"


def world_of(setup: Setup) -> World:
    """Return the world of a run, in the view that its configuration takes."""
    if setup.configuration.linear:
        constant = setup.configuration.kind == "linucb-intercept"
        return setup.problem.world(cast(View, setup.reading), constant=constant)
    preset = cast(PresetName, setup.reading)
    return setup.problem.world(setup.problem.view(preset), constant=preset == "practical")


def policy_of(setup: Setup, world: World) -> Policy:
    """Return the policy of a run before its first round."""
    problem, configuration = setup.problem, setup.configuration
    if configuration.linear:
        assert configuration.ridge is not None
        assert configuration.beta is not None
        # A table's constant stands in its blocks already, one for each arm.
        appended = configuration.kind == "linucb-intercept" and isinstance(problem.source, World)
        return LinUCB(world.dim, intercept=appended, ridge=configuration.ridge, beta=configuration.beta)
    always: dict[str, Any] = {
        "context_scale": world.context_scale,
        "covariance": "exact",  # results must not depend on the speed of a machine
        "seed": setup.seed,
    }
    if configuration.kind == "default":
        assert configuration.batches is not None
        return BatchNeuralUCB(world.dim, Paced(setup.rounds, configuration.batches), **always)
    code = setup.reading == "code"
    knobs: dict[str, Any] = {
        "hidden": problem.hidden,
        "ridge": problem.ridge,
        "beta": float(np.sqrt(problem.ridge * problem.beta)) if code else problem.beta,
        "training": Training(problem.steps, problem.step_size if code else None),
        "preset": setup.reading,
        **always,
    }
    if configuration.batches is None:
        return NeuralUCB(world.dim, **knobs)
    if configuration.log_ratio is None:
        return BatchNeuralUCB(world.dim, FixedGrid(setup.rounds, configuration.batches), **knobs)
    trigger = DeterminantTrigger(setup.rounds, configuration.batches, configuration.log_ratio)
    return BatchNeuralUCB(world.dim, trigger, **knobs)
