"""Every problem and configuration of the paper, as data, and how a cell becomes a policy in a world."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from rarely.core.policies import BatchNeuralUCB, LinUCB, NeuralUCB
from rarely.core.policies.base import Policy
from rarely.core.policies.presets import PresetName, Training
from rarely.core.schedules import DeterminantTrigger, FixedGrid, Paced
from rarely.experiments.config import Cell, Configuration, Kind, Problem
from rarely.worlds import DATASETS, Cosine, Quadratic, World
from rarely.worlds.synthetic import DEVIATION_READING
from rarely.worlds.table import View

GRID = (0.001, 0.01, 0.1, 1.0)
"""The paper's values of LinUCB's λ and β; it reports the best of the 16 pairs."""
FAIR = (1.0, 1.0)
"""LinUCB's λ and β fixed beforehand: the plain choice, made without a look at any result."""

_COSINE: dict[str, Any] = {
    "hidden": 200,
    "ridge": 0.01,
    "beta": 0.001,
    "step_size": 0.01,
    "log_ratios": (20, 40, 60),
    "base": "cosine",
}
_QUADRATIC: dict[str, Any] = {
    "hidden": 100,
    "ridge": 0.01,
    "beta": 0.01,
    "step_size": 0.005,
    "log_ratios": (20, 25, 30),
    "base": "quadratic",
}
_LENGTHS = (500, 1000, 2000, 4000, 8000)
_GROWTH: dict[str, Any] = {"batches": (8, 16, 32, 64, 128, 256), "log_ratios": (15, 30, 60, 120, 240), "base": ""}
_MAGIC: dict[str, Any] = {"log_ratios": (50, 60, 70), "base": "magic"}
PROBLEMS = {
    problem.name: problem
    for problem in (
        Problem("cosine", Cosine(), **_COSINE),
        Problem("quadratic", Quadratic(), **_QUADRATIC),
        Problem("mushroom", DATASETS["mushroom"], batches=(40, 100, 250), log_ratios=(20, 30, 40), base="mushroom"),
        Problem("magic", DATASETS["magic"], **_MAGIC),
        # Where the text can be read in two ways, the other way.
        Problem("cosine-sd", Cosine(noise=DEVIATION_READING), **_COSINE),
        Problem("quadratic-sd", Quadratic(noise=DEVIATION_READING), **_QUADRATIC),
        Problem("magic-m400", DATASETS["magic"], hidden=400, **_MAGIC),
        # One problem at five lengths: how the B that each scheme needs grows with T.
        *(Problem(f"quadratic-T{length}", Quadratic(), **(_QUADRATIC | _GROWTH), rounds=length) for length in _LENGTHS),
    )
}
PAPER = ("cosine", "quadratic", "mushroom", "magic")
"""The paper's four problems; the others are second readings of them, and one problem at five lengths."""
SECOND_READINGS = ("cosine-sd", "quadratic-sd", "magic-m400")
GROWTH = tuple(f"quadratic-T{length}" for length in _LENGTHS)


def configurations(problem: Problem) -> Iterator[Configuration]:
    """The paper's comparison on a problem, and the library's default; of one length of several, schedules alone."""
    if problem.rounds is not None:
        yield from (Configuration("fixed", batches=b) for b in problem.batches)
        # The number of versions is what is asked for: there is no budget.
        yield from (Configuration("adaptive", batches=problem.rounds, log_ratio=q) for q in problem.log_ratios)
        return
    kinds: tuple[Kind, ...] = ("linucb", "linucb-intercept")
    for kind, (ridge, beta) in itertools.product(kinds, itertools.product(GRID, GRID)):
        yield Configuration(kind, ridge=ridge, beta=beta)
    yield Configuration("neuralucb")
    yield from (Configuration("fixed", batches=b) for b in problem.batches)
    yield from (Configuration("adaptive", batches=b, log_ratio=q) for b in problem.batches for q in problem.log_ratios)
    yield from (Configuration("default", batches=b) for b in problem.batches[:2])


def world_of(cell: Cell) -> World:
    """The world that a cell is played in."""
    if cell.configuration.linear:
        return _world(cell.problem, cast(View, cell.reading), cell.configuration.kind == "linucb-intercept")
    preset = cast(PresetName, cell.reading)
    return _world(cell.problem, cell.problem.view(preset), preset == "practical")


def policy_of(cell: Cell, world: World) -> Policy:
    """The policy that a cell plays."""
    problem, configuration = cell.problem, cell.configuration
    if configuration.linear:
        assert configuration.ridge is not None
        assert configuration.beta is not None
        # A table's constant stands in its blocks already, one for each arm.
        appended = configuration.kind == "linucb-intercept" and isinstance(problem.source, World)
        return LinUCB(world.dim, intercept=appended, ridge=configuration.ridge, beta=configuration.beta)
    always: dict[str, Any] = {
        "context_scale": world.context_scale,
        "covariance": "exact",  # results must not depend on the speed of a machine
        "seed": cell.seed,
    }
    if configuration.kind == "default":
        assert configuration.batches is not None
        return BatchNeuralUCB(world.dim, Paced(cell.rounds, configuration.batches), **always)
    code = cell.reading == "code"
    knobs: dict[str, Any] = {
        "hidden": problem.hidden,
        "ridge": problem.ridge,
        "beta": float(np.sqrt(problem.ridge * problem.beta)) if code else problem.beta,
        "training": Training(problem.steps, problem.step_size if code else None),
        "preset": cell.reading,
        **always,
    }
    if configuration.batches is None:
        return NeuralUCB(world.dim, **knobs)
    if configuration.log_ratio is None:
        return BatchNeuralUCB(world.dim, FixedGrid(cell.rounds, configuration.batches), **knobs)
    trigger = DeterminantTrigger(cell.rounds, configuration.batches, configuration.log_ratio)
    return BatchNeuralUCB(world.dim, trigger, **knobs)


_WORLDS: dict[tuple[str, View, bool], tuple[Problem, World]] = {}


def _world(problem: Problem, view: View, constant: bool) -> World:
    """The world, made once for all cells of a problem: a table is read and standardised once."""
    key = problem.name, view, constant
    if key not in _WORLDS or _WORLDS[key][0] != problem:
        _WORLDS[key] = problem, problem.world(view, constant=constant)
    return _WORLDS[key][1]
