"""An experiment is data with a readable name: `cosine/practical/adaptive-B40-logq20/seed3`.

problem         a world, with the paper's settings for it (λ, β, J, η, m, and the values of B and log q)
preset          a reading of the paper: paper, practical, code
reading         the preset of a neural configuration; of a linear one the view of the contexts, which is
                all that a preset changes for it
configuration   a policy of the paper's comparison, or the library's own default
cell            one configuration on one run of one problem: what is played, recorded and resumed
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rarely.core.policies.presets import PresetName
from rarely.worlds.datasets import Dataset
from rarely.worlds.protocol import World
from rarely.worlds.table import Table, TableWorld, View

Kind = Literal["linucb", "linucb-intercept", "neuralucb", "fixed", "adaptive", "default"]
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
    batches: int | None = None
    """B"""
    log_ratio: float | None = None
    """log q"""
    ridge: float | None = None
    """λ and β of a linear configuration; a neural one takes its problem's."""
    beta: float | None = None

    @property
    def id(self) -> str:
        """Its readable name."""
        numbers = {"B": self.batches, "logq": self.log_ratio, "r": self.ridge, "b": self.beta}
        return "-".join([self.kind, *(f"{name}{value:g}" for name, value in numbers.items() if value is not None)])

    @property
    def linear(self) -> bool:
        """Whether it is a LinUCB."""
        return self.kind in ("linucb", "linucb-intercept")

    @property
    def batched(self) -> bool:
        """Whether it is one of the paper's BatchNeuralUCB, with a budget."""
        return self.kind in ("fixed", "adaptive")

    def part_of(self, preset: PresetName) -> bool:
        """Whether a preset has it: the library's default is no reading of the paper, and stands beside `practical`."""
        return self.kind != "default" or preset == "practical"


@dataclass(frozen=True)
class Problem:
    """A world, and what the paper prints for it."""

    name: str
    source: World | Table | Dataset
    hidden: int = 100
    """m"""
    ridge: float = 0.001
    """λ"""
    beta: float = 0.001
    """β, and ν of preset `code`"""
    step_size: float = 0.05
    """η, which preset `code` takes as printed"""
    batches: tuple[int, ...] = (40, 100, 200)
    log_ratios: tuple[float, ...] = (20, 40, 60)
    base: str = ""
    """The problem of the paper that this one is or varies: what is claimed of that one is checked on it."""
    steps: int = 200
    """J"""
    rounds: int | None = None
    """T, where it is the problem's own; None: as asked for."""

    @property
    def horizon(self) -> int | None:
        """How many rounds there are; None: as many as one likes."""
        if isinstance(self.source, World):
            return self.source.horizon
        return len(self.source.rows) if isinstance(self.source, Table) else self.source.count

    def view(self, preset: PresetName) -> View:
        """How a preset sees the contexts: of tables alone there are several views."""
        return "raw" if isinstance(self.source, World) else VIEWS[preset]

    def world(self, view: View, *, constant: bool) -> World:
        """The world; `constant` puts a 1 into every block of a table's contexts."""
        if isinstance(self.source, World):
            return self.source
        table = self.source if isinstance(self.source, Table) else self.source.table()
        return TableWorld(table, view, constant)


@dataclass(frozen=True)
class Cell:
    """One configuration on one run of one problem."""

    problem: Problem
    reading: PresetName | View
    configuration: Configuration
    seed: int
    rounds: int

    @property
    def id(self) -> str:
        """Its readable name, and its record's."""
        return f"{self.problem.name}/{self.reading}/{self.configuration.id}/seed{self.seed}"

    def describe(self, world: World) -> dict[str, Any]:
        """Everything but the code that its result depends on, as JSON."""
        # The world tells the source; B and log q are the configuration's, and T stands below.
        others = ("source", "batches", "log_ratios", "rounds")
        problem = {name: value for name, value in vars(self.problem).items() if name not in others}
        return {
            "problem": problem,
            "world": world.describe(),
            "reading": self.reading,
            "configuration": asdict(self.configuration),
            "seed": self.seed,
            "rounds": self.rounds,
        }


def identity(description: dict[str, Any]) -> str:
    """The hash of canonical JSON."""
    text = json.dumps(description, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
