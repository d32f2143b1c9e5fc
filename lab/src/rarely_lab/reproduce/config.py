"""An experiment is data with a readable name: `cosine/practical/adaptive-B40-logq20/seed3`.

problem         a world, with the paper's settings for it (λ, β, J, η, m, and the values of B and log q)
preset          a reading of the paper: paper, practical, code
reading         the preset of a neural configuration; of a linear one the view of the contexts, which is
                all that a preset changes for it
configuration   a policy of the paper's comparison, or the library's own default
setup           one configuration on one run of one problem: its world, and the policy that plays in it
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, cast

import numpy as np

from rarely import BatchNeuralUCB, DeterminantTrigger, FixedGrid, LinUCB, NeuralUCB, Paced, Policy, Training, Uniform
from rarely.extend import PresetName
from rarely.worlds.datasets import Dataset
from rarely.worlds.protocol import World
from rarely.worlds.table import Table, TableWorld, View

Kind = Literal["linucb", "linucb-intercept", "neuralucb", "fixed", "adaptive", "default", "uniform"]
PRESETS: tuple[PresetName, ...] = ("paper", "practical", "code")
VIEWS: dict[PresetName, View] = {"paper": "raw", "practical": "standard", "code": "unit"}
"""How a preset sees the rows of a table."""


@dataclass(frozen=True)
class Configuration:
    """A policy of the comparison.

    >>> Configuration("adaptive", batches=40, log_ratio=20.0).id
    'adaptive-B40-logq20'
    >>> Configuration("linucb", ridge=0.01, beta=1.0).id
    'linucb-r0.01-b1'
    """

    kind: Kind
    batches: int | None = None  # the budget B
    log_ratio: float | None = None  # the threshold log q of the determinant rule
    ridge: float | None = None  # λ of a linear configuration, and `beta` its β; a neural one takes its problem's
    beta: float | None = None

    @property
    def id(self) -> str:
        numbers = {"B": self.batches, "logq": self.log_ratio, "r": self.ridge, "b": self.beta}
        return "-".join([self.kind, *(f"{name}{value:g}" for name, value in numbers.items() if value is not None)])

    @property
    def linear(self) -> bool:
        return self.kind in ("linucb", "linucb-intercept")

    @property
    def cause(self) -> str:
        """Why its updates come when they come."""
        causes = {"fixed": "grid", "adaptive": "determinant", "default": "pace", "uniform": "never"}
        return causes.get(self.kind, "every round")

    @property
    def same_everywhere(self) -> bool:
        """Whether no engine matters: LinUCB and chance decide alike on each, and the default has one, and no rival."""
        return self.linear or self.kind in ("default", "uniform")

    def part_of(self, preset: PresetName) -> bool:
        """Return whether a preset has it; the library's default, not of the paper, stands beside `practical`."""
        return self.kind != "default" or preset == "practical"


@dataclass(frozen=True)
class Problem:
    """A world, and what the paper prints for it."""

    name: str
    source: World | Table | Dataset
    hidden: int = 100
    ridge: float = 0.001
    beta: float = 0.001  # the radius β, and ν of preset `code`
    step_size: float = 0.05  # the step η, which preset `code` takes as printed
    batches: tuple[int, ...] = (40, 100, 200)
    log_ratios: tuple[float, ...] = (20, 40, 60)
    base: str = ""  # the problem of the paper that this one is or varies: what is claimed of that one is checked on it
    steps: int = 200
    rounds: int | None = None  # the length T, where it is the problem's own; None: as asked for
    timed: bool = False
    """Whether its runs are there for their processor time, and so never played in lockstep with others."""
    runs: int = 100  # how many are published, at most, and in which presets: see `runs_of` of the catalogue
    presets: tuple[PresetName, ...] = PRESETS

    @property
    def horizon(self) -> int | None:
        """The most rounds that there are; None: any number."""
        if isinstance(self.source, World):
            return self.source.horizon
        return len(self.source.rows) if isinstance(self.source, Table) else self.source.count

    def view(self, preset: PresetName) -> View:
        """Return how a preset sees the contexts: only tables have several views."""
        return "raw" if isinstance(self.source, World) else VIEWS[preset]

    def world(self, view: View, *, constant: bool) -> World:
        """Return the world; `constant` puts a 1 into every block of a table's contexts."""
        if isinstance(self.source, World):
            return self.source
        return _table_world(self.source, view, constant)


@cache
def _table_world(source: Table | Dataset, view: View, constant: bool) -> TableWorld:
    """Return the world, made once for all cells of a problem: a table is read and standardised once."""
    return TableWorld(source if isinstance(source, Table) else source.table(), view, constant)


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
        return f"{self.problem.name}/{self.reading}/{self.configuration.id}/seed{self.seed}"

    def world(self) -> World:
        """Return the world, in the view that the configuration takes."""
        if self.configuration.linear:
            constant = self.configuration.kind == "linucb-intercept"
            return self.problem.world(cast(View, self.reading), constant=constant)
        preset = cast(PresetName, self.reading)
        return self.problem.world(self.problem.view(preset), constant=preset == "practical")

    def policy(self) -> Policy:
        """Return the policy before its first round."""
        problem, configuration, world = self.problem, self.configuration, self.world()
        if configuration.linear:
            # A table's constant stands in its blocks already, one for each arm.
            appended = configuration.kind == "linucb-intercept" and isinstance(problem.source, World)
            ridge, beta = cast(float, configuration.ridge), cast(float, configuration.beta)
            return LinUCB(world.dim, intercept=appended, ridge=ridge, beta=beta)
        if configuration.kind == "uniform":
            return Uniform(world.dim, seed=self.seed)
        always: dict[str, Any] = {
            "context_scale": world.context_scale,
            "covariance": "exact",  # results must not depend on the speed of a machine
            "seed": self.seed,
        }
        budget = configuration.batches or self.rounds
        if configuration.kind == "default":
            return BatchNeuralUCB(world.dim, Paced(self.rounds, min(budget, self.rounds)), **always)
        code = self.reading == "code"
        knobs: dict[str, Any] = {
            "hidden": problem.hidden,
            "ridge": problem.ridge,
            "beta": float(np.sqrt(problem.ridge * problem.beta)) if code else problem.beta,
            "training": Training(problem.steps, problem.step_size if code else None),
            "preset": self.reading,
            **always,
        }
        if configuration.batches is None:
            return NeuralUCB(world.dim, **knobs)
        grid, log_ratio = FixedGrid(self.rounds, budget), configuration.log_ratio
        schedule = grid if log_ratio is None else DeterminantTrigger(self.rounds, budget, log_ratio)
        return BatchNeuralUCB(world.dim, schedule, **knobs)
